"""`--reload`: the child is restarted when a Python file changes."""

from __future__ import annotations

import subprocess
import sys
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
