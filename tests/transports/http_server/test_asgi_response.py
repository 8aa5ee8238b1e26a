"""Listen streams over a real socket: acknowledgements, keep-alive comments, bounds and slow readers."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.transports.http_support import STATELESS, RawClient, SampleService, ServerThread
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import ChunkedMessage
from wharfinger.protocol.subscriptions import LISTS, ChangeNotification, list_changed, updated
from wharfinger.transports.http_server import asgi_response
from wharfinger.transports.http_server.asgi_response import EventStream, FlushQueue
from wharfinger.transports.serving import PART_BYTES

TAG = {"io.modelcontextprotocol/subscriptionId": 1}


def updated_notification(uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"_meta": TAG, "uri": uri}}


def test_a_listen_stream_starts_with_its_acknowledgement() -> None:
    with ServerThread() as server, server.connect() as client:
        acknowledgement = client.listen("test://a")
        assert acknowledgement == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"resourceSubscriptions": ["test://a"]}, "_meta": TAG},
        }
        assert server.call(server.service.notify, "test://a") == [True]
        assert client.event() == updated_notification("test://a")


def test_drain_ends_a_listen_stream_with_its_result() -> None:
    with ServerThread() as server, server.connect() as client:
        client.listen("test://a")
        server.stop()
        result = client.event()["result"]
        assert result["resultType"] == "complete"
        assert result["_meta"].items() >= TAG.items()
        assert client.event() is None
        assert client.is_closed_by_server()


def test_a_client_that_does_not_accept_events_cannot_listen() -> None:
    with ServerThread() as server, server.connect() as client:
        reply = client.call("subscriptions/listen", {"notifications": {}}, accept="application/json")
        assert (reply.status, reply.error) == (406, -32600)


def test_a_disconnected_listener_is_removed() -> None:
    """Security U06, X03."""
    with ServerThread(limits=HttpLimits(streams_per_client=1)) as server:
        for _ in range(3):
            with server.connect() as client:
                client.listen("test://a")
            assert server.service.ended.acquire(timeout=40)
        assert server.call(server.service.notify, "test://a") == []


def test_an_idle_stream_gets_comments() -> None:
    with ServerThread(limits=HttpLimits(comment_time=0.01, sweep_time=0.01)) as server, server.connect() as client:
        client.listen("test://a")
        client.unread = b""
        assert client.chunk() == b":\n\n"
        assert client.chunk() == b":\n\n"


def test_streams_of_one_client_are_bounded() -> None:
    """Security U05."""
    with ServerThread(limits=HttpLimits(streams_per_client=2)) as server:
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            client.listen("test://a")
        with server.connect() as client:
            reply = client.call("subscriptions/listen", {"notifications": {}})
            assert (reply.status, reply.error) == (429, -32600)
            assert client.read("a").status == 200


def test_streams_of_all_clients_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(streams=1)) as server, server.connect() as first, server.connect() as second:
        first.listen("test://a")
        reply = second.call("subscriptions/listen", {"notifications": {}})
        assert (reply.status, reply.error) == (503, -32603)


def test_a_listener_that_never_reads_uses_bounded_memory_and_does_not_delay_others() -> None:
    """Security H33, U08."""
    limit = 50_000
    with ServerThread(SampleService(Limits(backlog=limit)), limits=HttpLimits(drain=0.3)) as server:
        clients = [server.connect() for _ in range(20)]
        for client in clients:
            client.listen("test://a")
        uri = "test://" + "x" * 10_000
        sent: list[bool] = []

        def notify_100_times() -> None:
            for number in range(100):
                sent.extend(server.service.notify(f"{uri}{number}"))

        for _ in range(20):
            server.call(notify_100_times)
        assert not all(sent)
        streams = [request.channel.stream for request in server.service.listeners.values()]  # type: ignore[attr-defined]
        assert all(stream._size < limit + 20_000 for stream in streams)
        with server.connect() as client:
            assert client.read("a").status == 200
        server.stop()
        server.thread.join(5)
        assert not server.thread.is_alive()


def test_a_pending_notification_is_not_queued_twice() -> None:
    with ServerThread() as server, server.connect() as client:
        client.listen("test://a", "test://b")

        def notify_5_times() -> None:
            for _ in range(5):
                server.service.notify("test://a")
                server.service.notify("test://b")

        server.call(notify_5_times)
        assert [client.event(), client.event()] == [updated_notification("test://a"), updated_notification("test://b")]
        server.call(server.service.notify, "test://a")
        assert client.event() == updated_notification("test://a")


def test_a_message_that_only_mentions_a_change_is_sent_each_time() -> None:
    """Bug: of two equal log messages, the second was lost if they contained `list_changed` or `/updated`."""
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "a/updated"}}
    with ServerThread() as server, server.connect() as client:
        client.listen("test://a")

        def send_twice() -> None:
            (request,) = server.service.listeners.values()
            for _ in range(2):
                request.channel.send(request, encode(message))
            server.service.notify("test://a")

        server.call(send_twice)
        assert [client.event() for _ in range(3)] == [message, message, updated_notification("test://a")]


@pytest.mark.parametrize("notice", [updated("a:b"), *map(list_changed, LISTS)])
def test_every_change_notice_is_found(notice: ChangeNotification) -> None:
    for message in (notice(None), notice(b"{}")):
        assert asgi_response.is_change_notice(message)


def test_a_request_pipelined_after_a_stream_is_answered_after_the_end_of_the_stream() -> None:
    """Security H51."""
    with ServerThread() as server, server.connect() as client:
        client.listen("test://a")
        client.send_stateless("resources/read", {"uri": "test://b"}, id=2)
        server.call(server.service.notify, "test://a")
        assert client.event() == updated_notification("test://a")
        server.call(server.service.drain)
        assert client.event()["result"]["resultType"] == "complete"
        assert client.event() is None
        assert client.reply().text == "test://b"


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_stream_over_a_connection_without_keep_alive_ends_with_the_connection(version: str) -> None:
    with ServerThread() as server, server.connect() as client:
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://progress","_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        client.write(
            b"POST /mcp %b\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: resources/read\r\n"
            b"Mcp-Name: test://progress\r\nMCP-Protocol-Version: %b\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
            % (version.encode(), STATELESS.encode(), len(body), body)
        )
        status, headers = client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert ("transfer-encoding" in headers) == (version == "HTTP/1.1")
        while client.receive():
            pass
        assert client.buffered.count(b"event: message") == 4


def test_many_idle_streams_do_not_delay_requests() -> None:
    """Security X04, on a smaller scale."""
    with ServerThread() as server:
        clients: list[RawClient] = []
        for _ in range(200):
            clients.append(server.connect())
            clients[-1].send_stateless(
                "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["test://a"]}}
            )
        for client in clients:
            client.head()
            client.event()
        with server.connect() as client:
            assert client.read("a").status == 200
        assert server.call(server.service.notify, "test://a") == [True] * 200
        assert all(client.event() == updated_notification("test://a") for client in clients)
        server.stop()
        assert all(client.event()["result"]["resultType"] == "complete" for client in clients)


def test_a_listener_of_an_allowed_origin_gets_notifications() -> None:
    with ServerThread(allow_origins=["https://app.example"]) as server, server.connect() as client:
        client.listen("test://a", origin="https://app.example")
        for _ in range(3):
            server.call(server.service.notify, "test://a")
            assert client.event() == updated_notification("test://a")


def test_a_slow_reader_gets_pending_notifications_in_order() -> None:
    with (
        ServerThread(SampleService(Limits(backlog=1 << 24))) as server,
        server.connect() as client,
        server.connect() as other,
    ):
        client.listen("test://a")
        uris = [f"test://{number}/" + "x" * 10_000 for number in range(600)]
        for uri in uris:  # more than the kernel buffers for a reader that does not read
            server.call(server.service.notify, uri)
        assert other.read("a").status == 200
        server.call(server.service.drain)
        assert [client.event()["params"]["uri"] for _ in uris] == uris
        assert client.event()["result"]["resultType"] == "complete"


def test_streams_above_the_limit_of_one_loop_iteration_are_written_in_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi_response, "STREAMS_PER_TURN", 2)
    with ServerThread() as server:
        clients = [server.connect() for _ in range(7)]
        for client in clients:
            client.listen("test://a")
        for uri in ("test://a", "test://b"):
            server.call(server.service.notify, uri)
        for client in clients:
            assert [client.event(), client.event()] == [
                updated_notification("test://a"),
                updated_notification("test://b"),
            ]
            client.close()


@pytest.mark.parametrize("size", [100, 3 * PART_BYTES])
def test_the_last_event_of_a_stream_is_sent_in_parts(size: int) -> None:
    """Bug: a large part of a result was one write."""
    written: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        written.append(message.get("body", b""))

    async def finish() -> None:
        stream = EventStream(send, 1000, 0, FlushQueue())
        await stream.finish(ChunkedMessage((b'{"a":"', memoryview(b"x" * size), b'"}')))

    asyncio.run(finish())
    assert b"".join(written) == b'event: message\ndata: {"a":"%b"}\n\n' % (b"x" * size)
    assert max(map(len, written)) < 1.5 * PART_BYTES
