"""Times, levels and secrets in log lines, in the formats of common programs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument
from wharfinger.sources.log_files.levels import LEVELS, level_of, read_level
from wharfinger.sources.log_files.log_text import render
from wharfinger.sources.log_files.secrets import secret_spans
from wharfinger.sources.log_files.times import read_moment, time_of
from wharfinger.sources.windows.window import BytesContent

TEN = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC).timestamp()
NOW = TEN + 3600


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"2026-11-20T10:00:00Z INFO", TEN),
        (b"2026-11-20T10:00:00.250+01:00 x", TEN - 3600 + 0.25),
        (b"2026-11-20 10:00:00,500 - app - INFO", TEN + 0.5),
        (b"[2026-11-20 10:00:00 +0200] x", TEN - 7200),
        (b"2026/11/20 10:00:00 [error] 1#0: x", TEN),
        (b'127.0.0.1 - - [20/Nov/2026:10:00:00 +0100] "GET /"', TEN - 3600),
        (b"Nov 20 10:00:00 host sshd[1]: x", TEN),
        (b"<34>Nov  9 10:00:00 host x", TEN - 11 * 86400),
        (b"Dec 24 10:00:00 last year's", TEN + 34 * 86400 - 365 * 86400),
        (b"[Fri Nov 20 10:00:00.125 2026] [core:error] x", TEN + 0.125),
        (b"<165>1 2026-11-20T10:00:00.003Z host app - - x", TEN + 0.003),
        (b"E1120 10:00:00.500000 1 f.go:1] x", TEN + 0.5),
        (b"%d x" % TEN, TEN),
        (b"%d.750 x" % TEN, TEN + 0.75),
        (b"%d x" % (TEN * 1000 + 7), TEN + 0.007),
        (b"[%d] x" % TEN, TEN),
        (b'{"level":"info","ts":%d.5}' % TEN, TEN + 0.5),
        (b'{"time": %d, "msg": "x"}' % (TEN * 1000), TEN),
        (b'{"@timestamp":"2026-11-20T10:00:00.000Z"}', TEN),
        (b'{"msg":"x","timestamp": "2026-11-20 10:00:00,000"}', TEN),
        (b"level=info ts=2026-11-20T10:00:00Z msg=x", TEN),
        (b"  File 'x', 2026-11-20T10:00:00Z", None),
        (b"Traceback (most recent call last):", None),
        (b"2026-13-40T10:00:00Z", None),
        (b"12345 boats", None),
        (b"", None),
    ],
)
def test_the_time_of_a_line_is_recognised(line: bytes, expected: float | None) -> None:
    found = time_of(line, UTC, NOW)
    assert found == (None if expected is None else pytest.approx(expected, abs=0.0005))


def test_a_time_without_a_zone_is_in_the_zone_of_the_log() -> None:
    assert time_of(b"2026-11-20 10:00:00 x", ZoneInfo("America/New_York")) == TEN + 5 * 3600


@pytest.mark.parametrize(
    "line",
    [b"shop.bank.BankUnavailable: the certificate expired at 2026-11-20T10:00:00Z", b"ValueError: 2026-11-20T10:00:00Z",
     b"Caused by: java.io.IOException: closed at 2026-11-20T10:00:00Z", b"org.a.B$C: 2026-11-20T10:00:00Z",
     b"requests.exceptions.ConnectionError: since 2026-11-20T10:00:00Z"],
)  # fmt: skip
def test_an_exception_line_with_a_time_does_not_begin_an_entry(line: bytes) -> None:
    assert time_of(line, UTC, NOW) is None


@pytest.mark.parametrize(
    "line",
    [b"ERROR 2026-11-20T10:00:00Z x", b"worker 2026-11-20T10:00:00Z ValueError: x", b"app.worker: 2026-11-20T10:00:00Z",
     b"Warning 2026-11-20T10:00:00Z", b"host.example 2026-11-20T10:00:00Z Up"],
)  # fmt: skip
def test_a_line_with_a_word_before_its_time_begins_an_entry(line: bytes) -> None:
    assert time_of(line, UTC, NOW) == TEN


@given(st.binary(max_size=200))
def test_any_line_is_parsed_without_an_error(line: bytes) -> None:
    time_of(line, UTC, NOW)
    level_of(line)
    secret_spans(line)
    render(line, 0, BytesContent(line))


@pytest.mark.parametrize("value", ["15m", "2h", "3d", "1w", "30s"])
def test_a_relative_time_is_subtracted_from_now(value: str) -> None:
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[value[-1]]
    assert read_moment("since", value, UTC, NOW) == NOW - int(value[:-1]) * unit


@pytest.mark.parametrize(
    "value", ["2026-11-20T10:00:00Z", "2026-11-20T11:00:00+01:00", "2026-11-20T11:00:00 01:00", "2026-11-20 10:00",
                str(int(TEN)), "20261120T100000Z"],
)  # fmt: skip
def test_an_absolute_time_is_read(value: str) -> None:
    assert read_moment("since", value, UTC, NOW) == TEN


@pytest.mark.parametrize("value", ["", "soon", "15", "-1h", "9999999999999", "10:00", "2026-02-30T00:00:00Z"])
def test_an_invalid_time_is_reported(value: str) -> None:
    with pytest.raises(InvalidArgument, match="15m"):
        read_moment("since", value, UTC, NOW)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"2026-11-20 10:00:00 INFO all is well", "info"),
        (b"2026-11-20 10:00:00,000 - app - WARNING - x", "warning"),
        (b"[2026-11-20 10:00:00] local.ERROR: x", "error"),
        (b"2026/11/20 10:00:00 [error] 1#0: x", "error"),
        (b"[core:warn] x", "warning"),
        (b"[E] x", "error"),
        (b"E1120 10:00:00.5 1 f.go:1] x", "error"),
        (b"W/Boat: x", "warning"),
        (b"<11>Nov 20 10:00:00 host x", "error"),
        (b"<30>Nov 20 10:00:00 host x", "info"),
        (b'{"level":"warn"}', "warning"),
        (b'{"level":50}', "error"),
        (b'{"severity":"CRITICAL"}', "critical"),
        (b'{"level":3}', "error"),
        (b'{"level":9}', "trace"),
        (b'{"level":60}', "critical"),
        (b'{"level":200,"level_name":"INFO"}', "info"),
        (b'{"level":550}', "alert"),
        (b'{"level":1000}', None),
        (b"level=debug msg=x", "debug"),
        (b"sshd[1]: error: no", "error"),
        (b"FATAL: the harbour is gone", "critical"),
        (b"10:00 ERRORS: 0", None),
        (b"no errors here", None),
        (b"information about boats", None),
    ],
)
def test_the_level_of_a_line_is_recognised(line: bytes, level: str | None) -> None:
    assert level_of(line) == (None if level is None else LEVELS[level])


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12 "-" "curl"', "info"),
        (b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /x HTTP/1.1" 404 12 "-" "curl"', "warning"),
        (b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "POST /x HTTP/1.1" 503 12 "-" "ERROR: bot"', "error"),
        (b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /?level=error HTTP/1.1" 200 12 "-" "[error]"', "info"),
        (b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET /\\"500 HTTP/1.1" 301 -', "info"),
        (b'1.2.3.4 - - [x] "GET /' + b"a" * 7_000 + b' HTTP/1.1" 500 1', "error"),
        (b'INFO:     127.0.0.1:1 - "GET / HTTP/1.1" 500 Internal Server Error', "error"),
        (b'ERROR    127.0.0.1:1 - "GET / HTTP/1.1" 200 OK', "error"),
        (b"GET /boats 502 12.3 ms - 12", "error"),
        (b'[GIN] 2026/11/20 - 10:00:00 | 404 |  1.2ms | 1.2.3.4 | GET  "/x"', "warning"),
        (b'{"time":"2026-11-20T10:00:00Z","method":"GET","status":500}', "error"),
        (b'{"level":"info","status":500}', "info"),
        (b"ts=1 method=GET path=/ status=404", "warning"),
        (b"2026-11-20T10:00:00Z exported 500 rows", None),
        (b"2026-11-20T10:00:00Z status=5000", None),
    ],
)
def test_a_request_has_the_level_of_its_status(line: bytes, level: str | None) -> None:
    """Words in its URL and user agent are ignored."""
    assert level_of(line) == (None if level is None else LEVELS[level])


def test_levels_have_aliases() -> None:
    assert [read_level(word) for word in ("err", "WARN", "fatal")] == [40, 30, 50]
    with pytest.raises(InvalidArgument, match="critical"):
        read_level("loud")


@pytest.mark.parametrize(
    "line", [b"tokens=153 were used, 3 passed", b"GET /passwords HTTP/1.1", b"the secret of boats", b"task-runner",
             b"see https://example.com:8080/a@b", b"author: Ann", b"a key=value pair"],
)  # fmt: skip
def test_harmless_text_is_not_taken_for_a_secret(line: bytes) -> None:
    assert secret_spans(line) == []


@pytest.mark.parametrize(
    "piece",
    [b"token=", b"eyJ-", b"eyJaaaaaaaa.", b"://a:", b"://", b"-----BEGIN PRIVATE KEY-----", b"sk-", b".sk-aaaaaaa",
     b'token="\\', b"cookie ", b"password :::", b"secret", b"a", b"bearer ", b"AKIA", b"authorization:  ", b"\\"],
)  # fmt: skip
def test_one_mebibyte_is_searched_for_secrets_in_two_seconds(piece: bytes) -> None:
    """Regular expressions that backtrack would take quadratic time."""
    size = 1 << 20
    data = (piece * size)[:size]
    began = time.process_time()
    secret_spans(data)
    assert time.process_time() - began < 2.0


def test_the_level_of_a_line_of_escaped_quotation_marks_is_found_in_a_short_time() -> None:
    began = time.process_time()
    assert level_of(b"2026-11-20 x " + rb"\"GET " * 2_700) is None
    assert time.process_time() - began < 0.5
    assert level_of(b'h - - [20/Nov/2026] "GET /?q=\\"GET HTTP/1.1" 503 12') == LEVELS["error"]
