"""A wire records, drops, delays and cuts messages as configured, and a replay repeats them."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger import Client, Context, Server
from wharfinger.errors import ConnectionLost, RequestTimeout
from wharfinger.testing import REVISIONS, Replay, Wire


@pytest.fixture
def server() -> Server:
    """A server with a tool that records its calls."""
    server = Server("s")
    calls: list[int] = []

    @server.tool
    def double(number: int) -> int:
        calls.append(number)
        return number * 2

    @server.tool(annotations={"idempotentHint": False})
    async def count(ctx: Context) -> int:
        await ctx.report_progress(1, 2, "halfway")
        return len(calls)

    @server.resource("s://note")
    def note() -> str:
        return "text"

    return server


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_message_is_recorded(server: Server, revision: str) -> None:
    wire = Wire(server)
    async with Client(wire, revision=revision) as client:
        assert (await client.call_tool("double", {"number": 4}, returns=int)).data == 8
    (call,) = [m for m in wire.transcript.messages(">") if m.get("method") == "tools/call"]
    (answer,) = [m for m in wire.transcript.messages("<") if m.get("id") == call["id"]]
    assert call["params"]["arguments"] == {"number": 4}
    assert answer["result"]["content"][0]["text"] == "8"
    assert str(wire.transcript).startswith("# connection 1\n> ")


async def test_a_dropped_request_does_not_reach_the_server(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        wire.drop("tools/call")
        with pytest.raises(RequestTimeout):
            await client.call_tool("double", {"number": 1}, timeout=0.1)
        assert (await client.call_tool("count", returns=int)).data == 0
    assert wire.pending_faults == 0
    assert "# drop tools/call\n" in str(wire.transcript)


async def test_a_call_runs_even_if_its_answer_is_dropped(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        wire.drop("tools/call", response=True)
        with pytest.raises(RequestTimeout):
            await client.call_tool("double", {"number": 1}, timeout=0.1)
        assert (await client.call_tool("count", returns=int)).data == 1


async def test_a_delayed_answer_arrives_after_later_answers(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        wire.delay("tools/call", 0.1, response=True)
        first = asyncio.create_task(client.call_tool("double", {"number": 1}, returns=int))
        while wire.pending_faults:
            await asyncio.sleep(0)
        assert (await client.read_resource("s://note")).text == "text"
        assert not first.done()
        assert (await first).data == 2


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_cut_fails_the_call_and_the_next_call_reconnects(server: Server, revision: str) -> None:
    wire = Wire(server)
    async with Client(wire, revision=revision) as client:
        wire.cut("tools/call")
        with pytest.raises(ConnectionLost):
            await client.call_tool("double", {"number": 1})
        assert (await client.call_tool("count", returns=int)).data == 0
    assert wire.connections == 2


async def test_a_read_is_retried_after_a_cut(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        wire.cut("resources/read", response=True)
        assert (await client.read_resource("s://note")).text == "text"
    assert wire.connections == 2


async def test_an_immediate_cut_fails_pending_calls(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        wire.delay("tools/call", 10)
        call = asyncio.create_task(client.call_tool("double", {"number": 1}))
        while wire.pending_faults:
            await asyncio.sleep(0)
        wire.cut()
        with pytest.raises(ConnectionLost, match="was cut"):
            await call


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_replay_repeats_the_recorded_answers(server: Server, revision: str) -> None:
    async def call_server(client: Client) -> tuple[str, int]:
        text = (await client.read_resource("s://note")).text
        return text, (await client.call_tool("double", {"number": 4}, returns=int)).data

    wire = Wire(server)
    async with Client(wire, revision=revision) as client:
        recorded = await call_server(client)
    replay = Replay(wire.transcript)
    async with Client(replay, revision=revision) as client:
        assert client.transport == "memory"
        assert await call_server(client) == recorded
    assert replay.done


async def test_an_unexpected_message_fails_with_both_messages(server: Server) -> None:
    wire = Wire(server)
    async with Client(wire) as client:
        await client.call_tool("double", {"number": 4})
    async with Client(Replay(wire.transcript)) as client:
        with pytest.raises(ConnectionLost, match=r'(?s)"number":5.*continues with.*"number":4'):
            await client.call_tool("double", {"number": 5})
