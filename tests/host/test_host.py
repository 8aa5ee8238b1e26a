"""A host over real servers: calls, prompts and reads by their public names, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.test_upstreams import PROGRAM, alive
from wharfinger import Host, Server
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound, ToolError
from wharfinger.record import AuditLog
from wharfinger.upstreams import UpstreamChange, UpstreamUnreachable


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 40))


def command(name: str, seconds: str = "0") -> list[str]:
    return [sys.executable, str(PROGRAM), name, seconds]


def add(a: str, b: str) -> str:
    return a + b


def docs() -> Server:
    server = Server("docs")
    server.resources.add("docs://a", lambda: "the text of a")
    server.tools.add(lambda: 1 / 0, name="fail")
    server.tools.add(add)
    return server


def test_calls_reads_and_prompts_are_routed_to_their_server() -> None:
    async def test() -> None:
        async with Host({"one": command("one"), "two": command("two"), "docs": docs()}) as host:
            assert (await host.call_tool("docs_add", {"a": "x", "b": "y"})).data == "xy"
            first, second = [await host.call_tool(f"{name}_pid") for name in ("one", "two")]
            assert first.data != second.data
            assert (await host.read("two://log")).text == "The log of two"
            assert (await host.read("docs://a")).text == "the text of a"
            messages = (await host.prompt("two_greeting")).messages
            assert [getattr(message.content, "text", "") for message in messages] == ["Hello from two"]
            with pytest.raises(ToolError):
                await host.call_tool("docs_fail")
            started = [first.data, second.data]
        assert not any(alive(pid) for pid in started)

    run(test())


def test_a_call_of_a_tool_waits_for_a_server_that_is_starting() -> None:
    async def test() -> None:
        async with Host({"docs": docs(), "late": command("late", "1")}) as host:
            assert (await host.call_tool("late_pid")).data

    run(test())


def test_an_unknown_name_or_uri_is_an_error_with_the_existing_ones() -> None:
    async def test() -> None:
        async with Host({"docs": docs(), "dead": ["false"]}) as host:
            await host.ready(20)
            with pytest.raises(InvalidArgument, match=r"'docs_ad'\. Did you mean 'docs_add'\? Not reached: dead"):
                await host.call_tool("docs_ad")
            with pytest.raises(InvalidArgument, match="no prompt 'x'"):
                await host.prompt("x")
            with pytest.raises(ResourceNotFound):
                await host.read("nowhere://x")
            with pytest.raises(InvalidArgument, match="no server 'doc': there is docs, dead"):
                await host.read("docs://a", server="doc")
            with pytest.raises(UpstreamUnreachable, match="dead cannot be reached"):
                await host.read("docs://a", server="dead")

    run(test())


def test_a_uri_of_two_servers_is_read_from_the_named_one() -> None:
    async def test() -> None:
        async with Host({"one": command("one"), "two": command("two")}) as host:
            await host.ready(20)
            with pytest.raises(InvalidArgument, match="shared://notes is published by 'one' and 'two'"):
                await host.read("shared://notes")
            assert (await host.read("shared://notes", server="two")).text == "The notes of two"

    run(test())


def test_events_name_the_server_and_what_changed() -> None:
    async def test() -> None:
        events: list[UpstreamChange] = []
        async with Host({"docs": docs(), "dead": ["false"]}, on_event=events.append) as host:
            await host.ready(20)
            assert {event.server for event in events if event.kind == "status"} == {"docs", "dead"}

    run(test())


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_every_call_is_recorded_without_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    async def test() -> None:
        async with Host({"docs": docs()}, audit=AuditLog(file), approve=lambda approval: "always") as host:
            await host.read("docs://a")
            await host.call_tool("add", {"a": "secret", "b": "b"})
            with pytest.raises(ToolError):
                await host.call_tool("fail")
            with pytest.raises(ResourceNotFound):
                await host.servers["docs"].client.read_resource("docs://none")

    run(test())
    found = [(line["action"], line["outcome"], line.get("target"), line["server"]) for line in lines_of(file)]
    assert found == [
        ("read", "allowed", "docs://a", "docs"),
        ("approve", "allowed", "add", "docs"),
        ("call", "allowed", "add", "docs"),
        ("approve", "allowed", "fail", "docs"),
        ("call", "allowed", "fail", "docs"),
        ("read", "failed", "docs://none", "docs"),
    ]
    assert "secret" not in file.read_text()


def test_nothing_is_called_while_it_cannot_be_recorded(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    async def test() -> None:
        audit = AuditLog(file)
        async with Host({"docs": docs()}, audit=audit) as host:
            await host.read("docs://a")
            audit.file.failing = "no space left on device"
            with pytest.raises(Overloaded, match="cannot be written"):
                await host.read("docs://a")
            audit.file.failing = ""
            await host.read("docs://a")

    run(test())
    assert [line["action"] for line in lines_of(file)] == ["read", "record", "read"]
