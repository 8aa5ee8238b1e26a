"""Several servers combined into one, as real processes: concurrent starts, restarts, and isolated failures."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.client.test_eras import FakeServer, handshake
from tests.conftest import free_port
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger import types as t
from wharfinger.auth import SignIn
from wharfinger.errors import ConnectionLost, InvalidArgument, RequestTimeout, ResourceNotFound, WharfingerError
from wharfinger.server.skills import serve_skills
from wharfinger.sources import files
from wharfinger.upstreams import (
    InvalidConfiguration,
    ServerConfig,
    Upstream,
    UpstreamChange,
    Upstreams,
    UpstreamUnreachable,
)
from wharfinger.upstreams import upstreams as upstreams_module

PROGRAM = Path(__file__).with_name("harbour_server.py")


def run(test: Coroutine[Any, Any, None], seconds: float = 50) -> None:
    asyncio.run(asyncio.wait_for(test, seconds))


def process_config(name: str, *args: str, **options: Any) -> ServerConfig:
    return ServerConfig(name=name, target=[sys.executable, str(PROGRAM), name, *(args or ("0",))], **options)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def wait_until(condition: Callable[[], bool], upstreams: Upstreams) -> None:
    """Wait for changes of the servers until a condition holds."""
    changed = asyncio.Event()
    stop = upstreams.on_change(lambda change: changed.set())
    try:
        while not condition():
            changed.clear()
            await asyncio.wait_for(changed.wait(), 30)
    finally:
        stop()


async def pid_of(upstream: Upstream) -> int:
    return int((await upstream.client.call_tool("pid")).data)


@asynccontextmanager
async def open_upstreams(*configs: ServerConfig) -> AsyncGenerator[Upstreams]:
    async with Upstreams(configs) as upstreams:
        await upstreams.ready(30)
        yield upstreams


def in_process_config(name: str, *tools: str, **options: Any) -> ServerConfig:
    """Return the configuration of a server in this process."""
    server = Server(name)
    for tool in tools:
        server.tools.add(lambda: name, name=tool)
    return ServerConfig(name=name, target=server, **options)


def test_twenty_servers_start_concurrently_and_restart_when_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def test() -> None:
        configs = [process_config(f"s{number}", "10" if number == 7 else "0", str(pids)) for number in range(20)]
        async with Upstreams(configs) as upstreams:
            fast = [upstream for upstream in upstreams.values() if upstream.name != "s7"]
            await asyncio.gather(*(upstream.settled() for upstream in fast))
            assert upstreams["s7"].status == "starting"
            assert len([tool for tool in await upstreams.tools() if tool.tool.name == "pid"]) == 19
            await upstreams.ready()
            assert {upstream.status for upstream in upstreams.values()} == {"ready"}
            slow_pid = await pid_of(upstreams["s7"])
            os.kill(slow_pid, signal.SIGKILL)  # its restart takes 10 s, while the others are killed in turn
            for upstream in fast:
                old_pid = await pid_of(upstream)
                os.kill(old_pid, signal.SIGKILL)
                await wait_until(
                    lambda upstream=upstream: upstream.restarts == 1 and upstream.status == "ready", upstreams
                )
                assert await pid_of(upstream) != old_pid
            await wait_until(lambda: upstreams["s7"].status == "ready", upstreams)
            assert await pid_of(upstreams["s7"]) != slow_pid
            assert all(upstream.restarts == 1 for upstream in upstreams.values())
            started_pids = [int(line) for line in pids.read_text().split()]
            assert len(started_pids) == 40
        assert not any(is_alive(pid) for pid in started_pids)

    run(test(), 58)


def test_a_dead_and_a_slow_server_do_not_affect_the_others() -> None:
    async def test() -> None:
        dead = ServerConfig(name="dead", target=[sys.executable, "-c", "raise SystemExit('no disk')"])
        async with Upstreams([process_config("good"), dead, process_config("slow", "30")]) as upstreams:
            await asyncio.gather(upstreams["good"].settled(), upstreams["dead"].settled())
            assert (await upstreams["good"].client.call_tool("pid")).data
            assert {tool.server for tool in await upstreams.tools()} == {"good"}
            assert upstreams["dead"].status == "down"
            assert "no disk" in upstreams["dead"].error
            with pytest.raises(UpstreamUnreachable, match=r"dead cannot be reached: .*no disk"):
                _ = upstreams["dead"].client
            with pytest.raises(RequestTimeout, match=r"slow was not ready within 0\.05 s"):
                await upstreams["slow"].client.list_tools(timeout=0.05)
            with pytest.raises(UpstreamUnreachable, match=r"slow is not ready within 0\.05 s"):
                await upstreams["slow"].connected(0.05)

    run(test())


def test_a_call_to_a_starting_server_waits_for_it() -> None:
    async def test() -> None:
        async with Upstreams([process_config("late", "1")]) as upstreams:
            assert upstreams["late"].status == "starting"
            assert (await upstreams["late"].client.call_tool("pid")).data

    run(test())


def test_a_call_in_flight_fails_and_the_next_one_waits_for_the_restart() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("it")) as upstreams:
            upstream = upstreams["it"]
            os.kill(old_pid := await pid_of(upstream), signal.SIGSTOP)
            call = asyncio.ensure_future(pid_of(upstream))
            await asyncio.sleep(0)
            os.kill(old_pid, signal.SIGKILL)
            with pytest.raises(ConnectionLost):
                await call
            assert upstream.status == "starting"
            assert await pid_of(upstream) != old_pid

    run(test())


def test_a_server_that_keeps_exiting_is_unreachable_until_it_runs_again(tmp_path: Path) -> None:
    """The server exits at each call of its tool, until a file exists."""
    program = tmp_path / "flapping.py"
    program.write_text(
        "import os, sys\nfrom pathlib import Path\nfrom wharfinger import Server\nserver = Server('flapping')\n"
        f"fixed = Path({str(tmp_path / 'fixed')!r})\n"
        "@server.tool\ndef end() -> str:\n    if fixed.exists():\n        return 'well'\n    os._exit(3)\n"
        "server.run()\n"
    )

    async def test() -> None:
        async with open_upstreams(ServerConfig(name="it", target=[sys.executable, str(program)])) as upstreams:
            upstream, ends = upstreams["it"], 0
            with pytest.raises(UpstreamUnreachable, match="exit code 3"):
                while True:
                    try:
                        await upstream.client.call_tool("end")
                    except ConnectionLost:
                        ends += 1
            assert ends == 3
            (tmp_path / "fixed").touch()
            await wait_until(lambda: upstream.status == "ready", upstreams)
            assert (await upstream.client.call_tool("end")).data == "well"
            assert upstream.restarts == 3

    run(test())


def test_a_client_that_the_application_closed_is_reopened() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("it")) as upstreams:
            upstream = upstreams["it"]
            old_pid = await pid_of(upstream)
            await upstream.client.close()
            with suppress(WharfingerError):  # this call notices the closed connection
                await pid_of(upstream)
            await wait_until(lambda: upstream.restarts == 1 and upstream.status == "ready", upstreams)
            assert await pid_of(upstream) != old_pid

    run(test())


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
def test_the_authorization_header_of_a_configuration_takes_precedence_over_auth(name: str) -> None:
    url = "https://harbour.example/mcp"
    configs = [ServerConfig(name="a", target=url), ServerConfig(name="b", target=url, headers={name: "Bearer x"})]
    sign_in = SignIn(interactive=False)
    upstreams = Upstreams(configs, options=lambda config: {"auth": sign_in})
    auths = {key: upstream.client._session.connections.settings.auth for key, upstream in upstreams.items()}
    assert (auths["a"] is None, auths["b"] is None) == (False, True)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_server_at_a_url_is_down_while_it_does_not_run(revision: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    serve = [sys.executable, str(PROGRAM), "far", "0", os.devnull, address]

    async def test() -> None:
        far = ServerConfig(name="far", target=f"http://{address}/mcp")
        async with Upstreams([far], options=lambda config: {"revision": revision}) as upstreams:
            upstream = upstreams["far"]
            await upstreams.ready(30)
            assert upstream.status == "down"  # no server listens there yet
            for _ in range(2):
                process = await asyncio.create_subprocess_exec(*serve, stderr=asyncio.subprocess.DEVNULL)
                await wait_until(lambda: upstream.status == "ready", upstreams)
                assert await pid_of(upstream) == process.pid
                process.kill()
                await process.wait()
                with pytest.raises(WharfingerError):
                    await pid_of(upstream)
                await wait_until(lambda: upstream.status == "down", upstreams)
                with pytest.raises(UpstreamUnreachable, match="far cannot be reached"):
                    await pid_of(upstream)
                assert await upstreams.tools() == []

    run(test())


def test_a_server_that_changes_its_revision_stays_ready() -> None:
    """Regression: the loss of the old connection was reported last, and the event loop hung."""

    async def test() -> None:
        async with FakeServer() as fake, open_upstreams(ServerConfig(name="far", target=fake.url)) as upstreams:
            upstream = upstreams["far"]
            fake.reply_to = lambda message: (200, {"result": {}}) if message["method"] == "ping" else handshake(message)
            await upstream.client.list_tools(bypass_cache=True)
            await asyncio.sleep(0)  # the task that supervises the server runs
            assert (upstream.client.revision, upstream.status, upstream.restarts) == ("2025-11-25", "ready", 1)
            await upstream.client.list_tools(bypass_cache=True)

    run(test())


def test_a_watch_continues_after_a_restart() -> None:
    async def test() -> None:
        async with (
            open_upstreams(process_config("it")) as upstreams,
            upstreams["it"].client.watch("it://log") as changes,
        ):
            os.kill(await pid_of(upstreams["it"]), signal.SIGKILL)
            change = await anext(aiter(changes))
            assert (change.uri, change.missed) == ("it://log", True)

    run(test())


def test_an_idle_server_is_stopped_and_started_by_the_next_call() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("it", idle_seconds=0.2)) as upstreams:
            upstream = upstreams["it"]
            old_pid = await pid_of(upstream)
            names = [tool.name for tool in await upstreams.tools()]
            await wait_until(lambda: upstream.status == "idle", upstreams)
            assert not is_alive(old_pid)
            assert [tool.name for tool in await upstreams.tools()] == names  # without a start
            assert upstream.status == "idle"
            assert await pid_of(upstream) != old_pid
            assert upstream.restarts == 0

    run(test())


def test_a_watched_server_is_not_idle() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("it", idle_seconds=0.2)) as upstreams:
            old_pid = await pid_of(upstreams["it"])
            async with upstreams["it"].client.watch("it://log"):
                statuses: list[str] = []
                upstreams.on_change(lambda change: statuses.append(upstreams["it"].status))
                await asyncio.sleep(0.6)
                assert await pid_of(upstreams["it"]) == old_pid
                assert statuses == []
            await wait_until(lambda: upstreams["it"].status == "idle", upstreams)

    run(test())


def test_a_call_times_out_after_timeout_seconds() -> None:
    async def test() -> None:
        server = Server("it")

        @server.tool
        async def forever() -> None:
            await asyncio.Event().wait()

        async with open_upstreams(ServerConfig(name="it", target=server, timeout_seconds=0.05)) as upstreams:
            with pytest.raises(RequestTimeout):
                await upstreams["it"].client.call_tool("forever")

    run(test())


def test_a_disabled_server_is_never_started(tmp_path: Path) -> None:
    async def test() -> None:
        disabled_config = ServerConfig(name="off", target=["touch", str(tmp_path / "touched")], disabled=True)
        async with open_upstreams(disabled_config, in_process_config("on", "a")) as upstreams:
            assert upstreams["off"].status == "disabled"
            assert [tool.name for tool in await upstreams.tools()] == ["on_a"]
            with pytest.raises(UpstreamUnreachable, match="off is disabled"):
                _ = upstreams["off"].client
        assert not (tmp_path / "touched").exists()

    run(test())


def test_names_of_tools_start_with_their_server_if_there_are_several() -> None:
    async def test() -> None:
        async with open_upstreams(in_process_config("a", "read"), in_process_config("b", "read")) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["a_read", "b_read"]
            upstream, own_name = upstreams.find_tool("b_read")
            assert (upstream.name, own_name) == ("b", "read")
            with pytest.raises(InvalidArgument, match=r"no tool 'b_raed'\. Did you mean 'b_read'"):
                upstreams.find_tool("b_raed")
        async with open_upstreams(in_process_config("a", "read")) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["read"]

    run(test())


def test_the_configuration_filters_and_renames_tools_and_resources() -> None:
    async def test() -> None:
        filtered = in_process_config(
            "a",
            *("get", "put", "drop", "list"),
            include_tools=("get", "put", "drop"),
            exclude_tools=("drop",),
            rename={"get": "fetch"},
            prefix="x",
        )
        patterns = in_process_config(
            "b", "get_a", "get_b", "put", expose=("get_*", "docs://**"), hide=("*_b", "docs://secret/*")
        )
        server = patterns.target
        assert isinstance(server, Server)
        server.resources.add("docs://open", lambda: "open")
        server.resources.add("docs://secret/a", lambda: "secret")
        server.resources.add("other://a", lambda: "other")
        async with open_upstreams(filtered, patterns) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["x_fetch", "x_put", "b_get_a"]
            assert upstreams.find_tool("x_fetch")[1] == "get"
            assert [listed.resource.uri for listed in await upstreams.resources()] == ["docs://open"]
            client = upstreams["b"].client
            with pytest.raises(ResourceNotFound):
                await client.read_resource("docs://secret/a")
            with pytest.raises(WharfingerError, match="b offers no tool 'get_b'"):
                await client.call_tool("get_b")
            assert (await client.read_resource("docs://open")).text == "open"

    run(test())


def test_a_hidden_resource_or_prompt_is_hidden_in_folders_and_completions(tmp_path: Path) -> None:
    """A bug: the entries of a folder had it, and the values of its arguments were suggested."""
    (tmp_path / "open.txt").write_text("open")
    (tmp_path / "closed.txt").write_text("closed")
    server = Server("a")
    server.include(files(tmp_path, label="docs"))
    serve_skills(server)

    @server.prompt
    def closed(name: Literal["north", "south"]) -> str:
        return name

    async def test() -> None:
        config = ServerConfig(name="a", target=server, hide=("*closed*", "file://*closed*"))
        async with open_upstreams(config) as upstreams:
            client = upstreams["a"].client
            entries = await client.read_directory("file:///docs")
            assert [entry.uri for entry in entries] == ["file:///docs/open.txt"]
            contents = (await client.read_resource("file:///docs")).contents
            assert [content.uri for content in contents] == ["file:///docs", "file:///docs/open.txt"]
            window = await client.read_resource("file:///docs/open.txt?bytes=0-1")
            assert window.text == "op"
            with pytest.raises(ResourceNotFound):
                await client.read_directory("file:///docs/closed.txt")
            with pytest.raises(WharfingerError, match="offers no prompt 'closed'"):
                await client.complete(t.PromptReference(name="closed"), "name", "")

    run(test())


def test_reads_of_a_list_fail_when_the_server_is_stopped() -> None:
    """A bug: they ended as if they had been cancelled."""
    config = in_process_config("a", "first")
    server = config.target
    assert isinstance(server, Server)

    async def test() -> None:
        requested = asyncio.Event()

        @server.middleware("tools/list")
        async def never_answer(call: Any, following: Any) -> Any:
            requested.set()
            await asyncio.Event().wait()

        async with open_upstreams(config) as upstreams:
            tools = asyncio.ensure_future(upstreams["a"].tools())
            await requested.wait()
        with pytest.raises(UpstreamUnreachable, match="stopped"):
            await tools

    run(test())


def test_all_servers_of_a_uri_are_found() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("a"), process_config("b")) as upstreams:
            assert [found.name for found in await upstreams.servers_of("shared://notes")] == ["a", "b"]
            assert [found.name for found in await upstreams.servers_of("b://log")] == ["b"]
            assert await upstreams.servers_of("nobody://x/y") == []

    run(test())


def test_uris_of_a_starting_server_and_new_uris_are_found() -> None:
    async def test() -> None:
        config = in_process_config("a", "x")
        server = config.target
        assert isinstance(server, Server)
        server.resources.add("old://uri", lambda: "old")
        async with Upstreams([config, process_config("late", "1")]) as upstreams:
            assert [found.name for found in await upstreams.servers_of("late://log")] == ["late"]
            assert await upstreams.servers_of("new://uri") == []
            changes: list[UpstreamChange] = []
            upstreams.on_change(changes.append)
            server.resources.add("new://uri", lambda: "new")
            await wait_until(lambda: UpstreamChange("a", "resources") in changes, upstreams)
            assert [found.name for found in await upstreams.servers_of("new://uri")] == ["a"]

    run(test())


def test_an_unknown_uri_is_looked_up_once_if_a_server_keeps_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the look-up was repeated until the server had started."""
    monkeypatch.setattr(upstreams_module, "START_SECONDS", 0.05)

    class StartingServer:
        async def open_link(self, limits: Any, events: Any) -> Any:
            await asyncio.Event().wait()

    async def test() -> None:
        starting = ServerConfig(name="starting", target=StartingServer())
        async with Upstreams([in_process_config("a", "x"), starting]) as upstreams:
            assert await upstreams.servers_of("nobody://x/y") == []

    run(test(), 10)


@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_command_gets_its_environment_and_folder(sequence: Any, tmp_path: Path) -> None:
    """A bug: a command that is a tuple got neither."""
    code = "import os, sys; sys.exit(f'{os.environ.get(\"QUAY\")} in {os.getcwd()}')"
    target = sequence((sys.executable, "-c", code))

    async def test() -> None:
        config = ServerConfig(name="a", target=target, env={"QUAY": "north"}, cwd=str(tmp_path))
        async with open_upstreams(config) as upstreams:
            assert f"north in {tmp_path.resolve()}" in upstreams["a"].error

    run(test())


def test_tools_of_an_idle_server_are_listed() -> None:
    async def test() -> None:
        async with open_upstreams(process_config("it", idle_seconds=0.05), in_process_config("b")) as upstreams:
            await wait_until(lambda: upstreams["it"].status == "idle", upstreams)
            assert "it_pid" in [tool.name for tool in await upstreams.tools()]

    run(test())


def test_a_read_does_not_start_an_idle_server_without_resources() -> None:
    """A bug: the server was started for each read of a URI that another server publishes."""

    async def test() -> None:
        tools = in_process_config("tools", "pid", idle_seconds=0.05)
        async with open_upstreams(tools, process_config("it")) as upstreams:
            await upstreams.servers_of("it://log")
            await wait_until(lambda: upstreams["tools"].status == "idle", upstreams)
            assert [upstream.name for upstream in await upstreams.servers_of("it://log")] == ["it"]
            assert upstreams["tools"].status == "idle"

    run(test())


def test_changes_of_lists_and_statuses_are_reported() -> None:
    async def test() -> None:
        config = in_process_config("a", "first")
        server = config.target
        assert isinstance(server, Server)
        async with open_upstreams(config, process_config("b")) as upstreams:
            assert len(await upstreams.tools()) > 1
            changes: list[UpstreamChange] = []
            upstreams.on_change(changes.append)
            upstreams.on_change(lambda change: 1 / 0)
            server.tools.add(lambda: "", name="second")
            await wait_until(lambda: UpstreamChange("a", "tools") in changes, upstreams)
            assert "a_second" in [tool.name for tool in await upstreams.tools()]
            os.kill(await pid_of(upstreams["b"]), signal.SIGKILL)
            await wait_until(lambda: upstreams["b"].restarts == 1 and upstreams["b"].status == "ready", upstreams)
            assert changes.count(UpstreamChange("b", "status")) == 2

    run(test())


@pytest.mark.parametrize("last", [0, 1])
def test_a_list_requested_before_a_change_does_not_replace_the_list_requested_after_it(last: int) -> None:
    """A bug: until the next change, the old list was used, also to ask for approval."""

    async def test() -> None:
        config = in_process_config("q", "first")
        server = config.target
        assert isinstance(server, Server)
        requests: asyncio.Queue[asyncio.Event] = asyncio.Queue()

        @server.middleware("tools/list")
        async def wait(call: Any, following: Any) -> Any:
            result = await following(call)
            release = asyncio.Event()
            await requests.put(release)
            await release.wait()
            return result

        async with open_upstreams(config) as upstreams:
            upstream = upstreams["q"]
            reports: asyncio.Queue[UpstreamChange] = asyncio.Queue()
            upstreams.on_change(reports.put_nowait)
            await wait_until_async(lambda: upstream._reports_lists, "changes are reported")
            reads = [asyncio.ensure_future(upstream.tools())]
            releases = [await requests.get()]
            server.tools.add(lambda: "b", name="second")
            await reports.get()
            reads.append(asyncio.ensure_future(upstream.tools()))
            releases.append(await requests.get())
            releases[1 - last].set()
            await reads[1 - last]
            third = asyncio.ensure_future(upstream.tools())
            await asyncio.sleep(0)
            releases[last].set()
            await reads[last]
            for tools in (await third, await upstream.tools()):
                assert [tool.name for tool in tools] == ["first", "second"]

    run(test())


def test_a_changed_list_that_could_not_be_read_is_read_again() -> None:
    """A bug: the list before the change was returned, for ten minutes."""

    async def test() -> None:
        config = in_process_config("a", "first")
        server = config.target
        assert isinstance(server, Server)
        fails = False

        @server.middleware
        async def fail(request: Any, next: Any) -> Any:
            if fails and request.method in ("tools/list", "resources/list"):
                raise ValueError("not now")
            return await next(request)

        server.resource("log://one")(lambda: "calm")
        async with open_upstreams(config) as upstreams:
            upstream = upstreams["a"]
            assert len(await upstream.tools()) == 1
            await upstream.index_uris()
            changes: list[UpstreamChange] = []
            upstreams.on_change(changes.append)
            server.tools.add(lambda: "", name="second")
            server.resource("log://two")(lambda: "calm")
            expected = {UpstreamChange("a", "tools"), UpstreamChange("a", "resources")}
            await wait_until(lambda: expected <= set(changes), upstreams)
            fails = True
            for failing in (upstream.tools, upstream.index_uris):
                with pytest.raises(WharfingerError):
                    await failing()
            fails = False
            assert len(await upstream.tools()) == 2
            await upstream.index_uris()
            assert upstream.uris.has("log://two")

    run(test())


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([in_process_config("a"), in_process_config("a")], "Two servers are named 'a'"),
        (
            [in_process_config("a", prefix="x"), in_process_config("b", prefix="x")],
            "'a' and 'b' have the same prefix 'x'",
        ),
        ([ServerConfig(name="a", target="nothing")], "'a': 'nothing' is not a target"),
    ],
)
def test_invalid_configurations_are_refused_before_any_server_starts(configs: list[ServerConfig], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        Upstreams(configs)
