"""The lines that a server at a terminal prints for each request, without control characters."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable

import pytest

from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.cli.serving.access_log import MAX_KNOWN_CLIENTS, PART_CHARACTERS, AccessLog
from wharfinger.errors import WharfingerError
from wharfinger.protocol.principal import ANONYMOUS

ClientAction = Callable[[Client], Awaitable[object]]


def logged_lines(action: ClientAction, *, name: str = "tester", revision: str | None = None) -> list[str]:
    """Use a small server and return the logged lines without their times."""
    server = Server("harbour")
    lines: list[str] = []

    @server.resource("tide://now")
    async def now() -> str:
        return "é" * 600

    @server.resource("tide://broken")
    async def broken() -> str:
        raise RuntimeError("secret")

    @server.resource("tide://elsewhere")
    async def elsewhere() -> str:
        async with Client(server) as client:
            return str(await client.read_resource("tide://no"))

    @server.tool
    async def rise(by: int) -> str:
        server.resource_updated("tide://now")
        return "risen"

    @server.tool
    async def sink() -> str:
        raise ToolError("never")

    AccessLog(lines.append).follow(server)

    async def session() -> None:
        async with Client(server, info=t.Implementation(name=name, version="1.0"), revision=revision) as client:
            with contextlib.suppress(WharfingerError):
                await action(client)

    asyncio.run(session())
    assert all(re.match(r"\d\d:\d\d:\d\d \w", line) for line in lines)
    return [re.sub(r"  [\d.]+ m?s  ", "  TIME  ", line[9:]) for line in lines]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_is_logged_once_and_each_read_with_its_size(revision: str) -> None:
    async def action(client: Client) -> None:
        await client.read_resource("tide://now")
        await client.read_resource("tide://now")

    read = "read    tide://now  1.2 KiB  TIME  tester 1.0"
    assert logged_lines(action, revision=revision) == [f"client  tester 1.0  {revision}", read, read]


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (lambda client: client.read_resource("tide://no"), "read    tide://no  not found  TIME  tester 1.0"),
        (
            lambda client: client.read_resource("tide://broken"),
            "read    tide://broken  failed: RuntimeError  TIME  tester 1.0",
        ),
        (
            lambda client: client.read_resource("tide://elsewhere"),
            "read    tide://elsewhere  failed: RemoteResourceNotFound  TIME  tester 1.0",
        ),
        (lambda client: client.call_tool("rise", {"by": 1}), 'call    rise {"by":1}  TIME  tester 1.0'),
        (lambda client: client.call_tool("sink"), "call    sink  tool error  TIME  tester 1.0"),
    ],
)
def test_the_outcome_is_logged(action: ClientAction, line: str) -> None:
    assert logged_lines(action)[-1] == line


def test_a_change_is_logged_with_the_number_of_watchers() -> None:
    async def action(client: Client) -> None:
        async with client.watch("tide://now") as changes:
            await client.call_tool("rise", {"by": 1})
            await anext(changes)

    assert "changed tide://now  notified 1 watcher" in logged_lines(action)


def test_client_names_and_uris_are_escaped_and_cut() -> None:
    async def action(client: Client) -> None:
        await client.read_resource("tide://" + "x" * 1000)

    lines = logged_lines(action, name="\x1b[2J\nevil")
    assert lines[0].startswith("client  \\x1b[2J\\x0aevil 1.0")
    assert max(len(line) for line in lines) < 500


def test_a_call_with_megabytes_of_arguments_is_logged_in_no_time() -> None:
    """A bug: the whole text was escaped, which held the server up for a second or two."""
    lines: list[str] = []
    started = time.thread_time()
    AccessLog(lines.append)._write_line("call", "é" * 4_000_000)
    assert time.thread_time() - started < 0.2
    assert lines[0].endswith("é…")


def test_passwords_in_arguments_and_uris_are_not_logged() -> None:
    async def call(client: Client) -> None:
        await client.call_tool("rise", {"by": 1, "password": "hunter2"})

    async def read(client: Client) -> None:
        await client.read_resource("tide://ann:hunter2@now")

    assert 'rise {"by":1,"password":***' in logged_lines(call)[-1]
    assert "read    tide://ann@now" in logged_lines(read)[-1]


def test_the_memory_of_known_clients_is_bounded() -> None:
    """A bug: a client could fill the memory with 256 names of megabytes."""
    log = AccessLog(lambda line: None)

    class FakeRequest:
        """A request with the fields that the log reads."""

        def __init__(self, number: int) -> None:
            self.caller = self
            self.info = t.Implementation(name=f"{number} {'x' * 1000}", version="")
            self.rules = self
            self.name = "2026-07-28"
            self.principal = ANONYMOUS

    for number in range(MAX_KNOWN_CLIENTS * 2):
        log._log_client(FakeRequest(number), again=False)  # type: ignore[arg-type]
    assert len(log.known) == MAX_KNOWN_CLIENTS
    assert sum(len(name) for name, _, _ in log.known) <= MAX_KNOWN_CLIENTS * PART_CHARACTERS
