"""Tokens in memory and in files: kept by server, replaced atomically, and readable by their owner only."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from wharfinger.auth import FileTokens, MemoryTokens, Tokens
from wharfinger.auth.client.grants import Grant
from wharfinger.auth.client.registration import RegisteredClient
from wharfinger.auth.client.token_store import default_folder
from wharfinger.errors import StoreUnusable

T = TypeVar("T")

CLIENT = RegisteredClient(issuer="https://as.example", client_id="harbour", client_secret="hidden", method="none")
GRANT = Grant(
    server="https://harbour.example/mcp",
    issuer="https://as.example",
    resource="https://harbour.example",
    client=CLIENT,
    token_endpoint="https://as.example/token",
    access_token="secret",
    scope=("read",),
    taken_at=1.0,
)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture(params=["memory", "files"])
def tokens(request: pytest.FixtureRequest, tmp_path: Path) -> Tokens:
    return MemoryTokens() if request.param == "memory" else FileTokens(tmp_path / "a" / "b")


def test_a_new_store_is_empty(tokens: Tokens) -> None:
    assert run(tokens.grant(GRANT.server)) is None
    assert run(tokens.grants()) == []
    assert run(tokens.client("https://as.example")) is None
    run(tokens.forget(GRANT))
    run(tokens.forget_client("https://as.example"))


def test_a_grant_is_found_by_its_server(tokens: Tokens) -> None:
    run(tokens.keep(GRANT))
    run(tokens.keep(msgspec.structs.replace(GRANT, access_token="next", taken_at=2.0)))
    elsewhere = msgspec.structs.replace(GRANT, issuer="https://other.example", access_token="newest", taken_at=3.0)
    run(tokens.keep(elsewhere))
    assert len(run(tokens.grants())) == 2
    assert run(tokens.grant(GRANT.server)) == elsewhere
    assert run(tokens.grant("https://harbour.example/mcp/")) is None
    run(tokens.forget(elsewhere))
    found = run(tokens.grant(GRANT.server))
    assert found is not None
    assert found.access_token == "next"


def test_a_client_is_stored_by_its_issuer(tokens: Tokens) -> None:
    run(tokens.keep_client(CLIENT))
    assert run(tokens.client("https://as.example")) == CLIENT
    assert run(tokens.client("https://as.example/")) is None
    run(tokens.forget_client("https://as.example"))
    assert run(tokens.client("https://as.example")) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are POSIX's")
def test_only_the_owner_reads_the_files(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        kept = FileTokens(tmp_path / "tokens")
        run(kept.keep(GRANT))
        run(kept.keep_client(CLIENT))
    finally:
        os.umask(old)
    assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700
    files = list(kept.folder.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert not any("harbour" in file.name for file in files)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are POSIX's")
def test_a_folder_that_other_users_may_enter_is_refused(tmp_path: Path) -> None:
    kept = FileTokens(tmp_path / "tokens")
    run(kept.keep(GRANT))
    kept.folder.chmod(0o750)
    for work in (kept.keep(GRANT), kept.grant(GRANT.server), kept.client("x")):
        with pytest.raises(StoreUnusable, match="chmod 700"):
            run(work)  # type: ignore[arg-type]


def test_invalid_files_are_skipped(tmp_path: Path) -> None:
    kept = FileTokens(tmp_path / "tokens")
    run(kept.keep(GRANT))
    (kept.folder / "grant-broken.json").write_text("{")
    (kept.folder / ".rest-of-a-crash").write_text("{")
    assert run(kept.grants()) == [GRANT]


def test_a_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("")
    with pytest.raises(StoreUnusable, match="tokens"):
        run(FileTokens(tmp_path / "tokens").keep(GRANT))


def test_the_folder_follows_xdg_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/wharfinger/tokens")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_folder() == Path.home() / ".local/share/wharfinger/tokens"
