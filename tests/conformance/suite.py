"""Runs the official conformance suite, and judges the checks that it wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT, absent

SUITE = ROOT / ".conformance" / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = ROOT / ".node" / "bin" / "node"

PASSED = ("SUCCESS", "INFO")


class Run(NamedTuple):
    """The output and the files of one run of the suite."""

    status: int
    printed: str
    checks: dict[str, list[dict[str, Any]]]
    """The checks by scenario."""


def require_suite() -> None:
    """Skip the running test if the suite is not installed. In CI, fail it."""
    if not SUITE.exists() or not NODE.exists():
        absent(f"{SUITE.relative_to(ROOT)} (make conformance brings it)")


def run_suite(folder: Path, *arguments: str, timeout: float) -> Run:
    """Run the suite, which creates one folder for each scenario. The first argument is `server` or `client`."""
    require_suite()
    done = subprocess.run(
        [str(NODE), str(SUITE), *arguments, "-o", str(folder)],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    checks: dict[str, list[dict[str, Any]]] = {}
    for path in folder.rglob("checks.json"):
        name = re.fullmatch(r"(?:server-)?(.+?)-\d{4}-\d\d-\d\dT[\d-]+Z", path.parent.relative_to(folder).as_posix())
        assert name is not None, f"a folder of an unknown name: {path.parent}"
        checks[name[1]] = json.loads(path.read_text(encoding="utf-8"))
    return Run(done.returncode, done.stdout + done.stderr, checks)


def check_set(run: Run, scored: Collection[str], unscored: Collection[str]) -> None:
    """Check that the suite ran exactly these scenarios, that all scored ones passed, and that it reports success."""
    assert set(run.checks) == {*scored, *unscored}, run.printed
    passed = re.findall(r"^✓ (\S+): \d+ passed, 0 failed", run.printed, re.MULTILINE)
    assert set(scored) <= set(passed), run.printed
    assert run.status == 0, run.printed


def check_scenario(
    run: Run,
    revision: str,
    scenario: str,
    skipped: Mapping[tuple[str, str, str], str],
    required: Collection[str] = (),
) -> None:
    """Check that no check of a scenario failed, that exactly those in `skipped` were skipped, and `required` succeeded.

    Warnings are failures, since each is a SHOULD.
    """
    checks = run.checks.get(scenario)
    assert checks, f"the suite wrote no checks\n{run.printed}"
    failed = [check for check in checks if check["status"] not in (*PASSED, "SKIPPED")]
    assert not failed, json.dumps(failed, indent=1)
    reasons = {check["id"]: check.get("errorMessage", "") for check in checks if check["status"] == "SKIPPED"}
    assert reasons.keys() == {check for where, name, check in skipped if (where, name) == (revision, scenario)}, reasons
    shown = {check["id"] for check in checks if check["status"] == "SUCCESS"}
    assert {*required} <= shown, f"required checks did not succeed: {checks}"
    assert shown or len(reasons) == len(checks), f"no check succeeded: {checks}"
