"""`prompt`, `complete`, `inspect` and the shell's completion, against real servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import COMMAND, ENVIRONMENT, Terminal
from wharfinger.cli import main
from wharfinger.cli.app import wharfinger

SERVER = '''
from typing import Annotated

from wharfinger import Complete, Server

server = Server("harbour", instructions="Ships and tides.\\nSee the log.")


def vessels(typed: str) -> list[str]:
    return [name for name in ("mary", "marta", "olga") if name.startswith(typed)]


@server.resource("log://{vessel}/today")
def log(vessel: Annotated[str, Complete(vessels)]) -> str:
    return vessel


@server.resource("log://all")
def everything() -> str:
    return ""


@server.tool
def berth(ship: str) -> str:
    """Assign a berth."""
    return ship


@server.prompt
def briefing(vessel: Annotated[str, Complete(vessels)], notes: str = "") -> str:
    return f"Brief me on {vessel}.\\x1b[31m{notes}"
'''

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a server."""
    place = tmp_path_factory.mktemp("server") / "harbour.py"
    place.write_text(SERVER)
    return place


@pytest.fixture(scope="module")
def url(file: Path) -> Iterator[str]:
    """The address of a running server."""
    process = subprocess.Popen(
        [*COMMAND, "run", "--http", "127.0.0.1:0", str(file)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdout is not None
    yield next(found[1] for line in process.stdout if (found := re.search(r"MCP  (\S+)", line)))
    process.terminate()
    process.communicate()


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Say:
    """Run a command in this process."""

    def run(*args: str) -> tuple[int, str, str]:
        code = main(args)
        told = capfd.readouterr()
        return code, told.out, told.err

    return run


def test_a_prompt_s_messages_are_printed(say: Say, url: str, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("soon")
    code, out, err = say("prompt", url, "briefing", "vessel=mary", f"notes=@{tmp_path / 'n.txt'}")
    assert (code, err) == (0, "")
    assert out == "[user]\nBrief me on mary.\x1b[31msoon\n"  # into a pipe text goes as it is
    result = json.loads(say("prompt", "--json", url, "briefing", "vessel=mary")[1])
    assert result["messages"][0]["role"] == "user"


def test_a_prompt_that_cannot_be_is_one_line(say: Say, url: str) -> None:
    for args, code in (
        (["nothing"], 1),
        (["briefing"], 1),
        (["briefing", "vessel"], 2),
        (["briefing", "vessel:=1"], 2),
        (["briefing", "vessel=a", "vessel=b"], 2),
        ([], 2),
    ):
        told = say("prompt", url, *args)
        assert (told[0], told[1], told[2].count("\n") <= 2) == (code, "", True)


def test_values_are_completed_one_a_line(say: Say, url: str) -> None:
    assert say("complete", url, "briefing", "vessel", "ma") == (0, "mary\nmarta\n", "")
    assert say("complete", url, "log://{vessel}/today", "vessel")[1].split() == ["mary", "marta", "olga"]
    assert json.loads(say("complete", "--json", url, "briefing", "vessel", "o", "notes=x")[1])["values"] == ["olga"]
    assert say("complete", url, "briefing")[0] == 2


def test_a_variable_that_a_template_does_not_have_is_reported(say: Say, url: str) -> None:
    code, out, err = say("complete", url, "log://{vessel}/{day}", "ship")
    assert (code, out) == (2, "")
    assert "log://{vessel}/{day} has no variable 'ship': it has vessel, day." in err


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_inspect_tells_a_program_everything(say: Say, url: str, revision: str) -> None:
    found = json.loads(say("inspect", "--json", "--revision", revision, url)[1])
    assert (found["revision"], found["transport"], found["server"]["name"]) == (revision, "streamable http", "harbour")
    assert {kind: one["count"] for kind, one in found["lists"].items()} == {
        "resources": 1,
        "templates": 1,
        "tools": 1,
        "prompts": 1,
    }
    assert found["capabilities"]["completions"] == {}
    assert found["timings"]["connectMs"] > 0
    assert len(found["timings"]["roundTripMs"]) == 5


def test_inspect_tells_a_person_which_revisions_are_spoken(say: Say, file: Path) -> None:
    code, out, err = say("inspect", str(file))
    assert (code, err) == (0, "")
    told = re.sub(r"  +", "  ", out)
    assert "Server  harbour 0\n" in told
    assert "Transport  stdio\n" in told
    assert "Speaks  2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05\n" in told
    assert "\nLists  1 resource in " in told
    assert out.endswith("Instructions  Ships and tides.\n              See the log.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_a_server_on_a_unix_socket_is_a_target(say: Say, tmp_path: Path) -> None:
    place = tmp_path / "s"
    script = "from wharfinger import Server\nimport sys\nServer('quay').run(unix=sys.argv[1])"
    process = subprocess.Popen([sys.executable, "-c", script, str(place)], env=ENVIRONMENT)
    try:
        for _ in range(400):
            if place.exists():
                break
            time.sleep(0.05)
        found = json.loads(say("inspect", "--json", "--no-probe", f"unix:{place}")[1])
        assert (found["transport"], found["server"]["name"]) == ("unix socket", "quay")
        assert say("ls", "--tree", str(place)) == (0, "quay 0\n", "")
        code, _, err = say("ls", str(place))
        assert (code, err) == (1, "wharfinger: The server has no resources, no tools and no prompts.\n")
        assert say("ls", f"unix:{tmp_path}/none")[0] == 3
    finally:
        process.terminate()
        process.wait(20)


def completed(*words: str) -> list[str]:
    env = {"_WHARFINGER_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    output = CliRunner().invoke(wharfinger, [], env=env, prog_name="wharfinger").output
    return [line.partition(",")[2] for line in output.splitlines() if line]


def test_the_shell_completes_targets_and_what_a_running_server_has(
    url: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"harbour": {"url": url}, "x": {"command": "y"}}}))
    (tmp_path / "hall").mkdir()
    (tmp_path / "hat.py").write_text("")
    (tmp_path / "hut.txt").write_text("")
    assert completed("wharfinger", "ls", "ha") == ["harbour", "hall", "hat.py"]
    assert completed("wharfinger", "call", "harbour", "be") == ["berth"]
    assert completed("wharfinger", "prompt", "harbour", "") == ["briefing"]
    assert completed("wharfinger", "read", "harbour", "log") == ["log://all"]
    assert completed("wharfinger", "call", "x", "") == []  # it would have to be started
    assert completed("wharfinger", "call", "http://127.0.0.1:9/mcp", "") == []


def test_a_change_runs_a_command_once_at_a_time(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    tide = tmp_path / "charts" / "tide.txt"
    tide.write_text("low")
    uri = "file:///charts/tide.txt"
    run = 'test ! -e busy && touch busy && echo "$WHARFINGER_KIND $WHARFINGER_URI" && rm busy; exit 3'
    process = start("watch", "--count", "2", "--exec", run, "charts", uri)
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


STUBBORN = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin:
    print("seen", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_at_once_though_a_child_does_not(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(
        STUBBORN.replace(
            "signal.signal(signal.SIGTERM",
            "open('pid', 'w').write(str(__import__('os').getpid()))\nsignal.signal(signal.SIGTERM",
        )
    )
    process = start("ls", "-vv", "--", sys.executable, "stubborn.py")
    assert process.stderr is not None
    for line in process.stderr:
        if "seen" in line:
            break
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - begun < 2
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.05)


def test_no_escape_sequence_of_a_prompt_reaches_a_terminal(terminal: Callable[..., Terminal], file: Path) -> None:
    sits = terminal("prompt", str(file), "briefing", "vessel=mary")
    assert sits.end() == 0
    assert "\x1b" not in sits.shown
