"""`wharfinger auth` against a real server that requires tokens, and a real authorization server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.auth.authority import Authority, ProtectedServer, protected_server
from tests.cli.conftest import COMMAND, ENVIRONMENT
from tests.waiting import wait_until
from tests.web.conftest import run_page
from wharfinger.auth import FileTokens
from wharfinger.cli import main


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[ProtectedServer, Authority]]:
    """Run a protected server on another thread, with an empty folder for tokens."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    ready, stop = threading.Event(), threading.Event()
    started: list[tuple[ProtectedServer, Authority]] = []

    async def serve() -> None:
        async with protected_server() as servers:
            started.append(servers)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    yield started[0]
    stop.set()
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
        output = process.stdout.read()
        assert process.wait(10) == 0, process.stderr.read()
        return output


def test_explain_shows_each_step(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str]
) -> None:
    server, authority = servers
    assert main(["auth", "explain", server.url]) == 0
    output = capsys.readouterr().out
    assert f"ok  POST {server.url}\n      401, WWW-Authenticate: Bearer resource_metadata=" in output
    assert f"authorization servers: {authority.url}" in output
    assert f"Sign in with: wharfinger auth login {server.url}" in output
    assert authority.requests == []


def test_explain_names_the_options_of_the_sign_in(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str]
) -> None:
    server, _ = servers
    options = ["--client-id", "our harbour", "--allow-private-networks"]
    assert main(["auth", "explain", *options, server.url]) == 0
    command = f"wharfinger auth login --client-id 'our harbour' --allow-private-networks {server.url}"
    assert f"Sign in with: {command}" in capsys.readouterr().out


def test_explain_reports_how_to_fix_each_problem(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str]
) -> None:
    server, authority = servers
    authority.metadata = {"code_challenge_methods_supported": None, "registration_endpoint": None}
    assert main(["auth", "explain", "--json", server.url]) == 4
    reported = json.loads(capsys.readouterr().out)
    assert reported["possible"] is False
    assert [step["what"] for step in reported["steps"] if step["good"] is False] == ["registration", "PKCE"]
    assert all(step["fix"] for step in reported["steps"] if step["good"] is False)


def test_a_token_is_saved_listed_used_and_deleted(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server, _ = servers
    assert main(["ls", server.url]) == 4
    assert f"wharfinger auth login {server.url}" in capsys.readouterr().err
    assert f"Signed in to {server.url}" in login(server.url, tmp_path)
    assert main(["auth", "list"]) == 0
    output = capsys.readouterr().out
    assert server.url in output
    assert "renewed automatically" in output
    assert "token-" not in output
    assert main(["call", server.url, "write"]) == 4  # more scopes need another sign-in
    assert main(["auth", "logout", server.url]) == 0
    assert main(["auth", "logout", server.url]) == 1
    assert "No token is saved" in capsys.readouterr().err
    assert not list((tmp_path / "wharfinger" / "tokens").glob("grant-*"))


def test_a_sign_in_that_fails_keeps_the_saved_token(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A bug: the token was deleted before the sign-in began."""
    server, _ = servers
    login(server.url, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        assert main(["auth", "login", "--no-browser", "--redirect-port", port, server.url]) == 4
    assert f"Cannot listen on port {port}" in capsys.readouterr().err
    assert main(["ls", server.url]) == 0


def test_a_new_sign_in_deletes_the_other_tokens_for_the_server(
    servers: tuple[ProtectedServer, Authority], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server, _ = servers
    login(server.url, tmp_path)
    tokens = FileTokens()
    (first,) = asyncio.run(tokens.grants())
    other_issuer = msgspec.structs.replace(first, issuer="https://as.example", taken_at=first.taken_at + 10_000)
    other_server = msgspec.structs.replace(first, server="https://other.example/mcp")
    for grant in (other_issuer, other_server):
        asyncio.run(tokens.keep(grant))
    login(server.url, tmp_path)
    kept = {grant.server: grant.access_token for grant in asyncio.run(tokens.grants())}
    assert kept == {server.url: "token-1", other_server.server: "token-0"}
    assert len(asyncio.run(tokens.grants())) == 2


@pytest.mark.parametrize("options", [["--issuer", "https://as.example"], ["--client-secret-env", "HOME"]])
def test_an_issuer_or_a_secret_without_a_client_id_is_a_usage_error_that_names_options(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["auth", "login", *options, "http://x/"]) == 2
    assert f"{options[0]} needs --client-id" in capsys.readouterr().err


def test_another_command_uses_the_saved_token(servers: tuple[ProtectedServer, Authority], tmp_path: Path) -> None:
    server, authority = servers
    login(server.url, tmp_path)
    result = subprocess.run(
        [*COMMAND, "ls", server.url, "--json"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert authority.request_names().count("authorize") == 1
    assert "token-0" in server.received_tokens


def test_browse_uses_the_saved_token(servers: tuple[ProtectedServer, Authority], tmp_path: Path) -> None:
    server, authority = servers
    login(server.url, tmp_path)
    env = {**ENVIRONMENT, "XDG_DATA_HOME": str(tmp_path)}
    with run_page("browse", "--no-open", "--port", "0", server.url, cwd=tmp_path, env=env):
        wait_until(lambda: "token-0" in server.received_tokens, "the token is sent")
    assert authority.request_names().count("authorize") == 1


@pytest.mark.parametrize("args", [["explain", "ftp://x"], ["login", "x"], ["logout", "./charts"]])
def test_an_invalid_url_is_a_usage_error(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["auth", *args]) == 2
    assert "only servers at http:// and https:// URLs" in capsys.readouterr().err


def test_a_url_that_cannot_be_parsed_is_a_usage_error_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("http://[", "https://me:secret@example.com/mcp"):
        assert main(["auth", "explain", url]) == 2
        error = capsys.readouterr().err
        assert "is not the URL of a server" in error
        assert "secret" not in error


def test_an_unset_variable_for_the_secret_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["auth", "login", "--client-secret-env", "NO_SUCH_VARIABLE", "http://x/"]) == 2
    assert "NO_SUCH_VARIABLE is not set" in capsys.readouterr().err
