"""The codec of event streams: round trips, any split of the bytes, and bounded memory."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.protocol.sse import (
    MAX_EVENT_ID_CHARACTERS,
    Event,
    EventDecoder,
    EventTooLarge,
    Pulse,
    encode_event,
    encode_pieces,
)

LIMIT = 1 << 20


def read(*chunks: bytes, limit: int = LIMIT) -> list[Event]:
    decoder = EventDecoder(limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in read(*chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data: {}\r\n\r\n", [b"{}"]),
        (b"data: {}\r\r", [b"{}"]),
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\rdata: c\n\n", [b"a\nb\nc"]),
        (b": a comment\n\n:\n\ndata: x\n\n", [b"x"]),
        (b"data\n\n", [b""]),
        (b"data: \n\n", [b""]),
        (b"\xef\xbb\xbfdata: after a byte order mark\n\n", [b"after a byte order mark"]),
        (b"data: x\n\n\xef\xbb\xbfdata: only at the start\n\n", [b"x"]),
        (b"nonsense: x\ndata: y\n\n", [b"y"]),
        (b"data: unfinished\n", []),
        (b"event: only\nid: 1\n\n", []),
        (b"\n\n\n", []),
    ],
)
def test_streams_are_parsed_as_in_the_standard(stream: bytes, expected: list[bytes]) -> None:
    """WHATWG HTML §9.2.6."""
    assert data(stream) == expected


def test_event_carries_its_name_and_the_last_id_of_the_stream() -> None:
    assert read(b"event: tide\nid: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n") == [
        Event(data=b"a", event="tide", id="7"),
        Event(data=b"b", event="message", id="7"),
        Event(data=b"c", event="message", id=""),
    ]


def test_id_with_nul_is_ignored() -> None:
    assert read(b"id: 1\nid: 2\x003\ndata: x\n\n") == [Event(data=b"x", id="1")]


def test_an_id_without_data_is_kept() -> None:
    """A resuming client must know the id of a priming event, whether or not it has data (2025-11-25)."""
    decoder = EventDecoder(LIMIT)
    assert decoder.feed(b"id: 9\n\n") == []
    assert decoder.last_id == "9"


@pytest.mark.parametrize(
    ("line", "expected"), [(b"250", 250), (b"0", 0), (b"-1", None), (b"1.5", None), (b"", None), (b"9" * 40, None)]
)
def test_an_invalid_retry_is_ignored(line: bytes, expected: int | None) -> None:
    decoder = EventDecoder(LIMIT)
    decoder.feed(b"retry: " + line + b"\n\n")
    assert decoder.retry == expected


def test_an_unfinished_event_in_tiny_chunks_takes_little_more_memory_than_its_length() -> None:
    """A bug: chunks of two bytes took twenty times their length."""
    decoder = EventDecoder(LIMIT)
    decoder.feed(b"data: ")
    tracemalloc.start()
    try:
        for number in range(100_000):
            decoder.feed(b"%02d" % (number % 100))
        assert tracemalloc.get_traced_memory()[1] < 600_000
    finally:
        tracemalloc.stop()
    (event,) = decoder.feed(b"\n\n")
    assert event.data == b"".join(b"%02d" % (number % 100) for number in range(100_000))


def test_a_line_end_split_over_two_chunks_is_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r", b"\n", b"\r", b"\n") == [b"a\nb"]


events = st.binary(max_size=40) | st.sampled_from(
    [b"", b"\n", b"\r\n", b"\r", b"data: x", b"\n\nevent: forged\ndata: y"]
)
bodies = st.lists(events, max_size=5)


@given(bodies, st.data())
def test_the_events_are_the_same_for_any_split_of_the_stream(items: list[bytes], draw: st.DataObject) -> None:
    stream = b"".join(map(encode_event, items)) + draw.draw(st.binary(max_size=40))
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = read(stream)
    assert read(*parts) == expected
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == expected


@given(bodies)
def test_written_events_are_read_back_as_one_event_each(items: list[bytes]) -> None:
    """Security H31: line ends in the content never start a second event or field. Each is read as LF."""
    expected = [item.replace(b"\r\n", b"\n").replace(b"\r", b"\n") for item in items]
    assert data(b"".join(map(encode_event, items))) == expected


@given(st.lists(events, max_size=5))
def test_an_event_encoded_in_pieces_equals_the_whole_event(pieces: list[bytes]) -> None:
    async def encode(**options: str) -> bytes:
        async def generate() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return b"".join([part async for part in encode_pieces(generate(), **options)])

    assert read(asyncio.run(encode())) == read(encode_event(b"".join(pieces)))
    assert read(asyncio.run(encode(id="7-1"))) == read(encode_event(b"".join(pieces), id="7-1"))


def test_an_endless_event_raises_event_too_large() -> None:
    """Security C26."""
    for opening in (b"data: ", b": comment ", b"event: ", b""):
        decoder = EventDecoder(1000)
        with pytest.raises(EventTooLarge, match="larger than 1000 bytes"):
            for _ in range(3):
                decoder.feed(opening + b"x" * 400)


def test_empty_data_lines_count_against_the_limit() -> None:
    decoder = EventDecoder(1000)
    with pytest.raises(EventTooLarge):
        decoder.feed(b"data\n" * 2000)


def test_many_small_events_and_comments_never_reach_the_limit() -> None:
    stream = (b": comment\nevent: x\nid: 1\nretry: 5\ndata: " + b"x" * 50 + b"\n\n") * 50
    assert len(read(stream, limit=100)) == 50


@pytest.mark.parametrize("field", ["a\nb", "a\rb", "a\0b"])
def test_name_or_id_with_a_line_end_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"", id=field)
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"", event=field)


def test_priming_event_is_written_with_id_retry_and_empty_data() -> None:
    assert encode_event(b"", id="s-1", retry=500) == b"event: message\nid: s-1\nretry: 500\ndata: \n\n"


def test_only_a_stream_with_regular_comments_has_a_deadline() -> None:
    pulse = Pulse()
    assert pulse.beat(0, b"data: 1\n\n") is None
    assert pulse.beat(10, b": \n\n") is None
    assert pulse.beat(12, b"data: 2\n\n") is None
    assert pulse.beat(25, b": \n\n") == 25 + 3 * 15
    assert pulse.beat(26, b"data: 3\n\n") == 26 + 3 * 15
    assert pulse.beat(45, b": \n\n") == 45 + 3 * 20
    quick = Pulse()
    quick.beat(0, b":\n")
    assert quick.beat(1, b":\n") == 1 + Pulse.MIN_SECONDS


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"ab\r"], b"ab\n"),
        ([b"ab\r", b"\ncd"], b"ab\ncd"),
        ([b"ab\r", b"cd"], b"ab\ncd"),
        ([b"ab\r", b"\r", b"\n"], b"ab\n\n"),
        ([b"ab\r", b"", b"\ncd"], b"ab\ncd"),
        ([], b""),
    ],
)
def test_a_line_end_split_over_two_pieces_is_one_line_end(pieces: list[bytes], expected: bytes) -> None:
    async def encode() -> bytes:
        async def generate() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return b"".join([part async for part in encode_pieces(generate())])

    assert data(asyncio.run(encode())) == [expected]


def test_empty_chunk_changes_nothing() -> None:
    assert data(b"", b"data: a\r", b"", b"\n", b"", b"\n") == [b"a"]


@pytest.mark.parametrize(
    ("chunks", "fits"),
    [
        ([b"data: abcd"], True),
        ([b"data: abcde"], False),
        ([b"data: abcd\n"], True),
        ([b"data: abcde\n"], False),
        ([b"data: ", b"abcd"], True),
        ([b"data: ", b"abcde"], False),
        ([b"data: abcd\ndata:"], True),  # four bytes of data and a line end are buffered
        ([b"data: abcd\ndata:x"], False),
        ([b"data\ndata\ndata\ndata\ndata\ndata\ndata:\n"], False),
        ([b"data\ndata\ndata\ndata\ndata\ndata\ndata\n"], True),
        ([b"data: abcd\n\ndata: abcd\n\n:234567890\n:234567890\n"], True),
        ([b"data: abcd\n\n:2345678901\n"], False),
        ([b":234567890\nid: 123456\nevent: abc\nretry: 123\n"], True),
        ([b"id: 1234567"], False),
    ],
)
def test_an_event_may_reach_but_not_exceed_the_limit(chunks: list[bytes], fits: bool) -> None:
    if fits:
        read(*chunks, limit=10)
    else:
        with pytest.raises(EventTooLarge, match="larger than 10 bytes"):
            read(*chunks, limit=10)


@pytest.mark.parametrize(("line", "expected"), [(b"9" * 9, 999_999_999), (b"9" * 10, None), (b"\xb2", None)])
def test_retry_has_at_most_nine_digits(line: bytes, expected: int | None) -> None:
    decoder = EventDecoder(LIMIT)
    decoder.feed(b"retry: " + line + b"\n")
    assert decoder.retry == expected


def test_empty_fields_are_not_written() -> None:
    assert encode_event(b"x") == b"event: message\ndata: x\n\n"
    assert encode_event(b"x", event="tide", retry=0) == b"event: tide\nretry: 0\ndata: x\n\n"
    assert encode_event(b"a\r\nb\rc\nd") == b"event: message\ndata: a\ndata: b\ndata: c\ndata: d\n\n"


def test_the_deadline_is_three_intervals_and_at_least_30_seconds() -> None:
    for gap, seconds in ((1, 30), (10, 30), (11, 33)):
        pulse = Pulse()
        assert pulse.beat(100, b":\n\n") is None
        assert pulse.beat(100, b":\n\n") is None  # an interval of 0 is ignored
        assert pulse.beat(100 + gap, b":\n\n") == 100 + gap + seconds
        assert pulse.beat(100 + gap, b"") == 100 + gap + seconds


@pytest.mark.parametrize("size", [MAX_EVENT_ID_CHARACTERS, MAX_EVENT_ID_CHARACTERS + 1])
def test_an_event_id_can_be_sent_back_up_to_a_length(size: int) -> None:
    decoder = EventDecoder(10_000)
    decoder.feed(b"id: " + b"x" * size + b"\n")
    assert decoder.resume_id == ("x" * size if size == MAX_EVENT_ID_CHARACTERS else "")
