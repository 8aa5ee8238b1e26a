"""The manifest of requirements is complete: its tests exist, and it lists every test that names a requirement."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.conformance import test_client_suite
from tests.conformance.test_suite import SCENARIO_RUNS, SKIPPED
from tests.requirements import base, client, extensions, features
from tests.transcripts.families import FAMILIES

FOLDER = Path(__file__).parent.parent
ROWS = (*base.ROWS, *features.ROWS, *extensions.ROWS, *client.ROWS)
BY_ID = {row.id: row for row in ROWS}

COUNTS = {
    "2.1": 22, "2.2": 14, "2.3": 12, "2.4": 5, "2.5": 8, "2.6": 7, "2.7": 17, "2.8": 10, "2.9": 19, "2.10": 4,
    "2.11": 28, "2.12": 10, "2.13": 7, "2.14": 13, "2.15": 20, "2.16": 15, "2.17": 19, "2.18": 13, "2.19": 19,
    "2.20": 12, "2.22": 7, "2.23": 9,
    "C2.1": 9, "C2.2": 10, "C2.3": 6, "C2.4": 1, "C2.5": 5, "C2.6": 7, "C2.7": 8, "C2.8": 6, "C2.9": 9, "C2.10": 3,
    "C2.11": 4, "C2.12": 4, "C2.13": 7, "C2.14": 7, "C2.15": 3, "C2.16": 2, "C2.17": 7, "C2.18": 9, "C2.19": 3, "C2.20": 4,
    "C2.21": 21, "C2.22": 2,
}  # fmt: skip
"""The number of requirements in each section, with a C for clients. The authorization of servers is not included."""

REQUIREMENT = re.compile(r"Requirements? ((?:C?\d+\.\d+-\d+(?:, | and )?)+)")
TRANSCRIPT_TEST = "transcripts/test_replay.py::test_in_process_server_answers_as_recorded"
SCENARIO_TEST = "conformance/test_suite.py::test_scenario"
CLIENT_SCENARIO_TEST = "conformance/test_client_suite.py::test_scenario"


@cache
def docstrings_by_test(file: str) -> dict[str, str]:
    """Return the docstrings of the tests in a file, by name."""
    path = FOLDER / file
    nodes = ast.walk(ast.parse(path.read_text("utf-8"))) if path.is_file() else ()
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def parameter_ids(test: str) -> set[str]:
    """Return the parameter ids of a test of transcripts or scenarios."""
    if test == TRANSCRIPT_TEST:
        return {f"{revision}-{family}" for revision, family in FAMILIES}
    if test == SCENARIO_TEST:
        return {f"{revision}-{scenario}" for revision, scenario in SCENARIO_RUNS}
    if test == CLIENT_SCENARIO_TEST:
        return {f"{revision}-{scenario}" for revision, scenario in test_client_suite.SCENARIO_RUNS}
    return set()


def test_every_section_has_all_its_requirements_once() -> None:
    assert len(BY_ID) == len(ROWS)
    assert Counter(row.id.rpartition("-")[0] for row in ROWS) == COUNTS
    for section, number in COUNTS.items():
        assert {f"{section}-{n}" for n in range(1, number + 1)} <= BY_ID.keys()


@pytest.mark.parametrize("section", COUNTS)
def test_every_test_of_a_row_exists(section: str) -> None:
    missing: dict[str, list[str]] = defaultdict(list)
    for row in ROWS:
        if row.id.rpartition("-")[0] == section:
            for reference in row.tests:
                test, bracket, parameter = reference.partition("[")
                file, _, name = test.partition("::")
                if name not in docstrings_by_test(file) or (bracket and parameter[:-1] not in parameter_ids(test)):
                    missing[row.id].append(reference)
            if not row.tests and not row.followed.startswith("no: "):
                missing[row.id].append("no test")
    assert not missing


def test_every_should_is_followed_or_has_a_reason() -> None:
    for row in ROWS:
        assert re.fullmatch(r"yes(: .+)?|(no|partly): .+", row.followed), row
        assert row.level == "SHOULD" or row.followed == "yes", row
        assert row.source and row.text.endswith("."), row


def test_every_requirement_in_the_docstring_of_a_test_lists_the_test() -> None:
    count = 0
    for path in sorted(FOLDER.rglob("test_*.py")):
        file = path.relative_to(FOLDER).as_posix()
        for name, text in docstrings_by_test(file).items():
            for ids in REQUIREMENT.findall(text):
                for id in re.findall(r"C?\d+\.\d+-\d+", ids):
                    assert id in BY_ID, f"{file}::{name} names the unknown requirement {id}"
                    assert f"{file}::{name}" in BY_ID[id].tests, f"{file}::{name} names {id}, which does not list it"
                    count += 1
    assert count


def test_every_test_in_this_folder_names_a_requirement() -> None:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name != Path(__file__).name:
            without_requirement = [
                name
                for name, text in docstrings_by_test(f"requirements/{path.name}").items()
                if not REQUIREMENT.search(text)
            ]
            assert not without_requirement, path.name


@pytest.mark.parametrize("test", [TRANSCRIPT_TEST, SCENARIO_TEST, CLIENT_SCENARIO_TEST])
def test_every_transcript_and_scenario_is_used_by_a_row(test: str) -> None:
    references = {reference for row in ROWS for reference in row.tests}
    skipped = {f"{revision}-{scenario}" for revision, scenario, _ in SKIPPED}
    assert {f"{test}[{parameter}]" for parameter in parameter_ids(test) - skipped} - references == set()
