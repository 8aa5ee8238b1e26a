"""The command in the banner works when it is copied."""

import sys
from pathlib import Path

import pytest

from wharfinger.cli.executable import absolute_command, is_path, own_command


def test_own_command_is_an_absolute_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wharfinger").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["./wharfinger", "serve"])
    assert own_command() == (str(tmp_path / "wharfinger"),)


def test_own_command_without_an_executable_runs_the_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert own_command() == (str(tmp_path / "python"), "-m", "wharfinger")


def test_only_words_that_are_clearly_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "server.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert [is_path(word) for word in ("run", "server.py", "./run", ".", "no.py", "-x", "@a/b", "/")] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert absolute_command([sys.executable, "run", "."])[1:] == ("run", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        absolute_command(["no-such-command-here"])
