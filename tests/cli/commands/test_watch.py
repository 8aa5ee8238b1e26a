"""`wharfinger watch` prints changes, runs commands, and reconnects."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import TIDE_SERVER, RunCli, run_server_file
from wharfinger import Client, Server
from wharfinger.cli import main
from wharfinger.cli.commands.watch import print_change, run_command
from wharfinger.client import Change


def test_watch_prints_each_change_and_the_content(run_cli: RunCli, tide_url: str) -> None:
    """The change is repeated until it is seen, since the start of the watch cannot be observed."""
    seen = threading.Event()

    async def rise() -> None:
        async with Client(tide_url) as client:
            while not seen.is_set():
                await client.call_tool("rise", {"by": 1})

    riser = threading.Thread(target=lambda: asyncio.run(rise()), daemon=True)
    riser.start()
    try:
        code, out, err = run_cli("watch", "--count", "2", "--read", tide_url, "tide://now")
    finally:
        seen.set()
        riser.join(20)
    assert code == 0
    assert re.fullmatch(r"(\d\d:\d\d:\d\d changed tide://now\n\d+ m\n){2}", out)
    assert err == "Watching tide://now: Ctrl-C stops.\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_deleted_resource_is_reported_as_deleted(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug: with `--json`, nothing said why there was no content."""
    server = Server("harbour")

    @server.resource("tide://high")
    def high() -> str:
        return "5 m"

    async def report() -> None:
        async with Client(server) as client:
            await print_change(client, Change("resource", "tide://now"), True, as_json)

    asyncio.run(report())
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out) == {"kind": "resource", "uri": "tide://now", "deleted": True}
    else:
        assert out.endswith(" changed tide://now  (deleted)\n")


def test_binary_content_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug: `--read` printed nothing for it."""
    server = Server("harbour")

    @server.resource("tide://map", mime_type="image/png")
    def map() -> bytes:
        return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\0\x80"

    async def report() -> None:
        async with Client(server) as client:
            await print_change(client, Change("resource", "tide://map"), True, False)

    asyncio.run(report())
    assert capsys.readouterr().out.endswith(" changed tide://map\n[image/png, 24 B, PNG image 256 x 128]\n")


def test_a_watch_of_a_missing_resource_is_refused(run_cli: RunCli, tide_url: str) -> None:
    code, out, err = run_cli("watch", tide_url, "tide://nowhere")
    assert (code, out) == (1, "")
    assert "tide://nowhere" in err


def test_a_watch_reports_the_loss_and_return_of_the_connection(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The loss is reported at once, before the server is back."""
    (tmp_path / "harbour.py").write_text(TIDE_SERVER)
    server = start("run", "--http", "127.0.0.1:0", "harbour.py", stdin=subprocess.DEVNULL)
    assert server.stdout is not None
    banner = server.stdout.readline() + server.stdout.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+/mcp", banner)
    assert url is not None, banner
    watcher = start("watch", url[0], "tide://now")
    assert watcher.stderr is not None
    assert watcher.stdout is not None
    assert watcher.stderr.readline().startswith("Watching tide://now")
    server.terminate()
    assert "connection lost, reconnecting (" in watcher.stderr.readline()
    assert server.wait(20) == 0
    address = url[0].removeprefix("http://").removesuffix("/mcp")
    start("run", "--http", address, "harbour.py", stdin=subprocess.DEVNULL)
    assert "reconnected, may have changed: tide://now" in watcher.stdout.readline()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_read_that_fails_does_not_end_the_watch(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, as_json: bool
) -> None:
    """A bug: it did, and the change was not printed."""
    (tmp_path / "harbour.py").write_text(TIDE_SERVER.replace("    return f", "    1 / (height - 1)\n    return f", 1))
    with run_server_file(tmp_path / "harbour.py") as url:
        watcher = start("watch", "--read", *["--json"] * as_json, url, "tide://now")
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        assert watcher.stderr.readline().startswith("Watching")
        assert main(["call", "-q", url, "rise", "by:=1"]) == 0
        if as_json:
            assert json.loads(watcher.stdout.readline())["error"].startswith("Internal error")
        else:
            assert "changed tide://now" in watcher.stdout.readline()
            assert watcher.stderr.readline().startswith("wharfinger: it cannot be read: Internal error")
        assert main(["call", "-q", url, "rise", "by:=1"]) == 0
        line = watcher.stdout.readline()
        assert "2 m" in (line if as_json else watcher.stdout.readline())


def test_ctrl_c_ends_a_watch_with_130(start: Callable[..., subprocess.Popen[str]], tide_url: str) -> None:
    process = start("watch", "--json", tide_url, "tide://now")
    assert process.stderr is not None
    assert process.stderr.readline() == "Watching tide://now: Ctrl-C stops.\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")


def test_changes_run_the_command_one_at_a_time(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    tide = tmp_path / "charts" / "tide.txt"
    tide.write_text("low")
    uri = "file:///charts/tide.txt"
    command = 'test ! -e busy && touch busy && echo "$WHARFINGER_KIND $WHARFINGER_URI" && rm busy; exit 3'
    process = start("watch", "--count", "2", "--exec", command, "charts", uri)
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline().startswith("Watching")
    tide.write_text("high")
    assert "changed" in process.stdout.readline()
    assert process.stdout.readline() == f"resource {uri}\n"
    assert process.stderr.readline() == "wharfinger: the command exited with code 3.\n"
    tide.write_text("low again")
    out, _ = process.communicate(timeout=20)
    assert out.splitlines()[1:] == [f"resource {uri}"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("uri", "reason"),
    [("file:///a\0b", "embedded null byte"), ("file:///" + "a" * 1_000_000, "Argument list too long")],
)
def test_a_uri_that_no_variable_can_have_does_not_end_the_watch(
    uri: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(run_command("echo started", Change(kind="resource", uri=uri)))
    assert capfd.readouterr() == ("", f"wharfinger: the command cannot be started: {reason}.\n")
