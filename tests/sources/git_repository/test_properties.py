"""Properties of URIs, revisions, objects and histories."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.sources.git_repository.conftest import GitRepository, ServedGit
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.folder.file_uri import UnreadableUri
from wharfinger.sources.git_repository import git
from wharfinger.sources.git_repository.git_uris import GitUris, plain_path
from wharfinger.sources.git_repository.parsing import NotParsed, parse_commit, parse_tag, parse_tree
from wharfinger.sources.windows.window import NEXT

names = st.binary(min_size=1, max_size=20).filter(lambda name: b"/" not in name and b"\0" not in name)
parts = st.lists(names.filter(lambda name: name not in (b".", b"..")).map(os.fsdecode), max_size=4).map(tuple)
revs = st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name).map(os.fsdecode)
labels = st.text(min_size=1, max_size=10).filter(
    lambda name: "/" not in name and "\0" not in name and name.isprintable()
)


@given(labels, revs, parts)
def test_tree_uris_round_trip(label: str, rev: str, path: tuple[str, ...]) -> None:
    uris = GitUris(label)
    uri = uris.tree(rev, path)
    assert uri.isascii()
    assert uris.matches(uri)
    address = uris.parse(uri)
    assert (address.kind, address.rev, address.parts, address.query) == ("tree", rev, path, {})


@given(revs, st.none() | revs, parts)
@example("v1.", "v2", ())
@example(".", ".", ())
def test_diff_uris_round_trip(rev: str, to: str | None, path: tuple[str, ...]) -> None:
    uris = GitUris("repo")
    address = uris.parse(uris.diff(rev, to, path))
    assert (address.kind, address.rev, address.to, address.parts) == ("diff", rev, to, path)


@given(st.text(max_size=60))
def test_any_uri_is_parsed_or_refused(suffix: str) -> None:
    uris = GitUris("repo")
    for uri in (
        "git://repo/" + suffix,
        "git://repo" + suffix,
        "git://repo/tree/" + suffix,
        "git://repo/diff/a.." + suffix,
    ):
        try:
            uris.parse(uri)
        except (ResourceNotFound, InvalidArgument):
            continue


@given(parts.filter(bool))
def test_plain_paths_are_split_at_slashes(path: tuple[str, ...]) -> None:
    try:
        assert plain_path("/".join(path)) == path
    except UnreadableUri:
        pytest.fail("a readable path was refused")


@given(st.binary(max_size=200))
def test_any_object_is_parsed_or_refused(data: bytes) -> None:
    tree = b"tree " + b"a" * 40 + b"\n"
    for parse in (parse_tree, lambda data: parse_commit("a" * 40, data), lambda data: parse_tag("a" * 40, data)):
        for start in (b"", tree, tree + b"author ", tree + b"committer A <b> ", b"object " + b"b" * 40 + b"\ntagger "):
            try:
                parse(start + data)
            except NotParsed:
                continue


@pytest.fixture(scope="module")
def growing_repository() -> Iterator[tuple[GitRepository, ServedGit]]:
    """Return a repository to which tests add commits, and its source."""
    with tempfile.TemporaryDirectory() as folder:
        work = GitRepository(Path(folder) / "growing").init()
        work.commit("Begin", a__txt="a")
        source = ServedGit(git(work.path, label="repo"))
        yield work, source
        source.close()


def add_commits(work: GitRepository, shape: list[int]) -> None:
    """Add a commit for each number with `git fast-import`. A number n > 1 merges the commit n before it."""
    out = [b"reset refs/heads/main\nfrom refs/heads/main^0\n\n"]
    for mark, back in enumerate(shape, 1):
        work.seconds += 60 * (back % 3 - 1)  # some times are equal or go backwards
        out.append(b"commit refs/heads/main\nmark :%d\ncommitter A <a@b> %d +0000\ndata 1\nx\n" % (mark, work.seconds))
        out.append(b"from %s\n" % (b":%d" % (mark - 1) if mark > 1 else b"refs/heads/main^0"))
        if back > 1 and mark > back:
            out.append(b"merge :%d\n" % (mark - back))
        out.append(b"M 100644 inline f%d.txt\ndata 3\n%03d\n\n" % (mark % 5, mark))
    work.git("fast-import", "--quiet", "--force", data=b"".join(out))


@settings(max_examples=examples(24), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.integers(1, 7), st.lists(st.integers(0, 6), max_size=4))
def test_windows_of_a_log_list_each_commit_once_while_others_arrive(
    growing_repository: tuple[GitRepository, ServedGit], shape: list[int], limit: int, meanwhile: list[int]
) -> None:
    """All windows show the history at the time of the first one."""
    work, source = growing_repository
    add_commits(work, shape)
    expected = set(work.git("rev-list", "main").split("\n"))
    found: list[str] = []
    following = f"git://repo/log/main?limit={limit}"
    first = True
    while following:
        contents = source.read(following).contents
        found += [line[:12] for line in str(contents[0].text).split("\n")[2:-3] if line and not line.startswith(" ")]
        following = str(contents[0].meta.get(NEXT, ""))  # type: ignore[union-attr]
        if first and meanwhile:
            add_commits(work, meanwhile)
            source.repository.histories._kept.clear()  # as after a restart of the server
        first = False
    assert len(found) == len(set(found)) == len(expected)
    assert set(found) == {oid[:12] for oid in expected}


@settings(max_examples=examples(24), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 9), st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(0, 30))
def test_pages_of_the_list_have_each_resource_once_while_commits_arrive(
    growing_repository: tuple[GitRepository, ServedGit], limit: int, meanwhile: list[int], threshold: int
) -> None:
    """Resources that exist at the first page are not missing."""
    work, source = growing_repository
    before = [resource.uri for resource in source.page(None, 100_000)[0]]
    found: list[str] = []
    key: str | None = None
    while True:
        resources, key = source.page(key, limit)
        found += [resource.uri for resource in resources]
        if key is None:
            break
        if len(found) >= threshold > 0:
            add_commits(work, meanwhile)
            threshold = 0
    assert len(found) == len(set(found))
    assert set(before) <= set(found)
