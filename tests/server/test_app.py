"""The lifecycle of a server: its lifespan, its declarations and its restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.driving import ALL, ERAS, META, STATELESS, Wire, ask, initialize_params, read
from wharfinger import types as t
from wharfinger.protocol.revisions import REVISIONS, SUPPORTED
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.source import Source
from wharfinger.types.task_extension import EXTENSION as TASKS


class Events(list[str]):
    """A log of events, in order, with lifespans and sources that append to it."""

    def lifespan(self, failing_step: str = "") -> Any:
        @asynccontextmanager
        async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
            if failing_step == "start":
                raise RuntimeError("no database")
            self.append("enter")
            try:
                yield {"server": server.info.name}
            finally:
                self.append("leave")
            if failing_step == "end":
                raise RuntimeError("no end")

        return lifespan

    def source(self, name: str, failing_step: str = "") -> Source:
        events = self

        class RecordingSource(Source):
            def matches(self, uri: str) -> bool:
                return False

            async def start(self) -> None:
                if failing_step == "start":
                    raise RuntimeError("no source")
                events.append(f"start {name}")

            async def close(self) -> None:
                events.append(f"close {name}")
                if failing_step == "close":
                    raise RuntimeError("no close")

        return RecordingSource()


# -- lifespan


async def test_concurrent_starts_and_closes_run_the_lifespan_once() -> None:
    events = Events()
    server = Server("s", lifespan=events.lifespan())
    server.include(events.source("a"))
    await server.close()
    await asyncio.gather(server.start(), server.start(), server.start())
    await server.start()
    assert server.state == {"server": "s"}
    assert events == ["enter", "start a"]
    await asyncio.gather(server.close(), server.close())
    await server.close()
    assert events == ["enter", "start a", "close a", "leave"]


async def test_a_server_runs_until_the_last_of_its_transports_ends() -> None:
    """A bug: the first one that ended closed the lifespan and refused tasks, while the other still served."""
    events = Events()
    server = Server("s", lifespan=events.lifespan())

    @server.tool(task="required")
    async def dredge() -> str:
        return "done"

    first, second = server.asgi(), server.asgi()
    await first.start()
    await second.start()
    await first.aclose(0)
    assert events == ["enter"]
    capabilities = {"extensions": {TASKS: {}}}
    params = {"name": "dredge", "_meta": {f"{META}clientCapabilities": capabilities}}
    assert (await ask(server, "tools/call", params))["result"]["resultType"] == "task"
    await second.aclose(0)
    assert events == ["enter", "leave"]


async def test_a_server_that_is_started_while_it_ends_ends_first() -> None:
    """A bug: two lifespans overlapped, and the end of the first one stopped the sources of the second."""
    events, may_leave = Events(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        events.append("enter")
        yield
        await may_leave.wait()
        events.append("leave")

    server = Server("s", lifespan=lifespan)
    await server.start("first")
    ending = asyncio.create_task(server.close("first"))
    await asyncio.sleep(0)
    starting = asyncio.create_task(server.start("second"))
    await asyncio.sleep(0)
    given_up = asyncio.create_task(server.start("third"))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert events == ["enter"]
    may_leave.set()
    await starting
    await ending
    assert events == ["enter", "leave", "enter"]
    await server.close("third")
    await server.close("second")
    assert events == ["enter", "leave"] * 2


async def test_a_server_that_is_closed_before_its_earlier_run_has_ended_does_not_start() -> None:
    events, may_leave = Events(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        events.append("enter")
        yield
        await may_leave.wait()
        events.append("leave")

    server = Server("s", lifespan=lifespan)
    await server.start()
    ending = asyncio.create_task(server.close())
    await asyncio.sleep(0)
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    await server.close()
    with pytest.raises(RuntimeError, match="ended before it had started"):
        await starting
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    assert events == ["enter"]
    may_leave.set()
    await asyncio.gather(ending, starting)
    await server.close()
    assert events == ["enter", "leave"] * 2


async def test_handlers_receive_the_value_of_the_lifespan_as_state() -> None:
    server = Server("s", lifespan=Events().lifespan())

    @server.resource("a:async")
    async def in_loop(ctx: Context[dict[str, str]]) -> str:
        return ctx.state["server"]

    @server.resource("a:{x}")
    def in_thread(x: str, ctx: Context[dict[str, str]]) -> str:
        return ctx.state["server"]

    await server.start()
    assert (await read(server, "a:async"))[0]["text"] == "s"
    assert (await read(server, "a:sync"))[0]["text"] == "s"
    await server.close()


async def test_the_lifespan_is_entered_and_left_in_the_same_task() -> None:
    """Task groups and cancel scopes must be closed by the task that opened them."""
    tasks: list[Any] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup() as group, asyncio.timeout(20):
            background = group.create_task(asyncio.Event().wait())
            yield
            background.cancel()
        tasks.append(asyncio.current_task())

    server = Server("s", lifespan=lifespan)
    await asyncio.create_task(server.start())
    await asyncio.create_task(server.close())
    assert tasks[0] is tasks[1]


async def test_cancelling_one_call_of_start_does_not_affect_the_others() -> None:
    released = asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        await released.wait()
        yield "up"

    server = Server("s", lifespan=lifespan)
    first = asyncio.create_task(server.start())
    second = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    released.set()
    await second
    assert server.state == "up"
    await server.close()


async def test_a_failing_lifespan_raises_for_every_call_of_start_and_can_be_retried() -> None:
    events = Events()
    server = Server("s", lifespan=events.lifespan("start"))
    failed = await asyncio.gather(server.start(), server.start(), return_exceptions=True)
    assert [str(error) for error in failed] == ["no database"] * 2
    await server.close()
    server.lifespan = events.lifespan()
    await server.start()
    assert events == ["enter"]
    await server.close()


async def test_a_source_that_fails_to_start_closes_those_that_started() -> None:
    events = Events()
    server = Server("s", lifespan=events.lifespan())
    server.include(events.source("a"))
    server.include(events.source("b", "start"))
    with pytest.raises(RuntimeError, match="no source"):
        await server.start()
    assert events == ["enter", "start a", "close a", "close b", "leave"]


async def test_a_source_that_fails_to_close_does_not_keep_others_open(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    server = Server("s", lifespan=events.lifespan())
    server.include(events.source("a", "close"))
    server.include(events.source("b"))
    await server.start()
    await server.close()
    assert events[3:] == ["close a", "close b", "leave"]
    assert ["did not close" in record.getMessage() for record in caplog.records] == [True]


async def test_close_raises_the_error_of_a_lifespan_that_fails_to_end() -> None:
    server = Server("s", lifespan=Events().lifespan("end"))
    await server.start()
    with pytest.raises(RuntimeError, match="no end"):
        await server.close()
    await server.close()


def test_a_server_runs_again_on_another_loop() -> None:
    events = Events()
    server = Server("s", lifespan=events.lifespan())
    server.resources.add("a:b", lambda: "text")

    async def run() -> None:
        await server.start()
        async with Wire(server) as wire:
            answer = await wire.ask("resources/read", {"uri": "a:b"})
            assert answer["result"]["contents"][0]["text"] == "text"
        await server.close()

    for _ in range(3):
        asyncio.run(asyncio.wait_for(run(), 10))
    assert events == ["enter", "leave"] * 3


# -- declarations


@pytest.mark.parametrize("revision", ALL)
async def test_a_server_declares_its_name_and_capabilities(revision: str) -> None:
    server = Server(
        "harbour",
        version="1.2",
        title="Harbour",
        description="Ships.",
        instructions="Ask for tides.",
        website_url="https://example.test",
        icons=[t.Icon(src="https://example.test/i.png")],
    )
    identity = {
        "name": "harbour",
        "version": "1.2",
        "title": "Harbour",
        "description": "Ships.",
        "websiteUrl": "https://example.test",
        "icons": [{"src": "https://example.test/i.png"}],
    }
    stateless = revision == STATELESS

    async def negotiate() -> Any:
        if stateless:
            return (await ask(server, "server/discover", {}, revision))["result"]
        wire = Wire(server, revision)
        result = (await wire.ask("initialize", initialize_params(revision)))["result"]
        wire.stream.connection_lost(None)
        return result

    base_capabilities: dict[str, Any] = {"logging": {}}
    result = await negotiate()
    assert result["capabilities"] == base_capabilities
    assert result["instructions"] == "Ask for tides."
    if stateless:
        assert result["supportedVersions"] == list(SUPPORTED)
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": identity}
    else:
        assert (result["protocolVersion"], result["serverInfo"]) == (revision, identity)
    server.resources.add("a:b", lambda: "")
    server.tools.add(lambda: "", name="t")
    server.prompts.add(lambda: "", name="p")
    assert (await negotiate())["capabilities"] == {
        **base_capabilities,
        "completions": {},
        "resources": {"subscribe": True, "listChanged": True},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
    }


@pytest.mark.parametrize("revision", ALL)
async def test_features_added_at_run_time_are_served_at_once(revision: str) -> None:
    server = Server("s")
    await server.start()
    async with Wire(server, revision) as wire:
        assert (await wire.ask("resources/list"))["error"]["code"] == -32601
        server.resources.add("a:b", lambda: "text")
        assert len((await wire.ask("resources/list"))["result"]["resources"]) == 1
        server.resources.remove("a:b")
        assert (await wire.ask("resources/list"))["result"]["resources"] == []
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
def test_a_method_of_the_other_era_is_not_found(revision: str) -> None:
    server = Server("s")
    server.resources.add("a:b", lambda: "")

    async def run() -> None:
        other = "subscriptions/listen" if revision != STATELESS else "resources/subscribe"
        params: dict[str, Any] = {"notifications": {}} if revision != STATELESS else {"uri": "a:b"}
        assert (await ask(server, other, params, revision))["error"]["code"] == -32601

    asyncio.run(run())


# -- registration


async def test_a_fallback_tool_is_replaced_by_an_ordinary_tool_of_its_name() -> None:
    server = Server("s")
    server.tools.add(lambda: "fallback", name="search", fallback=True)
    server.tools.add(lambda: "own", name="search")
    server.tools.add(lambda: "late", name="search", fallback=True)
    tools = (await ask(server, "tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["search"]
    answer = await ask(server, "tools/call", {"name": "search", "arguments": {}})
    assert answer["result"]["content"] == [{"type": "text", "text": "own"}]


def test_decorators_return_the_function_itself() -> None:
    server = Server("s")

    def function() -> str:
        return ""

    async def rows() -> AsyncIterator[t.Resource]:
        yield t.Resource(uri="a:b", name="b")

    async def follow(uri: str) -> None: ...

    pairs: list[tuple[Any, Any]] = [
        (function, server.resource("a:b")),
        (function, server.tool),
        (function, server.tool(name="other")),
        (function, server.prompt),
        (function, server.prompt(name="other")),
        (function, server.read_resource("c:d")),
        (rows, server.list_resources),
        (follow, server.watcher("a:{x}")),
    ]
    for decorated, decorator in pairs:
        assert decorator(decorated) is decorated


def test_creating_a_server_logs_and_prints_nothing(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "wharfinger")
    Server("s").resources.add("a:b", lambda: "")
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))
    assert not logging.getLogger("wharfinger").handlers


def test_every_supported_revision_is_tested() -> None:
    assert set(ALL) == set(REVISIONS)


async def test_the_error_for_a_lifespan_that_is_no_context_manager_names_the_decorator() -> None:
    async def lifespan(server: Server) -> AsyncIterator[int]:
        yield 1

    untyped: Any = lifespan
    with pytest.raises(TypeError, match=r"put @contextlib.asynccontextmanager before it"):
        await Server("s", lifespan=untyped).start()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"transport": "http", "port": 1}, TypeError, r"over stdio takes no transport=: for HTTP write run\(http="),
        ({"http": True}, TypeError, "takes HOST:PORT"),
        ({"http": "localhost"}, ValueError, "'localhost' is not HOST:PORT"),
        ({"http": "localhost:99999"}, ValueError, "is not HOST:PORT"),
    ],
)
def test_invalid_combinations_of_run_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Server("s").run(**options)


def test_include_refuses_an_object_that_is_neither_a_server_nor_a_source() -> None:
    with pytest.raises(TypeError, match="takes a Server or a source, such as files"):
        Server("s").include("charts")  # type: ignore[arg-type]


async def test_the_ttl_of_the_server_is_sent_in_milliseconds() -> None:
    server = Server("s", ttl=5.0)
    server.tools.add(lambda: "x", name="x")
    assert (await ask(server, "tools/list"))["result"]["ttlMs"] == 5000


async def test_list_changed_notifies_of_known_lists_and_refuses_others() -> None:
    server = Server("s")
    server.tools.add(lambda: "x", name="x")
    server.prompts.add(lambda: "x", name="x")
    server.resources.add("a:b", lambda: "x")
    with pytest.raises(ValueError, match="There is no list 'roots': write resources, tools or prompts"):
        server.list_changed("roots")  # type: ignore[arg-type]
    await server.start()
    async with Wire(server) as wire:
        await wire.watch(lists=("tools", "prompts", "resources"))
        for number, name in enumerate(("tools", "prompts", "resources"), 2):
            server.list_changed(name)
            await wire.wait_for_notifications(number)
            assert wire.notifications[-1]["method"] == f"notifications/{name}/list_changed"
    await server.close()


async def test_a_server_with_only_unlisted_templates_reads_them() -> None:
    server = Server("s")
    server.read_resource("a:{x}")(lambda x: x)
    assert (await ask(server, "resources/read", {"uri": "a:y"}))["result"]["contents"][0]["text"] == "y"
    assert (await ask(server, "resources/list"))["result"]["resources"] == []


def test_a_watcher_without_a_scheme_is_refused() -> None:
    async def follow(uri: str) -> None: ...

    with pytest.raises(ValueError, match="has no scheme"):
        Server("s").watcher("notes/{x}")(follow)
    with pytest.raises(ValueError, match="has no scheme"):
        Server("s").read_resource("notes/{x}")(lambda x: x)


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf")])
def test_times_that_are_not_valid_are_refused(ttl: float) -> None:
    """A bug: a negative ttl was sent to clients, and each task failed if `task_poll` was not a number."""
    server = Server("s")
    for register in (
        lambda: Server("s", ttl=ttl),
        lambda: server.resources.add("note:x", lambda: "x", ttl=ttl),
        lambda: server.add_app("ui://s/x", "<p>", ttl=ttl),
        lambda: server.extensions.add_method("notes/read", lambda: None, ttl=ttl),
    ):
        with pytest.raises(ValueError, match="write 0 seconds or more"):
            register()
    with pytest.raises(ValueError, match="write more than 0 seconds"):
        Server("s", task_poll=ttl)
    with pytest.raises(ValueError, match="cache_scope='all'"):
        Server("s", cache_scope="all")  # type: ignore[arg-type]


def test_run_refuses_http_together_with_a_unix_socket() -> None:
    with pytest.raises(TypeError, match="http and unix exclude each other"):
        Server("s").run(http="127.0.0.1:0", unix="/nowhere/at/all")


async def test_a_draining_server_refuses_new_tasks() -> None:
    server = Server("s")
    server.tools.add(lambda: "x", name="x", task=True)
    await server.start()
    server.drain()
    capabilities = {"extensions": {TASKS: {}}}
    params = {"name": "x", "_meta": {f"{META}clientCapabilities": capabilities}}
    assert (await ask(server, "tools/call", params))["error"]["message"] == "The server is stopping."
    await server.close()


async def test_methods_and_extensions_added_to_a_mounted_server_are_served_by_its_parent() -> None:
    part, whole = Server("part"), Server("whole")
    whole.include(part)
    part.extensions.declare("example.test/tides", {"deep": True})
    assert whole.extensions.declared == {"example.test/tides": {"deep": True}}

    @part.method("quay/berths", extension="example.test/more")
    async def list_berths() -> dict[str, Any]:
        return {"height": 3}

    @part.notification("notifications/quay/taken")
    def on_taken(params: t.NotificationParams) -> None: ...

    assert "example.test/more" in whole.extensions.declared
    assert "notifications/quay/taken" in whole.notification_handlers
    assert (await ask(whole, "quay/berths"))["result"]["height"] == 3
    with pytest.raises(ValueError, match="is taken already"):
        part.notification("notifications/quay/taken")(on_taken)
    with pytest.raises(ValueError, match="is served already"):
        part.extensions.add_method("quay/berths", list_berths)


def test_a_method_of_an_invalid_extension_is_not_registered() -> None:
    server = Server("s")

    async def list_berths() -> dict[str, Any]:
        return {}

    with pytest.raises(ValueError, match="identifier"):
        server.extensions.add_method("quay/berths", list_berths, extension="no identifier")
    assert "quay/berths" not in server.handlers
