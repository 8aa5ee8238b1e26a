"""Batches of 2025-03-26 on a byte stream and over HTTP: one array of answers, or no answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.driving import looped
from tests.transports.http_support import INITIALIZE, RawClient, SampleService, ServerThread
from wharfinger.protocol.limits import Limits
from wharfinger.transports.stream_server import StreamServer

BATCHES = "2025-03-26"
OTHERS = ["2024-11-05", "2025-06-18", "2025-11-25"]


def ask(name: str, id: Any) -> Any:
    return {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": f"test://{name}"}}


def notify(method: str, **params: Any) -> Any:
    return {"jsonrpc": "2.0", "method": method, "params": params}


class Line:
    """A stream that records its writes."""

    def __init__(self, version: str = BATCHES, **limits: Any) -> None:
        self.service = SampleService(Limits(**limits))
        self.server = StreamServer(self.service)
        self.server.connection_made(self)
        self.held = b""
        self.feed(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE | {"protocolVersion": version}}
        )
        self.feed(notify("notifications/initialized"))

    def write(self, data: bytes) -> None:
        self.held += data

    def feed(self, message: Any) -> None:
        self.server.data_received(json.dumps(message).encode() + b"\n")

    async def settled(self) -> list[Any]:
        """Return the written messages when only blocked reads are left."""
        for _ in range(20):
            await asyncio.sleep(0)
        lines = [json.loads(line) for line in self.held.splitlines()]
        return [line for line in lines if isinstance(line, list) or line.get("result", {}).get("serverInfo") is None]


def ids(array: Any) -> list[Any]:
    return [answer.get("id") for answer in array]


@looped
async def test_the_answers_of_a_batch_are_sent_as_one_array() -> None:
    line = Line()
    line.feed([ask("a", 1), notify("notifications/roots/list_changed"), ask("missing", "1"), 7, ask("a", 1)])
    (array,) = await line.settled()
    assert sorted(map(str, ids(array))) == ["1", "1", "None", "None"]
    assert {answer["error"]["code"] for answer in array if "error" in answer} == {-32600, -32002}
    line.server.connection_lost(None)


@looped
async def test_the_array_waits_for_its_last_answer_and_delays_no_other_request() -> None:
    line = Line()
    line.feed([ask("a", 1), ask("wait", 2)])
    line.feed(ask("a", 3))
    assert ids(await line.settled()) == [3]
    line.service.gates[0].set()
    assert sorted(ids((await line.settled())[1])) == [1, 2]
    line.server.connection_lost(None)


@looped
async def test_a_cancelled_entry_is_left_out() -> None:
    line = Line()
    line.feed([ask("wait", 1), ask("wait", 2), notify("notifications/cancelled", requestId=1)])
    await line.settled()
    line.service.gates[-1].set()
    assert ids((await line.settled())[0]) == [2]
    line.feed([ask("wait", 1), notify("notifications/cancelled", requestId=1)])
    assert len(await line.settled()) == 1, "nothing is said where nothing is left"
    line.server.connection_lost(None)


@looped
async def test_an_entry_may_be_cancelled_by_the_next_line_of_the_same_chunk() -> None:
    line = Line()
    cancel = json.dumps(notify("notifications/cancelled", requestId=1)).encode()
    line.server.data_received(json.dumps([ask("wait", 1), ask("a", 2)]).encode() + b"\n" + cancel + b"\n")
    (array,) = await line.settled()
    assert ids(array) == [2]
    line.server.connection_lost(None)


@looped
async def test_a_batch_of_notifications_is_not_answered() -> None:
    line = Line()
    line.feed([notify("notifications/roots/list_changed"), notify("x/y")])
    assert await line.settled() == []
    line.server.connection_lost(None)


@pytest.mark.parametrize("body", [[], [ask("a", n) for n in range(9)]])
@looped
async def test_an_empty_or_too_long_batch_is_refused(body: Any) -> None:
    line = Line(batch=8)
    line.feed(body)
    (refusal,) = await line.settled()
    assert (refusal["error"]["code"], "id" in refusal) == (-32600, False)
    line.server.connection_lost(None)


@looped
async def test_each_request_of_a_batch_nested_too_deeply_is_refused_with_its_id() -> None:
    """Regression: the refusal had no id, so the callers waited for their timeouts."""
    line = Line(batch=2)
    await line.settled()
    deep = b'{"x":' + b"[" * 5000 + b'{"id":9,"method":"x"}' + b"]" * 5000 + b',"method":"ping","id":"b"}'
    answer = b'{"id":3,"result":{}}'
    line.server.data_received(b'[{"id":1,"method":"ping"},' + answer + b"," + deep + b",7]\n")
    (array,) = await line.settled()
    assert [(found["id"], found["error"]["code"]) for found in array] == [(1, -32600), ("b", -32600)]
    line.server.data_received(b"[" + b",".join([deep] * 3) + b"]\n")
    line.server.data_received(b"[" * 5000 + b"]" * 5000 + b"\n")
    for refusal in (await line.settled())[1:]:
        assert (refusal["error"]["code"], "id" in refusal) == (-32600, False)
    line.server.connection_lost(None)


@looped
async def test_initialize_in_a_batch_is_refused() -> None:
    line = Line()
    line.feed([{"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": INITIALIZE}])
    ((refusal,),) = await line.settled()
    assert (refusal["id"], refusal["error"]["code"]) == (9, -32600)
    line.server.connection_lost(None)


@looped
async def test_the_entries_of_a_batch_count_as_requests_in_flight() -> None:
    line = Line(in_flight=2)
    await line.settled()
    line.feed([ask("wait", n) for n in range(4)])
    await line.settled()
    for gate in line.service.gates:
        gate.set()
    (array,) = await line.settled()
    assert sorted(ids(array)) == [0, 1, 2, 3]
    assert ["error" in answer for answer in sorted(array, key=lambda a: a["id"])] == [False, False, True, True]
    line.server.connection_lost(None)


@looped
async def test_large_content_in_a_batch_is_complete() -> None:
    line = Line()
    line.feed([ask("big", 1), ask("a", 2), ask("big", 3)])
    (array,) = await line.settled()
    assert sorted(ids(array)) == [1, 2, 3]
    line.server.connection_lost(None)


@pytest.mark.parametrize("version", OTHERS)
@looped
async def test_batches_are_refused_in_other_revisions(version: str) -> None:
    line = Line(version)
    line.feed([ask("a", 1)])
    (refusal,) = await line.settled()
    assert refusal["error"]["code"] == -32600
    line.server.connection_lost(None)


@looped
async def test_a_broken_array_is_a_parse_error() -> None:
    line = Line()
    line.server.data_received(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},\n')
    (refusal,) = await line.settled()
    assert refusal["error"]["code"] == -32700
    line.server.connection_lost(None)


# -- over HTTP


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread() as http:
        yield http


def opened(wire: RawClient, version: str = BATCHES) -> str:
    return wire.in_session("", "initialize", INITIALIZE | {"protocolVersion": version}, 0).headers["mcp-session-id"]


def test_a_batch_over_http_is_answered_with_one_array(http: ServerThread) -> None:
    with http.wire() as wire:
        session = opened(wire)
        wire.post([ask("a", 1), ask("missing", 2), notify("notifications/initialized"), 7], mcp_session_id=session)
        reply = wire.reply()
        assert (reply.status, sorted(map(str, ids(reply.json)))) == (200, ["1", "2", "None"])


def test_a_batch_with_a_notification_is_answered_as_a_stream(http: ServerThread) -> None:
    with http.wire() as wire:
        session = opened(wire)
        wire.post([ask("a", 1), ask("progress", 2), ask("a", 3)], mcp_session_id=session)
        events = wire.reply().events
        assert sorted(event["id"] for event in events if "id" in event) == [1, 2, 3]
        assert [event.get("method") for event in events].count("notifications/progress") == 3


def test_a_batch_of_notifications_and_answers_is_accepted(http: ServerThread) -> None:
    with http.wire() as wire:
        session = opened(wire)
        answer = {"jsonrpc": "2.0", "id": 9, "result": {}}
        wire.post([notify("notifications/initialized"), answer], mcp_session_id=session)
        reply = wire.reply()
        assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("body", [[], [1, 2]])
def test_a_batch_without_a_message_is_a_bad_request(http: ServerThread, body: Any) -> None:
    with http.wire() as wire:
        session = opened(wire)
        wire.post(body, mcp_session_id=session)
        reply = wire.reply()
        assert reply.status == 400
        errors = reply.json if body else [reply.json]
        assert [error["error"]["code"] for error in errors] == [-32600] * max(len(body), 1)


def test_cancelled_entries_over_http_are_left_out(http: ServerThread) -> None:
    with http.wire() as wire:
        session = opened(wire)
        wire.post([ask("wait", 1), notify("notifications/cancelled", requestId=1), ask("a", 2)], mcp_session_id=session)
        assert ids(wire.reply().json) == [2]
        wire.post([ask("wait", 1), notify("notifications/cancelled", requestId=1)], mcp_session_id=session)
        reply = wire.reply()
        assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("version", OTHERS)
def test_batches_over_http_are_refused_in_other_revisions(http: ServerThread, version: str) -> None:
    with http.wire() as wire:
        session = opened(wire, version)
        wire.post([ask("a", 1)], mcp_session_id=session)
        assert (reply := wire.reply()).status == 400
        assert reply.error == -32600


def test_a_batch_opens_no_session(http: ServerThread) -> None:
    with http.wire() as wire:
        wire.post([{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}])
        reply = wire.reply()
        assert (reply.status, reply.error) == (400, -32600)
