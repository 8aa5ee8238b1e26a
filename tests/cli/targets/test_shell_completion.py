"""Shell completion of targets, and of the features of a running server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from wharfinger.cli.app import wharfinger


def shell_completions(*words: str) -> list[str]:
    env = {"_WHARFINGER_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    output = CliRunner().invoke(wharfinger, [], env=env, prog_name="wharfinger").output
    return [line.partition(",")[2] for line in output.splitlines() if line]


def test_the_shell_completes_targets_and_features_of_a_running_server(
    harbour_url: str, harbour_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mcp.json").write_text(
        json.dumps({"mcpServers": {"harbour": {"url": harbour_url}, "x": {"command": "y"}}})
    )
    (tmp_path / "hall").mkdir()
    (tmp_path / "hat.py").write_text("")
    (tmp_path / "hut.txt").write_text("")
    (tmp_path / "ha;id").mkdir()  # bash would insert it without quotes
    assert shell_completions("wharfinger", "ls", "ha") == ["harbour", "hall", "hat.py"]
    assert shell_completions("wharfinger", "doctor", "ha") == ["harbour", "hall", "hat.py"]
    assert shell_completions("wharfinger", "call", "harbour", "be") == ["berth"]
    assert shell_completions("wharfinger", "prompt", "harbour", "") == ["briefing"]
    assert shell_completions("wharfinger", "read", "harbour", "log") == ["log://all"]
    assert shell_completions("wharfinger", "call", "x", "") == []  # completion starts no server
    assert shell_completions("wharfinger", "call", "http://127.0.0.1:9/mcp", "") == []
