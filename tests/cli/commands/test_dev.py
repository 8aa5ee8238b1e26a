"""`wharfinger dev` reloads the server, shows full errors and serves the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from click.testing import CliRunner

from tests.conftest import free_port
from tests.waiting import wait_until
from tests.web.conftest import run_page
from tests.web.test_page_gate import SAME_ORIGIN, ask
from wharfinger import Client
from wharfinger.cli.app import wharfinger
from wharfinger.errors import WharfingerError
from wharfinger.web.visitors import Visitors

SERVER = """
from wharfinger import Server

server = Server("harbour")


@server.tool
def {name}() -> str:
    raise ValueError("the hull is open")
"""


async def tool_names(url: str) -> list[str]:
    """Return the names of the tools, or none while the server restarts."""
    try:
        async with Client(url) as client:
            return [tool.name for tool in await client.list_tools()]
    except WharfingerError:
        return []


async def error_of_sink(url: str) -> str:
    """Call the tool `sink`, and return the message of its error."""
    async with Client(url) as client:
        try:
            await client.call_tool("sink")
        except WharfingerError as error:
            return str(error)
    return ""


def test_dev_shows_errors_in_full_and_signs_the_visitor_in(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER.format(name="sink"))
    with run_page("dev", "server.py", "--http", "127.0.0.1:0", cwd=tmp_path) as page:
        url = page.base + "mcp"
        assert asyncio.run(tool_names(url)) == ["sink"]
        assert "the hull is open" in asyncio.run(error_of_sink(url))
        status, headers, _ = ask(page, "/?" + page.url.partition("?")[2])
        assert status == 200
        cookie = {"cookie": headers["set-cookie"].partition(";")[0], **SAME_ORIGIN}
        assert ask(page, "/", cookie)[0] == 200


def test_visitors_stay_signed_in_after_a_restart_which_issues_no_new_token(tmp_path: Path) -> None:
    first = Visitors(tmp_path)
    cookie = first.redeem(first.token)
    assert cookie is not None
    second = Visitors(tmp_path)
    assert second.find(cookie) is not None
    assert (second.token, second.redeem("")) == ("", None)
    assert cookie not in (tmp_path / "visitors").read_text()


def test_a_changed_file_is_reloaded_and_visitors_stay_signed_in(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER.format(name="sink"))
    port = free_port()
    with run_page("dev", "server.py", "--http", f"127.0.0.1:{port}", cwd=tmp_path) as page:
        url = page.base + "mcp"
        cookie_header = ask(page, "/?" + page.url.partition("?")[2])[1]["set-cookie"].partition(";")[0]
        file.write_text(SERVER.format(name="float_again"))
        wait_until(lambda: asyncio.run(tool_names(url)) == ["float_again"], "the server reloads")
        assert ask(page, "/", {"cookie": cookie_header, **SAME_ORIGIN})[0] == 200


def test_dev_serves_over_http_only() -> None:
    result = CliRunner().invoke(wharfinger, ["dev", "server.py", "--stdio"])
    assert result.exit_code == 2
    assert "use `wharfinger run` for --stdio" in result.output


def test_browse_needs_a_target() -> None:
    result = CliRunner().invoke(wharfinger, ["browse"])
    assert result.exit_code == 2
    assert "Missing TARGET" in result.output
