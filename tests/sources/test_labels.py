"""Which folders may be published, and their labels."""

from __future__ import annotations

import ntpath
import os
from pathlib import Path, PureWindowsPath

import pytest

from wharfinger.errors import WharfingerError
from wharfinger.sources import labels
from wharfinger.sources.folder.source import files
from wharfinger.sources.labels import UnusableFolder, first_free_label, resolve_root, split_label


def test_a_path_may_have_a_label() -> None:
    assert split_label("maps=/srv/charts") == ("/srv/charts", "maps")
    assert split_label("/srv/charts") == ("/srv/charts", None)


def test_an_existing_path_is_never_split_into_label_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").mkdir()
    assert split_label("a=b") == ("a=b", None)


def test_the_first_free_label_is_used_or_numbered_if_all_are_taken() -> None:
    assert first_free_label(["docs"], ()) == "docs"
    assert first_free_label(["docs", "flask-docs"], {"docs"}) == "flask-docs"
    assert first_free_label(["flask-docs", "docs"], {"docs", "flask-docs", "docs-2"}) == "docs-3"


def test_a_missing_folder_is_reported_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnusableFolder, match=str(tmp_path / "gone")) as caught:
        files("gone")
    assert isinstance(caught.value, WharfingerError)
    assert caught.value.exit_code == 2


def test_a_file_is_not_a_folder(charts: Path) -> None:
    with pytest.raises(UnusableFolder, match="not a folder"):
        files(charts / "README.md")


def test_a_path_with_a_nul_is_refused() -> None:
    """A bug: it ended in a ValueError."""
    with pytest.raises(UnusableFolder, match="has a NUL"):
        files("charts\0")


def test_the_home_folder_and_the_root_must_be_given_as_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = tmp_path / "project"
    inside.mkdir()
    monkeypatch.chdir(inside)
    for relative in ("..", "../..", os.path.relpath("/", inside)):
        with pytest.raises(UnusableFolder, match="give the full path"):
            resolve_root(relative)
    assert resolve_root(".") == str(inside)
    assert resolve_root(str(tmp_path)) == str(tmp_path)
    monkeypatch.chdir("/")
    with pytest.raises(UnusableFolder, match=r"'\.' is /"):
        resolve_root(".")
    assert resolve_root("/") == "/"


def test_a_folder_on_another_drive_than_the_home_folder_does_not_contain_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: on Windows, a relative path on another drive raised a ValueError."""
    monkeypatch.setenv("USERPROFILE", r"C:\Users\mary")
    with monkeypatch.context() as windows:
        windows.setattr(os, "path", ntpath)
        windows.setattr(labels, "PurePath", PureWindowsPath)
        contains = {folder: labels._contains_home(folder) for folder in ("D:\\charts", "D:\\", "c:\\users")}
    assert contains == {"D:\\charts": False, "D:\\": True, "c:\\users": True}


def test_a_link_to_a_folder_is_resolved(charts: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(charts)
    assert resolve_root(tmp_path / "link") == str(charts)


@pytest.mark.parametrize("label", ["", ".", "..", "a/b", "a\0"])
def test_a_label_that_is_invalid_in_a_uri_is_refused(charts: Path, label: str) -> None:
    with pytest.raises(UnusableFolder):
        files(charts, label=label)


def test_a_pattern_instead_of_a_list_raises_an_error_with_the_correction(charts: Path) -> None:
    with pytest.raises(TypeError, match=r"include=\['\*.md'\]"):
        files(charts, include="*.md")
