"""Streams that are resumed by GET after a break, and requests from the server on them (2025-11-25, Streamable HTTP)."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.transports.client_servers import (
    HANDSHAKE,
    ReceivedRequest,
    accepted,
    answer,
    ask,
    event,
    got,
    linked,
    result,
    run,
    stream,
)
from wharfinger.errors import ConnectionLost, InvalidParams, WharfingerError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.revisions import REVISIONS


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_the_answer_arrives_on_the_resumed_stream(revision: str) -> None:
    """A priming event has no data. The client waits for `retry` and sends the id of the last event."""
    times: list[float] = []
    seen: list[tuple[str, str | None]] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append((request.verb, request.headers.get("last-event-id")))
        times.append(time.monotonic())
        stream(writer)
        if request.verb == "POST":
            writer.write(b"id: e1\nretry: 200\ndata: \n\n")
        elif len(seen) == 2:  # a second break, after another event
            writer.write(b"id: e2\n" + event(method="notifications/message", params={"level": "info", "data": 1}))
        else:
            writer.write(event(id=1, result={"late": True}))
        writer.close()

    async def test() -> None:
        async with linked(serve, rules=REVISIONS[revision]) as link:
            reported: list[Any] = []
            link.events.on_notification = lambda _, message: reported.append(message.method)
            assert got(await ask(link)) == {"late": True}
        assert seen == [("POST", None), ("GET", "e1"), ("GET", "e2")]
        assert reported == ["notifications/message"]
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
            stream(writer)
            writer.write(event(id=1, result={}))
            writer.close()

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            assert got(await ask(link)) == {}

    run(test())


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "200 OK", "400 Bad Request"])
def test_a_stream_that_cannot_be_resumed_is_reported(status: str) -> None:
    """The client stops after three attempts without a new event."""
    gets = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal gets
        if request.verb == "POST" or status == "200 OK":
            gets += request.verb == "GET"
            stream(writer)
            writer.write(b"id: e1\nretry: 1\ndata: \n\n")
            writer.close()
        else:
            gets += 1
            answer(writer, b"", "text/plain", status)

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            with pytest.raises(ConnectionLost, match="before it was complete"):
                await ask(link)
        assert gets == (3 if status == "200 OK" else 1)

    run(test())


def test_the_end_of_the_session_while_resuming_is_reported() -> None:
    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "POST":
            stream(writer)
            writer.write(b"id: e1\nretry: 1\ndata: \n\n")
            writer.close()
        else:
            answer(writer, b"", "text/plain", "404 Not Found")

    async def test() -> None:
        lost: list[WharfingerError] = []
        async with linked(serve, rules=HANDSHAKE) as link:
            link.events.on_lost = lambda _, error: lost.append(error)
            with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                await ask(link)
            assert not caught.value.unsent  # the server may have handled the request
            assert len(lost) == 1
            with pytest.raises(ConnectionLost, match="has ended the session") as caught:
                await ask(link)
            assert caught.value.unsent

    run(test())


def test_a_stateless_stream_is_not_resumed() -> None:
    """2026-07-28: a broken stream loses the request."""
    seen: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        seen.append(request.verb)
        stream(writer)
        writer.write(b"id: e1\nretry: 1\ndata: \n\n")
        writer.close()

    async def test() -> None:
        async with linked(serve) as link:
            with pytest.raises(ConnectionLost):
                await ask(link)
        assert seen == ["POST"]

    run(test())


def test_a_gap_in_a_session_stream_without_event_ids_is_reported() -> None:
    missed: asyncio.Queue[None] = asyncio.Queue()
    gets = 0

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        nonlocal gets
        gets += 1
        stream(writer)
        writer.write(b"retry: 1\n\n")
        await writer.drain()
        if gets < 2:
            writer.close()
        else:
            await asyncio.sleep(30)

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            link.events.on_missed = lambda _: missed.put_nowait(None)
            await link.open_session_stream(5)
            await missed.get()

    run(test())


# Requests from the server.


class RequestingServer:
    """A server that sends requests on the stream of a call or of the session, and gets the answers as POSTs."""

    def __init__(self, *questions: dict[str, Any], own_stream: bool = False) -> None:
        self.questions = questions
        self.own_stream = own_stream
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            stream(writer)
            for question in self.questions:
                writer.write(event(**question))
            await writer.drain()
            await asyncio.sleep(30)
        message = request.message
        if "method" not in message:
            accepted(writer)
            self.answers.put_nowait(message)
            return
        stream(writer)
        expected = sum("id" in question for question in self.questions)
        for question in () if self.own_stream else self.questions:
            writer.write(event(**question))
        await writer.drain()
        answers = [] if self.own_stream else [await self.answers.get() for _ in range(expected)]
        writer.write(event(id=message["id"], result={"answers": answers}))
        writer.close()


def test_a_request_on_the_stream_of_a_call_is_answered_by_a_separate_post() -> None:
    async def test() -> None:
        async with linked(RequestingServer({"id": "q", "method": "roots/list"}), rules=HANDSHAKE) as link:

            async def roots(message: Message) -> Any:
                assert message.method == "roots/list"
                return {"roots": []}

            link.events.on_request = roots
            answers = got(await ask(link))["answers"]
        assert answers == [{"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}]

    run(test())


def test_a_request_on_the_session_stream_is_answered() -> None:
    async def test() -> None:
        server = RequestingServer({"id": 1, "method": "roots/list"}, own_stream=True)
        async with linked(server, rules=HANDSHAKE) as link:

            async def refused(message: Message) -> Any:
                raise InvalidParams("no")

            link.events.on_request = refused
            await link.open_session_stream(5)
            reported = await server.answers.get()
        assert (reported["id"], reported["error"]["code"]) == (1, -32602)

    run(test())


def test_requests_without_a_handler_are_refused_and_failures_are_reported_without_details() -> None:
    async def test() -> None:
        async with linked(RequestingServer({"id": "q", "method": "sampling/createMessage"}), rules=HANDSHAKE) as link:
            assert [a["error"]["code"] for a in got(await ask(link))["answers"]] == [-32601]

            async def broken(message: Message) -> Any:
                raise RuntimeError("a secret")

            link.events.on_request = broken
            (reported,) = got(await ask(link))["answers"]
            assert reported["error"]["code"] == -32603
            assert "secret" not in reported["error"]["message"]

    run(test())


def test_a_cancelled_request_stops_its_handler_and_is_not_answered() -> None:
    async def test() -> None:
        begun, stopped = asyncio.Event(), asyncio.Event()
        server = RequestingServer({"id": 1, "method": "elicitation/create"}, own_stream=True)

        async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if request.verb != "GET":
                await server(request, writer)
                return
            stream(writer)
            writer.write(event(id=1, method="elicitation/create"))
            await writer.drain()
            await begun.wait()
            writer.write(event(method="notifications/cancelled", params={"requestId": 1}))
            writer.write(event(id=2, method="ping"))
            await writer.drain()
            await asyncio.sleep(30)

        async def answer_slowly(message: Message) -> Any:
            begun.set()
            try:
                await asyncio.sleep(30)
            finally:
                stopped.set()

        async with linked(serve, rules=HANDSHAKE) as link:
            link.events.on_request = answer_slowly
            await link.open_session_stream(5)
            await stopped.wait()
            assert (await server.answers.get())["id"] == 2
            assert server.answers.empty()

    run(test())


def test_concurrent_requests_from_the_server_are_bounded() -> None:
    async def test() -> None:
        server = RequestingServer(*({"id": n, "method": "roots/list"} for n in range(40)), own_stream=True)
        async with linked(server, rules=HANDSHAKE) as link:
            hold = asyncio.Event()

            async def slow(message: Message) -> Any:
                await hold.wait()
                return {}

            link.events.on_request = slow
            await link.open_session_stream(5)
            refused = [await server.answers.get() for _ in range(8)]
            assert {a["error"]["code"] for a in refused} == {-32603}
            hold.set()
            assert sorted([(await server.answers.get())["id"] for _ in range(32)]) == list(range(32))

    run(test())


def test_closing_the_connection_cancels_pending_requests_from_the_server() -> None:
    async def test() -> None:
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def answer_slowly(message: Message) -> Any:
            begun.set()
            try:
                await asyncio.sleep(30)
            finally:
                stopped.set()

        async with linked(
            RequestingServer({"id": 1, "method": "roots/list"}, own_stream=True), rules=HANDSHAKE
        ) as link:
            link.events.on_request = answer_slowly
            await link.open_session_stream(5)
            await begun.wait()
        await stopped.wait()

    run(test())


def test_a_notification_is_sent_before_later_requests() -> None:
    order: list[str] = []

    async def serve(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        order.append(request.message["method"])
        if "id" in request.message:
            answer(writer, result(request))
        else:
            accepted(writer)

    async def test() -> None:
        async with linked(serve, rules=HANDSHAKE) as link:
            link.notify("notifications/initialized", {})
            await ask(link)
        assert order == ["notifications/initialized", "tools/list"]

    run(test())
