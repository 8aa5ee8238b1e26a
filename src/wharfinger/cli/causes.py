"""Where an error came from in the author's own code: file, line and exception, without the frames of libraries."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Frame", "Stderr", "cause_in", "frames_of", "last_words", "located", "place_of"]

FRAMES = 3
"""Frames of the author's code that are shown, the innermost ones."""
LINES = 6
"""Lines of an exception's text that are shown."""
KEPT = 2000
"""Lines of a server's standard error that are kept to look for a cause in."""

_GROUP = re.compile(r"^ *[|+] ?")
"""What stands before the lines of an exception group."""
_HEAD = re.compile(r" *(?:Exception Group )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?$')
_LOGGED = re.compile(r"\d\d:\d\d:\d\d [a-z]+ ")
_OTHER = re.compile(r"wharfinger: |\S+:\d+: \w*Warning: ")
"""What may follow an exception at once and is no part of it."""
_REFERENCE = re.compile(r"\(reference ([0-9a-f]{8,})\)")
_CHAINED = ("During handling of the above", "The above exception was")


class Frame(NamedTuple):
    """One line of code on the way to an error."""

    file: str
    line: int
    function: str
    code: str = ""

    @property
    def foreign(self) -> bool:
        """Tell whether it belongs to a library or to Python, and not to the author."""
        return self.file.startswith(("<frozen", _PACKAGE)) or _LIBRARY.search(self.file) is not None

    def lines(self) -> list[str]:
        """Write it as Python does, with a path that is short."""
        head = f'File "{short(self.file)}", line {self.line}' + (f", in {self.function}" if self.function else "")
        return [head, f"  {self.code}"] if self.code else [head]


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = re.compile(
    r"[/\\](?:lib[/\\]python3[^/\\]*|Lib|site-packages|dist-packages"
    r"|wharfinger[/\\](?:auth|cli|client|protocol|server|sources|store|testing|transports|types))[/\\]"
)
"""A folder of Python's own modules, of installed packages, or of another copy of this one, on any system."""


def short(file: str) -> str:
    """Write a path from the current folder if it is below."""
    here = os.getcwd() + os.sep
    return file.removeprefix(here) if file.startswith(here) else file


class Stderr:
    """What a server that we started writes on its standard error; with `show` each line is passed on at once."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.show = False

    def take(self, line: str) -> None:
        """Take one line."""
        self.lines.append(line)
        if self.show:
            from wharfinger.cli.words import printable
            from wharfinger.content.redaction import redacted_text

            print(f"  | {printable(redacted_text(line))}", file=sys.stderr, flush=True)


def cause_in(lines: Iterable[str], message: str) -> list[str]:
    """Find what caused the error of this message in a server's standard error; empty if nothing there does.

    If the message has a reference, that is the traceback after the last line with it, otherwise the last traceback.
    Of a traceback the author's frames are shown and what was raised; of chained ones every exception.
    """
    lines = list(lines)
    reference = _REFERENCE.search(message)
    if reference is None:
        return _unsaid([line for part in _tracebacks(lines)[-1:] for line in part], message)
    place = next((at for at in reversed(range(len(lines))) if reference[1] in lines[at]), None)
    if place is None:
        return []
    after = lines[place + 1 :]
    end = next((at for at, line in enumerate(after) if _LOGGED.match(line)), len(after))
    traced = [line for part in _tracebacks(after[:end])[:1] for line in part]
    if not traced:
        return [_LOGGED.sub("", lines[place])]
    news = _unsaid(traced, message)
    # Without a line of the author's own, the message says all: what a function returned has no traceback.
    return news if any(line.startswith('File "') for line in news) else []


def _unsaid(lines: Sequence[str], message: str) -> list[str]:
    """Leave out the exceptions whose text the message already has; lines of code, which are indented, all stay."""
    return [
        line for line in lines if line.startswith(" ") or not (said := line.partition(": ")[2]) or said not in message
    ]


def located(message: str, lines: Iterable[str]) -> str:
    """Add the place in the author's code to a message that has a reference, if the server's standard error has it."""
    if not _REFERENCE.search(message):
        return message
    places = [line for line in cause_in(lines, message) if line.startswith('File "')]
    return f"{message}, {places[-1]}" if places else message


def _tracebacks(lines: Sequence[str]) -> list[list[str]]:
    """Shorten every traceback; what is chained together is one."""
    found: list[list[str]] = []
    frames: list[Frame] | None = None
    raised: list[str] = []
    chained = False

    def finish() -> None:
        nonlocal frames, chained
        if frames is None:
            return
        part = [line for frame in authors(frames) for line in frame.lines()] + raised
        if not chained:
            found.append([])
        found[-1] += [line for line in part if line not in found[-1]]
        frames, chained = None, False
        raised.clear()

    for written in lines:
        line = _GROUP.sub("", written)
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
        elif _LOGGED.match(line) or _OTHER.match(line):
            finish()
        elif frame is not None:
            frames.append(Frame(frame[1], int(frame[2]), frame[3] or ""))
        elif line.startswith("    ") and not raised:
            if frames and not frames[-1].code:
                frames[-1] = frames[-1]._replace(code=line.strip())
        elif line.strip() and "-----" not in line and len(raised) < LINES:
            raised.append(line.strip())
        elif raised and not line.strip():
            finish()
    finish()
    return found


def authors(frames: Sequence[Frame]) -> list[Frame]:
    """Choose the author's frames, the innermost ones; none if all belong to others."""
    own = [frame for frame in frames if not frame.foreign]
    return [frame for frame, before in zip(own, [None, *own], strict=False) if frame != before][-FRAMES:]


def last_words(lines: Iterable[str], most: int = 5) -> list[str]:
    """The cause of a server's end: its last traceback, otherwise its last lines."""
    lines = list(lines)
    return cause_in(lines, "") or [line for line in lines if line.strip()][-most:]


def frames_of(error: BaseException) -> list[Frame]:
    """The author's frames of an exception that was raised in this process."""
    import traceback

    found = traceback.extract_tb(error.__traceback__)
    frames = [Frame(one.filename, one.lineno or 0, one.name, one.line or "") for one in found]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(Frame(error.filename, error.lineno or 0, "", (error.text or "").strip()))
    return authors(frames)


def place_of(error: BaseException) -> str:
    """Write where in the author's code an exception was raised: `server.py, line 12`, or nothing."""
    frames = frames_of(error)
    return f"{short(frames[-1].file)}, line {frames[-1].line}" if frames else ""
