"""The table of threats and faults is complete, and every test that it names exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.security.rows import REASONS, ROWS, TESTS, row_ids

FOLDER = Path(__file__).parent.parent


def test_every_row_has_one_test_or_one_reason() -> None:
    assert sorted(row for rows in (*TESTS, *REASONS) for row in row_ids(rows)) == sorted(row_ids(ROWS))


@pytest.mark.parametrize("file", sorted({name.partition("::")[0] for name in TESTS.values()}))
def test_every_test_of_the_table_exists(file: str) -> None:
    tree = ast.parse((FOLDER / file).read_text())
    existing_tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    listed_tests = {name.partition("::")[2] for name in TESTS.values() if name.startswith(f"{file}::")}
    assert not listed_tests - existing_tests
