"""Upstream servers started by a command: real child processes that crash and are restarted."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sources.upstream_support import connect, listed_uris, run
from tests.waiting import wait_until_async
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.source import UnusableSource
from wharfinger.sources import files
from wharfinger.sources.registry import make_sources
from wharfinger.sources.upstream_server import UpstreamSource, upstream

CHILD = """
import os, sys
from wharfinger import Server

server = Server("child")
folder = sys.argv[1]
with open(os.path.join(folder, "pids"), "a") as file:
    print(os.getpid(), file=file)


@server.resource("boat://name")
async def name():
    "What the boat is called."
    return open(os.path.join(folder, "name")).read() + os.environ.get("SUFFIX", "")


@server.resource("boat://{number}/log")
async def log(number: int):
    return f"log of {number}"


@server.tool
async def rename(to: str) -> str:
    "For tests alone."
    return to


server.run()
"""


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    """The command of a server that appends its process ID to a file."""
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "name").write_text("Anna")
    return [sys.executable, str(tmp_path / "child.py"), str(tmp_path)]


def started_pids(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()] if (folder / "pids").exists() else []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_upstream_command_is_listed_read_searched_and_ended_with_the_server(argv: list[str], tmp_path: Path) -> None:
    async def test() -> None:
        async with connect(argv, env={"SUFFIX": " of Bergen"}) as (client, source):
            assert source.name == "child"
            assert await listed_uris(client) == ["boat://name"]
            assert (await client.read_resource("boat://name")).text == "Anna of Bergen"
            assert [template.uri_template for template in await client.list_resource_templates()] == [
                "boat://{number}/log"
            ]
            assert (await client.read_resource("boat://7/log")).text == "log of 7"
            reader = SourceReader(asyncio.get_running_loop())
            hits = await asyncio.to_thread(search_documents, source, "name", 5, reader)
            assert [hit.uri for hit in hits] == ["boat://name"]
        (pid,) = started_pids(tmp_path)
        assert not is_running(pid)

    run(test())


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGKILL")
def test_a_killed_command_is_restarted_and_watches_continue(argv: list[str], tmp_path: Path) -> None:
    async def test() -> None:
        async with connect(argv) as (client, source), client.watch("boat://name") as changes:
            assert (await client.read_resource("boat://name")).text == "Anna"

            await wait_until_async(lambda: source.describe().endswith("subscribed"), "the upstream is subscribed to")
            for number, name in enumerate(("Mary", "Hull"), 1):
                (tmp_path / "name").write_text(name)
                os.kill(started_pids(tmp_path)[-1], signal.SIGKILL)
                assert (await anext(changes)).uri == "boat://name"

                async def reads_name(name: str = name) -> bool:
                    try:
                        return (await client.read_resource("boat://name")).text == name
                    except Exception as error:
                        assert "cannot be reached" in str(error)
                        return False

                await wait_until_async(reads_name, "the new name is read")
                assert len(started_pids(tmp_path)) > number
            assert await listed_uris(client) == ["boat://name"]
        assert not any(map(is_running, started_pids(tmp_path)))

    run(test())


def test_a_command_that_exits_at_once_is_reported_without_its_password_beside_other_sources(charts: Path) -> None:
    async def test() -> None:
        argv = [sys.executable, "-c", "raise SystemExit('password=hunter2 is wrong')", "--token", "hunter2"]
        async with connect(argv, files(charts, label="charts")) as (client, source):
            listed = await client.list_resources()
            assert "file:///charts/README.md" in [resource.uri for resource in listed]
            status = (await client.read_resource(source.status_uri)).text
            assert "cannot be reached" in status
            assert "hunter2" not in f"{status}{listed}{source!r}{source.describe()}"

    run(test())


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ([sys.executable, "-m", "this"], "this"),
        (["sh", "x"], "sh"),
        (["env", "FOO=1", "sh"], "env"),
    ],
)
def test_a_command_is_named_after_its_program(argv: list[str], name: str) -> None:
    assert upstream(argv).name == name
    assert upstream(argv, label="boat").name == "boat"


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (["no-such-program"], {}, "There is no program 'no-such-program'"),
        ([], {}, "Give a program and its arguments"),
        (["sh"], {"cwd": "/none"}, "There is no folder /none"),
        (["sh"], {"headers": {"A": "b"}}, "a command takes env= and cwd="),
        (["sh"], {"allow_private_networks": True}, "a command takes env= and cwd="),
        ("https://host.test/mcp", {"env": {}}, "a URL takes headers="),
        ("sh", {}, "or its command as a list"),
    ],
)
def test_a_target_that_cannot_be_started_is_refused(target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        upstream(target, **options)


def test_a_word_with_the_scheme_mcp_makes_an_upstream_command(argv: list[str]) -> None:
    ((_, source),) = make_sources([f"boat=mcp:{shlex.join(argv)}"], {"allow_command": True})
    assert isinstance(source, UpstreamSource)
    assert source.name == "boat"
    assert source.location == shlex.join(argv)
