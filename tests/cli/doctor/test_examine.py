"""What `wharfinger doctor` reads of a server: how much of its lists, which resources, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from tests.client.scripted import SILENCE, Script, now, run
from wharfinger import types as t
from wharfinger.cli.doctor.examine import AllTools, choose, examine, read_list
from wharfinger.cli.doctor.survey import Survey, SurveyedList


def resources(count: int) -> list[dict[str, str]]:
    return [{"uri": f"tide://{number}", "name": str(number)} for number in range(count)]


@pytest.mark.parametrize("page", [1_000, 5_001])
@pytest.mark.parametrize(
    ("count", "items", "more"), [(4_999, 4_999, False), (5_000, 5_000, False), (5_001, 5_000, True)]
)
def test_5000_items_of_a_list_are_read(count: int, items: int, more: bool, page: int) -> None:
    """A bug: a list of exactly 5,000 items seemed to have more, and a long page was kept whole."""

    async def test() -> None:
        def list_page(message: Any) -> Any:
            start = int(message["params"].get("cursor", 0))
            following = {"nextCursor": str(start + page)} if start + page < count else {}
            return {"resources": resources(count)[start : start + page], **following}

        async with Script(resources__list=list_page) as server, server.client() as client:
            surveyed = await read_list(client.list_resources(), optional=False)
            assert (len(surveyed.items), surveyed.more, surveyed.error) == (items, more, "")
            assert surveyed.largest_page == min(page, count)

    run(test())


@pytest.mark.parametrize(("count", "more"), [(5_000, False), (5_001, True)])
def test_5000_tools_are_examined_including_those_that_clients_leave_out(count: int, more: bool) -> None:
    async def test() -> None:
        tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(count)]

        async def leave_one_out(call: Any, next: Any) -> Any:  # over HTTP the client does so
            result = await next(call)
            return msgspec.structs.replace(result, tools=result.tools[1:])

        async with Script(tools__list={"tools": tools}, capabilities={"tools": {}}) as server:
            all_tools = AllTools()
            async with server.client(middleware=[leave_one_out, all_tools]) as client:
                survey = await examine(client, all_tools, 0)
        assert (len(survey.tools.items), survey.tools.more) == (5_000, more)

    run(test())


@pytest.mark.parametrize(
    ("count", "chosen"),
    [(0, []), (1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3]), (7, [0, 1, 3, 5]), (8, [0, 2, 4, 6])],
)
def test_the_sample_is_spread_over_the_whole_list(count: int, chosen: list[int]) -> None:
    """A bug: a list with fewer than twice as many resources as the sample was read from its beginning only."""
    listed = [t.Resource(uri=each["uri"], name=each["name"]) for each in resources(count)]
    survey = Survey(
        capabilities=t.ServerCapabilities(resources=t.ResourcesCapability(), tools=UNSET),
        tools=SurveyedList(),
        prompts=SurveyedList(),
        resources=SurveyedList(items=listed),
        templates=SurveyedList(),
    )
    assert choose(survey, 4) == [f"tide://{number}" for number in chosen]
    assert choose(survey, 0) == []


@pytest.mark.parametrize(("seconds", "faulty"), [(0, ["tide://1", "tide://2"]), (1, ["tide://1"])])
def test_a_read_that_does_not_get_its_ten_seconds_is_no_fault(seconds: float, faulty: list[str]) -> None:
    """A bug: the last read got only what remained of the 20 s for all reads, and its timeout counted as a fault."""

    async def test() -> None:
        async def read(message: Any) -> Any:
            if message["params"]["uri"] != "tide://0":
                return SILENCE
            await asyncio.sleep(seconds)
            return {"contents": [{"uri": "tide://0", "text": "3 m"}]}

        async with Script(
            resources__list={"resources": resources(4)}, resources__read=read, capabilities={"resources": {}}
        ) as server:
            all_tools = AllTools()
            async with server.client(middleware=[all_tools]) as client:
                reads = (await examine(client, all_tools, 4)).reads
            assert now() == pytest.approx(20)
        assert [uri for uri, each in reads.items() if each.error] == faulty
        assert [uri for uri, each in reads.items() if each.contents] == ["tide://0"]

    run(test())
