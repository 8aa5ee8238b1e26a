"""docs/interoperability.md lists the tested programs with their installed versions."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.interop.frameworks import FRAMEWORKS, Framework, pinned_versions

PAGE = (ROOT / "docs" / "interoperability.md").read_text(encoding="utf-8")
ENVIRONMENTS = ("mcp1", "mcp2", "ts", "oidc", "servers_js")


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.program)
def test_the_row_of_a_framework_matches_its_tests(framework: Framework) -> None:
    """If this fails, copy the table from the message."""
    assert framework.row() in PAGE.splitlines()


def test_every_framework_in_the_table_is_tested() -> None:
    table = PAGE.partition("## Agent frameworks")[2].partition("###")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(FRAMEWORKS)


def test_the_versions_of_servers_and_bridges_are_the_tested_ones() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^ ]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 12
    installed = {
        name: version for environment in ENVIRONMENTS for name, version in pinned_versions(environment).items()
    }
    assert [(name, installed.get(name)) for name, _ in rows] == rows


def test_the_page_describes_how_each_framework_handles_an_answer() -> None:
    for framework in FRAMEWORKS:
        assert f"- **{framework.title}**: " in PAGE
