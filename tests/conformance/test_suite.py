"""Run the official conformance suite with server.py. Both sets of requirements are complete, and every check passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.suite import Run, check_scenario, check_set, require_suite, run_suite
from tests.conftest import free_port
from tests.waiting import wait_until_listening

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

SKIPPED: dict[tuple[str, str, str], str] = {
    ("2026-07-28", "tasks-status-notifications", "tasks-status-notifications"): (
        "The suite skips it whatever the server does: it looks for the notifications on the stream of `tools/call`, "
        "where the extension sends none; tests/server/tasks/test_task_extension.py shows them on a listen."
    ),
}
"""(revision, scenario, check) that the suite skips, with the reason why that is right."""

REQUIRED_CHECKS = {
    "server-sse-polling": {"server-sse-priming-event", "server-sse-retry-field", "server-sse-disconnect-resume"},
}
"""Checks that the suite makes only for servers with the feature, which this server has."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the fixture server and yield its URL."""
    require_suite()
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as out:
        command = [sys.executable, str(Path(__file__).with_name("server.py")), str(port)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until_listening(process, port, lambda: log.read_text(errors="replace"))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(5)
    assert "Traceback" not in log.read_text(errors="replace")


def run_server_suite(url: str, folder: Path, *options: str) -> Run:
    return run_suite(folder, "server", "--url", url, *options, timeout=55)


@pytest.fixture(scope="module")
def runs(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run each set of requirements once."""
    folders = {revision: tmp_path_factory.mktemp(revision) for revision in SCORED}
    return {revision: run_server_suite(url, folder, "--requirements", revision) for revision, folder in folders.items()}


@pytest.mark.parametrize(("revision", "number"), [("2025-11-25", 30), ("2026-07-28", 37)])
def test_each_set_of_requirements_is_complete_and_passes(revision: str, number: int, runs: dict[str, Run]) -> None:
    assert len(SCORED[revision]) == number
    check_set(runs[revision], SCORED[revision], UNSCORED[revision])


@pytest.mark.parametrize(("revision", "scenario"), SCENARIO_RUNS)
def test_scenario(revision: str, scenario: str, url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options = ("--scenario", scenario, "--spec-version", revision, "--force")
    separate = scenario in SEPARATE
    run: Run = run_server_suite(url, tmp_path, *options) if separate else request.getfixturevalue("runs")[revision]
    check_scenario(run, revision, scenario, SKIPPED, REQUIRED_CHECKS.get(scenario, set()))
