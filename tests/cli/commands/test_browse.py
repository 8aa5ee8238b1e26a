"""`wharfinger browse` says what it shows and where; the page itself is tested in `tests/web/`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal


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
