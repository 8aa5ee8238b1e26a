"""`wharfinger run` as a process: a user's server over stdio and HTTP, restarted when its code changes."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal
from wharfinger import Client, Server, types
from wharfinger.cli.commands.run import feature_counts

SERVER = """
import sys
from wharfinger import Server

print("printed while importing")
server = Server("harbour")

@server.resource("harbour://berths")
def berths() -> str:
    print("printed while reading")
    return "north"

@server.resource("harbour://broken")
def broken() -> str:
    raise RuntimeError("the reason is secret")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A user's server."""
    path = tmp_path / "harbour.py"
    path.write_text(SERVER)
    return path


def read(target: str | list[str], uri: str = "harbour://berths") -> str:
    """Read a resource."""

    async def work() -> str:
        async with Client(target) as client:
            return (await client.read_resource(uri)).text

    return asyncio.run(work())


def test_prints_of_the_server_do_not_reach_stdout(file: Path, executable: str) -> None:
    assert read([executable, "run", str(file)]) == "north"


def test_a_banner_is_shown_at_a_terminal(terminal: Callable[..., Terminal], file: Path) -> None:
    session = terminal("run", "--http", "127.0.0.1:0", "harbour.py")
    session.wait_for("Serving harbour")
    session.wait_for("harbour://berths\n")
    assert re.search(rf"Serving harbour  2 resources, .*from {re.escape(str(file))}\n", session.output)
    assert f"add claude-desktop {file}" in session.output
    url = re.search(r"MCP  (\S+)", session.output)
    assert url is not None
    assert read(url[1]) == "north"
    session.wait_for("printed while reading")
    session.press("\x03")
    assert session.wait_for_exit() == 130


def test_catalogues_and_extensions_are_counted() -> None:
    server = Server("harbour")
    assert feature_counts(server) == "nothing yet"

    @server.list_resources
    async def ships() -> AsyncIterator[types.Resource]:
        yield types.Resource(uri="ship://mary", name="Mary")

    server.extensions.declare("com.example/tides")
    assert feature_counts(server) == "1 catalogue, 1 extension"


def test_dev_shows_the_message_and_the_traceback_of_an_error(
    start: Callable[..., subprocess.Popen[str]], file: Path
) -> None:
    for options, shows_details in (((), False), (("--dev",), True)):
        process = start("run", "--http", "127.0.0.1:0", *options, str(file))
        assert process.stdout is not None
        url = next(match[1] for line in process.stdout if (match := re.search(r"MCP  (\S+)", line)))
        with pytest.raises(Exception, match="Internal error") as caught:
            read(url, "harbour://broken")
        assert ("secret" in str(caught.value)) is shows_details
        process.terminate()
        errors = process.communicate(timeout=20)[1]
        assert "RuntimeError: the reason is secret" in errors
        assert ("Traceback" in errors) is shows_details


def test_reload_restarts_when_the_code_changes(terminal: Callable[..., Terminal], file: Path) -> None:
    session = terminal("run", "--reload", "--http", "127.0.0.1:0", "harbour.py")
    session.wait_for("harbour://berths\n")
    file.write_text(SERVER + "\nbroken code(\n")
    session.wait_for("SyntaxError")
    file.write_text(SERVER.replace('"harbour"', '"quay"'))
    session.wait_for("Serving quay")
    session.wait_until(lambda: session.output.count("harbour://berths\n") >= 2, "the second banner")
    session.press("\x03")
    assert session.wait_for_exit() == 130
    assert "Traceback" not in session.output
