"""Changes in watched directories are reported, and reads are not."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.sources.folder.inotify import ADDED, DELETED, MODIFIED, InotifyNotifier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify needs Linux")

NEVER_SET = threading.Event()


@pytest.fixture
def notifier(charts: Path) -> Iterator[InotifyNotifier]:
    inotify = InotifyNotifier([str(charts), str(charts / "harbours")])
    yield inotify
    inotify.close()


def changes(notifier: InotifyNotifier, timeout_ms: int = 5_000) -> object:
    return notifier.watch(50, 10, timeout_ms, NEVER_SET)


def test_every_kind_of_change_is_reported_with_its_path(notifier: InotifyNotifier, charts: Path) -> None:
    (charts / "new.md").touch()
    (charts / "README.md").write_text("other")
    (charts / "empty.txt").unlink()
    (charts / "tides.csv").chmod(0o600)
    (charts / "harbours" / "hull.ts").rename(charts / "hull.ts")
    events = changes(notifier)
    assert isinstance(events, set)
    assert {(kind, path.removeprefix(f"{charts}/")) for kind, path in events} >= {
        (ADDED, "new.md"),
        (MODIFIED, "README.md"),
        (DELETED, "empty.txt"),
        (MODIFIED, "tides.csv"),
        (DELETED, "harbours/hull.ts"),
        (ADDED, "hull.ts"),
    }


def test_reading_and_listing_are_not_reported(notifier: InotifyNotifier, charts: Path) -> None:
    for _ in range(3):
        (charts / "README.md").read_text()
        os.listdir(charts)
    assert changes(notifier, 60) == "timeout"


def test_changes_below_an_unwatched_directory_are_not_reported(notifier: InotifyNotifier, charts: Path) -> None:
    (charts / "harbours" / "north" / "buoy.png").write_bytes(b"")
    assert changes(notifier, 60) == "timeout"


def test_moving_a_watched_directory_is_reported(notifier: InotifyNotifier, charts: Path) -> None:
    (charts / "harbours").rename(charts.with_name("moved"))
    assert (DELETED, str(charts / "harbours")) in changes(notifier)  # type: ignore[operator]


def test_names_may_be_any_bytes(charts: Path) -> None:
    odd = os.fsdecode(os.fsencode(charts) + b"/odd\xff")
    os.mkdir(odd)
    notifier = InotifyNotifier([odd])
    name = odd + "/" + os.fsdecode(b"a\nb\xfe")
    with open(name, "w"):
        pass
    assert (ADDED, name) in changes(notifier)  # type: ignore[operator]
    notifier.close()


def test_a_wait_ends_when_its_stop_event_is_set(notifier: InotifyNotifier, charts: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert notifier.watch(50, 10, 0, stop) == "stop"


def test_an_overflow_of_the_event_queue_is_reported_as_a_change_of_the_directory(charts: Path) -> None:
    notifier = InotifyNotifier([str(charts)])
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip("the queue is too long to fill")
    first, second = charts / "a.txt", charts / "b.txt"
    first.touch()
    for _ in range(limit // 4 + 1):
        first.rename(second)
        second.rename(first)
    events = set()
    while isinstance(batch := changes(notifier, 100), set):
        events |= batch
    assert (MODIFIED, str(charts)) in events
    notifier.close()


@pytest.mark.parametrize(("name", "error"), [("none", FileNotFoundError), ("README.md", NotADirectoryError)])
def test_a_path_that_is_not_a_directory_is_an_error_and_leaks_no_descriptor(
    charts: Path, name: str, error: type[OSError]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(error, match=name):
        InotifyNotifier([str(charts), str(charts / name)])
    assert len(os.listdir("/proc/self/fd")) == before


def test_closing_twice_is_harmless(notifier: InotifyNotifier) -> None:
    notifier.close()
    notifier.close()
