"""A script answers input requests in every revision, and records them."""

from __future__ import annotations

import pytest

from wharfinger import Client, Context, Declined, Server, ToolError
from wharfinger.testing import REVISIONS, Script


@pytest.fixture
def server() -> Server:
    """A server whose tools send input requests."""
    server = Server("s")

    @server.tool
    async def berth(ship: str, ctx: Context) -> str:
        where = await ctx.elicit(f"Where to with {ship}?", str)
        sure = await ctx.elicit("Sure?", bool, or_none=True)
        return f"{where} {sure}"

    @server.tool
    async def sail(ctx: Context) -> str:
        words = (await ctx.sample("Say something")).text
        return f"{words} {(await ctx.roots())[0].uri}"

    return server


@pytest.mark.parametrize("revision", REVISIONS[2:])
async def test_form_elicitations_are_answered_by_message(server: Server, revision: str) -> None:
    script = Script({"Where to with Mary?": "north", "Sure?": Declined, "What else?": "nothing"})
    async with Client(server, revision=revision, **script.handlers) as client:
        assert (await client.call_tool("berth", {"ship": "Mary"})).text == "north None"
    assert script.questions == ["Where to with Mary?", "Sure?"]
    assert script.unused_answers == ["What else?"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_sampling_and_roots_requests_are_answered_by_method(server: Server, revision: str) -> None:
    script = Script({"sampling/createMessage": "Ahoy", "roots/list": ["file:///home"]})
    async with Client(server, revision=revision, **script.handlers) as client:
        assert (await client.call_tool("sail")).text == "Ahoy file:///home"
    assert script.unused_answers == []


@pytest.mark.parametrize("revision", REVISIONS[3:])
async def test_a_url_is_opened_or_declined(revision: str) -> None:
    """A bug: the URL was opened if the answer was False."""
    server = Server("s")

    @server.tool
    async def pay(ctx: Context) -> list[bool | None]:
        return [await ctx.elicit_url(key, "https://example.test/pay", or_none=True) for key in ("Pay?", "Insure?")]

    script = Script({"Pay?": True, "Insure?": False})
    async with Client(server, revision=revision, **script.handlers) as client:
        assert (await client.call_tool("pay")).data == [True, None]


async def test_a_script_may_be_a_function(server: Server) -> None:
    script = Script(lambda params: "south" if "Mary" in params.message else True)
    async with Client(server, **script.handlers) as client:
        assert (await client.call_tool("berth", {"ship": "Mary"})).text == "south True"
    assert script.unused_answers == []


@pytest.mark.parametrize(("revision", "error"), [("2025-11-25", ToolError), ("2026-07-28", KeyError)])
async def test_an_input_request_without_an_answer_fails_the_call(
    server: Server, revision: str, error: type[Exception]
) -> None:
    script = Script({})
    async with Client(server, revision=revision, **script.handlers) as client:
        with pytest.raises(error):
            await client.call_tool("berth", {"ship": "Mary"})
    assert script.questions == ["Where to with Mary?"]
