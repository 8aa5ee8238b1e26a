"""Windows of a content: joined, they are the whole content, and each links to the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidArgument
from wharfinger.sources.windows import window, window_budget, window_reader
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW, BytesContent, LineIndex, read_content, split_query

URI = "file:///charts/tides.log"


def read(
    data: bytes, query: str = "", *, max_bytes: int = 1 << 20, name: str = "tides.log"
) -> list[t.ResourceContents]:
    uri = URI + ("?" + query if query else "")
    base, parsed_query = split_query(uri)
    return read_content(uri, base, name, BytesContent(data), window.parse_window(parsed_query), max_bytes=max_bytes)


def value_of(contents: t.ResourceContents) -> str | bytes:
    return contents.blob if contents.text is UNSET else contents.text  # type: ignore[return-value]


def meta_of(contents: t.ResourceContents) -> dict[str, object]:
    return {} if contents.meta is UNSET else dict(contents.meta)


def follow_links(
    data: bytes, query: str = "", *, max_bytes: int = 1 << 20, key: str = NEXT
) -> Iterator[t.ResourceContents]:
    """Yield a window and all that follow it, or all that precede it with `key=PREVIOUS`."""
    seen: set[object] = set()
    while True:
        contents = read(data, query, max_bytes=max_bytes)[0]
        yield contents
        following = meta_of(contents).get(key)
        if following is None:
            return
        query = str(following).partition("?")[2]
        assert query not in seen, f"{query} follows itself"
        seen.add(query)


def covered_bytes(contents: t.ResourceContents, data: bytes) -> bytes:
    """Return the bytes of the content that a window covers."""
    window = meta_of(contents).get(WINDOW)
    if window is None:
        return data
    return data[window["begin"] : window["end"]]  # type: ignore[index]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    make_windows_small(monkeypatch)


def make_windows_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_budget, "WINDOW_BYTES", 64)
    monkeypatch.setattr(window_reader, "WINDOW_LINES", 5)
    monkeypatch.setattr(window_reader, "_BLOCK_BYTES", 32)


# Queries of URIs


def test_a_query_is_split_from_its_uri() -> None:
    assert split_query("file:///a/b.txt") == ("file:///a/b.txt", {})
    assert split_query("file:///a/b%3F.txt?lines=1-2") == ("file:///a/b%3F.txt", {"lines": "1-2"})
    assert split_query("log://a?tail=5&text=a%26b") == ("log://a", {"tail": "5", "text": "a&b"})


@pytest.mark.parametrize("uri", ["x:///a?", "x:///a?lines", "x:///a?=1", "x:///a?a=1&a=2", "x:///a?a=1&"])
def test_an_empty_or_repeated_parameter_is_refused(uri: str) -> None:
    with pytest.raises(InvalidArgument):
        split_query(uri)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lines=1-200", window.Window("lines", 1, 200)),
        ("lines=201-", window.Window("lines", 201)),
        ("bytes=0-0", window.Window("bytes", 0, 0)),
        ("bytes=7-", window.Window("bytes", 7)),
        ("tail=3", window.Window("tail", 3)),
    ],
)
def test_a_window_is_parsed_and_formatted(text: str, expected: window.Window) -> None:
    assert window.parse_window(split_query(f"x:///a?{text}")[1]) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    ["lines=0-5", "lines=5-4", "lines=-5", "lines=5", "lines=a-b", "bytes=5-4", "bytes=-1", "tail=0", "tail=-1",
     "tail=1-2", "rows=1-2", "lines=1-2&bytes=0-1", "lines=١-٢", "lines=1-2#a", "bytes=0-9999999999999999999"],
)  # fmt: skip
def test_the_error_for_an_invalid_window_shows_a_valid_one(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"lines=1-200|bytes=0-65535|tail=200"):
        window.parse_window(split_query(f"x:///a?{text}")[1])


# Without a query


def test_a_small_text_is_read_whole_and_has_no_window() -> None:
    [contents] = read("fähre\r\n".encode())
    assert (contents.text, contents.mime_type, contents.meta) == ("fähre\r\n", "text/plain", UNSET)


def test_a_large_text_is_read_as_its_first_window_with_the_next_uri(small_windows: None) -> None:
    data = b"".join(b"line %d\n" % number for number in range(1, 100))
    first, continuation = read(data, max_bytes=100)
    assert first.text == "line 1\nline 2\nline 3\nline 4\nline 5\n"
    assert first.uri == URI
    assert meta_of(first)[WINDOW] == {"begin": 0, "end": 35, "size": len(data), "firstLine": 1, "lastLine": 5}
    assert meta_of(first)[NEXT] == f"{URI}?bytes=35-"
    assert PREVIOUS not in meta_of(first)
    assert continuation.uri == f"{URI}?bytes=35-"
    assert "lines 1-5" in str(continuation.text) and continuation.uri in str(continuation.text)


# By lines


def test_lines_are_numbered_from_one_and_keep_their_line_ends() -> None:
    data = b"one\r\ntwo\r\nthree"
    assert read(data, "lines=1-1")[0].text == "one\r\n"
    assert read(data, "lines=2-3")[0].text == "two\r\nthree"
    assert read(data, "lines=3-99")[0].text == "three"
    assert meta_of(read(data, "lines=1-1")[0])[NEXT] == f"{URI}?lines=2-2"
    assert meta_of(read(data, "lines=3-4")[0])[PREVIOUS] == f"{URI}?lines=1-2"


@pytest.mark.parametrize(("data", "line"), [(b"", 1), (b"a\n", 2), (b"a", 2), (b"a\n\n", 3)])
def test_the_line_after_the_last_is_empty_and_the_next_one_is_an_error(data: bytes, line: int) -> None:
    assert read(data, f"lines={line}-")[0].text == ""
    with pytest.raises(InvalidArgument, match=f"no line {line + 1}"):
        read(data, f"lines={line + 1}-")


def test_a_window_without_a_last_line_ends_at_the_limit(small_windows: None) -> None:
    data = b"x\n" * 12
    first = read(data, "lines=2-")
    assert first[0].text == "x\n" * 5
    assert meta_of(first[0])[NEXT] == f"{URI}?lines=7-"
    assert len(first) == 2


def test_a_window_with_a_last_line_may_exceed_the_limit(small_windows: None) -> None:
    data = b"0123456789\n" * 100
    assert len(read(data, "lines=1-90")[0].text) == 990  # type: ignore[arg-type]
    cut, continuation = read(data, "lines=1-90", max_bytes=100)
    assert cut.text == "0123456789\n" * 9
    assert continuation.uri == f"{URI}?lines=10-90"


def test_a_line_longer_than_a_window_continues_by_bytes(small_windows: None) -> None:
    data = "é".encode() * 1000 + b"\nend\n"
    first = read(data, "lines=1-", max_bytes=100)[0]
    assert first.text == "é" * 32
    assert meta_of(first)[NEXT] == f"{URI}?bytes=64-"
    joined = "".join(str(piece.text) for piece in follow_links(data, "lines=1-", max_bytes=100))
    assert joined == data.decode()


def test_binary_data_has_no_lines() -> None:
    for query in ("lines=1-2", "tail=1"):
        with pytest.raises(InvalidArgument, match="bytes=0-65535"):
            read(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", query)


# By bytes


def test_a_window_of_bytes_has_exactly_the_requested_bytes() -> None:
    data = "a é b".encode()
    assert read(data, "bytes=0-1")[0].text == "a "
    assert read(data, "bytes=2-3")[0].text == "é"
    assert read(data, "bytes=4-99")[0].text == " b"
    assert meta_of(read(data, "bytes=0-1")[0])[NEXT] == f"{URI}?bytes=2-3"
    assert meta_of(read(data, "bytes=4-5")[0])[PREVIOUS] == f"{URI}?bytes=2-3"
    assert len(read(data, "bytes=0-1")) == 1


def test_bytes_that_split_a_character_are_a_blob() -> None:
    data = "a é b".encode()
    assert read(data, "bytes=0-2")[0].blob == b"a \xc3"
    assert read(data, "bytes=3-5")[0].blob == b"\xa9 b"
    assert read(data, "bytes=3-5")[0].mime_type == "text/plain"


def test_the_byte_after_the_last_is_empty_and_the_next_one_is_an_error() -> None:
    assert read(b"abc", "bytes=3-")[0].text == ""
    assert read(b"abc", "bytes=3-10")[0].text == ""
    with pytest.raises(InvalidArgument, match="3 bytes"):
        read(b"abc", "bytes=4-")


def test_a_window_of_bytes_ends_at_max_bytes() -> None:
    first, continuation = read(b"0123456789" * 100, "bytes=0-899", max_bytes=100)
    assert first.text == "0123456789" * 10
    assert continuation.uri == f"{URI}?bytes=100-899"


# Tails


@pytest.mark.parametrize(
    ("data", "number", "expected"),
    [
        (b"a\nb\nc\n", 2, "b\nc\n"),
        (b"a\nb\nc", 2, "b\nc"),
        (b"a\r\nb\r\n", 1, "b\r\n"),
        (b"a\n\n", 1, "\n"),
        (b"a\n", 5, "a\n"),
        (b"", 5, ""),
    ],
)
def test_a_tail_has_the_last_lines(data: bytes, number: int, expected: str) -> None:
    contents = read(data, f"tail={number}")[0]
    assert contents.text == expected
    assert NEXT not in meta_of(contents)


def test_the_text_before_a_tail_is_its_previous_window(small_windows: None) -> None:
    data = b"".join(b"line %d\n" % number for number in range(1, 100))
    pieces = list(follow_links(data, "tail=3", key=PREVIOUS))
    assert pieces[0].text == "line 97\nline 98\nline 99\n"
    assert "".join(str(piece.text) for piece in reversed(pieces)) == data.decode()
    assert str(pieces[1].text).startswith("line ")


def test_a_tail_is_cut_to_max_bytes(small_windows: None) -> None:
    data = b"".join(b"line %d\n" % number for number in range(1, 100))
    text = str(read(data, "tail=99", max_bytes=70)[0].text)
    assert text.startswith("line ") and text.endswith("line 99\n") and len(text) <= 70


# Encodings


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_windows_of_utf16_stay_aligned(encoding: str, small_windows: None) -> None:
    byte_order_mark = "\ufeff".encode(encoding)
    text = "".join(f"Zeile {number} \u0a00\U0001f6a2\r\n" for number in range(60))
    data = byte_order_mark + text.encode(encoding)
    for query in ("", "lines=1-", "lines=1-3"):
        pieces = list(follow_links(data, query, max_bytes=100))
        assert len(pieces) > 5
        assert "".join(str(piece.text) for piece in pieces) == text
        assert {meta_of(piece)[window.ENCODING] for piece in pieces} == {encoding}
    assert read(data, "lines=2-2")[0].text == "Zeile 1 \u0a00\U0001f6a2\r\n"
    assert read(data, "tail=1")[0].text == "Zeile 59 \u0a00\U0001f6a2\r\n"
    assert read(data, "bytes=3-8")[0].blob == data[3:9]


# Joined windows


LINES = st.lists(st.text(st.sampled_from("ab é\u0a00\r\U0001f6a2"), max_size=30) | st.just("x" * 150), max_size=30).map(
    "\n".join
)
TEXTS = st.one_of(
    LINES.map(str.encode),
    LINES.map(lambda text: b"\xff\xfe" + text.encode("utf-16-le")),
    LINES.map(lambda text: b"\xfe\xff" + text.encode("utf-16-be")),
    st.binary(max_size=400),
    LINES.map(lambda text: text.encode("utf-8")[1:] + b"\xff"),
    LINES.map(lambda text: b"long plain words " + text.encode("cp1252", "ignore")),
    LINES.map(lambda text: b"long plain words\n" * 9 + text.encode("cp1252", "ignore")),
    LINES.map(lambda text: ("long plain words\n" + text).encode("utf-16-le")),
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.integers(1, 200), st.integers(1, 9), st.integers(40, 300))
def test_joined_windows_are_the_whole_content(data: bytes, width: int, lines: int, max_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_windows_small(monkeypatch)
        check_joined_windows(data, ["", f"bytes=0-{width - 1}", "bytes=0-", f"lines=1-{lines}", "lines=1-"], max_bytes)


def check_joined_windows(data: bytes, queries: list[str], max_bytes: int) -> None:
    for query in queries:
        try:
            pieces = list(follow_links(data, query, max_bytes=max_bytes))
        except InvalidArgument:
            assert query.startswith("lines")  # binary data has no lines
            continue
        assert b"".join(covered_bytes(piece, data) for piece in pieces) == data
        for piece in pieces:
            value = value_of(piece)
            if isinstance(value, bytes):
                assert value == covered_bytes(piece, data)
            else:
                encoding = str(meta_of(piece).get(window.ENCODING, "utf-8"))
                byte_order_mark = "\ufeff".encode(encoding) if encoding.startswith("utf-16") else b""
                assert value.encode(encoding) == covered_bytes(piece, data).removeprefix(byte_order_mark)


@settings(max_examples=200, deadline=None)
@given(LINES.filter(bool), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]))
def test_windows_of_lines_match_the_lines_of_the_text(text: str, first: int, last: int, encoding: str) -> None:
    data = text.encode(encoding) if encoding == "utf-8" else ("\ufeff" + text).encode(encoding)
    expected = text.split("\n")
    expected = [line + "\n" for line in expected[:-1]] + ([expected[-1]] if expected[-1] else [])
    if first > len(expected) + 1:
        with pytest.raises(InvalidArgument):
            read(data, f"lines={first}-")
    elif first <= last:
        assert read(data, f"lines={first}-{last}")[0].text == "".join(expected[first - 1 : last])
    assert read(data, f"tail={last}")[0].text == "".join(expected[-last:])


def test_a_window_reads_little_more_than_its_own_bytes(small_windows: None) -> None:
    class CountingContent(BytesContent):
        read_bytes = 0

        def read(self, offset: int, length: int) -> bytes:
            data = super().read(offset, length)
            self.read_bytes += len(data)
            return data

    content = CountingContent(b"0123456789abcde\n" * (4 << 16))  # 4 MiB
    index = LineIndex()
    for query, max_read_bytes in (
        ("", 70_000),
        ("bytes=2000000-2000099", 70_000),
        ("tail=3", 70_000),
        ("lines=5-7", 1_300_000),
    ):
        content.read_bytes = 0
        parsed = window.parse_window(split_query(f"{URI}?{query}" if query else URI)[1])
        read_content(URI, URI, "a.log", content, parsed, max_bytes=1000, lines=index)
        assert content.read_bytes < max_read_bytes, query


def test_the_error_for_a_line_not_reached_in_time_links_to_the_reached_position() -> None:
    data = b"line\n" * (5 << 18)  # 6.25 MiB
    index = LineIndex()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(LineIndex.find, "__kwdefaults__", {"until": None, "seconds": 0.0})
        with pytest.raises(InvalidArgument, match=r"not reached in time.*\?bytes=1048576-") as caught:
            read_content(URI, URI, "a.log", BytesContent(data), window.Window("lines", 1_200_000), lines=index)
        next_uri = caught.value.data["next"]  # type: ignore[index]
        assert next_uri == f"{URI}?bytes=1048576-"
        base, query = split_query(next_uri)
        assert read_content(next_uri, base, "a.log", BytesContent(data), window.parse_window(query))[0].text
    assert read_content(URI, URI, "a.log", BytesContent(data), window.Window("lines", 1_200_000), lines=index)[0].text


def test_the_query_of_a_source_is_kept_in_the_next_window() -> None:
    base = "log://harbour?level=error"
    contents = read_content(base, base, "a.log", BytesContent(b"a\n" * 5_000), None, max_bytes=100)[0]
    assert meta_of(contents)[NEXT] == f"{base}&bytes=4000-"


def test_the_notice_of_the_next_window_is_recognized(small_windows: None) -> None:
    first, continuation = read(b"line\n" * 100, max_bytes=100)
    assert window.is_continuation(continuation)
    assert not window.is_continuation(first)
    assert str(continuation.text).startswith("\n[") and str(continuation.text).endswith("]\n")
