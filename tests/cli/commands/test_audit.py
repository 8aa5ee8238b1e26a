"""`wharfinger audit report` summarises an audit log."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from wharfinger.record.audit_line import AuditLine, encode_line


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit\x1b[2J.jsonl"
    rows = [
        AuditLine(time="2026-01-01T10:00:00.000Z", action="read", outcome="allowed", target="notes://a", subject="ann"),
        AuditLine(time="2026-01-02T10:00:00.000Z", action="read", outcome="refused", target="notes://\x1b[2Jb",
                  subject="bob", rule="deny 1"),
        AuditLine(time="2026-01-02T11:00:00.000Z", action="search", outcome="allowed", subject="bob", hits=0),
    ]  # fmt: skip
    path.write_bytes(b"".join(map(encode_line, rows)) + b"damage\n")
    return path


def test_the_report_shows_each_table_and_names_damaged_lines(log: Path) -> None:
    completed = run("audit", "report", str(log))
    assert completed.returncode == 0
    assert completed.stderr == f"1 damaged line: {log.parent}/audit\\x1b[2J.jsonl:4\n"
    assert "2026-01-01T10:00:00.000Z to 2026-01-02T11:00:00.000Z: 3 lines, 2 allowed, 1 refused" in completed.stdout
    assert "Most read\n  1  notes://a" in completed.stdout
    assert "bob  refused  read" in completed.stdout
    assert "deny 1" in completed.stdout
    assert "Searches that found nothing (of 1)\n  1  (words are not recorded)" in completed.stdout
    assert "\x1b" not in completed.stdout


def test_the_report_says_what_is_not_in_the_log(tmp_path: Path) -> None:
    """A bug: what is missing was called requests, but may be lines, of which a request may have several."""
    log = tmp_path / "audit.jsonl"
    log.write_bytes(
        encode_line(AuditLine(time="2026-01-01T10:00:00.000Z", action="record", outcome="resumed", unrecorded=4))
    )
    report = run("audit", "report", str(log)).stdout
    assert ": 1 line, no requests\n" in report
    assert "Not in the log, which could not be written: 4 requests or lines.\n" in report


def test_the_report_as_json_for_a_span_and_a_caller(log: Path) -> None:
    found = json.loads(run("audit", "report", "--json", "--since", "2026-01-02", "--who", "bob", str(log)).stdout)
    assert found["lines"] == 2
    assert [row["target"] for row in found["refused"]] == ["notes://\x1b[2Jb"]
    assert json.loads(run("audit", "report", "--json", "--since", "7d", str(log)).stdout)["lines"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--since", "soon", "LOG"], "is not a time"), (["--since", "2026-02-31", "LOG"], "is not a time"),
     (["--until", "2026-01-01T25:00:00Z", "LOG"], "is not a time"), (["nowhere.jsonl"], "does not exist"),
     ([], "Missing argument"), (["--limit", "0", "LOG"], "--limit")],
)  # fmt: skip
def test_the_error_for_a_mistake_suggests_a_correction(log: Path, arguments: list[str], message: str) -> None:
    completed = run("audit", "report", *(str(log) if word == "LOG" else word for word in arguments))
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
