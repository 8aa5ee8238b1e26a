"""`wharfinger hosts` lists the servers that hosts have configured, starts none, and prints no secret."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from tests.conftest import ROOT
from wharfinger.upstreams.host_formats import HOSTS

SAMPLES = ROOT / "tests" / "upstreams"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("home", "project"):
        (tmp_path / folder).mkdir()
    return tmp_path / "home"


def run(home: Path, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    removed_variables = ("XDG_CONFIG_HOME", "CODEX_HOME", "APPDATA")
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in removed_variables}
    environment |= {"HOME": str(home), "USERPROFILE": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    return subprocess.run(
        [*COMMAND, "hosts", *words],
        capture_output=True, text=True, check=False, env=environment, cwd=folder or home.parent / "project", timeout=60,
    )  # fmt: skip


def write(home: Path, file: str, content: str) -> None:
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(content)


def test_without_any_host_the_searched_files_are_reported(home: Path) -> None:
    result = run(home)
    assert (result.returncode, result.stdout) == (0, "")
    assert "No host has a configuration of servers here. Searched mcp.json, .mcp.json" in result.stderr
    assert str(home / ".claude.json") in result.stderr
    assert run(home, "-q").stderr == ""
    assert run(home, "--json").stdout == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_each_file_is_listed_with_its_servers(home: Path) -> None:
    (home / "config" / "Claude").mkdir(parents=True)
    shutil.copy(SAMPLES / "claude_desktop_config.json", home / "config" / HOSTS["claude-desktop"].user)
    (home.parent / "project" / ".vscode").mkdir()
    shutil.copy(SAMPLES / "vscode_mcp.json", home.parent / "project" / ".vscode" / "mcp.json")
    write(home, ".cursor/mcp.json", '{"mcpServers": {}}')
    write(home, ".gemini/settings.json", "{")
    write(
        home,
        ".codex/config.toml",
        f'[mcp_servers.touch]\ncommand = "touch"\nargs = ["{home}/touched"]\nenabled = false',
    )
    result = run(home)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"claude-desktop  Claude Desktop, {home}/config/Claude/claude_desktop_config.json"
    assert "  git                  uvx mcp-server-git --repository /Users/username/code/tides" in [
        line.rstrip() for line in lines
    ]
    assert any(line.startswith("  touch") and line.endswith("(disabled)") for line in lines)
    assert "VS Code, this folder, .vscode/mcp.json" in lines
    assert "  no server" in lines
    assert any("cannot be read" in line and "line 1" in line for line in lines)
    assert "ghp_example" not in result.stdout
    assert not (home / "touched").exists()
    files = {file["file"]: file for file in map(json.loads, run(home, "--json").stdout.splitlines())}
    assert len(files) == 5
    desktop = files[f"{home}/config/Claude/claude_desktop_config.json"]
    assert (desktop["host"], len(desktop["servers"])) == ("claude-desktop", 10)
    assert "error" in files[f"{home}/.gemini/settings.json"]


def test_entries_that_cannot_be_used_are_listed_with_the_reason(home: Path) -> None:
    servers = {
        "good": {"command": "npx"},
        "slip": {"comand": "npx"},
        "unset": {"command": "npx", "env": {"KEY": "${NO_SUCH_VARIABLE}"}},
        "off": {"command": "npx", "args": ["${NO_SUCH_VARIABLE}"], "disabled": True},
        "address": {"url": "ftp://me:hunter2@example.com"},
    }
    write(home, ".claude.json", json.dumps({"mcpServers": servers}))
    output = run(home).stdout
    lines = {line.split()[0]: line for line in output.splitlines() if line.startswith("  ")}
    assert lines["good"].split() == ["good", "npx"]
    assert lines["slip"].endswith("(has the unknown key 'comand'. Did you mean 'command'?)")
    assert lines["unset"].endswith("(needs the variable NO_SUCH_VARIABLE (env KEY), which is not set)")
    assert lines["off"].endswith("(disabled)")
    assert "http:// or https://" in lines["address"] and "hunter2" not in output
    file = json.loads(run(home, "--json").stdout)
    errors = {server["name"]: server.get("error", "") for server in file["servers"]}
    assert [name for name, error in errors.items() if error] == ["slip", "unset", "address"]


def test_a_file_is_listed_once_in_the_home_folder(home: Path) -> None:
    """A bug: the files of the user were listed again as those of the folder."""
    write(home, ".cursor/mcp.json", '{"mcpServers": {"a": {"command": "npx"}}}')
    linked = home.parent / "linked"
    linked.symlink_to(home)
    for folder in (home, linked):
        lines = run(home, folder=folder).stdout.splitlines()
        assert lines == [f"cursor  Cursor, {home}/.cursor/mcp.json", "  a  npx"]


def test_an_entry_with_an_input_is_not_reported(home: Path) -> None:
    """A bug: the input is asked for when the server is used, and its entry was said to be unusable."""
    servers = {
        "header": {"type": "http", "url": "https://a.test/mcp", "headers": {"Authorization": "Bearer ${input:token}"}},
        "argument": {"command": "npx", "args": ["--zone=${input:zone}"], "env": {"KEY": "${input:token}"}},
        "url": {"url": "${input:url}"},
        "host": {"url": "https://${input:host}:${input:port}/${input:path}"},
        "unset": {"command": "npx", "env": {"A": "${input:token}", "KEY": "${NO_SUCH_VARIABLE}"}},
    }
    (home.parent / "project" / ".vscode").mkdir()
    write(home.parent, "project/.vscode/mcp.json", json.dumps({"servers": servers}))
    file = json.loads(run(home, "--json").stdout)
    assert [server["name"] for server in file["servers"] if "error" in server] == ["unset"]


def test_secrets_are_hidden_and_control_characters_escaped(home: Path) -> None:
    servers = {
        "a\x1b[2J": {"url": "https://me:s3cret@x.test/mcp?token=s3cret"},
        "b": {"command": "x", "args": ["--api-key", "s3cret"], "env": {"A": "s3cret"}},
    }
    write(home, ".claude.json", json.dumps({"mcpServers": servers}))
    for words in ((), ("--json",)):
        result = run(home, *words)
        assert result.returncode == 0
        assert "s3cret" not in result.stdout
        assert "\x1b" not in result.stdout


def test_a_missing_home_folder_is_reported(home: Path) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, the error was a RuntimeError."""
    result = run(Path("relative"), folder=home.parent / "project")
    assert (result.returncode, result.stderr) == (1, "wharfinger: there is no home folder: set HOME\n")
