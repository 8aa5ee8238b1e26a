"""Requests to the client on a byte stream: the deadline of the call is paused, and nothing is leaked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http_support import META
from tests.transports.stream_support import StreamClient
from wharfinger.errors import Overloaded
from wharfinger.transports.stream_server import TICK_SECONDS


async def start_call(client: StreamClient, id: Any = 1) -> Any:
    """Call a handler that sends a request to the client, and return the id of its request."""
    client.read("ask", id)
    *_, request = await client.messages()
    assert request["method"] == "roots/list"
    return request["id"]


def has_no_pending_requests(client: StreamClient) -> bool:
    return not (client.server.pending._paused or client.server.peer._awaited)


def text_of(answer: Any) -> Any:
    return answer["result"]["contents"][0]["text"]


async def test_a_handler_waits_for_its_answer() -> None:
    client = StreamClient()
    id = await start_call(client)
    client.send({"jsonrpc": "2.0", "id": str(id), "result": {"roots": ["of another id"]}})
    client.send({"jsonrpc": "2.0", "id": id, "result": {"roots": []}})
    client.send({"jsonrpc": "2.0", "id": id, "result": {"roots": ["repeated"]}})
    (answer,) = await client.messages()
    assert json.loads(text_of(answer)) == {"roots": []}
    assert has_no_pending_requests(client)
    client.send({"jsonrpc": "2.0", "id": id, "result": {}})
    assert await client.messages() == []
    client.server.connection_lost(None)


async def test_a_stateless_call_on_the_same_stream_sends_no_request() -> None:
    client = StreamClient()
    client.read("ask", 1, _meta=META)
    assert text_of((await client.messages())[-1]) == "nobody"
    client.server.connection_lost(None)


async def test_cancelling_the_call_cancels_its_request_and_sends_nothing_else() -> None:
    client = StreamClient()
    id = await start_call(client, "w")
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}})
    (cancellation,) = await client.messages()
    assert (cancellation["method"], cancellation["params"]["requestId"]) == ("notifications/cancelled", id)
    assert has_no_pending_requests(client)
    client.server.connection_lost(None)


async def test_a_lost_connection_leaks_no_pending_request() -> None:
    client = StreamClient()
    for number in range(10):
        await start_call(client, number + 1)
    client.server.connection_lost(None)
    assert await client.messages() == []
    assert all(client.service.ended.acquire(blocking=False) for _ in range(10))
    assert has_no_pending_requests(client)
    assert not client.server.peer.in_flight
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "request"]


async def test_the_end_of_input_fails_pending_requests() -> None:
    """No answer can arrive, so the handler gets an error. It may still finish."""
    client = StreamClient()
    await start_call(client)
    client.server.eof_received()
    (answer,) = await client.messages()
    assert text_of(answer) == "ConnectionLost"
    await client.server.ended


async def test_a_request_that_the_client_never_answers_times_out() -> None:
    client = StreamClient(answer_time=0.01)
    id = await start_call(client)
    await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name() == "request"])
    cancellation, answer = await client.messages()
    assert cancellation["params"] == {"requestId": id, "reason": "There was no answer in time."}
    assert text_of(answer) == "RequestTimeout"
    assert has_no_pending_requests(client)
    client.server.connection_lost(None)


async def test_a_request_that_cannot_be_sent_is_not_cancelled() -> None:
    """Bug: the client was told that a request was cancelled which it had never received."""
    client = StreamClient()
    await start_call(client)
    (request,) = client.server.peer.in_flight.values()
    refused: list[bytes] = []

    def refuse(data: bytes) -> bool:
        refused.append(data)
        return False

    with pytest.raises(Overloaded, match="has no open stream for requests, or does not read"):
        await client.server.pending.send(request, "roots/list", {}, refuse)
    assert [json.loads(data)["method"] for data in refused] == ["roots/list"]
    client.server.connection_lost(None)


async def test_the_deadline_is_paused_while_a_request_is_pending() -> None:
    client = StreamClient(handler_time=2 * TICK_SECONDS)
    id = await start_call(client)
    (request,) = client.server.peer.in_flight.values()
    for _ in range(10):
        client.server.sweeper.cancel()
        client.server.sweep()
    assert await client.messages() == []
    client.send({"jsonrpc": "2.0", "id": id, "result": {"roots": []}})
    (answer,) = await client.messages()
    assert json.loads(text_of(answer)) == {"roots": []}
    assert request.started_at == 10
    client.server.connection_lost(None)


async def test_the_deadline_resumes_after_the_last_of_two_concurrent_answers() -> None:
    client = StreamClient()
    pending = client.server.pending
    await start_call(client)
    (request,) = client.server.peer.in_flight.values()
    second_request = asyncio.ensure_future(client.server.ask(request, "roots/list", {}))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert pending._paused[request][0]._open == 2
    ids = list(client.server.peer._awaited)
    client.send({"jsonrpc": "2.0", "id": ids[1], "result": {"roots": []}})
    await second_request
    assert request.started_at == float("inf")
    client.send({"jsonrpc": "2.0", "id": ids[0], "result": {"roots": []}})
    await client.messages()
    assert request.started_at == 0
    assert has_no_pending_requests(client)
    client.server.connection_lost(None)


async def test_nothing_is_sent_for_a_cancelled_call_whose_handler_continues() -> None:
    """Security L11."""
    client = StreamClient()
    client.read("stubborn", "s")
    await client.messages()
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
    assert await client.messages() == []
    assert client.service.ended.acquire(blocking=False)
    client.server.connection_lost(None)


async def test_a_call_on_a_byte_stream_cannot_close_its_stream() -> None:
    client = StreamClient()
    client.read("detach", "p")
    assert len(await client.messages()) >= 2
    assert not client.service.detached
    client.service.gates[-1].set()
    assert (await client.messages())[-1]["id"] == "p"
    client.server.connection_lost(None)


async def test_an_input_request_that_stops_a_handler_is_its_result() -> None:
    client = StreamClient()
    client.read("input-required", 1, _meta=META)
    answer = (await client.messages())[-1]
    assert answer["result"]["resultType"] == "input_required"
    client.server.connection_lost(None)
