"""Polling reports every lasting state once, from the first watch to the last unwatch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.waiting import wait_until
from wharfinger.errors import ResourceNotFound
from wharfinger.source import SourceUnavailable
from wharfinger.sources import polling
from wharfinger.sources.polling import Polling
from wharfinger.testing.source_suite.driver import ChangeRecorder


class PolledData:
    """Data whose states a test sets by URI, and which counts its polls."""

    def __init__(self) -> None:
        self.states: dict[str | None, int | Exception] = {}
        self.polls = 0
        self._polled = threading.Condition()

    def look(self, uri: str | None) -> int:
        with self._polled:
            self.polls += 1
            self._polled.notify_all()
        state = self.states.get(uri, 0)
        if isinstance(state, Exception):
            raise state
        return state

    def wait_for_polls(self, number: int) -> None:
        with self._polled:
            before = self.polls
            assert self._polled.wait_for(lambda: self.polls >= before + number, 40)


@pytest.fixture
def data() -> PolledData:
    return PolledData()


@pytest.fixture
def start_polling(data: PolledData) -> Iterator[Callable[..., Polling]]:
    started: list[Polling] = []

    def start(every: float = 0.01, **options: object) -> Polling:
        options.setdefault("sleep_ratio", 1.0)  # a round that a busy machine delays is not followed by a long pause
        started.append(Polling("sea", data.look, every=every, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_change_is_reported_once(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    poller = start_polling()
    poller.watch("sea:1", recorder)
    data.wait_for_polls(2)
    data.states["sea:1"] = 1
    recorder.wait_for("sea:1")
    data.wait_for_polls(3)
    assert recorder.changes == []


def test_list_changes_deletions_and_returns_are_reported(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    poller = start_polling()
    poller.watch(None, recorder)
    poller.watch("sea:1", recorder)
    data.wait_for_polls(4)
    data.states = {None: 1, "sea:1": ResourceNotFound("sea:1")}
    recorder.wait_for(None, "sea:1")
    data.states = {None: 1}
    recorder.wait_for("sea:1")


def test_a_failed_poll_is_retried_and_not_reported(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    poller = start_polling()
    poller.watch("sea:1", recorder)
    data.wait_for_polls(2)
    data.states["sea:1"] = OSError("fog")
    data.wait_for_polls(3)
    data.states["sea:1"] = 0
    data.wait_for_polls(3)
    assert recorder.changes == []
    assert "could not be checked; retrying" in caplog.text
    data.states["sea:1"] = 2
    recorder.wait_for("sea:1")


def test_the_first_poll_compares_with_the_recorded_state(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    """A change before the first poll of the thread is reported."""
    poller = start_polling()
    poller.record("sea:1", 0)
    data.states["sea:1"] = 1
    poller.watch("sea:1", recorder)
    recorder.wait_for("sea:1")


def test_recorded_states_are_bounded(monkeypatch: pytest.MonkeyPatch, data: PolledData) -> None:
    monkeypatch.setattr(polling, "MAX_RECORDED", 2)
    poller = Polling("sea", data.look, every=60)
    for number in range(5):
        poller.record(f"sea:{number}", 7)
    assert list(poller._recorded) == ["sea:3", "sea:4"]


def test_all_watchers_are_notified_once_of_an_outage_and_once_of_its_end(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    poller = start_polling()
    for uri in (None, "sea:1", "sea:2"):
        poller.watch(uri, recorder)
    data.wait_for_polls(6)
    data.states = dict.fromkeys((None, "sea:1", "sea:2"), SourceUnavailable("The tide is out."))
    recorder.wait_for(None, "sea:1", "sea:2")
    data.wait_for_polls(10)
    assert recorder.changes == []
    assert caplog.text.count("The tide is out.") == 1
    data.states = {}  # the content has not changed, but the end of the outage is reported
    recorder.wait_for(None, "sea:1", "sea:2")
    data.wait_for_polls(6)
    assert recorder.changes == []


def test_a_round_ends_at_the_first_poll_of_unavailable_data(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    """A round that continued would wait for a hundred timeouts of a silent peer."""
    rounds = threading.Semaphore(0)
    polls_before: list[int] = []  # each round

    def prepare() -> None:
        polls_before.append(data.polls)
        rounds.release()

    poller = start_polling(prepare=prepare)
    data.states = {f"sea:{number}": SourceUnavailable("silent") for number in range(100)}
    for uri in data.states:
        poller.watch(uri, recorder)
    recorder.wait_for(*data.states)
    while rounds.acquire(blocking=False):
        pass
    first = len(polls_before)
    for _ in range(6):
        assert rounds.acquire(timeout=40)
    assert all(after - before <= 1 for before, after in pairwise(polls_before[first:]))


def test_data_that_cannot_be_prepared_is_unavailable(
    start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    is_unavailable = threading.Event()

    def prepare() -> None:
        if is_unavailable.is_set():
            raise SourceUnavailable("away")

    poller = start_polling(prepare=prepare)
    poller.watch("sea:1", recorder)
    is_unavailable.set()
    recorder.wait_for("sea:1")
    is_unavailable.clear()
    recorder.wait_for("sea:1")


@pytest.mark.parametrize(("sleep_ratio", "max_interval"), [(0.0, 0.2), (1.0, 0.6)])
def test_sleep_ratio_sets_the_pause_between_rounds(
    sleep_ratio: float, max_interval: float, recorder: ChangeRecorder
) -> None:
    """After a round of 0.1 s, the thread sleeps `sleep_ratio` times as long, and at least until `every` has passed."""
    poll_times: list[float] = []

    def look(uri: str | None) -> int:
        poll_times.append(time.monotonic())
        time.sleep(0.1)
        return 0

    poller = Polling("sea", look, every=0.12, sleep_ratio=sleep_ratio)
    poller.watch(None, recorder)

    def shortest_interval() -> float:
        return min(after - before for before, after in pairwise(poll_times[1:]))  # no pause follows the first round

    # a busy machine makes some intervals longer; with the default SLEEP_RATIO, they are 2.1 s
    wait_until(lambda: len(poll_times) >= 9 and shortest_interval() < max_interval, "a short interval")
    poller.close()
    assert shortest_interval() >= 0.1 * (1 + sleep_ratio) - 0.01


def test_a_single_long_round_is_not_followed_by_a_long_pause(recorder: ChangeRecorder) -> None:
    """Regression: after a stall of three seconds, nothing was reported for a minute."""
    polls = 0

    def look(uri: str | None) -> int:
        nonlocal polls
        polls += 1
        if polls in (1, 5):
            time.sleep(0.3)
        return polls

    poller = Polling("sea", look, every=0.01, sleep_ratio=200.0)
    poller.watch(None, recorder)
    while polls < 7:
        recorder.wait_for(None)
    poller.close()


def test_a_watcher_that_fails_does_not_end_the_polling(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the thread ended, and no later watch started another one."""

    def fail(uri: str | None) -> None:
        raise RuntimeError("no berth")

    poller = start_polling()
    poller.watch("sea:1", fail)
    poller.watch("sea:2", recorder)
    data.wait_for_polls(4)
    data.states = {"sea:1": 1, "sea:2": 1}
    recorder.wait_for("sea:2")
    data.states = {"sea:2": SourceUnavailable("away")}
    recorder.wait_for("sea:2")
    assert "the watcher of sea:1 failed" in caplog.text


def test_look_now_polls_at_once(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    poller = start_polling(every=600)
    poller.watch("sea:1", recorder)
    while "sea:1" not in poller._watched or poller._watched["sea:1"].state is polling._UNKNOWN:
        threading.Event().wait(0.001)
    data.states["sea:1"] = 1
    poller.look_now()
    recorder.wait_for("sea:1")


def test_polling_stops_after_the_last_unwatch_and_starts_again(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    poller = start_polling()
    poller.watch("sea:1", recorder)
    poller.watch("sea:2", recorder)
    data.wait_for_polls(2)
    poller.unwatch("sea:1")
    poller.unwatch("never watched")
    poller.unwatch("sea:2")
    assert poller._worker is None
    poller.look_now()
    poller.watch("sea:1", recorder)
    data.wait_for_polls(2)
    data.states["sea:1"] = 5
    recorder.wait_for("sea:1")


def test_each_round_begins_with_prepare(
    data: PolledData, start_polling: Callable[..., Polling], recorder: ChangeRecorder
) -> None:
    prepared = threading.Semaphore(0)
    poller = start_polling(prepare=prepared.release)
    poller.watch("sea:1", recorder)
    assert prepared.acquire(timeout=40)
    assert prepared.acquire(timeout=40)
