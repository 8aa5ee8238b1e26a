"""`wharfinger serve` with several kinds of sources: the banner, the options, passwords, and `wharfinger add`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conftest import free_port
from wharfinger import Client
from wharfinger.cli import main
from wharfinger.cli.app import wharfinger
from wharfinger.cli.serving.publish import instructions, make_server
from wharfinger.cli.serving.startup_info import (
    FACTS_CHARACTERS,
    collect_startup_info,
    host_arguments,
    omitted_secrets,
)
from wharfinger.source import Source
from wharfinger.sources.registry import KINDS, PreparedSource, make_sources, parse_word

Start = Callable[..., "subprocess.Popen[str]"]
PASSWORD = "hunter2"
DEFAULT_OPTIONS: dict[str, Any] = {
    "policy": "",
    "policy_report_only": False,
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a folder, a database and an archive."""
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


def read_lines(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Return the next lines of the standard output."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(lines)]


def test_the_banner_has_a_line_for_each_source(start: Start, folder: Path) -> None:
    process = start("serve", "--http", "127.0.0.1:0", "docs", "sqlite:///shop.db", "zip:old.zip")
    banner = read_lines(process, 8)
    assert banner[0].startswith((f"Publishing {folder}/docs  1 file", f"Publishing {folder}/docs  not counted yet"))
    assert banner[1].startswith(f"Publishing {folder}/shop.db  ")
    assert banner[2].startswith(f"Publishing {folder}/old.zip  ")
    assert banner[3].startswith("  MCP  http://127.0.0.1:")
    add_command = f"add claude-desktop {folder}/docs sqlite:///{folder}/shop.db zip:{folder}/old.zip"
    assert banner[7].endswith(f"{add_command}    (its file takes stdio only)")


def test_one_server_publishes_all_sources(folder: Path, executable: str) -> None:
    async def run() -> tuple[str, str, set[str], str]:
        async with Client([executable, "serve", "docs", "sqlite:///shop.db", "old=zip:old.zip"], cwd=folder) as client:
            assert client.server_info is not None
            uris = {resource.uri async for resource in client.list_resources()}
            text = (await client.read_resource("zip://old/a/b.txt")).text
            return client.server_info.name, client.instructions or "", uris, text

    name, server_instructions, uris, text = asyncio.run(run())
    assert name == "docs-shop-old"
    assert text == "hello"
    assert {"file:///docs/notes.md", "zip://old/a/b.txt"} <= uris
    assert any(uri.startswith("sqlite://shop/") for uri in uris)
    introduction, folder_line, database_line, archive_line = server_instructions.splitlines()
    assert introduction.startswith("Live data, as it is now. List the resources, ")
    assert folder_line.startswith("- file:///docs: file:///docs/…?lines=1-200 ?tail=200")
    assert database_line.startswith("- sqlite://shop: sqlite://shop/{table}/rows?limit=200&")
    assert database_line.endswith(" (a SQLite database)")
    assert archive_line == "- zip://old/: zip://old/…?lines=1-200 ?tail=200 ?bytes=0-65535 (a ZIP archive)"


def test_the_instructions_for_a_folder_have_its_uri_and_window_parameters(folder: Path) -> None:
    text = instructions(make_sources(["docs"]))
    assert text.startswith("Files, as they are now. List the resources, ")
    assert "\n- file:///docs: file:///docs/…?lines=1-200 ?tail=200 ?bytes=0-65535" in text


def test_a_long_list_of_sources_in_the_instructions_is_truncated(folder: Path) -> None:
    for number in range(30):
        (folder / f"d{number}").mkdir()
    words = [f"d{number}" for number in range(30)]
    (folder / "x.zip").write_bytes((folder / "old.zip").read_bytes())
    text = instructions(make_sources([*words, "zip:x.zip"]))
    assert "- and 11 more" in text
    assert len(text) < 2_000
    assert text.count("?lines=") == 1  # all sources of a kind have the same parameters


# Options.


def tool_names(*words: str, **options: bool) -> set[str]:
    server, _ = make_server(words, {}, name=None, **{"tools": True, "search": False, "query": False, **options})

    async def run() -> set[str]:
        async with Client(server) as client:
            return {tool.name for tool in await client.list_tools()}

    return asyncio.run(run())


def test_the_query_tool_exists_only_if_it_is_allowed(folder: Path) -> None:
    without_query = tool_names("docs", "sqlite:///shop.db")
    assert "search" in without_query
    assert "query" not in without_query
    assert tool_names("docs", "sqlite:///shop.db", query=True) == without_query | {"query"}
    assert tool_names("docs", query=True) == without_query


def test_no_search_disables_the_search_index(folder: Path) -> None:
    for search in (True, False):
        server, _ = make_server(["docs"], {}, name=None, tools=False, search=search, query=False)
        assert (server.resources.search_index is not None) is search


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--include", "*.md", "sqlite:///shop.db"], "--include is for PATH, and nothing of that kind is published"),
        (["--max-size", "1MiB", "zip:old.zip"], "--max-size is for PATH"),
        (["--allow-command", "docs"], "--allow-command is for command:LINE"),
        (["--every", "2", "docs"], "--every is for git:https://HOST/PATH.git, web:https://HOST/"),
        (["--every", "0.1", "--allow-command", "command:df"], "every at least"),
        (["--every", "nan", "--allow-command", "command:df"], "'nan' is not a number of seconds"),
        (["--patience", "nan", "docs"], "'nan' is not a number of seconds"),
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
    args: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--stdio", *args]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_missing_library_is_reported_with_its_pip_command(folder: Path, start: Start) -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from wharfinger.cli import main; sys.exit(main(['serve', '--stdio', 'memory://x']))"
    )
    process = start("-c", code, command=[sys.executable])
    out, err = process.communicate(timeout=20)
    assert (out, process.returncode) == ("", 1)
    assert "pip install 'wharfinger[objects]'" in err


def test_the_help_names_every_kind_of_source() -> None:
    output = CliRunner().invoke(wharfinger, ["serve", "--help"]).output
    for kind in KINDS:
        assert any(scheme in output for scheme in kind.schemes) or kind.form.startswith(("oracle", "memory")), kind.form


# Passwords.


def test_an_unavailable_source_does_not_stop_others_and_its_password_is_not_printed(start: Start, folder: Path) -> None:
    port = free_port()
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:{port}/harbour"
    process = start("serve", "--http", "127.0.0.1:0", "docs", url)
    banner = read_lines(process, 7)
    assert banner[0].startswith((f"Publishing {folder}/docs  1 file", f"Publishing {folder}/docs  not counted yet"))
    assert "127.0.0.1" in banner[1]
    assert "not available now: " in banner[1] or "not counted yet" in banner[1]
    assert f"the password of postgresql://me@127.0.0.1:{port}/harbour is omitted" in banner[6]
    assert "pass it by the variable PGPASSWORD" in banner[6]
    server_url = banner[2].split()[1]

    async def run() -> str:
        async with Client(server_url) as client:
            return (await client.read_resource("file:///docs/notes.md")).text

    assert asyncio.run(run()) == "# Notes\n"
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert PASSWORD not in "\n".join(banner) + out + err


def test_a_password_is_not_written_to_the_file_of_a_host(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"postgresql://me:{PASSWORD}@db.test/shop"
    assert main(["add", "cursor", "--file", str(folder / "mcp.json"), url]) == 2
    output = capsys.readouterr().err
    assert "Leave the password out of postgresql://me@db.test/shop: pass it in the variable PGPASSWORD" in output
    assert PASSWORD not in output
    assert not (folder / "mcp.json").exists()


# Adding sources to a host.


def test_every_kind_of_source_can_be_added_to_a_host(folder: Path) -> None:
    file = folder / "mcp.json"
    words = ["docs", "code=git:.", "sqlite:///shop.db", "log:logs/*.log", "s3://bucket/prefix", "system:"]
    assert main(["add", "cursor", "--file", str(file), *words]) == 0
    ((name, entry),) = json.loads(file.read_text())["mcpServers"].items()
    assert name == "docs-code-shop-logs-prefix-system"
    assert entry["args"][-8:] == [
        "serve",
        "--stdio",
        f"{folder}/docs",
        f"code=git:{folder}",
        f"sqlite:///{folder}/shop.db",
        f"log:{folder}/logs/*.log",
        "s3://bucket/prefix",
        "system:",
    ]


def test_a_command_is_not_added_to_a_host_without_its_option(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "cursor", "--file", str(folder / "mcp.json"), "command:df -h"]) == 2
    assert "give the whole command" in capsys.readouterr().err


def test_options_and_upstreams_are_added_as_a_serve_command(folder: Path) -> None:
    sources = make_sources(["docs", "http://127.0.0.1:9/mcp"], {"allow_private_networks": True})
    words = host_arguments({**DEFAULT_OPTIONS, "allow_private_networks": True}, sources)
    assert words[-5:] == ("serve", "--stdio", "--allow-private-networks", f"{folder}/docs", "http://127.0.0.1:9/mcp")
    assert words[2] == "--"
    words = host_arguments({**DEFAULT_OPTIONS, "no_search": True, "include": ("*.md", "*.py")}, make_sources(["docs"]))
    assert words[-6:] == ("--include", "*.md", "--include", "*.py", "--no-search", f"{folder}/docs")
    words = host_arguments({**DEFAULT_OPTIONS, "allow_command": True, "every": 2.0}, make_sources(["docs"]))
    assert words[-4:] == ("--allow-command", "--every", "2", f"{folder}/docs")
    words = host_arguments({**DEFAULT_OPTIONS, "encoding": "latin-1"}, make_sources(["docs"]))
    assert words[-3:] == ("--encoding", "latin-1", f"{folder}/docs")


def test_variables_that_a_source_reads_are_listed_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", PASSWORD)
    sources = [PreparedSource(parse_word("s3://bucket/prefix"), Source())]
    assert "AWS_PROFILE" in omitted_secrets(sources) and "--env NAME=VALUE" in omitted_secrets(sources)
    assert PASSWORD not in omitted_secrets(sources)
    assert omitted_secrets([PreparedSource(parse_word("zip:papers.zip"), Source())]) == ""


def test_nothing_is_omitted_without_a_password(folder: Path) -> None:
    assert omitted_secrets(make_sources(["docs", "sqlite:///shop.db"])) == ""


# Descriptions of sources.


class StubSource(Source):
    """A source with a fixed description."""

    def __init__(self, facts: Callable[[], str]) -> None:
        self.location = "somewhere"
        self.describe = facts  # type: ignore[method-assign]


def stub_sources(*facts: Callable[[], str]) -> list[PreparedSource]:
    return [PreparedSource(parse_word("https://x.test/mcp"), StubSource(describe)) for describe in facts]


def fail_with_password() -> str:
    raise OSError(f"no way to postgresql://me:{PASSWORD}@db/x\n" + "very " * 200)


def test_the_time_to_describe_all_sources_is_bounded() -> None:
    released = threading.Event()
    start_time = time.monotonic()
    info = collect_startup_info(
        stub_sources(lambda: "quick", fail_with_password, *[lambda: str(released.wait(50))] * 20), within=5
    )
    assert time.monotonic() - start_time < 20
    released.set()
    assert [source.facts for source in info.published[2:]] == ["not counted yet"] * 20
    assert info.published[0].facts == "quick"
    assert info.published[1].facts.startswith("not available now: no way to postgresql://me@db/x very")
    assert len(info.published[1].facts) <= FACTS_CHARACTERS


def test_the_facts_of_a_folder_are_its_size_and_how_it_is_watched(folder: Path) -> None:
    (source,) = collect_startup_info(make_sources(["docs"]), within=10).published
    assert source.facts.startswith("1 file, 8 B, watched by ")


def test_the_watch_command_names_the_resource_most_likely_to_change(folder: Path) -> None:
    sources = make_sources(["docs", "zip:old.zip"])
    assert collect_startup_info(sources, within=10).live == "file:///docs/notes.md"
    (folder / "docs" / "tides.log").write_text("low\n")
    assert collect_startup_info(sources, within=10).live == "file:///docs/tides.log"
    assert collect_startup_info(stub_sources(lambda: "nothing"), within=10).live == ""
    assert collect_startup_info(make_sources(["zip:old.zip"]), within=10).live == "", "an archive does not change"


def test_patience_applies_to_every_source_and_is_passed_to_hosts(folder: Path) -> None:
    _, sources = make_server(
        ["docs", "sqlite:///shop.db"], {"patience": 0.5}, name=None, tools=False, search=False, query=False
    )
    assert [prepared.source.patience for prepared in sources] == [0.5, 0.5]
    words = host_arguments({**DEFAULT_OPTIONS, "patience": 0.5}, sources)
    assert words[words.index("--patience") + 1] == "0.5"
    assert main(["serve", "--patience", "0", "docs"]) == 2


def test_initialize_is_answered_while_a_source_is_silent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
            initialize_params = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            }
            for number, (method, params) in enumerate([("initialize", initialize_params), ("resources/list", {})]):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()
            answers: dict[int, Any] = {}
            while len(answers) < 2:
                answer = json.loads(process.stdout.readline())
                if "id" in answer:
                    answers[answer["id"]] = answer["result"]
            assert answers[0]["serverInfo"]
            assert "file:///docs" in [resource["uri"] for resource in answers[1]["resources"]]
            assert "s3://charts" in answers[1]["_meta"]["wharfinger/missing"][0]["message"]
            connection.setblocking(False)
            try:
                while connection.recv(65_536):
                    pass
                raise AssertionError("the server closed the connection before it answered")
            except BlockingIOError:
                pass  # the connection is still open
            finally:
                connection.close()
        finally:
            process.kill()
            process.communicate()
