"""Finds the location of an error in the code of a server's author: file, line and exception, without library frames.

The command line starts servers and keeps their standard error. When a call fails, this module finds its traceback there
by the reference that the error message and the log have in common.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["ServerStderr", "TracebackFrame", "add_location", "cause_in", "ending_lines", "frames_of", "place_of"]

SHOWN_FRAMES = 3
"""Maximum number of frames of the author's code that are shown: the innermost ones."""
MESSAGE_LINES = 6
"""Maximum number of lines of an exception's text that are shown."""
KEPT_LINES = 2000
"""Maximum number of lines of a server's standard error that are kept."""

_GROUP = re.compile(r"^ *[|+] ?")
"""The beginning of each line of an exception group."""
_HEAD = re.compile(r" *(?:Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?$')
_LOG_LINE = re.compile(r"\d\d:\d\d:\d\d [a-z]+ ")
_NOT_EXCEPTION = re.compile(r"wharfinger: |\S+:\d+: \w*Warning: ")
"""The beginning of a line that may follow an exception and is not part of it."""
_REFERENCE = re.compile(r"\(reference ([0-9a-f]{8,})\)")
_CHAINED = ("During handling of the above", "The above exception was")


class TracebackFrame(NamedTuple):
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def is_library(self) -> bool:
        """Whether the file belongs to a library or to Python, and not to the author."""
        return self.file.startswith(("<frozen", _PACKAGE)) or _LIBRARY.search(self.file) is not None

    def lines(self) -> list[str]:
        """Return the lines that Python prints, with a relative path."""
        head = f'File "{short(self.file)}", line {self.line}' + (f", in {self.function}" if self.function else "")
        return [head, f"  {self.code}"] if self.code else [head]


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = re.compile(
    r"[/\\](?:lib[/\\]python3[^/\\]*|site-packages|dist-packages|src[/\\]wharfinger)[/\\]"
    r"|\\Lib\\|\.pyx\Z"  # compiled by Cython, as uvloop is: its traceback names the source without a folder
)
"""A folder of Python's modules (on Windows `Lib`), of installed packages, or of another copy of this package."""


def short(file: str) -> str:
    """Return a path, relative if it is below the current folder."""
    try:
        folder = os.getcwd() + os.sep
    except FileNotFoundError:  # it was deleted
        return file
    return file.removeprefix(folder) if file.startswith(folder) else file


class ServerStderr:
    """Keeps the standard error of a server; with `show`, each line is also printed."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.show = False

    def take(self, line: str) -> None:
        """Keep one line."""
        self.lines.append(line)
        if self.show:
            from wharfinger.content.redaction import redacted_text
            from wharfinger.content.text import escape_controls

            print(f"  | {escape_controls(redacted_text(line))}", file=sys.stderr, flush=True)


def cause_in(lines: Iterable[str], message: str) -> list[str]:
    """Find the cause of an error in a server's standard error, and return the lines to show, if any.

    If the message has a reference, the cause is the traceback after the last line with that reference, or the line
    itself if no traceback follows. A traceback there without frames of the author is not shown. Without a reference,
    the cause is the last traceback. Of a traceback, the author's frames and the exceptions are shown.
    """
    lines = list(lines)
    reference = _REFERENCE.search(message)
    if reference is None:
        return _without_repetition([line for part in _tracebacks(lines)[-1:] for line in part], message)
    found_at = next((index for index in reversed(range(len(lines))) if reference[1] in lines[index]), None)
    if found_at is None:
        return []
    later_lines = lines[found_at + 1 :]
    end = next((index for index, line in enumerate(later_lines) if _LOG_LINE.match(line)), len(later_lines))
    traceback_lines = [line for part in _tracebacks(later_lines[:end])[:1] for line in part]
    if not traceback_lines:
        return [_LOG_LINE.sub("", lines[found_at])]
    unrepeated = _without_repetition(traceback_lines, message)
    # Without a frame of the author, the message is enough: a wrong return value has no traceback.
    return unrepeated if any(line.startswith('File "') for line in unrepeated) else []


def _without_repetition(lines: Sequence[str], message: str) -> list[str]:
    """Return the lines without exceptions whose text is in the message. Indented lines, which are code, are kept."""
    return [
        line for line in lines if line.startswith(" ") or not (text := line.partition(": ")[2]) or text not in message
    ]


def add_location(message: str, lines: Iterable[str]) -> str:
    """Add the location in the author's code to a message with a reference, if the server's stderr has it."""
    if not _REFERENCE.search(message):
        return message
    locations = [line for line in cause_in(lines, message) if line.startswith('File "')]
    return f"{message}, {locations[-1]}" if locations else message


def _tracebacks(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines to show of each traceback. Chained tracebacks count as one."""
    shown_tracebacks: list[list[str]] = []
    frames: list[TracebackFrame] | None = None
    exception_lines: list[str] = []
    chained = False

    def finish() -> None:
        nonlocal frames, chained
        if frames is None:
            return
        part = [line for frame in author_frames(frames) for line in frame.lines()] + exception_lines
        if not (chained and shown_tracebacks):  # the first of a chain may be older than the lines that are kept
            shown_tracebacks.append([])
        shown_tracebacks[-1] += [line for line in part if line not in shown_tracebacks[-1]]
        frames, chained = None, False
        exception_lines.clear()

    for printed_line in lines:
        line = _GROUP.sub("", printed_line)
        frame = _FRAME.match(line)
        if _HEAD.match(line):
            within_group = frames is not None
            finish()
            frames, chained = [], chained or within_group
        elif line.startswith(_CHAINED):
            finish()
            chained = True
        elif frames is None:
            continue
        elif _LOG_LINE.match(line) or _NOT_EXCEPTION.match(line):
            finish()
        elif frame is not None:
            frames.append(TracebackFrame(frame[1], int(frame[2]), frame[3] or ""))
        elif line.startswith("    ") and not exception_lines:
            if frames and not frames[-1].code:
                frames[-1] = frames[-1]._replace(code=line.strip())
        # In a group, a line of hyphens with a number precedes each exception.
        elif line.strip() and "-----" not in line and len(exception_lines) < MESSAGE_LINES:
            exception_lines.append(line.strip())
        elif exception_lines and not line.strip():
            finish()
    finish()
    return shown_tracebacks


def author_frames(frames: Sequence[TracebackFrame]) -> list[TracebackFrame]:
    """Return the innermost frames of the author's code. Of equal frames in a row, as in a recursion, one is kept."""
    own_frames = [frame for frame in frames if not frame.is_library]
    return [frame for frame, previous in zip(own_frames, [None, *own_frames], strict=False) if frame != previous][
        -SHOWN_FRAMES:
    ]


def ending_lines(lines: Iterable[str], limit: int = 5) -> list[str]:
    """Return the lines that explain why a server ended: its last traceback, or its last lines."""
    lines = list(lines)
    return cause_in(lines, "") or [line for line in lines if line.strip()][-limit:]


def frames_of(error: BaseException) -> list[TracebackFrame]:
    """Return the author's frames of an exception that was raised in this process."""
    import traceback

    summary = traceback.extract_tb(error.__traceback__)
    frames = [TracebackFrame(frame.filename, frame.lineno or 0, frame.name, frame.line or "") for frame in summary]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(TracebackFrame(error.filename, error.lineno or 0, "", (error.text or "").strip()))
    return author_frames(frames)


def place_of(error: BaseException) -> str:
    """Return the location in the author's code, such as `server.py, line 12`; an empty string if it is elsewhere."""
    frames = frames_of(error)
    return f"{short(frames[-1].file)}, line {frames[-1].line}" if frames else ""
