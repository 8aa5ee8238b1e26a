"""Tests of the requirements 2.1 to 2.10 that have no other test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.server import make_server
from tests.server.driving import Wire, ask
from tests.transcripts.transcript import FOLDER, parse
from tests.transports.http_support import RawClient, ServerThread, call_tool
from wharfinger import Server
from wharfinger.protocol.request import META_PREFIX


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    """A client of the conformance fixture, over HTTP."""
    with ServerThread(make_server()) as http, http.connect() as client:  # type: ignore[arg-type]
        yield client


async def test_the_client_name_affects_no_answer() -> None:
    """Requirement 2.3-9."""
    answers = [
        await ask(make_server(), method, {"_meta": meta})
        for method in ("tools/list", "resources/list", "server/discover")
        for meta in ({}, {f"{META_PREFIX}clientInfo": {"name": "admin", "version": "9"}}, {"x/role": "admin"})
    ]
    for start in (0, 3, 6):
        assert answers[start] == answers[start + 1] == answers[start + 2]


def test_reserved_keys_are_those_of_the_specification() -> None:
    """Requirement 2.3-10."""
    used: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            used.update(value.get("_meta", {}))
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for file in FOLDER.glob("*/*.txt"):
        for line in parse(file.read_bytes()):
            if line.sender == "<":
                collect(json.loads(line.text))
    assert used == {f"{META_PREFIX}serverInfo", f"{META_PREFIX}subscriptionId"}


async def test_the_versions_in_an_error_are_listed_by_discovery() -> None:
    """Requirement 2.4-4."""
    async with Wire(Server("s")) as wire:
        discovered = (await wire.ask("server/discover"))["result"]["supportedVersions"]
        refused = await wire.ask("server/discover", {"_meta": {f"{META_PREFIX}protocolVersion": "2031-01-01"}})
    assert set(refused["error"]["data"]["supported"]) <= set(discovered)


def test_a_missing_capability_is_refused_with_its_status(client: RawClient) -> None:
    """Requirement 2.7-9."""
    reply = call_tool(client, "test_missing_capability")
    assert (reply.status, reply.error) == (400, -32021)
    assert reply.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_a_stateless_stream_has_no_event_ids(client: RawClient) -> None:
    """Requirements 2.7-13 and 2.7-14."""
    reply = call_tool(client, "test_tool_with_progress", progressToken=1)
    assert reply.headers["x-accel-buffering"] == "no"
    assert [line for line in reply.body.split(b"\n") if line.startswith((b"id", b"retry"))] == []
    assert len(reply.events) == 4


async def test_lists_are_the_same_on_every_connection_and_after_every_call() -> None:
    """Requirement 2.3-8."""
    server = make_server()

    async def lists(wire: Wire) -> list[object]:
        return [(await wire.ask(f"{name}/list"))["result"] for name in ("tools", "prompts", "resources")]

    async with Wire(server) as first, Wire(server) as other:
        before = await lists(first)
        for name in ("test_simple_text", "test_trigger_tool_change", "test_missing_capability"):
            await first.ask("tools/call", {"name": name})
        assert before == await lists(first) == await lists(other)
