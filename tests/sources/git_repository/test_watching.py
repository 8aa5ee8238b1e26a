"""Watchers of a repository get the changes of what they watch, and no others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from tests.sources.conftest import ChangeRecorder
from tests.sources.git_repository.conftest import ServedGit, Work

FILE, OTHER, TREE = "git://repo/tree/main/hull.txt", "git://repo/tree/main/README.md", "git://repo/tree/main"


def watched(source: ServedGit, *uris: str | None) -> ChangeRecorder:
    recorder = ChangeRecorder()
    for uri in uris:
        if uri is not None:
            source.stat(uri)
        source.watch(uri, recorder)
    return recorder


def quiet(recorder: ChangeRecorder, seconds: float = 1.0) -> list[str | None]:
    """Return the reports within a time in which there should be none."""
    time.sleep(seconds)
    return recorder.changes


def test_a_commit_is_reported_for_the_changed_resources(source: ServedGit, history: Work) -> None:
    """A file at a branch only if it differs there."""
    log = "git://repo/log/HEAD"
    recorder = watched(source, FILE, OTHER, TREE, log, None)
    began = time.monotonic()
    history.commit("Deepen", hull__txt="six\n")
    recorder.wait_for(FILE, TREE, log, None)
    assert time.monotonic() - began < 5
    assert quiet(recorder) == []
    history.git("commit", "-q", "--allow-empty", "-m", "Nothing")
    recorder.wait_for(log, None)
    assert quiet(recorder) == []


def test_new_moved_and_removed_branches_and_tags_are_reported(source: ServedGit, history: Work) -> None:
    """Also one that did not exist when the watch began."""
    top, new, tag = "git://repo", "git://repo/tree/new/hull.txt", "git://repo/commit/v3"
    recorder = watched(source, top, FILE)
    source.watch(new, recorder)
    source.watch(tag, recorder)
    time.sleep(0.4)  # the next round looks at a missing one for the first time
    history.git("branch", "new", "v1")
    recorder.wait_for(top, new)
    history.git("branch", "-f", "new", "main")
    recorder.wait_for(top, new)
    history.git("tag", "v3")
    recorder.wait_for(top, tag)
    history.git("branch", "-D", "new")
    recorder.wait_for(top, new)
    assert quiet(recorder, 0.5) == []


def test_another_head_is_reported(source: ServedGit, history: Work) -> None:
    """A checkout moves HEAD, and no branch."""
    head = "git://repo/tree/HEAD/hull.txt"
    recorder = watched(source, head, FILE, "git://repo")
    history.git("checkout", "-q", "v1")
    recorder.wait_for(head, "git://repo")
    assert FILE not in quiet(recorder, 0.5)


def test_packing_reports_nothing(source: ServedGit, history: Work) -> None:
    """`git gc` moves objects and references to packs, and changes nothing."""
    recorder = watched(source, FILE, TREE, "git://repo", None)
    history.git("pack-refs", "--all")
    history.git("gc", "-q", "--prune=now")
    assert quiet(recorder) == []
    history.commit("After", hull__txt="after\n")
    recorder.wait_for(FILE, TREE, "git://repo", None)


def test_a_rebase_is_reported(history: Work, publish: Callable[..., ServedGit]) -> None:
    """Wherever HEAD is meanwhile, the branch is reported when it moves."""
    history.git("checkout", "-q", "-b", "topic", "v1")
    history.commit("Topic", topic__txt="topic\n")
    source = publish(history, label="repo")
    log = "git://repo/log/topic"
    recorder = watched(source, log)
    history.git("rebase", "-q", "main")
    recorder.wait_for(log)
    assert source.version(log) == history.head


def test_a_hundred_commits_end_at_the_last(source: ServedGit, history: Work) -> None:
    """The last of many fast commits is reported, at most once for each look."""
    log = "git://repo/log/HEAD"
    recorder = watched(source, log)
    tree = history.git("rev-parse", "HEAD^{tree}")
    oid = history.head
    seen: set[str] = set()
    began = time.monotonic()
    for number in range(100):
        oid = history.git("commit-tree", tree, "-p", oid, "-m", str(number))
        history.git("update-ref", "refs/heads/main", oid)
        if recorder.changes:
            seen.add(source.version(log))
    deadline = time.monotonic() + 40
    while source._known_versions[log][1] != oid and time.monotonic() < deadline:
        time.sleep(0.01)
    assert source._known_versions[log][1] == oid
    assert recorder.changes
    assert len(recorder.changes) <= (time.monotonic() - began) / source._polling.every + 2


def test_a_change_before_the_first_look_is_reported(source: ServedGit, history: Work) -> None:
    """A watch begins with `stat`: no later change is lost."""
    recorder = ChangeRecorder()
    source.stat(FILE)
    history.commit("At once", hull__txt="at once\n")
    source.watch(FILE, recorder)
    recorder.wait_for(FILE)


def test_a_repository_that_disappears_and_returns_is_reported(source: ServedGit, history: Work) -> None:
    """Each watcher gets both changes."""
    recorder = watched(source, FILE, "git://repo", None)
    source.driver.run(asyncio.sleep(0.5))  # the first look only records the state
    history.path.rename(history.path.with_name("elsewhere"))
    recorder.wait_for(FILE, "git://repo", None)
    history.path.with_name("elsewhere").rename(history.path)
    recorder.wait_for(FILE, "git://repo", None)


def test_watchers_of_many_files_cost_little_while_nothing_moves(source: ServedGit) -> None:
    """Only the references are read."""
    uris = [f"git://repo/tree/main/hull.txt?lines={number}-" for number in range(1, 3)] + [FILE, TREE]
    watched(source, *uris)
    deadline = time.monotonic() + 5
    while len(source._known_versions) < len(uris) and time.monotonic() < deadline:
        time.sleep(0.01)
    moment = source.references()
    assert all(seen[0] is moment for seen in source._known_versions.values())


def test_no_reference_is_ever_missed_while_git_packs_them(source: ServedGit, history: Work) -> None:
    """They are in files, then in a pack, then in files again, and never in neither."""
    stopped = threading.Event()
    missed: list[str] = []

    def look() -> None:
        while not stopped.is_set():
            now = source.references()
            missed.extend(name for name in ("refs/heads/main", "refs/tags/v1") if name not in now.names)

    readers = [threading.Thread(target=look) for _ in range(2)]
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


def test_a_look_at_references_never_sees_an_old_one_again(source: ServedGit, history: Work) -> None:
    """A read right after git has written returns what it wrote."""
    tree, oid = history.git("rev-parse", "HEAD^{tree}"), history.head
    for number in range(30):
        oid = history.git("commit-tree", tree, "-p", oid, "-m", str(number))
        history.git("update-ref", "refs/heads/main", oid)
        assert source.version("git://repo/commit/main") == oid
