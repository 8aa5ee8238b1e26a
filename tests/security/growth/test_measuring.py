"""The memory of a command is measured without that of the process that runs the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.security.growth.measuring import cost_of_command
from tests.security.server_processes import MIB


@pytest.mark.parametrize("used_mib", [0, 200])
def test_the_memory_of_a_command_does_not_include_that_of_the_tests(tmp_path: Path, used_mib: int) -> None:
    """Regression: a command that followed tests with much memory was charged with it."""
    tests_memory = b"x" * (500 * MIB)
    cost = cost_of_command([sys.executable, "-c", f"b'x' * ({used_mib} << 20)"], tmp_path)
    assert used_mib * MIB < cost.memory < (used_mib + 64) * MIB
    assert len(tests_memory) == 500 * MIB


def test_a_command_that_is_killed_or_refuses_its_arguments_has_no_cost(tmp_path: Path) -> None:
    for code in ("import os; os.kill(os.getpid(), 9)", "raise SystemExit(2)"):
        with pytest.raises(AssertionError):
            cost_of_command([sys.executable, "-c", code], tmp_path)
    cost_of_command([sys.executable, "-c", "raise SystemExit(1)"], tmp_path)
