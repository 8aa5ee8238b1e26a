"""The panel of a tool in a page that no browser shows: its state, its progress, and questions that overlap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import absent
from tests.waiting import wait_until_async
from wharfinger import Context, Server, ToolError
from wharfinger import types as t
from wharfinger.client import ClientOptions
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.content_shelf import ContentShelf
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.server_questions import ServerQuestions

VESSELS = ("Mary", "Anne")


@dataclass
class Berth:
    number: int


class OpenPanel:
    """The panel, in a page that no browser shows."""

    def __init__(self, panel: Any, container: Any, connections: ServerConnections) -> None:
        self.panel, self.container, self.connections = panel, container, connections

    async def show(self, tool: str) -> None:
        """Show a tool."""
        [shown] = [
            each for each in await self.connections.upstreams["harbour"].client.list_tools() if each.name == tool
        ]
        self.panel.show_tool(shown)

    async def press(self, button: str, values: dict[str, Any] | None = None) -> None:
        """Press a button of a form, as a browser reports it."""
        [form] = [each for each in self.container.descendants() if button in each.props.get("buttons", ())]
        [listener] = vars(form)["_event_listeners"].values()
        await listener.handler(SimpleNamespace(args={"button": button, "values": values or {}}))

    def texts(self, tag: str) -> list[str]:
        """Return the texts of all elements with this tag."""
        return [each.text for each in self.container.descendants() if each.tag == tag]

    @property
    def state(self) -> str:
        [state] = [each.text for each in self.container.descendants() if "state" in each.classes]
        return str(state)

    def click(self, button: str) -> None:
        """Click on a button that belongs to no form."""
        [element] = [each for each in self.container.descendants() if each.tag == "button" and each.text == button]
        [listener] = vars(element)["_event_listeners"].values()
        listener.handler()

    async def call(self, values: dict[str, Any] | None = None) -> None:
        """Call the tool, and wait until the call has ended."""
        await self.press("Call", values)
        await asyncio.wait([self.panel._running])

    async def questions(self) -> ServerQuestions:
        """Wait until the call shows the questions of the server, and return them."""
        questions = self.connections.questions["harbour"]
        await wait_until_async(lambda: questions._asking, "the call shows questions")
        return questions


@asynccontextmanager
async def open_panel(server: Server, options: ClientOptions | None = None) -> AsyncGenerator[OpenPanel]:
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    from nicegui import Client, ui

    from wharfinger.web.call_panel import CallPanel
    from wharfinger.web.html_elements import node

    configs = [ServerConfig(name="harbour", target=server)]
    async with ServerConnections(configs, options=options) as connections, asyncio.timeout(40):
        await connections.upstreams.ready(30)
        client = Client(ui.page("/"))
        with client:
            container = node("main")
            panel = CallPanel(container, connections, ContentShelf(), "visitor", "harbour")
            yield OpenPanel(panel, container, connections)
            panel.close()
        client.delete()


def harbour() -> Server:
    """Return a server with tools that report progress, ask, or wait."""
    server = Server("harbour")

    @server.tool
    async def sound(ctx: Context, times: int = 4) -> str:
        await ctx.report_progress(1, times or None, "sounding 1")
        return "deep"

    @server.tool
    async def sink(ctx: Context) -> str:
        await ctx.report_progress(1, 3, "sinking 1")
        raise ToolError("the hull is open")

    @server.tool
    async def moor(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.elicit(f"Where shall {vessel} moor?", Berth) for vessel in VESSELS))
        return ", ".join("nowhere" if answer is None else str(answer.number) for answer in answers)

    @server.tool(annotations=t.ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False))
    async def drift() -> None:
        await asyncio.Event().wait()

    return server


def test_the_state_says_how_a_call_ended_also_after_progress() -> None:
    """A bug: after a call that reported progress, the panel still showed its last report."""

    async def test() -> None:
        async with open_panel(harbour()) as page:
            await page.show("sound")
            await page.call()
            assert (page.state, page.texts("pre")) == ("Done.", ["deep"])
            await page.show("sink")
            await page.call()
            assert page.state.startswith("The tool failed: ") and "the hull is open" in page.state
            assert "the hull is open" in page.texts("pre")[0]

    asyncio.run(test())


def test_the_bar_shows_no_share_of_an_earlier_call_if_the_total_is_unknown() -> None:
    """A bug: it showed the share of the earlier call."""

    async def test() -> None:
        async with open_panel(harbour()) as page:
            await page.show("sound")
            [bar] = [each for each in page.container.descendants() if each.tag == "progress"]
            await page.call()
            assert bar.props["value"] == 0.25
            await page.call({"times": "0"})
            assert "value" not in bar.props

    asyncio.run(test())


def question(message: str) -> t.ElicitRequestParams:
    return t.ElicitRequestParams(message=message, requested_schema=t.RequestedSchema(type="object", properties={}))


def test_questions_at_the_same_time_are_shown_one_after_another() -> None:
    """A bug: the second one removed the first one, which could not be answered any more."""

    async def test() -> None:
        async with open_panel(harbour(), ClientOptions(revision="2025-11-25")) as page:
            await page.show("moor")
            await page.press("Call")
            for vessel, number in zip(VESSELS, ("3", "7"), strict=True):
                text = f"Where shall {vessel} moor?"
                await wait_until_async(lambda text=text: text in page.texts("p"), "the question is shown")
                assert page.texts("h3") == ["harbour asks"]
                await page.press("Answer", {"number": number})
            await asyncio.wait([page.panel._running])
            assert (page.state, page.texts("pre"), page.texts("h3")) == ("Done.", ["3, 7"], [])

    asyncio.run(test())


def test_questions_are_cancelled_when_their_call_ends() -> None:
    """A bug: they stayed open for ten minutes, then removed the question of a later call from the page, and until then
    no call to the server could time out.
    """

    async def test() -> None:
        async with open_panel(harbour()) as page:
            await page.show("drift")
            await page.press("Call")
            questions = await page.questions()
            asking = [asyncio.create_task(questions.ask(question(text))) for text in ("one", "two", "three")]
            await wait_until_async(lambda: page.texts("h3"), "a question is shown")
            first = page.panel._running
            page.panel.stop()
            await asyncio.wait([first])
            await page.press("Call")  # before the last one has its turn
            async with asyncio.timeout(5):
                assert await asyncio.gather(*asking) == ["cancel"] * 3
            assert (page.state, page.texts("h3")) == ("Running …", [])
            later = asyncio.create_task(questions.ask(question("later")))
            await wait_until_async(lambda: "later" in page.texts("p"), "the question of the later call is shown")
            await page.press("Decline")
            assert await later == "decline"

    asyncio.run(test())


@pytest.mark.parametrize(
    ("url", "links"),
    [
        ("https://example.com:8443/a?b#c", ["Open example.com"]),
        ("HTTP://Example.com", ["Open example.com"]),
        ("https://bank.example@evil.example/", ["Open evil.example"]),
        ("https://evil.example\\@bank.example/", []),  # browsers open evil.example
        ("https:///evil.example", []),
        ("http://[x", []),
        ("javascript:alert(1)", []),
    ],
)
def test_a_url_is_a_link_only_if_its_host_is_certain_and_can_always_be_declined(url: str, links: list[str]) -> None:
    """A bug: a URL that cannot be parsed had no button, and a link named what stands before an `@` as its host."""

    async def test() -> None:
        async with open_panel(harbour()) as page:
            await page.show("drift")
            await page.press("Call")
            params = t.ElicitRequestParams(message="Pay", mode="url", url=url)
            asking = asyncio.create_task((await page.questions()).ask_to_open(params))
            await wait_until_async(lambda: page.texts("h3"), "the question is shown")
            assert page.texts("a") == links
            assert url in page.texts("p")
            page.click("Decline")
            assert await asking is False

    asyncio.run(test())


def test_the_form_of_a_tool_names_the_effects_that_the_server_declares() -> None:
    async def test() -> None:
        async with open_panel(harbour()) as page:
            await page.show("sound")
            assert not any("According to the server" in text for text in page.texts("p"))
            await page.show("drift")
            assert "According to the server, this tool may destroy data, can safely be repeated." in page.texts("p")

    asyncio.run(test())
