"""Which call shows a question of a server."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import pytest

from tests.conftest import ROOT
from wharfinger import Context, Server
from wharfinger import types as t
from wharfinger.client import ClientOptions
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.server_connections import ServerConnections
from wharfinger.web.server_questions import Asking


@dataclass
class Berth:
    number: int


def harbour() -> Server:
    """Return a server on which the call of `earlier` asks while that of `later` is running."""
    server = Server("harbour")
    started, answered = asyncio.Event(), asyncio.Event()

    @server.tool
    async def moor(ctx: Context, vessel: str) -> str:
        if vessel == "later":
            started.set()
            await answered.wait()
            return "waited"
        await started.wait()
        answer = await ctx.elicit("Where?", Berth)
        answered.set()
        return "nowhere" if answer is None else str(answer.number)

    return server


def shown(config: ServerConfig, revision: str) -> tuple[str, bool]:
    """Return which of the two calls shows the question of `earlier`, and whether it is certain that this call asks."""
    questions: list[tuple[str, bool]] = []

    def shown_by(vessel: str) -> Asking:
        async def ask(params: t.ElicitRequestParams, certain: bool) -> dict[str, int]:
            questions.append((vessel, certain))
            return {"number": 3}

        return ask

    async def run() -> None:
        async with ServerConnections([config], options=ClientOptions(revision=revision)) as connections:
            await connections.upstreams.ready(30)

            async def call(vessel: str) -> str:
                with connections.questions["harbour"].shown_by(shown_by(vessel)):
                    return (await connections.upstreams["harbour"].client.call_tool("moor", {"vessel": vessel})).text

            assert await asyncio.gather(call("earlier"), call("later")) == ["3", "waited"]

    asyncio.run(asyncio.wait_for(run(), 60))
    [question] = questions
    return question


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_question_is_shown_by_the_call_that_caused_it(revision: str) -> None:
    """A bug: the latest call showed the questions of all calls to its server."""
    assert shown(ServerConfig(name="harbour", target=harbour()), revision) == ("earlier", True)


def test_a_question_over_stdio_says_that_any_of_several_calls_may_have_caused_it() -> None:
    """We: on a stream, a request of the server does not say which call it belongs to."""
    program = "from tests.web.test_server_questions import harbour; harbour().run()"
    config = ServerConfig(name="harbour", target=[sys.executable, "-c", program], cwd=str(ROOT))
    assert shown(config, "2025-11-25") == ("later", False)
