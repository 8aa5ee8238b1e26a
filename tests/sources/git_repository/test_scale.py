"""Pages and windows of a long history and large trees take bounded time and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from tests.sources.git_repository.conftest import GitRepository, ServedGit, text_of
from wharfinger.sources.git_repository import git
from wharfinger.sources.windows.window import NEXT

COMMITS, FILES = 10_000, 10_000
MAX_SECONDS = 20.0  # for a busy machine; benchmarks/scale measures the actual times


def fast_import_input() -> bytes:
    """Return a history for `git fast-import`: the first commit adds all files, the others change one file each."""
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
def large_repository(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Return a packed repository of 10,000 commits, 10,500 files and 1,000 branches."""
    work = GitRepository(tmp_path_factory.mktemp("long") / "long").init("--bare")
    work.git("fast-import", "--quiet", data=fast_import_input())
    heads = "".join(f"create refs/heads/topic/{number:04} main~{number % 50}\n" for number in range(1_000))
    work.git("update-ref", "--stdin", data=heads.encode())
    return work


@pytest.fixture(scope="module")
def source(large_repository: GitRepository) -> Iterator[ServedGit]:
    served = ServedGit(git(large_repository.path, label="long"))
    yield served
    served.close()


def seconds_for(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    function()
    return clock() - began


def test_first_pages_and_windows_are_quick(source: ServedGit) -> None:
    """With warm caches, they take less than 100 ms on an idle machine."""
    for name, function in {
        "page": lambda: source.page(None, 100),
        "log": lambda: source.read("git://long/log/HEAD"),
        "deep log": lambda: source.read("git://long/log/main~900?limit=100"),
        "tree": lambda: source.read("git://long/tree/HEAD"),
        "commit": lambda: source.read("git://long/commit/HEAD"),
        "diff of 100 commits": lambda: source.stat("git://long/diff/HEAD~100..HEAD"),
        "top": lambda: source.read("git://long"),
        "describe": source.describe,
    }.items():
        function()
        seconds = min(seconds_for(function) for _ in range(3))
        print(f"{name}: {seconds * 1000:.1f} ms")
        assert seconds < MAX_SECONDS, name


def test_windows_of_the_log_list_each_commit_once(source: ServedGit, large_repository: GitRepository) -> None:
    """A window takes less than 100 ms on an idle machine."""
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
    assert found == large_repository.git("log", "--format=%s").split("\n")
    assert slowest < MAX_SECONDS


def test_all_resources_are_listed_in_bounded_memory(source: ServedGit) -> None:
    tracemalloc.start()
    found: set[str] = set()
    key: str | None = None
    count = 0
    slowest = 0.0
    while True:
        began = time.perf_counter()
        resources, key = source.page(key, 1_000)
        slowest = max(slowest, time.perf_counter() - began)
        count += len(resources)
        found.update(resource.uri for resource in resources)
        if key is None:
            break
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{count} resources, slowest page {slowest * 1000:.1f} ms, peak {peak / 1e6:.1f} MB")
    assert len(found) == count == 3 + 1_001 + 100 + FILES + 500 + 101
    assert peak < 64 << 20


def test_windows_of_the_log_of_a_path_take_bounded_time(source: ServedGit, large_repository: GitRepository) -> None:
    """A window may have fewer commits than its limit. All windows together have all commits."""
    found: list[str] = []
    since = 1_700_000_000 + (COMMITS - 3_000) * 60 + 30
    uri: str | None = f"git://long/log/HEAD?path=log/007.txt&since={since}"
    while uri is not None:
        began = time.perf_counter()
        contents = source.read(uri).contents
        assert time.perf_counter() - began < MAX_SECONDS
        text = contents[0].text
        assert isinstance(text, str)
        found += [line[4:] for line in text.split("\n") if line.startswith("    Commit ")]
        uri = contents[0].meta.get(NEXT)  # type: ignore[union-attr, assignment]
    assert found == large_repository.git("log", "--format=%s", f"--since=@{since}", "--", "log/007.txt").split("\n")


def test_a_thousand_branches_are_read_in_100_ms(source: ServedGit) -> None:
    """Polling reads them in each round."""
    source.references()
    time.sleep(0.15)  # references that changed in the last 0.1 s are not cached
    source.references()
    seconds = min(seconds_for(source.references, time.process_time) for _ in range(5))
    print(f"1,001 branches: {seconds * 1000:.1f} ms")
    assert seconds < 0.1


def test_a_tree_of_many_entries_is_paged(work: GitRepository, publish: Callable[..., ServedGit]) -> None:
    """The folder has 100,000 entries."""
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


def test_a_large_blob_is_read_in_windows_of_constant_memory(
    work: GitRepository, publish: Callable[..., ServedGit]
) -> None:
    """The file has 256 MiB. It is read at several offsets."""
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
    seconds = min(seconds_for(lambda: source.read(f"{uri}?bytes={200 << 20}-{(200 << 20) + 99}")) for _ in range(5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"a window in the middle: {seconds * 1000:.1f} ms, peak {peak / 1e6:.1f} MB")
    assert peak < 32 << 20
    assert seconds < 1
