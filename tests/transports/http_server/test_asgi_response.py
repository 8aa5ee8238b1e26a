"""Listen streams over a real socket: acknowledgements, keep-alive comments, bounds and slow readers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.transports.http_support import STATELESS, RawClient, SampleService, ServerThread
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.protocol.limits import Limits
from wharfinger.transports.http_server import asgi_response

TAG = {"io.modelcontextprotocol/subscriptionId": 1}


def updated(uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"_meta": TAG, "uri": uri}}


def test_a_listen_stream_starts_with_its_acknowledgement() -> None:
    with ServerThread() as server, server.wire() as wire:
        acknowledgement = wire.listen("test://a")
        assert acknowledgement == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"resourceSubscriptions": ["test://a"]}, "_meta": TAG},
        }
        assert server.call(server.service.notify, "test://a") == [True]
        assert wire.event() == updated("test://a")


def test_drain_ends_a_listen_stream_with_its_result() -> None:
    with ServerThread() as server, server.wire() as wire:
        wire.listen("test://a")
        server.stop()
        result = wire.event()["result"]
        assert result["resultType"] == "complete"
        assert result["_meta"].items() >= TAG.items()
        assert wire.event() is None
        assert wire.closed()


def test_a_client_that_does_not_accept_events_cannot_listen() -> None:
    with ServerThread() as server, server.wire() as wire:
        reply = wire.call("subscriptions/listen", {"notifications": {}}, accept="application/json")
        assert (reply.status, reply.error) == (406, -32600)


def test_a_disconnected_listener_is_removed() -> None:
    """Security U06, X03."""
    with ServerThread(limits=HttpLimits(streams_per_client=1)) as server:
        for _ in range(3):
            with server.wire() as wire:
                wire.listen("test://a")
            assert server.service.left.acquire(timeout=5)
        assert server.call(server.service.notify, "test://a") == []


def test_an_idle_stream_gets_comments() -> None:
    with ServerThread(limits=HttpLimits(comment_time=0.01, sweep_time=0.01)) as server, server.wire() as wire:
        wire.listen("test://a")
        wire.unread = b""
        assert wire.chunk() == b":\n\n"
        assert wire.chunk() == b":\n\n"


def test_streams_of_one_client_are_bounded() -> None:
    """Security U05."""
    with ServerThread(limits=HttpLimits(streams_per_client=2)) as server:
        wires = [server.wire() for _ in range(2)]
        for wire in wires:
            wire.listen("test://a")
        with server.wire() as wire:
            reply = wire.call("subscriptions/listen", {"notifications": {}})
            assert (reply.status, reply.error) == (429, -32600)
            assert wire.read("a").status == 200


def test_streams_of_all_clients_are_bounded() -> None:
    with ServerThread(limits=HttpLimits(streams=1)) as server, server.wire() as first, server.wire() as second:
        first.listen("test://a")
        reply = second.call("subscriptions/listen", {"notifications": {}})
        assert (reply.status, reply.error) == (503, -32603)


def test_a_listener_that_never_reads_uses_bounded_memory_and_delays_no_other() -> None:
    """Security H33, U08."""
    limit = 50_000
    with ServerThread(SampleService(Limits(backlog=limit)), limits=HttpLimits(drain=0.3)) as server:
        wires = [server.wire() for _ in range(20)]
        for wire in wires:
            wire.listen("test://a")
        uri = "test://" + "x" * 10_000
        reported: list[bool] = []

        def storm() -> None:
            for number in range(100):
                reported.extend(server.service.notify(f"{uri}{number}"))

        for _ in range(20):
            server.call(storm)
        assert not all(reported)
        streams = [request.channel.stream for request in server.service.listeners.values()]  # type: ignore[attr-defined]
        assert all(stream._size < limit + 20_000 for stream in streams)
        with server.wire() as wire:
            assert wire.read("a").status == 200
        server.stop()
        server.thread.join(5)
        assert not server.thread.is_alive()


def test_a_pending_notification_is_not_queued_twice() -> None:
    with ServerThread() as server, server.wire() as wire:
        wire.listen("test://a", "test://b")

        def burst() -> None:
            for _ in range(5):
                server.service.notify("test://a")
                server.service.notify("test://b")

        server.call(burst)
        assert [wire.event(), wire.event()] == [updated("test://a"), updated("test://b")]
        server.call(server.service.notify, "test://a")
        assert wire.event() == updated("test://a")


def test_listen_requests_of_one_connection_are_served_in_order() -> None:
    """Security H51: a request pipelined after a stream waits for the end of the stream, or is lost with it."""
    with ServerThread() as server, server.wire() as wire:
        wire.listen("test://a")
        wire.stateless("resources/read", {"uri": "test://b"}, id=2)
        server.call(server.service.notify, "test://a")
        assert wire.event() == updated("test://a")
        server.call(server.service.drain)
        assert wire.event()["result"]["resultType"] == "complete"
        assert wire.event() is None
        assert wire.reply().text == "test://b"


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_stream_over_an_old_http_version_ends_with_the_connection(version: str) -> None:
    with ServerThread() as server, server.wire() as wire:
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"test://progress","_meta":'
            b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
        )
        wire.write(
            b"POST /mcp %b\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: resources/read\r\n"
            b"Mcp-Name: test://progress\r\nMCP-Protocol-Version: %b\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
            % (version.encode(), STATELESS.encode(), len(body), body)
        )
        status, headers = wire.head()
        assert (status, headers["connection"]) == (200, "close")
        assert ("transfer-encoding" in headers) == (version == "HTTP/1.1")
        while wire.more():
            pass
        assert wire.buffered.count(b"event: message") == 4


def test_many_idle_streams_do_not_delay_requests() -> None:
    """Security X04, on a smaller scale."""
    with ServerThread() as server:
        wires: list[RawClient] = []
        for _ in range(200):
            wires.append(server.wire())
            wires[-1].stateless("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["test://a"]}})
        for wire in wires:
            wire.head()
            wire.event()
        with server.wire() as wire:
            assert wire.read("a").status == 200
        assert server.call(server.service.notify, "test://a") == [True] * 200
        assert all(wire.event() == updated("test://a") for wire in wires)
        server.stop()
        assert all(wire.event()["result"]["resultType"] == "complete" for wire in wires)


def test_a_page_of_another_origin_gets_its_notifications() -> None:
    with ServerThread(allow_origins=["https://app.example"]) as server, server.wire() as wire:
        wire.listen("test://a", origin="https://app.example")
        for _ in range(3):
            server.call(server.service.notify, "test://a")
            assert wire.event() == updated("test://a")


def test_a_slow_reader_gets_pending_notifications_in_order() -> None:
    with ServerThread(SampleService(Limits(backlog=1 << 24))) as server, server.wire() as wire, server.wire() as other:
        wire.listen("test://a")
        uris = [f"test://{number}/" + "x" * 10_000 for number in range(600)]
        for uri in uris:  # more than the kernel buffers for a reader that does not read
            server.call(server.service.notify, uri)
        assert other.read("a").status == 200
        server.call(server.service.drain)
        assert [wire.event()["params"]["uri"] for _ in uris] == uris
        assert wire.event()["result"]["resultType"] == "complete"


def test_streams_beyond_one_slice_are_written_in_later_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_response, "STREAMS_PER_TURN", 2)
    with ServerThread() as server:
        wires = [server.wire() for _ in range(7)]
        for wire in wires:
            wire.listen("test://a")
        for uri in ("test://a", "test://b"):
            server.call(server.service.notify, uri)
        for wire in wires:
            assert [wire.event(), wire.event()] == [updated("test://a"), updated("test://b")]
            wire.close()
