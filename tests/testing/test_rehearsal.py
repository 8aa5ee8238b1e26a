"""A rehearsal reports side effects that a call repeats when it runs again, and input requests that change."""

from __future__ import annotations

import random
from typing import Literal

import msgspec
import pytest

from wharfinger import Context, Declined, Server
from wharfinger.testing import Mismatch, rehearse


class Berth(msgspec.Struct):
    quay: Literal["north", "south"]


async def test_the_result_of_a_repeatable_call_is_returned() -> None:
    server = Server("s")
    charged: list[str] = []

    @server.tool
    async def berth(ship: str, ctx: Context) -> str:
        await ctx.once("charge", lambda: charged.append(ship))
        where = await ctx.elicit("Where?", Berth)
        sure = await ctx.elicit("Sure?", bool)
        words = (await ctx.sample("Say something")).text
        roots = await ctx.roots()
        signed = await ctx.elicit_url("Sign", "https://example.test", or_none=True)
        return f"{ship} {where.quay} {sure} {words} {roots[0].uri} {signed}"

    result = await rehearse(
        server,
        "berth",
        {"ship": "Mary"},
        answers={
            "Where?": {"quay": "north"},
            "Sure?": True,
            "sampling/createMessage": "Ahoy",
            "roots/list": ["file:///home"],
            "Sign": Declined,
        },
        effects=lambda: list(charged),
    )
    assert result.content[0].text == "Mary north True Ahoy file:///home None"
    assert charged == ["Mary", "Mary"]


async def test_repeated_side_effects_are_reported() -> None:
    server = Server("s")
    charged: list[str] = []

    @server.tool
    async def berth(ship: str, ctx: Context) -> str:
        charged.append(ship)
        return await ctx.elicit("Where?", str)

    for effects in (lambda: list(charged), lambda: len(charged), lambda: {"charged": len(charged)}):
        with pytest.raises(
            Mismatch, match=r"berth\(\) does not do the same when it runs again: use ctx.once\(\).\neffects"
        ):
            await rehearse(server, "berth", {"ship": "Mary"}, answers=lambda params: "north", effects=effects)


async def test_input_requests_that_change_in_each_run_end_at_the_round_limit() -> None:
    server = Server("s")
    numbers = random.Random(1)

    @server.tool
    async def guess(ctx: Context) -> str:
        return await ctx.elicit(f"{numbers.random()}?", str)

    with pytest.raises(Exception, match=r"limits\.rounds"):
        await rehearse(server, "guess", answers=lambda params: "x")


async def test_an_input_request_without_an_answer_is_an_error() -> None:
    server = Server("s")

    @server.tool
    async def guess(ctx: Context) -> str:
        return await ctx.elicit("What?", str)

    with pytest.raises(KeyError, match="What"):
        await rehearse(server, "guess")
