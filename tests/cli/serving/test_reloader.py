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
