"""The visitors of the page are kept when a server is restarted, unless they have signed out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from wharfinger.protocol.principal import ANONYMOUS
from wharfinger.web.visitors import Visitors


def test_a_visitor_who_signed_out_is_not_admitted_after_a_restart(tmp_path: Path) -> None:
    visitors = Visitors(tmp_path)
    left, stays = visitors.admit(ANONYMOUS), visitors.admit(ANONYMOUS)
    visitor = visitors.find(left)
    assert visitor is not None
    visitors.forget(visitor)
    restarted = Visitors(tmp_path)
    assert restarted.find(left) is None
    assert restarted.find(stays) is not None


def test_a_replaced_visitor_is_not_admitted_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the file kept it, and the last lines of the file were read, instead of the last visitors."""
    monkeypatch.setattr("wharfinger.web.visitors.MAX_VISITORS", 2)
    visitors = Visitors(tmp_path)
    first, second = visitors.admit(ANONYMOUS), visitors.admit(ANONYMOUS)
    assert visitors.find(first) is not None  # the second is absent for longer
    third = visitors.admit(ANONYMOUS)
    for each in (visitors, Visitors(tmp_path)):
        assert [each.find(cookie) is not None for cookie in (first, second, third)] == [True, False, True]
    assert len((tmp_path / "visitors").read_text().splitlines()) == 2


@pytest.mark.parametrize("damage", [b"abc\n", b"abc never\n", b"\xff\xfe 1\n", b"\n", b"abc 1e"])
def test_damaged_lines_of_the_file_are_skipped(tmp_path: Path, damage: bytes) -> None:
    """A bug: the server did not start again."""
    cookie = Visitors(tmp_path).admit(ANONYMOUS)
    file = tmp_path / "visitors"
    file.write_bytes(file.read_bytes() + damage)
    assert Visitors(tmp_path).find(cookie) is not None


@pytest.mark.parametrize("expires", ["{past}", "nan", "inf", "never"])
def test_the_url_has_a_token_after_a_restart_if_no_visitor_is_left(tmp_path: Path, expires: str) -> None:
    (tmp_path / "visitors").write_text(f"abc {expires.format(past=time.time() - 1)}\n")
    assert Visitors(tmp_path).token
