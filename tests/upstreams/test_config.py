"""Configuration files of hosts are read as the hosts read them. Errors suggest corrections."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger import Host, Server
from wharfinger.host.host import configs_of
from wharfinger.upstreams import InvalidConfiguration, ServerConfig, UpstreamUnreachable, read_config, read_host_config
from wharfinger.upstreams.config import MAX_SECONDS, MAX_SERVERS
from wharfinger.upstreams.config_files import MAX_ENV_FILE_BYTES

HERE = Path(__file__).parent
SERVER_PROGRAM = HERE / "harbour_server.py"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty home folder, and an empty project as the current folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "home"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `npx`, `uvx` and others by scripts that start a server with the same arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("npx", "uvx", "uv", "docker", "node"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER_PROGRAM}" {name} 0 /dev/null "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def read_entry(entry: Any, name: str = "it", **options: Any) -> ServerConfig:
    """Write `mcp.json` with this entry only, and return the configuration of its server."""
    Path("mcp.json").write_text(json.dumps({"mcpServers": {name: entry}}))
    (config,) = read_config("mcp.json", **options)
    return config


def refuse_address(address: str) -> bool:
    return False


async def call(host: Host, tool: str, arguments: Any = None) -> Any:
    return (await host.call_tool(tool, arguments)).data


@pytest.mark.usefixtures("programs")
def test_a_file_of_claude_desktop_runs_unchanged(home: Path) -> None:
    file = home / ".config" / "Claude" / "claude_desktop_config.json"
    if sys.platform == "darwin":
        file = home / "Library" / "Application Support" / "Claude" / "claude_desktop_config.json"
    file.parent.mkdir(parents=True)
    shutil.copy(HERE / "claude_desktop_config.json", file)
    entries = json.loads(file.read_text())["mcpServers"]

    async def test() -> None:
        async with Host.from_config("claude-desktop") as host:
            await host.ready(30)
            assert {name: server.status for name, server in host.servers.items()} == dict.fromkeys(entries, "ready")
            for name, entry in entries.items():
                tool = name.replace(" ", "_")
                assert (await call(host, f"{tool}_arguments"))[3:] == entry["args"]
                for key, value in entry.get("env", {}).items():
                    assert await call(host, f"{tool}_variable", {"key": key}) == value

    asyncio.run(asyncio.wait_for(test(), 50))


@pytest.mark.usefixtures("programs")
def test_a_file_of_vs_code_runs_unchanged(tmp_path: Path) -> None:
    """Its two servers on the internet are not reached: `allow_address` refuses them."""
    project = tmp_path / "project"
    (project / ".vscode").mkdir()
    shutil.copy(HERE / "vscode_mcp.json", project / ".vscode" / "mcp.json")
    (project / ".env").write_text("GIT_AUTHOR_NAME='A Keeper'\n")
    inputs = {"github-token": "ghp_x", "timezone": "Europe/Zurich"}
    options: dict[str, Any] = {"environ": {"DATABASE_URL": "postgresql://here/db"}, "inputs": inputs}
    configs = {config.name: config for config in read_config(".vscode/mcp.json", **options)}
    assert configs["github"].headers == {"Authorization": "Bearer ghp_x"}
    assert configs["github"].target == "https://api.githubcopilot.com/mcp/"
    assert len(configs) == 10

    async def test() -> None:
        network_options: dict[str, Any] = {"allow_address": refuse_address, "open_timeout": 5.0}
        async with Host.from_config(".vscode/mcp.json", **options, **network_options) as host:
            await host.ready(30)
            ready = {name for name, server in host.servers.items() if server.status == "ready"}
            assert set(host.servers) - ready == {"github", "docs"}
            assert (await call(host, "filesystem_arguments"))[-1] == str(project)
            assert (await call(host, "time_arguments"))[-1] == "--local-timezone=Europe/Zurich"
            assert (await call(host, "postgres_arguments"))[-1] == "postgresql://here/db"
            assert await call(host, "git_variable", {"key": "GIT_AUTHOR_NAME"}) == "A Keeper"
            assert await call(host, "memory_variable", {"key": "MEMORY_FILE_PATH"}) == f"{project}/.vscode/memory.json"
            assert await call(host, "tides_folder") == str(project)

    asyncio.run(asyncio.wait_for(test(), 50))


def test_every_form_of_placeholder_is_replaced() -> None:
    environ = {"TOKEN": "t", "PORT": "1"}
    args = ["${TOKEN}", "${env:TOKEN}", "${NONE:-x}", "$TOKEN", "pa$$word", "$NONE", "${input:port}", "a${PORT}b"]
    config = read_entry({"command": "x", "args": args}, environ=environ, inputs={"port": "8000"})
    assert config.target == ["x", "t", "t", "x", "t", "pa$$word", "$NONE", "8000", "a1b"]


def test_an_input_is_requested_once() -> None:
    requests: list[tuple[str, str]] = []

    def ask(name: str, definition: Mapping[str, Any]) -> str:
        requests.append((name, definition["description"]))
        return "k"

    entry = {"command": "x", "args": ["${input:key}"]}
    inputs = [{"id": "key", "description": "API key"}]
    Path("mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"a": entry, "b": entry}}))
    assert [config.target for config in read_config("mcp.json", inputs=ask)] == [["x", "k"], ["x", "k"]]
    assert requests == [("key", "API key")]


def test_disabled_servers_and_filters_of_tools_are_read_from_other_hosts() -> None:
    config = read_entry({"httpUrl": "https://x.test/", "includeTools": ["a"], "excludeTools": ["b"], "trust": True})
    assert (config.target, config.include_tools, config.exclude_tools) == ("https://x.test/", ("a",), ("b",))
    assert not config.trusted  # only our own configuration can trust a server
    assert read_entry({"command": "x", "args": ["${NO_SUCH}"], "disabled": True}).disabled
    Path("config.toml").write_text(
        '[mcp_servers.it]\ncommand = "x"\nenabled = false\nenabled_tools = ["a"]\ndisabled_tools = ["b"]\n'
    )
    (codex,) = read_config("config.toml")
    assert (codex.disabled, codex.include_tools, codex.exclude_tools) == (True, ("a",), ("b",))


@pytest.mark.parametrize("key", ["disabled", "enabled"])
def test_null_has_the_effect_of_a_missing_member(key: str) -> None:
    """A bug: null was refused, which hosts accept."""
    assert not read_entry({"command": "x", key: None}).disabled


@pytest.mark.parametrize(
    "entry",
    [
        {"httpUrl": "https://x.test/", "headers": {"A": "b"}},
        {"serverUrl": "https://x.test/", "http_headers": {"A": "b"}, "env_http_headers": {"C": "TOKEN"}},
        {"url": "https://x.test/", "headers": {"A": 1}, "bearer_token_env_var": "TOKEN", "command": None},
        {"command": "x", "args": ["a", 1], "envFile": "it.env", "env": {"B": True}, "cwd": "~/here"},
        {"command": ["x", "y"], "disabled": None, "includeTools": ["a"], "wharfinger": {"idleSeconds": 60}},
        {"httpUrl": "https://x.test/", "disabled": True},
    ],
)
def test_an_entry_in_python_means_what_it_means_in_a_file(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: in Python, `envFile`, `bearer_token_env_var` and others had no effect, and `httpUrl` was refused."""
    monkeypatch.setenv("TOKEN", "t")
    Path("it.env").write_text("LAST=1\n")
    from_file = msgspec.structs.replace(read_entry(entry, environ=os.environ), file="")
    assert configs_of({"it": entry}) == [from_file]
    assert [config.target for config in configs_of([entry])] == [from_file.target]


@pytest.mark.parametrize(
    "entry",
    [
        {"httpUrl": "https://x.test/", "http_headers": {"A": "${B}"}},
        {"serverUrl": "https://x.test/", "bearer_token_env_var": "NONE", "env_http_headers": {"C": "NONE"}},
        {"command": ["x", "y"], "args": [1], "env": {"B": True}, "envFile": "none.env"},
    ],
)
def test_the_target_of_a_disabled_server_is_read_in_each_format(entry: Any) -> None:
    """A bug: it was the command `false` for any entry with `httpUrl`, with numbers, or with a list as the command."""
    target = "https://x.test/" if "command" not in entry else ["x", "y", "1"]
    assert read_entry({**entry, "disabled": True}, environ={}).target == target


def test_placeholders_of_an_entry_in_python_stay_as_they_are() -> None:
    (config,) = configs_of({"it": {"command": "x", "args": ["${NONE}"], "env": {"KEY": "${input:key}"}}})
    assert (config.target, config.env, config.cwd) == (["x", "${NONE}"], {"KEY": "${input:key}"}, None)


def test_variables_for_a_command_are_not_needed_for_a_url() -> None:
    config = read_entry({"url": "https://x.test/", "env": {"KEY": "${NONE}"}, "envFile": "none.env"}, environ={})
    assert (config.target, config.env) == ("https://x.test/", {})


def test_an_entry_in_python_that_needs_a_missing_variable_or_file_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"^'it' needs the variable NONE \(bearer_token_env_var\)"):
        Host({"it": {"url": "https://x.test/", "bearer_token_env_var": "NONE"}})
    with pytest.raises(InvalidConfiguration, match=r"^'it': cannot read its envFile"):
        Host({"it": {"command": "x", "envFile": "none.env"}})


def test_the_wharfinger_key_of_an_entry_is_read() -> None:
    options = {"prefix": "p", "expose": ["get_*"], "hide": ["x"], "rename": {"a": "b"}, "idleSeconds": 60,
           "timeoutSeconds": MAX_SECONDS}  # fmt: skip
    config = read_entry({"command": "x", "wharfinger": options})
    assert (config.prefix, config.expose, config.hide) == ("p", ("get_*",), ("x",))
    assert (config.rename, config.idle_seconds, config.timeout_seconds) == ({"a": "b"}, 60, MAX_SECONDS)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"comand": "x"}, "'it' in mcp.json has the unknown key 'comand'. Did you mean 'command'"),
        ({"command": "x", "disable": True}, "'disable'. Did you mean 'disabled'"),
        ({"command": "x", "wharfinger": {"idleSecond": 1}}, "key 'idleSecond'. Did you mean 'idleSeconds'"),
        ({"command": "x", "wharfinger": {"zzz": 1}}, "The known ones are prefix, expose, hide, rename, idleSeconds"),
        ({"command": "x", "wharfinger": {"idleSeconds": 0}}, "idleSeconds must be more than 0"),
        ({"command": "x", "wharfinger": {"timeoutSeconds": MAX_SECONDS + 1}}, "timeoutSeconds must be more than 0"),
        ({"command": "x", "wharfinger": {"hide": "a"}}, "hide"),
        ({"command": "x", "wharfinger": {"hide": [""]}}, "each entry of hide must have 1 to"),
        ({"command": "x", "wharfinger": {"prefix": "p" * 33}}, "prefix has 33 characters"),
        ({"command": "x", "wharfinger": []}, '"wharfinger" is not an object'),
        ({"command": "x", "disabled": "yes"}, "disabled must be true or false"),
        ({"command": "x", "includeTools": "a"}, "includeTools must be a list"),
        ({}, '"url" or "command"'),
        ({"url": "ftp://x"}, "http:// or https://"),
        ({"command": "x", "args": ["${input:key}"]}, "input 'key' .*WHARFINGER_INPUT_KEY"),
        ({"command": "x", "args": ["${TOKN}"]}, "needs the variable TOKN"),
        ({"command": "x", "envFile": "none.env"}, "cannot read its envFile"),
        ({"command": "x", "envFile": "~no-such-user/.env"}, "cannot read its envFile .*~no-such-user"),
        ({"url": "http://x", "headers": {"Authorization": "a\n"}}, "header 'Authorization' has a line break"),
        ({"command": "x", "envFile": "a\0b"}, "cannot read its envFile .*null"),
        ({"command": "x", "args": ["${\ud83d}"]}, "needs the variable"),
        ({"command": "x", "env_vars": ["A", 1]}, "env_vars must be a list of names"),
        ({"command": "x", "env_vars": "A"}, "env_vars must be a list of names"),
        ({"command": "x", "args": ["a", None]}, "args 2 must be a text"),
        ({"command": ["x", ["a"]]}, "args 1 must be a text"),
        ({"command": "x", "env": {"KEY": {"a": 1}}}, "env KEY must be a text"),
        ("npx", 'needs an object with either "url" or "command"'),
    ],
)
def test_the_error_for_an_invalid_entry_suggests_a_correction(entry: Any, message: str) -> None:
    for environ in ({}, os.environ):
        with pytest.raises(InvalidConfiguration, match=message):
            read_entry(entry, environ=environ)


def test_variables_that_codex_passes_on_are_set() -> None:
    """A bug: they were ignored, so the server had no token."""
    entry = {"command": "x", "env_vars": ["A", "B", {"name": "C"}, "MISSING"], "env": {"B": "own"}}
    assert read_entry(entry, environ={"A": "1", "B": "2", "C": "3"}).env == {"A": "1", "B": "own", "C": "3"}
    assert read_entry({**entry, "disabled": True}, environ={"A": "1"}).env == {"B": "own"}


def test_numbers_and_booleans_in_a_command_become_text() -> None:
    entry = {"command": "x", "args": ["--port", 8080, True], "env": {"A": 1.5, "B": False, "C": None}}
    config = read_entry(entry)
    assert (config.target, config.env) == (["x", "--port", "8080", "true"], {"A": "1.5", "B": "false"})


@pytest.mark.parametrize("excess_bytes", [0, 1])
def test_an_env_file_larger_than_its_limit_is_refused(tmp_path: Path, excess_bytes: int) -> None:
    line = "LAST=1\n"
    (tmp_path / "large.env").write_text("#" * (MAX_ENV_FILE_BYTES - len(line) - 1 + excess_bytes) + "\n" + line)
    entry = {"command": "x", "envFile": str(tmp_path / "large.env")}
    if excess_bytes:
        with pytest.raises(InvalidConfiguration, match=r"envFile .*large\.env is larger than 1 MiB"):
            read_entry(entry, environ={})
    else:
        assert read_entry(entry, environ={}).env == {"LAST": "1"}


def test_a_large_env_file_is_refused_although_its_limit_is_within_a_character(tmp_path: Path) -> None:
    """A bug: it was said not to be UTF-8."""
    (tmp_path / "large.env").write_text("€" * (MAX_ENV_FILE_BYTES // 2), encoding="utf-8")
    with pytest.raises(InvalidConfiguration, match="is larger than 1 MiB"):
        read_entry({"command": "x", "envFile": str(tmp_path / "large.env")}, environ={})


def test_an_invalid_entry_does_not_affect_the_others() -> None:
    valid = {"command": sys.executable, "args": ["-m", "wharfinger", "serve", "--stdio", str(Path.cwd())]}
    invalid = {
        "unset": ({"command": "x", "env": {"KEY": "${TOKN}"}}, "needs the variable TOKN (env KEY), which is not set"),
        "asks": ({"command": "x", "args": ["${input:key}"]}, "set WHARFINGER_INPUT_KEY"),
        "slip": ({"comand": "x"}, "Did you mean 'command'?"),
        "text": ("npx", 'an object with either "url" or "command"'),
        "empty": ({"command": ""}, '"url" or "command"'),
    }
    entries = {"good": valid, **{name: entry for name, (entry, _) in invalid.items()}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))
    Path("note.md").write_text("# Tide\n")

    async def test() -> None:
        async with Host.from_config("mcp.json", environ={}) as host:
            await host.ready(timeout=30)
            assert host.servers["good"].status == "ready"
            assert "note.md" in " ".join(listed.resource.uri for listed in await host.upstreams.resources())
            for name, (_, message) in invalid.items():
                assert host.servers[name].status == "down"
                assert f"{name!r} in mcp.json" in host.servers[name].error
                assert message in host.servers[name].error
                with pytest.raises(UpstreamUnreachable, match=f"{name} cannot be reached: '{name}' in mcp.json"):
                    await host.read("file:///note.md", server=name)

    asyncio.run(test())


def test_a_file_with_only_invalid_entries_is_refused_with_every_error() -> None:
    entries = {"one": {"comand": "x"}, "two": {"command": "x", "args": ["${TOKN}"]}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))
    with pytest.raises(InvalidConfiguration, match=r"'one' in mcp\.json has .*\n'two' in mcp\.json needs the variable"):
        read_config("mcp.json", environ={})


def test_a_file_with_no_or_too_many_servers_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="no such file"):
        read_config("none.json")
    Path("mcp.json").write_text("{}")
    with pytest.raises(InvalidConfiguration, match="configures no server"):
        read_config("mcp.json")
    entries = {f"s{number}": {"command": "x"} for number in range(MAX_SERVERS)}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))
    assert len(read_config("mcp.json")) == MAX_SERVERS
    Path("mcp.json").write_text(json.dumps({"mcpServers": {**entries, "more": {"command": "x"}}}))
    with pytest.raises(InvalidConfiguration, match="1,001 servers"):
        read_config("mcp.json")


def test_without_a_home_folder_only_what_needs_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: without HOME, and for a user who is not in the list of users, every file ended in a RuntimeError."""
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, "relative")
    assert read_entry({"command": "x"}).target == ["x"]
    with pytest.raises(
        InvalidConfiguration, match=r"needs \$\{userHome\} \(command\): there is no home folder: set HOME"
    ):
        read_entry({"command": "${userHome}/x"})
    for host in ("claude-code", "claude-desktop", "codex"):
        with pytest.raises(InvalidConfiguration, match="cannot be found: there is no home folder: set HOME"):
            read_host_config(host)


def test_an_unknown_host_is_reported_with_the_closest_name() -> None:
    with pytest.raises(InvalidConfiguration, match=r"no host 'claude-destop'\. Did you mean 'claude-desktop'"):
        read_host_config("claude-destop")
    with pytest.raises(InvalidConfiguration, match="Claude Desktop has no configuration of servers here"):
        Host.from_config("claude-desktop")
    with pytest.raises(InvalidConfiguration, match="no host 'cursr'"):
        Host.from_config("cursr")
    with pytest.raises(InvalidConfiguration, match=r"other\.json: no such file"):
        Host.from_config("other.json")


def test_a_url_uses_the_saved_sign_in_unless_it_has_its_own_header() -> None:
    url = "https://harbour.example/mcp"
    entries = {"a": {"url": url}, "b": {"url": url, "headers": {"authorization": "Bearer x"}}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))

    def has_sign_in(name: str, **options: Any) -> bool:
        client = Host.from_config("mcp.json", **options).servers[name].client
        return client._session.connections.settings.auth is not None

    assert has_sign_in("a")
    assert not has_sign_in("b")
    assert not has_sign_in("a", auth=None)


def test_targets_without_names_are_named_after_their_server_host_or_command() -> None:
    host = Host([Server("docs"), Server("docs"), "https://harbour.example/mcp", {"command": "charts"}])
    assert list(host.servers) == ["docs", "docs_2", "harbour.example", "charts"]
    assert list(Host([{"httpUrl": "https://harbour.example/mcp"}]).servers) == ["harbour.example"]
    with pytest.raises(InvalidConfiguration, match=r"Give a list of targets"):
        Host("https://harbour.example/mcp")
    with pytest.raises(InvalidConfiguration, match="'it': 'nothing' is not a target"):
        Host({"it": "nothing"})
    with pytest.raises(InvalidConfiguration, match=r"no server 'dcos'\. The servers are: docs\. Correct `trusted`"):
        Host({"docs": Server("docs")}, trusted=["dcos"])
    with pytest.raises(InvalidConfiguration, match=r"no server .dcos.\. .* Correct `search_tools`"):
        Host({"docs": Server("docs")}, search_tools={"dcos": None})  # otherwise `docs` would get the words
