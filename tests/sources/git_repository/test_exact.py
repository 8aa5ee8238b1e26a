"""All objects, diffs and logs of several histories are compared with those of git, and git applies each patch.

If WHARFINGER_REPOS names a folder of clones, its first three repositories are compared too. The ids of the tests name
the histories.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.sources.git_repository.histories import (
    NAMES,
    GitObject,
    History,
    PublishedRepository,
    Stream,
    bytes_of,
    clones,
    file_change,
    file_name,
    fill_with_deltas,
    fill_with_oddities,
    hard_to_inflate,
    has_bytes,
    joined_text,
    percent_encode,
    read_windows,
    tree_uri,
)
from wharfinger import Client
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import version_of
from wharfinger.sources.git_repository.answer_tree import LINK_TYPE
from wharfinger.sources.git_repository.git_process import GitFailed
from wharfinger.sources.windows.window import WINDOW
from wharfinger.types import Resource

SAMPLE_COMMITS = 300  # how many commits of a clone are compared
MAX_PATCH_BYTES = 2 << 20  # a larger patch of a binary file is not shown
MAX_READ_BYTES = 32 << 20  # a larger file is read in windows


# The histories


def _make_loose(path: Path) -> History:
    history = History(path)
    history.init("--bare")
    fill_with_oddities(history)
    return history


def _make_packed(path: Path) -> History:
    history = _make_loose(path)
    history.git("repack", "-a", "-d", "-q", "-k", "--depth=50")
    history.git("pack-refs", "--all")
    return history


def _make_half_packed(path: Path) -> History:
    """Create two packs with a common index, loose new objects, and some packed references."""
    history = History(path)
    history.init("--bare")
    fill_with_deltas(history)
    history.git("pack-refs", "--all")
    history.git("branch", "earlier", "main~9")
    first = History(path.with_name(path.name + "-more"))
    first.init("--bare")
    fill_with_oddities(first)
    first.git("gc", "-q")
    history.git("fetch", "-q", "--no-tags", str(first.path), "refs/heads/*:refs/heads/more/*")
    history.git("multi-pack-index", "write")
    blob = history.put("blob", b"loose\n")
    tree = history.git("mktree", data=f"100644 blob {blob}\tloose.txt\n".encode())
    history.git("update-ref", "refs/heads/loose", history.git("commit-tree", tree, "-p", "main", "-m", "Loose"))
    return history


def _make_deltas(path: Path) -> History:
    history = History(path)
    history.init("--bare")
    fill_with_deltas(history)
    return history


def _make_sha256(path: Path) -> History:
    history = History(path, 64)
    history.init("--bare", "--object-format=sha256")
    fill_with_oddities(history)
    return history


def _make_shallow(path: Path) -> History:
    full = _make_packed(path.with_name(path.name + "-full"))
    history = History(path)
    full.git(
        "clone", "-q", "--bare", "--depth=20", "--no-single-branch", full.path.as_uri(), str(path), cwd=path.parent
    )
    return history


GENERATED: dict[str, Callable[[Path], History]] = {
    "made-loose": _make_loose,
    "made-packed": _make_packed,
    "made-half-packed": _make_half_packed,
    "made-deltas": _make_deltas,
    "made-sha256": _make_sha256,
    "made-shallow": _make_shallow,
}
CLONES = {f"clone-{path.name}": path for path in clones()}


@pytest.fixture(scope="module", params=[*GENERATED, *CLONES])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return a generated history or a clone."""
    if request.param in CLONES:
        return History(CLONES[request.param])
    return GENERATED[request.param](tmp_path_factory.mktemp("histories") / request.param)


@pytest.fixture(scope="module")
def source(history: History) -> Iterator[PublishedRepository]:
    """Return the source of the history."""
    with PublishedRepository(history.path) as source:
        yield source


# Objects


@pytest.mark.timeout(1_800)  # for a large clone; the generated histories take seconds
def test_every_object_is_read_as_git_reads_it(history: History, source: PublishedRepository) -> None:
    """`git cat-file --batch-all-objects --batch`."""
    wrong: list[str] = []
    counted = dict.fromkeys(_COMPARISONS, 0)
    for git_object in history.objects():
        counted[git_object.kind] += 1
        try:
            _COMPARISONS[git_object.kind](history, source, git_object)
        except (AssertionError, LookupError, InvalidArgument) as error:
            wrong.append(f"{git_object.kind} {git_object.oid}: {type(error).__name__}: {str(error)[:200]}")
    print(counted)
    assert all(counted[kind] for kind in ("blob", "tree", "commit"))
    assert wrong == []


def _compare_blob(history: History, source: PublishedRepository, git_object: GitObject) -> None:
    uri = f"git://repo/tree/{git_object.oid}"
    result = source.stat(uri)
    assert (result.size, version_of(result)) == (len(git_object.data), git_object.oid)
    if len(git_object.data) <= MAX_READ_BYTES:
        assert has_bytes(source.read(uri).contents[0], git_object.data)
    else:
        assert b"".join(map(bytes_of, read_windows(source, uri))) == git_object.data


def _compare_tree(history: History, source: PublishedRepository, git_object: GitObject) -> None:
    expected: list[tuple[bytes, str, str]] = []
    at, width = 0, history.digits // 2
    while at < len(git_object.data):
        end = git_object.data.index(b"\0", at)
        mode, name = git_object.data[at:end].split(b" ", 1)
        kind = {b"40000": DIRECTORY, b"120000": LINK_TYPE, b"160000": "text/plain"}.get(mode, "")
        expected.append((name, git_object.data[end + 1 : end + 1 + width].hex(), kind))
        at = end + 1 + width
    uri = f"git://repo/tree/{git_object.oid}"
    assert version_of(source.stat(uri)) == git_object.oid
    listed: list[Resource] = []
    key: str | None = None
    while True:
        resources, key = source.children(uri, key, 500)
        listed += resources
        if key is None:
            break
    assert [(file_name(child.uri), version_of(child)) for child in listed] == [each[:2] for each in expected]
    assert all(not kind or child.mime_type == kind for child, (_, _, kind) in zip(listed, expected, strict=True))


def _compare_commit(history: History, source: PublishedRepository, git_object: GitObject) -> None:
    uri = f"git://repo/commit/{git_object.oid}"
    text = str(source.read(uri).contents[0].text)
    head, _, body = git_object.data.partition(b"\n\n")
    parents = re.findall(rb"^parent ([0-9a-f]+)$", head, re.MULTILINE)
    assert git_object.oid in text.split("\n")[0]
    assert all(parent.decode() in text for parent in parents)
    assert version_of(source.stat(uri)) == git_object.oid
    author = re.search(rb"^author (.*) [0-9]+ [-+][0-9]+$", head, re.MULTILINE)
    assert author is not None
    assert author[1].decode("utf-8", "backslashreplace").strip() in text
    encoding = re.search(rb"^encoding (.*)$", head, re.MULTILINE)
    try:
        message = body.decode(encoding[1].decode() if encoding else "utf-8")
    except (UnicodeDecodeError, LookupError):
        return  # shown with escapes: tests/sources/git_repository/test_safety.py
    for line in message.replace("\r\n", "\n").split("\n"):
        if line.strip().isprintable() and line.strip():
            assert line.strip() in text


def _compare_tag(history: History, source: PublishedRepository, git_object: GitObject) -> None:
    target = history.lines("rev-parse", f"{git_object.oid}^{{}}")[0]
    kind = history.lines("cat-file", "-t", target)[0]
    if kind == "commit":
        text = str(source.read(f"git://repo/commit/{git_object.oid}").contents[0].text)
        assert target in text
        message = git_object.data.partition(b"\n\n")[2].decode().split("-----BEGIN")[0]
        assert all(line.strip() in text for line in message.split("\n"))
    else:
        assert source.version(f"git://repo/tree/{git_object.oid}") == target


_COMPARISONS: dict[str, Callable[[History, PublishedRepository, GitObject], None]] = {
    "blob": _compare_blob,
    "tree": _compare_tree,
    "commit": _compare_commit,
    "tag": _compare_tag,
}


def test_the_generated_history_has_objects_that_are_hard_to_inflate(tmp_path: Path) -> None:
    """Prove that the test above can fail: the first 128 bytes of many loose objects inflate to nothing."""
    loose = [path.read_bytes() for path in _make_loose(tmp_path / "odd").path.glob("objects/??/*")]
    silent = [data for data in loose if not zlib.decompressobj().decompress(data[:128])]
    assert len(silent) > 30


def test_windows_of_files_have_the_bytes_that_git_reads(history: History, source: PublishedRepository) -> None:
    """`?bytes=`, `?lines=` and `?tail=` are compared for some files."""
    chance = random.Random(5)
    batch_check = "--batch-check=%(objecttype) %(objectname) %(objectsize)"
    blobs = [
        line.split(" ") for line in history.lines("cat-file", "--batch-all-objects", batch_check) if "blob" in line
    ]
    for _, oid, size in chance.sample(blobs, min(60, len(blobs))):
        data = history.output("cat-file", "blob", oid)
        uri = f"git://repo/tree/{oid}"
        if data:
            begin = chance.randrange(len(data))
            end = min(int(size) - 1, begin + chance.randrange(70_000))
            window = source.read(f"{uri}?bytes={begin}-{end}").contents[0]
            assert window.meta is not UNSET
            facts: Any = window.meta[WINDOW]
            assert has_bytes(window, data[facts["begin"] : facts["end"]])
            assert abs(facts["begin"] - begin) < 4
            assert abs(facts["end"] - end - 1) < 4
        if re.fullmatch(rb"(?:[\t -~]*\n){4,}", data):
            lines = data.decode().splitlines(keepends=True)
            assert source.read(f"{uri}?lines=2-3").contents[0].text == "".join(lines[1:3])
            assert source.read(f"{uri}?tail=2").contents[0].text == "".join(lines[-2:])


def test_files_that_were_just_committed_are_read(tmp_path: Path) -> None:
    """The objects are loose, and their first bytes inflate to nothing."""
    history = History(tmp_path / "new")
    history.init()
    history.commit("Begin", a__txt="a\n")
    source = PublishedRepository(history.path)
    history.git("config", "core.compression", "9")
    contents = {f"{number:03}.bin": content for number, content in enumerate(hard_to_inflate(100))}
    for name, content in contents.items():
        history.write(name, content)
    history.commit("Add many")
    for name, content in contents.items():
        assert has_bytes(source.read(f"git://repo/tree/main/{name}").contents[0], content), name
    source.close()


# Changes


def _changed_paths(history: History, old: str, new: str) -> set[tuple[str, bytes]]:
    """Return the paths that differ, as git lists them. A rename is a deletion and an addition."""
    fields = history.output("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new).split(b"\0")[:-1]
    return {
        ("M" if status == b"T" else status.decode(), path)
        for status, path in zip(fields[::2], fields[1::2], strict=True)
    }


def _parent_or_empty_tree(history: History, commit: str) -> str:
    """Return the first parent, or the empty tree."""
    found = history.lines("rev-list", "--parents", "-n", "1", commit)[0].split(" ")
    return found[1] if len(found) > 1 else history.output("hash-object", "-t", "tree", os.devnull).decode().strip()


def _sample_commits(history: History) -> list[str]:
    return history.commits(SAMPLE_COMMITS)


_CHANGE_LINE = re.compile(r"^ *([ADMTRC])[0-9]*\s+(.*)$", re.MULTILINE)


@pytest.mark.timeout(600)
def test_a_commit_lists_the_same_paths_as_git_diff_tree(history: History, source: PublishedRepository) -> None:
    """Commits with unprintable paths are skipped."""
    wrong: list[str] = []
    for commit in _sample_commits(history):
        expected = _changed_paths(history, _parent_or_empty_tree(history, commit), commit)
        if len(expected) > 250 or any(not path.decode("latin-1").isprintable() or b" " in path for _, path in expected):
            continue
        text = str(source.read(f"git://repo/commit/{commit}").contents[0].text)
        listed = text[text.rindex(" changed against ") :]
        found: set[tuple[str, bytes]] = set()
        for status, path in _CHANGE_LINE.findall(listed):
            old, _, new = path.partition(" -> ")
            found |= {("D", os.fsencode(old)), ("A", os.fsencode(new))} if status == "R" else set()
            found |= {("A", os.fsencode(new))} if status == "C" else set()
            found |= {("M" if status == "T" else status, os.fsencode(path))} if status in "ADMT" else set()
        if found != expected:
            wrong.append(f"{commit}: {sorted(found ^ expected)[:4]}")
    assert wrong == []


@pytest.mark.timeout(900)
def test_git_applies_the_diff_of_each_commit(history: History, source: PublishedRepository, tmp_path: Path) -> None:
    """`git apply` turns the files of the parent into those of the commit, also if they are binary or have odd names.

    Files in encodings other than UTF-8 are excluded, because their patches are decoded for display.
    """
    wrong: list[str] = []
    for commit in _sample_commits(history):
        before = _parent_or_empty_tree(history, commit)
        reason = _patch_error(history, source, f"git://repo/diff/{commit}", before, commit, tmp_path / "index")
        if reason:
            wrong.append(f"{commit}: {reason}")
    assert wrong == []


@pytest.mark.timeout(600)
def test_git_applies_diffs_between_distant_revisions(
    history: History, source: PublishedRepository, tmp_path: Path
) -> None:
    """The diffs go forwards and backwards in time, and have several windows."""
    commits = _sample_commits(history)
    chance = random.Random(11)
    wrong: list[str] = []
    for _ in range(12):
        old, new = chance.choice(commits), chance.choice(commits)
        uri = f"git://repo/diff/{old}..{new}"
        reason = _patch_error(history, source, uri, old, new, tmp_path / "index")
        if reason:
            wrong.append(f"{uri}: {reason}")
    assert wrong == []


def _patch_error(history: History, source: PublishedRepository, uri: str, old: str, new: str, index: Path) -> str:
    """Return why a diff does not turn one tree into the other, or "" if it does or if git cannot compare them."""
    try:
        patch = b"".join(map(bytes_of, read_windows(source, uri)))
    except GitFailed as error:  # correct if the clone is incomplete, so that git fails too
        try:
            history.output("diff", "--binary", old, new)
        except AssertionError:
            return ""
        return str(error)
    if patch.strip() == b"Nothing differs.":
        patch = b""
    decoded = _decoded_paths(history, old, new)
    trees: list[bytes] = []
    for tree, changes in ((new, b""), (old, patch)):
        index.unlink(missing_ok=True)
        history.output("read-tree", tree, GIT_INDEX_FILE=str(index))
        if changes:
            command = ("apply", "--cached", "--whitespace=nowarn", *[f"--exclude={path}" for path in decoded], "-")
            try:
                history.output(*command, data=changes, GIT_INDEX_FILE=str(index))
            except AssertionError as error:
                return str(error)[:300]
        trees.append(history.output("write-tree", "--missing-ok", GIT_INDEX_FILE=str(index)))
    if decoded:
        left = history.lines("diff-tree", "-r", "--name-only", *[tree.decode().strip() for tree in trees])
        return "" if set(left) <= decoded else f"leaves {set(left) - decoded}"
    # Patches have no modes that only old programs wrote, so the patch of git results in another tree too.
    git_patch = b"" if trees[0] == trees[1] else history.output("diff", "--binary", "--abbrev=8", "-M", old, new)
    left_out = b"too large to show" in patch and len(git_patch) > MAX_PATCH_BYTES  # as documented
    same: bool = trees[0] == trees[1] or patch == git_patch or left_out
    return "" if same else "applies, but results in another tree"


def _decoded_paths(history: History, old: str, new: str) -> set[str]:
    """Return the changed files whose patch is not UTF-8. The source decodes it for display, as documented."""
    found: set[str] = set()
    git_patch = history.output("diff", "--binary", "-M", old, new)
    for patch in re.split(rb"(?m)^(?=diff --git )", git_patch):
        try:
            patch.decode()
        except UnicodeDecodeError:
            found.update(os.fsdecode(path) for path in re.findall(rb"(?m)^(?:--- a|\+\+\+ b)/(.*)$", patch))
    return found


# Logs

_LOG_LINE = re.compile(r"^([0-9a-f]{7,64}) \d{4}-\d\d-\d\d ", re.MULTILINE)


def _read_log(source: PublishedRepository, uri: str) -> list[str]:
    """Return the short ids of the commits of a log."""
    return _LOG_LINE.findall(joined_text(source, uri))


def _same_commits(found: list[str], expected: list[str]) -> bool:
    return len(found) == len(expected) and all(
        oid.startswith(short) for short, oid in zip(found, expected, strict=True)
    )


@pytest.mark.timeout(600)
def test_logs_list_the_same_commits_as_git_log(history: History, source: PublishedRepository) -> None:
    """Each commit is listed once, in the order of `git log` or of `git log --date-order`."""
    heads = history.lines("for-each-ref", "--format=%(objectname)", "refs/heads")
    for oid in sorted(set(heads))[:20]:
        found = _read_log(source, f"git://repo/log/{oid}?limit=1000")
        assert len(found) == len(set(found))
        assert any(_same_commits(found, history.lines("rev-list", *order, oid)) for order in ((), ("--date-order",))), (
            oid
        )


def test_the_log_of_a_path_lists_the_same_commits_as_git_log(tmp_path: Path) -> None:
    """The log follows a rename."""
    history = History(tmp_path / "linear")
    history.init("--bare")
    stream = Stream()
    body = [b"line %d\n" % number for number in range(60)]
    last = stream.commit(
        "main", b"Begin", file_change(b"old.txt", b"".join(body)), file_change(b"other.txt", b"other\n")
    )
    for number in range(30):
        body[number] = b"changed in %d\n" % number
        path = b"old.txt" if number < 15 else b"new/name.txt"
        moved = [b"R old.txt new/name.txt\n"] if number == 15 else []
        changes = [file_change(path, b"".join(body))] if number % 2 else [file_change(b"other.txt", b"%d\n" % number)]
        last = stream.commit("main", b"Change %d" % number, *moved, *changes, parents=(last,))
    history.output("fast-import", "--quiet", data=bytes(stream.out))
    source = PublishedRepository(history.path)
    for path, options in (("new/name.txt", ["--follow"]), ("other.txt", []), ("new", [])):
        expected = history.lines("log", "--format=%H", *options, "main", "--", path)
        assert _same_commits(_read_log(source, f"git://repo/log/main?path={path}"), expected), path
        assert _same_commits(_read_log(source, f"git://repo/log/main?path={path}&limit=3"), expected), path
    source.close()


# References and names


def test_references_resolve_as_in_git(history: History, source: PublishedRepository) -> None:
    """Branches, tags and their parents are compared with `git rev-parse`. Other references are not found."""
    names = history.lines("for-each-ref", "--format=%(refname)")
    known = [name for name in names if name.startswith(("refs/heads/", "refs/tags/", "refs/remotes/"))]
    for name in sorted(set(names) - set(known))[:20]:  # such as refs/pull/1/head
        with pytest.raises(ResourceNotFound):
            source.version(f"git://repo/log/{percent_encode(os.fsencode(name))}")
    for name in known[:400]:
        oid = history.lines("rev-parse", f"{name}^{{}}")[0]
        kind = history.lines("cat-file", "-t", oid)[0]
        rev = percent_encode(os.fsencode(name))
        if kind == "commit":
            assert source.version(f"git://repo/log/{rev}") == oid
            if len(history.lines("rev-list", "-n", "2", "--first-parent", oid)) > 1:
                assert source.version(f"git://repo/log/{rev}~1") == history.lines("rev-parse", f"{oid}~1")[0]
        else:
            assert source.version(f"git://repo/tree/{rev}") == oid


def test_every_file_of_a_commit_has_a_uri(history: History, source: PublishedRepository) -> None:
    """The paths are those of `git ls-tree -r -z`."""
    for commit in history.commits(4):
        fields = history.output("ls-tree", "-r", "-z", commit).split(b"\0")[:-1]
        for field in random.Random(3).sample(fields, min(200, len(fields))):
            facts, path = field.split(b"\t", 1)
            _, kind, oid = facts.decode().split(" ")
            uri = tree_uri(commit, path)
            assert source.version(uri) == oid, path
            if kind == "blob":
                assert has_bytes(source.read(uri).contents[0], history.output("cat-file", "blob", oid)), path


# Through `wharfinger serve`


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_of_a_served_repository_reads_the_same_contents_as_git(tmp_path: Path, revision: str) -> None:
    """A client of either era reads odd names, binary files and logs from `wharfinger serve git:PATH`."""
    history = _make_loose(tmp_path / "odd")
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", f"repo=git:{history.path}"]

    async def compare() -> None:
        async with Client(command, revision=revision) as client:
            for number, name in enumerate(NAMES):
                contents = (await client.read_resource(tree_uri("side0", b"names/" + name))).contents
                assert bytes_of(contents[0]) == b"now called %d\n" % number
            contents = (await client.read_resource("git://repo/tree/side0/large.bin")).contents
            assert bytes_of(contents[0]) == history.output("cat-file", "blob", "side0:large.bin")
            with pytest.raises(ResourceNotFound):
                await client.read_resource("git://repo/tree/side0/names/none")
            log = (await client.read_resource("git://repo/log/side0")).contents
            assert _same_commits(_LOG_LINE.findall(str(log[0].text)), history.lines("rev-list", "side0"))

    asyncio.run(asyncio.wait_for(compare(), 50))


def test_a_repacked_copy_returns_the_same_answers(tmp_path: Path) -> None:
    """No answer depends on where the repository is, or on how its objects are stored."""
    history = _make_loose(tmp_path / "odd")
    shutil.copytree(history.path, tmp_path / "copy")
    copy = History(tmp_path / "copy")
    copy.git("repack", "-a", "-d", "-q", "-k")
    sources = [PublishedRepository(path) for path in (history.path, copy.path)]
    uris = [resource.uri for resource in sources[0].page(None, 1_000)[0]]
    uris += [
        f"git://repo/{kind}/main~{number}" for kind in ("commit", "diff", "log", "tree") for number in range(60, 66)
    ]
    for uri in uris:
        first, second = (source.read(uri) for source in sources)
        assert [bytes_of(each) for each in first.contents] == [bytes_of(each) for each in second.contents], uri
    for source in sources:
        source.close()
