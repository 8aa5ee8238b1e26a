"""Run the official conformance suite with server.py. Both sets of requirements are complete, and every check passes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import ROOT, absent, free_port

SUITE = ROOT / ".conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = ROOT / ".node" / "bin" / "node"


BOTH = """
completion-complete dns-rebinding-protection prompts-get-embedded-resource prompts-get-simple prompts-get-with-args
prompts-get-with-image prompts-list resources-list resources-read-binary resources-read-text resources-templates-read
server-sse-multiple-streams tools-call-audio tools-call-embedded-resource tools-call-error tools-call-image
tools-call-mixed-content tools-call-simple-text tools-call-with-progress tools-list
"""
SCORED = {
    "2025-11-25": f"""{BOTH}
        elicitation-sep1034-defaults elicitation-sep1330-enums logging-set-level ping resources-subscribe
        resources-unsubscribe server-initialize tools-call-elicitation tools-call-sampling tools-call-with-logging
    """.split(),
    "2026-07-28": f"""{BOTH}
        caching input-required-result-basic-elicitation input-required-result-basic-list-roots
        input-required-result-basic-sampling input-required-result-capability-check
        input-required-result-ignore-extra-params input-required-result-missing-input-response
        input-required-result-multi-round input-required-result-multiple-input-requests
        input-required-result-non-tool-request input-required-result-request-state input-required-result-result-type
        input-required-result-tampered-state input-required-result-unsupported-methods
        input-required-result-validate-input sep-2164-resource-not-found server-stateless
    """.split(),
}
"""The scenarios that each revision requires of a server: 30 and 37, frozen at its release."""

UNSCORED = {
    "2025-11-25": ["json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"],
    "2026-07-28": [
        "http-custom-header-server-validation",
        "http-header-validation",
        "json-schema-2020-12",
        "tasks-capability-negotiation",
        "tasks-dispatch-and-envelope",
        "tasks-lifecycle",
        "tasks-mrtr-composition",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-request-state-removal",
        "tasks-required-task-error",
        "tasks-status-notifications",
        "tasks-wire-fields",
    ],
}
"""Scenarios that run with a set, and that the set does not require."""

SEPARATE = ["sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"]
"""Scenarios in neither set. Each is run separately."""

SCENARIO_RUNS = [
    *((revision, name) for revision in SCORED for name in sorted(SCORED[revision] + UNSCORED[revision])),
    *(("2026-07-28", name) for name in SEPARATE),
]

SUITE_ERRORS: dict[tuple[str, str], str] = {}
"""(scenario, check) that fails because the suite is wrong, with the evidence. A row whose check passes is an error."""

SKIPPED: dict[tuple[str, str, str], str] = {
    ("2026-07-28", "tasks-status-notifications", "tasks-status-notifications"): (
        "The suite skips it whatever the server does: it looks for the notifications on the stream of `tools/call`, "
        "where the extension sends none; tests/server/tasks/test_task_extension.py shows them on a listen."
    ),
}
"""(revision, scenario, check) that the suite skips, with the reason why that is right."""

PASSED = ("SUCCESS", "INFO")

REQUIRED_CHECKS = {
    "server-sse-polling": {"server-sse-priming-event", "server-sse-retry-field", "server-sse-disconnect-resume"},
}
"""Checks that the suite makes only for servers with the feature, which this server has."""


class Run(NamedTuple):
    """The output and the files of one run of the suite."""

    status: int
    printed: str
    checks: dict[str, list[dict[str, Any]]]
    """The checks by scenario."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the fixture server and yield its URL."""
    if not SUITE.exists() or not NODE.exists():
        absent(f"{SUITE.relative_to(ROOT)} (make conformance brings it)")
    port = free_port()
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


def run_suite(url: str, folder: Path, *options: str) -> Run:
    """Run the suite, which creates one folder for each scenario."""
    done = subprocess.run(
        [str(NODE), str(SUITE), "server", "--url", url, *options, "-o", str(folder)],
        capture_output=True, text=True, timeout=55, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    checks: dict[str, list[dict[str, Any]]] = {}
    for path in folder.rglob("checks.json"):
        name = re.fullmatch(r"(?:server-)(.+?)-\d{4}-\d\d-\d\dT[\d-]+Z", path.parent.name)
        assert name is not None, f"a folder of an unknown name: {path.parent.name}"
        checks[name[1]] = json.loads(path.read_text(encoding="utf-8"))
    return Run(done.returncode, done.stdout + done.stderr, checks)


@pytest.fixture(scope="module")
def runs(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run each set of requirements once."""
    folders = {revision: tmp_path_factory.mktemp(revision) for revision in SCORED}
    return {revision: run_suite(url, folder, "--requirements", revision) for revision, folder in folders.items()}


@pytest.mark.parametrize(("revision", "number"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_each_set_of_requirements_is_complete_and_passes(revision: str, number: int, runs: dict[str, Run]) -> None:
    """Check the verdict of the suite, and that it ran all known checks."""
    run = runs[revision]
    assert set(run.checks) == {*SCORED[revision], *UNSCORED[revision]}, run.printed
    assert len(SCORED[revision]) == number
    passed = re.findall(r"^✓ (\S+): \d+ passed, 0 failed", run.printed, re.MULTILINE)
    assert set(SCORED[revision]) <= set(passed), run.printed
    assert run.status == 0, run.printed


@pytest.mark.parametrize(("revision", "scenario"), SCENARIO_RUNS)
def test_scenario(revision: str, scenario: str, url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Warnings are failures, since each is a SHOULD. Skipped checks must be listed in SKIPPED."""
    options = ("--scenario", scenario, "--spec-version", revision, "--force")
    separate = scenario in SEPARATE
    run: Run = run_suite(url, tmp_path, *options) if separate else request.getfixturevalue("runs")[revision]
    checks = run.checks.get(scenario)
    assert checks, f"the suite wrote no checks\n{run.printed}"
    failed = [c for c in checks if c["status"] not in (*PASSED, "SKIPPED") and (scenario, c["id"]) not in SUITE_ERRORS]
    assert not failed, json.dumps(failed, indent=1)
    skipped = {c["id"]: c.get("errorMessage", "") for c in checks if c["status"] == "SKIPPED"}
    assert skipped.keys() == {check for where, name, check in SKIPPED if (where, name) == (revision, scenario)}, skipped
    shown = {c["id"] for c in checks if c["status"] == "SUCCESS"}
    assert skipped or REQUIRED_CHECKS.get(scenario, set()) <= shown != set(), (
        f"required checks did not succeed: {checks}"
    )
    right = {c["id"] for c in checks if c["status"] in PASSED}
    assert not [check for (name, check) in SUITE_ERRORS if name == scenario and check in right], (
        "remove the rows of checks that pass from SUITE_ERRORS"
    )
