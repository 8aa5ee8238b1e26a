"""`wharfinger serve` with several kinds of data: what it publishes, prints, refuses and hides."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from wharfinger import Client
from wharfinger.cli import main
from wharfinger.cli.app import wharfinger
from wharfinger.cli.serving.publish import instructions, make_server
from wharfinger.cli.serving.startup_info import FACTS_CHARACTERS, collect_startup_info, host_arguments, omitted_secrets
from wharfinger.source import Source
from wharfinger.sources.registry import KINDS, PreparedSource, make_sources, parse_word

Start = Callable[..., "subprocess.Popen[str]"]
PASSWORD = "hunter2"
PARAMS: dict[str, Any] = {
    "every": None,
    "patience": None,
    "include": (),
    "exclude": (),
    "hidden": False,
    "max_size": None,
    "absolute_uris": False,
    "encoding": None,
    "max_clone_size": None,
    "no_tools": False,
    "no_search": False,
    "allow_command": False,
    "allow_operations": (),
    "base_url": None,
    "allow_private_networks": False,
    "allow_query": False,
    "limits": (),
    "name": None,
    "demo": False,
    "words": (),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a folder, a database and an archive."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notes.md").write_text("# Notes\n")
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("create table ships (id integer primary key, name text)")
        database.execute("insert into ships (name) values ('mary')")
    database.close()
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as archive:
        archive.writestr("a/b.txt", "hello")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Return the first lines of the banner."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(lines)]


def test_the_banner_has_a_line_for_each_source(start: Start, here: Path) -> None:
    process = start("serve", "--http", "127.0.0.1:0", "docs", "sqlite:///shop.db", "zip:old.zip")
    card = shown(process, 8)
    assert card[0].startswith(f"Publishing {here}/docs  1 file, 8 B, watched by ")
    assert card[1].startswith(f"Publishing {here}/shop.db  ")
    assert card[2].startswith(f"Publishing {here}/old.zip  ")
    assert card[3].startswith("  MCP  http://127.0.0.1:")
    again = f"add claude-desktop {here}/docs sqlite:///{here}/shop.db zip:{here}/old.zip    (its file takes stdio only)"
    assert card[7].endswith(again)


def test_one_server_publishes_all_sources(here: Path, executable: str) -> None:
    async def work() -> tuple[str, str, set[str], str]:
        async with Client([executable, "serve", "docs", "sqlite:///shop.db", "old=zip:old.zip"], cwd=here) as client:
            assert client.server_info is not None
            uris = {resource.uri async for resource in client.list_resources()}
            text = (await client.read_resource("zip://old/a/b.txt")).text
            return client.server_info.name, client.instructions or "", uris, text

    name, output, uris, text = asyncio.run(work())
    assert name == "docs-shop-old"
    assert text == "hello"
    assert {"file:///docs/notes.md", "zip://old/a/b.txt"} <= uris
    assert any(uri.startswith("sqlite://shop/") for uri in uris)
    head, folder, database, archive = output.splitlines()
    assert head.startswith("Live data, as it is now. List the resources, ")
    assert folder.startswith("- file:///docs: file:///docs/…?lines=1-200 ?tail=200")
    assert database.startswith("- sqlite://shop: sqlite://shop/{table}/rows?limit=200&")
    assert database.endswith(" (a SQLite database)")
    assert archive == "- zip://old/: zip://old/…?lines=1-200 ?tail=200 ?bytes=0-65535 (a ZIP archive)"


def test_instructions_for_folders_name_them_and_their_windows(here: Path) -> None:
    output = instructions(make_sources(["docs"]))
    assert output.startswith("Files, as they are now. List the resources, ")
    assert "\n- file:///docs: file:///docs/…?lines=1-200 ?tail=200 ?bytes=0-65535" in output


def test_a_long_list_of_sources_in_the_instructions_is_cut(here: Path) -> None:
    for number in range(30):
        (here / f"d{number}").mkdir()
    words = [f"d{number}" for number in range(30)]
    (here / "x.zip").write_bytes((here / "old.zip").read_bytes())
    output = instructions(make_sources([*words, "zip:x.zip"]))
    assert "- and 11 more" in output
    assert len(output) < 2_000
    assert output.count("?lines=") == 1  # the others of the same kind take the same parameters


# Options.


def tools_of(*words: str, **options: bool) -> set[str]:
    server, _ = make_server(words, {}, name=None, **{"tools": True, "search": False, "query": False, **options})

    async def work() -> set[str]:
        async with Client(server) as client:
            return {tool.name for tool in await client.list_tools()}

    return asyncio.run(work())


def test_the_query_tool_exists_only_if_it_is_allowed(here: Path) -> None:
    plain = tools_of("docs", "sqlite:///shop.db")
    assert "search" in plain
    assert "query" not in plain
    assert tools_of("docs", "sqlite:///shop.db", query=True) == plain | {"query"}
    assert tools_of("docs", query=True) == plain


def test_no_search_disables_the_search_index(here: Path) -> None:
    for search in (True, False):
        server, _ = make_server(["docs"], {}, name=None, tools=False, search=search, query=False)
        assert (server.resources.index is not None) is search


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--include", "*.md", "sqlite:///shop.db"], "--include is for PATH, and nothing of that kind is published"),
        (["--max-size", "1MiB", "zip:old.zip"], "--max-size is for PATH"),
        (["--allow-command", "docs"], "--allow-command is for command:LINE"),
        (["--every", "2", "docs"], "--every is for git:https://HOST/PATH.git, web:https://HOST/"),
        (["--every", "0", "--allow-command", "command:df"], "every at least"),
        (["--allow-private-networks", "docs"], "--allow-private-networks is for openapi:URL, https://HOST/mcp"),
        (
            ["--allow-query", "docs"],
            "--allow-query is for sqlite:///FILE, duckdb:///FILE, postgresql://USER@HOST/DATABASE",
        ),
        (["--allow-query", "--no-tools", "sqlite:///shop.db"], "exclude each other"),
        (["--demo", "sqlite:///shop.db"], "--demo takes one folder"),
        (["--demo", "docs", "docs"], "--demo takes one folder"),
        (["ftp://host/x"], "ftp: is not a kind of data"),
        (["command:df"], "allow it with --allow-command"),
        (["http://127.0.0.1:9/mcp"], "127.0.0.1"),
        (["shop.db"], "publish it as sqlite:///shop.db"),
        (["zip:missing.zip"], "missing.zip"),
        (["git:docs"], "docs"),
        (["sqlite:///missing.db"], "missing.db"),
        (["x=docs", "x=zip:old.zip"], "'x' is given twice"),
    ],
)
def test_an_invalid_command_prints_one_line_and_exits_with_2(
    args: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--stdio", *args]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_missing_library_is_reported_with_its_pip_command(here: Path, start: Start) -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from wharfinger.cli import main; sys.exit(main(['serve', '--stdio', 'memory://x']))"
    )
    process = start("-c", code, command=[sys.executable])
    out, err = process.communicate(timeout=20)
    assert (out, process.returncode) == ("", 1)
    assert "pip install 'wharfinger[objects]'" in err


def test_the_help_names_every_kind() -> None:
    output = CliRunner().invoke(wharfinger, ["serve", "--help"]).output
    for kind in KINDS:
        assert any(scheme in output for scheme in kind.schemes) or kind.form.startswith(("oracle", "memory")), kind.form


# Passwords.


@pytest.fixture
def closed() -> int:
    """A port on which no server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_password_is_not_shown_and_a_source_that_is_down_does_not_stop_others(
    start: Start, here: Path, closed: int
) -> None:
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:{closed}/harbour"
    process = start("serve", "--http", "127.0.0.1:0", "docs", url)
    card = shown(process, 7)
    assert card[0].startswith(f"Publishing {here}/docs  1 file")
    assert "127.0.0.1" in card[1]
    assert "not available now: " in card[1] or "not counted yet" in card[1]
    assert f"the password of postgresql://me@127.0.0.1:{closed}/harbour is omitted" in card[6]
    assert "pass it by the variable PGPASSWORD" in card[6]
    where = card[2].split()[1]

    async def work() -> str:
        async with Client(where) as client:
            return (await client.read_resource("file:///docs/notes.md")).text

    assert asyncio.run(work()) == "# Notes\n"
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert PASSWORD not in "\n".join(card) + out + err


def test_a_password_is_not_written_to_the_file_of_a_host(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://me:{PASSWORD}@db.test/shop"
    assert main(["add", "cursor", "--file", str(here / "mcp.json"), url]) == 2
    output = capsys.readouterr().err
    assert "Leave the password out of postgresql://me@db.test/shop: pass it in the variable PGPASSWORD" in output
    assert PASSWORD not in output
    assert not (here / "mcp.json").exists()


# Adding the sources to a host.


def test_every_kind_of_source_can_be_added_to_a_host(here: Path) -> None:
    file = here / "mcp.json"
    words = ["docs", "code=git:.", "sqlite:///shop.db", "log:logs/*.log", "s3://bucket/prefix", "system:"]
    assert main(["add", "cursor", "--file", str(file), *words]) == 0
    (server,) = json.loads(file.read_text())["mcpServers"].items()
    assert server[0] == "docs-code-shop-logs-prefix-system"
    assert server[1]["args"][-8:] == [
        "serve",
        "--stdio",
        f"{here}/docs",
        f"code=git:{here}",
        f"sqlite:///{here}/shop.db",
        f"log:{here}/logs/*.log",
        "s3://bucket/prefix",
        "system:",
    ]


def test_a_command_is_not_added_to_a_host_without_its_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "cursor", "--file", str(here / "mcp.json"), "command:df -h"]) == 2
    assert "give the whole command" in capsys.readouterr().err


def test_options_and_upstreams_are_added_as_a_whole_command(here: Path) -> None:
    made = make_sources(["docs", "http://127.0.0.1:9/mcp"], {"allow_private_networks": True})
    words = host_arguments({**PARAMS, "allow_private_networks": True}, made)
    assert words[-5:] == ("serve", "--stdio", "--allow-private-networks", f"{here}/docs", "http://127.0.0.1:9/mcp")
    assert words[2] == "--"
    words = host_arguments({**PARAMS, "no_search": True, "include": ("*.md", "*.py")}, make_sources(["docs"]))
    assert words[-6:] == ("--include", "*.md", "--include", "*.py", "--no-search", f"{here}/docs")
    words = host_arguments({**PARAMS, "allow_command": True, "every": 2.0}, make_sources(["docs"]))
    assert words[-4:] == ("--allow-command", "--every", "2", f"{here}/docs")


def test_variables_that_a_source_reads_are_named_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", PASSWORD)
    made = [PreparedSource(parse_word("s3://bucket/prefix"), Source())]
    assert "AWS_PROFILE" in omitted_secrets(made) and "--env NAME=VALUE" in omitted_secrets(made)
    assert PASSWORD not in omitted_secrets(made)
    assert omitted_secrets([PreparedSource(parse_word("zip:papers.zip"), Source())]) == ""


def test_nothing_is_omitted_without_a_password(here: Path) -> None:
    assert omitted_secrets(make_sources(["docs", "sqlite:///shop.db"])) == ""


# Facts about sources.


class Odd(Source):
    """A source with the given description."""

    def __init__(self, facts: Callable[[], str]) -> None:
        self.location = "somewhere"
        self.describe = facts  # type: ignore[method-assign]


def made_of(*facts: Callable[[], str]) -> list[PreparedSource]:
    return [PreparedSource(parse_word("https://x.test/mcp"), Odd(one)) for one in facts]


def failing() -> str:
    raise OSError(f"no way to postgresql://me:{PASSWORD}@db/x\n" + "very " * 200)


def test_the_time_to_describe_all_sources_is_bounded() -> None:
    began = time.monotonic()
    seen = collect_startup_info(made_of(lambda: "quick", failing, *[lambda: time.sleep(3) or "slow"] * 20), within=0.3)  # type: ignore[func-returns-value]
    assert time.monotonic() - began < 1.5
    assert [one.facts for one in seen.published[2:]] == ["not counted yet"] * 20
    assert seen.published[0].facts == "quick"
    assert seen.published[1].facts.startswith("not available now: no way to postgresql://me@db/x very")
    assert len(seen.published[1].facts) <= FACTS_CHARACTERS


def test_the_watch_command_names_the_resource_most_likely_to_change(here: Path) -> None:
    made = make_sources(["docs", "zip:old.zip"])
    assert collect_startup_info(made, within=10).live == "file:///docs/notes.md"
    (here / "docs" / "tides.log").write_text("low\n")
    assert collect_startup_info(made, within=10).live == "file:///docs/tides.log"
    assert collect_startup_info(made_of(lambda: "nothing"), within=10).live == ""


def test_patience_applies_to_every_source_and_is_passed_to_hosts(here: Path) -> None:
    _, sources = make_server(
        ["docs", "sqlite:///shop.db"], {"patience": 0.5}, name=None, tools=False, search=False, query=False
    )
    assert [prepared.source.patience for prepared in sources] == [0.5, 0.5]
    words = host_arguments({**PARAMS, "patience": 0.5}, sources)
    assert words[words.index("--patience") + 1] == "0.5"
    assert main(["serve", "--patience", "0", "docs"]) == 2


def test_initialize_is_answered_while_an_endpoint_does_not_answer(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint of the bucket accepts connections and never answers."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{endpoint.getsockname()[1]}"}
        command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", "--no-search", "docs", "s3://charts"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        try:
            connection, _ = endpoint.accept()
            assert connection.recv(4) == b"GET "
            assert process.stdin is not None
            assert process.stdout is not None
            asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            for number, (method, params) in enumerate([("initialize", asked), ("resources/list", {})]):
                line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                process.stdin.write(json.dumps(line).encode() + b"\n")
                process.stdin.flush()
            answers: dict[int, Any] = {}
            while len(answers) < 2:
                answer = json.loads(process.stdout.readline())
                if "id" in answer:
                    answers[answer["id"]] = answer["result"]
            assert answers[0]["serverInfo"]
            assert "file:///docs" in [each["uri"] for each in answers[1]["resources"]]
            assert "s3://charts" in answers[1]["_meta"]["wharfinger/missing"][0]["message"]
            connection.setblocking(False)
            try:
                while connection.recv(65_536):
                    pass
                raise AssertionError("the server had given up the connection before it answered")
            except BlockingIOError:
                pass  # it is still open, and was never answered
            finally:
                connection.close()
        finally:
            process.kill()
            process.communicate()
