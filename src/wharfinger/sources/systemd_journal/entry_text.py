"""An entry of the journal as a line of a log: time, level, program and message.

The lines of a message after the first one are indented, so that no message can look like an entry of its own.
"""

from __future__ import annotations

import re
import time

from wharfinger.sources.log_files.log_text import MAX_SHOWN_LINE_BYTES, may_contain, render, shown_bytes
from wharfinger.sources.log_files.secrets import cut_between_secrets
from wharfinger.sources.systemd_journal.export_format import ExportedEntry
from wharfinger.sources.systemd_journal.journal_query import position_of_cursor
from wharfinger.sources.windows.window import BytesContent

__all__ = [
    "FIELDS",
    "KERNEL",
    "LOG_FIELDS",
    "UNIT_FIELDS",
    "all_fields",
    "cursor_of",
    "has_text",
    "line_of",
    "logs_of",
    "moment_of",
    "shown_size",
    "unit_of",
]

UNIT_FIELDS = ("_PID", "_UID", "_TRANSPORT", "_SYSTEMD_UNIT", "UNIT", "OBJECT_SYSTEMD_UNIT", "COREDUMP_UNIT")
"""The fields that `unit_of` needs."""
FIELDS = ("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_COMM", *UNIT_FIELDS)
"""The fields that `line_of` and `unit_of` need."""
LOG_FIELDS = (*UNIT_FIELDS, "_SYSTEMD_SLICE")
"""The fields that `logs_of` needs."""
KERNEL = "kernel"
"""The name of the log of the kernel's messages."""
MAX_PID_DIGITS = 10
_END_OF_YEAR_9999 = 253_402_300_799  # in Unix time; beyond it, the line would have a year of five digits
_LEVELS = ("EMERG", "ALERT", "CRITICAL", "ERROR", "WARNING", "NOTICE", "INFO", "DEBUG")
_INDENT = b"\n    "
_KEY_LINE = re.compile(rb"[A-Za-z0-9+/=]{40,}").fullmatch


def cursor_of(entry: ExportedEntry) -> str:
    """Return the cursor of an entry, as journalctl takes it."""
    return entry.text("__CURSOR")


def moment_of(entry: ExportedEntry) -> float:
    """Return the Unix time at which the journal received an entry."""
    written = entry.text("__REALTIME_TIMESTAMP")
    return int(written) / 1e6 if written.isdecimal() and len(written) < 20 else 0.0


def unit_of(entry: ExportedEntry) -> str:
    """Return the unit that an entry is about, or `KERNEL`; an empty string if it is about neither.

    systemd (process 1) and programs of root may name another unit. Any other program could name one by mistake or to
    deceive: for it, only its own unit counts, which the journal itself adds.
    """
    if entry.fields.get("_PID") == b"1" and (unit := entry.text("UNIT")):
        return unit
    if entry.fields.get("_UID") == b"0" and (unit := entry.text("OBJECT_SYSTEMD_UNIT") or entry.text("COREDUMP_UNIT")):
        return unit
    return entry.text("_SYSTEMD_UNIT") or (KERNEL if entry.fields.get("_TRANSPORT") == b"kernel" else "")


def logs_of(entry: ExportedEntry) -> set[str]:
    """Return the logs that have an entry: of the unit that it is about, of the unit that wrote it, and of its slice."""
    return {unit_of(entry), entry.text("_SYSTEMD_UNIT"), entry.text("_SYSTEMD_SLICE")}


def line_of(entry: ExportedEntry, max_bytes: int = MAX_SHOWN_LINE_BYTES) -> bytes:
    """Return the line of an entry, with its line end. A message that takes more than `max_bytes` bytes is cut."""
    moment = moment_of(entry)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(min(moment, _END_OF_YEAR_9999)))
    priority = entry.text("PRIORITY")
    level = f" {_LEVELS[int(priority)]}" if len(priority) == 1 and priority in "01234567" else ""
    name = entry.text("SYSLOG_IDENTIFIER") or entry.text("_COMM") or "unknown"
    process = entry.text("_PID") or entry.text("SYSLOG_PID")
    process_suffix = f"[{process}]" if process.isdecimal() and len(process) <= MAX_PID_DIGITS else ""
    head = f"{stamp}.{int(moment * 1000) % 1000:03}Z{level} {' '.join(name[:256].split())}{process_suffix}: "
    message = entry.fields.get("MESSAGE", b"").rstrip(b"\n")
    size = _size_that_fits(message, max_bytes)
    size = len(cut_between_secrets(message, size)) if size < len(message) else size
    cut_bytes = entry.left_out + len(message) - size
    message = _as_utf8(message, size).replace(b"\n", _INDENT)
    if cut_bytes:
        position = position_of_cursor(cursor_of(entry))
        message += b" [%d bytes more in this entry: ?entry=%s]" % (cut_bytes, position.encode())
    return head.encode("utf-8", "backslashreplace") + message + b"\n"


def _size_that_fits(message: bytes, max_bytes: int) -> int:
    """Return the number of bytes of a message that take at most `max_bytes` when they are indented and escaped."""
    size = min(len(message), max_bytes)
    while (length := shown_size(_as_utf8(message, size).replace(b"\n", _INDENT))) > max_bytes:
        size = size * max_bytes * 15 // (length * 16)  # a bit less than fits, so that a few steps are enough
    return size


def shown_size(line: bytes) -> int:
    """Return the number of bytes of a line when its control characters are escaped."""
    return len(shown_bytes(line).encode())


def _as_utf8(message: bytes, max_bytes: int) -> bytes:
    """Return the beginning of a message. Bytes that are not UTF-8 become escapes such as `\\xff`."""
    try:
        message.decode()
    except UnicodeDecodeError:
        return message[:max_bytes].decode("utf-8", "backslashreplace").encode()
    return message[:max_bytes].decode("utf-8", "ignore").encode()


def has_text(line: bytes, text: str, redact: bool) -> bool:
    """Return whether a line, as it is shown, contains a text. The text must be casefolded."""
    if not may_contain(line, text):
        return False
    if redact and _KEY_LINE(line.partition(b": ")[2].strip()):
        return False  # it may be a line of a private key: the lines before it are not known here
    return text in render(line, 0, BytesContent(line), redact=redact, cut=False).casefold()


def all_fields(entry: ExportedEntry, redact: bool) -> bytes:
    """Return all fields of an entry as text, each as `NAME=value`; with `redact`, without secrets."""
    parts = [
        b"%s=%s\n" % (name.encode(), value.replace(b"\n", _INDENT)) for name, value in sorted(entry.fields.items())
    ]
    if entry.left_out:
        parts.append(b"[%d bytes more in this entry]\n" % entry.left_out)
    data = b"".join(parts)
    return render(data, 0, BytesContent(data), redact=redact, cut=False).encode()
