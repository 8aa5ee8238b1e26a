"""Scripted answers are given in every era, and the questions are recorded."""

from __future__ import annotations

import pytest

from tests.server.driving import looped
from wharfinger import Client, Context, Declined, Server, ToolError
from wharfinger.testing import REVISIONS, Script


@pytest.fixture
def server() -> Server:
    """A server whose tools ask questions."""
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
@looped
async def test_forms_are_answered_by_their_message(server: Server, revision: str) -> None:
    script = Script({"Where to with Mary?": "north", "Sure?": Declined, "What else?": "nothing"})
    async with Client(server, revision=revision, **script.handlers) as client:
        assert (await client.call_tool("berth", {"ship": "Mary"})).text == "north None"
    assert script.questions == ["Where to with Mary?", "Sure?"]
    assert script.unused_answers == ["What else?"]


@pytest.mark.parametrize("revision", REVISIONS)
@looped
async def test_models_and_roots_are_answered_by_their_method(server: Server, revision: str) -> None:
    script = Script({"sampling/createMessage": "Ahoy", "roots/list": ["file:///home"]})
    async with Client(server, revision=revision, **script.handlers) as client:
        assert (await client.call_tool("sail")).text == "Ahoy file:///home"
    assert script.unused_answers == []


@looped
async def test_a_function_may_answer(server: Server) -> None:
    script = Script(lambda params: "south" if "Mary" in params.message else True)
    async with Client(server, **script.handlers) as client:
        assert (await client.call_tool("berth", {"ship": "Mary"})).text == "south True"
    assert script.unused_answers == []


@pytest.mark.parametrize(("revision", "error"), [("2025-11-25", ToolError), ("2026-07-28", KeyError)])
@looped
async def test_an_input_request_without_an_answer_fails_its_call(
    server: Server, revision: str, error: type[Exception]
) -> None:
    script = Script({})
    async with Client(server, revision=revision, **script.handlers) as client:
        with pytest.raises(error):
            await client.call_tool("berth", {"ship": "Mary"})
    assert script.questions == ["Where to with Mary?"]
