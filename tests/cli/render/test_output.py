"""Output that stdout cannot encode, as on Windows, where a file or pipe has a code page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
