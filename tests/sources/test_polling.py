"""Polling reports every lasting state once, from the first watch to the last unwatch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.sources.conftest import ChangeRecorder
from wharfinger.errors import ResourceNotFound
from wharfinger.source import SourceUnavailable
from wharfinger.sources import polling
from wharfinger.sources.polling import Polling


class Sea:
    """States by URI. A test sets them, and waits until they are polled."""

    def __init__(self) -> None:
        self.states: dict[str | None, int | Exception] = {}
        self.looks = 0
        self._seen = threading.Condition()

    def look(self, uri: str | None) -> int:
        with self._seen:
            self.looks += 1
            self._seen.notify_all()
        state = self.states.get(uri, 0)
        if isinstance(state, Exception):
            raise state
        return state

    def wait_for_looks(self, number: int) -> None:
        with self._seen:
            begin = self.looks
            assert self._seen.wait_for(lambda: self.looks >= begin + number, 10)


@pytest.fixture
def sea() -> Sea:
    return Sea()


@pytest.fixture
def start_polling(sea: Sea) -> Iterator[Callable[..., Polling]]:
    made: list[Polling] = []

    def make(every: float = 0.01, **options: object) -> Polling:
        made.append(Polling("sea", sea.look, every=every, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for polled in made:
        polled.close()


def test_change_is_reported_once(sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder) -> None:
    watch = start_polling()
    watch.watch("sea:1", recorder)
    sea.wait_for_looks(2)
    sea.states["sea:1"] = 1
    recorder.wait_for("sea:1")
    sea.wait_for_looks(3)
    assert recorder.changes == []


def test_list_changes_deletions_and_returns_are_reported(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    watch = start_polling()
    watch.watch(None, recorder)
    watch.watch("sea:1", recorder)
    sea.wait_for_looks(4)
    sea.states = {None: 1, "sea:1": ResourceNotFound("sea:1")}
    recorder.wait_for(None, "sea:1")
    sea.states = {None: 1}
    recorder.wait_for("sea:1")


def test_a_failed_poll_is_retried_and_not_reported(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    watch = start_polling()
    watch.watch("sea:1", recorder)
    sea.wait_for_looks(2)
    sea.states["sea:1"] = OSError("fog")
    sea.wait_for_looks(3)
    sea.states["sea:1"] = 0
    sea.wait_for_looks(3)
    assert recorder.changes == []
    assert "tried again" in caplog.text
    sea.states["sea:1"] = 2
    recorder.wait_for("sea:1")


def test_a_watch_compares_with_the_state_seen_before_it(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    """A change before the first poll of the thread is reported."""
    watch = start_polling()
    watch.record("sea:1", 0)
    sea.states["sea:1"] = 1
    watch.watch("sea:1", recorder)
    recorder.wait_for("sea:1")


def test_recorded_versions_are_bounded_by_a_number_of_uris(
    monkeypatch: pytest.MonkeyPatch, sea: Sea, recorder: ChangeRecorder
) -> None:
    monkeypatch.setattr(polling, "MAX_RECORDED", 2)
    watch = Polling("sea", sea.look, every=60)
    for number in range(5):
        watch.record(f"sea:{number}", 7)
    assert list(watch._recorded) == ["sea:3", "sea:4"]


def test_all_watchers_are_notified_once_of_an_outage_and_once_of_its_end(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    watch = start_polling()
    for uri in (None, "sea:1", "sea:2"):
        watch.watch(uri, recorder)
    sea.wait_for_looks(6)
    sea.states = dict.fromkeys((None, "sea:1", "sea:2"), SourceUnavailable("The tide is out."))
    recorder.wait_for(None, "sea:1", "sea:2")
    sea.wait_for_looks(10)
    assert recorder.changes == []
    assert caplog.text.count("The tide is out.") == 1
    sea.states = {}  # the content is the same as before, but its return is reported
    recorder.wait_for(None, "sea:1", "sea:2")
    sea.wait_for_looks(6)
    assert recorder.changes == []


def test_a_round_ends_at_the_first_poll_of_unavailable_data(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    """A hundred polls of a silent peer would take a hundred timeouts."""
    rounds = threading.Semaphore(0)
    watch = start_polling(prepare=rounds.release)
    sea.states = {f"sea:{number}": SourceUnavailable("silent") for number in range(100)}
    for uri in sea.states:
        watch.watch(uri, recorder)
    recorder.wait_for(*sea.states)
    while rounds.acquire(blocking=False):
        pass
    before = sea.looks
    for _ in range(5):
        assert rounds.acquire(timeout=10)
    assert sea.looks - before <= 6


def test_data_that_cannot_be_prepared_is_unavailable(
    start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    is_away = threading.Event()

    def prepare() -> None:
        if is_away.is_set():
            raise SourceUnavailable("away")

    watch = start_polling(prepare=prepare)
    watch.watch("sea:1", recorder)
    is_away.set()
    recorder.wait_for("sea:1")
    is_away.clear()
    recorder.wait_for("sea:1")


@pytest.mark.parametrize(("rest", "longest"), [(0.0, 0.2), (1.0, 0.6)])
def test_rest_limits_the_pause_between_rounds(rest: float, longest: float, recorder: ChangeRecorder) -> None:
    """After a round of 0.1 s, the thread sleeps for at most `rest` times that, or until `every` has passed."""
    begins: list[float] = []

    def look(uri: str | None) -> int:
        begins.append(time.monotonic())
        time.sleep(0.1)
        return 0

    watch = Polling("sea", look, every=0.12, rest=rest)
    watch.watch(None, recorder)
    while len(begins) < 8:
        time.sleep(0.01)
    watch.close()
    pauses = [after - before for before, after in pairwise(begins)]
    assert min(pauses) < longest  # 2.1 s with the usual share
    assert min(pauses) >= 0.1 * (1 + rest) - 0.01


def test_look_now_polls_at_once(sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder) -> None:
    watch = start_polling(every=600)
    watch.watch("sea:1", recorder)
    sea.wait_for_looks(0)
    while "sea:1" not in watch._watched or watch._watched["sea:1"].state is polling._UNKNOWN:
        threading.Event().wait(0.001)
    sea.states["sea:1"] = 1
    watch.look_now()
    recorder.wait_for("sea:1")


def test_polling_stops_after_the_last_unwatch_and_starts_again(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    watch = start_polling()
    watch.watch("sea:1", recorder)
    watch.watch("sea:2", recorder)
    sea.wait_for_looks(2)
    watch.unwatch("sea:1")
    watch.unwatch("never attached")
    watch.unwatch("sea:2")
    assert watch._worker is None
    watch.look_now()
    watch.watch("sea:1", recorder)
    sea.wait_for_looks(2)
    sea.states["sea:1"] = 5
    recorder.wait_for("sea:1")


def test_each_round_begins_with_prepare(
    sea: Sea, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    prepared = threading.Semaphore(0)
    watch = start_polling(prepare=prepared.release)
    watch.watch("sea:1", recorder)
    assert prepared.acquire(timeout=10)
    assert prepared.acquire(timeout=10)
