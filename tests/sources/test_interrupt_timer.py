"""A statement that takes too long is interrupted, whenever it starts."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator

import pytest

from wharfinger.sources.interrupt_timer import InterruptTimer

LONG = "SELECT count(*) FROM range(10000000) a, range(10000000) b"


@pytest.fixture
def interrupted() -> threading.Event:
    return threading.Event()


@pytest.fixture
def start_timer(interrupted: threading.Event) -> Iterator[Callable[..., InterruptTimer]]:
    timers: list[InterruptTimer] = []

    def start(interrupt: Callable[[], object], seconds: float) -> InterruptTimer:
        def interrupt_and_note() -> None:
            interrupt()
            interrupted.set()

        timers.append(InterruptTimer(interrupt_and_note, seconds))
        timers[-1].start()
        return timers[-1]

    yield start
    for timer in timers:
        timer.end()


def test_a_statement_of_duckdb_that_starts_after_the_first_interrupt_is_interrupted(
    interrupted: threading.Event, start_timer: Callable[..., InterruptTimer]
) -> None:
    """Regression: DuckDB ignores an interrupt while no statement runs, and the statement had no time limit."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        cursor = connection.cursor()
        timer = start_timer(cursor.interrupt, 0.0)
        assert interrupted.wait(20)
        with pytest.raises(duckdb.InterruptException):
            cursor.execute(LONG)
        timer.end()


def test_a_statement_of_sqlite_that_starts_after_the_first_interrupt_is_interrupted(
    interrupted: threading.Event, start_timer: Callable[..., InterruptTimer]
) -> None:
    connection = sqlite3.connect(":memory:")
    timer = start_timer(connection.interrupt, 0.0)
    assert interrupted.wait(20)
    numbers = "WITH RECURSIVE q (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q) SELECT count(*) FROM q"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        connection.execute(numbers)
    timer.end()
    connection.close()


def test_interrupt_now_does_not_wait_for_the_time_to_pass(
    interrupted: threading.Event, start_timer: Callable[..., InterruptTimer]
) -> None:
    start_timer(lambda: None, 600.0).interrupt_now()
    assert interrupted.wait(20)


def test_nothing_is_interrupted_after_the_end(
    interrupted: threading.Event, start_timer: Callable[..., InterruptTimer]
) -> None:
    timer = start_timer(lambda: None, 600.0)
    timer.end()
    assert not timer.is_alive()
    assert not interrupted.is_set()
    timer = start_timer(lambda: None, 0.0)
    assert interrupted.wait(20)
    timer.end()
    assert not timer.is_alive()
