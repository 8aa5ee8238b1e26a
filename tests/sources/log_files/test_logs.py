"""Logs as resources: windows, filters, positions, safety, documents and watching."""

from __future__ import annotations

import gzip
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.log_files.conftest import append
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import Document, UnusableSource
from wharfinger.sources.log_files import Logs, logs
from wharfinger.sources.log_files.log_text import MAX_SHOWN_LINE_BYTES
from wharfinger.sources.log_files.log_windows import LOG_WINDOW_BYTES
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW_BYTES

APP = "log://boats/app.log"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return a log of ten minutes. Each minute has one entry, and every third entry is an error with a traceback."""
    path = tmp_path / "app.log"
    with path.open("w") as file:
        for minute in range(10):
            file.write(f"2026-11-20T10:{minute:02}:00Z {'ERROR' if minute % 3 == 0 else 'INFO'} line {minute}\n")
            if minute % 3 == 0:
                file.write(f"Traceback (most recent call last):\n  Boat: sank at {minute}\n")
    return path


def text(source: Logs, uri: str) -> str:
    return str(source.read(uri).contents[0].text)


def link(source: Logs, uri: str, name: str = NEXT) -> Any:
    meta = source.read(uri).contents[0].meta
    assert isinstance(meta, dict)
    return meta.get(name)


def numbers(found: str) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in found.splitlines() if " line " in line]


# Published files


def test_only_regular_files_that_match_are_published(tmp_path: Path, app: Path, source: Logs) -> None:
    (tmp_path / "notes.txt").write_text("no")
    (tmp_path / "link.log").symlink_to(app)
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert [resource.uri for resource in source.page(None, 100)[0]] == ["log://boats", APP]
    for name in ("notes.txt", "link.log", "pipe.log", "none.log", "%2e%2e/app.log", "app.log/"):
        began = time.monotonic()
        with pytest.raises(ResourceNotFound):
            source.read(f"log://boats/{name}")
        assert time.monotonic() - began < 20


def test_a_pattern_over_folders_publishes_only_matching_files_and_their_folders(tmp_path: Path) -> None:
    for name in ("web-1/access.log", "web-2/access.log", "web-2/deep/access.log", "db/access.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found = [resource.uri for resource in logs(tmp_path / "web-*/*.log", label="all").page(None, 100)[0]]
    assert found == ["log://all", "log://all/web-1", "log://all/web-1/access.log", "log://all/web-2",
                     "log://all/web-2/access.log"]  # fmt: skip
    deep = [resource.name for resource in logs(tmp_path / "**/*.log", label="all").page(None, 100)[0]]
    assert deep.count("access.log") == 4


@pytest.mark.parametrize("pattern", ["none/*.log", "", "*/../*.log", "a\0/*.log", "*\0.log"])
def test_an_invalid_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(UnusableSource):
        logs(f"{tmp_path}/{pattern}")


def test_an_unknown_timezone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match="UTC"):
        logs(tmp_path / "*.log", timezone="Mars/Olympus")


# Windows


def test_a_log_is_read_from_its_end_with_links_to_earlier_windows(app: Path, source: Logs) -> None:
    app.write_text("".join([f"2026-11-20T10:00:00Z INFO line {number}\n" for number in range(20_000)]))
    found, uri = [], APP
    while uri:
        found = numbers(text(source, uri)) + found
        uri = link(source, uri, PREVIOUS)
    assert found == list(range(20_000))
    assert len(text(source, APP)) <= WINDOW_BYTES


def test_a_window_continues_backwards_in_rotated_files(app: Path, source: Logs) -> None:
    app.rename(f"{app}.1")
    Path(f"{app}.2.gz").write_bytes(gzip.compress(b"2026-11-20T09:00:00Z INFO line -1\n"))
    app.write_text("2026-11-20T11:00:00Z INFO line 10\n")
    before = link(source, APP, PREVIOUS)
    assert numbers(text(source, before)) == list(range(10))
    oldest = link(source, before, PREVIOUS)
    assert numbers(text(source, oldest)) == [-1]
    assert link(source, oldest, PREVIOUS) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tail=4", [8, 9]),
        ("lines=1-3", [0]),
        ("lines=4-5", [1, 2]),
        ("since=2026-11-20T10:07:30Z", [8, 9]),
        ("since=2026-11-20T12:07:00%2B02:00", [7, 8, 9]),
        ("since=2026-11-20T10:07:00", [7, 8, 9]),
        ("until=2026-11-20T10:02:00Z", [0, 1]),
        ("since=2026-11-20T10:02:00Z&until=2026-11-20T10:05:00Z", [2, 3, 4]),
        ("since=2026-11-20T10:02:00Z&level=error", [3, 6, 9]),
        ("level=error", [0, 3, 6, 9]),
        ("level=error&tail=4", [9]),
        ("text=SANK%20at%206", [6]),
        ("level=error&text=line%203", [3]),
        ("level=critical", []),
        ("tail=3&until=2026-11-20T10:03:00Z", [1, 2]),
    ],
)
def test_a_window_has_the_requested_lines(app: Path, source: Logs, query: str, expected: list[int]) -> None:
    assert numbers(text(source, f"{APP}?{query}")) == expected


def test_lines_without_a_time_belong_to_the_entry_before_them(app: Path, source: Logs) -> None:
    found = text(source, f"{APP}?level=error&since=2026-11-20T10:06:00Z&until=2026-11-20T10:07:00Z")
    assert found.splitlines()[1:] == ["Traceback (most recent call last):", "  Boat: sank at 6"]


def test_lines_appended_to_an_entry_keep_its_level(app: Path, source: Logs) -> None:
    append(app, b"2026-11-20T10:20:00Z ERROR line 20\n")
    following = link(source, f"{APP}?level=error")
    append(app, b"Traceback\n  late\n2026-11-20T10:21:00Z INFO line 21\nnot an error\n")
    assert text(source, following) == "Traceback\n  late\n"


def test_since_and_until_may_be_relative_to_now(app: Path, source: Logs) -> None:
    moments = [time.time() - 60 * minutes for minutes in (50, 20, 5)]
    app.write_text("".join([f"{moment:.3f} line {number}\n" for number, moment in enumerate(moments)]))
    assert numbers(text(source, f"{APP}?since=30m")) == [1, 2]
    assert numbers(text(source, f"{APP}?since=30m&until=10m")) == [1]


def test_a_time_window_spans_rotated_files(app: Path, source: Logs) -> None:
    Path(f"{app}.1.gz").write_bytes(gzip.compress(app.read_bytes()))
    app.write_text("2026-11-20T10:10:00Z INFO line 10\n")
    assert numbers(text(source, f"{APP}?since=2026-11-20T10:08:00Z")) == [8, 9, 10]


def test_files_that_a_date_and_a_number_rotate_are_read_in_the_order_of_the_numbers(app: Path, source: Logs) -> None:
    for number in (2, 9, 10, 11):
        Path(f"{app}.2026-11-20.{number}").write_text(f"2026-11-20T10:00:00Z INFO line {number}\n")
    Path(f"{app}.2026-11-19.12").write_text("2026-11-19T10:00:00Z INFO line 1\n")
    app.write_text("2026-11-20T10:00:00Z INFO line 12\n")
    assert numbers(text(source, f"{APP}?since=2026-11-19T00:00:00Z")) == [1, 2, 9, 10, 11, 12]


def test_a_rotated_file_that_is_being_compressed_is_read_once(app: Path, source: Logs) -> None:
    """A bug: while gzip runs, both files exist, and the lines of both were shown."""
    uri = link(source, f"{APP}?tail=1")
    append(app, b"2026-11-20T10:10:00Z INFO line 10\n")
    app.rename(f"{app}.1")
    Path(f"{app}.1.gz").write_bytes(gzip.compress(Path(f"{app}.1").read_bytes()))
    app.write_text("2026-11-20T10:11:00Z INFO line 11\n")
    assert numbers(text(source, f"{APP}?since=2026-11-20T10:00:00Z")) == list(range(12))
    assert numbers(text(source, uri)) == [10, 11]
    assert link(source, link(source, APP, PREVIOUS), PREVIOUS) is None


def test_unordered_times_are_scanned_and_reported(app: Path, source: Logs) -> None:
    lines = [f"2026-11-{10 + number % 9}T10:00:00Z INFO line {number}\n" for number in range(20_000)]
    app.write_text("".join(lines))
    result = source.read(f"{APP}?since=2026-11-18T00:00:00Z&text=line%2017")
    assert set(numbers(str(result.contents[0].text))) == {
        number for number in range(20_000) if number % 9 == 8 and str(number).startswith("17")
    }
    assert "not in order" in str(result.contents[1].text)


def test_an_entry_after_the_end_time_does_not_end_a_window_of_unordered_times(app: Path, source: Logs) -> None:
    """A bug: a window with `since` and `until` ended at the first entry after the end time."""
    lines = [f"2026-11-{10 + number % 9}T10:00:00Z INFO line {number}\n" for number in range(200)]
    app.write_text("".join(lines))
    window = "since=2026-11-10T00:00:00Z&until=2026-11-12T00:00:00Z"
    assert numbers(text(source, f"{APP}?{window}")) == [number for number in range(200) if number % 9 < 2]


def test_a_time_window_of_a_log_without_times_suggests_tail(app: Path, source: Logs) -> None:
    app.write_text("no time\nat all\n")
    with pytest.raises(InvalidArgument, match="tail="):
        source.read(f"{APP}?since=15m")
    assert text(source, f"{APP}?text=ALL") == "at all\n"


@pytest.mark.parametrize(
    "query", ["tail=0", "tail=x", "lines=3-1", "lines=999-", "bytes=9999999-", "since=soon", "level=loud", "text=",
              "tail=1&lines=1-2", "nobody=knows", "after=x", "since=1h&until=2h", "lines=1-2&since=1h"],
)  # fmt: skip
def test_an_invalid_window_is_refused(app: Path, source: Logs, query: str) -> None:
    with pytest.raises(InvalidArgument):
        source.read(f"{APP}?{query}")


# Positions


def test_new_lines_are_read_once_across_rotation(app: Path, source: Logs) -> None:
    uri = link(source, APP)
    assert text(source, uri) == ""
    assert link(source, uri) == uri
    append(app, b"a line 10\n")
    app.rename(f"{app}.1")
    app.write_text("a line 11\na line 1")
    assert numbers(text(source, uri)) == [10, 11]
    uri = link(source, uri)
    append(app, b"2\n")
    assert numbers(text(source, uri)) == [12]
    app.unlink()
    assert text(source, link(source, uri)) == ""


def test_a_line_that_is_finished_after_a_filtered_read_is_read_whole(app: Path, source: Logs) -> None:
    """A bug: the next window had only the part that was written later."""
    line = b"2026-11-20T10:30:00Z INFO the crane works again\n"
    append(app, line[:40])
    for query in ("text=works", "text=works&tail=5"):
        uri = link(source, f"{APP}?{query}")
        append(app, line[40:])
        assert text(source, uri) == line.decode()
        append(app, line[:40])


def test_a_position_in_a_replaced_log_is_reported_as_gone(app: Path, source: Logs) -> None:
    uri = link(source, APP)
    app.unlink()
    app.write_text("all is new line 1\n")
    result = source.read(uri)
    assert result.contents[0].text == "all is new line 1\n"
    assert "gone" in str(result.contents[1].text)


def log_line(moment: bytes, word: bytes, rest: bytes) -> bytes:
    return b"%s%s %s" % (moment, word, rest.replace(b"\n", b""))


lines_of_logs = st.lists(
    st.builds(
        log_line,
        st.sampled_from([b"", b"2026-11-20T10:00:00Z ", b"  "]),
        st.sampled_from([b"INFO", b"ERROR", b"boat", b""]),
        st.binary(max_size=30),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(lines_of_logs, min_size=1, max_size=6), rotate=st.lists(st.sampled_from("rct-"), max_size=6))
def test_positions_read_each_line_once_across_rotation(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[bytes]], rotate: list[str]
) -> None:
    """After each part, the log is renamed (`r`), copied and truncated (`c`), not read (`t`), or only read (`-`)."""
    directory = tmp_path_factory.mktemp("logs")
    path = directory / "app.log"
    path.touch()
    source = logs(path, label="boats", redact=False)
    uri = link(source, APP)
    found: list[str] = []
    number = 0
    for at, part in enumerate(parts):
        lines = [b"%d %s" % (number + index, line) for index, line in enumerate(part)]
        number += len(lines)
        append(path, b"".join([line + b"\n" for line in lines]))
        action = rotate[at] if at < len(rotate) else "-"
        if action in "rc" and path.stat().st_size:
            for age in range(9, 0, -1):
                if Path(f"{path}.{age}").exists():
                    os.rename(f"{path}.{age}", f"{path}.{age + 1}")
            if action == "r":
                path.rename(f"{path}.1")
                path.touch()
            else:
                Path(f"{path}.1").write_bytes(path.read_bytes())
                os.truncate(path, 0)
        if action != "t":
            found += text(source, uri).split("\n")[:-1]
            uri = link(source, uri)
    found += text(source, uri).split("\n")[:-1]
    assert [int(line.split(" ")[0]) for line in found] == list(range(number))


@settings(max_examples=60, deadline=None)
@given(lines=lines_of_logs, size=st.integers(1, 400), kind=st.sampled_from(["lines", "bytes"]))
def test_windows_of_lines_and_bytes_have_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], size: int, kind: str
) -> None:
    path = tmp_path_factory.mktemp("logs") / "app.log"
    plain = [line.decode("ascii", "ignore").encode() for line in lines]
    path.write_bytes(b"".join([line + b"\n" for line in plain]))
    source = logs(path, label="boats", redact=False)
    if not path.stat().st_size:
        return
    uri = f"{APP}?{kind}={'1' if kind == 'lines' else '0'}-{size}"
    joined = ""
    while uri:
        joined += text(source, uri)
        uri = link(source, uri)
    assert joined == text(source, f"{APP}?bytes=0-{path.stat().st_size}")


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.integers(0, 3_000), min_size=1, max_size=300).map(sorted),
    cuts=st.lists(st.integers(1, 2_999), max_size=4, unique=True).map(sorted),
    continuation_lines=st.integers(0, 3),
    wide=st.booleans(),
)
def test_time_windows_have_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], cuts: list[int], continuation_lines: int, wide: bool
) -> None:
    path = tmp_path_factory.mktemp("logs") / "app.log"
    filling = ("x" * 2_000 if wide else "") + "\n  more" * continuation_lines
    entries = [f"{1_795_000_000 + second} line {number}{filling}\n" for number, second in enumerate(seconds)]
    older = len(entries) // 2
    Path(f"{path}.1").write_text("".join(entries[:older]))
    path.write_text("".join(entries[older:]))
    source = logs(path, label="boats")
    joined = ""
    for begin, end in zip([0, *cuts], [*cuts, 3_001], strict=True):
        uri = f"{APP}?since={1_795_000_000 + begin}&until={1_795_000_000 + end}"
        known: set[str] = set()
        while uri and uri not in known:
            known.add(uri)
            joined += text(source, uri)
            uri = link(source, uri)
    assert joined == "".join(entries)


def test_lines_are_counted_for_each_of_several_logs_with_one_name(tmp_path: Path) -> None:
    """A bug: logs of the same name, size and time of change shared their count of lines."""
    source = logs(tmp_path / "**/*.log", label="boats")
    for folder, line in (("a", "x\n"), ("b", "x" * 15 + "\n")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "app.log"
        path.write_text(line * ((2 << 20) // len(line)))
        os.utime(path, ns=(0, 0))
        assert text(source, f"log://boats/{folder}/app.log?lines=100000-100000") == line


# Safety


def test_a_line_of_100_mb_is_cut_and_marked(app: Path, source: Logs) -> None:
    with app.open("ab") as file:
        file.write(b"2026-11-20T10:20:00Z INFO ")
        file.truncate(100 << 20)
        file.seek(0, 2)
        file.write(b"x" * 100 + b"\n2026-11-20T10:30:00Z INFO line 99\n")
    for query in ("", "?tail=1", "?tail=2", "?since=2026-11-20T10:25:00Z", "?lines=1-20", "?level=info"):
        began = time.thread_time()
        found = text(source, APP + query)
        assert len(found) < 1 << 20, query
        assert time.thread_time() - began < 5
    assert numbers(text(source, f"{APP}?since=2026-11-20T10:25:00Z")) == [99]
    app.write_bytes(b"2026-11-20T10:20:00Z INFO " + b"y" * 100_000 + b"\n")
    assert text(source, APP).endswith("bytes more in this line]\n")


def test_control_characters_are_escaped(app: Path, source: Logs) -> None:
    app.write_bytes(b"\x1b[31mred\x07 \xff \xe2\x80\xae\r\nrow\tx\rback\n" + b"\0" * 5000 + b"end\n")
    assert text(source, APP) == "\\x1b[31mred\\x07 \\xff \\u202e\r\nrow\tx\\rback\n[5000 NUL bytes]end\n"


def test_a_compressed_log_is_read_up_to_a_limit(tmp_path: Path) -> None:
    bomb = gzip.compress(b"0" * 1023 + b"\n") + gzip.compress((b"0" * 1023 + b"\n") * 1024 * 128)
    (tmp_path / "app.log.1.gz").write_bytes(bomb)
    source = logs(tmp_path / "*.gz", label="boats")
    result = source.read(f"{APP}.1.gz?lines=1-1")
    assert result.contents[0].text == "0" * 1023 + "\n"
    assert len(result.contents) == 1  # the answer is complete
    assert "left out" in str(source.read(f"{APP}.1.gz?lines=1-").contents[-1].text)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_compressed_log_that_is_cut_or_damaged_is_read_up_to_there_with_a_remark(
    tmp_path: Path, damaged: bool
) -> None:
    """A bug: a log that was cut had no remark."""
    log = "".join([f"one line {number}\n" for number in range(1_000)])
    data = gzip.compress(log.encode())
    half = len(data) // 2
    (tmp_path / "app.log.1.gz").write_bytes(data[:half] + (b"\xff" * half if damaged else b""))
    result = logs(tmp_path / "*.gz", label="boats").read(f"{APP}.1.gz?lines=1-")
    assert str(result.contents[0].text).startswith(log[:2_000])
    assert "what is after 64 MiB, or damaged, is left out" in str(result.contents[-1].text)


def test_a_complete_compressed_log_has_no_remark(tmp_path: Path) -> None:
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(b"one line 1\n" * 100))
    result = logs(tmp_path / "*.gz", label="boats").read(f"{APP}.1.gz?lines=1-")
    assert len(numbers(str(result.contents[0].text))) == 100
    assert len(result.contents) == 1


def test_empty_parts_of_a_compressed_log_are_read_up_to_a_limit(tmp_path: Path) -> None:
    """They inflate to nothing, so the limit of inflated bytes is never reached."""
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(b"one line 1\n") + gzip.compress(b"") * 1_000_000)
    began = time.process_time()
    source = logs(tmp_path / "*.gz", label="boats")
    assert "left out" in str(source.read(f"{APP}.1.gz?lines=1-").contents[-1].text)
    assert time.process_time() - began < 5


def test_a_compressed_log_of_several_parts_is_read_in_windows(app: Path, source: Logs) -> None:
    """A bug: the log was reported as gone after the first window, because its length was that of its last part."""
    lines = [b"2026-11-20T09:00:00Z INFO line %d\n" % number for number in range(3_000)]
    parts = [gzip.compress(b"".join(part)) for part in (lines[:2_990], lines[2_990:])]
    Path(f"{app}.1.gz").write_bytes(b"".join(parts))
    found, uri = "", f"{APP}?since=2026-11-20T09:00:00Z"
    while window := text(source, uri):
        found += window
        uri = link(source, uri)
    assert found == b"".join(lines).decode() + app.read_text()


def test_links_fifos_and_folders_with_names_of_rotated_logs_are_ignored(
    tmp_path: Path, app: Path, source: Logs
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("2026-11-20T09:00:00Z INFO line 99\n")
    Path(f"{app}.1").symlink_to(outside)
    os.mkfifo(f"{app}.2")
    Path(f"{app}.3").mkdir()
    assert link(source, APP, PREVIOUS) is None
    assert numbers(text(source, f"{APP}?since=2026-11-20T08:00:00Z")) == list(range(10))


def test_a_log_deleted_during_a_read_is_read_or_not_found(app: Path, source: Logs) -> None:
    content = app.read_bytes()
    ended = threading.Event()

    def delete_and_rewrite() -> None:
        while not ended.is_set():
            app.unlink()
            app.write_bytes(content)

    thread = threading.Thread(target=delete_and_rewrite)
    thread.start()
    answers: set[str] = set()
    try:
        deadline = time.monotonic() + 20
        queries = ("", "?tail=100", "?since=2026-11-20T10:00:00Z", "?lines=1-100")
        for number, query in enumerate(itertools.cycle(queries)):
            if (number >= 400 and content.decode() in answers) or time.monotonic() > deadline:
                break
            try:
                answers.add(text(source, APP + query))
            except (ResourceNotFound, InvalidArgument) as error:
                answers.add(type(error).__name__)
    finally:
        ended.set()
        thread.join()
    assert content.decode() in answers
    assert answers <= {content.decode(), "", "ResourceNotFound", "InvalidArgument"}


SECRET = "hunter2hunter2hunter2"


@pytest.mark.parametrize(
    "line",
    [
        f"password={SECRET}",
        f'{{"password": "{SECRET}", "user": "ann"}}',
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"postgres://ann:{SECRET}@db/boats",
        f"aws_secret_access_key = {SECRET}",
        f"api_key: '{SECRET} {SECRET}'",
        f"Cookie: a={SECRET}; b={SECRET}",
        f"ghp_{SECRET}",
        f"GET /?token={SECRET}&x=1",
        f'\\"client_secret\\":\\"{SECRET}\\"',
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_a_secret_is_not_shown_in_any_window(tmp_path: Path, app: Path, source: Logs, line: str) -> None:
    app.write_text(f"2026-11-20T10:00:00Z INFO before\n{line}\nafter\n")
    found = text(source, APP)
    assert "hunter2" not in found
    assert "[redacted]" in found
    assert found.startswith("2026-11-20T10:00:00Z INFO before\n")
    assert found.endswith("\nafter\n")
    size = app.stat().st_size
    for begin in range(0, size, 7):
        assert "hunter2" not in text(source, f"{APP}?bytes={begin}-{begin + 6}")
        assert "hunter" not in text(source, f"{APP}?bytes={begin}-")
    assert text(source, f"{APP}?text=hunter2") == ""
    assert "hunter2" not in "".join(source.text(APP))
    assert not any("hunter" in str(hit.snippet) for hit in search_documents(source, "hunter2", 10))
    assert "hunter2" in text(logs(tmp_path / "*.log", label="boats", redact=False), APP)


@pytest.mark.parametrize("line", [f"postgres://ann:{SECRET}@db/boats", f"Bearer {SECRET}", f"see ghp_{SECRET}{SECRET}"])
def test_no_part_of_a_secret_is_shown_where_a_long_line_is_cut(app: Path, source: Logs, line: str) -> None:
    """A bug: the password of a URL was shown if the line was cut before the `@`."""
    for shown in range(len(line)):
        app.write_text("x" * (MAX_SHOWN_LINE_BYTES - 1 - shown) + f" {line} {'y' * 100}\n")
        found = text(source, APP)
        assert "hunt" not in found
        assert found.endswith(" bytes more in this line]\n")


# Documents


def test_the_window_of_a_document_has_its_text(app: Path, source: Logs) -> None:
    app.write_text("".join([f"2026-11-20T10:00:00Z INFO line {number}\n" for number in range(4_000)]))
    for document in source.documents(None, 100)[0]:
        assert "".join(source.text(document.uri)) in text(source, document.uri)


def test_a_new_line_changes_only_the_newest_document_of_a_large_log(app: Path, source: Logs) -> None:
    app.write_text("".join([f"2026-11-20T10:00:00Z INFO line {number}\n" for number in range(20_000)]))
    before, _ = source.documents(None, 100)
    assert len(before) == -(-app.stat().st_size // LOG_WINDOW_BYTES)
    assert all(len(text(source, document.uri)) < 40_000 for document in before)
    append(app, b"2026-11-20T10:00:00Z INFO line 20000\n")
    after, _ = source.documents(None, 100)
    assert [document.version for document in before][1:] == [document.version for document in after][1:]
    assert before[0].version != after[0].version
    assert before[0].uri == after[0].uri
    assert "line 20000\n" in "".join(source.text(after[0].uri))
    paged: list[Document] = []
    key = None
    while True:
        page, key = source.documents(key, 1)
        paged += page
        if key is None:
            break
    assert paged == after
    joined = "".join(["".join(source.text(document.uri)) for document in after])
    assert "line 12345\n" in joined


# Watching


def test_changes_are_reported_for_open_time_windows_only(app: Path, source: Logs, recorder: Any) -> None:
    past = f"{APP}?until=2026-11-20T10:02:00Z"
    tail = f"{APP}?tail=2"
    errors = f"{APP}?level=error"
    for uri in (past, tail, errors):
        source.stat(uri)
        source.watch(uri, recorder)
    time.sleep(0.3)  # the write before the watch may be reported until then
    recorder.changes.clear()
    for number in range(50):
        append(app, b"2026-11-20T10:30:00Z INFO line %d\n" % number)
    recorder.wait_for(tail)
    append(app, b"2026-11-20T10:31:00Z ERROR line 50\n")
    recorder.wait_for(errors)
    assert past not in recorder.changes
    app.rename(f"{app}.1")
    app.write_text("2026-11-20T11:00:00Z INFO line 51\n")
    recorder.wait_for(tail)


def test_a_thousand_lines_are_read_across_rotation_with_few_notifications(app: Path, source: Logs) -> None:
    app.write_bytes(b"")
    uri = link(source, APP)
    changes: list[str | None] = []
    source.watch(APP, changes.append)
    found: list[int] = []
    for number in range(1_000):
        append(app, b"line %d\n" % number)
        if number % 250 == 249:
            app.rename(f"{app}.{4 - number // 250}")
            app.touch()
    deadline = time.monotonic() + 40
    while len(found) < 1_000 and time.monotonic() < deadline:
        seen = len(changes)
        found += [int(line.split()[1]) for line in text(source, uri).splitlines()]
        uri = link(source, uri)
        while len(changes) == seen and len(found) < 1_000 and time.monotonic() < deadline:
            time.sleep(0.01)
    while not changes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == list(range(1_000))
    assert 1 <= len(changes) < 200


def test_paths_and_levels_are_completed(app: Path, source: Logs) -> None:
    whole, filtered = [template.uri_template for template in source.templates]
    assert source.complete(whole, "path", "ap", {}) == ["app.log"]
    assert source.complete(filtered, "level", "e", {}) == ["error"]
    assert "1 file" in source.describe()


def test_the_title_of_a_document_can_be_sent_although_its_name_is_not_utf_8(tmp_path: Path, source: Logs) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.log")).write_text("a line\n")
    [document] = source.documents(None, 10)[0]
    assert document.title == r"caf\xe9.log"
