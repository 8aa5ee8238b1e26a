"""`wharfinger audit report` summarises an audit log."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from wharfinger.record.audit_line import AuditLine, encode_line


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    rows = [
        AuditLine(time="2026-01-01T10:00:00.000Z", action="read", outcome="allowed", target="notes://a", subject="ann"),
        AuditLine(time="2026-01-02T10:00:00.000Z", action="read", outcome="refused", target="notes://\x1b[2Jb",
                  subject="bob", rule="deny 1"),
        AuditLine(time="2026-01-02T11:00:00.000Z", action="search", outcome="allowed", subject="bob", hits=0),
    ]  # fmt: skip
    path.write_bytes(b"".join(map(encode_line, rows)) + b"damage\n")
    return path


def test_the_report_shows_each_table_and_names_damaged_lines(log: Path) -> None:
    done = run("audit", "report", str(log))
    assert done.returncode == 0
    assert done.stderr == f"1 damaged lines: {log}:4\n"
    assert "2026-01-01T10:00:00.000Z to 2026-01-02T11:00:00.000Z: 3 lines, 2 allowed, 1 refused" in done.stdout
    assert "Most read\n  1  notes://a" in done.stdout
    assert "bob  refused  read" in done.stdout
    assert "deny 1" in done.stdout
    assert "Searches that found nothing (of 1)\n  1  (words are not recorded)" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_report_as_json_for_a_span_and_a_caller(log: Path) -> None:
    found = json.loads(run("audit", "report", "--json", "--since", "2026-01-02", "--who", "bob", str(log)).stdout)
    assert found["lines"] == 2
    assert [one["target"] for one in found["refused"]] == ["notes://\x1b[2Jb"]
    assert json.loads(run("audit", "report", "--json", "--since", "7d", str(log)).stdout)["lines"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--since", "soon", "LOG"], "is not a time"), (["nowhere.jsonl"], "does not exist"), ([], "Missing argument"),
     (["--limit", "0", "LOG"], "--limit")],
)  # fmt: skip
def test_a_mistake_gets_an_error_that_says_what_to_change(log: Path, words: list[str], message: str) -> None:
    done = run("audit", "report", *(str(log) if word == "LOG" else word for word in words))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
