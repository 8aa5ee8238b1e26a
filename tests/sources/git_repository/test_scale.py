"""A long history and a large tree: pages and windows in a bounded time, in bounded memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import absent
from tests.sources.git_repository.conftest import GIT, ServedGit, Work, text_of
from wharfinger.sources.git_repository import git
from wharfinger.sources.windows.window import NEXT

COMMITS, FILES = 10_000, 10_000
SOON = 5.0  # seconds; how quick is what benchmarks/scale measures


def stream() -> bytes:
    """A history for `git fast-import`: many files at once, then one changed in each commit; some merges."""
    out = [b"blob\nmark :1\ndata 2\nx\n\n"]
    for number in range(1, COMMITS + 1):
        out.append(
            b"commit refs/heads/main\nmark :%d\ncommitter A <a@b> %d +0000\ndata %d\nCommit %05d\n"
            % (number + 10, 1_700_000_000 + number * 60, 12, number)
        )
        if number > 100 and number % 100 == 0:
            out.append(b"merge :%d\n" % (number - 50 + 10))
        if number == 1:
            out += [b"M 100644 :1 dir%02d/file%05d.txt\n" % (at % 100, at) for at in range(FILES)]
        out.append(b"M 100644 inline log/%03d.txt\ndata %d\n%d\n\n" % (number % 500, len(str(number)) + 1, number))
    return b"".join(out)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """10,000 commits, 10,500 files, 1,000 branches; in a pack."""
    if GIT is None:
        absent("git")
    work = Work(tmp_path_factory.mktemp("long") / "long").init("--bare")
    work.git("fast-import", "--quiet", data=stream())
    heads = "".join(f"create refs/heads/topic/{number:04} main~{number % 50}\n" for number in range(1_000))
    work.git("update-ref", "--stdin", data=heads.encode())
    return work


@pytest.fixture(scope="module")
def source(long: Work) -> Iterator[ServedGit]:
    served = ServedGit(git(long.path, label="long"))
    yield served
    served.end()


def took(use: Callable[[], object]) -> float:
    began = time.perf_counter()
    use()
    return time.perf_counter() - began


def test_first_pages_and_windows_are_quick(source: ServedGit) -> None:
    """Promised: under 100 ms warm."""
    for name, use in {
        "page": lambda: source.page(None, 100),
        "log": lambda: source.read("git://long/log/HEAD"),
        "deep log": lambda: source.read("git://long/log/main~900?limit=100"),
        "tree": lambda: source.read("git://long/tree/HEAD"),
        "commit": lambda: source.read("git://long/commit/HEAD"),
        "first commit's diff": lambda: source.stat("git://long/diff/HEAD~100..HEAD"),
        "top": lambda: source.read("git://long"),
        "describe": source.describe,
    }.items():
        use()
        seconds = min(took(use) for _ in range(3))
        print(f"{name}: {seconds * 1000:.1f} ms")
        assert seconds < SOON, name


def test_the_whole_log_in_windows_is_every_commit_once(source: ServedGit, long: Work) -> None:
    """Each window under 100 ms, and nothing lost or shown twice."""
    found: list[str] = []
    slowest = 0.0
    uri: str | None = "git://long/log/HEAD?limit=500"
    while uri is not None:
        began = time.perf_counter()
        contents = source.read(uri).contents
        slowest = max(slowest, time.perf_counter() - began)
        text = contents[0].text
        assert isinstance(text, str)
        found += [line[4:] for line in text.split("\n") if line.startswith("    Commit ")]
        uri = contents[0].meta.get(NEXT)  # type: ignore[union-attr, assignment]
    print(f"slowest window of 500: {slowest * 1000:.1f} ms")
    assert found == long.git("log", "--format=%s").split("\n")
    assert slowest < SOON


def test_listing_all_in_pages_is_bounded(source: ServedGit) -> None:
    """Everything is listed once, in little memory."""
    tracemalloc.start()
    found: set[str] = set()
    key: str | None = None
    many = 0
    slowest = 0.0
    while True:
        began = time.perf_counter()
        resources, key = source.page(key, 1_000)
        slowest = max(slowest, time.perf_counter() - began)
        many += len(resources)
        found.update(resource.uri for resource in resources)
        if key is None:
            break
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{many} resources, slowest page {slowest * 1000:.1f} ms, peak {peak / 1e6:.1f} MB")
    assert len(found) == many == 3 + 1_001 + 100 + FILES + 500 + 101
    assert peak < 64 << 20


def test_the_log_of_a_path_is_found_in_time(source: ServedGit, long: Work) -> None:
    """A window ends in time, whether full or not, and the windows together have all."""
    found: list[str] = []
    since = 1_700_000_000 + (COMMITS - 3_000) * 60 + 30
    uri: str | None = f"git://long/log/HEAD?path=log/007.txt&since={since}"
    while uri is not None:
        began = time.perf_counter()
        contents = source.read(uri).contents
        assert time.perf_counter() - began < 5
        text = contents[0].text
        assert isinstance(text, str)
        found += [line[4:] for line in text.split("\n") if line.startswith("    Commit ")]
        uri = contents[0].meta.get(NEXT)  # type: ignore[union-attr, assignment]
    assert found == long.git("log", "--format=%s", f"--since=@{since}", "--", "log/007.txt").split("\n")


def test_looking_at_a_thousand_branches_costs_little(source: ServedGit) -> None:
    """This makes polling cheap enough."""
    source.references()
    time.sleep(0.15)
    source.references()
    seconds = min(took(source.references) for _ in range(5))
    print(f"1,001 branches: {seconds * 1000:.1f} ms")
    assert seconds < 0.1


def test_a_tree_of_many_entries_is_paged(work: Work, publish: Callable[..., ServedGit]) -> None:
    """100,000 entries in one folder: read in a bounded time, in pages."""
    blob = bytes.fromhex(work.put("blob", b"x"))
    tree = work.put("tree", b"".join(b"100644 f%06d.txt\0" % number + blob for number in range(100_000)))
    work.git("update-ref", "refs/heads/main", work.git("commit-tree", tree, "-m", "Many"))
    source = publish(work, label="repo")
    text = text_of(source, "git://repo/tree/HEAD")
    assert "100,000 files" in text
    found: list[str] = []
    key: str | None = None
    slowest = 0.0
    while True:
        began = time.perf_counter()
        children, key = source.children("git://repo/tree/HEAD", key, 5_000)
        slowest = max(slowest, time.perf_counter() - began)
        found += [child.name for child in children]
        if key is None:
            break
    print(f"slowest page of 5,000: {slowest * 1000:.1f} ms")
    assert found == [f"f{number:06}.txt" for number in range(100_000)]


def test_a_large_blob_is_read_in_windows_of_constant_memory(work: Work, publish: Callable[..., ServedGit]) -> None:
    """256 MiB, at any offset, in a loose object or in a pack."""
    line = b"0123456789abcde\n"
    with (work.path / "large.txt").open("wb") as file:
        for _ in range(256):
            file.write(line * (1 << 16))
    work.git("config", "core.bigFileThreshold", "1m")
    work.commit("Add a large file")
    source = publish(work, label="repo")
    uri = "git://repo/tree/HEAD/large.txt"
    size = 256 << 20
    tracemalloc.start()
    assert source.stat(uri).size == size
    first = source.read(uri).contents[0]
    assert isinstance(first.text, str)
    assert first.text.startswith("0123456789abcde\n")
    for offset in (0, 100 << 20, size - 16, 50 << 20):
        part = source.read(f"{uri}?bytes={offset}-{offset + 15}").contents[0]
        assert part.text == line.decode()
    assert source.read(f"{uri}?tail=2").contents[0].text == (line * 2).decode()
    seconds = took(lambda: source.read(f"{uri}?bytes={200 << 20}-{(200 << 20) + 99}"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"a window in the middle: {seconds * 1000:.1f} ms, peak {peak / 1e6:.1f} MB")
    assert peak < 32 << 20
    assert seconds < 1
