"""Unix sockets between a server and a client, in one process and between two."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from wharfinger import Client, Context, Server
from wharfinger.errors import ConnectionFailed, ConnectionLost, NotMCP
from wharfinger.protocol.limits import Limits
from wharfinger.transports.accepting import AddressInUse, CannotListen
from wharfinger.transports.unix_client import UnixLink
from wharfinger.transports.unix_server import UnixServer, serve_unix

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no Unix sockets for asyncio")

LIMITS = Limits()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def make_server() -> Server:
    server = Server("harbour", limits=Limits(drain=0.5))

    @server.tool
    def tide(port: str) -> str:
        return f"high at {port}"

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.report_progress(1)
        await asyncio.sleep(0.2)
        return "came in"

    @server.resource("test://log")
    def log() -> str:
        return "x" * 3_000_000

    return server


@asynccontextmanager
async def run_server(path: Path, **options: Any) -> AsyncIterator[UnixServer]:
    server = UnixServer(make_server(), path, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.mark.parametrize("revision", [None, "2026-07-28", "2025-11-25", "2024-11-05"])
def test_a_client_connects_to_the_server(path: Path, revision: str | None) -> None:
    async def test() -> None:
        async with run_server(path), Client(f"unix:{path}", revision=revision) as client, Client(path) as other:
            assert (await client.call_tool("tide", {"port": "Bay"})).text == "high at Bay"
            assert len((await other.read_resource("test://log")).text) == 3_000_000

    run(test())


def test_only_the_owner_may_connect_unless_a_mode_is_given(path: Path) -> None:
    async def test() -> None:
        before = os.umask(0)
        try:
            async with run_server(path):
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                assert os.umask(0) == 0
            async with run_server(path, mode=0o660):
                assert stat.S_IMODE(path.stat().st_mode) == 0o660
        finally:
            os.umask(before)

    run(test())


def test_the_socket_is_removed_when_the_server_stops(path: Path) -> None:
    async def test() -> None:
        async with run_server(path):
            assert path.is_socket()
        assert not path.exists()

    run(test())


def test_a_file_that_replaced_the_socket_is_not_removed(path: Path) -> None:
    async def test() -> None:
        async with run_server(path):
            path.unlink()
            path.write_text("mine")
        assert path.read_text() == "mine"

    run(test())


def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    async def test() -> None:
        async with run_server(path), Client(f"unix:{path}") as client:
            await client.ping()

    run(test())


def test_a_path_in_use_or_without_a_folder_is_reported(path: Path) -> None:
    async def test() -> None:
        async with run_server(path):
            with pytest.raises(AddressInUse, match=r"listens on .* already"):
                await UnixServer(make_server(), path).start()
            async with Client(f"unix:{path}") as client:  # the first server continues
                await client.ping()
        path.write_text("precious")
        with pytest.raises(AddressInUse, match="is not a socket"):
            await UnixServer(make_server(), path).start()
        assert path.read_text() == "precious"
        with pytest.raises(OSError, match=r"Cannot listen on .*no/such"):
            await UnixServer(make_server(), path.parent / "no/such/s").start()

    run(test())


@pytest.mark.parametrize("name", ["file/s", "x" * 300])
def test_a_path_at_which_no_file_can_be_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()

    async def test() -> None:
        with pytest.raises(CannotListen, match="Cannot listen on"):
            await UnixServer(make_server(), tmp_path / name).start()

    run(test())


def test_a_stale_socket_that_cannot_be_removed_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of another user in a folder such as /tmp, whose files only their owners may remove."""

    def refuse(path: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    async def test() -> None:
        monkeypatch.setattr(os, "unlink", refuse)
        with pytest.raises(CannotListen, match=r"Cannot remove the socket .*: Operation not permitted"):
            await UnixServer(make_server(), path).start()

    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    run(test())


def test_a_server_that_is_starting_keeps_its_path_and_accepts_early_clients(path: Path) -> None:
    """Regression: a second server took the socket for abandoned, and removed it."""

    async def test() -> None:
        starting, may_start = asyncio.Event(), asyncio.Event()

        @asynccontextmanager
        async def lifespan(_: Server) -> AsyncIterator[None]:
            starting.set()
            await may_start.wait()
            yield

        first = UnixServer(Server("first", lifespan=lifespan), path)
        start = asyncio.create_task(first.start())
        await starting.wait()
        with pytest.raises(AddressInUse, match=r"listens on .* already"):
            await UnixServer(make_server(), path).start()
        early = UnixLink(path, LIMITS)
        await early.open()
        may_start.set()
        await start
        await early.close()
        async with Client(f"unix:{path}") as client:
            assert client.server_info.name == "first"
        await first.close()

    run(test())


def test_a_socket_without_a_server_is_reported(path: Path) -> None:
    async def expect_failure(message: str) -> None:
        with pytest.raises(ConnectionFailed, match=message):
            async with Client(f"unix:{path}"):
                pass

    async def test() -> None:
        await expect_failure("there is no such socket")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        await expect_failure("no server listens there")

    run(test())


def test_a_server_that_is_not_mcp_is_reported(path: Path) -> None:
    async def serve_mail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test ESMTP\r\n")
        await reader.readline()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_unix_server(serve_mail, path)
        with pytest.raises(NotMCP, match="first bytes were b'220 mail"):
            async with Client(f"unix:{path}"):
                pass
        server.close()

    run(test())


def test_concurrent_clients_are_bounded(path: Path) -> None:
    async def test() -> None:
        async with run_server(path, connections=2):
            links = [UnixLink(path, LIMITS) for _ in range(3)]
            for link in links:
                await link.open()
            lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            links[2].events.on_lost = lambda _, error: lost.set_result(error)
            if links[2].is_lost:
                lost.set_result(None)
            await lost
            assert not links[0].is_lost
            for link in links:
                await link.close()
            async with Client(f"unix:{path}") as client:
                await client.ping()

    run(test())


def test_pending_calls_are_answered_when_the_server_stops(path: Path) -> None:
    async def test() -> None:
        server = UnixServer(make_server(), path)
        await server.start()
        async with Client(f"unix:{path}", revision="2025-11-25") as client:
            started = asyncio.Event()
            call = asyncio.ensure_future(client.call_tool("wait", progress=lambda *_: started.set()))
            await started.wait()
            await server.close()
            assert (await call).text == "came in"

    run(test())


def test_a_connection_that_the_server_ends_is_reported(path: Path) -> None:
    async def test() -> None:
        async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.transport.abort()

        server = await asyncio.start_unix_server(abort, path)
        link = UnixLink(path, LIMITS)
        await link.open()
        with pytest.raises(ConnectionLost, match=f"unix:{path} ended the connection"):
            await link.request("tools/list", {}, timeout=40)
        await link.close()
        server.close()

    run(test())


SERVER_PROGRAM = """
import sys
from wharfinger import Server
server = Server("harbour")
@server.tool
def tide(port: str) -> str:
    return f"high at {port}"
server.run(unix=sys.argv[1], on_ready=lambda: print("ready", flush=True))
"""


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_serves_until_a_signal(path: Path, signal_number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER_PROGRAM, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        async def test() -> None:
            async with Client(f"unix:{path}") as client:
                assert (await client.call_tool("tide", {"port": "Bay"})).text == "high at Bay"
                process.send_signal(signal_number)
                await asyncio.to_thread(process.wait, 10)

        run(test())
        assert process.returncode == 0
        assert not path.exists()


def test_http_and_unix_exclude_each_other() -> None:
    with pytest.raises(TypeError, match="exclude each other"):
        make_server().run(http="127.0.0.1:0", unix="/nowhere")


def test_an_invalid_path_is_reported_before_the_server_starts(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Cannot listen on"):
        serve_unix(make_server(), tmp_path / ("x" * 200))
