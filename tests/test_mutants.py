"""`tools/mutants.py` runs the tests in a copy of the project in which they pass without a fault."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.test_dist import tracked_files
from tools import mutants


def test_the_copy_has_every_tracked_file(tmp_path: Path) -> None:
    """Regression: without .github, tests/test_workflows.py failed, and every fault counted as noticed."""
    copy = mutants.copy_repository(tmp_path)
    assert {name for name in tracked_files() if not (copy / name).exists()} <= {".gitignore"}


def test_the_last_round_leaves_out_the_same_tests_as_the_quick_suite() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    elsewhere = re.search(r"^ELSEWHERE := (.*)$", makefile, re.MULTILINE)
    assert elsewhere is not None
    assert set(mutants.SLOW) == set(elsewhere[1].split())
