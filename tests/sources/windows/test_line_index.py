"""The index of line positions in a large content: it stays small, and follows a content that grows."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.sources.windows import line_index
from wharfinger.sources.windows.line_index import LineIndex, LineIndexes, LineStart, NotReached
from wharfinger.sources.windows.window import BytesContent


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    make_steps_small(monkeypatch)


def make_steps_small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"STEP_BYTES": 32, "PIECE_BYTES": 8, "MAX_COUNTS": 8, "MAX_SAMPLES": 4, "SAMPLE_BYTES": 4}
    for name, value in small.items():
        monkeypatch.setattr(line_index, name, value)


def expected_start(data: bytes, line: int) -> LineStart:
    lines = data.split(b"\n")
    number = len(lines) - (not lines[-1])
    if line > number:
        return LineStart(len(data), number + 1)
    return LineStart(sum(len(each) + 1 for each in lines[: line - 1]), line)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(1, 90), st.binary(max_size=5).map(lambda b: b * 20)), min_size=1, max_size=8),
       st.sampled_from([b"a", b"\n", b"ab\n", b"\r\n"]))  # fmt: skip
def test_lines_are_found_in_growing_content(rounds: list[tuple[int, bytes]], filling: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_steps_small(monkeypatch)
        index = LineIndex()
        data = b""
        for line, more in rounds:
            data += more + filling * 7
            assert index.still_holds(BytesContent(data))
            assert index.find(BytesContent(data), line) == expected_start(data, line)
            assert len(index._counts) <= 9 and len(index._samples) <= 4


def test_the_index_stays_small_and_finds_every_line() -> None:
    data = b"line\n" * 5_000
    index = LineIndex()
    assert index.find(BytesContent(data), 4_999) == LineStart(4_998 * 5, 4_999)
    assert index.step > 32 and len(index._counts) <= 9
    for line in (1, 2, 700, 2_500, 5_000, 5_001, 9_000):
        assert index.find(BytesContent(data), line) == expected_start(data, line)


def test_a_search_ends_at_the_given_position() -> None:
    data = b"x" * 1_000 + b"\n" * 10
    index = LineIndex()
    assert index.find(BytesContent(data), 2, until=100) == LineStart(100, 0)
    assert index.scanned <= 160


def test_a_search_that_times_out_reports_its_position_and_continues_there() -> None:
    data = b"line\n" * 1_000
    index = LineIndex()
    with pytest.raises(NotReached) as caught:
        index.find(BytesContent(data), 900, seconds=-1)
    assert (caught.value.offset, caught.value.line) == (32, 7)
    found = None
    while found is None:
        try:
            found = index.find(BytesContent(data), 900, seconds=0)
        except NotReached as error:
            assert error.line == 1 + data[: error.offset].count(b"\n")
    assert found == expected_start(data, 900)


def test_a_search_ends_in_a_content_that_shrinks_during_the_read() -> None:
    class ShrinkingContent(BytesContent):
        size = 1_000

    assert LineIndex().find(ShrinkingContent(b"ab\n" * 20), 50).offset <= 64


def test_the_index_is_kept_while_the_content_only_grows() -> None:
    indexes = LineIndexes(max_contents=2)
    data = b"line\n" * 100
    index = indexes.of("a", "1", BytesContent(data), "inode")
    index.find(BytesContent(data), 100)
    assert indexes.of("a", "1", BytesContent(data), "inode") is index
    assert indexes.of("a", "2", BytesContent(data + b"more"), "inode") is index
    assert indexes.of("a", "3", BytesContent(b"\n" + data), "inode") is not index
    second = indexes.of("a", "3", BytesContent(data), "inode")
    second.find(BytesContent(data), 100)
    third = indexes.of("a", "4", BytesContent(data), "another")
    assert third is not second
    others = [indexes.of(key, "1", BytesContent(b"")) for key in ("b", "c")]
    assert [indexes.of(key, "1", BytesContent(b"")) for key in ("b", "c")] == others
    assert indexes.of("a", "4", BytesContent(data), "another") is not third


def test_several_threads_find_lines_concurrently() -> None:
    data = b"line\n" * 3_000
    index = LineIndex()
    wrong: list[int] = []

    def find_lines(first: int) -> None:
        for line in range(first, 3_000, 97):
            if index.find(BytesContent(data), line) != expected_start(data, line):
                wrong.append(line)

    threads = [threading.Thread(target=find_lines, args=(first,)) for first in range(2, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
