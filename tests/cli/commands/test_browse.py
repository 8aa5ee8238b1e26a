"""`wharfinger browse` says what it shows and where; the page itself is tested in `tests/web/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Terminal
from wharfinger.cli.commands.browse import browse, read_targets
from wharfinger.cli.targets.open_client import ConnectionOptions

URLS = ("http://127.0.0.1:8/mcp", "http://127.0.0.1:9/mcp")


def test_the_headers_of_the_command_line_are_for_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: every URL got the token, and a server of a configuration file got none."""
    monkeypatch.setenv("TOKEN", "secret")
    ctx = click.Context(browse)
    connection = ConnectionOptions(token_env="TOKEN")
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"tides": {"url": URLS[0]}}}))
    for word in (URLS[0], str(file)):
        (config,) = read_targets(ctx, (word,), connection)
        assert config.headers == {"Authorization": "Bearer secret"}
    for words in (URLS, (str(tmp_path),)):
        with pytest.raises(click.UsageError, match="need exactly one URL"):
            read_targets(ctx, words, connection)


def test_the_names_of_servers_are_printed_without_control_characters(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """A bug: a configuration file, such as one of a repository, could rewrite the screen of the terminal."""
    pytest.importorskip("nicegui")
    servers = {"tide\x1b[31m": {"url": "http://127.0.0.1:9/mcp"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    session = terminal("browse", "--no-open", "--port", "0", "mcp.json")
    session.wait_for("Ctrl-C stops")
    assert "Browsing tide\\x1b[31m\n" in session.output
    assert "\x1b" not in session.output
    session.press("\x03")
    assert session.wait_for_exit() == 130


@pytest.mark.parametrize(
    "url", ["http://ann:hunter2@127.0.0.1:9/mcp", "http://127.0.0.1:9/mcp?hunter2", "http://127.0.0.1:9/mcp#hunter2"]
)
def test_the_name_of_a_server_at_a_url_has_neither_its_password_nor_its_query(url: str) -> None:
    (config,) = read_targets(click.Context(browse), (url,), ConnectionOptions())
    assert config.name == "127-0-0-1-9"
