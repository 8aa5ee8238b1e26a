"""The folder of a clone: where it is, and when it is refused."""

from __future__ import annotations

import pytest

from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote.clone_folder import CloneFolder
from wharfinger.sources.git_remote.remote_address import parse_remote


def test_a_clone_is_refused_if_there_is_no_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, "relative")
    with pytest.raises(UnusableSource, match=r"cannot be kept: there is no home folder: set HOME or XDG_CACHE_HOME\.$"):
        CloneFolder.of(parse_remote("https://git.example.org/harbour.git"))
