"""The official conformance suite, scenario by scenario, against server.py: every check of every one must pass."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import absent

ROOT = Path(__file__).resolve().parent.parent.parent
SUITE = ROOT / ".conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = ROOT / ".node" / "bin" / "node"

BOTH = (
    "completion-complete",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "tools-list",
    "tools-call-simple-text",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "dns-rebinding-protection",
)
SCENARIOS = {
    "2025-11-25": (
        *BOTH,
        "server-initialize",
        "ping",
        "resources-subscribe",
        "resources-unsubscribe",
        "tools-call-error",
    ),
    "2026-07-28": (*BOTH, "caching", "sep-2164-resource-not-found", "server-stateless", "tools-call-error"),
}
CASES = [(revision, scenario) for revision, scenarios in SCENARIOS.items() for scenario in scenarios]

# (scenario, check) -> why it need not pass yet. One that passes must leave this table.
NOT_YET: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The fixture server, running."""
    if not SUITE.exists() or not NODE.exists():
        absent(f"{SUITE.relative_to(ROOT)} (make conformance brings it)")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as out:
        command = [sys.executable, str(Path(__file__).with_name("server.py")), str(port)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(5)
    assert "Traceback" not in log.read_text(errors="replace")


def checks_of(url: str, revision: str, scenario: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Run one scenario; return its checks and what the suite printed."""
    command = [str(NODE), str(SUITE), "server", "--url", url, "--scenario", scenario, "--spec-version", revision]
    done = subprocess.run(
        [*command, "-o", str(folder)], capture_output=True, text=True, timeout=50, check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    printed = done.stdout + done.stderr
    found = list(folder.rglob("checks.json"))
    assert found, f"the suite wrote no checks\n{printed}"
    checks: list[dict[str, Any]] = [check for path in found for check in json.loads(path.read_text(encoding="utf-8"))]
    return checks, printed


@pytest.mark.parametrize(("revision", "scenario"), CASES)
def test_scenario(revision: str, scenario: str, url: str, tmp_path: Path) -> None:
    """Warnings count as failures: each is a SHOULD that we mean to keep."""
    checks, printed = checks_of(url, revision, scenario, tmp_path)
    assert checks, printed
    passed = {check["id"] for check in checks if check["status"] in ("SUCCESS", "INFO")}
    failed = {check["id"]: check.get("errorMessage", "") for check in checks if check["id"] not in passed}
    failed.update({c["id"]: c.get("errorMessage", "") for c in checks if c["status"] in ("FAILURE", "WARNING")})
    unexpected = {name: why for name, why in failed.items() if (scenario, name) not in NOT_YET}
    assert not unexpected, json.dumps([c for c in checks if c["id"] in unexpected], indent=1)
    stale = [name for (where, name) in NOT_YET if where == scenario and name not in failed]
    assert stale == [], "these pass now: take them out of NOT_YET"
