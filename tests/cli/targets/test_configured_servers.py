"""Servers are found by name in the files of hosts, and missing or invalid parts of an entry are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from wharfinger.cli import main
from wharfinger.cli.targets.configured_servers import look_up, resolve, with_distinct_names
from wharfinger.upstreams import ServerConfig
from wharfinger.upstreams.config_files import all_servers, servers_in
from wharfinger.upstreams.host_formats import HOSTS, user_file
from wharfinger.upstreams.placeholders import InvalidConfiguration, variable_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty home and an empty project, which is the working directory. Return the home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME", "WHARFINGER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


def write(file: Path, content: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def context() -> click.Context:
    return click.Context(click.Command("ls"))


def resolve_entry(entry: dict[str, Any], **top_level: Any) -> Any:
    """Write a file with this server and these members, and return what `resolve` makes of it."""
    file = write(Path("one.json"), {"mcpServers": {"it": entry}, **top_level})
    return resolve(context(), servers_in(file)[0])


LOCAL = {"command": "server", "args": ["--fast"]}


@pytest.mark.parametrize("host", HOSTS)
def test_the_file_of_every_host_is_searched(host: str) -> None:
    if HOSTS[host].table == "mcp_servers":
        write(user_file(HOSTS[host]), '[mcp_servers.it]\ncommand = "server"\nargs = ["--fast"]\n')
    else:
        write(user_file(HOSTS[host]), {HOSTS[host].table: {"it": LOCAL}})
    server = look_up(context(), "it", None)
    assert server is not None
    assert resolve(context(), server).target == ["server", "--fast"]
    assert resolve(context(), server).cwd is None
    assert [server.name for server in all_servers(None)[0]] == ["it"]


@pytest.mark.parametrize("file", ["mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"])
def test_project_files_in_the_current_folder_are_searched(file: str) -> None:
    write(Path(file), {"servers" if "vscode" in file else "mcpServers": {"it": LOCAL}})
    assert [server.name for server in all_servers(None)[0]] == ["it"]


def test_comments_trailing_commas_and_a_byte_order_mark_are_accepted() -> None:
    file = write(Path("a.json"), '\ufeff{ // c\n "servers": {"it": {"url": "http://x//y",}, /* , */ }, }')
    assert [(server.name, server.address) for server in servers_in(file)] == [("it", "http://x//y")]


@pytest.mark.parametrize(
    ("text", "expected"), [("{", "line 1"), ("[]", "line 1, column 1"), ('{"a" 1}', "column 6"), ("\udcff", "UTF-8")]
)
def test_the_error_for_an_invalid_file_has_the_position(text: str, expected: str) -> None:
    Path("a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidConfiguration, match=expected):
        servers_in(Path("a.json"))
    Path("a.json").rename("mcp.json")
    servers, problems = all_servers(None)
    assert (servers, len(problems)) == ([], 1)


def test_deep_nesting_is_an_invalid_configuration() -> None:
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


def test_variables_are_expanded_in_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    local = resolve_entry(
        {
            "command": "${TOKEN}",
            "args": ["${env:TOKEN}-${NONE:-d}", "${workspaceFolder}", 5],
            "env": {"A": "${TOKEN}", "B": 1, "C": True, "D": None},
            "cwd": "sub",
        }
    )
    assert local.target == ["s3cret", "s3cret-d", str(Path.cwd()), "5"]
    assert local.env == {"A": "s3cret", "B": "1", "C": "true"}
    assert local.cwd == "sub"
    remote = resolve_entry({"httpUrl": "https://${TOKEN}.test/", "headers": {"X": "Bearer ${TOKEN}"}})
    assert (remote.target, remote.headers) == ("https://s3cret.test/", {"X": "Bearer s3cret"})


def test_variables_of_codex_become_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    file = write(
        Path("config.toml"),
        '[mcp_servers.it]\nurl = "https://x.test/"\nbearer_token_env_var = "TOKEN"\n'
        'http_headers = { A = "b" }\nenv_http_headers = { C = "TOKEN" }\n',
    )
    assert resolve(context(), servers_in(file)[0]).headers == {"A": "b", "C": "t", "Authorization": "Bearer t"}


def test_an_env_file_is_read_and_env_takes_precedence() -> None:
    write(Path("it.env"), "# c\nA=1\nexport B='two words'\n\nC=\n")
    assert resolve_entry({"command": "x", "envFile": "${workspaceFolder}/it.env", "env": {"A": "2"}}).env == {
        "A": "2",
        "B": "two words",
        "C": "",
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
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
def test_a_missing_or_invalid_value_is_reported_with_its_field(entry: dict[str, Any], expected: str) -> None:
    with pytest.raises(click.UsageError, match=expected):
        resolve_entry(entry, inputs=[{"id": "key", "description": "API key"}, None, {}])


def test_an_input_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable_of("api-key"), "k")
    assert resolve_entry({"command": "x", "args": ["${input:api-key}"]}).target == ["x", "k"]


def test_one_name_for_two_servers_is_reported_with_their_files(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path(".mcp.json"), {"mcpServers": {"it": LOCAL}})
    write(Path("mcp.json"), {"mcpServers": {"it": LOCAL}})
    assert look_up(context(), "it", None) is not None  # two equal entries are not ambiguous
    write(Path(".vscode/mcp.json"), {"servers": {"it": {"command": "other"}}})
    assert main(["ls", "it"]) == 2
    stderr = capsys.readouterr().err
    assert ".mcp.json" in stderr
    assert ".vscode/mcp.json" in stderr
    assert "--config FILE" in stderr
    chosen = look_up(context(), "it", Path(".vscode/mcp.json"))
    assert chosen is not None
    assert chosen.entry["command"] == "other"


@pytest.mark.parametrize("member", ["cwd", "envFile", "http_headers"])
def test_servers_that_differ_in_one_member_are_not_the_same(member: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(Path(".mcp.json"), {"mcpServers": {"it": {**LOCAL, member: "north"}}})
    write(Path("mcp.json"), {"mcpServers": {"it": {**LOCAL, member: "south"}}})
    with pytest.raises(click.UsageError, match="is a different server in each of"):
        look_up(context(), "it", None)


@pytest.mark.skipif(sys.platform == "win32", reason="a pseudo-terminal")
def test_an_input_is_asked_for_at_the_terminal_without_control_characters() -> None:
    import pty

    described = {"description": "The berth", "default": "A\x1b[2J", "options": ["A\x1b[2J", "B\u202e"]}
    program = (
        "from wharfinger.cli.targets.configured_servers import ask_at_terminal\n"
        f"print(repr(ask_at_terminal('berth', {described!r})), flush=True)\n"
    )
    controller, terminal = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=terminal, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    with open(controller, "r+b", buffering=0) as person:
        shown = b""
        while not shown.endswith(b": "):
            shown += person.read(1)
        person.write(b"\n")
        assert process.stdout is not None
        chosen = process.stdout.read()
        process.wait(20)
    assert shown.decode() == "The berth (A\\x1b[2J, B\\u202e) [A\\x1b[2J]: "
    assert chosen.decode().strip() == repr("A\x1b[2J")


def test_an_unknown_name_is_reported_with_the_existing_ones(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("mcp.json"), {"mcpServers": {"harbour": LOCAL}})
    write(Path(".mcp.json"), "{")
    assert main(["ls", "habour"]) == 2
    stderr = capsys.readouterr().err
    assert "(harbour)" in stderr
    assert ".mcp.json, line 1" in stderr
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
    entry = {"command": sys.executable, "args": ["place.py"], "cwd": "sub", "env": {"A": "${MINE}", "B": "b"}}
    write(Path("mine.json"), {"mcpServers": {"here": entry}})
    monkeypatch.setenv("MINE", "a")
    assert main(["call", "--config", "mine.json", "here", "where"]) == 0
    assert capfd.readouterr().out == "sub a b\n"
    monkeypatch.setenv("WHARFINGER_CONFIG", "mine.json")
    assert main(["call", "--env", "B=c", "here", "where"]) == 0
    assert capfd.readouterr().out == "sub a c\n"


def test_an_expanded_secret_is_not_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    write(Path("mcp.json"), {"mcpServers": {"it": {"url": "http://127.0.0.1:9/mcp", "headers": {"A": "${TOKEN}"}}}})
    assert main(["inspect", "it"]) == 3
    output = capfd.readouterr()
    assert "s3cret" not in output.out + output.err


@pytest.mark.parametrize(
    ("names", "distinct_names"),
    [
        (["tide", "tide", "tide"], ["tide", "tide_2", "tide_3"]),
        (["tide", "tide", "tide_2"], ["tide", "tide_3", "tide_2"]),
        (["tide_2", "tide", "tide", "tide_2"], ["tide_2", "tide", "tide_3", "tide_2_2"]),
    ],
)
def test_servers_of_the_same_name_get_numbers(names: list[str], distinct_names: list[str]) -> None:
    """A bug: a number could make the name of another server. `browse` failed, and `chat` could trust the wrong one."""
    configs = [ServerConfig(name=name, target="http://harbour.test/mcp") for name in names]
    assert [config.name for config in with_distinct_names(configs)] == distinct_names
