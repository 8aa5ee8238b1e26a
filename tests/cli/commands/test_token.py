"""`wharfinger token` creates, lists and revokes tokens, and a real server accepts them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from tests.conftest import free_port

Start = Callable[..., "subprocess.Popen[str]"]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**ENVIRONMENT, **env}, timeout=60)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "all tokens\x1b[2J.json")


def test_a_token_is_printed_once_listed_without_its_secret_and_revoked(file: str) -> None:
    created = run("token", "create", file, "--sub", "ann", "--group", "finance", "--scope", "read", "--expires", "30d")
    token = created.stdout.strip()
    id = token.split("_")[1]
    assert re.fullmatch(r"wf_[0-9a-f]{12}_[\w-]{43}", token)
    assert f"wharfinger token revoke '{file}' {id}".replace("\x1b", "\\x1b") in created.stderr
    listing = run("token", "list", file).stdout
    assert listing.startswith(f"{id}  ann  group finance  read  until 20")
    assert token.split("_", 2)[2] not in listing
    (record,) = json.loads(run("token", "list", "--json", file).stdout)["tokens"]
    assert (record["sub"], record["groups"], record["scopes"]) == ("ann", ["finance"], ["read"])
    assert run("token", "revoke", file, id).stdout == f"Revoked the token {id} of ann.\n"
    listing = run("token", "list", file).stderr
    assert "has no tokens" in listing
    assert "\x1b" not in listing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["create", "FILE", "--sub", ""], "is not a name"), (["create", "FILE"], "--sub"),
     (["create", "FILE", "--sub", "a", "--expires", "soon"], "such as 30d"),
     (["create", "FILE", "--sub", "a", "--expires", "0d"], "such as 30d"),
     (["create", "FILE", "--sub", "a", "--expires", "99999w"], "such as 30d"),
     (["list", "/nowhere/tokens.json"], "does not exist"), (["revoke", "FILE", "x"], "does not exist"),
     (["create", "/nowhere/tokens.json", "--sub", "a"], "No such file")],
)  # fmt: skip
def test_the_error_for_a_mistake_suggests_a_correction(file: str, arguments: list[str], message: str) -> None:
    completed = run("token", *(file if word == "FILE" else word for word in arguments))
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"MCP  (\S+)", line):
            return found[1]
    raise AssertionError(process.communicate()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="the process is ended by a signal")
def test_a_server_accepts_a_token_of_its_file_until_it_is_revoked(start: Start, charts: Path, file: str) -> None:
    token = run("token", "create", "-q", file, "--sub", "ann").stdout.strip()
    process = start("serve", "--http", "127.0.0.1:0", "--tokens", file, str(charts))
    url = url_of(process)
    list_result = run("ls", "--token-env", "TOKEN", url, TOKEN=token)
    assert (list_result.returncode, "file:///charts" in list_result.stdout) == (0, True)
    refused_result = run("ls", url)
    assert refused_result.returncode == 4
    run("token", "revoke", file, token.split("_")[1])
    for _ in range(100):  # the file is checked once a second
        if run("ls", "--token-env", "TOKEN", url, TOKEN=token).returncode == 4:
            break
    else:
        raise AssertionError("the token still works")


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--tokens", "FILE"], "No such file"), (["--require-scope", "a"], "add --tokens FILE or --auth"),
     (["--auth", "http://id.example", "--public-url", "https://a.example"], "not https"),
     (["--auth", "https://id.example", "--token-env", "X"], "leave it"),
     (["--auth", "https://id.example", "--http", "0.0.0.0:8000"], "--public-url"),
     (["--auth", "https://id.example", "--http", "127.0.0.1:0"], "--public-url")],
)  # fmt: skip
def test_conflicting_options_prevent_the_start(charts: Path, file: str, options: list[str], message: str) -> None:
    arguments = [file if word == "FILE" else word for word in options]
    http = [] if "--http" in arguments else ["--http", "127.0.0.1:0"]
    completed = run("serve", *http, *arguments, str(charts), X="0123456789abcdef")
    assert completed.returncode == 2
    assert message in completed.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="the process is ended by a signal")
def test_a_server_whose_issuer_cannot_be_reached_starts_and_says_so(start: Start, charts: Path) -> None:
    """A bug: it said nothing, and each token got 503."""
    issuer, port = f"http://127.0.0.1:{free_port()}", free_port()
    process = start("serve", "--http", f"127.0.0.1:{port}", "--auth", issuer, str(charts))
    url_of(process)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"Requests with tokens of {issuer} get 503 for now: {issuer}/.well-known/")
    assert line.endswith(" Its keys are fetched again when such a token arrives.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="the process is ended by a signal")
def test_a_server_with_an_issuer_publishes_its_metadata(start: Start, charts: Path) -> None:
    port = free_port()
    process = start("serve", "--http", f"127.0.0.1:{port}", "--auth", "https://id.example", str(charts))
    url = url_of(process)
    assert url == f"http://127.0.0.1:{port}/mcp"
    explanation = run("auth", "explain", "--json", url)
    assert "https://id.example" in explanation.stdout
    assert "resource http://127.0.0.1" in explanation.stdout
