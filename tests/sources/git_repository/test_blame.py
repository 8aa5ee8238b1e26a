"""Blame and grep of a source, compared with `git blame` and `git grep`."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.git_repository.conftest import GitRepository
from tests.sources.git_repository.histories import (
    NAMES,
    History,
    PublishedRepository,
    fill_with_deltas,
    fill_with_oddities,
    read_windows,
)
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.git_repository.answer_blame import parse_blame, unquote_path
from wharfinger.sources.git_repository.answer_grep import parse_grep
from wharfinger.sources.windows.window import NEXT

_COMMIT_LINE = re.compile(r"([0-9a-f]{12}) \d{4}-\d\d-\d\d")
_TEXT_LINE = re.compile(r" +(\d+)  (.*)", re.DOTALL)


@pytest.fixture(scope="module")
def odd_history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Return a history with renames, merges, odd names and deltas."""
    history = History(tmp_path_factory.mktemp("blame") / "odd_history")
    history.init("--bare")
    fill_with_oddities(history)
    return history


def read_blame(source: PublishedRepository, uri: str) -> list[tuple[str, int, str]]:
    """Return the short commit id, the number and the text of each line, from all windows."""
    found: list[tuple[str, int, str]] = []
    for window in read_windows(source, uri):
        oid = ""
        for line in str(window.text).split("\n")[2:-1]:
            head = _COMMIT_LINE.match(line)
            if head:
                oid = head[1]
            else:
                match = _TEXT_LINE.match(line)
                assert match is not None, line
                found.append((oid, int(match[1]), match[2]))
    return found


def git_blame(history: History, rev: str, path: str) -> list[tuple[str, int, str]]:
    """Return the same as `read_blame`, as `git blame --line-porcelain` prints it."""
    found: list[tuple[str, int, str]] = []
    oid, number = "", 0
    for line in history.output("blame", "--line-porcelain", "--root", rev, "--", path).split(b"\n"):
        if line.startswith(b"\t"):
            found.append((oid[:12], number, line[1:].decode()))
        else:
            head = re.match(rb"([0-9a-f]{40,64}) \d+ (\d+)", line)
            if head:
                oid, number = head[1].decode(), int(head[2])
    return found


def test_blame_finds_the_same_commits_as_git_blame(odd_history: History) -> None:
    """The files have renames and merges."""
    with PublishedRepository(odd_history.path) as source:
        for rev, path in (
            ("main~2", "table.txt"), ("main~30", "table.txt"), ("main", "again.txt"), ("main~2", "deep/moved.txt"),
            ("main~2", "thing/inside.txt"), ("side1", "side1.txt"), ("main~2", "texts/11.txt"), ("cross", "cross.txt"),
        ):  # fmt: skip
            expected = git_blame(odd_history, rev, path)
            assert expected
            assert read_blame(source, f"git://repo/blame/{quote(rev)}/{path}") == expected, (rev, path)
            assert read_blame(source, f"git://repo/blame/{quote(rev)}/{path}?lines=1-1") == expected[:1]


def test_files_with_many_authors_are_blamed_in_windows(tmp_path: Path) -> None:
    """The windows have each line once. `lines` and `tail` select a part."""
    history = History(tmp_path / "deltas")
    history.init("--bare")
    fill_with_deltas(history)
    with PublishedRepository(history.path) as source:
        expected = git_blame(history, "main", "dir3/file10.txt")
        uri = "git://repo/blame/main/dir3/file10.txt"
        assert len(expected) == 300
        assert read_blame(source, uri) == expected
        assert len(list(read_windows(source, uri))) > 1
        assert read_blame(source, f"{uri}?lines=50-70") == expected[49:70]
        assert read_blame(source, f"{uri}?lines=290-") == expected[289:]
        assert read_blame(source, f"{uri}?lines=250-999") == expected[249:]
        assert read_blame(source, f"{uri}?tail=7") == expected[-7:]


def test_blame_names_the_old_path_of_renamed_lines(odd_history: History) -> None:
    with PublishedRepository(odd_history.path) as source:
        contents = source.read_first("git://repo/blame/main~2/deep/moved.txt")
        assert "Ada Berth: Begin (in moved.txt)" in str(contents.text)
        assert NEXT not in (contents.meta or {})


def test_odd_names_and_contents_are_blamed(odd_history: History) -> None:
    """Each name of a file is addressed by its bytes."""
    with PublishedRepository(odd_history.path) as source:
        for number, name in enumerate(NAMES):
            part = "".join([f"%{byte:02X}" for byte in name])
            (line,) = read_blame(source, f"git://repo/blame/side0/names/{part}")
            assert line[1:] == (1, f"now called {number}")
            assert "(in " not in source.read_text(f"git://repo/blame/side0/names/{part}")
        empty = next(
            number for number in range(3) if not odd_history.output("cat-file", "blob", f"side0:texts/{number:02}.txt")
        )
        assert source.read_text(f"git://repo/blame/side0/texts/{empty:02}.txt") == "The file is empty.\n"


def test_blame_of_anything_but_a_text_file_is_refused_with_a_reason(odd_history: History) -> None:
    """Folders, binary files, links, submodules and invalid windows are refused."""
    with PublishedRepository(odd_history.path) as source:
        for path, words in (
            ("texts", "of one file"), ("", "of one file"), ("large.bin", "no lines"), ("link", "of one file"),
            ("lib", "of one file"), ("run.sh?bytes=0-9", "parameter"), ("run.sh?lines=9-", "has 2 lines"),
            ("run.sh?lines=0-1", "lines="), ("run.sh?path=x", "parameter"),
        ):  # fmt: skip
            with pytest.raises(InvalidArgument, match=words):
                source.read(f"git://repo/blame/side0/{path}" if path else "git://repo/blame/side0")
        for uri in ("blame/side0/none", "blame/none/run.sh", "blame/side0/run.sh/", "blame/side0/run.sh/x", "blame"):
            with pytest.raises(ResourceNotFound):
                source.read(f"git://repo/{uri}")


def test_blame_of_a_large_file_is_refused(history: GitRepository) -> None:
    """A bug: a file of up to 2 GiB was read into memory."""
    history.commit("Add", large__txt=b"a line\n" * (5 << 20))
    with (
        PublishedRepository(history.path) as source,
        pytest.raises(InvalidArgument, match=r"has 35 MiB, and blame reads at most 32 MiB: .*/log/HEAD\?path=PATH"),
    ):
        source.read("git://repo/blame/HEAD/large.txt")


def test_the_version_of_a_blame_changes_only_with_its_file(history: GitRepository) -> None:
    """Watchers of a blame are not notified of commits of other files."""
    with PublishedRepository(history.path) as source:
        uri = "git://repo/blame/main/hull.txt"
        first = source.version(uri)
        history.commit("Something else", other__txt="x\n")
        assert source.version(uri) == first
        history.commit("Deepen", hull__txt="six\nfathoms\n")
        assert source.version(uri) != first
        assert source.read(uri).ttl_ms != source.read(f"git://repo/blame/{history.head}/hull.txt").ttl_ms


def test_blame_in_a_shallow_clone_says_that_lines_may_be_older(history: GitRepository, tmp_path: Path) -> None:
    """The oldest commit of the clone may not be the one that wrote a line."""
    history.git("clone", "-q", "--bare", "--depth=1", history.path.as_uri(), str(tmp_path / "shallow"))
    with PublishedRepository(tmp_path / "shallow") as source:
        assert "or earlier, where this shallow clone ends" in source.read_text("git://repo/blame/main/hull.txt")
    with PublishedRepository(history.path) as source:
        assert "or earlier" not in source.read_text("git://repo/blame/main/hull.txt")


def test_blame_and_grep_have_templates(history: GitRepository) -> None:
    """Their revisions and paths are completed."""
    with PublishedRepository(history.path) as source:
        templates = {template.uri_template for template in source.templates}
        blame = "git://repo/blame/{rev}/{+path}{?lines}"
        assert {blame, "git://repo/grep/{rev}{?text,path,after}"} <= templates
        assert list(source.complete(blame, "path", "hu", {"rev": "main"})) == ["hull.txt"]


# grep


def read_matches(source: PublishedRepository, uri: str) -> list[tuple[str, int]]:
    """Return the path and number of each line, from all windows."""
    lines: list[tuple[str, int]] = []
    for window in read_windows(source, uri):
        path = ""
        for line in str(window.text).split("\n")[2:]:
            head = re.match(r"(\S.*)  git://repo/tree/", line)
            if head:
                path = head[1]
            elif line:
                lines.append((path, int(line.split()[0])))
    return lines


@pytest.mark.parametrize(
    "text", ["row", "ROW 14, changed", "called", "(a+)+$", ".*", "--all", "-e", "'; touch x", "\u0436"]
)
def test_grep_finds_the_same_lines_as_git_grep(odd_history: History, text: str) -> None:
    """The text is literal, and its case is ignored."""
    rev = "main~2"
    printed = odd_history.output("grep", "-F", "-I", "-i", "-n", "-z", "-e", text, rev, check=False)
    rows = re.findall(rb"main~2:([^\0]*)\0(\d+)\0[^\n]*\n", printed)
    expected = [(path.decode("utf-8", "surrogateescape"), int(number)) for path, number in rows]
    printable = [row for row in expected if row[0].isprintable()]
    with PublishedRepository(odd_history.path) as source:
        uri = f"git://repo/grep/{quote(rev)}?text={quote(text, safe='')}"
        if not expected:
            assert source.read_text(uri).startswith("No line")
        else:
            lines = read_matches(source, uri)
            assert len(lines) == len(expected)
            assert [row for row in lines if row in printable] == printable


def test_grep_says_that_files_are_missing(history: GitRepository) -> None:
    """A partial clone lacks files. git leaves them out, and ends as if no line had the text."""
    oid = history.git("rev-parse", "main:hull.txt")
    (history.path / ".git/objects" / oid[:2] / oid[2:]).unlink()
    with PublishedRepository(history.path) as source:
        for text, beginning in (("fathoms", "No line at main"), ("high", "At least 1 line at main")):
            contents = source.read(f"git://repo/grep/{history.head}?text={text}")
            shown = str(contents.contents[0].text).replace(history.head, "main", 1)
            assert shown.startswith(beginning)
            assert "in the files that can be read (see `git fsck`)" in shown
            assert contents.ttl_ms is not None
            assert contents.ttl_ms <= 10_000


def test_grep_can_be_limited_to_a_path(odd_history: History) -> None:
    """The path is a folder or a file of that revision."""
    with PublishedRepository(odd_history.path) as source:
        assert read_matches(source, "git://repo/grep/main~2?text=part&path=deep") == [
            ("deep/moved.txt", number + 1) for number in range(50)
        ]
        assert source.read_text("git://repo/grep/main~2?text=part&path=names").startswith("No line below names")
        for query in (
            "",
            "?text=",
            "?text=a%0Ab",
            "?text=a&path=none",
            "?text=a&path=../x",
            "?text=a&after=x",
            "?lines=1-2",
        ):
            with pytest.raises(InvalidArgument):
                source.read(f"git://repo/grep/main~2{query}")
        with pytest.raises(ResourceNotFound):
            source.read("git://repo/grep/none?text=a")
        with pytest.raises(ResourceNotFound):
            source.read("git://repo/grep/main/docs?text=a")


# Output of git


@given(st.binary(max_size=200), st.booleans())
def test_any_output_of_git_is_parsed_without_an_error(data: bytes, header: bool) -> None:
    begin = b"a" * 40 + b" 1 1 1\nfilename x\n" if header else b""
    assert len(parse_blame(begin + data)) <= data.count(b"\t") + 1
    assert len(parse_grep(b"a" * 40 + b":" + data, "a" * 40)) <= data.count(b"\n")


@given(st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name))
def test_quoted_paths_are_unquoted(name: bytes) -> None:
    quoted = b'"' + b"".join([b"\\%03o" % byte for byte in name]) + b'"'
    assert unquote_path(quoted) == name


def test_paths_that_git_quotes_are_unquoted(odd_history: History) -> None:
    """The names need every kind of escape of `core.quotePath`."""
    quoted = odd_history.output("ls-tree", "-r", "--name-only", "side0", "names").split(b"\n")[:-1]
    assert sorted(unquote_path(name) for name in quoted) == sorted(b"names/" + name for name in NAMES)
