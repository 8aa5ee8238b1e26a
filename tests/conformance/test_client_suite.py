"""Run the official conformance suite with client.py. Both sets of requirements are complete, and every check passes."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conformance.client import SCENARIOS
from tests.conformance.suite import Run, check_scenario, check_set, run_suite

BOTH = """
auth/basic-cimd auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/pre-registration
auth/scope-from-scopes-supported auth/scope-from-www-authenticate auth/scope-omitted-when-undefined
auth/scope-retry-limit auth/scope-step-up auth/token-endpoint-auth-basic auth/token-endpoint-auth-none
auth/token-endpoint-auth-post tools_call
"""
SCORED = {
    "2025-11-25": f"{BOTH} elicitation-sep1034-client-defaults initialize sse-retry".split(),
    "2026-07-28": f"""{BOTH}
        auth/authorization-server-migration auth/iss-normalized auth/iss-not-advertised auth/iss-supported
        auth/iss-supported-missing auth/iss-unexpected auth/iss-wrong-issuer auth/metadata-issuer-mismatch
        auth/offline-access-not-supported auth/offline-access-scope auth/resource-mismatch http-custom-headers
        http-invalid-tool-headers http-standard-headers json-schema-ref-no-deref request-metadata
        sep-2322-client-request-state
    """.split(),
}
"""The scenarios that each revision requires of a client: 18 and 32, frozen at its release."""

UNSCORED = ["auth/client-credentials-basic", "auth/client-credentials-jwt", "json-schema-2020-12-preservation"]
"""Scenarios that run with both sets, and that neither set requires."""

UNSUPPORTED = ["auth/dpop", "auth/dpop-nonce", "auth/enterprise-managed-authorization", "auth/wif-jwt-bearer"]
"""Scenarios of extensions that run with both sets, and that this client does not support."""

SEPARATE = [
    ("2025-03-26", "auth/2025-03-26-oauth-endpoint-fallback"),
    ("2025-03-26", "auth/2025-03-26-oauth-metadata-backcompat"),
    ("2025-11-25", "sep-2640-client-no-prefetch"),
    ("2025-11-25", "sep-2640-client-verify-digest"),
    ("2025-11-25", "sep-2640-client-verify-frontmatter"),
    ("2025-11-25", "sep-2640-client-verify-size"),
    ("2026-07-28", "sep-2640-client-no-prefetch"),
    ("2026-07-28", "sep-2640-client-verify-digest"),
    ("2026-07-28", "sep-2640-client-verify-frontmatter"),
    ("2026-07-28", "sep-2640-client-verify-size"),
]
"""Scenarios in neither set. Each is run separately."""

SCENARIO_RUNS = [
    *((revision, name) for revision in SCORED for name in sorted([*SCORED[revision], *UNSCORED])),
    *SEPARATE,
]

SKIPPED: dict[tuple[str, str, str], str] = {
    ("2026-07-28", "http-standard-headers", "sep-2243-client-includes-standard-headers"): (
        "Two of its checks are of `initialize` and of `notifications/initialized`, which this revision does not have."
    ),
}
"""(revision, scenario, check) that the suite skips, with the reason why that is right."""


def run_client_suite(folder: Path, *options: str) -> Run:
    """Run the suite with client.py as its client."""
    command = shlex.join([sys.executable, str(Path(__file__).with_name("client.py"))])
    return run_suite(folder, "client", "--command", command, *options, "--timeout", "90000", timeout=200)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run each set of requirements once."""
    folders = {revision: tmp_path_factory.mktemp(revision) for revision in SCORED}
    return {revision: run_client_suite(folder, "--requirements", revision) for revision, folder in folders.items()}


@pytest.mark.timeout(450)
@pytest.mark.parametrize(("revision", "number"), [("2025-11-25", 18), ("2026-07-28", 32)])
def test_each_set_of_requirements_is_complete_and_passes(revision: str, number: int, runs: dict[str, Run]) -> None:
    assert len(SCORED[revision]) == number
    check_set(runs[revision], SCORED[revision], [*UNSCORED, *UNSUPPORTED])


@pytest.mark.timeout(450)
@pytest.mark.parametrize(("revision", "scenario"), SCENARIO_RUNS)
def test_scenario(revision: str, scenario: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    options = ("--scenario", scenario, "--spec-version", revision, "--force")
    separate = (revision, scenario) in SEPARATE
    run: Run = run_client_suite(tmp_path, *options) if separate else request.getfixturevalue("runs")[revision]
    check_scenario(run, revision, scenario, SKIPPED)


def test_every_scenario_has_a_row() -> None:
    """The client has a row for each scenario and no other rows."""
    assert {scenario for _, scenario in SCENARIO_RUNS} == SCENARIOS.keys()
