"""`Host.as_server`: one server with the features of all servers of a host, and notifications of changes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.host.model_apis.harbour import LOG, PNG, harbour, library
from wharfinger import Client, ResourceNotFound, Server, ToolError
from wharfinger import types as t
from wharfinger.errors import InvalidParams, WharfingerError
from wharfinger.host import Host, host_server
from wharfinger.server.middleware.chain import Call, Next, Result


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_tools_are_listed_and_called_by_the_names_of_the_host(revision: str) -> None:
    async with Host({"harbour": harbour(), "library": library()}) as host:
        await host.ready()
        async with Client(host.as_server(), revision=revision) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert {"harbour_berth", "harbour_refuse"} <= tools.keys()
            assert tools["harbour_berth"].description == "Find a berth for a ship."
            result = await client.call_tool("harbour_berth", {"ship": "Amber"})
            assert result.structured == {"ship": "Amber", "berth": "north 4"}
            picture = await client.call_tool("harbour_photograph", {"quay": "north"})
            assert [block.data for block in picture.content if isinstance(block, t.ImageContent)] == [PNG]
            number = await client.call_tool(
                "harbour_number", {"of": 5}
            )  # the client validates the result with the output schema
            assert number.data == 5
            assert number.structured == (5 if revision == "2026-07-28" else {"result": 5})
            with pytest.raises(ToolError, match="The Amber is not expected"):
                await client.call_tool("harbour_refuse", {"ship": "Amber"})
            with pytest.raises(InvalidParams, match="Unknown tool"):
                await client.call_tool("berth", {"ship": "Amber"})


async def test_a_call_that_is_not_approved_is_an_error_for_the_model() -> None:
    async with Host({"harbour": harbour()}, approve=lambda approval: False) as host:
        await host.ready()
        async with Client(host.as_server()) as client:
            with pytest.raises(ToolError):
                await client.call_tool("berth", {"ship": "Amber"})


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_resources_and_prompts_of_all_servers_are_listed_together(revision: str) -> None:
    first, second = library(), harbour()

    @second.resource("berth://{number}", name="berth")
    async def berth(number: str) -> str:
        return f"berth {number} is free"

    @second.prompt
    async def plan(ship: str) -> str:
        """Plan a visit."""
        return f"Plan the visit of the {ship}."

    async with Host({"harbour": second, "library": first}) as host:
        await host.ready()
        async with Client(host.as_server(), revision=revision) as client:
            assert [resource.uri for resource in await client.list_resources()] == ["log://today", "picture://quay"]
            templates = {template.uri_template for template in await client.list_resource_templates()}
            assert {"ship://{name}", "berth://{number}"} <= templates
            assert (await client.read_resource("log://today")).text == LOG
            assert (await client.read_resource("picture://quay")).bytes == PNG
            assert (await client.read_resource("berth://4")).text == "berth 4 is free"
            with pytest.raises(ResourceNotFound):
                await client.read_resource("tide://now")
            assert [prompt.name for prompt in await client.list_prompts()] == ["harbour_plan"]
            prompt = await client.get_prompt("harbour_plan", {"ship": "Amber"})
            assert isinstance(prompt.messages[0].content, t.TextContent)
            assert prompt.messages[0].content.text == "Plan the visit of the Amber."


async def test_the_meta_of_a_template_is_passed_on_without_members_about_the_connection() -> None:
    server = Server("harbour")

    @server.resource("berth://{number}", meta={"io.modelcontextprotocol/subscriptionId": 1, "quay.test/side": "north"})
    async def berth(number: str) -> str:
        return number

    async with Host({"harbour": server}) as host:
        await host.ready()
        async with Client(host.as_server()) as client:
            (template,) = await client.list_resource_templates()
    assert template.meta == {"quay.test/side": "north"}


async def test_templates_are_listed_as_the_server_has_them_now() -> None:
    """A bug: a new template was listed only after the resources had been listed."""
    server = Server("harbour")

    @server.resource("berth://{number}")
    async def berth(number: str) -> str:
        return number

    async with Host({"harbour": server}) as host:
        await host.ready()
        async with Client(host.as_server()) as client, client.watch_lists() as lists:
            assert len(list(await client.list_resource_templates())) == 1
            server.resource("quay://{name}", name="quay")(berth_of)
            await anext(lists)
            templates = await client.list_resource_templates(bypass_cache=True)
    assert [template.uri_template for template in templates] == ["berth://{number}", "quay://{name}"]


async def test_a_closed_server_follows_the_host_no_longer() -> None:
    """A bug: the host kept each server that it was made into."""
    async with Host({"library": library()}) as host:
        observers = len(host.upstreams._observers)
        for _ in range(2):
            async with Client(host.as_server()) as client:
                await client.list_resources()
                assert len(host.upstreams._observers) == observers + 1
        assert len(host.upstreams._observers) == observers


async def berth_of(name: str) -> str:
    return name


async def test_a_uri_of_two_servers_is_listed_once_and_cannot_be_read() -> None:
    async with Host({"one": library(), "two": library()}) as host:
        await host.ready()
        async with Client(host.as_server()) as client:
            assert [resource.uri for resource in await client.list_resources()] == ["log://today", "picture://quay"]
            with pytest.raises(InvalidParams, match="'one' and 'two'"):
                await client.read_resource("log://today")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_subscribers_are_notified_of_changes(revision: str) -> None:
    server, text = Server("tides"), "low"

    @server.resource("tide://now")
    async def now() -> str:
        return text

    @server.tool
    async def look() -> str:
        return text

    async with Host({"tides": server, "library": library()}) as host:
        await host.ready()
        async with Client(host.as_server(), revision=revision) as client, client.watch("tide://now") as changes:
            await anext(changes)  # a watch starts with an initial read
            text = "high"
            server.resource_updated("tide://now")
            assert (await anext(changes)).uri == "tide://now"
            assert (await client.read_resource("tide://now")).text == "high"
            async with client.watch_lists() as lists:
                server.tools.add(lambda: "wet", name="feel")
                while "tides_feel" not in {tool.name for tool in await client.list_tools(bypass_cache=True)}:
                    await anext(lists)
                assert (await client.call_tool("tides_feel")).text == "wet"


async def test_a_list_that_changes_while_it_is_read_is_not_used_for_the_next_caller() -> None:
    """A bug: a client that listed again because of the notification got the old list."""
    server, listed, release = Server("tides"), asyncio.Event(), asyncio.Event()
    release.set()

    @server.resource("tide://now")
    async def now() -> str:
        return "low"

    @server.middleware("resources/list")
    async def wait(call: Call, next: Next) -> Result:
        result = await next(call)
        listed.set()
        await release.wait()
        return result

    async with Host({"tides": server}) as host:
        await host.ready()
        changed = asyncio.Event()
        async with Client(host.as_server(), cache=False) as client:
            host.upstreams.on_change(lambda change: changed.set())
            listed.clear()
            release.clear()
            first = asyncio.ensure_future(client.list_resources().page())
            await listed.wait()
            server.resource("tide://tomorrow")(now)
            await changed.wait()
            release.set()
            await first
            assert [resource.uri for resource in await client.list_resources()] == ["tide://now", "tide://tomorrow"]


async def test_tools_added_to_the_host_server_are_listed() -> None:
    async with Host({"harbour": harbour()}) as host:
        await host.ready()
        server = host.as_server("all")

        @server.tool
        async def own() -> str:
            return "own"

        async with Client(server) as client:
            assert {"own", "berth"} <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("own")).text == "own"


DYING_SERVER = """
import os, sys
from wharfinger import Server

def sink() -> str:
    print("a line for people", file=sys.stderr, flush=True)
    os._exit(7)

server = Server("dying")
server.tool(sink)
server.prompt(sink)
server.resource("tide://now")(sink)
server.run()
"""


@pytest.mark.parametrize("feature", ["tool", "prompt", "resource"])
async def test_a_client_does_not_get_what_a_dying_server_wrote_to_stderr(tmp_path: Path, feature: str) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING_SERVER)
    async with Host({"dying": [sys.executable, str(program)]}) as host:
        await host.ready(30)
        async with Client(host.as_server()) as client:
            with pytest.raises(WharfingerError, match="ended with exit code 7") as raised:
                if feature == "tool":
                    await client.call_tool("sink")
                elif feature == "prompt":
                    await client.get_prompt("sink")
                else:
                    await client.read_resource("tide://now")
    assert "people" not in str(raised.value)


async def test_a_watch_beyond_the_limit_begins_when_another_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: its client never got a notification."""
    monkeypatch.setattr(host_server, "MAX_WATCHED", 1)
    server = Server("tides")
    server.resource("tide://{day}")(lambda day: "low")

    async with Host([server]) as host:
        await host.ready()
        async with Client(host.as_server()) as client, asyncio.timeout(10), AsyncExitStack() as first:
            await first.enter_async_context(client.watch("tide://1"))
            async with client.watch("tide://2") as changes:
                await first.aclose()
                assert (await anext(changes)).uri == "tide://2"
