"""Streams that a client resumes by GET, and requests from the server on them (2025-11-25, Streamable HTTP)."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.transports.client_servers import (
    HANDSHAKE,
    ReceivedRequest,
    decode_result,
    encode_event,
    encode_result,
    open_link,
    run,
    send_request,
    start_event_stream,
    write_accepted,
    write_response,
)
from wharfinger.errors import ConnectionLost, InvalidParams, WharfingerError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.protocol.sse import Pulse
from wharfinger.transports.http_client import get_streams


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_answer_arrives_on_the_resumed_stream(revision: str) -> None:
    """A priming event has no data. The client waits for `retry` and sends the id of the last event."""
    times: list[float] = []
    requests: list[tuple[str, str | None]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requests.append((request.verb, request.headers.get("last-event-id")))
        times.append(time.monotonic())
        start_event_stream(writer)
        if request.verb == "POST":
            writer.write(b"id: e1\nretry: 200\ndata: \n\n")
        elif len(requests) == 2:  # ends a second time, after another event
            writer.write(
                b"id: e2\n" + encode_event(method="notifications/message", params={"level": "info", "data": 1})
            )
        else:
            writer.write(encode_event(id=1, result={"late": True}))
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=REVISIONS[revision]) as link:
            notifications: list[Any] = []
            link.events.on_notification = lambda _, message: notifications.append(message.method)
            assert decode_result(await send_request(link)) == {"late": True}
        assert requests == [("POST", None), ("GET", "e1"), ("GET", "e2")]
        assert notifications == ["notifications/message"]
        assert all(0.19 < later - before < 1.0 for before, later in pairwise(times))

    run(test())


def test_a_stream_that_breaks_within_an_event_resumes_after_the_last_complete_one() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "POST":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            body = b'id: e1\nretry: 1\ndata: \n\ndata: {"jso'
            writer.write(b"%x\r\n%s\r\n" % (len(body), body))
            await writer.drain()
            writer.transport.abort()
        else:
            assert request.headers["last-event-id"] == "e1"
            start_event_stream(writer)
            writer.write(encode_event(id=1, result={}))
            writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            assert decode_result(await send_request(link)) == {}

    run(test())


def test_a_stream_that_has_lost_its_heartbeat_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the call failed, although the same silence of a resumed stream only broke off the connection."""
    monkeypatch.setattr(Pulse, "MIN_SECONDS", 0.05)

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        if request.verb == "GET":
            writer.write(encode_event(id=1, result={"late": True}))
            writer.close()
            return
        writer.write(b"id: e1\nretry: 1\ndata: \n\n")
        for _ in range(4):
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(b": alive\n\n")
        await writer.drain()
        await asyncio.sleep(30)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            assert decode_result(await send_request(link)) == {"late": True}

    run(test())


def test_the_silence_of_a_stream_that_cannot_be_resumed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the error said that the server had closed the connection."""
    monkeypatch.setattr(Pulse, "MIN_SECONDS", 0.05)

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        start_event_stream(writer)
        for _ in range(4):
            writer.write(b": alive\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        await asyncio.sleep(30)

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionLost, match="has fallen silent"):
                await send_request(link)

    run(test())


def test_a_stream_whose_connections_are_cut_after_a_time_is_resumed_until_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug: behind a proxy that limits the duration of connections, the call failed after the third."""
    monkeypatch.setattr(get_streams, "LIVE_SECONDS", 0.05)
    get_count = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal get_count
        start_event_stream(writer)
        get_count += request.verb == "GET"
        if get_count == 5:
            writer.write(encode_event(id=1, result={"late": True}))
        else:
            writer.write(b"id: e1\nretry: 1\ndata: \n\n")
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            assert decode_result(await send_request(link)) == {"late": True}

    run(test())


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "200 OK", "400 Bad Request"])
def test_a_stream_that_cannot_be_resumed_is_reported(status: str) -> None:
    """The client stops after three attempts without a new event."""
    get_count = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal get_count
        if request.verb == "POST" or status == "200 OK":
            get_count += request.verb == "GET"
            start_event_stream(writer)
            writer.write(b"id: e1\nretry: 1\ndata: \n\n")
            writer.close()
        else:
            get_count += 1
            write_response(writer, b"", "text/plain", status)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionLost, match="before it was complete"):
                await send_request(link)
        assert get_count == (3 if status == "200 OK" else 1)

    run(test())


def test_the_end_of_the_session_while_resuming_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "POST" and request.message["method"] == "initialize":
            write_response(writer, encode_result(request), header_lines="Mcp-Session-Id: s1\r\n")
        elif request.verb == "POST":
            start_event_stream(writer)
            writer.write(b"id: e1\nretry: 1\ndata: \n\n")
            writer.close()
        else:
            write_response(writer, b"", "text/plain", "404 Not Found")

    async def test() -> None:
        lost: list[WharfingerError] = []
        async with open_link(serve, rules=HANDSHAKE) as link:
            await send_request(link, "initialize")
            link.events.on_lost = lambda _, error: lost.append(error)
            with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                await send_request(link)
            assert not caught.value.unsent  # the server may have handled the request
            assert len(lost) == 1
            with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                await send_request(link)
            assert caught.value.unsent

    run(test())


def test_a_stateless_stream_is_not_resumed() -> None:
    """2026-07-28: when a stream breaks, its request is lost."""
    verbs: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        verbs.append(request.verb)
        start_event_stream(writer)
        writer.write(b"id: e1\nretry: 1\ndata: \n\n")
        writer.close()

    async def test() -> None:
        async with open_link(serve) as link:
            with pytest.raises(ConnectionLost):
                await send_request(link)
        assert verbs == ["POST"]

    run(test())


def test_a_gap_in_a_session_stream_without_event_ids_is_reported() -> None:
    missed: asyncio.Queue[None] = asyncio.Queue()
    get_count = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal get_count
        get_count += 1
        start_event_stream(writer)
        writer.write(b"retry: 1\n\n")
        await writer.drain()
        if get_count < 2:
            writer.close()
        else:
            await asyncio.sleep(30)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_missed = lambda _: missed.put_nowait(None)
            await link.open_session_stream(5)
            await missed.get()

    run(test())


def test_a_session_stream_that_breaks_after_each_message_stays_open() -> None:
    """As behind a proxy that closes the stream without its last chunk. Five times are more than the attempts in a row
    that may fail."""
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    lost: list[WharfingerError] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        body = b"retry: 1\n\n" + encode_event(method="notifications/tools/list_changed")
        writer.write(b"%x\r\n%s\r\n" % (len(body), body))
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_notification = lambda _, message: arrived.put_nowait(message.method)
            link.events.on_lost = lambda _, error: lost.append(error)
            await link.open_session_stream(5)
            for _ in range(5):
                assert await arrived.get() == "notifications/tools/list_changed"
            assert not lost

    run(test())


def test_a_session_stream_that_always_breaks_without_a_message_is_lost() -> None:
    get_count = 0
    lost: asyncio.Queue[WharfingerError] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal get_count
        get_count += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"a\r\nretry: 1\n\n\r\n")
        writer.close()

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_lost = lambda _, error: lost.put_nowait(error)
            await link.open_session_stream(5)
            assert "closed the session's stream" in str(await lost.get())
        assert get_count == 3

    run(test())


@pytest.mark.parametrize("id", ["é7", "a\tb", "a" * 4097])
def test_an_event_id_that_cannot_be_sent_back_counts_as_none(id: str) -> None:
    verbs: list[str] = []
    missed: asyncio.Queue[None] = asyncio.Queue()

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        assert "last-event-id" not in request.headers
        verbs.append(request.verb)
        start_event_stream(writer)
        writer.write(f"id: {id}\nretry: 1\ndata: \n\n".encode())
        await writer.drain()
        if verbs.count("GET") < 2:
            writer.close()
        else:
            await asyncio.sleep(30)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionLost, match="before it was complete"):
                await send_request(link)
            assert verbs == ["POST"]
            link.events.on_missed = lambda _: missed.put_nowait(None)
            await link.open_session_stream(5)
            await missed.get()

    run(test())


# Requests from the server.


class RequestingServer:
    """A server that sends requests on the stream of a call or of the session, and gets the answers as POSTs."""

    def __init__(self, *requests: dict[str, Any], on_session_stream: bool = False) -> None:
        self.requests = requests
        self.on_session_stream = on_session_stream
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            start_event_stream(writer)
            for server_request in self.requests:
                writer.write(encode_event(**server_request))
            await writer.drain()
            await asyncio.sleep(30)
        message = request.message
        if "method" not in message:
            write_accepted(writer)
            self.answers.put_nowait(message)
            return
        start_event_stream(writer)
        expected = sum("id" in server_request for server_request in self.requests)
        for server_request in () if self.on_session_stream else self.requests:
            writer.write(encode_event(**server_request))
        await writer.drain()
        answers = [] if self.on_session_stream else [await self.answers.get() for _ in range(expected)]
        writer.write(encode_event(id=message["id"], result={"answers": answers}))
        writer.close()


def test_a_request_on_the_stream_of_a_call_is_answered_by_a_separate_post() -> None:
    async def test() -> None:
        async with open_link(RequestingServer({"id": "q", "method": "roots/list"}), rules=HANDSHAKE) as link:

            async def list_roots(message: Message) -> Any:
                assert message.method == "roots/list"
                return {"roots": []}

            link.events.on_request = list_roots
            answers = decode_result(await send_request(link))["answers"]
        assert answers == [{"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}]

    run(test())


def test_a_request_on_the_session_stream_is_answered() -> None:
    async def test() -> None:
        server = RequestingServer({"id": 1, "method": "roots/list"}, on_session_stream=True)
        async with open_link(server, rules=HANDSHAKE) as link:

            async def refuse(message: Message) -> Any:
                raise InvalidParams("no")

            link.events.on_request = refuse
            await link.open_session_stream(5)
            response = await server.answers.get()
        assert (response["id"], response["error"]["code"]) == (1, -32602)

    run(test())


def test_requests_without_a_handler_are_refused_and_failures_are_reported_without_details() -> None:
    async def test() -> None:
        async with open_link(
            RequestingServer({"id": "q", "method": "sampling/createMessage"}), rules=HANDSHAKE
        ) as link:
            assert [response["error"]["code"] for response in decode_result(await send_request(link))["answers"]] == [
                -32601
            ]

            async def fail(message: Message) -> Any:
                raise RuntimeError("a secret")

            link.events.on_request = fail
            (response,) = decode_result(await send_request(link))["answers"]
            assert response["error"]["code"] == -32603
            assert "secret" not in response["error"]["message"]

    run(test())


def test_a_cancelled_request_stops_its_handler_and_is_not_answered() -> None:
    async def test() -> None:
        started, stopped = asyncio.Event(), asyncio.Event()
        server = RequestingServer({"id": 1, "method": "elicitation/create"}, on_session_stream=True)

        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if request.verb != "GET":
                await server(request, writer)
                return
            start_event_stream(writer)
            writer.write(encode_event(id=1, method="elicitation/create"))
            await writer.drain()
            await started.wait()
            writer.write(encode_event(method="notifications/cancelled", params={"requestId": 1}))
            writer.write(encode_event(id=2, method="ping"))
            await writer.drain()
            await asyncio.sleep(30)

        async def answer_slowly(message: Message) -> Any:
            started.set()
            try:
                await asyncio.sleep(30)
            finally:
                stopped.set()

        async with open_link(serve, rules=HANDSHAKE) as link:
            link.events.on_request = answer_slowly
            await link.open_session_stream(5)
            await stopped.wait()
            assert (await server.answers.get())["id"] == 2
            assert server.answers.empty()

    run(test())


def test_concurrent_requests_from_the_server_are_bounded() -> None:
    async def test() -> None:
        server = RequestingServer(*({"id": n, "method": "roots/list"} for n in range(40)), on_session_stream=True)
        async with open_link(server, rules=HANDSHAKE) as link:
            gate = asyncio.Event()

            async def answer_slowly(message: Message) -> Any:
                await gate.wait()
                return {}

            link.events.on_request = answer_slowly
            await link.open_session_stream(5)
            refusals = [await server.answers.get() for _ in range(8)]
            assert {refusal["error"]["code"] for refusal in refusals} == {-32603}
            gate.set()
            assert sorted([(await server.answers.get())["id"] for _ in range(32)]) == list(range(32))

    run(test())


def test_closing_the_connection_cancels_pending_requests_from_the_server() -> None:
    async def test() -> None:
        started, stopped = asyncio.Event(), asyncio.Event()

        async def answer_slowly(message: Message) -> Any:
            started.set()
            try:
                await asyncio.sleep(30)
            finally:
                stopped.set()

        async with open_link(
            RequestingServer({"id": 1, "method": "roots/list"}, on_session_stream=True), rules=HANDSHAKE
        ) as link:
            link.events.on_request = answer_slowly
            await link.open_session_stream(5)
            await started.wait()
        await stopped.wait()

    run(test())


def test_a_notification_is_sent_before_later_requests() -> None:
    order: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        order.append(request.message["method"])
        if "id" in request.message:
            write_response(writer, encode_result(request))
        else:
            write_accepted(writer)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.notify("notifications/initialized", {})
            await send_request(link)
        assert order == ["notifications/initialized", "tools/list"]

    run(test())


def test_a_request_waits_for_the_newest_of_several_notifications() -> None:
    """A bug: the request that had waited made later ones forget the newer notification."""
    order: list[str] = []
    gates = {"notifications/1": asyncio.Event(), "notifications/2": asyncio.Event()}

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        method = request.message["method"]
        if method in gates:
            await gates[method].wait()
            write_accepted(writer)
        else:
            write_response(writer, encode_result(request))
        order.append(method)

    async def test() -> None:
        async with open_link(serve, rules=HANDSHAKE) as link:
            link.notify("notifications/1", {})
            first = asyncio.ensure_future(send_request(link, "x/1"))
            await asyncio.sleep(0)
            link.notify("notifications/2", {})
            gates["notifications/1"].set()
            await first
            asyncio.get_running_loop().call_later(0.05, gates["notifications/2"].set)
            await send_request(link, "x/2")
        assert order == ["notifications/1", "x/1", "notifications/2", "x/2"]

    run(test())
