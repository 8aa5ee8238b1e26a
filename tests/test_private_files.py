"""Files that only their owner may read."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wharfinger.private_files import cache_folder, home_folder, is_private, replace_privately


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no such modes")
@pytest.mark.parametrize(("mode", "expected"), [(0o700, True), (0o500, True), (0o701, False), (0o740, False)])
def test_a_folder_is_private_if_others_have_no_right_in_it(tmp_path: Path, mode: int, expected: bool) -> None:
    tmp_path.chmod(mode)
    assert is_private(tmp_path) is expected
    tmp_path.chmod(0o700)


def test_a_file_is_replaced_with_private_modes_and_leaves_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text("old")
    file.chmod(0o644)
    replace_privately(file, b"new")
    assert file.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["tokens.json"]
    if hasattr(os, "getuid"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_if_a_file_cannot_be_replaced_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "tokens.json"
    folder.mkdir()
    with pytest.raises(OSError):
        replace_privately(folder, b"new")
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_the_cache_folder_follows_xdg_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "wharfinger"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder().is_absolute()


@pytest.mark.skipif(not hasattr(os, "setuid") or os.geteuid() != 0, reason="changes to another account")
def test_a_user_without_a_home_folder_has_no_cache_folder() -> None:
    """A bug: the error was a RuntimeError, which ended the thread of the search index."""
    code = (
        "import os; from wharfinger.private_files import cache_folder; os.setgroups([]); os.setuid(54_321)\n"
        "try: cache_folder()\n"
        "except FileNotFoundError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={})
    assert process.stdout == "there is no home folder: set HOME or XDG_CACHE_HOME\n", process.stderr


def test_a_missing_home_folder_is_reported_with_the_variables_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, "relative")
    with pytest.raises(FileNotFoundError, match=r"^there is no home folder: set HOME$"):
        home_folder()
    with pytest.raises(FileNotFoundError, match=r"set HOME or XDG_DATA_HOME$"):
        home_folder("XDG_DATA_HOME")
