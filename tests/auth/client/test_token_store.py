"""Tokens in memory and in files: stored by server, replaced atomically, and readable by their owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from wharfinger.auth import FileTokens, MemoryTokens, SignIn, Tokens
from wharfinger.auth.client.grants import Grant
from wharfinger.auth.client.registration import RegisteredClient
from wharfinger.auth.client.token_store import default_folder
from wharfinger.errors import StoreUnusable

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


@pytest.fixture(params=["memory", "files"])
def tokens(request: pytest.FixtureRequest, tmp_path: Path) -> Tokens:
    return MemoryTokens() if request.param == "memory" else FileTokens(tmp_path / "a" / "b")


async def test_a_new_store_is_empty(tokens: Tokens) -> None:
    assert await tokens.grant(GRANT.server) is None
    assert await tokens.grants() == []
    assert await tokens.client("https://as.example") is None
    await tokens.forget(GRANT)
    await tokens.forget_client("https://as.example")


async def test_the_newest_grant_of_a_server_is_returned(tokens: Tokens) -> None:
    await tokens.keep(GRANT)
    await tokens.keep(msgspec.structs.replace(GRANT, access_token="next", taken_at=2.0))
    newest = msgspec.structs.replace(GRANT, issuer="https://other.example", access_token="newest", taken_at=3.0)
    await tokens.keep(newest)
    assert len(await tokens.grants()) == 2
    assert await tokens.grant(GRANT.server) == newest
    assert await tokens.grant("https://harbour.example/mcp/") is None
    await tokens.forget(newest)
    grant = await tokens.grant(GRANT.server)
    assert grant is not None
    assert grant.access_token == "next"


async def test_sign_in_forgets_all_grants_of_a_server(tokens: Tokens) -> None:
    """A bug: only the newest was deleted, and an older one of another issuer was used after a logout."""
    other_server = msgspec.structs.replace(GRANT, server="https://pier.example/mcp")
    for grant in (GRANT, msgspec.structs.replace(GRANT, issuer="https://other.example", taken_at=2.0), other_server):
        await tokens.keep(grant)
    sign_in = SignIn(tokens=tokens)
    assert await sign_in.headers(GRANT.server)
    assert await sign_in.forget(GRANT.server)
    assert await tokens.grants() == [other_server]
    assert await sign_in.headers(GRANT.server) == {}
    assert not await sign_in.forget(GRANT.server)


async def test_a_client_is_returned_for_its_issuer(tokens: Tokens) -> None:
    await tokens.keep_client(CLIENT)
    assert await tokens.client("https://as.example") == CLIENT
    assert await tokens.client("https://as.example/") is None
    await tokens.forget_client("https://as.example")
    assert await tokens.client("https://as.example") is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX file owners and modes")
async def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    old_umask = os.umask(0)
    try:
        store = FileTokens(tmp_path / "tokens")
        await store.keep(GRANT)
        await store.keep_client(CLIENT)
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    files = list(store.folder.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert not any("harbour" in file.name for file in files)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX file owners and modes")
async def test_a_folder_that_other_users_may_enter_is_refused(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    await store.keep(GRANT)
    store.folder.chmod(0o750)
    for call in (store.keep(GRANT), store.grant(GRANT.server), store.client("x")):
        with pytest.raises(StoreUnusable, match="chmod 700"):
            await call  # type: ignore[misc]


async def test_invalid_files_are_skipped(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    await store.keep(GRANT)
    (store.folder / "grant-broken.json").write_text("{")
    (store.folder / "grant-damaged.json").write_bytes(b'{"server": "\xff"}')
    (store.folder / ".rest-of-a-crash").write_text("{")
    assert await store.grants() == [GRANT]


async def test_a_folder_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("")
    with pytest.raises(StoreUnusable, match="tokens"):
        await FileTokens(tmp_path / "tokens").keep(GRANT)


def test_the_folder_follows_xdg_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/wharfinger/tokens")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_folder() == Path.home() / ".local/share/wharfinger/tokens"


def test_a_missing_home_folder_is_reported_with_the_variables_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, the error was a RuntimeError."""
    for variable in ("HOME", "USERPROFILE", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, "relative")
    with pytest.raises(
        StoreUnusable, match="Tokens cannot be stored: there is no home folder: set HOME or XDG_DATA_HO"
    ):
        FileTokens()
