"""Authors of lines and lines with a text, compared with `git blame` and `git grep`."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import absent
from tests.sources.git_repository.conftest import GIT, Work
from tests.sources.git_repository.histories import (
    NAMES,
    History,
    Published,
    fill_with_deltas,
    fill_with_oddities,
    windows,
)
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.git_repository.answer_blame import parse_blame, unquote_path
from wharfinger.sources.git_repository.answer_grep import parse_grep

_HEAD = re.compile(r"([0-9a-f]{12}) \d{4}-\d\d-\d\d")
_LINE = re.compile(r" +(\d+)  (.*)", re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A history with renames, merges, odd names and deltas."""
    if GIT is None:
        absent("git")
    history = History(tmp_path_factory.mktemp("blame") / "made")
    history.init("--bare")
    fill_with_oddities(history)
    return history


def blamed(source: Published, uri: str) -> list[tuple[str, int, str]]:
    """For each line, return the beginning of its commit's name, its number and its text, from all windows."""
    found: list[tuple[str, int, str]] = []
    for window in windows(source, uri):
        oid = ""
        for line in str(window.text).split("\n")[2:-1]:
            head = _HEAD.match(line)
            if head:
                oid = head[1]
            else:
                match = _LINE.match(line)
                assert match is not None, line
                found.append((oid, int(match[1]), match[2]))
    return found


def as_git(history: History, rev: str, path: str) -> list[tuple[str, int, str]]:
    """The same, by `git blame --line-porcelain`."""
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


def test_lines_have_the_commits_that_git_blames(made: History) -> None:
    """Through renames and merges, in all windows, at some revisions."""
    with Published(made.path) as source:
        for rev, path in (
            ("main~2", "table.txt"), ("main~30", "table.txt"), ("main", "again.txt"), ("main~2", "deep/moved.txt"),
            ("main~2", "thing/inside.txt"), ("side1", "side1.txt"), ("main~2", "texts/11.txt"), ("cross", "cross.txt"),
        ):  # fmt: skip
            expected = as_git(made, rev, path)
            assert expected
            assert blamed(source, f"git://repo/blame/{quote(rev)}/{path}") == expected, (rev, path)
            assert blamed(source, f"git://repo/blame/{quote(rev)}/{path}?lines=1-1") == expected[:1]


def test_files_with_many_authors_are_blamed_in_windows(tmp_path: Path) -> None:
    """Joined, the windows have each line once; a part can be asked for."""
    if GIT is None:
        absent("git")
    history = History(tmp_path / "deltas")
    history.init("--bare")
    fill_with_deltas(history)
    with Published(history.path) as source:
        expected = as_git(history, "main", "dir3/file10.txt")
        uri = "git://repo/blame/main/dir3/file10.txt"
        assert len(expected) == 300
        assert blamed(source, uri) == expected
        assert len(list(windows(source, uri))) > 1
        assert blamed(source, f"{uri}?lines=50-70") == expected[49:70]
        assert blamed(source, f"{uri}?lines=290-") == expected[289:]
        assert blamed(source, f"{uri}?lines=250-999") == expected[249:]
        assert blamed(source, f"{uri}?tail=7") == expected[-7:]


def test_a_rename_is_named(made: History) -> None:
    """The lines are older than the name of the file."""
    with Published(made.path) as source:
        text = source.first_text("git://repo/blame/main~2/deep/moved.txt")
        assert "Ada Berth: Begin (in moved.txt)" in text
        assert str(source.read("git://repo/blame/main~2/deep/moved.txt").contents[0].meta).count("NEXT") == 0


def test_odd_names_and_contents_are_blamed(made: History) -> None:
    """Names byte for byte; git finds no lines in texts in UTF-16."""
    with Published(made.path) as source:
        for number, name in enumerate(NAMES):
            part = "".join([f"%{byte:02X}" for byte in name])
            (line,) = blamed(source, f"git://repo/blame/side0/names/{part}")
            assert line[1:] == (1, f"now called {number}")
            assert "(in " not in source.first_text(f"git://repo/blame/side0/names/{part}")
        empty = next(
            number for number in range(3) if not made.output("cat-file", "blob", f"side0:texts/{number:02}.txt")
        )
        assert source.first_text(f"git://repo/blame/side0/texts/{empty:02}.txt") == "The file is empty.\n"


def test_blaming_anything_but_a_text_file_says_why_not(made: History) -> None:
    """Folders, binary files, links and submodules; invalid windows."""
    with Published(made.path) as source:
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


def test_the_version_changes_with_the_file_and_not_with_others(history: Work) -> None:
    """Watchers of a blame get no other commits."""
    with Published(history.path) as source:
        uri = "git://repo/blame/main/hull.txt"
        first = source.version(uri)
        history.commit("Something else", other__txt="x\n")
        assert source.version(uri) == first
        history.commit("Deepen", hull__txt="six\nfathoms\n")
        assert source.version(uri) != first
        assert source.read(uri).ttl_ms != source.read(f"git://repo/blame/{history.head}/hull.txt").ttl_ms


def test_a_shallow_clone_reports_its_end(history: Work, tmp_path: Path) -> None:
    """The oldest commit may not be the one that wrote a line."""
    history.git("clone", "-q", "--bare", "--depth=1", history.path.as_uri(), str(tmp_path / "shallow"))
    with Published(tmp_path / "shallow") as source:
        assert "or earlier, where this shallow clone ends" in source.first_text("git://repo/blame/main/hull.txt")
    with Published(history.path) as source:
        assert "or earlier" not in source.first_text("git://repo/blame/main/hull.txt")


def test_blame_and_grep_are_among_the_templates(history: Work) -> None:
    """With completion of their revisions and paths."""
    with Published(history.path) as source:
        templates = {template.uri_template for template in source.templates}
        blame = "git://repo/blame/{rev}/{+path}{?lines}"
        assert {blame, "git://repo/grep/{rev}{?text,path,after}"} <= templates
        assert list(source.complete(blame, "path", "hu", {"rev": "main"})) == ["hull.txt"]


# grep


def found(source: Published, uri: str) -> list[tuple[str, int]]:
    """The path and number of each line, of all windows."""
    lines: list[tuple[str, int]] = []
    for window in windows(source, uri):
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
def test_lines_with_a_text_are_those_that_git_greps(made: History, text: str) -> None:
    """Literally, ignoring case, in all text files."""
    rev = "main~2"
    printed = made.output("grep", "-F", "-I", "-i", "-n", "-z", "-e", text, rev, check=False)
    rows = re.findall(rb"main~2:([^\0]*)\0(\d+)\0[^\n]*\n", printed)
    expected = [(path.decode("utf-8", "surrogateescape"), int(number)) for path, number in rows]
    plain = [row for row in expected if row[0].isprintable()]
    with Published(made.path) as source:
        uri = f"git://repo/grep/{quote(rev)}?text={quote(text, safe='')}"
        if not expected:
            assert source.first_text(uri).startswith("No line")
        else:
            lines = found(source, uri)
            assert len(lines) == len(expected)
            assert [row for row in lines if row in plain] == plain


def test_a_search_can_be_of_a_path(made: History) -> None:
    """A folder or a file of that revision."""
    with Published(made.path) as source:
        assert found(source, "git://repo/grep/main~2?text=part&path=deep") == [
            ("deep/moved.txt", number + 1) for number in range(50)
        ]
        assert source.first_text("git://repo/grep/main~2?text=part&path=names").startswith("No line below names")
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


# What git prints


@given(st.binary(max_size=200), st.booleans())
def test_any_output_is_parsed(data: bytes, header: bool) -> None:
    begin = b"a" * 40 + b" 1 1 1\nfilename x\n" if header else b""
    assert len(parse_blame(begin + data)) <= data.count(b"\t") + 1
    assert len(parse_grep(b"a" * 40 + b":" + data, "a" * 40)) <= data.count(b"\n")


@given(st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name))
def test_paths_in_quotes_are_read_back(name: bytes) -> None:
    written = b'"' + b"".join([b"\\%03o" % byte for byte in name]) + b'"'
    assert unquote_path(written) == name


def test_paths_are_read_as_git_writes_them(made: History) -> None:
    """`core.quotePath`: every kind of escape."""
    written = made.output("ls-tree", "-r", "--name-only", "side0", "names").split(b"\n")[:-1]
    assert sorted(unquote_path(name) for name in written) == sorted(b"names/" + name for name in NAMES)
