"""What went over a connection, line by line, and whether it is what went over it before; connects nothing.

A file has a line for each message: `> ` and what the client said, `< ` and what the server said; `# ` is a remark.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from wharfinger.testing.differences import Differs

__all__ = ["VOLATILE", "Line", "Transcript", "essence"]

VOLATILE = frozenset(
    {
        "clientInfo",
        "serverInfo",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/serverInfo",
        "requestState",
        "cursor",
        "nextCursor",
        "taskId",
    }
)
"""Members that are another every time, or with every version of the two ends: no comparison looks at them."""


Who = Literal[">", "<", "#"]

_WHO: dict[str, Who] = {"> ": ">", "< ": "<", "# ": "#"}


class Line(NamedTuple):
    """One message and who said it; `#` is nobody's, and a remark."""

    who: Who
    text: str


class Transcript:
    """The messages of a connection, in the order in which they were said."""

    def __init__(self, lines: Collection[Line] = ()) -> None:
        self.lines = list(lines)
        """Everything, with remarks such as `# cut`."""

    def __str__(self) -> str:
        return "".join(f"{line.who} {line.text}\n" for line in self.lines)

    @classmethod
    def parse(cls, text: str) -> Transcript:
        """Read what `str()` wrote.

        Raises:
            ValueError: a line begins with something else.
        """
        # JSON may hold other line ends, such as U+2028, as they are.
        return cls([_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Transcript:
        """Read a file.

        Raises:
            OSError, ValueError: it cannot be read, or is no transcript.
        """
        return cls.parse(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, and the folders above it."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(str(self), encoding="utf-8")

    def messages(self, who: Literal[">", "<"] | None = None) -> Iterator[dict[str, Any]]:
        """The messages of both ends, or of one, decoded."""
        for line in self.lines:
            if line.who != "#" and who in (None, line.who):
                yield msgspec.json.decode(line.text, type=dict[str, Any])

    def compare(self, other: Transcript, *, ignore: Collection[str] = ()) -> None:
        """Do nothing if the other has the same messages.

        The order of members does not count, nor do those of `VOLATILE` and of `ignore`, wherever they stand.

        Raises:
            Differs: at the first message that differs.
        """
        skipped = VOLATILE | frozenset(ignore)
        mine, theirs = self._said(skipped), other._said(skipped)
        for number in range(max(len(mine), len(theirs))):
            one, two = ((lines[number] if number < len(lines) else "nothing") for lines in (mine, theirs))
            if one != two:
                raise Differs(f"Message {number + 1} was\n  {one}\nand is now\n  {two}")

    def check(self, path: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> None:
        """Compare with a file; write it where there is none yet, or where `WHARFINGER_RECORD` is set.

        Raises:
            Differs: the file has other messages.
        """
        if os.environ.get("WHARFINGER_RECORD") or not Path(path).exists():
            self.save(path)
            return
        try:
            Transcript.load(path).compare(self, ignore=ignore)
        except Differs as error:
            raise Differs(f"{error}\nIf this is meant: set WHARFINGER_RECORD=1 to write {path} anew.") from None

    def _said(self, skipped: frozenset[str]) -> list[str]:
        return [f"{line.who} {essence(line.text, skipped)}" for line in self.lines if line.who != "#"]


def essence(text: str, skipped: frozenset[str] = VOLATILE) -> str:
    """A message without what does not count, in one order."""
    return msgspec.json.encode(_without(msgspec.json.decode(text), skipped), order="sorted").decode()


def _without(value: Any, skipped: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, skipped) for key, item in value.items() if key not in skipped}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return [_without(item, skipped) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _line(number: int, text: str) -> Line:
    who = _WHO.get(text[:2])
    if who is not None:
        return Line(who, text[2:])
    raise ValueError(f"line {number} begins with neither '> ' nor '< ' nor '# '")
