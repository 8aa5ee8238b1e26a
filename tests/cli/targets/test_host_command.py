"""`wharfinger add` runs the hosts' own commands. Scripts on PATH replace them and record their arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wharfinger.cli import main
from wharfinger.cli.executable import own_command
from wharfinger.cli.targets import host_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts need a shebang")

URL = "https://harbour.test/mcp"
PROGRAM = """#!{python}
import json, os, sys, time
with open({record!r}, "a") as record:
    record.write(json.dumps(sys.argv[1:]) + "\\n")
print({prints!r})
time.sleep({sleeps})
sys.exit({code})
"""


class FakeHosts:
    """A folder on PATH with the commands of hosts, which record their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.record = folder, folder / "record"

    def install(self, name: str, *, prints: str = "stored", code: int = 0, sleeps: float = 0) -> str:
        program = self.folder / name
        record = str(self.record)
        program.write_text(
            PROGRAM.format(python=sys.executable, record=record, prints=prints, code=code, sleeps=sleeps)
        )
        program.chmod(0o755)
        return str(program)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHosts:
    (tmp_path / "bin").mkdir()
    (tmp_path / "charts").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return FakeHosts(tmp_path / "bin")


@pytest.fixture
def add(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*args: str) -> tuple[int, str, str]:
        code = main(["add", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def stdio_entry(home: Path, **fields: Any) -> dict[str, Any]:
    program = own_command()
    args = [*program[1:], "serve", "--stdio", str(home / "charts")]
    return {"type": "stdio", "command": program[0], "args": args, **fields}


def http_entry(reference: str) -> dict[str, Any]:
    return {"type": "http", "url": URL, "headers": {"X-A": "b", "Authorization": f"Bearer {reference}"}}


def without_json(call: list[str]) -> list[Any]:
    return [json.loads(word) if word.startswith("{") else word for word in call]


def test_claude_code_gets_the_entry_as_json(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    hosts.install("claude")
    assert add("claude-code", "charts", "--env", "A=b=c")[0] == 0
    assert add("claude-code", "--project", URL, "--header", "X-A: b", "--token-env", "T")[0] == 0
    first, second = map(without_json, hosts.calls)
    assert first == ["mcp", "add-json", "--scope", "user", "charts", stdio_entry(tmp_path, env={"A": "b=c"})]
    assert second == ["mcp", "add-json", "--scope", "project", "harbour-test", http_entry("${T}")]
    assert not (tmp_path / ".claude.json").exists()
    assert not (tmp_path / ".mcp.json").exists()


def test_vs_code_gets_the_entry_with_its_name(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    hosts.install("code")
    assert add("vscode", "charts")[0] == 0
    assert add("vscode", URL, "--header", "X-A: b", "--token-env", "T")[0] == 0
    first, second = map(without_json, hosts.calls)
    assert first == ["--add-mcp", {"name": "charts", **stdio_entry(tmp_path)}]
    assert second == ["--add-mcp", {"name": "harbour-test", **http_entry("${env:T}")}]


def test_codex_gets_options(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    hosts.install("codex")
    assert add("codex", "charts", "--env", "A=b=c", "--env", "D=")[0] == 0
    assert add("codex", URL, "--token-env", "T")[0] == 0
    server = stdio_entry(tmp_path)
    assert hosts.calls == [
        ["mcp", "add", "--env", "A=b=c", "--env", "D=", "charts", "--", server["command"], *server["args"]],
        ["mcp", "add", "harbour-test", "--url", URL, "--bearer-token-env-var", "T"],
    ]


@pytest.mark.parametrize(
    ("args", "file"),
    [
        (("codex", URL, "--header", "X-A: b"), ".codex/config.toml"),
        (("codex", "--project", "charts"), ".codex/config.toml"),
        (("vscode", "--project", "charts"), ".vscode/mcp.json"),
        (("claude-code", "--file", "own.json", "charts"), "own.json"),
        (("gemini", "charts"), ".gemini/settings.json"),
        (("cursor", "charts"), ".cursor/mcp.json"),
    ],
)
def test_settings_that_a_command_lacks_are_written_to_the_file(
    hosts: FakeHosts, add: Any, tmp_path: Path, args: tuple[str, ...], file: str
) -> None:
    for name in ("claude", "code", "codex", "gemini", "cursor"):
        hosts.install(name)
    assert add(*args)[0] == 0
    assert hosts.calls == []
    assert (tmp_path / file).exists()


def test_the_command_is_shown_with_its_output(hosts: FakeHosts, add: Any) -> None:
    program = hosts.install("codex", prints="Added\x1b[31m. Now run `codex mcp login`.")
    code, out, _ = add("codex", URL)
    assert code == 0
    assert out.startswith(f"$ {program} mcp add harbour-test --url {URL}\nAdded")
    assert "Now run `codex mcp login`.\nAdded harbour-test. Restart codex" in out
    assert "\x1b" not in out
    assert add("codex", URL, "-q")[1] == ""


def test_a_dry_run_shows_the_command_and_does_not_run_it(hosts: FakeHosts, add: Any) -> None:
    program = hosts.install("codex")
    assert add("codex", "--dry-run", URL) == (0, f"{program} mcp add harbour-test --url {URL}\n", "")
    assert hosts.calls == []


def test_an_existing_name_is_removed_first_if_the_host_refuses_duplicates(
    hosts: FakeHosts, add: Any, tmp_path: Path
) -> None:
    (tmp_path / ".claude.json").write_text('{"mcpServers": {"charts": {"command": "old"}}}')
    hosts.install("claude")
    code, out, _ = add("claude-code", "charts")
    assert code == 0
    assert "Replaced charts." in out
    assert hosts.calls[0] == ["mcp", "remove", "--scope", "user", "charts"]
    assert hosts.calls[1][:5] == ["mcp", "add-json", "--scope", "user", "charts"]


def test_the_old_entry_is_restored_if_the_new_one_is_refused(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    """A bug: the old entry was removed first, and lost if the new one could not be added."""
    file, old_entry = tmp_path / ".claude.json", {"command": "old"}
    file.write_text(json.dumps({"mcpServers": {"charts": old_entry}, "theme": "dark"}))
    program = Path(hosts.install("claude"))
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "if sys.argv[2] != 'remove':\n"
        "    sys.exit('Invalid configuration')\n"
        f"with open({str(file)!r}, 'w') as file:\n"
        """    file.write('{"mcpServers": {}, "theme": "light"}')\n"""
    )
    code, out, err = add("claude-code", "charts")
    assert code == 1
    assert "Replaced" not in out
    assert "/claude ended with exit code 1." in err
    assert "| Invalid configuration" in err
    assert f"| The entry charts that was there before was written to {file} again." in err
    assert json.loads(file.read_text()) == {"mcpServers": {"charts": old_entry}, "theme": "light"}


def test_an_identical_entry_is_not_added_again(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    (tmp_path / ".claude.json").write_text(json.dumps({"mcpServers": {"charts": stdio_entry(tmp_path)}}))
    hosts.install("claude")
    assert "already" in add("claude-code", "charts")[1]
    assert hosts.calls == []


def test_a_server_is_removed_by_the_command_if_there_is_one(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    (tmp_path / ".claude.json").write_text('{"mcpServers": {"charts": {"command": "old"}}}')
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text('[mcp_servers.charts]\ncommand = "old"\n')
    (tmp_path / ".config/Code/User").mkdir(parents=True)
    (tmp_path / ".config/Code/User/mcp.json").write_text('{"servers": {"charts": {"command": "old"}}}')
    for name in ("claude", "code", "codex"):
        hosts.install(name)
    assert add("claude-code", "--remove", "charts")[0] == 0
    assert add("codex", "--remove", "charts")[0] == 0
    assert hosts.calls == [["mcp", "remove", "--scope", "user", "charts"], ["mcp", "remove", "charts"]]
    assert add("claude-code", "--remove", "other")[0] == 1
    if sys.platform == "linux":  # VS Code's file is elsewhere on macOS, and VS Code has no command for this
        assert add("vscode", "--remove", "charts")[0] == 0
        assert "charts" not in (tmp_path / ".config/Code/User/mcp.json").read_text()
    assert len(hosts.calls) == 2


def test_a_failed_command_is_reported_with_its_output(hosts: FakeHosts, add: Any, tmp_path: Path) -> None:
    program = hosts.install("claude", prints="x" * 5000 + "\nInvalid name", code=3)
    code, out, err = add("claude-code", "charts", "--env", "CREW=limpet")
    assert code == 1
    assert "Added" not in out
    assert "limpet" not in err
    assert f"{program} ended with exit code 3. To edit the file instead: --file {tmp_path}/.claude.json" in err
    assert err.rstrip().endswith("| Invalid name")
    assert err.count("x" * 4000) == 1
    assert err.count("x" * 4096) == 0
    assert not (tmp_path / ".claude.json").exists()


def test_a_command_that_does_not_end_is_stopped(hosts: FakeHosts, add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_command, "COMMAND_SECONDS", 0.5)
    hosts.install("codex", sleeps=60)
    code, _, err = add("codex", URL)
    assert code == 1
    assert "was stopped after 0 s" in err


def test_a_command_that_cannot_be_started_is_reported(hosts: FakeHosts, add: Any) -> None:
    (hosts.folder / "codex").write_bytes(b"#!/no/such/interpreter\n")
    (hosts.folder / "codex").chmod(0o755)
    code, _, err = add("codex", URL)
    assert code == 1
    assert "could not be started (No such file or directory)" in err


def test_a_batch_file_is_not_run_on_windows(hosts: FakeHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.install("code")
    assert host_command.program_path("vscode").endswith("/code")
    monkeypatch.setattr("shutil.which", lambda name: f"C:\\bin\\{name}.CMD")
    monkeypatch.setattr(sys, "platform", "win32")
    assert host_command.program_path("vscode") == ""
