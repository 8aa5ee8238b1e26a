"""Output in other encodings, as on Windows, where a file or pipe has a code page; and JSON at a terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def harbour(tmp_path: Path) -> str:
    """A file with a server whose resource has a Japanese title."""
    file = tmp_path / "harbour.py"
    file.write_text(
        "from wharfinger import Server\n"
        "server = Server('harbour')\n"
        "@server.resource('tide://now', title='\\u6f6e')\n"
        "def now() -> str: ...\n"
    )
    return str(file)


def test_characters_that_stdout_lacks_are_escaped(start: Start, harbour: str) -> None:
    """A bug: the command ended with a UnicodeEncodeError."""
    out, err = start("ls", harbour, env={"PYTHONIOENCODING": "cp1252"}).communicate(timeout=40)
    assert out.endswith("tide://now  \\u6f6e\n")
    assert err == ""


def test_json_is_utf_8(start: Start, harbour: str) -> None:
    """A bug: the command ended with a UnicodeEncodeError."""
    out, err = start("ls", "--json", harbour, env={"PYTHONIOENCODING": "cp1252"}, encoding="utf-8").communicate(
        timeout=40
    )
    assert (json.loads(out)["title"], err) == ("\u6f6e", "")


def test_json_at_a_terminal_is_coloured_and_its_control_characters_are_escaped(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """A bug: with rich, a title of a server could send C1 control characters and direction marks to the terminal."""
    pytest.importorskip("rich")
    (tmp_path / "harbour.py").write_text(
        "from wharfinger import Server\n"
        "server = Server('harbour')\n"
        "@server.resource('tide://now', title='a\\x9b31m\\x7f\\u202eb')\n"
        "def now() -> str: ...\n"
    )
    session = terminal("ls", "--json", "harbour.py", env={"TERM": "xterm-256color"})
    assert session.wait_for_exit() == 0
    assert "\x1b[" in session.output
    assert r"a\u009b31m\u007f\u202eb" in session.output
    assert not {"\x9b", "\x7f", "\u202e"} & set(session.output)
