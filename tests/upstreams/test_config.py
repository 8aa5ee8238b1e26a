"""Configurations of hosts are read as their hosts read them, and a mistake is named with what to change."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wharfinger import Host, Server
from wharfinger.upstreams import InvalidConfiguration, ServerConfig, UpstreamUnreachable, read_config, read_host_config
from wharfinger.upstreams.config import MAX_SECONDS, MAX_SERVERS

HERE = Path(__file__).parent
PROGRAM = HERE / "harbour_server.py"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project of one's own."""
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
    """`npx`, `uvx` and their like, which start a server with the arguments that they get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("npx", "uvx", "uv", "docker", "node"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "{PROGRAM}" {name} 0 /dev/null "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def read(entry: Any, name: str = "it", **options: Any) -> ServerConfig:
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
    written = json.loads(file.read_text())["mcpServers"]

    async def test() -> None:
        async with Host.from_config("claude-desktop") as host:
            await host.ready(30)
            assert {name: server.status for name, server in host.servers.items()} == dict.fromkeys(written, "ready")
            for name, entry in written.items():
                tool = name.replace(" ", "_")
                assert (await call(host, f"{tool}_arguments"))[3:] == entry["args"]
                for key, value in entry.get("env", {}).items():
                    assert await call(host, f"{tool}_variable", {"key": key}) == value

    asyncio.run(asyncio.wait_for(test(), 50))


@pytest.mark.usefixtures("programs")
def test_a_file_of_vs_code_runs_unchanged(tmp_path: Path) -> None:
    """All but its two servers on the internet are reached: their addresses are refused before they are used."""
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
        refuse: dict[str, Any] = {"allow_address": refuse_address, "open_timeout": 5.0}
        async with Host.from_config(".vscode/mcp.json", **options, **refuse) as host:
            await host.ready(30)
            reached = {name for name, server in host.servers.items() if server.status == "ready"}
            assert set(host.servers) - reached == {"github", "docs"}
            assert (await call(host, "filesystem_arguments"))[-1] == str(project)
            assert (await call(host, "time_arguments"))[-1] == "--local-timezone=Europe/Zurich"
            assert (await call(host, "postgres_arguments"))[-1] == "postgresql://here/db"
            assert await call(host, "git_variable", {"key": "GIT_AUTHOR_NAME"}) == "A Keeper"
            assert await call(host, "memory_variable", {"key": "MEMORY_FILE_PATH"}) == f"{project}/.vscode/memory.json"
            assert await call(host, "tides_folder") == str(project)

    asyncio.run(asyncio.wait_for(test(), 50))


def test_every_form_of_placeholder_is_filled_in() -> None:
    environ = {"TOKEN": "t", "PORT": "1"}
    args = ["${TOKEN}", "${env:TOKEN}", "${NONE:-x}", "$TOKEN", "pa$$word", "$NONE", "${input:port}", "a${PORT}b"]
    config = read({"command": "x", "args": args}, environ=environ, inputs={"port": "8000"})
    assert config.target == ["x", "t", "t", "x", "t", "pa$$word", "$NONE", "8000", "a1b"]


def test_an_input_is_requested_once() -> None:
    asked: list[tuple[str, str]] = []

    def ask(name: str, described: Mapping[str, Any]) -> str:
        asked.append((name, described["description"]))
        return "k"

    one = {"command": "x", "args": ["${input:key}"]}
    inputs = [{"id": "key", "description": "API key"}]
    Path("mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"a": one, "b": one}}))
    assert [config.target for config in read_config("mcp.json", inputs=ask)] == [["x", "k"], ["x", "k"]]
    assert asked == [("key", "API key")]


def test_the_choices_of_hosts_take_effect() -> None:
    config = read({"httpUrl": "https://x.test/", "includeTools": ["a"], "excludeTools": ["b"], "trust": True})
    assert (config.target, config.include_tools, config.exclude_tools) == ("https://x.test/", ("a",), ("b",))
    assert not config.trusted  # the trust of another host is not taken over
    assert read({"command": "x", "args": ["${NO_SUCH}"], "disabled": True}).disabled
    Path("config.toml").write_text(
        '[mcp_servers.it]\ncommand = "x"\nenabled = false\nenabled_tools = ["a"]\ndisabled_tools = ["b"]\n'
    )
    (codex,) = read_config("config.toml")
    assert (codex.disabled, codex.include_tools, codex.exclude_tools) == (True, ("a",), ("b",))


def test_our_own_keys_are_read() -> None:
    own = {"prefix": "p", "expose": ["get_*"], "hide": ["x"], "rename": {"a": "b"}, "idleSeconds": 60,
           "timeoutSeconds": MAX_SECONDS}  # fmt: skip
    config = read({"command": "x", "wharfinger": own})
    assert (config.prefix, config.expose, config.hide) == ("p", ("get_*",), ("x",))
    assert (config.rename, config.idle_seconds, config.timeout_seconds) == ({"a": "b"}, 60, MAX_SECONDS)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"comand": "x"}, "'it' in mcp.json has the unknown key 'comand'. Did you mean 'command'"),
        ({"command": "x", "disable": True}, "'disable'. Did you mean 'disabled'"),
        ({"command": "x", "wharfinger": {"idleSecond": 1}}, "key 'idleSecond'. Did you mean 'idleSeconds'"),
        ({"command": "x", "wharfinger": {"zzz": 1}}, "There is prefix, expose, hide, rename, idleSeconds"),
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
        ("npx", 'needs an object with either "url" or "command"'),
    ],
)
def test_mistakes_are_reported_with_what_to_change(entry: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        read(entry, environ={})


def test_an_entry_with_a_mistake_does_not_affect_the_others() -> None:
    good = {"command": sys.executable, "args": ["-m", "wharfinger", "serve", "--stdio", str(Path.cwd())]}
    mistakes = {
        "unset": ({"command": "x", "env": {"KEY": "${TOKN}"}}, "needs the variable TOKN (env KEY), which is not set"),
        "asks": ({"command": "x", "args": ["${input:key}"]}, "set WHARFINGER_INPUT_KEY"),
        "slip": ({"comand": "x"}, "Did you mean 'command'?"),
        "text": ("npx", 'an object with either "url" or "command"'),
        "empty": ({"command": ""}, '"url" or "command"'),
    }
    entries = {"good": good, **{name: entry for name, (entry, _) in mistakes.items()}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))
    Path("note.md").write_text("# Tide\n")

    async def test() -> None:
        async with Host.from_config("mcp.json", environ={}) as host:
            await host.ready(timeout=30)
            assert host.servers["good"].status == "ready"
            assert "note.md" in " ".join(one.resource.uri for one in await host.upstreams.resources())
            for name, (_, says) in mistakes.items():
                assert host.servers[name].status == "down"
                assert f"{name!r} in mcp.json" in host.servers[name].error
                assert says in host.servers[name].error
                with pytest.raises(UpstreamUnreachable, match=f"{name} cannot be reached: '{name}' in mcp.json"):
                    await host.read("file:///note.md", server=name)

    asyncio.run(test())


def test_a_file_without_a_usable_entry_is_refused_with_each_mistake() -> None:
    entries = {"one": {"comand": "x"}, "two": {"command": "x", "args": ["${TOKN}"]}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": entries}))
    with pytest.raises(InvalidConfiguration, match=r"'one' in mcp\.json has .*\n'two' in mcp\.json needs the variable"):
        read_config("mcp.json", environ={})


def test_a_file_without_servers_and_too_many_are_refused() -> None:
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


def test_a_host_is_known_by_its_name_only() -> None:
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

    def signs_in(name: str, **options: Any) -> bool:
        client = Host.from_config("mcp.json", **options).servers[name].client
        return client._session.connections.settings.auth is not None

    assert signs_in("a")
    assert not signs_in("b")
    assert not signs_in("a", auth=None)


def test_targets_in_python_are_named_after_what_they_are() -> None:
    host = Host([Server("docs"), Server("docs"), "https://harbour.example/mcp", {"command": "charts"}])
    assert list(host.servers) == ["docs", "docs_2", "harbour.example", "charts"]
    with pytest.raises(InvalidConfiguration, match=r"Give a list of targets"):
        Host("https://harbour.example/mcp")
    with pytest.raises(InvalidConfiguration, match="'it': 'nothing' is not a target"):
        Host({"it": "nothing"})
    with pytest.raises(InvalidConfiguration, match="no server 'dcos' to trust: there is docs"):
        Host({"docs": Server("docs")}, trusted=["dcos"])
