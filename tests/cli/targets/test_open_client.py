"""Options, environment and errors of a connection, and its end by Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.cli.conftest import RunCli
from tests.waiting import wait_until
from wharfinger.cli.targets.open_client import ConnectionOptions, read_headers
from wharfinger.transports.stdio_client import GRACE_SECONDS


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_any_revision_can_be_requested(run_cli: RunCli, tide_url: str, revision: str) -> None:
    allowed_codes = (0, 3) if revision == "2024-11-05" else (0,)  # that revision has another HTTP transport
    assert run_cli("read", "--revision", revision, tide_url, "tide://at/x")[0] in allowed_codes


def test_an_unreachable_server_is_exit_code_3(run_cli: RunCli) -> None:
    code, out, err = run_cli("ls", "http://127.0.0.1:9/mcp")
    assert (code, out) == (3, "")
    assert "http://127.0.0.1:9/mcp" in err
    assert err.count("\n") == 1


def test_a_command_that_fails_is_reported_with_its_last_output(run_cli: RunCli) -> None:
    code, _, err = run_cli("ls", "--", sys.executable, "-c", "import sys; sys.exit('no licence')")
    assert code == 3
    assert err.splitlines()[-1] == "  | no licence"


def test_a_command_gets_only_the_named_variables(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys; sys.exit(f\"{os.environ.get('MINE')} {os.environ.get('OTHER')} {os.environ.get('SECRET')}\")"
    )
    monkeypatch.setenv("OTHER", "b")
    monkeypatch.setenv("SECRET", "c")
    err = run_cli("ls", "--env", "MINE=a", "--env", "OTHER", "--", sys.executable, "-c", code)[2]
    assert err.splitlines()[-1] == "  | a b None"


STUBBORN = """
import os, signal, sys, time
from pathlib import Path
Path("pid").write_text(str(os.getpid()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin:
    print("seen", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_at_once_if_the_child_ignores_signals(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = start("ls", "-vv", "--", sys.executable, "stubborn.py")
    assert process.stderr is not None
    for line in process.stderr:
        if "seen" in line:
            break
    start_time = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - start_time < 2 * GRACE_SECONDS - 0.5
    pid = int((tmp_path / "pid").read_text())

    def has_ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(has_ended, "the child ends")


def test_the_line_end_of_a_token_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: a token with a line end, as of a file, ended in an unexpected ValueError."""
    monkeypatch.setenv("HARBOUR_TOKEN", "secret\n")
    context = click.Context(click.Command("ls"))
    options = ConnectionOptions(token_env="HARBOUR_TOKEN")
    assert read_headers(context, options) == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize("header", ["X: a\nY: b", "X\r\nY: b", "X: a\x00b"])
def test_a_header_with_a_control_character_is_a_usage_error(header: str) -> None:
    """A bug: it ended in an unexpected ValueError."""
    with pytest.raises(click.UsageError, match="control character"):
        read_headers(click.Context(click.Command("ls")), ConnectionOptions(headers=(header,)))
