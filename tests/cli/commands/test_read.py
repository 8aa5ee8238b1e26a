"""`read` shows colour and a summary at a terminal, and writes the bytes elsewhere."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT, RunCli, Terminal
from wharfinger.cli.render.highlighting import language_of, summary

SERVER = """
from wharfinger import Server
from wharfinger.server import Content
from wharfinger.types import ReadResourceResult

server = Server("harbour")
PNG = b"\\x89PNG\\r\\n\\x1a\\n\\0\\0\\0\\rIHDR\\0\\0\\1\\0\\0\\0\\0\\x80"


@server.resource("a://data.json", mime_type="application/json")
def data() -> str:
    return '{"tide": 3, "note": "\\x9b31m"}\\n'


@server.resource("a://map", mime_type="image/png")
def map() -> bytes:
    return PNG


@server.resource("a://folder/")
def folder() -> list[Content]:
    return [
        Content("one\\n", uri="a://folder/one.txt", mime_type="text/plain"),
        Content(PNG, uri="a://folder/..%2fmap.png", mime_type="image/png"),
    ]


@server.resource("a://log")
def log() -> list[Content]:
    meta = {"wharfinger/summary": True, "wharfinger/remark": "More.", "wharfinger/next": "a://log/end"}
    return [Content("one\\n"), Content("More.", uri="a://log/end", meta=meta)]


@server.resource("a://loop")
def loop() -> list[Content]:
    meta = {"wharfinger/summary": True, "wharfinger/remark": "More.", "wharfinger/next": "a://loop"}
    return [Content("one\\n"), Content("More.", uri="a://loop", meta=meta)]


@server.resource("a://cut")
def cut() -> list[Content]:
    meta = {"wharfinger/summary": True, "wharfinger/remark": "More.", "wharfinger/next": "a://gone"}
    return [Content("one\\n"), Content("More.", uri="a://gone", meta=meta)]


@server.resource("a://scan")
def scan() -> list[Content]:
    meta = {"wharfinger/summary": True, "wharfinger/remark": "A page is missing."}
    return [Content("one\\n"), Content("A page is missing.", meta=meta)]


@server.resource("a://log/end")
def end() -> ReadResourceResult:
    return ReadResourceResult(contents=[])
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def harbour(tmp_path: Path) -> str:
    """A file with a server."""
    file = tmp_path / "harbour.py"
    file.write_text(SERVER)
    return str(file)


def test_text_at_a_terminal_is_coloured_and_its_control_characters_are_escaped(
    terminal: Callable[..., Terminal], harbour: str
) -> None:
    pytest.importorskip("rich")
    session = terminal("read", harbour, "a://data.json", env={"TERM": "xterm-256color"})
    assert session.wait_for_exit() == 0
    assert "\x1b[" in session.output
    assert "\x9b" not in session.output
    assert "\\x9b31m" in session.output


def test_no_color_is_honoured(terminal: Callable[..., Terminal], harbour: str) -> None:
    session = terminal("read", harbour, "a://data.json", env={"NO_COLOR": "1"})
    assert session.wait_for_exit() == 0
    assert session.output == '{"tide": 3, "note": "\\x9b31m"}\n'


def test_binary_content_is_summarised_at_a_terminal(terminal: Callable[..., Terminal], harbour: str) -> None:
    session = terminal("read", harbour, "a://map")
    assert session.wait_for_exit() == 0
    assert session.output == "[image/png, 24 B, PNG image 256 x 128: write it to a file with -o FILE, or to a pipe]\n"


def test_a_pipe_gets_the_bytes(harbour: str, start: Start, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        assert start("read", harbour, "a://map", stdout=out).wait(20) == 0
    assert (tmp_path / "out").read_bytes().startswith(b"\x89PNG")
    assert start("read", harbour, "a://data.json", "-o", "-").communicate(timeout=20)[0].count("\x9b") == 1


def test_several_contents_go_into_a_folder_and_stay_there(harbour: str, start: Start, tmp_path: Path) -> None:
    process = start("read", "-o", "out/", harbour, "a://folder/")
    assert process.communicate(timeout=20)[1].splitlines() == [
        "Wrote out/one.txt (4 B).",
        "Wrote out/map.png (24 B).",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["map.png", "one.txt"]
    process = start("read", "-o", "file", harbour, "a://folder/")
    assert "-o FOLDER/" in process.communicate(timeout=20)[1]
    assert process.returncode == 2


def test_a_resource_read_in_windows_is_written_whole(start: Start, tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    lines = "".join(f"{number} fathoms\n" for number in range(10_000))
    (tmp_path / "charts" / "depths.log").write_text(lines)
    serve = ("--", sys.executable, "-m", "wharfinger", "serve", "--stdio", "--max-size", "50KiB", "charts")
    process = start("read", "-o", "all.log", "file:///charts/depths.log", *serve)
    assert process.communicate(timeout=30)[1].splitlines()[-1] == f"Wrote all.log ({len(lines) / 1024:.0f} KiB)."
    assert (tmp_path / "all.log").read_text() == lines
    assert start("read", "-o", "-", "file:///charts/depths.log", *serve).communicate(timeout=30)[0] == lines
    output, reported = start("read", "file:///charts/depths.log", *serve).communicate(timeout=30)
    assert output == lines[: len(output)]
    assert f"file:///charts/depths.log?bytes={len(output)}-" in reported


def test_a_window_without_contents_is_the_end(run_cli: RunCli, harbour: str) -> None:
    """A bug: the command ended with an IndexError."""
    assert run_cli("read", "-o", "-", harbour, "a://log")[:2] == (0, "one\n")


def test_windows_that_follow_each_other_without_end_are_an_error(run_cli: RunCli, harbour: str, tmp_path: Path) -> None:
    status, _, reported = run_cli("read", "-o", str(tmp_path / "loop.txt"), harbour, "a://loop")
    assert status == 1
    assert "The server names the window a://loop twice, so the resource has no end." in reported


def test_a_read_that_fails_leaves_the_file_as_it_was(run_cli: RunCli, harbour: str, tmp_path: Path) -> None:
    """A bug: the file had the windows before the failure, as if they were all."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.log").write_text("old")
    for name in ("old.log", "new.log"):
        assert run_cli("read", "-o", str(folder / name), harbour, "a://cut")[0] == 1
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("old.log", "old")]


def test_remarks_about_missing_content_are_shown_with_a_written_file(run_cli: RunCli, harbour: str) -> None:
    assert run_cli("read", "-o", "-", harbour, "a://scan") == (0, "one\n", "A page is missing.\n")
    assert run_cli("read", harbour, "a://scan") == (0, "one\n", "A page is missing.\n")


@pytest.mark.parametrize(
    ("kind", "uri", "language"),
    [
        ("application/json", "a:b", "json"),
        ("application/vnd.x+json; charset=utf-8", "a:b", "json"),
        ("text/plain", "file:///a/server.py", "python"),
        ("", "file:///a/readme.md?x", "markdown"),
        ("text/plain", "file:///a/notes.txt", ""),
        ("text/plain", "a:b", ""),
        ("no/such-type", "file:///a/x.py", ""),
    ],
)
def test_the_language_is_chosen_by_type_or_name(kind: str, uri: str, language: str) -> None:
    pytest.importorskip("rich")
    assert language_of(kind, uri) == language


def test_a_summary_has_the_type_and_the_size_of_the_bytes() -> None:
    assert summary(b"%PDF-1.7", "") == "[binary, 8 B, PDF document: write it to a file with -o FILE, or to a pipe]"
    assert summary(b"GIF89a\x10\0\x20\0", "image/gif").startswith("[image/gif, 10 B, GIF image 16 x 32:")
    assert summary(b"\x89PNG\r\n\x1a\n", "x/y").startswith("[x/y, 8 B, PNG image:")


def test_read_writes_text_and_bytes_unchanged(run_cli: RunCli, tide_url: str, tmp_path: Path) -> None:
    assert run_cli("read", tide_url, "tide://at/quay")[1] == "quay"
    target = tmp_path / "map.png"
    code, out, err = run_cli("read", "-o", str(target), tide_url, "tide://map")
    assert (code, out) == (0, "")
    assert "8 B" in err
    assert target.read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert json.loads(run_cli("read", "--json", tide_url, "tide://at/x")[1])["contents"][0]["text"] == "x"


def test_a_missing_resource_is_exit_code_1(run_cli: RunCli, tide_url: str) -> None:
    code, out, err = run_cli("read", tide_url, "tide://nowhere")
    assert (code, out) == (1, "")
    assert "tide://nowhere" in err
    assert err.count("\n") == 1


def test_a_remark_is_printed_to_stderr_and_not_written_to_the_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE ships (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO ships VALUES (1, 'Mary')")
        database.commit()
    server = ["--", *COMMAND, "serve", f"shop=sqlite:///{tmp_path}/shop.db"]
    row = '{"id":1,"name":"Mary"}\n'
    for target, written in (("-", row), (str(tmp_path / "rows.jsonl"), "")):
        command = [*COMMAND, "read", "-o", target, "sqlite://shop/ships/rows", *server]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60)
        assert (completed.returncode, completed.stdout) == (0, written), completed.stderr
    assert (tmp_path / "rows.jsonl").read_text() == row
    command = [*COMMAND, "read", "sqlite://shop/ships/rows", *server]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60)
    assert completed.stdout == row
    assert "To choose rows" in completed.stderr
