"""`serve` and `run` with a policy, as real processes with the command line as their client."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT, TIDE_SERVER
from tests.waiting import wait_until

Start = Callable[..., "subprocess.Popen[str]"]

RULES = """
[[allow]]
who  = "sub:{name}"
what = ["file:///docs/**", "tide://**"]

[[deny]]
name = "no private files"
who  = "anyone"
what = ["file:///docs/private/**", "tide://map"]
"""


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**ENVIRONMENT, **env}, timeout=60)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "private").mkdir(parents=True)
    (folder / "a.md").write_text("everyone")
    (folder / "private" / "pay.md").write_text("secret")
    return folder


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """A token for each of two people, in tokens.json."""
    commands = {
        name: run("token", "create", "-q", str(tmp_path / "tokens.json"), "--sub", name) for name in ("ann", "bob")
    }
    return {name: completed.stdout.strip() for name, completed in commands.items()}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.toml"
    file.write_text(RULES.format(name="ann"))
    return file


def url_of(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return next(found[1] for line in server.stdout if (found := re.search(r"MCP  (\S+)", line)))


def list_resources(url: str, token: str) -> str:
    return run("ls", "--token-env", "TOKEN", url, TOKEN=token).stdout


def replace(file: Path, text: str) -> None:
    """Replace a file at once, so that nobody reads a part of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def line_with(server: subprocess.Popen[str], text: str) -> str:
    """Read stderr up to a line that contains a text."""
    assert server.stderr is not None
    return next(line for line in server.stderr if text in line)


def test_a_policy_is_enforced_and_replaced_without_a_restart(
    start: Start, docs: Path, tokens: dict[str, str], policy: Path, tmp_path: Path
) -> None:
    server = start("serve", "--http", "127.0.0.1:0", "--tokens", "tokens.json", "--policy", "policy.toml", "docs")
    url = url_of(server)
    assert "file:///docs/a.md" in list_resources(url, tokens["ann"])
    assert "private" not in list_resources(url, tokens["ann"])
    assert "a.md" not in list_resources(url, tokens["bob"])
    hidden = run("read", "--token-env", "TOKEN", url, "file:///docs/private/pay.md", TOKEN=tokens["ann"])
    nothing = run("read", "--token-env", "TOKEN", url, "file:///docs/private/pox.md", TOKEN=tokens["ann"])
    assert hidden.returncode == nothing.returncode == 1
    assert hidden.stderr.replace("pay", "pox") == nothing.stderr
    assert "docs" not in run("inspect", "--token-env", "TOKEN", "--no-probe", url, TOKEN=tokens["bob"]).stdout
    replace(policy, RULES.format(name="bob"))
    wait_until(lambda: "a.md" in list_resources(url, tokens["bob"]), "the new policy applies")
    assert "a.md" not in list_resources(url, tokens["ann"])
    assert "The policy was read again from policy.toml" in line_with(server, "policy")
    replace(policy, "[[allow]]\nwhoo = 1")
    line = line_with(server, "The old policy stays")
    assert "allow 1: " in line
    assert "a.md" in list_resources(url, tokens["bob"])


@pytest.mark.parametrize("inline", [False, True])
def test_the_command_for_a_host_that_uses_stdio_has_the_same_rules(
    start: Start, docs: Path, policy: Path, tmp_path: Path, inline: bool
) -> None:
    rules = RULES.format(name="ann").replace("sub:ann", "local")
    policy.write_text(rules)
    file = tmp_path / "wharfinger.toml"
    file.write_text('sources = "docs"\nhttp = "127.0.0.1:0"\n' + rules)
    options = ("-f", "wharfinger.toml") if inline else ("--http", "127.0.0.1:0", "--policy", "policy.toml", "docs")
    server = start("serve", *options)
    assert server.stdout is not None
    line = next(line for line in server.stdout if "Claude Desktop" in line)
    command = shlex.split(line.partition("    (")[0])
    listed = run("ls", *command[command.index("--") :]).stdout
    assert "file:///docs/a.md" in listed
    assert "private" not in listed


def test_the_command_for_a_host_runs_a_file_with_the_same_rules(start: Start, policy: Path, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(TIDE_SERVER)
    policy.write_text(RULES.format(name="ann").replace("sub:ann", "local"))
    server = start("run", "--http", "127.0.0.1:0", "--policy", "policy.toml", "server.py")
    assert server.stdout is not None
    line = next(line for line in server.stdout if "Claude Desktop" in line)
    command = shlex.split(line.partition("    (")[0])
    listed = run("ls", *command[command.index("--") :]).stdout
    assert "tide://" in listed
    assert "tide://map" not in listed


def test_sighup_reads_the_policy_and_the_certificate_again(
    start: Start, docs: Path, tokens: dict[str, str], policy: Path, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None or not hasattr(signal, "SIGHUP"):
        pytest.skip("no openssl, or no such signal")
    files = [
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    (tmp_path / "wharfinger.toml").write_text(
        'sources = "docs"\nhttp = "127.0.0.1:0"\ntokens = "tokens.json"\npolicy = "policy.toml"\n'
        'tls_cert = "cert.pem"\ntls_key = "key.pem"\n'
    )
    server = start("serve", "-f", str(tmp_path / "wharfinger.toml"), cwd="/")
    url = url_of(server)
    assert url.startswith("https://")
    trusted = {"SSL_CERT_FILE": str(tmp_path / "cert.pem")}
    completed = run("read", "--token-env", "TOKEN", url, "file:///docs/a.md", TOKEN=tokens["ann"], **trusted)
    assert completed.stdout.strip() == "everyone"
    before = policy.stat()
    policy.write_text(RULES.format(name="bob"))
    os.utime(policy, ns=(before.st_atime_ns, before.st_mtime_ns))  # only SIGHUP can show that it has changed
    server.send_signal(signal.SIGHUP)
    line_with(server, "The certificate was read again")
    line_with(server, "The policy was read again")
    completed = run("read", "--token-env", "TOKEN", url, "file:///docs/a.md", TOKEN=tokens["bob"], **trusted)
    assert completed.stdout.strip() == "everyone"
    server.terminate()
    assert server.wait(20) == 0


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [("[[allow]]\nwhoo = 1", [], "allow 1: "), ("[[allow", [], "policy.toml"),
     ('[[test]]\nname = "staff reads"\nas = { sub = "x" }\nallow = "read file:///docs/a.md"', [],
      "staff reads fails: 'read file:///docs/a.md' is refused because no rule allows it"),
     (None, [], "policy.toml cannot be read: No such file"), ("", ["--policy-report-only"], ""),
     ('[[allow]]\nwho = "sub:ann"\nissuer = "https://id.example"', ["--http", "127.0.0.1:0", "--tokens", "tokens.json"],
      "allow 1: this server does not trust the issuer 'https://id.example'")],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_stops_the_start(
    start: Start, docs: Path, tokens: dict[str, str], policy: Path, text: str | None, arguments: list[str], message: str
) -> None:
    if text is None:
        policy.unlink()
    else:
        policy.write_text(text)
    rules = ["--policy", "policy.toml"] if message else []
    server = start("serve", *(arguments or ["--stdio"]), *rules, "docs")
    _, errors = server.communicate(timeout=30)
    assert server.returncode == 2
    assert (message or "--policy-report-only needs a policy") in errors
    assert "Traceback" not in errors


def test_report_only_serves_everything_and_logs_what_would_be_refused(
    start: Start, docs: Path, tokens: dict[str, str], policy: Path
) -> None:
    options = ("--tokens", "tokens.json", "--policy", "policy.toml", "--policy-report-only")
    server = start("serve", "--http", "127.0.0.1:0", *options, "docs")
    url = url_of(server)
    assert "file:///docs/private/pay.md" in list_resources(url, tokens["bob"])
    completed = run("read", "--token-env", "TOKEN", url, "file:///docs/private/pay.md", TOKEN=tokens["ann"])
    assert completed.stdout.strip() == "secret"
    line = line_with(server, "would refuse ann")
    assert "read file:///docs/private/pay.md, by no private files." in line


def test_run_enforces_a_policy_over_stdio(policy: Path, tmp_path: Path) -> None:
    (tmp_path / "harbour.py").write_text(TIDE_SERVER)
    policy.write_text(RULES.format(name="ann").replace("sub:ann", "local"))
    command = [*COMMAND, "run", "--stdio", "--policy", str(policy), str(tmp_path / "harbour.py")]
    output = run("ls", "--", *command).stdout
    assert "tide://now" in output
    assert "tide://map" not in output
    assert "rise" not in run("ls", "--tools", "--", *command).stdout


def test_the_start_page_hides_the_resources_of_a_server_with_a_policy(
    start: Start, docs: Path, policy: Path, tmp_path: Path
) -> None:
    from urllib.request import Request, urlopen

    policy.write_text(RULES.format(name="ann").replace("sub:ann", "local"))
    url = url_of(start("serve", "--http", "127.0.0.1:0", "--policy", "policy.toml", "docs"))
    address = url.removesuffix("mcp")
    with urlopen(address, timeout=20) as page:
        text = page.read().decode()
    assert url in text
    for hidden in ("pay.md", "a.md", "file://", str(docs), "2 files"):
        assert hidden not in text
    with pytest.raises(OSError, match="404"):
        urlopen(Request(f"{address}read?uri=file:///docs/a.md", headers={"Sec-Fetch-Site": "none"}), timeout=20)
