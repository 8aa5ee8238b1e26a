"""The command in the banner works when it is copied."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wharfinger.cli.executable import absolute_command, installed_requirement, is_path, own_command


def test_own_command_is_an_absolute_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "wharfinger").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["./wharfinger", "serve"])
    assert own_command() == (str(tmp_path / "wharfinger"),)


def test_own_command_without_an_executable_runs_the_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert own_command() == (str(tmp_path / "python"), "-m", "wharfinger")


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "wharfinger==9.1"),
        (
            {"url": "file:///harbour/wharfinger-9.1-py3-none-any.whl", "archive_info": {}},
            "wharfinger @ file:///harbour/wharfinger-9.1-py3-none-any.whl",
        ),
        (
            {
                "url": "https://git.test/harbour/wharfinger.git",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "main"},
            },
            "wharfinger @ git+https://git.test/harbour/wharfinger.git@c0ffee",
        ),
        (
            {"url": "ssh://git@git.test/all", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}, "subdirectory": "a/b"},
            "wharfinger @ git+ssh://git@git.test/all@c0ffee#subdirectory=a/b",
        ),
        (
            {"url": "https://harbour.test/all.tar.gz", "archive_info": {}, "subdirectory": "w"},
            "wharfinger @ https://harbour.test/all.tar.gz#subdirectory=w",
        ),
    ],
)
def test_a_package_is_required_from_where_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, expected: str
) -> None:
    """PEP 610. A bug: a git repository was named like a file, so that the command failed."""
    record = tmp_path / "wharfinger-9.1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: wharfinger\nVersion: 9.1\n")
    if origin is not None:
        (record / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_requirement() == expected


def test_only_words_that_are_clearly_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "server.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert [is_path(word) for word in ("run", "server.py", "./run", ".", "no.py", "-x", "@a/b", "/", "/x" * 3000)] == [
        False,
        True,
        True,
        True,
        False,
        False,
        False,
        True,
        False,
    ]
    assert absolute_command([sys.executable, "run", "."])[1:] == ("run", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        absolute_command(["no-such-command-here"])
