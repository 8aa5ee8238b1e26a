"""Servers of other SDKs send progress, logs and input requests to the client over each of their transports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.interop.programs import HANDSHAKE, PROBE_SECONDS, STATELESS, program, run_server
from wharfinger import Client
from wharfinger import types as t

PEERS = ("mcp1", "mcp2", "fastmcp")
CASES = [(peer, transport) for peer in PEERS for transport in ("stdio", "http", "sse")]


async def tour(target: Any, revision: str | None, *, with_input_requests: bool = True) -> None:
    """Check that progress and logs arrive and that every kind of input request is answered."""
    steps: list[tuple[float, float | None, str | None]] = []
    logs: list[t.LoggingMessageNotificationParams] = []
    log_received = asyncio.Event()
    answers: list[Any] = [{"name": "south", "depth": 5}, "decline", "cancel"]

    async def choose(input_request: Any) -> Any:
        assert input_request.message == "Which quay?"
        return answers.pop(0)

    async def advise(params: t.CreateMessageRequestParams) -> str:
        assert params.max_tokens == 10
        return "south"

    def log(entry: t.LoggingMessageNotificationParams) -> None:
        logs.append(entry)
        log_received.set()

    async with Client(
        target, revision=revision, probe_timeout=PROBE_SECONDS, elicitation=choose, sampling=advise,
        roots=["file:///charts", "file:///logs"], log=log,
    ) as client:  # fmt: skip
        sounding = await client.call_tool("sound", progress=lambda *step: steps.append(step))
        assert sounding.data == {"name": "north", "depth": 7}
        assert steps == [(1, 3, "cast 1"), (2, 3, "cast 2"), (3, 3, "cast 3")]
        await asyncio.wait_for(log_received.wait(), PROBE_SECONDS)
        assert [entry.level for entry in logs] == ["warning"]
        assert "shoal ahead" in str(logs[0].data)
        if with_input_requests:
            texts = [(await client.call_tool("choose")).text for _ in range(3)]
            assert texts == ["south 5", "decline", "cancel"]
            assert (await client.call_tool("advise")).text == "south"
            assert (await client.call_tool("charts")).text == "file:///charts file:///logs"


@pytest.mark.parametrize(("peer", "transport"), CASES)
def test_every_input_request_is_answered(peer: str, transport: str, tmp_path: Path) -> None:
    if transport == "stdio":
        asyncio.run(tour([*program(peer, "interactive"), "stdio"], HANDSHAKE))
        return
    port = free_port()
    path = "sse" if transport == "sse" else "mcp"
    with run_server([*program(peer, "interactive"), transport, str(port)], port, tmp_path / "log"):
        asyncio.run(tour(f"http://127.0.0.1:{port}/{path}", HANDSHAKE))


@pytest.mark.parametrize("peer", ["mcp2", "fastmcp"])
def test_progress_and_logs_of_a_stateless_call_are_reported(peer: str, tmp_path: Path) -> None:
    port = free_port()
    with run_server([*program(peer, "interactive"), "http", str(port)], port, tmp_path / "log"):
        asyncio.run(tour(f"http://127.0.0.1:{port}/mcp", STATELESS, with_input_requests=False))
