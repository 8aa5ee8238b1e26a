"""Mounted servers: names, changes, lifecycle, watches, and the cost of each level."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import pytest

import wharfinger
from tests.server.driving import ALL, ERAS, Wire, ask, list_all, make_request, read
from wharfinger import types as t
from wharfinger.errors import InvalidArgument
from wharfinger.protocol.request import InputNeeded
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.dependencies import Depends
from wharfinger.server.middleware.chain import Call, Next, Result
from wharfinger.server.signature.complete import Complete
from wharfinger.server.signature.header_params import Header
from wharfinger.source import Changed, Hit, Source
from wharfinger.types.task_extension import EXTENSION as TASKS


class RowSource(Source):
    """A source of two rows that supports lists, reads, completion, search and watches."""

    templates = (t.ResourceTemplate(uri_template="row://{n}", name="row"),)

    def __init__(self) -> None:
        self.watched_uris: list[str | None] = []
        self.changed: Changed | None = None
        self.events: list[str] = []

    def matches(self, uri: str) -> bool:
        return uri.startswith("row://")

    async def page(self, after: str | None, limit: int) -> Any:
        return [t.Resource(uri=f"row://{n}", name=str(n)) for n in (1, 2)], None

    async def stat(self, uri: str) -> t.Resource:
        return t.Resource(uri=uri, name="row")

    async def read(self, uri: str) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="row")])

    async def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
        return ["1", "2"]

    async def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri="row://1", title=query)]

    def watch(self, uri: str | None, changed: Changed) -> None:
        self.watched_uris.append(uri)
        self.changed = changed

    def unwatch(self, uri: str | None) -> None:
        self.watched_uris.remove(uri)

    async def start(self) -> None:
        self.events.append("start")

    async def close(self) -> None:
        self.events.append("close")


def tides_server(name: str = "tides", **options: Any) -> Server:
    server = Server(name, **options)

    @server.tool
    async def height(place: str) -> str:
        return f"{place} 3 m"

    @server.tool
    async def whose(ctx: Context[Any]) -> str:
        return f"{ctx.server.info.name} {ctx.state}"

    @server.prompt
    def report(place: Annotated[str, Complete(["mary", "north"])]) -> str:
        return f"report {place}"

    @server.resource("tide://now")
    async def now() -> str:
        return "rising"

    @server.resource("tide://{place}")
    async def at(place: Annotated[str, Complete(["mary", "north"])], ctx: Context[Any]) -> str:
        return f"{place} of {ctx.server.info.name}"

    return server


def harbour(*parts: tuple[Server, str]) -> Server:
    """Return a server that includes these servers with their prefixes."""
    server = Server("harbour")
    for part, prefix in parts:
        server.include(part, prefix=prefix)
    return server


async def call(server: Server, name: str, revision: str = ALL[-1], **arguments: Any) -> Any:
    """Return the text of a tool's result, or the message of its error."""
    answer = await ask(server, "tools/call", {"name": name, "arguments": arguments}, revision)
    return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["message"]


async def list_names(server: Server, kind: str) -> list[str]:
    return [feature["name"] for feature in (await ask(server, f"{kind}/list"))["result"][kind]]


# -- listing and serving


@pytest.mark.parametrize("revision", ALL)
async def test_features_of_a_mounted_server_are_served_by_the_parent(revision: str) -> None:
    server = harbour((tides_server(), "tides"))
    assert await list_names(server, "tools") == ["tides_height", "tides_whose"]
    assert await list_names(server, "prompts") == ["tides_report"]
    assert await call(server, "tides_height", revision, place="mary") == "mary 3 m"
    assert await call(server, "height", revision, place="mary") == "Unknown tool: height"
    assert await call(server, "tides_whose", revision) == "tides None"
    answer = await ask(server, "prompts/get", {"name": "tides_report", "arguments": {"place": "mary"}}, revision)
    assert answer["result"]["messages"][0]["content"]["text"] == "report mary"
    assert [resource["uri"] for resource in await list_all(server)] == ["tide://now"]
    assert [template["uriTemplate"] for template in await list_all(server, "resources/templates/list")] == [
        "tide://{place}"
    ]
    assert (await read(server, "tide://now", revision))[0]["text"] == "rising"
    assert (await read(server, "tide://mary", revision))[0]["text"] == "mary of tides"


async def test_prefixes_are_joined_and_may_be_empty() -> None:
    middle = Server("middle")
    middle.include(tides_server(), prefix="tides")
    other = Server("other")
    other.tools.add(lambda: "own", name="own")
    server = harbour((middle, "middle"), (other, ""))
    assert await list_names(server, "tools") == ["middle_tides_height", "middle_tides_whose", "own"]
    assert await call(server, "middle_tides_height", place="mary") == "mary 3 m"
    assert await call(server, "middle_tides_whose") == "tides None"
    assert await call(server, "own") == "own"


@pytest.mark.parametrize("nested", [False, True])
async def test_completion_is_answered_by_the_mounted_server(nested: bool) -> None:
    part = tides_server()
    part.include(RowSource())
    server = harbour((part, "tides"))
    prompt = "tides_report"
    if nested:
        whole = Server("whole")
        whole.include(server, prefix="harbour")
        server, prompt = whole, "harbour_tides_report"

    async def values(ref: dict[str, str], name: str) -> list[str]:
        params = {"ref": ref, "argument": {"name": name, "value": ""}}
        return (await ask(server, "completion/complete", params))["result"]["completion"]["values"]  # type: ignore[no-any-return]

    assert await values({"type": "ref/prompt", "name": prompt}, "place") == ["mary", "north"]
    assert await values({"type": "ref/resource", "uri": "tide://{place}"}, "place") == ["mary", "north"]
    assert await values({"type": "ref/resource", "uri": "row://{n}"}, "n") == ["1", "2"]


@pytest.mark.parametrize("nested", [False, True])
async def test_sources_and_catalogues_of_a_mounted_server_are_served_even_if_added_later(nested: bool) -> None:
    part = Server("part")
    part.include(RowSource())
    server = harbour((part, "part"))
    if nested:
        whole = Server("whole")
        whole.include(server)
        server = whole

    @part.list_resources
    async def catalogue() -> AsyncIterator[t.Resource]:
        yield t.Resource(uri="note://1", name="note")

    @part.read_resource("note://{n}")
    async def note(n: str) -> str:
        return f"note {n}"

    assert [resource["uri"] for resource in await list_all(server)] == ["row://1", "row://2", "note://1"]
    assert [template["uriTemplate"] for template in await list_all(server, "resources/templates/list")] == ["row://{n}"]
    assert (await read(server, "row://1"))[0]["text"] == "row"
    assert (await read(server, "note://7"))[0]["text"] == "note 7"
    assert (await read(server, "none://7"))["code"] == -32602
    hits = await server.resources.search(make_request(server, "resources/list"), "tide", 5)
    assert [hit.uri for hit in hits] == ["row://1"]


async def test_later_changes_of_a_mounted_server_are_visible_in_the_parent() -> None:
    part = tides_server()
    server = harbour((part, "tides"))
    part.tools.add(lambda: "late", name="late")
    part.resources.add("tide://late", lambda: "late")
    part.tools.remove("height")
    part.resources.remove("tide://now")
    part.resources.remove("tide://{place}")
    part.prompts.remove("report")
    assert await list_names(server, "tools") == ["tides_whose", "tides_late"]
    assert await list_names(server, "prompts") == []
    assert [resource["uri"] for resource in await list_all(server)] == ["tide://late"]
    assert await call(server, "tides_late") == "late"
    assert (await read(server, "tide://mary"))["code"] == -32602
    part.tools.disable("late")
    assert await call(server, "tides_late") == "Unknown tool: tides_late"
    part.tools.enable("late")
    assert await call(server, "tides_late") == "late"
    server.tools.remove("tides_late")
    part.tools.remove("late")
    part.resources.disable("tide://late")
    assert await list_all(server) == []
    part.resources.enable("tide://late")
    assert len(await list_all(server)) == 1


async def test_the_first_feature_of_a_mounted_server_adds_its_methods_to_the_parent() -> None:
    leaf, middle = Server("leaf"), Server("middle")
    middle.include(leaf)
    server = harbour((middle, ""))
    assert "tools/list" not in server.handlers
    leaf.tools.add(lambda: "x", name="x")
    leaf.include(RowSource())
    assert await call(server, "x") == "x"
    assert (await read(server, "row://1"))[0]["text"] == "row"


@pytest.mark.parametrize("revision", ERAS)
async def test_list_changes_of_a_mounted_server_are_sent_to_clients_of_the_parent(revision: str) -> None:
    part = tides_server()
    server = Server("whole")
    server.include(harbour((part, "tides")))
    await server.start()
    async with Wire(server, revision) as wire:
        if revision == ALL[-1]:
            await wire.watch(lists=("tools", "resources"))
        else:
            await wire.ask("ping")
        before = len(wire.notifications)
        part.tools.add(lambda: "late", name="late")
        part.list_changed("resources")
        notices = (await wire.wait_for_notifications(before + 2))[before:]
        assert {notice["method"] for notice in notices} == {
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
        }
    await server.close()


async def test_a_fallback_of_a_mounted_server_is_replaced_by_a_tool_of_the_parent() -> None:
    part = Server("part")
    server = harbour((part, ""))
    part.tools.add(lambda: "fallback", name="search", fallback=True)
    assert await call(server, "search") == "fallback"
    server.tools.add(lambda: "own", name="search")
    assert await call(server, "search") == "own"
    part.tools.add(lambda: "other", name="other", fallback=True)
    part.tools.add(lambda: "parts", name="other")
    assert await call(server, "other") == "parts"
    part.tools.remove("search")
    assert await call(server, "search") == "own"


async def test_header_params_of_a_mounted_server_are_included_in_the_parent() -> None:
    part = Server("part")

    @part.tool
    async def tide(region: Annotated[str, Header("Region")]) -> str:
        return region

    server = harbour((part, "p"))
    assert dict(server.header_params) == {"p_tide": part.header_params["tide"]}
    part.tools.remove("tide")
    assert not server.header_params


async def pages(server: Server, method: str = "tools/list", kind: str = "tools") -> AsyncIterator[list[str]]:
    params: dict[str, Any] = {}
    while True:
        result = (await ask(server, method, params))["result"]
        yield [feature["name"] for feature in result[kind]]
        if "nextCursor" not in result:
            return
        params = {"cursor": result["nextCursor"]}


async def test_pages_continue_at_their_position_while_mounted_servers_change() -> None:
    leaf, part, server = Server("leaf"), Server("part"), Server("whole", page_size=2)
    part.include(leaf, prefix="leaf")
    server.include(part, prefix="p")
    for each in (leaf, part, server):
        for name in "abc":
            each.tools.add(lambda: "", name=name)
    found_pages: list[list[str]] = []
    async for page in pages(server):
        found_pages.append(page)
        if len(found_pages) == 2:
            part.tools.remove("a")
            server.tools.remove("a")
            leaf.tools.add(lambda: "", name="d")
            server.tools.add(lambda: "", name="late")
    assert found_pages == [["a", "b"], ["c", "p_a"], ["p_b", "p_c"], ["p_leaf_a", "p_leaf_b"], ["p_leaf_c", "p_leaf_d"]]


async def test_pages_are_cached_until_a_mounted_server_changes() -> None:
    leaf, part, server = Server("leaf"), Server("part"), Server("whole")
    part.include(leaf)
    server.include(part)
    leaf.tools.add(lambda: "", name="a")
    first = await server.tools.listing.page()
    assert await server.tools.listing.page() is first
    leaf.tools.add(lambda: "", name="b")
    assert await server.tools.listing.page() is not first


@pytest.mark.parametrize("kind", ["tool", "resource", "template"])
async def test_a_feature_disabled_in_the_parent_is_still_served_by_the_mounted_server(kind: str) -> None:
    middle, part, server = Server("middle"), tides_server(), Server("whole")
    middle.include(part, prefix="p")
    server.include(middle, prefix="m")

    def request(level: Server, prefix: str) -> Any:
        if kind == "tool":
            return call(level, f"{prefix}height", place="x")
        return read(level, "tide://now" if kind == "resource" else "tide://mary")

    async def visible() -> list[bool]:
        answers = [await request(level, prefix) for level, prefix in ((part, ""), (middle, "p_"), (server, "m_p_"))]
        return [text in str(answer) for answer in answers]

    text = {"tool": "x 3 m", "resource": "rising", "template": "mary of tides"}[kind]
    name = {"tool": "p_height", "resource": "tide://now", "template": "tide://{place}"}[kind]
    disable, enable, remove = (
        (middle.tools.disable, middle.tools.enable, middle.tools.remove)
        if kind == "tool"
        else (middle.resources.disable, middle.resources.enable, middle.resources.remove)
    )
    disable(name)
    disable(name)
    assert await visible() == [True, False, False]
    enable(name)
    enable(name)
    assert await visible() == [True, True, True]
    remove(name)
    assert await visible() == [True, False, False]
    with pytest.raises(KeyError):
        remove(name)
    with pytest.raises(KeyError):
        enable(name)


async def test_a_removed_name_may_be_reused_until_the_mounted_server_registers_it_again() -> None:
    part = Server("part")
    server = harbour((part, "p"))
    part.tools.add(lambda: "part", name="a")
    server.tools.remove("p_a")
    server.tools.add(lambda: "own", name="p_a")
    assert await call(server, "p_a") == "own"
    server.tools.remove("p_a")
    assert await list_names(server, "tools") == []
    part.tools.remove("a")
    part.tools.add(lambda: "anew", name="a")
    assert await call(server, "p_a") == "anew"


async def test_a_removed_template_may_be_reused() -> None:
    """Regression: the new template was listed, but every read of it failed."""
    part = Server("part")
    part.resources.add("tide://{port}", lambda port: "part")
    server = harbour((part, "p"))
    server.resources.remove("tide://{port}")
    server.resources.add("tide://{port}", lambda port: f"own {port}")
    assert (await read(server, "tide://hull"))[0]["text"] == "own hull"


async def test_a_read_waits_for_a_starting_source_of_a_mounted_server() -> None:
    """Regression: only the sources of the parent were waited for."""
    released = asyncio.Event()

    class LearningSource(RowSource):
        started = False

        async def start(self) -> None:
            await released.wait()
            self.started = True

        def matches(self, uri: str) -> bool:
            return self.started and super().matches(uri)

    part = Server("part")
    part.include(LearningSource())
    server = harbour((part, "p"))
    await server.start()
    reading = asyncio.ensure_future(read(server, "row://1"))
    for _ in range(5):  # turns in which the read could fail
        await asyncio.sleep(0)
    released.set()
    assert (await reading)[0]["text"] == "row"
    await server.close()


async def test_a_fallback_of_the_parent_is_replaced_by_a_tool_of_a_mounted_server() -> None:
    part = Server("part")
    server = harbour((part, ""))
    server.tools.add(lambda: "fallback", name="search", fallback=True)
    part.tools.add(lambda: "parts", name="search")
    assert await call(server, "search") == "parts"
    assert await list_names(server, "tools") == ["search"]
    part.tools.disable("search")
    assert await list_names(server, "tools") == ["search"]
    part.tools.remove("search")
    assert await call(server, "search") == "fallback"


async def test_the_most_specific_template_of_all_servers_is_used() -> None:
    part = Server("part")
    part.resources.add("tide://{place}/high", lambda place: f"part {place}")
    server = harbour((part, "p"))
    server.resources.add("tide://{+rest}", lambda rest: f"whole {rest}")
    assert (await read(server, "tide://mary/high"))[0]["text"] == "part mary"
    part.resources.disable("tide://{place}/high")
    assert (await read(server, "tide://mary/high"))[0]["text"] == "whole mary/high"
    part.resources.enable("tide://{place}/high")
    assert (await read(server, "tide://mary/high"))[0]["text"] == "part mary"


# -- refused includes


def test_include_refuses_a_collision_and_names_both_servers() -> None:
    one, other = tides_server("one"), tides_server("other")
    server = harbour((one, "a"))
    with pytest.raises(ValueError, match=r"'one' and 'other' both have the resource 'tide://now': remove one"):
        server.include(other, prefix="b")
    other.resources.remove("tide://now")
    with pytest.raises(
        ValueError,
        match=r"'one' and 'other' both have the resource template 'tide://\{place\}'|'harbour' and 'other': .*'tide://\{place\}'",
    ):
        server.include(other, prefix="b")
    other.resources.remove("tide://{place}")
    other.resources.add("tide://{where}", lambda where: where)
    with pytest.raises(
        ValueError, match=r"'harbour' and 'other': .*'tide://\{where\}' is as specific as 'tide://\{place\}'"
    ):
        server.include(other, prefix="b")
    other.resources.remove("tide://{where}")
    with pytest.raises(
        ValueError, match=r"'one' and 'other' both have the tool 'a_height': include one with another prefix"
    ):
        server.include(other, prefix="a")
    assert [name for name, _ in server.tools.features.items()] == ["a_height", "a_whose"]
    assert not other.parents
    server.include(other, prefix="b")


def test_adding_a_feature_that_collides_with_another_server_is_refused() -> None:
    part = tides_server()
    server = harbour((part, "tides"))
    server.tools.add(lambda: "", name="tides_late")
    server.resources.add("tide://late/{x}", lambda x: x)
    with pytest.raises(ValueError, match=r"'harbour' and 'tides' both have the tool 'tides_late'"):
        part.tools.add(lambda: "", name="late")
    with pytest.raises(ValueError, match="is as specific as"):
        part.resources.add("tide://late/{y}", lambda y: y)
    assert "late" not in part.tools.features.by_key
    part.tools.add(lambda: "", name="other")
    part.resources.add("tide://other/{y}", lambda y: y)


def test_invalid_prefixes_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a valid prefix"):
        Server("s").include(tides_server(), prefix="the tides")
    with pytest.raises(ValueError, match="use at most 64 letters"):
        Server("s").include(tides_server(), prefix="y" * 65)
    with pytest.raises(ValueError, match="pass a shorter prefix"):
        long = Server("long")
        long.tools.add(lambda: "", name="x" * 100)
        Server("s").include(long, prefix="y" * 40)
    with pytest.raises(TypeError, match="prefix= is only for a server"):
        Server("s").include(RowSource(), prefix="rows")


def test_cycles_and_repeated_includes_are_refused() -> None:
    one, two, three = Server("one"), Server("two"), Server("three")
    one.include(two)
    two.include(three)
    with pytest.raises(ValueError, match="the same server, or contains it"):
        three.include(one)
    with pytest.raises(ValueError, match="the same server, or contains it"):
        two.include(two)
    with pytest.raises(ValueError, match="'one' includes 'two' already: a server is included once"):
        one.include(two, prefix="again")


# -- middleware


async def test_middleware_of_a_mounted_server_runs_for_its_features_with_unprefixed_names() -> None:
    part = tides_server()
    part.include(RowSource())
    server = Server("whole")
    server.include(harbour((part, "tides")), prefix="harbour")
    server.tools.add(lambda: "own", name="own")
    recorded_calls: list[str] = []

    def make_middleware(name: str) -> Callable[..., Any]:
        async def record(call: Call, next: Next) -> Result:
            subject = getattr(call.params, "name", None) or getattr(call.params, "uri", "")
            recorded_calls.append(f"{name} {call.method} {subject}".strip())
            return await next(call)

        return record

    assert await call(server, "harbour_tides_height", place="mary") == "mary 3 m"
    part.add_middleware(make_middleware("part"))
    server.add_middleware(make_middleware("whole"))
    assert await call(server, "harbour_tides_height", place="mary") == "mary 3 m"
    assert recorded_calls == ["whole tools/call harbour_tides_height", "part tools/call height"]
    recorded_calls.clear()
    await call(server, "own")
    await read(server, "tide://now")
    await read(server, "tide://mary")
    await read(server, "row://1")
    await ask(server, "prompts/get", {"name": "harbour_tides_report", "arguments": {"place": "x"}})
    ref = {"type": "ref/prompt", "name": "harbour_tides_report"}
    await ask(server, "completion/complete", {"ref": ref, "argument": {"name": "place", "value": ""}})
    assert recorded_calls == [
        "whole tools/call own",
        "whole resources/read tide://now",
        "part resources/read tide://now",
        "whole resources/read tide://mary",
        "part resources/read tide://mary",
        "whole resources/read row://1",
        "part resources/read row://1",
        "whole prompts/get harbour_tides_report",
        "part prompts/get report",
        "whole completion/complete",
        "part completion/complete",
    ]


@pytest.mark.parametrize("uri", ["tide://now", "tide://mary", "row://1"])
@pytest.mark.parametrize("revision", ERAS)
async def test_a_resource_that_middleware_forbids_cannot_be_watched(revision: str, uri: str) -> None:
    part = tides_server()
    part.include(RowSource())
    server = harbour((part, "tides"))

    async def forbid(call: Call, next: Next) -> Result:
        raise InvalidArgument("no")

    part.add_middleware(forbid, "resources/read")
    await server.start()
    async with Wire(server, revision) as wire:
        answers = await wire.watch(uri)
        if revision == ALL[-1]:
            assert "resourceSubscriptions" not in wire.notifications[0]["params"]["notifications"]
        else:
            assert "error" in answers[0]
    await server.close()


# -- lifecycle


def lifespan(events: list[str], name: str, failing_step: str = "") -> Any:
    @asynccontextmanager
    async def span(server: Server) -> AsyncIterator[str]:
        if failing_step == "start":
            raise RuntimeError(f"no {name}")
        events.append(f"> {name}")
        try:
            yield f"state of {name}"
        finally:
            events.append(f"< {name}")
        if failing_step == "end":
            raise RuntimeError(f"no end of {name}")

    return span


async def test_lifespans_are_nested_and_each_server_has_its_own_state() -> None:
    events: list[str] = []
    part, last = tides_server(lifespan=lifespan(events, "part")), Server("last", lifespan=lifespan(events, "last"))
    rows = RowSource()
    part.include(rows)
    server = Server("whole", lifespan=lifespan(events, "whole"))
    server.include(part, prefix="tides")
    server.include(last)
    for _ in range(2):
        await server.start()
        assert await call(server, "tides_whose") == "tides state of part"
        assert server.state == "state of whole"
        await server.close()
        assert events == ["> whole", "> part", "> last", "< last", "< part", "< whole"]
        assert rows.events == ["start", "close"]
        events.clear()
        rows.events.clear()


async def test_servers_that_started_are_closed_if_a_later_one_fails_to_start() -> None:
    events: list[str] = []
    server = Server("whole", lifespan=lifespan(events, "whole"))
    server.include(Server("part", lifespan=lifespan(events, "part")))
    bad = Server("bad", lifespan=lifespan(events, "bad", "start"))
    server.include(bad)
    with pytest.raises(RuntimeError, match="no bad"):
        await server.start()
    assert events == ["> whole", "> part", "< part", "< whole"]


async def test_close_raises_the_error_of_a_mounted_server_after_closing_the_others() -> None:
    events: list[str] = []
    server = Server("whole", lifespan=lifespan(events, "whole"))
    server.include(Server("part", lifespan=lifespan(events, "part")))
    server.include(Server("bad", lifespan=lifespan(events, "bad", "end")))
    await server.start()
    with pytest.raises(RuntimeError, match="no end of bad"):
        await server.close()
    assert events[3:] == ["< bad", "< part", "< whole"]


async def test_a_server_mounted_twice_runs_until_its_last_parent_closes() -> None:
    events: list[str] = []
    part = Server("part", lifespan=lifespan(events, "part"))
    one, two = Server("one"), Server("two")
    one.include(part)
    two.include(part)
    await one.start()
    await two.start()
    await part.start()
    await one.close()
    await part.close()
    assert events == ["> part"]
    await two.close()
    assert events == ["> part", "< part"]


async def test_a_server_included_in_a_running_server_is_started_and_watched() -> None:
    events: list[str] = []
    server = Server("whole")
    server.include(tides_server("first"), prefix="first")
    await server.start()
    rows = RowSource()
    part = Server("part", lifespan=lifespan(events, "part"))
    part.include(rows)
    async with Wire(server) as wire:
        await wire.watch(lists=("resources",))
        server.include(part)
        await wire.wait_for_notifications(2)
        while None not in rows.watched_uris:
            await asyncio.sleep(0)
        assert rows.changed is not None
        rows.changed(None)
        await wire.wait_for_notifications(3)
    await server.close()
    assert events == ["> part", "< part"]


# -- watches


@pytest.mark.parametrize("revision", ERAS)
async def test_watches_reach_mounted_servers_and_end_with_the_client(revision: str) -> None:
    part, rows = tides_server(), RowSource()
    part.include(rows)
    followed_uris: list[str] = []

    @part.watcher("tide://{place}")
    async def follow(uri: str) -> None:
        followed_uris.append(uri)
        part.resource_updated(uri)
        try:
            await asyncio.Event().wait()
        finally:
            followed_uris.remove(uri)

    server = Server("whole")
    server.include(harbour((part, "tides")))
    await server.start()
    part.resource_updated("tide://now")
    async with Wire(server, revision) as wire:
        await wire.watch("tide://now", "tide://mary", "row://1")
        assert [uri for uri in rows.watched_uris if uri] == ["row://1"]
        expected = {"tide://mary", "tide://now"}
        await wire.wait_until(lambda: expected <= updated_uris(wire))
        assert rows.changed is not None
        rows.changed("row://1")
        await wire.wait_until(lambda: "row://1" in updated_uris(wire))
    while followed_uris or rows.watched_uris:
        await asyncio.sleep(0)
    await server.close()


def updated_uris(wire: Wire) -> set[str]:
    return {
        notice["params"]["uri"]
        for notice in wire.notifications
        if notice["method"] == "notifications/resources/updated"
    }


# -- dependencies and secrets


async def test_dependencies_are_overridden_only_in_the_server_that_has_the_tool() -> None:
    part = Server("part")

    def server_name(ctx: Context[Any]) -> str:
        return ctx.server.info.name

    @part.tool
    async def tool(name: Annotated[str, Depends(server_name)]) -> str:
        return name

    server = harbour((part, "part"))
    assert await call(server, "part_tool") == "part"
    with server.override(server_name, lambda: "fake"):
        assert await call(server, "part_tool") == "part"
    with part.override(server_name, lambda: "fake"):
        assert await call(server, "part_tool") == "fake"


def test_a_mounted_server_without_a_secret_uses_the_keys_of_the_parent() -> None:
    part, own = Server("part"), Server("own", secret="own")
    server = Server("whole", secret="whole")
    server.include(part)
    server.include(own)
    assert part.services.keys is server.services.keys
    assert own.services.keys is not server.services.keys


async def test_another_process_opens_the_state_of_a_server_that_is_mounted_two_levels_deep() -> None:
    """A bug: if the inner server was mounted first, it sealed with a random key of its own process."""

    def process() -> Server:
        leaf, part, server = Server("leaf"), Server("part"), Server("whole", secret="whole")

        @leaf.tool
        async def sink(ctx: Context[Any]) -> bool:
            return await ctx.elicit("Sure?", bool, key="sure")

        part.include(leaf)
        server.include(part)
        return server

    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    params: dict[str, Any] = {"name": "sink", "arguments": {}, "_meta": meta}
    server = process()
    with pytest.raises(InputNeeded) as raised:
        await server.handlers["tools/call"](make_request(server, "tools/call", params))
    params |= {
        "requestState": raised.value.result.request_state,
        "inputResponses": {"sure": {"action": "accept", "content": {"value": True}}},
    }
    answer = await ask(process(), "tools/call", params)
    assert answer["result"]["content"][0]["text"] == "true"


async def test_another_process_opens_the_cursor_that_a_tool_of_a_mounted_server_returns() -> None:
    """A bug: the lists of the mounted server kept the random key that it had before it was mounted."""

    def process() -> Server:
        part, server = Server("part", page_size=1), Server("whole", secret="whole")
        for name in "ab":
            part.resources.add(f"{name}:", lambda: "")

        @part.tool
        async def page(ctx: Context[Any], cursor: str | None = None) -> list[str]:
            found = await ctx.list_resources(cursor)
            return [found.resources[0].uri, found.next_cursor or ""]

        server.include(part)
        return server

    answer = await ask(process(), "tools/call", {"name": "page", "arguments": {}})
    first, cursor = answer["result"]["structuredContent"]
    answer = await ask(process(), "tools/call", {"name": "page", "arguments": {"cursor": cursor}})
    assert (first, answer["result"]["structuredContent"]) == ("a:", ["b:", ""])


async def test_a_cursor_from_before_a_restart_without_the_mounted_server_is_refused() -> None:
    """A bug: it was an internal error."""

    def process(*parts: Server) -> Server:
        server = Server("whole", page_size=1, secret="shared")
        server.resources.add("own:", lambda: "")
        for part in parts:
            server.include(part)
        return server

    part = Server("part")
    part.resources.add("a:", lambda: "")
    part.resources.add("b:", lambda: "")
    before = process(part)
    cursor = (await ask(before, "resources/list"))["result"]["nextCursor"]
    cursor = (await ask(before, "resources/list", {"cursor": cursor}))["result"]["nextCursor"]
    error = (await ask(process(), "resources/list", {"cursor": cursor}))["error"]
    assert (error["code"], error["message"][:36]) == (-32602, "This cursor is not valid any more: l")


async def test_a_list_that_was_requested_before_its_server_was_mounted_continues_afterwards() -> None:
    part, server = Server("part", page_size=1), Server("whole", secret="whole")
    for name in "ab":
        part.resources.add(f"{name}:", lambda: "")
    await ask(part, "resources/list")
    server.include(part)
    cursor = (await ask(part, "resources/list"))["result"]["nextCursor"]
    second = await ask(part, "resources/list", {"cursor": cursor})
    assert [resource["uri"] for resource in second["result"]["resources"]] == ["b:"]


# -- input requests


@pytest.mark.parametrize("with_middleware", [False, True])
async def test_a_tool_of_a_mounted_server_receives_the_answer_to_its_input_request(with_middleware: bool) -> None:
    part = Server("part")

    @part.tool
    async def sink(ctx: Context[Any]) -> bool:
        return await ctx.elicit("Sure?", bool, key="sure")

    if with_middleware:

        @part.middleware
        async def pass_on(call: Call, next: Next) -> Result:
            return await next(call)

    server = Server("whole")
    server.include(harbour((part, "part")))
    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    params: dict[str, Any] = {"name": "part_sink", "arguments": {}, "_meta": meta}
    with pytest.raises(InputNeeded) as raised:
        await server.handlers["tools/call"](make_request(server, "tools/call", params))
    params |= {
        "requestState": raised.value.result.request_state,
        "inputResponses": {"sure": {"action": "accept", "content": {"value": True}}},
    }
    answer = await ask(server, "tools/call", params)
    assert answer["result"]["content"][0]["text"] == "true"


# -- tasks


@pytest.mark.parametrize("tool_added_later", [False, True])
async def test_tasks_of_a_mounted_server_are_served_by_the_parent(tool_added_later: bool) -> None:
    part, server = Server("part"), Server("whole")
    middle = Server("middle")
    server.include(middle)
    if tool_added_later:
        middle.include(part, prefix="part")

    @part.tool(task=True)
    async def slow(ctx: Context[Any]) -> str:
        return ctx.server.info.name

    if not tool_added_later:
        middle.include(part, prefix="part")
    await server.start()
    assert part.tasks is middle.tasks is server.tasks
    meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}}
    task = (await ask(server, "tools/call", {"name": "part_slow", "arguments": {}} | meta))["result"]
    assert task["resultType"] == "task"
    status: dict[str, Any] = {}
    while status.get("status") != "completed":
        await asyncio.sleep(0)
        status = (await ask(server, "tasks/get", {"taskId": task["taskId"]} | meta))["result"]
    assert status["result"]["content"][0]["text"] == "part"
    await server.close()


# -- further cases


async def test_a_feature_disabled_in_a_mounted_server_is_hidden_until_it_is_enabled() -> None:
    part = tides_server()
    part.tools.disable("height")
    part.prompts.disable("report")
    part.resources.disable("tide://now")
    server = harbour((part, "tides"))
    assert await list_names(server, "tools") == ["tides_whose"]
    assert await list_names(server, "prompts") == []
    assert await list_all(server) == []
    assert await call(server, "tides_height", place="mary") == "Unknown tool: tides_height"
    part.tools.enable("height")
    part.prompts.enable("report")
    part.resources.enable("tide://now")
    assert await list_names(server, "tools") == ["tides_height", "tides_whose"]
    assert await list_names(server, "prompts") == ["tides_report"]
    assert len(await list_all(server)) == 1


async def test_each_mounted_server_completes_its_own_arguments() -> None:
    def part(name: str) -> Server:
        server = Server(name)

        @server.prompt
        def own(place: Annotated[str, Complete([name])]) -> str:
            return place

        @server.resource(f"{name}://{{place}}")
        async def at(place: Annotated[str, Complete([name])]) -> str:
            return place

        return server

    server = harbour((part("one"), "one"), (part("two"), "two"))

    @server.prompt
    def mine(place: Annotated[str, Complete(["own"])]) -> str:
        return place

    @server.resource("mine://{place}")
    async def at(place: Annotated[str, Complete(["own"])]) -> str:
        return place

    async def values(ref: dict[str, str]) -> list[str]:
        params = {"ref": ref, "argument": {"name": "place", "value": ""}}
        return (await ask(server, "completion/complete", params))["result"]["completion"]["values"]  # type: ignore[no-any-return]

    for name, expected in (("one_own", "one"), ("two_own", "two"), ("mine", "own")):
        assert await values({"type": "ref/prompt", "name": name}) == [expected]
    for scheme, expected in (("one", "one"), ("two", "two"), ("mine", "own")):
        assert await values({"type": "ref/resource", "uri": f"{scheme}://{{place}}"}) == [expected]


def test_include_on_another_event_loop_fails_and_changes_nothing() -> None:
    server, part = Server("whole"), tides_server()
    asyncio.run(server.start())
    with pytest.raises(RuntimeError):
        server.include(part)
    assert (server.mounts, part.parents, list(server.tools.features)) == ([], [], [])


def test_the_error_for_a_cycle_names_both_servers() -> None:
    one, two = Server("one"), Server("two")
    one.include(two)
    with pytest.raises(ValueError, match=r"^'two' cannot include 'one': it is the same server, or contains it"):
        two.include(one)
    with pytest.raises(ValueError, match=r"^'one' cannot include 'one': it is the same server"):
        one.include(one)


@pytest.mark.parametrize("prefix", ["", "a", "a" * 64, "A-1_b.c"])
def test_a_prefix_of_up_to_64_characters_is_accepted(prefix: str) -> None:
    Server("whole").include(tides_server(), prefix=prefix)


@pytest.mark.parametrize("prefix", ["a" * 65, "a b", "a/b", "é", "a\n"])
def test_an_overlong_or_invalid_prefix_is_refused(prefix: str) -> None:
    server = Server("whole")
    with pytest.raises(ValueError, match="prefix"):
        server.include(tides_server(), prefix=prefix)
    assert server.mounts == []


async def test_including_a_server_notifies_watchers_of_its_lists() -> None:
    server = Server("whole")
    server.tools.add(lambda: "x", name="x")
    await server.start()
    async with Wire(server) as wire:
        await wire.watch(lists=("tools",))
        server.include(tides_server(), prefix="tides")
        await wire.wait_for_notifications(2)
        assert wire.notifications[1]["method"] == "notifications/tools/list_changed"
    await server.close()
    assert await list_names(server, "tools") == ["x", "tides_height", "tides_whose"]


async def test_close_ends_the_watches_of_mounted_servers() -> None:
    part = tides_server()
    part.include(RowSource())
    server = harbour((part, "tides"))
    await server.start()
    async with Wire(server) as wire:
        await wire.watch("row://1", lists=("resources",))
        assert part.watching.watched() == ["row://1"]
        await server.close()
        assert part.watching.watched() == []


# -- cost of each level


PACKAGE = str(Path(wharfinger.__file__).parent)


async def calls_of(server: Server, method: str, params: dict[str, Any]) -> list[str]:
    """Return the functions of the package that one request calls, in order."""
    request = make_request(server, method, params)
    handler = server.handlers[method]
    await handler(request)
    calls: list[FrameType] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame) if event == "call" else None)
    try:
        await handler(request)
    finally:
        sys.setprofile(None)
    return [frame.f_code.co_qualname for frame in calls if frame.f_code.co_filename.startswith(PACKAGE)]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "tide://now"}),
        ("resources/read", {"uri": "tide://mary"}),
        ("tools/call", {"name": "height", "arguments": {"place": "mary"}}),
        ("tools/call", {"name": "whose"}),
    ],
)
async def test_three_levels_add_at_most_three_calls(method: str, params: dict[str, Any]) -> None:
    server = tides_server()
    before = await calls_of(server, method, params)
    for level in range(3):
        parent = Server(str(level))
        parent.include(server)
        server = parent
    after = await calls_of(server, method, params)
    assert 0 <= len(after) - len(before) <= 3, (before, after)
