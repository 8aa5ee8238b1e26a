"""`Host.run_calls`, for an application that formats the messages for its model itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger import types as t
from wharfinger.host import Host, function_calls
from wharfinger.host.model_apis import ModelToolCall


async def test_run_calls_returns_the_outputs_in_the_order_of_the_calls() -> None:
    server = Server("harbour")

    @server.tool
    async def berth(ship: str, wait: float = 0) -> str:
        await asyncio.sleep(wait)
        return f"{ship} at 4"

    async with Host({"harbour": server}, approve=lambda approval: "refused" not in str(approval.arguments)) as host:
        await host.ready(10)
        tools = await host.tools(format="openai")
        calls = [
            ModelToolCall("1", "berth", {"ship": "Mary", "wait": 0.05}),
            ModelToolCall("2", "berth", {"ship": "refused"}),
            ModelToolCall("3", "bert", {}),
            ModelToolCall("4", "berth", {}, fault="not JSON"),
            ModelToolCall("5", "berth", {"ship": "Olga"}),
        ]
        outputs = await host.run_calls(calls, "openai", tools=tools)
        assert [(output.call.id, output.is_error) for output in outputs] == [
            ("1", False), ("2", True), ("3", True), ("4", True), ("5", False),
        ]  # fmt: skip
        assert outputs[0].text == "Mary at 4" and outputs[4].text == "Olga at 4"
        assert "did not approve" in outputs[1].text and "'berth'" in outputs[2].text and "not JSON" in outputs[3].text
        assert await host.run_calls([], "anthropic") == []
        with pytest.raises(ValueError, match="format"):
            await host.run_calls(calls, "nonsense")
        with pytest.raises(ValueError, match="max_characters must be positive"):
            await host.run_calls(calls, "openai", max_characters=0)


DYING_SERVER = """
import os, sys
from wharfinger import Server

server = Server("dying")

@server.tool
def sink() -> str:
    print("a line for people, with password=hunter2", file=sys.stderr, flush=True)
    os._exit(7)

server.run()
"""


async def test_the_error_of_a_dead_server_does_not_contain_its_stderr(tmp_path: Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING_SERVER)

    async with Host({"dying": [sys.executable, str(program)]}) as host:
        await host.ready(30)
        (output,) = await host.run_calls([ModelToolCall("1", "sink", {})], "openai")
        assert output.is_error
        assert "ended with exit code 7" in output.text
        assert output.text.endswith("It is not known whether the call had an effect.")
        assert "people" not in output.text and "hunter2" not in output.text


async def test_the_error_for_an_unknown_tool_names_the_unreachable_servers() -> None:
    harbour = Server("harbour")

    @harbour.tool
    def berth() -> str:
        return "4"

    down = {f"down{number:02}": [sys.executable, "-c", "raise SystemExit(3)"] for number in range(2)}
    async with Host({"harbour": harbour, **down}) as host:
        await host.ready(30)
        (output,) = await host.run_calls([ModelToolCall("1", "down00_query", {})], "openai")
        assert output.text == (
            "There is no tool 'down00_query' now. These servers cannot be reached now: down00, down01."
        )
    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        (output,) = await host.run_calls([ModelToolCall("1", "query", {})], "openai")
        assert output.text == "There is no tool 'query' now."


async def wait_for_tools(host: Host, number: int) -> None:
    """Wait until the host knows of a change of a list of tools."""

    async def has_number() -> bool:
        return len(await host.upstreams.tools()) == number

    await wait_until_async(has_number, f"the host has {number} tools")


async def test_a_tool_that_is_removed_while_other_calls_run_is_an_error_for_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug: the error was raised, and cancelled the other calls."""
    monkeypatch.setattr(function_calls, "CONCURRENT_CALLS", 1)
    harbour = Server("harbour")

    @harbour.tool
    async def close() -> str:
        harbour.tools.remove("berth")
        await wait_for_tools(host, 1)
        return "closed"

    @harbour.tool
    async def berth() -> str:
        return "4"

    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        calls = [ModelToolCall("1", "close", {}), ModelToolCall("2", "berth", {})]
        outputs = await host.run_calls(calls, "openai")
    assert [(output.text, output.is_error) for output in outputs] == [
        ("closed", False),
        ("There is no tool 'berth'.", True),
    ]


async def test_a_resource_tool_keeps_its_name_in_definitions_when_a_server_takes_it() -> None:
    harbour = Server("harbour")

    @harbour.tool
    def chart() -> list[t.ContentBlock]:
        return [t.ResourceLink(uri="chart://quay", name="quay")]

    @harbour.resource("chart://quay")
    def quay() -> str:
        return "4 m deep"

    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        tools = await host.tools(format="openai", resources=True)
        harbour.tools.add(lambda: "not the resource", name="read_resource")
        await wait_for_tools(host, 2)
        calls = [ModelToolCall("1", "chart", {}), ModelToolCall("2", "read_resource", {"uri": "chart://quay"})]
        outputs = await host.run_calls(calls, "openai", tools=tools)
    assert outputs[0].text.endswith('Read it with read_resource {"uri":"chart://quay"}.')
    assert outputs[1].text == "4 m deep"


@pytest.mark.parametrize("uri", ["note://\ud83d", [[]]], ids=["a lone surrogate", "too many nested lists"])
async def test_arguments_that_json_cannot_express_are_an_error_for_the_model(uri: Any) -> None:
    """A bug: the error was raised, and cancelled the other calls of the answer."""
    if isinstance(uri, list):
        for _ in range(100_000):
            uri = [uri]
    harbour = Server("harbour")

    @harbour.tool
    def berth(ship: Any) -> str:
        return "4"

    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        calls = [
            ModelToolCall("1", "berth", {"ship": uri}),
            ModelToolCall("2", "read_resource", {"uri": uri}),
            ModelToolCall("3", "berth", {"ship": "Mary"}),
        ]
        outputs = await host.run_calls(calls, "anthropic")
    reason = "The arguments cannot be written as JSON. Call the tool again."
    assert [(output.text, output.is_error) for output in outputs] == [(reason, True), (reason, True), ("4", False)]


@pytest.mark.parametrize(("start", "next_start"), [("100.0", 600), ("1e3", 1_500), ("100", 600), (None, 500)])
async def test_a_cut_text_continues_after_any_start_that_the_tool_accepts(start: str | None, next_start: int) -> None:
    """A bug: `"100.0"` was read as 100, and then raised `ValueError`."""
    harbour = Server("harbour")

    @harbour.resource("note://long")
    def long() -> str:
        return "abcdefghij" * 1_000

    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        call = ModelToolCall("1", "read_resource", {"uri": "note://long", "start": start})
        (output,) = await host.run_calls([call], "anthropic", max_characters=500)
    assert f'"start":{next_start}}}' in output.text


async def test_the_timeout_of_calls_applies_to_reads_of_resources() -> None:
    harbour = Server("harbour")

    @harbour.resource("note://never")
    async def never() -> str:
        await asyncio.Event().wait()
        return "x"

    async with Host({"harbour": harbour}) as host:
        await host.ready(30)
        call = ModelToolCall("1", "read_resource", {"uri": "note://never"})
        (output,) = await asyncio.wait_for(host.run_calls([call], "anthropic", timeout=0.05), 30)
    assert output.is_error and "no answer from server 'harbour' within 0.05 s" in output.text


async def test_the_error_for_definitions_of_an_unknown_server_names_the_servers() -> None:
    async with Host({"harbour": Server("harbour"), "tides": Server("tides")}) as host:
        with pytest.raises(ValueError, match=r"There is no server 'q'\. The servers are: harbour, tides\."):
            await host.tools(format="openai", servers=["q"])
    async with Host({}) as host:
        with pytest.raises(ValueError, match=r"There is no server 'q'\. There are no servers\."):
            await host.tools(format="openai", servers=["q"])
