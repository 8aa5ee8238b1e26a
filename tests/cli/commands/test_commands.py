"""`ls`, `read`, `watch` and `call` against a server of ours over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from wharfinger import Client
from wharfinger.cli import main

SERVER = '''
from wharfinger import Server, ToolError

server = Server("harbour")
height = 0

@server.resource("tide://now", mime_type="text/plain", title="The tide \\x1b[31mnow")
def now() -> str:
    """How high the water is."""
    return f"{height} m"

@server.resource("tide://map", mime_type="image/png")
def map() -> bytes:
    return b"\\x89PNG\\r\\n\\x1a\\n"

@server.resource("tide://at/{place}")
def at(place: str) -> str:
    return place

@server.tool
def rise(by: int, note: str = "") -> str:
    """Let the water rise.

    And tell everybody.
    """
    global height
    height += by
    server.resource_updated("tide://now")
    return f"{height} m{note}"

@server.tool
def sink() -> str:
    raise ToolError("it never sinks")
'''


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server."""
    file = tmp_path_factory.mktemp("server") / "harbour.py"
    file.write_text(SERVER)
    process = subprocess.Popen(
        [*COMMAND, "run", "--http", "127.0.0.1:0", str(file)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None
    yield next(found[1] for line in process.stdout if (found := re.search(r"MCP  (\S+)", line)))
    process.terminate()
    process.communicate()


Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """Run a command in this process."""

    def run(*args: str) -> tuple[int, str, str]:
        code = main(args)
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


def test_ls_shows_resources_and_no_escape_sequences(say: Say, url: str) -> None:
    code, out, err = say("ls", url)
    assert (code, err) == (0, "")
    assert re.search(r"^ +-  text/plain  tide://now  The tide \\x1b\[31mnow$", out, re.MULTILINE)


def test_ls_shows_other_kinds(say: Say, url: str) -> None:
    assert say("ls", "--templates", url)[1].split() == ["tide://at/{place}", "at"]
    assert "rise  Let the water rise.\n" in say("ls", "--tools", url)[1]
    assert len(say("ls", "--limit", "1", url)[1].splitlines()) == 1


def test_ls_json_is_one_object_a_line(say: Say, url: str) -> None:
    _, out, _ = say("ls", "--json", "--tools", "--resources", url)
    objects = [json.loads(line) for line in out.splitlines()]
    assert [item["name"] for item in objects] == ["rise", "sink", "now", "map"]


def test_read_gives_text_and_bytes_as_they_are(say: Say, url: str, tmp_path: Path) -> None:
    assert say("read", url, "tide://at/quay")[1] == "quay"
    target = tmp_path / "map.png"
    code, out, err = say("read", "-o", str(target), url, "tide://map")
    assert (code, out) == (0, "")
    assert "8 B" in err
    assert target.read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert json.loads(say("read", "--json", url, "tide://at/x")[1])["contents"][0]["text"] == "x"


def test_what_is_not_there_is_exit_code_1(say: Say, url: str) -> None:
    code, out, err = say("read", url, "tide://nowhere")
    assert (code, out) == (1, "")
    assert "tide://nowhere" in err
    assert err.count("\n") == 1


def test_call_sends_text_and_json_and_files(say: Say, url: str, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("!")
    code, out, err = say("call", url, "rise", "by:=0", f"note=@{note}")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"\d+ m!\n", out)
    result = json.loads(say("call", "--json", url, "rise", "by:=0")[1])
    assert result["content"][0]["type"] == "text"


def test_a_tool_s_error_is_exit_code_1(say: Say, url: str) -> None:
    assert say("call", url, "sink") == (1, "", "wharfinger: it never sinks\n")
    code, out, err = say("call", "--json", url, "sink")
    assert (code, err) == (1, "")
    assert json.loads(out)["isError"] is True
    assert say("call", url, "no_such_tool")[0] == 1
    assert say("call", url, "rise")[0] == 1


def test_watch_prints_each_change_and_what_is_there(say: Say, url: str) -> None:
    """The change is made again until it is seen: a watch in this process cannot say from outside that it has begun."""
    seen = threading.Event()

    async def rise() -> None:
        async with Client(url) as client:
            while not seen.is_set():
                await client.call_tool("rise", {"by": 1})

    riser = threading.Thread(target=lambda: asyncio.run(rise()), daemon=True)
    riser.start()
    try:
        code, out, err = say("watch", "--count", "2", "--read", url, "tide://now")
    finally:
        seen.set()
        riser.join(20)
    assert code == 0
    assert re.fullmatch(r"(\d\d:\d\d:\d\d changed tide://now\n\d+ m){2}", out)
    assert err == "Watching tide://now: Ctrl-C stops.\n"


def test_a_watch_on_what_is_not_there_is_refused(say: Say, url: str) -> None:
    code, out, err = say("watch", url, "tide://nowhere")
    assert (code, out) == (1, "")
    assert "tide://nowhere" in err


def test_a_watch_says_that_the_server_is_gone_and_that_it_is_back(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The first word comes at once, not when the server is back."""
    (tmp_path / "harbour.py").write_text(SERVER)
    server = start("run", "--http", "127.0.0.1:0", "harbour.py", stdin=subprocess.DEVNULL)
    assert server.stdout is not None
    card = server.stdout.readline() + server.stdout.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+/mcp", card)
    assert url is not None, card
    watching = start("watch", url[0], "tide://now")
    assert watching.stderr is not None
    assert watching.stdout is not None
    assert watching.stderr.readline().startswith("Watching tide://now")
    server.terminate()
    assert "connection lost, reconnecting (" in watching.stderr.readline()
    address = url[0].removeprefix("http://").removesuffix("/mcp")
    start("run", "--http", address, "harbour.py", stdin=subprocess.DEVNULL)
    assert "reconnected, may have changed: tide://now" in watching.stdout.readline()


def test_ctrl_c_ends_a_watch_with_130(start: Callable[..., subprocess.Popen[str]], url: str) -> None:
    import signal

    process = start("watch", "--json", url, "tide://now")
    assert process.stderr is not None
    assert process.stderr.readline() == "Watching tide://now: Ctrl-C stops.\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_any_revision_can_be_asked_for(say: Say, url: str, revision: str) -> None:
    expected = 3 if revision == "2024-11-05" else 0  # that one speaks HTTP in a way of its own
    assert say("read", "--revision", revision, url, "tide://at/x")[0] in (0, expected)


def test_who_cannot_be_reached_is_exit_code_3(say: Say) -> None:
    code, out, err = say("ls", "http://127.0.0.1:9/mcp")
    assert (code, out) == (3, "")
    assert "http://127.0.0.1:9/mcp" in err
    assert err.count("\n") == 1


def test_a_command_that_fails_is_told_with_its_last_words(say: Say) -> None:
    code, _, err = say("ls", "--", sys.executable, "-c", "import sys; sys.exit('no licence')")
    assert code == 3
    assert err.splitlines()[-1] == "  | no licence"


def test_a_command_gets_the_variables_that_are_named(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os, sys; sys.exit(f\"{os.environ.get('MINE')} {os.environ.get('OTHER')} {os.environ.get('SECRET')}\")"
    )
    monkeypatch.setenv("OTHER", "b")
    monkeypatch.setenv("SECRET", "c")
    err = say("ls", "--env", "MINE=a", "--env", "OTHER", "--", sys.executable, "-c", code)[2]
    assert err.splitlines()[-1] == "  | a b None"


def test_a_text_that_should_have_been_a_value_is_told_with_what_to_write(say: Say, url: str) -> None:
    code, _, err = say("call", url, "rise", "by=3")
    assert code == 1
    assert err.splitlines()[1:] == [
        "  | by: expected an integer, got a string",
        "  | by=3 sends a text: write by:=3 for the value.",
    ]
    assert "sends a text" not in say("call", url, "rise", "by=much")[2]


@pytest.mark.parametrize("folder", ["charts", "."])
def test_a_folder_is_a_target_too(say: Say, charts: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(charts.parent if folder == "charts" else charts)
    assert say("read", folder, "file:///charts/notes.md")[:2] == (0, "# Notes\n")


def test_one_of_the_servers_of_a_file_is_a_target_too(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "one, two = Server('one'), Server('two')"
    Path("tides.py").write_text(f"from wharfinger import Server\n{two}\n@two.tool\ndef lower(): return 'low'\n")
    assert say("ls", "--tools", "tides.py:two")[1].split() == ["lower"]
    assert "tides.py has several servers (one, two): choose one, such as" in say("ls", "tides.py")[2]
    code, _, err = say("ls", "tide.py:two")
    assert code == 2
    assert "tide.py: no such file. Did you mean tides.py?" in err


def test_a_reader_that_goes_away_is_no_error(url: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m wharfinger ls --json {url} | head -c 1",
        shell=True,
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert (done.stdout, done.stderr) == (b"{", b"")
