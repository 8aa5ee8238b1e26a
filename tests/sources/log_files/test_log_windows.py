"""Windows of logs have each entry once, and end between entries."""

from __future__ import annotations

import logging.handlers
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wharfinger.sources.log_files import Logs, log_windows
from wharfinger.sources.log_files.log_query import read_query
from wharfinger.sources.log_files.rotated_files import InflatedLogs, LogMoved, open_log
from wharfinger.sources.windows.window import NEXT, PREVIOUS

APP = "log://boats/app.log"
MAX_WINDOW_CHARACTERS = 40_000  # about 10,000 tokens


def read_windows(source: Logs, uri: str, direction: str) -> list[str]:
    """Return the texts of all windows in one direction. The oldest is first."""
    found: list[str] = []
    next_uri: object = uri
    for _ in range(500):
        content = source.read(str(next_uri)).contents[0]
        found = [*found, str(content.text)] if direction == NEXT else [str(content.text), *found]
        next_uri = dict(content.meta or {}).get(direction)
        if not next_uri or (direction == NEXT and not content.text):
            return found
    raise AssertionError("the windows do not end")


def remarks_of(source: Logs, uri: str) -> str:
    """Return the remarks of a window."""
    return " ".join([str(content.text) for content in source.read(uri).contents[1:]])


def entry(number: int) -> str:
    """Return an entry. Every seventh entry is an error with a stack trace."""
    moment = f"2026-11-{20 + number // 86400}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    if number % 7:
        return f"{moment} INFO line {number}\n"
    return f"{moment} ERROR line {number}\nTraceback (most recent call last):\n  File x\nCraneError: {number}\n"


ENTRIES = [entry(number) for number in range(9_000)]


def test_windows_have_the_whole_log_and_end_between_entries(tmp_path: Path, source: Logs) -> None:
    """The log is read backwards from its end, and forwards from its beginning."""
    (tmp_path / "app.log").write_text("".join(ENTRIES))
    for uri, direction in ((APP, PREVIOUS), (f"{APP}?since=2026-11-20T00:00:00Z", NEXT)):
        windows = [window for window in read_windows(source, uri, direction) if window]
        assert "".join(windows) == "".join(ENTRIES)
        assert all(window.startswith("2026-") for window in windows)
        assert all(len(window) <= MAX_WINDOW_CHARACTERS for window in windows)
        assert len(windows) > 5


FILTERS: dict[str, Callable[[str], bool]] = {
    "level=error": lambda text: " ERROR " in text,
    "level=info": lambda text: True,
    "text=craneerror": lambda text: "CraneError" in text,
    "text=line%2077": lambda text: "line 77" in text,
    "level=error&text=5": lambda text: " ERROR " in text and "5" in text,
}


@pytest.mark.parametrize("query", FILTERS)
def test_filtered_windows_have_each_matching_entry_once(
    query: str, tmp_path: Path, source: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read scans only a part of the log."""
    monkeypatch.setattr(log_windows, "MAX_SCANNED_BYTES", 100_000)
    monkeypatch.setattr(log_windows, "SCAN_BYTES", 10_000)
    (tmp_path / "app.log").write_text("".join(ENTRIES))
    expected = "".join([entry for entry in ENTRIES if FILTERS[query](entry)])
    assert "".join(read_windows(source, f"{APP}?{query}", PREVIOUS)) == expected
    forwards: list[str] = []
    next_uri: object = f"{APP}?{query}&since=2026-11-20T00:00:00Z"
    for _ in range(100):
        content = source.read(str(next_uri)).contents[0]
        forwards.append(str(content.text))
        if next_uri == dict(content.meta or {})[NEXT]:
            break
        next_uri = dict(content.meta or {})[NEXT]
    assert "".join(forwards) == expected


@pytest.mark.parametrize("rotation", ["renamed", "copied and cut"])
def test_every_entry_is_shown_once_while_the_log_is_rotated(rotation: str, tmp_path: Path, source: Logs) -> None:
    """The log is rotated by Python's handler, and as by logrotate with `copytruncate`."""
    path = tmp_path / "app.log"
    path.touch()
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=50_000 if rotation == "renamed" else 0, backupCount=100
    )
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.terminator = ""
    next_uri: object = dict(source.read(APP).contents[0].meta or {})[NEXT]
    found: list[str] = []
    for number, text in enumerate(ENTRIES[:4_000]):
        handler.emit(logging.LogRecord("x", 20, "", 0, text, None, None))
        if rotation != "renamed" and number % 700 == 699:
            for age in range(9, 0, -1):
                if (older := path.with_name(f"app.log.{age}")).exists():
                    older.rename(path.with_name(f"app.log.{age + 1}"))
            shutil.copy2(path, path.with_name("app.log.1"))
            os.truncate(path, 0)
        if number % 500 == 450:
            for _ in range(100):
                result = source.read(str(next_uri))
                assert "gone" not in " ".join([str(content.text) for content in result.contents[1:]])
                found.append(str(result.contents[0].text))
                next_uri = dict(result.contents[0].meta or {})[NEXT]
                if not result.contents[0].text:
                    break
    handler.close()
    for _ in range(100):
        content = source.read(str(next_uri)).contents[0]
        found.append(str(content.text))
        next_uri = dict(content.meta or {})[NEXT]
        if not content.text:
            break
    assert "".join(found) == "".join(ENTRIES[:4_000])
    assert "".join(read_windows(source, APP, PREVIOUS)) == "".join(ENTRIES[:4_000])


lines = st.lists(
    st.sampled_from(["INFO a", "ERROR b", "WARNING c", "plain a"]).flatmap(
        lambda head: st.lists(st.sampled_from(["  at a", "Caused by: b", "", "x b"]), max_size=3).map(
            lambda rest: [head, *rest]
        )
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=lines, query=st.sampled_from(["level=error", "level=warning", "text=b", "text=a&level=info"]))
def test_filters_return_the_matching_entries_of_any_log(
    shape: list[list[str]], query: str, tmp_path: Path, source: Logs
) -> None:
    """The entries have several kinds of continuation lines."""
    entries = ["\n".join([f"2026-11-20T10:00:{n:02}Z {head}", *rest]) + "\n" for n, (head, *rest) in enumerate(shape)]
    (tmp_path / "app.log").write_text("".join(entries))
    ranks = {"ERROR": 3, "WARNING": 2, "INFO": 1, "plain": 0}
    expected = entries
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name == "text":
            expected = [entry for entry in expected if value in entry.lower()]
        else:
            expected = [entry for entry in expected if ranks[entry.split()[1]] >= ranks[value.upper()]]
    assert "".join(read_windows(source, f"{APP}?{query}", PREVIOUS)) == "".join(expected)
    assert "".join(read_windows(source, f"{APP}?{query}&tail=3", PREVIOUS)) == "".join(expected)


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
@pytest.mark.parametrize("word", ["Straße", "STRASSE", "straße", "as", "Ærø", "ÆRØ"])
def test_a_text_is_found_in_any_case(tmp_path: Path, source: Logs, word: str, encoding: str) -> None:
    """`ß` and `SS` are the same letters in different cases."""
    (tmp_path / "app.log").write_text("info: nothing\ninfo: Straße auf Ærø\n", encoding)
    assert source.read(f"{APP}?text={word}").contents[0].text == "info: Straße auf Ærø\n"


@pytest.mark.parametrize("word", ["crane", "Ærø"])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "cp1252"])
def test_4_mib_are_searched_for_a_text_within_seconds(tmp_path: Path, source: Logs, word: str, encoding: str) -> None:
    """A bug: entries were converted to text one by one for a word with other letters than those of English."""
    boat = "boat" if encoding == "ascii" else "båt"
    entries = [f"2026-11-20T10:00:00Z INFO {boat} {n} is in\n" for n in range(100_000)]
    (tmp_path / "app.log").write_text("".join(entries), encoding)
    began = time.thread_time()
    assert source.read(f"{APP}?text={word}").contents[0].text == ""
    assert time.thread_time() - began < 20  # on a slow machine it takes 6 s


def test_a_stack_trace_in_a_log_without_times_belongs_to_the_line_before_it(tmp_path: Path, source: Logs) -> None:
    """The traces are of Python and Java."""
    trace = (
        "error: the crane stands still\nTraceback (most recent call last):\n  File x\nCraneError: no pressure\n"
        "During handling of the above exception, another occurred:\n  File y\nbridge.Exception\n"
    )
    java = "error: bridge\njava.lang.X\n\tat a.b(C.java:1)\nCaused by: y\n\t... 3 more\n"
    (tmp_path / "app.log").write_text(f"info: one\n{trace}info: two\n{java}info: three\n")
    assert source.read(f"{APP}?level=error").contents[0].text == trace + "error: bridge\n"
    assert source.read(f"{APP}?text=pressure").contents[0].text == trace
    assert (
        source.read(f"{APP}?text=%20more").contents[0].text
        == "java.lang.X\n\tat a.b(C.java:1)\nCaused by: y\n\t... 3 more\n"
    )


def test_an_access_log_is_filtered_by_status(tmp_path: Path, source: Logs) -> None:
    """5xx are errors, and 4xx are warnings."""
    statuses = (200, 404, 500, 301, 503)
    rows = [f'1.2.3.4 - - [20/Nov/2026:10:00:0{n} +0000] "GET /{n} HTTP/1.1" {s} 1\n' for n, s in enumerate(statuses)]
    (tmp_path / "app.log").write_text("".join(rows))
    assert source.read(f"{APP}?level=error").contents[0].text == rows[2] + rows[4]
    assert source.read(f"{APP}?level=warning").contents[0].text == rows[1] + rows[2] + rows[4]


def test_an_empty_window_has_a_remark(tmp_path: Path, source: Logs) -> None:
    """The remark says which part was scanned, why nothing matched, and what to try."""
    path = tmp_path / "app.log"
    path.write_text("")
    assert "app.log is empty" in remarks_of(source, APP)
    path.write_text("".join([f"2026-11-20T10:0{n}:00Z the boat {n} is in\n" for n in range(2, 8)]))
    text = remarks_of(source, f"{APP}?level=error")
    assert "Nothing matched level=error in the last 228 B (2026-11-20T10:02:00Z to 2026-11-20T10:07:00Z)" in text
    assert "these lines carry no level. Try text=error" in text
    assert "Nothing matched text=crane" in remarks_of(source, f"{APP}?text=crane")
    assert "its last entry is from 2026-11-20T10:07:00Z" in remarks_of(source, f"{APP}?since=2026-11-20T11:00:00Z")
    assert "2026-11-20T10:07:00Z" in remarks_of(source, f"{APP}?since=2026-11-20T11:00:00Z&level=error")
    assert "Nothing" in remarks_of(source, f"{APP}?until=2026-11-20T09:00:00Z")
    next_uri = str(dict(source.read(APP).contents[0].meta or {})[NEXT])
    assert "Nothing was written after this." in remarks_of(source, next_uri)
    path.write_text("".join([f"2026-11-20T10:0{n}:00Z {'INFO' if n % 2 else 'WARNING'} boat {n}\n" for n in range(9)]))
    assert "the levels of these lines are info, warning. Try level=warning" in remarks_of(source, f"{APP}?level=error")


def test_the_supported_parameters_are_described(tmp_path: Path, source: Logs) -> None:
    """The directory and the first window of a log describe them."""
    (tmp_path / "app.log").write_text(ENTRIES[0])
    assert "?level=error" in str(source.read("log://boats").contents[0].text)
    assert "?level=error" in remarks_of(source, APP)


def test_an_entry_that_is_larger_than_a_window_is_read_in_parts(tmp_path: Path, source: Logs) -> None:
    """The parts have the whole entry, and no window is too long."""
    large = "2026-11-20T10:00:01Z ERROR large\n" + "".join([f"  detail {n}\n" for n in range(4_000)])
    entries = ["2026-11-20T10:00:00Z ERROR before\n", large, "2026-11-20T10:00:02Z INFO after\n"]
    (tmp_path / "app.log").write_text("".join(entries))
    windows = read_windows(source, APP, PREVIOUS)
    assert "".join(windows) == "".join(entries)
    assert max(map(len, windows)) <= MAX_WINDOW_CHARACTERS
    windows = read_windows(source, f"{APP}?level=error", PREVIOUS)
    assert "".join(windows) == entries[0] + entries[1]
    assert max(map(len, windows)) <= MAX_WINDOW_CHARACTERS
    windows = read_windows(source, f"{APP}?level=error&since=2026-11-20T10:00:00Z", NEXT)
    assert "".join(windows) == entries[0] + entries[1]


def test_a_log_of_4_mib_without_matches_is_answered_quickly(tmp_path: Path, source: Logs) -> None:
    """The answer links to the window before the scanned part."""
    (tmp_path / "app.log").write_text("2026-11-20T10:00:00Z INFO " + "x" * 80 + "\n")
    with (tmp_path / "app.log").open("a") as file:
        file.write(("2026-11-20T10:00:00Z INFO " + "x" * 80 + "\n") * 60_000)
    began = time.thread_time()
    result = source.read(f"{APP}?level=error")
    assert time.thread_time() - began < 10
    assert result.contents[0].text == ""
    assert "in the last 4.0 MiB" in str(result.contents[1].text)
    assert PREVIOUS in (result.contents[0].meta or {})


def test_since_skips_entries_before_it_after_a_long_entry_without_times(tmp_path: Path, source: Logs) -> None:
    """The entry in the middle has 700 KB, far more than was read at once to find a time."""
    before, after = map(entry, range(160_000)), map(entry, range(160_000, 320_000))
    (tmp_path / "app.log").write_text("".join([*before, "  a row of a long table\n" * 30_000, *after]))
    content = source.read(f"{APP}?since=2026-11-23T16:00:00Z").contents[0]
    assert str(content.text).startswith("2026-11-23T16:00:00Z")


def test_a_log_that_is_truncated_while_entries_are_searched_is_read_again(tmp_path: Path, source: Logs) -> None:
    path = tmp_path / "app.log"
    path.write_text("".join(ENTRIES) * 15)
    assert path.stat().st_size > log_windows.MAX_SCANNED_BYTES
    with open_log(source.files.tree, ("app.log",), InflatedLogs()) as log:
        log.content(0)
        os.truncate(path, 0)
        with pytest.raises(LogMoved):
            source._reader.select(log, read_query({"level": "critical"}, None))


@pytest.mark.parametrize("since", ["1970-01-02T00:00:00Z", "1950-01-01T00:00:00Z", "9999w"])
def test_the_previous_window_of_a_tail_since_long_ago_can_be_read(tmp_path: Path, source: Logs, since: str) -> None:
    (tmp_path / "app.log").write_text("".join(ENTRIES[:20]))
    previous = dict(source.read(f"{APP}?tail=1&since={since}").contents[0].meta or {})[PREVIOUS]
    assert source.read(str(previous)).contents[0].text == ENTRIES[18]


def test_a_text_that_only_secrets_contain_is_searched_in_a_short_time(tmp_path: Path, source: Logs) -> None:
    lines = [f"2026-11-20T10:00:00Z INFO request {number} token=abcdefgh{number}\n" for number in range(4_000)]
    (tmp_path / "app.log").write_text("".join(lines))
    began = time.process_time()
    assert not source.read(f"{APP}?text=abcdefgh").contents[0].text
    assert time.process_time() - began < 2.5
    found = str(source.read(f"{APP}?text=request&tail=4000").contents[0].text)
    assert found.count("token=[redacted]\n") == 4_000
