"""A host with server processes: calls, prompts and reads by public names, events, and the audit log."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.test_upstreams import PROGRAM, is_alive
from wharfinger import Host, Server
from wharfinger.client import Call, HostClientOptions, Next
from wharfinger.errors import InvalidArgument, Overloaded, ResourceNotFound, ToolError
from wharfinger.host import HostOptions
from wharfinger.record import AuditLog
from wharfinger.upstreams import InvalidConfiguration, ServerConfig, UpstreamChange, UpstreamUnreachable


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


def test_the_options_of_from_config_are_those_of_a_host_with_the_same_types() -> None:
    parameters = inspect.signature(Host.__init__).parameters
    own = {name: each.annotation for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY}
    options = {name: each.__forward_arg__ for name, each in HostOptions.__annotations__.items()}
    names_of_clients = typing.get_type_hints(HostClientOptions).keys()
    assert {name: each for name, each in options.items() if name not in names_of_clients} == own
    assert names_of_clients <= options.keys()


async def test_calls_reads_and_prompts_are_routed_to_their_server() -> None:
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
        pids = [first.data, second.data]
    assert not any(is_alive(pid) for pid in pids)


async def test_a_tool_call_waits_for_a_server_that_is_starting() -> None:
    async with Host({"docs": docs(), "late": command("late", "1")}) as host:
        assert (await host.call_tool("late_pid")).data


async def test_the_error_of_an_unknown_name_suggests_existing_names() -> None:
    async with Host({"docs": docs(), "dead": ["false"]}) as host:
        await host.ready(20)
        with pytest.raises(InvalidArgument, match=r"'docs_ad'\. Did you mean 'docs_add'\? Not reached: dead"):
            await host.call_tool("docs_ad")
        with pytest.raises(InvalidArgument, match="no prompt 'x'"):
            await host.prompt("x")
        with pytest.raises(ResourceNotFound):
            await host.read("nowhere://x")
        with pytest.raises(InvalidArgument, match=r"no server 'doc'\. The servers are: docs, dead\."):
            await host.read("docs://a", server="doc")
        with pytest.raises(UpstreamUnreachable, match="dead cannot be reached"):
            await host.read("docs://a", server="dead")


async def test_a_uri_of_two_servers_is_read_from_the_named_server() -> None:
    async with Host({"one": command("one"), "two": command("two")}) as host:
        await host.ready(20)
        with pytest.raises(InvalidArgument, match="shared://notes is published by 'one' and 'two'"):
            await host.read("shared://notes")
        assert (await host.read("shared://notes", server="two")).text == "The notes of two"


async def test_events_name_the_server_whose_status_changed() -> None:
    events: list[UpstreamChange] = []
    async with Host({"docs": docs(), "dead": ["false"]}, on_event=events.append) as host:
        await host.ready(20)
        assert {event.server for event in events if event.kind == "status"} == {"docs", "dead"}


def read_records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_every_call_is_recorded_without_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    async with Host({"docs": docs()}, audit=AuditLog(file), approve=lambda approval: "always") as host:
        await host.read("docs://a")
        await host.call_tool("add", {"a": "secret", "b": "b"})
        with pytest.raises(ToolError):
            await host.call_tool("fail")
        with pytest.raises(ResourceNotFound):
            await host.servers["docs"].client.read_resource("docs://none")
    records = [(line["action"], line["outcome"], line.get("target"), line["server"]) for line in read_records(file)]
    assert records == [
        ("read", "allowed", "docs://a", "docs"),
        ("approve", "allowed", "add", "docs"),
        ("call", "allowed", "add", "docs"),
        ("approve", "allowed", "fail", "docs"),
        ("call", "failed", "fail", "docs"),
        ("read", "failed", "docs://none", "docs"),
    ]
    assert "secret" not in file.read_text()


class StatusError(Exception):
    """An error whose code is a method, as in gRPC."""

    def code(self) -> int:
        return 14


class SystemCallError(Exception):
    code = "ECONNRESET"


@pytest.mark.parametrize(
    ("error", "code"), [(StatusError(), None), (SystemCallError(), None), (InvalidArgument("no"), -32602)]
)
async def test_only_json_rpc_codes_are_recorded(error: Exception, code: int | None, tmp_path: Path) -> None:
    """Bug: another `code` of an exception replaced that exception by a `TypeError`, or was recorded."""
    file = tmp_path / "audit.jsonl"

    async def fail(call: Call, next: Next) -> Any:
        if call.method == "resources/read":
            raise error
        return await next(call)

    async with Host({"docs": docs()}, audit=AuditLog(file), middleware=[fail]) as host:
        with pytest.raises(type(error)):
            await host.servers["docs"].client.read_resource("docs://a")
    (line,) = read_records(file)
    assert (line["action"], line["outcome"], line.get("error")) == ("read", "failed", code)


async def test_calls_are_refused_while_the_audit_log_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"

    audit = AuditLog(file)
    async with Host({"docs": docs()}, audit=audit) as host:
        await host.read("docs://a")
        audit.file.failure = "no space left on device"
        with pytest.raises(Overloaded, match="cannot be written"):
            await host.read("docs://a")
        audit.file.failure = ""
        await host.read("docs://a")
    assert [line["action"] for line in read_records(file)] == ["read", "record", "read"]


def test_a_target_that_cannot_be_a_server_is_refused_as_documented() -> None:
    """A bug: these targets raised an IndexError and a plain ValueError."""
    targets: tuple[Any, ...] = ([], {}, {"command": 5})
    for target in targets:
        with pytest.raises(InvalidConfiguration, match=r"^'server'"):
            Host([target])


def test_servers_of_the_same_name_get_different_names() -> None:
    """A bug: the number could make the name of another server."""
    named = ServerConfig(name="a.test_2", target="https://b.test")
    host = Host(["https://a.test/one", "https://a.test/two", named])
    assert list(host.servers) == ["a.test", "a.test_3", "a.test_2"]


async def test_a_close_that_is_cancelled_stops_every_server() -> None:
    """A bug: it ended before the servers were stopped."""
    server, listing = Server("slow"), asyncio.Event()
    server.resource("tide://now")(lambda: "4 m")

    @server.middleware("resources/list")
    async def hang(call: Any, next: Any) -> Any:
        listing.set()
        await asyncio.Event().wait()

    host = Host({"slow": server})
    async with host:
        await host.ready(10)
        entries = asyncio.ensure_future(host.catalogue.entries())
        await listing.wait()
        closing = asyncio.ensure_future(host.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert host.servers["slow"].status == "down"
        await entries
