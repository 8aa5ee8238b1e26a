"""The time of a line of a log, in the formats that programs use.

A time without a zone is in the zone of the log. A line that begins with white space, or has no time near its beginning,
belongs to the entry before it.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from wharfinger.errors import InvalidArgument

__all__ = ["LINE_START_BYTES", "read_moment", "time_of"]

LINE_START_BYTES = 512
"""Bytes at the beginning of a line that are searched for its time."""
TIME_START_BYTES = 96
"""Bytes of a line in which its time must begin, unless the line is JSON.

A time in another form than ISO 8601 may begin later, but must end within 40 bytes more."""

_MONTHS = {
    name: number
    for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), start=1)
}  # fmt: skip
_MONTH = rb"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ISO = re.compile(
    rb"(?<![0-9])([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[T_ ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    rb"(?:[.,]([0-9]{1,9}))?(?: ?(Z|[+-][0-9]{2}:?[0-9]{2})(?![0-9]))?"
).search
_APACHE = re.compile(
    rb"([0-9]{2})/" + _MONTH + rb"/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2})(?: ([+-][0-9]{4}))?"
).search
_SYSLOG = re.compile(
    rb"(?<![A-Za-z])" + _MONTH + rb" {1,2}([0-9]{1,2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    rb"(?: ([0-9]{4})(?![0-9]))?"
).search
_KLOG = re.compile(rb"[IWEFD]([0-9]{2})([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?").match
_EPOCH = re.compile(rb"(?:\[|ts=|time=)?([0-9]{10}(?:\.[0-9]{1,9}|[0-9]{9}|[0-9]{6}|[0-9]{3})?)(?![0-9])").match
_JSON = re.compile(
    rb'"(?:@timestamp|timestamp|time|ts|asctime|datetime)"\s{0,4}:\s{0,4}(?:"([^"]{1,64})"|([0-9]{10,19}(?:\.[0-9]{1,9})?))'
).search

_EXCEPTION = re.compile(
    rb"Caused by: |(?:[A-Za-z_][\w$]{0,100}\.){0,20}(?:[A-Za-z_][\w$]{0,100}?(?:Error|Exception|Warning)\b|"
    rb"(?<=\.)[A-Z][\w$]{0,100}: )"
).match
"""The line of an exception after its stack trace, such as `shop.BankUnavailable: the certificate expired at …`."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGO = re.compile(r"([0-9]{1,9})([smhdw])").fullmatch


def time_of(line: bytes, zone: tzinfo | None = None, now: float | None = None) -> float | None:
    """Return the Unix time near the beginning of a line; None if the line has no time, or continues an entry.

    Args:
        line: The line, or its first `LINE_START_BYTES` bytes.
        zone: The zone of times without one. Default: the zone of the system.
        now: For formats without a year: the line is at most a day later than this. Default: the current time.
    """
    first = line[:1]
    if first in (b" ", b"\t", b"", b"\n", b"\r") or (first.isalpha() and _EXCEPTION(line)):
        return None
    try:
        if first == b"{":
            return _json_time(line[:LINE_START_BYTES], zone)
        return _plain_time(line[: TIME_START_BYTES + 40], zone, now)
    except (ValueError, OverflowError, OSError):  # such as the 31st of February
        return None


def _plain_time(line: bytes, zone: tzinfo | None, now: float | None) -> float | None:
    if found := _ISO(line):
        if found.start() > TIME_START_BYTES:
            return None
        year, month, day, hour, minute, second, fraction, offset = found.groups()
        return _moment(int(year), int(month), int(day), (hour, minute, second), fraction, _zone_of(offset) or zone)
    if found := _APACHE(line):
        day, name, year, hour, minute, second, offset = found.groups()
        return _moment(int(year), _MONTHS[name], int(day), (hour, minute, second), None, _zone_of(offset) or zone)
    if found := _SYSLOG(line):
        name, day, hour, minute, second, fraction, year = found.groups()
        clock = (hour, minute, second)
        if year:
            return _moment(int(year), _MONTHS[name], int(day), clock, fraction, zone)
        return _in_some_year(_MONTHS[name], int(day), clock, fraction, zone, now)
    if found := _KLOG(line):
        month, day, hour, minute, second, fraction = found.groups()
        return _in_some_year(int(month), int(day), (hour, minute, second), fraction, zone, now)
    if found := _EPOCH(line):
        return _epoch(found[1])
    return None


def _json_time(line: bytes, zone: tzinfo | None) -> float | None:
    match = _JSON(line)
    if match is None:
        return None
    text, number = match.groups()
    return _plain_time(text, zone, None) if text else _epoch(number)


def _epoch(digits: bytes) -> float:
    """Convert seconds since 1970, or milli-, micro- or nanoseconds, which have three, six or nine digits more."""
    digit_count = len(digits.partition(b".")[0])
    return float(digits) / 10.0 ** max(0, (digit_count - 10) // 3 * 3)


def _zone_of(text: bytes | None) -> tzinfo | None:
    if text is None:
        return None
    if text == b"Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[:1] == b"-" else minutes))


def _moment(
    year: int, month: int, day: int, clock: tuple[bytes, bytes, bytes], fraction: bytes | None, zone: tzinfo | None
) -> float:
    hour, minute, second = map(int, clock)
    moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone).timestamp()
    return moment + (float(b"0." + fraction) if fraction else 0.0) + (second > 59)


def _in_some_year(
    month: int, day: int, clock: tuple[bytes, bytes, bytes], fraction: bytes | None, zone: tzinfo | None,
    now: float | None,
) -> float:  # fmt: skip
    """Return the time in the latest year in which it is at most a day after `now`: clocks and time zones differ."""
    latest = (time.time() if now is None else now) + 86400
    year = time.gmtime(latest).tm_year
    for guess in range(year + 1, year - 8, -1):  # two leap years are at most eight years apart
        try:
            moment = _moment(guess, month, day, clock, fraction, zone)
        except ValueError:  # such as the 29th of February
            continue
        if moment <= latest:
            return moment
    raise ValueError("no such day")


def read_moment(name: str, value: str, zone: tzinfo | None = None, now: float | None = None) -> float:
    """Read a time that a URI gives: ISO 8601, seconds since 1970, or `15m` ago (s, m, h, d, w).

    Raises:
        InvalidArgument: it has another form.
    """
    if ago := _AGO(value):
        return (time.time() if now is None else now) - int(ago[1]) * _UNITS[ago[2]]
    # A client may have decoded the `+` of an offset as a space.
    text = value.strip().replace(" ", "+") if re.search(r" [0-9]{2}:?[0-9]{2}$", value.strip()) else value.strip()
    try:
        if re.fullmatch(r"[0-9]{9,11}|-?[0-9]{1,15}\.[0-9]{1,9}", text):
            return float(text)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            f"{name}={value} is not a time: give one such as 2026-11-20T10:00:00Z, or 15m, 2h, 3d for that long ago."
        ) from None
