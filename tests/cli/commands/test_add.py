"""`wharfinger add` edits the file of every host: it merges, keeps a backup, shows a diff and removes servers."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wharfinger.cli.app import wharfinger
from wharfinger.cli.error_report import report_error
from wharfinger.cli.executable import own_command

FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "vscode": ".config/Code/User/mcp.json",
    "cursor": ".cursor/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
}
TABLES = {"vscode": "servers", "codex": "mcp_servers"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hosts' files are elsewhere on this platform")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is also the current folder. It contains the folder `charts`. PATH is its folder `bin`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "charts").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ls").symlink_to("/bin/ls")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # none of the hosts' commands
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(*args: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(wharfinger, ["add", *args])


def entries(home: Path, host: str) -> dict[str, Any]:
    """Read the servers from the host's file."""
    text = (home / FILES[host]).read_text()
    document = tomllib.loads(text) if host == "codex" else json.loads(text)
    servers = document[TABLES.get(host, "mcpServers")]
    assert isinstance(servers, dict)
    return servers


@pytest.mark.parametrize("host", FILES)
def test_a_folder_is_added_with_absolute_paths(home: Path, host: str) -> None:
    result = add(host, "charts")
    assert result.exit_code == 0, result.output
    assert str(home / FILES[host]) in result.output
    kind = {"type": "stdio"} if host in ("claude-code", "vscode") else {}
    program = own_command()
    assert Path(program[0]).is_absolute()
    assert entries(home, host) == {
        "charts": {**kind, "command": program[0], "args": [*program[1:], "serve", "--stdio", str(home / "charts")]}
    }


URLS = {
    "claude-code": {"type": "http", "url": "U", "headers": {"X-A": "b", "Authorization": "Bearer ${T}"}},
    "vscode": {"type": "http", "url": "U", "headers": {"X-A": "b", "Authorization": "Bearer ${env:T}"}},
    "cursor": {"url": "U", "headers": {"X-A": "b", "Authorization": "Bearer ${env:T}"}},
    "codex": {"url": "U", "bearer_token_env_var": "T", "http_headers": {"X-A": "b"}},
    "gemini": {"httpUrl": "U", "headers": {"X-A": "b", "Authorization": "Bearer ${T}"}},
}


@pytest.mark.parametrize("host", URLS)
def test_a_url_is_added_and_the_token_stays_in_its_variable(
    home: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T", "very secret")
    url = "https://harbour.test/mcp"
    result = add(host, url, "--token-env", "T", "--header", "X-A: b")
    assert result.exit_code == 0, result.output
    assert entries(home, host) == {"harbour-test": json.loads(json.dumps(URLS[host]).replace('"U"', f'"{url}"'))}
    assert "very secret" not in (home / FILES[host]).read_text()


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("https://me:s3cret@harbour.test/mcp", True),
        ("https://harbour.test/mcp?api_key=s3cret", True),
        ("https://me@harbour.test/mcp?zone=north", False),
        ("https://harbour.test/mcp?api_key=${env:KEY}", False),
    ],
)
def test_a_password_in_a_url_is_stored_with_a_warning(home: Path, url: str, warns: bool) -> None:
    """A bug: it was stored without a word."""
    warning = f"the password or token in the URL is stored as plain text in {home}/.cursor/mcp.json"
    assert warning not in add("cursor", url, "--dry-run").output
    result = add("cursor", url)
    assert (result.exit_code, warning in result.output) == (0, warns)
    assert entries(home, "cursor") == {"harbour-test": {"url": url}}
    assert warning not in add("cursor", "--remove", "harbour-test").output


def test_a_url_for_claude_desktop_is_refused(home: Path) -> None:
    result = add("claude-desktop", "https://harbour.test/mcp")
    assert result.exit_code == 2
    assert "stdio only" in result.output
    assert not (home / FILES["claude-desktop"]).exists()


@pytest.mark.parametrize("host", FILES)
def test_the_rest_of_the_file_stays_and_a_backup_is_kept(home: Path, host: str) -> None:
    file = home / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    before = 'model = "x" # mine\n' if host == "codex" else '{\n    // mine\n    "theme": "dark"\n}\n'
    file.write_text(before)
    file.chmod(0o640)
    assert add(host, "charts").exit_code == 0
    assert file.with_name(file.name + ".wharfinger.bak").read_text() == before
    assert "mine" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    after = file.read_text()
    assert "already" in add(host, "charts").output
    assert file.read_text() == after
    removed = add(host, "--remove", "charts")
    assert removed.exit_code == 0
    assert not re.search("/mcp shows it|asks before it starts|to start it", removed.output)
    assert "charts" not in file.read_text()
    assert "mine" in file.read_text()
    assert add(host, "--remove", "charts").exit_code == 1
    backups = [path.name for path in file.parent.iterdir() if path.name.startswith(file.name + ".")]
    assert backups == [file.name + ".wharfinger.bak"]
    assert file.with_name(backups[0]).read_text() == after


def test_the_backup_follows_no_link_and_replaces_no_backup_of_others(home: Path) -> None:
    file = home / FILES["claude-code"]
    file.write_text("{}")
    file.with_name(file.name + ".bak").write_text("somebody else's")
    file.with_name(file.name + ".wharfinger.bak").symlink_to(home / "elsewhere")
    assert add("claude-code", "charts").exit_code == 0
    assert file.with_name(file.name + ".bak").read_text() == "somebody else's"
    assert not (home / "elsewhere").exists()
    assert file.with_name(file.name + ".wharfinger.bak").read_text() == "{}"


def test_removing_an_unknown_name_lists_the_known_ones(home: Path) -> None:
    assert add("claude-code", "charts").exit_code == 0
    assert "Did you mean 'charts'?" in add("claude-code", "--remove", "chart").output
    assert "It has: charts." in add("claude-code", "--remove", "nothing").output


def test_a_dry_run_shows_the_difference_and_writes_nothing(home: Path) -> None:
    result = add("cursor", "--dry-run", "charts")
    assert result.exit_code == 0
    assert result.output.startswith(f"--- {home}/.cursor/mcp.json\n+++ ")
    assert '+    "charts": {\n' in result.output
    assert not (home / ".cursor").exists()


def test_a_link_stays_a_link(home: Path) -> None:
    """Users keep these files in a repository and link to them."""
    (home / "real.json").write_text("{}")
    (home / ".claude.json").symlink_to(home / "real.json")
    assert add("claude-code", "charts").exit_code == 0
    assert (home / ".claude.json").is_symlink()
    assert "charts" in (home / "real.json").read_text()


def test_an_invalid_file_is_left_unchanged_and_the_entry_is_shown(home: Path) -> None:
    (home / ".claude.json").write_text('{"mcpServers": [')
    result = add("claude-code", "charts")
    assert result.exit_code == 1
    assert "by hand" in result.output
    assert '"serve"' in result.output
    assert (home / ".claude.json").read_text() == '{"mcpServers": ['


@pytest.mark.parametrize(
    ("args", "name", "command"),
    [
        (["--", "ls", "-l", "./charts"], "ls", ["-l", "{home}/charts"]),
        (["--", "ls", "some-server@1.2"], "ls", ["some-server@1.2"]),
        (["--", sys.executable, "-m", "some.server"], "some", ["-m", "some.server"]),
        (["--env", "A=b=c", "--name", "x", "--", "ls"], "x", []),
    ],
)
def test_a_command_is_made_absolute(home: Path, args: list[str], name: str, command: list[str]) -> None:
    assert add("cursor", *args).exit_code == 0
    entry = entries(home, "cursor")[name]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == [word.format(home=home) for word in command]
    assert entry.get("env") == ({"A": "b=c"} if "--env" in args else None)


def test_a_python_file_is_run_and_several_folders_are_one_server(home: Path) -> None:
    (home / "harbour.py").write_text("")
    (home / "maps").mkdir()
    assert add("cursor", "harbour.py:server").exit_code == 0
    assert add("cursor", "charts", "old=maps").exit_code == 0
    servers = entries(home, "cursor")
    assert servers["harbour"]["args"][-3:] == ["run", "--stdio", f"{home}/harbour.py:server"]
    assert servers["charts-old"]["args"][-3:] == ["--stdio", f"{home}/charts", f"old={home}/maps"]


@pytest.mark.parametrize(
    "target", ["tide.py", "tide.py:server", "./charts", "git:charts", "old=charts", "sqlite:///shop.db"]
)
def test_a_server_is_removed_by_the_target_that_added_it(home: Path, target: str) -> None:
    """A bug: `tide.py:server` was added as `tide`, and looked for under its whole name; so were words of `serve`."""
    (home / "tide.py").touch()
    assert add("cursor", target).exit_code == 0
    assert add("cursor", "--remove", target).exit_code == 0
    assert entries(home, "cursor") == {}


@pytest.mark.parametrize("name", ["@harbour/tide", "git:charts"])
def test_a_server_is_removed_by_its_name_whatever_it_contains(home: Path, name: str) -> None:
    """A bug: a name with a slash was taken for a path, and its last part was looked for."""
    (home / ".cursor").mkdir()
    (home / FILES["cursor"]).write_text(json.dumps({"mcpServers": {name: {"command": "ls"}}}))
    assert add("cursor", "--remove", name).exit_code == 0
    assert entries(home, "cursor") == {}


@pytest.mark.parametrize("target", [[], ["charts"]])
def test_the_server_of_name_is_removed_rather_than_that_of_the_target(home: Path, target: list[str]) -> None:
    for name in ("charts", "maps"):
        assert add("cursor", "--name", name, "charts").exit_code == 0
    assert add("cursor", "--remove", "--name", "maps", *target).exit_code == 0
    assert list(entries(home, "cursor")) == ["charts"]


def test_without_a_home_folder_a_file_must_be_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, the error was a RuntimeError."""
    monkeypatch.setenv("HOME", "relative")
    error = add("cursor", "charts").exception
    assert isinstance(error, FileNotFoundError) and str(error) == "there is no home folder: set HOME"
    assert add("cursor", "charts", "--file", "mcp.json").exit_code == 0
    assert "charts" in (home / "mcp.json").read_text()


def test_project_writes_the_file_of_the_project(home: Path) -> None:
    assert add("vscode", "--project", "charts").exit_code == 0
    assert "charts" in (home / ".vscode/mcp.json").read_text()
    assert add("claude-desktop", "--project", "charts").exit_code == 2


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nohost", "charts"], "is not one of"),
        (["cursor"], "Missing TARGET"),
        (["cursor", "nowhere"], "no such folder"),
        (["cursor", "--", "no-such-command-here"], "no such command"),
        (["cursor", "--"], "after `--`"),
        (["cursor", "charts", "--header", "A: b"], "for a URL"),
        (["cursor", "http://a/", "--header", "nonsense"], "NAME:VALUE"),
        (["cursor", "--remove"], "name of the server"),
        (["cursor", "--remove", "charts", "--", "ls"], "name of the server"),
        (["cursor", "https://a:99999/mcp"], "is not a URL"),
        (["cursor", "--remove", "http://[::1/mcp"], "is not a URL"),
    ],
)
def test_a_usage_error_names_its_cause(home: Path, args: list[str], expected: str) -> None:
    result = add(*args)
    assert result.exit_code == 2
    assert expected in result.output


@pytest.mark.parametrize(
    ("args", "expected"),
    [(["cursor", "nowhere"], "nowhere"), ([], "Choose from: claude-desktop, claude-code, vscode, ")],
)
def test_a_usage_error_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], args: list[str], expected: str
) -> None:
    with pytest.raises(Exception) as caught:
        wharfinger.main(["add", *args], standalone_mode=False)
    assert report_error(caught.value, level=0) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert expected in error
