"""`wharfinger auth` against a real server that requires tokens, and a real authorization server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.auth.authority import Authority, Guarded, harbour
from tests.cli.conftest import COMMAND, ENVIRONMENT
from tests.web.conftest import serving, wait_until
from wharfinger.cli import main


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Guarded, Authority]]:
    """Run a guarded server on another thread, with an empty folder for tokens."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ready, ends = threading.Event(), threading.Event()
    found: list[tuple[Guarded, Authority]] = []

    async def serve() -> None:
        async with harbour() as both:
            found.append(both)
            ready.set()
            await asyncio.to_thread(ends.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    yield found[0]
    ends.set()
    thread.join()


def login(url: str, folder: Path) -> str:
    """Run `auth login`, open the page that it prints, and return its output."""
    with subprocess.Popen(
        [*COMMAND, "auth", "login", "--no-browser", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, "XDG_DATA_HOME": str(folder)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Sign in at: http://127.0.0.1:"), line
        with urllib.request.urlopen(line.removeprefix("Sign in at: ").strip()) as page:
            assert b"Go back to your program" in page.read()
        shown = process.stdout.read()
        assert process.wait(10) == 0, process.stderr.read()
        return shown


def test_explain_shows_each_step(servers: tuple[Guarded, Authority], capsys: pytest.CaptureFixture[str]) -> None:
    guarded, authority = servers
    assert main(["auth", "explain", guarded.url]) == 0
    shown = capsys.readouterr().out
    assert f"ok  POST {guarded.url}\n      401, WWW-Authenticate: Bearer resource_metadata=" in shown
    assert f"authorization servers: {authority.url}" in shown
    assert f"Sign in with: wharfinger auth login {guarded.url}" in shown
    assert authority.asked == []


def test_explain_says_how_to_fix_each_problem(
    servers: tuple[Guarded, Authority], capsys: pytest.CaptureFixture[str]
) -> None:
    guarded, authority = servers
    authority.metadata = {"code_challenge_methods_supported": None, "registration_endpoint": None}
    assert main(["auth", "explain", "--json", guarded.url]) == 4
    reported = json.loads(capsys.readouterr().out)
    assert reported["possible"] is False
    assert [step["what"] for step in reported["steps"] if step["good"] is False] == ["registration", "PKCE"]
    assert all(step["fix"] for step in reported["steps"] if step["good"] is False)


def test_a_token_is_saved_listed_used_and_deleted(
    servers: tuple[Guarded, Authority], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    guarded, _ = servers
    assert main(["ls", guarded.url]) == 4
    assert f"wharfinger auth login {guarded.url}" in capsys.readouterr().err
    assert f"Signed in to {guarded.url}" in login(guarded.url, tmp_path)
    assert main(["auth", "list"]) == 0
    shown = capsys.readouterr().out
    assert guarded.url in shown
    assert "renewed automatically" in shown
    assert "token-" not in shown
    assert main(["call", guarded.url, "write"]) == 4  # more scopes need another sign-in
    assert main(["auth", "logout", guarded.url]) == 0
    assert main(["auth", "logout", guarded.url]) == 1
    assert "No token is saved" in capsys.readouterr().err
    assert not list((tmp_path / "wharfinger" / "tokens").glob("grant-*"))


def test_another_command_uses_the_saved_token(servers: tuple[Guarded, Authority], tmp_path: Path) -> None:
    guarded, authority = servers
    login(guarded.url, tmp_path)
    done = subprocess.run(
        [*COMMAND, "ls", guarded.url, "--json"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert authority.paths().count("authorize") == 1
    assert "token-0" in guarded.seen


def test_browse_uses_the_saved_token(servers: tuple[Guarded, Authority], tmp_path: Path) -> None:
    guarded, authority = servers
    login(guarded.url, tmp_path)
    env = {**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path)}
    with serving("browse", "--no-open", "--port", "0", guarded.url, cwd=tmp_path, env=env):
        wait_until(lambda: "token-0" in guarded.seen, "the token was not sent")
    assert authority.paths().count("authorize") == 1


@pytest.mark.parametrize("args", [["explain", "ftp://x"], ["login", "x"], ["logout", "./charts"]])
def test_an_invalid_url_is_a_usage_error(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["auth", *args]) == 2
    assert "only servers at http:// and https:// URLs" in capsys.readouterr().err


def test_a_secret_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["auth", "login", "--client-secret-env", "NO_SUCH_VARIABLE", "http://x/"]) == 2
    assert "NO_SUCH_VARIABLE is not set" in capsys.readouterr().err
