"""Watchers are notified of changes of their resources, and of no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.sources.git_repository.conftest import GitRepository, ServedGit
from tests.waiting import wait_until
from wharfinger.sources import polling
from wharfinger.testing.source_suite.driver import ChangeRecorder

FILE, OTHER, TREE = "git://repo/tree/main/hull.txt", "git://repo/tree/main/README.md", "git://repo/tree/main"


def watch(source: ServedGit, *uris: str | None) -> ChangeRecorder:
    recorder = ChangeRecorder()
    for uri in uris:
        if uri is not None:
            source.stat(uri)
        source.watch(uri, recorder)
    return recorder


def wait_for_first_poll(source: ServedGit, *uris: str | None) -> None:
    """Wait until the versions of these resources have been polled."""
    wait_until(lambda: source._known_versions.keys() >= set(uris), "the versions are polled")


def unexpected_changes(recorder: ChangeRecorder, seconds: float = 1.0) -> list[str | None]:
    """Return the changes that are reported while nothing should be reported."""
    time.sleep(seconds)
    return recorder.changes


def test_a_commit_is_reported_for_the_changed_resources(source: ServedGit, history: GitRepository) -> None:
    """A file of a branch is reported only if the commit changes it."""
    log = "git://repo/log/HEAD"
    recorder = watch(source, FILE, OTHER, TREE, log, None)
    wait_for_first_poll(source, None)  # no call before a watch records the state of the list, as `stat` does for a URI
    history.commit("Deepen", hull__txt="six\n")
    recorder.wait_for(FILE, TREE, log, None)
    assert unexpected_changes(recorder) == []
    history.git("commit", "-q", "--allow-empty", "-m", "Nothing")
    recorder.wait_for(log, None)
    assert unexpected_changes(recorder) == []


def test_new_moved_and_removed_branches_and_tags_are_reported(source: ServedGit, history: GitRepository) -> None:
    """A branch or tag may be created after the watch began."""
    top, new, tag = "git://repo", "git://repo/tree/new/hull.txt", "git://repo/commit/v3"
    recorder = watch(source, top, FILE)
    source.watch(new, recorder)
    source.watch(tag, recorder)
    watched = source._watches._watched
    wait_until(lambda: all(watched[uri].state is not polling._UNKNOWN for uri in (new, tag)), "both are found missing")
    history.git("branch", "new", "v1")
    recorder.wait_for(top, new)
    history.git("branch", "-f", "new", "main")
    recorder.wait_for(top, new)
    history.git("tag", "v3")
    recorder.wait_for(top, tag)
    history.git("branch", "-D", "new")
    recorder.wait_for(top, new)
    assert unexpected_changes(recorder, 0.5) == []


def test_a_checkout_is_reported(source: ServedGit, history: GitRepository) -> None:
    """It moves HEAD, but no branch."""
    head = "git://repo/tree/HEAD/hull.txt"
    recorder = watch(source, head, FILE, "git://repo")
    history.git("checkout", "-q", "v1")
    recorder.wait_for(head, "git://repo")
    assert FILE not in unexpected_changes(recorder, 0.5)


def test_git_gc_is_not_reported_as_a_change(source: ServedGit, history: GitRepository) -> None:
    """`git gc` only moves objects and references to packs."""
    recorder = watch(source, FILE, TREE, "git://repo", None)
    history.git("pack-refs", "--all")
    history.git("gc", "-q", "--prune=now")
    assert unexpected_changes(recorder) == []
    history.commit("After", hull__txt="after\n")
    recorder.wait_for(FILE, TREE, "git://repo", None)


def test_a_rebase_is_reported(history: GitRepository, publish: Callable[..., ServedGit]) -> None:
    """HEAD is detached meanwhile. The branch is reported when it moves."""
    history.git("checkout", "-q", "-b", "topic", "v1")
    history.commit("Topic", topic__txt="topic\n")
    source = publish(history, label="repo")
    log = "git://repo/log/topic"
    recorder = watch(source, log)
    history.git("rebase", "-q", "main")
    recorder.wait_for(log)
    assert source.version(log) == history.head


def test_the_last_of_a_hundred_fast_commits_is_reported(source: ServedGit, history: GitRepository) -> None:
    """There is at most one notification for each round of polling."""
    log = "git://repo/log/HEAD"
    recorder = watch(source, log)
    tree = history.git("rev-parse", "HEAD^{tree}")
    oid = history.head
    began = time.monotonic()
    for number in range(100):
        oid = history.git("commit-tree", tree, "-p", oid, "-m", str(number))
        history.git("update-ref", "refs/heads/main", oid)
        if recorder.changes:
            source.version(log)
    wait_until(lambda: source._known_versions[log][1] == oid, "the last commit is polled")
    assert recorder.changes
    assert len(recorder.changes) <= (time.monotonic() - began) / source._watches.every + 2


def test_a_change_before_the_first_poll_is_reported(source: ServedGit, history: GitRepository) -> None:
    """A change after the `stat` that precedes a watch is not lost."""
    recorder = ChangeRecorder()
    source.stat(FILE)
    history.commit("At once", hull__txt="at once\n")
    source.watch(FILE, recorder)
    recorder.wait_for(FILE)


def test_a_repository_that_disappears_and_returns_is_reported(source: ServedGit, history: GitRepository) -> None:
    """Both changes are reported."""
    recorder = watch(source, FILE, "git://repo", None)
    wait_for_first_poll(source, FILE, None)  # it only records the state
    history.path.rename(history.path.with_name("elsewhere"))
    recorder.wait_for(FILE, "git://repo", None)
    history.path.with_name("elsewhere").rename(history.path)
    recorder.wait_for(FILE, "git://repo", None)


def test_polling_reads_only_references_while_they_do_not_move(source: ServedGit) -> None:
    uris = [f"git://repo/tree/main/hull.txt?lines={number}-" for number in range(1, 3)] + [FILE, TREE]
    watch(source, *uris)
    wait_for_first_poll(source, *uris)
    references = source.references()
    assert all(seen[0] is references for seen in source._known_versions.values())


def test_no_reference_is_missing_while_git_packs_them(source: ServedGit, history: GitRepository) -> None:
    """git moves them between their own files and `packed-refs`."""
    stopped = threading.Event()
    missed: list[str] = []

    def read_references() -> None:
        while not stopped.is_set():
            references = source.references()
            missed.extend(name for name in ("refs/heads/main", "refs/tags/v1") if name not in references.names)

    readers = [threading.Thread(target=read_references) for _ in range(2)]
    for reader in readers:
        reader.start()
    tree, oid = history.git("rev-parse", "HEAD^{tree}"), history.head
    for number in range(40):
        oid = history.git("commit-tree", tree, "-p", oid, "-m", str(number))
        history.git("update-ref", "refs/heads/main", oid)
        history.git("pack-refs", "--all")
    stopped.set()
    for reader in readers:
        reader.join()
    assert missed == []
    assert source.references().head == oid


def test_a_moved_reference_is_read_at_once(source: ServedGit, history: GitRepository) -> None:
    """No cache returns the old commit after git has written the reference."""
    tree, oid = history.git("rev-parse", "HEAD^{tree}"), history.head
    for number in range(30):
        oid = history.git("commit-tree", tree, "-p", oid, "-m", str(number))
        history.git("update-ref", "refs/heads/main", oid)
        assert source.version("git://repo/commit/main") == oid
