"""Where the programs that sources run are found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wharfinger.sources.program_path import program_path

if os.name == "nt":
    pytest.skip("on Windows, programs have suffixes", allow_module_level=True)


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a folder, which is the current one."""
    path = tmp_path / "quay"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_program_in_an_absolute_folder_of_path_is_found(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"/nowhere{os.pathsep}{program.parent}")
    assert program_path("quay") == str(program)


@pytest.mark.parametrize("folders", [".", "", f"{os.pathsep}.{os.pathsep}"])
def test_no_program_in_the_current_folder_is_found(folders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could be the folder that is published."""
    monkeypatch.setenv("PATH", folders)
    assert program_path("quay") is None
