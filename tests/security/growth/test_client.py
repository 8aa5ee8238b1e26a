"""The client's cost grows no faster than the answers of hostile servers, at 1, 10 and 100 times their size."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.security.growth.hostile_server import LINES_BEFORE_ANSWER, RESULTS
from tests.security.growth.measuring import Cost, check_growth, cost_of_command
from tests.security.server_processes import MIB

SERVER = str(Path(__file__).with_name("hostile_server.py"))
IDLE_BYTES = 96 * MIB
ANSWER_BYTES = 8 * MIB

SIZES = {
    **dict.fromkeys(LINES_BEFORE_ANSWER, 500),
    **dict.fromkeys(RESULTS, 1_000),
    "long-line": 50_000,
    "text": 50_000,
    "base64": 10_000,
    "no-base64": 50_000,
    "instructions": 50_000,
    "name": 50_000,
    "description": 5_000,
    "error": 50_000,
    "error-data": 1_000,
    "pages": 20,
    "tools": 100,
    "schema": 500,
    "nested-schema": 5,
    "pattern": 100,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", SIZES)
def test_cost_grows_no_faster_than_the_answer(tmp_path: Path, kind: str) -> None:
    def measure(n: int) -> Cost:
        server = [sys.executable, SERVER, kind, str(n)]
        command = [sys.executable, "-m", "wharfinger", "call", "--timeout", "50", "t", "--", *server]
        return cost_of_command(command, tmp_path)

    check_growth(measure, SIZES[kind], max_kept_bytes=ANSWER_BYTES, base_bytes=IDLE_BYTES)
