"""Many servers as one, with real processes: side by side, restarted when they end, and each costing only itself."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from wharfinger import Server
from wharfinger.errors import ConnectionLost, InvalidArgument, RequestTimeout, ResourceNotFound, WharfingerError
from wharfinger.upstreams import (
    InvalidConfiguration,
    ServerConfig,
    Upstream,
    UpstreamChange,
    Upstreams,
    UpstreamUnreachable,
)

PROGRAM = Path(__file__).with_name("harbour_server.py")


def run(test: Coroutine[Any, Any, None], seconds: float = 50) -> None:
    asyncio.run(asyncio.wait_for(test, seconds))


def config(name: str, *args: str, **options: Any) -> ServerConfig:
    return ServerConfig(name=name, target=[sys.executable, str(PROGRAM), name, *(args or ("0",))], **options)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def until(condition: Callable[[], bool], upstreams: Upstreams) -> None:
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
async def opened(*configs: ServerConfig) -> AsyncGenerator[Upstreams]:
    async with Upstreams(configs) as upstreams:
        await upstreams.ready(30)
        yield upstreams


def here(name: str, *tools: str, **options: Any) -> ServerConfig:
    """Return a server of this process."""
    server = Server(name)
    for tool in tools:
        server.tools.add(lambda: name, name=tool)
    return ServerConfig(name=name, target=server, **options)


def test_twenty_servers_are_ready_when_the_slowest_is_and_each_comes_back_when_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    async def test() -> None:
        configs = [config(f"s{number}", "10" if number == 7 else "0", str(pids)) for number in range(20)]
        began = time.monotonic()
        async with Upstreams(configs) as upstreams:
            quick = [upstream for upstream in upstreams.values() if upstream.name != "s7"]
            await asyncio.gather(*(upstream.settled() for upstream in quick))
            assert upstreams["s7"].status == "starting"
            assert len([tool for tool in await upstreams.tools() if tool.tool.name == "pid"]) == 19
            await upstreams.ready()
            took = time.monotonic() - began
            assert {upstream.status for upstream in upstreams.values()} == {"ready"}
            assert took < 11.0
            slow = await pid_of(upstreams["s7"])
            os.kill(slow, signal.SIGKILL)  # it takes 10 s to come back, while the others are killed in turn
            for upstream in quick:
                before = await pid_of(upstream)
                os.kill(before, signal.SIGKILL)
                await until(lambda upstream=upstream: upstream.restarts == 1 and upstream.status == "ready", upstreams)
                assert await pid_of(upstream) != before
            await until(lambda: upstreams["s7"].status == "ready", upstreams)
            assert await pid_of(upstreams["s7"]) != slow
            assert all(upstream.restarts == 1 for upstream in upstreams.values())
            started = [int(line) for line in pids.read_text().split()]
            assert len(started) == 40
        assert not any(alive(pid) for pid in started)

    run(test(), 58)


def test_a_dead_and_a_slow_server_do_not_affect_the_others() -> None:
    async def test() -> None:
        dead = ServerConfig(name="dead", target=[sys.executable, "-c", "raise SystemExit('no disk')"])
        async with Upstreams([config("good"), dead, config("slow", "30")]) as upstreams:
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


def test_a_call_of_a_starting_server_waits_for_it() -> None:
    async def test() -> None:
        async with Upstreams([config("late", "1")]) as upstreams:
            assert upstreams["late"].status == "starting"
            assert (await upstreams["late"].client.call_tool("pid")).data

    run(test())


def test_a_call_in_flight_fails_and_the_next_one_waits_for_the_restart() -> None:
    async def test() -> None:
        async with opened(config("it")) as upstreams:
            upstream = upstreams["it"]
            os.kill(before := await pid_of(upstream), signal.SIGSTOP)
            call = asyncio.ensure_future(pid_of(upstream))
            await asyncio.sleep(0)
            os.kill(before, signal.SIGKILL)
            with pytest.raises(ConnectionLost):
                await call
            assert upstream.status == "starting"
            assert await pid_of(upstream) != before

    run(test())


def test_a_server_that_keeps_ending_is_refused_until_it_runs_again(tmp_path: Path) -> None:
    """The server ends with its third request, until a file exists."""
    program = tmp_path / "flapping.py"
    program.write_text(
        "import os, sys\nfrom pathlib import Path\nfrom wharfinger import Server\nserver = Server('flapping')\n"
        f"fixed = Path({str(tmp_path / 'fixed')!r})\n"
        "@server.tool\ndef end() -> str:\n    if fixed.exists():\n        return 'well'\n    os._exit(3)\n"
        "server.run()\n"
    )

    async def test() -> None:
        async with opened(ServerConfig(name="it", target=[sys.executable, str(program)])) as upstreams:
            upstream, ends = upstreams["it"], 0
            with pytest.raises(UpstreamUnreachable, match="exit code 3"):
                while True:
                    try:
                        await upstream.client.call_tool("end")
                    except ConnectionLost:
                        ends += 1
            assert ends == 3
            (tmp_path / "fixed").touch()
            await until(lambda: upstream.status == "ready", upstreams)
            assert (await upstream.client.call_tool("end")).data == "well"
            assert upstream.restarts == 3

    run(test())


def test_a_client_that_the_application_closed_is_opened_again() -> None:
    async def test() -> None:
        async with opened(config("it")) as upstreams:
            upstream = upstreams["it"]
            before = await pid_of(upstream)
            await upstream.client.close()
            with suppress(WharfingerError):  # the call that finds out
                await pid_of(upstream)
            await until(lambda: upstream.restarts == 1 and upstream.status == "ready", upstreams)
            assert await pid_of(upstream) != before

    run(test())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_server_at_a_url_that_goes_away_is_down_and_comes_back(revision: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    serve = [sys.executable, str(PROGRAM), "far", "0", os.devnull, address]

    async def test() -> None:
        far = ServerConfig(name="far", target=f"http://{address}/mcp")
        async with Upstreams([far], options=lambda config: {"revision": revision}) as upstreams:
            upstream = upstreams["far"]
            await upstreams.ready(30)
            assert upstream.status == "down"  # no server listens there yet
            for _ in range(2):
                process = await asyncio.create_subprocess_exec(*serve, stderr=asyncio.subprocess.DEVNULL)
                await until(lambda: upstream.status == "ready", upstreams)
                assert await pid_of(upstream) == process.pid
                process.kill()
                await process.wait()
                with pytest.raises(WharfingerError):
                    await pid_of(upstream)
                await until(lambda: upstream.status == "down", upstreams)
                with pytest.raises(UpstreamUnreachable, match="far cannot be reached"):
                    await pid_of(upstream)
                assert await upstreams.tools() == []

    run(test())


def test_a_watch_continues_after_a_restart() -> None:
    async def test() -> None:
        async with opened(config("it")) as upstreams, upstreams["it"].client.watch("it://log") as changes:
            os.kill(await pid_of(upstreams["it"]), signal.SIGKILL)
            change = await anext(aiter(changes))
            assert (change.uri, change.missed) == ("it://log", True)

    run(test())


def test_an_idle_server_is_stopped_and_started_by_the_next_call() -> None:
    async def test() -> None:
        async with opened(config("it", idle_seconds=0.2)) as upstreams:
            upstream = upstreams["it"]
            before = await pid_of(upstream)
            names = [tool.name for tool in await upstreams.tools()]
            await until(lambda: upstream.status == "idle", upstreams)
            assert not alive(before)
            assert [tool.name for tool in await upstreams.tools()] == names  # without a start
            assert upstream.status == "idle"
            assert await pid_of(upstream) != before
            assert upstream.restarts == 0

    run(test())


def test_a_watched_server_is_not_idle() -> None:
    async def test() -> None:
        async with opened(config("it", idle_seconds=0.2)) as upstreams:
            before = await pid_of(upstreams["it"])
            async with upstreams["it"].client.watch("it://log"):
                statuses: list[str] = []
                upstreams.on_change(lambda change: statuses.append(upstreams["it"].status))
                await asyncio.sleep(0.6)
                assert await pid_of(upstreams["it"]) == before
                assert statuses == []
            await until(lambda: upstreams["it"].status == "idle", upstreams)

    run(test())


def test_timeout_seconds_bound_a_call() -> None:
    async def test() -> None:
        server = Server("it")

        @server.tool
        async def forever() -> None:
            await asyncio.Event().wait()

        async with opened(ServerConfig(name="it", target=server, timeout_seconds=0.05)) as upstreams:
            with pytest.raises(RequestTimeout):
                await upstreams["it"].client.call_tool("forever")

    run(test())


def test_a_disabled_server_is_never_started(tmp_path: Path) -> None:
    async def test() -> None:
        off = ServerConfig(name="off", target=["touch", str(tmp_path / "touched")], disabled=True)
        async with opened(off, here("on", "a")) as upstreams:
            assert upstreams["off"].status == "disabled"
            assert [tool.name for tool in await upstreams.tools()] == ["on_a"]
            with pytest.raises(UpstreamUnreachable, match="off is disabled"):
                _ = upstreams["off"].client
        assert not (tmp_path / "touched").exists()

    run(test())


def test_tools_and_prompts_have_the_names_of_their_servers_if_there_are_several() -> None:
    async def test() -> None:
        async with opened(here("a", "read"), here("b", "read")) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["a_read", "b_read"]
            upstream, own = upstreams.find_tool("b_read")
            assert (upstream.name, own) == ("b", "read")
            with pytest.raises(InvalidArgument, match=r"no tool 'b_raed'\. Did you mean 'b_read'"):
                upstreams.find_tool("b_raed")
        async with opened(here("a", "read")) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["read"]

    run(test())


def test_the_configuration_chooses_and_renames() -> None:
    async def test() -> None:
        chosen = here("a", "get", "put", "drop", "list", include_tools=("get", "put", "drop"), exclude_tools=("drop",),
                      rename={"get": "fetch"}, prefix="x")  # fmt: skip
        patterns = here("b", "get_a", "get_b", "put", expose=("get_*", "docs://**"), hide=("*_b", "docs://secret/*"))
        server = patterns.target
        assert isinstance(server, Server)
        server.resources.add("docs://open", lambda: "open")
        server.resources.add("docs://secret/a", lambda: "secret")
        server.resources.add("other://a", lambda: "other")
        async with opened(chosen, patterns) as upstreams:
            assert [tool.name for tool in await upstreams.tools()] == ["x_fetch", "x_put", "b_get_a"]
            assert upstreams.find_tool("x_fetch")[1] == "get"
            assert [one.resource.uri for one in await upstreams.resources()] == ["docs://open"]
            client = upstreams["b"].client
            with pytest.raises(ResourceNotFound):
                await client.read_resource("docs://secret/a")
            with pytest.raises(WharfingerError, match="b offers no tool 'get_b'"):
                await client.call_tool("get_b")
            assert (await client.read_resource("docs://open")).text == "open"

    run(test())


def test_a_uri_of_two_servers_is_reported() -> None:
    async def test() -> None:
        async with opened(config("a"), config("b")) as upstreams:
            assert [one.name for one in await upstreams.servers_of("shared://notes")] == ["a", "b"]
            assert [one.name for one in await upstreams.servers_of("b://log")] == ["b"]
            assert await upstreams.servers_of("nobody://x/y") == []

    run(test())


def test_a_uri_of_a_server_that_is_starting_or_new_is_found() -> None:
    async def test() -> None:
        one = here("a", "x")
        server = one.target
        assert isinstance(server, Server)
        server.resources.add("old://uri", lambda: "old")
        async with Upstreams([one, config("late", "1")]) as upstreams:
            assert [found.name for found in await upstreams.servers_of("late://log")] == ["late"]
            assert await upstreams.servers_of("new://uri") == []
            changes: list[UpstreamChange] = []
            upstreams.on_change(changes.append)
            server.resources.add("new://uri", lambda: "new")
            await until(lambda: UpstreamChange("a", "resources") in changes, upstreams)
            assert [found.name for found in await upstreams.servers_of("new://uri")] == ["a"]

    run(test())


def test_the_tools_of_a_server_that_was_idle_before_they_were_listed_are_listed() -> None:
    async def test() -> None:
        async with opened(config("it", idle_seconds=0.05), here("b")) as upstreams:
            await until(lambda: upstreams["it"].status == "idle", upstreams)
            assert "it_pid" in [tool.name for tool in await upstreams.tools()]

    run(test())


def test_changes_of_lists_and_states_are_reported() -> None:
    async def test() -> None:
        one = here("a", "first")
        server = one.target
        assert isinstance(server, Server)
        async with opened(one, config("b")) as upstreams:
            assert len(await upstreams.tools()) > 1
            changes: list[UpstreamChange] = []
            upstreams.on_change(changes.append)
            upstreams.on_change(lambda change: 1 / 0)
            server.tools.add(lambda: "", name="second")
            await until(lambda: UpstreamChange("a", "tools") in changes, upstreams)
            assert "a_second" in [tool.name for tool in await upstreams.tools()]
            os.kill(await pid_of(upstreams["b"]), signal.SIGKILL)
            await until(lambda: upstreams["b"].restarts == 1 and upstreams["b"].status == "ready", upstreams)
            assert changes.count(UpstreamChange("b", "status")) == 2

    run(test())


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ([here("a"), here("a")], "Two servers are named 'a'"),
        ([here("a", prefix="x"), here("b", prefix="x")], "'a' and 'b' have the same prefix 'x'"),
        ([ServerConfig(name="a", target="nothing")], "'a': 'nothing' is not a target"),
    ],
)
def test_invalid_configurations_are_refused_before_any_server_starts(configs: list[ServerConfig], says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        Upstreams(configs)
