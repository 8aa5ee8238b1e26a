"""Changes of files are reported, by inotify and by polling."""

from __future__ import annotations

import errno
import logging
import os
import queue
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from wharfinger.sources.folder import file_watch, safe_open
from wharfinger.sources.folder.inotify import ADDED
from wharfinger.sources.folder.source import Folder
from wharfinger.sources.folder.tree import FileTree, OpenDirectory, TreeEntry
from wharfinger.testing.source_suite.driver import ChangeRecorder

Publish = Callable[..., Folder]


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays of the watcher."""
    for name, value in (("DEBOUNCE_MS", 10), ("STEP_MS", 5), ("RETRY_SECONDS", 0.1), ("LIST_DELAY_SECONDS", 0.03)):
        monkeypatch.setattr(file_watch, name, value)


@pytest.fixture(params=["system", "polling"])
def folder(request: pytest.FixtureRequest, publish: Publish, charts: Path) -> Folder:
    """The folder, watched once by inotify and once by polling."""
    return publish(charts, poll=0.02 if request.param == "polling" else None)


def wait_for_first_scan(source: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    """Wait until the watcher has scanned the folder, so that the first scan does not report the next change."""
    (charts / "README.md").write_text(f"ready {os.urandom(4).hex()}")
    source.watch(f"{source.uri}/README.md", recorder)
    recorder.wait_for(f"{source.uri}/README.md")


def test_writing_a_watched_file_is_reported(folder: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    uri = f"{folder.uri}/tides.csv"
    folder.watch(uri, recorder)
    (charts / "tides.csv").write_text("1")
    recorder.wait_for(uri)
    (charts / "tides.csv").write_text("22")
    recorder.wait_for(uri)
    (charts / "tides.csv").unlink()
    recorder.wait_for(uri)
    (charts / "tides.csv").write_text("back again")
    recorder.wait_for(uri)
    (charts / "new").write_text("renamed over it")
    (charts / "new").rename(charts / "tides.csv")
    recorder.wait_for(uri)


def test_a_change_before_the_first_scan_is_reported(folder: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    """A client may write as soon as its watch is acknowledged, before the thread polls."""
    for path in ("tides.csv", "harbours/hull.ts"):
        folder.watch(f"{folder.uri}/{path}", recorder)
        (charts / path).write_text("quick")
        recorder.wait_for(f"{folder.uri}/{path}")


def test_created_deleted_and_renamed_files_change_the_list(
    folder: Folder, charts: Path, recorder: ChangeRecorder
) -> None:
    folder.watch(None, recorder)
    (charts / "new.txt").touch()
    recorder.wait_for(None)
    (charts / "new.txt").rename(charts / "newer.txt")
    recorder.wait_for(None)
    (charts / "newer.txt").unlink()
    recorder.wait_for(None)
    (charts / "deep" / "deeper").mkdir(parents=True)
    recorder.wait_for(None)
    (charts / "deep" / "deeper" / "file.txt").touch()
    recorder.wait_for(None)
    (charts / "deep").rename(charts / "moved")
    recorder.wait_for(None)
    (charts / "moved" / "deeper" / "other.txt").touch()
    recorder.wait_for(None)
    shutil.rmtree(charts / "moved")
    recorder.wait_for(None)


def test_changed_children_of_a_watched_directory_are_reported(
    folder: Folder, charts: Path, recorder: ChangeRecorder
) -> None:
    uris = [f"{folder.uri}/harbours", f"{folder.uri}/harbours/"]
    for uri in uris:
        folder.watch(uri, recorder)
    for change in (
        lambda: (charts / "harbours" / "hull.ts").write_text("longer than before, surely"),
        lambda: (charts / "harbours" / "new.txt").touch(),
        lambda: (charts / "harbours" / "new.txt").unlink(),
    ):
        change()
        recorder.wait_for(*uris)


def test_files_in_a_renamed_directory_are_reported(folder: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    uri = f"{folder.uri}/harbours/north/buoy.png"
    folder.watch(uri, recorder)
    wait_for_first_scan(folder, charts, recorder)
    (charts / "harbours").rename(charts / "ports")
    recorder.wait_for(uri)
    (charts / "harbours" / "north").mkdir(parents=True)
    (charts / "harbours" / "north" / "buoy.png").write_text("another one")
    recorder.wait_for(uri)
    (charts / "harbours" / "north" / "buoy.png").write_text("and it is watched, too")
    recorder.wait_for(uri)


def test_changes_of_unpublished_files_are_not_reported(folder: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    (charts / ".gitignore").write_text("*.log\n")
    (charts / "a.log").touch()
    folder.watch(None, recorder)
    folder.watch(f"{folder.uri}/a.log", recorder)
    folder.watch(f"{folder.uri}/README.md", recorder)
    wait_for_first_scan(folder, charts, recorder)
    (charts / "end.txt").touch()
    recorder.wait_for(None)
    (charts / "b.log").touch()
    (charts / "a.log").write_text("x")
    (charts / ".hidden").touch()
    (charts / "id_rsa").touch()
    (charts / "link.txt").symlink_to("README.md")
    (charts / "README.md").write_text("the end")
    recorder.wait_for(f"{folder.uri}/README.md")
    assert recorder.changes == []
    (charts / ".gitignore").write_text("")
    recorder.wait_for(None)


def test_files_outside_the_folder_are_not_watched(
    publish: Publish, charts: Path, tmp_path: Path, recorder: ChangeRecorder
) -> None:
    """Links are not followed either, although inotify would follow them."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "ledger.txt").write_text("x")
    (charts / "link").symlink_to(tmp_path / "outside")
    source = publish(charts)
    source.watch(None, recorder)
    for uri in (f"{source.uri}/link/ledger.txt", f"{source.uri}/../outside/ledger.txt", "file:///elsewhere"):
        source.watch(uri, recorder)
    (charts / "first.txt").touch()
    recorder.wait_for(None)
    wait_for_first_scan(source, charts, recorder)
    (tmp_path / "outside" / "new.txt").touch()
    (tmp_path / "outside" / "ledger.txt").write_text("y")
    (charts / "README.md").write_text("the end")
    recorder.wait_for(f"{source.uri}/README.md")
    assert recorder.changes == []


def test_changes_are_reported_in_folders_with_names_that_are_not_utf8(
    publish: Publish, charts: Path, recorder: ChangeRecorder
) -> None:
    root = os.fsencode(charts)
    os.mkdir(root + b"/odd\xff")
    source = publish(charts)
    uri = f"{source.uri}/odd%FF/a.txt"
    source.watch(None, recorder)
    source.watch(uri, recorder)
    with open(root + b"/odd\xff/a.txt", "w") as file:
        file.write("1")
    recorder.wait_for(uri)
    with open(root + b"/\xfe.txt", "w") as file:
        file.write("1")
    recorder.wait_for(None)
    (charts / "plain.txt").touch()
    recorder.wait_for(None)
    with open(root + b"/odd\xff/a.txt", "w") as file:
        file.write("and again")
    recorder.wait_for(uri)


def test_a_root_that_disappears_and_returns_is_reported(folder: Folder, charts: Path, recorder: ChangeRecorder) -> None:
    uri = f"{folder.uri}/README.md"
    folder.watch(uri, recorder)
    (charts / "README.md").write_text("1")
    recorder.wait_for(uri)
    charts.rename(charts.with_name("away"))
    recorder.wait_for(uri)
    charts.with_name("away").rename(charts)
    recorder.wait_for(uri)


def test_a_folder_that_is_removed_during_the_scan_does_not_end_the_watch(
    publish: Publish, charts: Path, recorder: ChangeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug on a platform without directory handles, such as Windows."""
    monkeypatch.setattr(safe_open, "HAS_DIRECTORY_HANDLES", False)
    walk = FileTree.walk_directories

    def remove_during_walk(tree: FileTree) -> Iterator[TreeEntry]:
        for entry in walk(tree):
            if entry.parts == ("harbours",):
                shutil.rmtree(charts / "harbours")
            yield entry

    monkeypatch.setattr(FileTree, "walk_directories", remove_during_walk)
    source = publish(charts, poll=0.02)
    source.watch(None, recorder)
    recorder.wait_for(None)
    assert not (charts / "harbours").exists()


def test_the_thread_ends_after_the_last_unwatch_and_starts_again(
    folder: Folder, charts: Path, recorder: ChangeRecorder
) -> None:
    uri = f"{folder.uri}/tides.csv"
    folder.watch(uri, recorder)
    folder.watch(None, recorder)
    (charts / "tides.csv").write_text("1")
    recorder.wait_for(uri)
    folder.unwatch(uri)
    folder.unwatch(None)
    folder._watches.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "wharfinger-watch"]
    recorder.changes.clear()
    (charts / "tides.csv").write_text("2")
    folder.watch(uri, recorder)  # the thread starts again
    (charts / "tides.csv").write_text("3")
    recorder.wait_for(uri)


def test_a_hint_before_the_list_was_walked_leads_to_a_walk(source: Folder, charts: Path) -> None:
    """A bug: an empty list was its first snapshot, so that the walk reported a change that had not happened."""
    thread = file_watch._WatchThread(source._watches, file_watch._WakeSignal())
    item = file_watch._Watched(print, (), True)
    source._watches._watched[None] = item
    assert not thread._handle({(ADDED, str(charts / "new.txt"))})
    assert item.last_snapshot is None


def test_no_thread_runs_before_the_first_watch(source: Folder) -> None:
    assert not [thread for thread in threading.enumerate() if thread.name == "wharfinger-watch"]


def test_only_the_directories_above_a_watched_file_are_watched(
    publish: Publish, charts: Path, recorder: ChangeRecorder
) -> None:
    """A watch on one file of a large tree needs few inotify watches and no walk through the tree."""
    for number in range(20):
        (charts / f"d{number}").mkdir()
    watched_directories: list[list[str]] = []
    source = publish(charts)
    original = file_watch._WatchThread._absolute

    def spy(thread: file_watch._WatchThread, path: str) -> str:
        watched_directories.append(sorted(thread.directories))
        return original(thread, path)

    file_watch._WatchThread._absolute = spy  # type: ignore[method-assign]
    try:
        source.watch(f"{source.uri}/harbours/hull.ts", recorder)
        (charts / "harbours" / "hull.ts").write_text("x")
        recorder.wait_for(f"{source.uri}/harbours/hull.ts")
    finally:
        file_watch._WatchThread._absolute = original  # type: ignore[method-assign]
    assert watched_directories[-1] == ["", "harbours"]


def test_only_the_directories_above_watched_files_are_watched_once_the_list_is_not(
    publish: Publish, charts: Path, recorder: ChangeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: all directories stayed watched until one was added or removed."""
    opened: queue.Queue[list[str]] = queue.Queue()
    original = file_watch._open_notifier

    def spy(paths: list[str]) -> file_watch.Notifier:
        opened.put(paths)
        return original(paths)

    monkeypatch.setattr(file_watch, "_open_notifier", spy)
    source = publish(charts)
    source.watch(f"{source.uri}/harbours/hull.ts", recorder)
    source.watch(None, recorder)
    while len(opened.get(timeout=20)) < 3:
        pass
    source.unwatch(None)
    assert opened.get(timeout=20) == [str(charts), str(charts / "harbours")]


def test_a_watch_that_begins_between_two_polls_is_compared_at_once(
    publish: Publish, charts: Path, recorder: ChangeRecorder
) -> None:
    """A bug: its first snapshot was taken in the next round, so that a change before it could be lost."""
    source = publish(charts, poll=3_600)
    wait_for_first_scan(source, charts, recorder)
    (charts / "tides.csv").write_text("1")
    source.watch(f"{source.uri}/tides.csv", recorder)
    recorder.wait_for(f"{source.uri}/tides.csv")
    (charts / "new.txt").touch()
    source.watch(None, recorder)
    recorder.wait_for(None)


def test_polling_is_used_and_reported_when_inotify_watches_run_out(
    publish: Publish,
    charts: Path,
    recorder: ChangeRecorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Security: X09."""

    def fail(paths: list[str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_watch, "_open_notifier", fail)
    monkeypatch.setattr(file_watch, "POLL_SECONDS", 0.02)
    source = publish(charts)
    with caplog.at_level(logging.WARNING, logger="wharfinger.sources"):
        source.watch(None, recorder)
        (charts / "new.txt").touch()
        recorder.wait_for(None)
        (charts / "newer.txt").touch()
        recorder.wait_for(None)
    assert source.watched_by == (
        "polling every 0.02 s (the limit of inotify watches is reached: raise fs.inotify.max_user_watches)"
    )
    assert source.watched_by in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="other systems watch the root only")
def test_a_directory_that_becomes_a_file_before_it_is_watched_does_not_end_the_use_of_inotify(
    publish: Publish, charts: Path, recorder: ChangeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the folder was polled from then on."""
    original = file_watch._open_notifier
    failures = [NotADirectoryError(20, "Not a directory")]

    def fail_once(paths: list[str]) -> file_watch.Notifier:
        if failures:
            raise failures.pop()
        return original(paths)

    monkeypatch.setattr(file_watch, "_open_notifier", fail_once)
    source = publish(charts)
    source.watch(None, recorder)
    (charts / "new.txt").touch()
    recorder.wait_for(None)
    assert not failures
    assert source.watched_by == "inotify"


def test_watched_by_names_the_method_before_the_first_watch(publish: Publish, charts: Path) -> None:
    assert publish(charts, poll=True).watched_by == "polling every 1 s"
    assert publish(charts, poll=2.5).watched_by == "polling every 2.5 s"
    if sys.platform == "linux":
        assert publish(charts).watched_by == "inotify"


def test_a_process_that_watches_exits_cleanly(charts: Path) -> None:
    """A thread that returns from Rust to a finalized interpreter would abort the process."""
    program = textwrap.dedent(
        """
        import sys, threading
        from wharfinger.sources import files
        source = files(sys.argv[1])
        assert "watchfiles" not in sys.modules
        reported = threading.Event()
        source.watch(None, lambda uri: reported.set())
        open(sys.argv[1] + "/new.txt", "w").close()
        assert reported.wait(40)
        """
    )
    completed = subprocess.run(
        [sys.executable, "-c", program, str(charts)], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr) == (0, "")


@pytest.mark.parametrize("uri_is_watched", [False, True])
def test_watching_continues_after_an_unexpected_error(
    uri_is_watched: bool,
    folder: Folder,
    charts: Path,
    recorder: ChangeRecorder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug: while too many files were open, watching ended, and no later change was reported."""
    monkeypatch.setattr(file_watch, "ERROR_SECONDS", 0.05)
    errors = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EMFILE, "Too many open files")]
    open_directory = FileTree.open_directory
    walk_directories = FileTree.walk_directories

    def fail_twice() -> None:
        if errors:
            raise errors.pop()

    def open_or_fail(tree: FileTree, parts: tuple[str, ...]) -> OpenDirectory:
        fail_twice()
        return open_directory(tree, parts)

    def walk_or_fail(tree: FileTree) -> Generator[TreeEntry]:
        fail_twice()
        return walk_directories(tree)

    monkeypatch.setattr(FileTree, "open_directory", open_or_fail)
    monkeypatch.setattr(FileTree, "walk_directories", walk_or_fail)
    uri = f"{folder.uri}/new.txt" if uri_is_watched else None
    folder.watch(uri, recorder)
    (charts / "new.txt").touch()
    recorder.wait_for(uri)
    assert not errors
    assert caplog.text.count(f"Watching {charts} failed") == 1
    (charts / "new.txt").unlink()
    recorder.wait_for(uri)


# Windows


def test_a_window_is_reported_only_if_its_own_content_changes(
    folder: Folder, charts: Path, recorder: ChangeRecorder
) -> None:
    path = charts / "tides.log"
    path.write_text("one\ntwo\nthree\n")
    uri = f"{folder.uri}/tides.log"
    beginning_recorder = ChangeRecorder()
    end_uris = [uri, f"{uri}?tail=1", f"{uri}?lines=3-9", f"{uri}?bytes=4-"]
    for watched in end_uris:
        folder.watch(watched, recorder)
    beginning_uris = [f"{uri}?lines=1-2", f"{uri}?bytes=0-3"]
    for watched in beginning_uris:
        folder.watch(watched, beginning_recorder)
    wait_for_first_scan(folder, charts, recorder)
    beginning_recorder.changes.clear()  # the first scan may report the write before it
    for number in range(3):
        with path.open("a") as file:
            file.write(f"{number}\n")
        recorder.wait_for(*end_uris)
    assert not beginning_recorder.changes
    path.write_text("ONE\ntwo\nthree\n")
    recorder.wait_for(*end_uris)
    beginning_recorder.wait_for(*beginning_uris)
    path.unlink()
    recorder.wait_for(*end_uris)
    beginning_recorder.wait_for(*beginning_uris)
    path.write_text("ONE\ntwo\nthree\n")
    beginning_recorder.wait_for(*beginning_uris)


def test_many_windows_of_a_file_are_reported_on_any_change(
    folder: Folder, charts: Path, recorder: ChangeRecorder
) -> None:
    path = charts / "tides.log"
    path.write_text("line\n" * 200)
    uris = [f"{folder.uri}/tides.log?lines={line}-{line}" for line in range(1, 100)]
    for uri in uris:
        folder.watch(uri, recorder)
    wait_for_first_scan(folder, charts, recorder)
    with path.open("a") as file:
        file.write("more\n")
    recorder.wait_for(*uris)


def test_an_invalid_window_is_not_watched(source: Folder, recorder: ChangeRecorder) -> None:
    source.watch(f"{source.uri}/README.md?lines", recorder)
    assert not source._watches._watched
