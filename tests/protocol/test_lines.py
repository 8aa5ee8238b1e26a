"""Line framing: the split of the bytes does not change the lines, and memory is bounded."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.protocol.lines import OVERLONG, LineBuffer


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=12), st.data())
def test_lines_are_the_same_however_the_bytes_are_split(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    buffer = LineBuffer(1000)
    got = [
        line
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for line in buffer.feed(stream[start:end])
    ]
    assert got == [line for line in lines if line]
    assert not buffer.unfinished


def test_single_bytes_are_joined_to_lines() -> None:
    buffer = LineBuffer(10)
    got = [line for n in b"one\ntwo\n\nthree\n" for line in buffer.feed(bytes([n]))]
    assert got == [b"one", b"two", b"three"]


def test_an_overlong_line_is_reported_once_and_the_next_one_is_read() -> None:
    buffer = LineBuffer(4)
    got = [line for chunk in (b"ab", b"cde", b"fgh", b"i\nok\n") for line in buffer.feed(chunk)]
    assert got == [OVERLONG, b"ok"]


def test_an_overlong_line_inside_one_chunk_is_reported() -> None:
    assert LineBuffer(4).feed(b"a\nabcdefgh\nb\n") == [b"a", OVERLONG, b"b"]


def test_a_line_that_ends_over_the_limit_is_reported() -> None:
    buffer = LineBuffer(4)
    assert [*buffer.feed(b"abc"), *buffer.feed(b"de\nok\n")] == [OVERLONG, b"ok"]


def test_an_endless_line_is_not_kept_in_memory() -> None:
    buffer = LineBuffer(1024)
    for _ in range(1000):
        buffer.feed(b"x" * 1000)
    assert sum(map(len, buffer._chunks)) <= 1024
    assert buffer.unfinished


def test_a_line_in_many_chunks_is_joined_once() -> None:
    """Joining at each chunk would take quadratic time."""
    buffer = LineBuffer(1 << 30)
    for _ in range(1000):
        buffer.feed(b"x" * 1000)
    assert len(buffer._chunks) == 1000
    assert [len(line) for line in buffer.feed(b"\n")] == [1_000_000]
    assert not buffer._chunks


def test_an_unfinished_line_in_tiny_chunks_takes_little_more_memory_than_its_length() -> None:
    """A bug: chunks of two bytes took twenty times their length."""
    buffer = LineBuffer(1 << 20)
    tracemalloc.start()
    try:
        for number in range(100_000):
            buffer.feed(b"%02d" % (number % 100))
        assert tracemalloc.get_traced_memory()[1] < 600_000
    finally:
        tracemalloc.stop()
    (line,) = buffer.feed(b"\n")
    assert line == b"".join(b"%02d" % (number % 100) for number in range(100_000))


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"abcd\n"], [b"abcd"]),
        ([b"abcde\n"], [OVERLONG]),
        ([b"abcd", b"\n"], [b"abcd"]),
        ([b"abcde", b"\n"], [OVERLONG]),
        ([b"ab", b"cd\n"], [b"abcd"]),
        ([b"ab", b"cde\n"], [OVERLONG]),
        ([b"ab", b"cd", b"\n"], [b"abcd"]),
        ([b"ab", b"cd", b"e", b"\n"], [OVERLONG]),
        ([b"a\nabcd\nabcde\nb\n"], [b"a", b"abcd", OVERLONG, b"b"]),
        ([b"a\nabcd", b"\nabcd", b"\n"], [b"a", b"abcd", b"abcd"]),
        ([b"abcdefgh", b"ijklmnop", b"qrstuvwx", b"\nabcd", b"\nabcde", b"\nab\n"],
         [OVERLONG, b"abcd", OVERLONG, b"ab"]),
        ([b"abcde\nabcde"], [OVERLONG, OVERLONG]),
        ([b"ab", b"c\nabcd", b"\n"], [b"abc", b"abcd"]),
    ],
)  # fmt: skip
def test_a_line_may_reach_but_not_exceed_the_limit(chunks: list[bytes], lines: list[object]) -> None:
    buffer = LineBuffer(4)
    assert [line for chunk in chunks for line in buffer.feed(chunk)] == lines


def test_a_line_is_unfinished_until_its_end_even_if_it_is_discarded() -> None:
    buffer = LineBuffer(4)
    unfinished = []
    for chunk in (b"", b"a", b"\n", b"abcde", b"f", b"g\n", b"\n", b"a\nb", b"\n"):
        buffer.feed(chunk)
        unfinished.append(buffer.unfinished)
    assert unfinished == [False, True, False, True, True, False, False, True, False]
