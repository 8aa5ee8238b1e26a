"""Servers are found by name in the files of hosts, and missing parts of an entry are reported."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from wharfinger.cli import main
from wharfinger.cli.targets.configured_servers import look_up, resolve
from wharfinger.upstreams.config_files import all_servers, servers_in
from wharfinger.upstreams.host_formats import HOSTS, user_file
from wharfinger.upstreams.placeholders import InvalidConfiguration, variable_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and project."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME", "WHARFINGER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def write(file: Path, message: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(message if isinstance(message, str) else json.dumps(message))
    return file


def context() -> click.Context:
    return click.Context(click.Command("ls"))


def resolved(message: dict[str, Any], **top: Any) -> Any:
    file = write(Path("one.json"), {"mcpServers": {"it": message}, **top})
    return resolve(context(), servers_in(file)[0])


LOCAL = {"command": "server", "args": ["--fast"]}


@pytest.mark.parametrize("host", HOSTS)
def test_the_file_of_every_host_is_searched(host: str) -> None:
    if HOSTS[host].table == "mcp_servers":
        write(user_file(HOSTS[host]), '[mcp_servers.it]\ncommand = "server"\nargs = ["--fast"]\n')
    else:
        write(user_file(HOSTS[host]), {HOSTS[host].table: {"it": LOCAL}})
    found = look_up(context(), "it", None)
    assert found is not None
    assert resolve(context(), found).target == ["server", "--fast"]
    assert resolve(context(), found).cwd is None
    assert [server.name for server in all_servers(None)[0]] == ["it"]


@pytest.mark.parametrize("file", ["mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"])
def test_project_files_in_the_current_folder_are_searched(file: str) -> None:
    write(Path(file), {"servers" if "vscode" in file else "mcpServers": {"it": LOCAL}})
    assert [server.name for server in all_servers(None)[0]] == ["it"]


def test_comments_trailing_commas_and_a_byte_order_mark_are_read() -> None:
    file = write(Path("a.json"), '\ufeff{ // c\n "servers": {"it": {"url": "http://x//y",}, /* , */ }, }')
    assert [(server.name, server.address) for server in servers_in(file)] == [("it", "http://x//y")]


@pytest.mark.parametrize(
    ("text", "expected"), [("{", "line 1"), ("[]", "line 1, column 1"), ('{"a" 1}', "column 6"), ("\udcff", "UTF-8")]
)
def test_a_file_that_cannot_be_read_says_where(text: str, expected: str) -> None:
    Path("a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidConfiguration, match=expected):
        servers_in(Path("a.json"))
    Path("a.json").rename("mcp.json")
    assert all_servers(None) == ([], [all_servers(None)[1][0]])


def test_endless_nesting_does_not_crash() -> None:
    with pytest.raises(InvalidConfiguration):
        servers_in(write(Path("a.json"), '{"a":' + "[" * 100_000))


def test_servers_of_claude_code_for_this_project_are_found(home: Path) -> None:
    here = str(Path.cwd())
    write(
        home / ".claude.json",
        {"projects": {here: {"mcpServers": {"it": LOCAL}}, "/else": {"mcpServers": {"no": LOCAL}}}},
    )
    assert [server.name for server in all_servers(None)[0]] == ["it"]


def test_an_entry_without_command_and_url_is_skipped() -> None:
    file = write(Path("a.json"), {"mcpServers": {"a": None, "b": {}, "c": [], "d": {"command": ""}, "e": LOCAL}})
    assert [server.name for server in servers_in(file)] == ["e"]


def test_variables_are_filled_in_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    found = resolved(
        {
            "command": "${TOKEN}",
            "args": ["${env:TOKEN}-${NONE:-d}", "${workspaceFolder}", 5],
            "env": {"A": "${TOKEN}", "B": 1, "C": True, "D": None},
            "cwd": "sub",
        }
    )
    assert found.target == ["s3cret", "s3cret-d", str(Path.cwd()), "5"]
    assert found.env == {"A": "s3cret", "B": "1", "C": "true"}
    assert found.cwd == "sub"
    remote = resolved({"httpUrl": "https://${TOKEN}.test/", "headers": {"X": "Bearer ${TOKEN}"}})
    assert (remote.target, remote.headers) == ("https://s3cret.test/", {"X": "Bearer s3cret"})


def test_variables_of_codex_become_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    file = write(
        Path("config.toml"),
        '[mcp_servers.it]\nurl = "https://x.test/"\nbearer_token_env_var = "TOKEN"\n'
        'http_headers = { A = "b" }\nenv_http_headers = { C = "TOKEN" }\n',
    )
    assert resolve(context(), servers_in(file)[0]).headers == {"A": "b", "C": "t", "Authorization": "Bearer t"}


def test_an_env_file_is_read() -> None:
    write(Path("it.env"), "# c\nA=1\nexport B='two words'\n\nC=\n")
    assert resolved({"command": "x", "envFile": "${workspaceFolder}/it.env", "env": {"A": "2"}}).env == {
        "A": "2",
        "B": "two words",
        "C": "",
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"command": "x", "env": {"A": "${NO_SUCH}"}}, r"'it' in one.json needs the variable NO_SUCH \(env A\)"),
        ({"command": "x", "args": ["${env:NO_SUCH}"]}, r"NO_SUCH \(args 1\), which is not set"),
        ({"url": "http://x", "headers": {"A": "${input:key}"}}, r"the input 'key' .*API key.*WHARFINGER_INPUT_KEY"),
        ({"command": "${command:pick}"}, "only its own host"),
        ({"command": "x", "args": "y"}, "args is not a list"),
        ({"command": "x", "env": "y"}, "env is not an object"),
        ({"command": "x", "envFile": "none"}, "envFile"),
    ],
)
def test_a_missing_value_is_reported_with_its_field(message: dict[str, Any], expected: str) -> None:
    with pytest.raises(click.UsageError, match=expected):
        resolved(message, inputs=[{"id": "key", "description": "API key"}, None, {}])


def test_an_input_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable_of("api-key"), "k")
    assert resolved({"command": "x", "args": ["${input:api-key}"]}).target == ["x", "k"]


def test_one_name_for_two_servers_is_reported_with_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path(".mcp.json"), {"mcpServers": {"it": LOCAL}})
    write(Path("mcp.json"), {"mcpServers": {"it": LOCAL}})
    assert look_up(context(), "it", None) is not None  # two equal entries are not ambiguous
    write(Path(".vscode/mcp.json"), {"servers": {"it": {"command": "other"}}})
    assert main(["ls", "it"]) == 2
    reported = capsys.readouterr().err
    assert ".mcp.json" in reported
    assert ".vscode/mcp.json" in reported
    assert "--config FILE" in reported
    chosen = look_up(context(), "it", Path(".vscode/mcp.json"))
    assert chosen is not None
    assert chosen.entry["command"] == "other"


def test_an_unknown_name_is_reported_with_the_existing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("mcp.json"), {"mcpServers": {"harbour": LOCAL}})
    write(Path(".mcp.json"), "{")
    assert main(["ls", "habour"]) == 2
    reported = capsys.readouterr().err
    assert "(harbour)" in reported
    assert ".mcp.json, line 1" in reported
    assert main(["ls", "--config", "none.json", "harbour"]) == 2
    assert "No such file: none.json" in capsys.readouterr().err
    assert main(["ls", "--config", ".mcp.json", "harbour"]) == 2
    assert "line 1" in capsys.readouterr().err


def test_a_server_is_reached_by_its_name(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets the environment and folder of its entry, and --env takes precedence."""
    write(
        Path("sub/place.py"),
        "import os\nfrom wharfinger import Server\nserver = Server('s')\n"
        "@server.tool\ndef where() -> str:\n    here = os.path.basename(os.getcwd())\n"
        '    return f\'{here} {os.environ["A"]} {os.environ["B"]}\'\n'
        "server.run()\n",
    )
    message = {"command": sys.executable, "args": ["place.py"], "cwd": "sub", "env": {"A": "${MINE}", "B": "b"}}
    write(Path("mine.json"), {"mcpServers": {"here": message}})
    monkeypatch.setenv("MINE", "a")
    assert main(["call", "--config", "mine.json", "here", "where"]) == 0
    assert capfd.readouterr().out == "sub a b\n"
    monkeypatch.setenv("WHARFINGER_CONFIG", "mine.json")
    assert main(["call", "--env", "B=c", "here", "where"]) == 0
    assert capfd.readouterr().out == "sub a c\n"


def test_a_secret_that_was_filled_in_is_not_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    write(Path("mcp.json"), {"mcpServers": {"it": {"url": "http://127.0.0.1:9/mcp", "headers": {"A": "${TOKEN}"}}}})
    assert main(["inspect", "it"]) == 3
    assert "s3cret" not in capfd.readouterr().err
