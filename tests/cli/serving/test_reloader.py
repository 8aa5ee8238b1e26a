"""`--reload`: the child is restarted when a Python file changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wharfinger.cli.error_report import CTRL_C_EXIT_CODE
from wharfinger.cli.serving.reloader import keep_running


def test_a_change_while_the_child_starts_restarts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the files were watched only after the child had started, so that it ran old code until another change."""
    file = tmp_path / "harbour.py"
    file.touch()
    popen, starts = subprocess.Popen, []

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        starts.append(command)
        if len(starts) == 2:
            raise KeyboardInterrupt
        file.write_text("changed = True")
        return popen([sys.executable, "-c", ""], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    assert keep_running(str(file), {"HARBOUR": "1"}) == CTRL_C_EXIT_CODE
    assert len(starts) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("name", "exit_code"), [("SIGTERM", 0), ("SIGHUP", 129)])
def test_a_signal_ends_the_child_too(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, name: str, exit_code: int
) -> None:
    """A bug: the child kept running, and its port in use."""
    code = "import os\nfrom wharfinger import Server\nserver = Server('harbour')\nprint('child', os.getpid())"
    (tmp_path / "harbour.py").write_text(code)
    parent = start("run", "--reload", "--http", "127.0.0.1:0", "harbour.py", env={"PYTHONUNBUFFERED": "1"})
    assert parent.stdout is not None
    child = next(int(found[1]) for line in parent.stdout if (found := re.match(r"child (\d+)", line)))
    next(line for line in parent.stdout if "MCP  " in line)
    try:
        parent.send_signal(signal.Signals[name])
        assert parent.wait(40) == exit_code
    finally:
        with pytest.raises(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_sighup_reaches_a_child_that_reads_its_policy_again(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A bug: it ended `run --reload`, while the same server without `--reload` read its policy again."""
    (tmp_path / "harbour.py").write_text("from wharfinger import Server\nserver = Server('harbour')\n")
    policy = tmp_path / "policy.toml"
    policy.write_text('[[allow]]\nwho = "anyone"\nwhat = "tide://**"\n')
    options = ("--http", "127.0.0.1:0", "--policy", "policy.toml")
    parent = start("run", "--reload", *options, "harbour.py", env={"PYTHONUNBUFFERED": "1"})
    assert parent.stdout is not None
    assert parent.stderr is not None
    next(line for line in parent.stdout if "MCP  " in line)
    before = policy.stat()
    policy.write_text('[[allow]]\nwho = "anyone"\nwhat = "tide://*/*"\n')
    os.utime(policy, ns=(before.st_atime_ns, before.st_mtime_ns))  # only SIGHUP can show that it has changed
    parent.send_signal(signal.SIGHUP)
    assert next((line for line in parent.stderr if "The policy was read again" in line), "") != ""
    assert parent.poll() is None
    parent.terminate()
    assert parent.wait(40) == 0
