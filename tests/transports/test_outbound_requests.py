"""Requests to the client on a byte stream: the deadline of the call is paused, and nothing is leaked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.driving import looped
from tests.transports.http_support import INITIALIZE, META, SampleService
from wharfinger.protocol.limits import Limits
from wharfinger.transports import stream_server as stream_module
from wharfinger.transports.stream_server import StreamServer


class Line:
    """An open connection of the handshake era that records its writes."""

    def __init__(self, **limits: Any) -> None:
        self.service = SampleService(Limits(**limits))
        self.server = StreamServer(self.service)
        self.server.connection_made(self)
        self.held = b""
        self.feed({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        self.feed({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, data: bytes) -> None:
        self.held += data

    def feed(self, message: Any) -> None:
        self.server.data_received(json.dumps(message).encode() + b"\n")

    def read(self, name: str, id: Any = 1, **meta: Any) -> None:
        params = {"uri": f"test://{name}", **meta}
        self.feed({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params})

    async def reported(self) -> list[Any]:
        """Return the messages when only blocked handlers are left."""
        for _ in range(20):
            await asyncio.sleep(0)
        reported, self.held = self.held, b""
        return [json.loads(line) for line in reported.splitlines()]

    async def asked(self, id: Any = 1) -> Any:
        """Call a tool that sends a request to the client, and return the id of the request."""
        self.read("ask", id)
        *_, question = await self.reported()
        assert question["method"] == "roots/list"
        return question["id"]

    @property
    def clean(self) -> bool:
        return not (self.server.pending._paused or self.server.peer._awaited)


def text_of(answer: Any) -> Any:
    return answer["result"]["contents"][0]["text"]


@looped
async def test_a_handler_waits_for_its_answer() -> None:
    line = Line()
    id = await line.asked()
    line.feed({"jsonrpc": "2.0", "id": str(id), "result": {"roots": ["of another id"]}})
    line.feed({"jsonrpc": "2.0", "id": id, "result": {"roots": []}})
    line.feed({"jsonrpc": "2.0", "id": id, "result": {"roots": ["doubled"]}})
    (answer,) = await line.reported()
    assert json.loads(text_of(answer)) == {"roots": []}
    assert line.clean
    line.feed({"jsonrpc": "2.0", "id": id, "result": {}})
    assert await line.reported() == []
    line.server.connection_lost(None)


@looped
async def test_a_stateless_call_on_the_same_stream_sends_no_request() -> None:
    line = Line()
    line.read("ask", 1, _meta=META)
    assert text_of((await line.reported())[-1]) == "nobody"
    line.server.connection_lost(None)


@looped
async def test_cancelling_the_call_cancels_its_request_and_sends_nothing_else() -> None:
    line = Line()
    id = await line.asked("w")
    line.feed({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
    (withdrawn,) = await line.reported()
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", id)
    assert line.clean
    line.server.connection_lost(None)


@looped
async def test_a_lost_connection_leaks_no_pending_request() -> None:
    line = Line()
    for number in range(10):
        await line.asked(number + 1)
    line.server.connection_lost(None)
    assert await line.reported() == []
    assert all(line.service.left.acquire(blocking=False) for _ in range(10))
    assert line.clean
    assert not line.server.peer.in_flight
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "request"]


@looped
async def test_the_end_of_input_fails_pending_requests() -> None:
    """No answer can arrive, so the handler gets an error. It may still finish."""
    line = Line()
    await line.asked()
    line.server.eof_received()
    (answer,) = await line.reported()
    assert text_of(answer) == "ConnectionLost"
    await line.server.ended


@looped
async def test_a_request_that_the_client_never_answers_times_out() -> None:
    line = Line(answer_time=0.01)
    id = await line.asked()
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "request"])
    withdrawn, answer = await line.reported()
    assert withdrawn["params"]["requestId"] == id
    assert text_of(answer) == "RequestTimeout"
    assert line.clean
    line.server.connection_lost(None)


@looped
async def test_the_deadline_is_paused_while_a_request_is_pending() -> None:
    line = Line(handler_time=2 * stream_module.TICK_SECONDS)
    id = await line.asked()
    (request,) = line.server.peer.in_flight.values()
    for _ in range(10):
        line.server.sweeper.cancel()
        line.server.sweep()
    assert await line.reported() == []
    line.feed({"jsonrpc": "2.0", "id": id, "result": {"roots": []}})
    (answer,) = await line.reported()
    assert json.loads(text_of(answer)) == {"roots": []}
    assert request.started_at == 10
    line.server.connection_lost(None)


@looped
async def test_the_deadline_continues_after_the_last_of_two_concurrent_answers() -> None:
    line = Line()
    pending = line.server.pending
    await line.asked()
    (request,) = line.server.peer.in_flight.values()
    other = asyncio.ensure_future(line.server.ask(request, "roots/list", {}))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert pending._paused[request][0]._open == 2
    ids = list(line.server.peer._awaited)
    line.feed({"jsonrpc": "2.0", "id": ids[1], "result": {"roots": []}})
    await other
    assert request.started_at == float("inf")
    line.feed({"jsonrpc": "2.0", "id": ids[0], "result": {"roots": []}})
    await line.reported()
    assert request.started_at == 0
    assert line.clean
    line.server.connection_lost(None)


@looped
async def test_nothing_is_sent_for_a_cancelled_call() -> None:
    """Security L11: this includes a handler that continues."""
    line = Line()
    line.read("stubborn", "s")
    await line.reported()
    line.feed({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
    assert await line.reported() == []
    assert line.service.left.acquire(blocking=False)
    line.server.connection_lost(None)


@looped
async def test_a_call_cannot_close_a_stream_that_is_a_whole_connection() -> None:
    line = Line()
    line.read("polled", "p")
    assert len(await line.reported()) >= 2
    assert not line.service.released
    line.service.gates[-1].set()
    assert (await line.reported())[-1]["id"] == "p"
    line.server.connection_lost(None)


@looped
async def test_an_input_request_that_stops_a_handler_is_its_result() -> None:
    line = Line()
    line.read("stopped", 1, _meta=META)
    answer = (await line.reported())[-1]
    assert answer["result"]["resultType"] == "input_required"
    line.server.connection_lost(None)
