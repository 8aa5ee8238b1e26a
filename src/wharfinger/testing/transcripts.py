"""Recorded messages of a connection (see `testing.wire`): saved, loaded, and compared with an earlier recording.

A file has one line per message, which begins with `> ` if the client sent it, and with `< ` if the server did. Lines
that begin with `# ` are remarks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from wharfinger.testing.mismatch import Mismatch

__all__ = ["VOLATILE_KEYS", "Line", "Transcript", "normalized"]

VOLATILE_KEYS = frozenset(
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
"""Members that comparisons skip, because they differ between runs, or between versions of the software."""

Sender = Literal[">", "<", "#"]

_SENDERS: dict[str, Sender] = {"> ": ">", "< ": "<", "# ": "#"}


class Line(NamedTuple):
    """One message and who sent it: `>` for the client, `<` for the server; `#` for a remark."""

    sender: Sender
    text: str


class Transcript:
    """The messages of a connection, in the order in which they were sent."""

    def __init__(self, lines: Collection[Line] = ()) -> None:
        self.lines = list(lines)
        """All messages, and remarks such as `# cut`."""

    def __str__(self) -> str:
        return "".join(f"{line.sender} {line.text}\n" for line in self.lines)

    @classmethod
    def parse(cls, text: str) -> Transcript:
        """Parse the text that `str()` returned.

        Raises:
            ValueError: a line does not begin with `> `, `< ` or `# `.
        """
        lines: list[Line] = []
        # Not splitlines(): JSON text may contain U+2028, where that would split.
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            sender = _SENDERS.get(line[:2])
            if sender is None:
                raise ValueError(f"line {number} does not begin with '> ', '< ' or '# '")
            lines.append(Line(sender, line[2:]))
        return cls(lines)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Transcript:
        """Read a file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is not a transcript.
        """
        return cls.parse(Path(path).read_text(encoding="utf-8"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, and create its folder if necessary."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(str(self), encoding="utf-8")

    def messages(self, sender: Literal[">", "<"] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the decoded messages, of both ends or of one; those of a batch one by one.

        Raises:
            ValueError: a line is not a message or a batch.
        """
        for line in self.lines:
            if line.sender != "#" and sender in (None, line.sender):
                decoded: dict[str, Any] | list[dict[str, Any]] = msgspec.json.decode(
                    line.text, type=dict[str, Any] | list[dict[str, Any]]
                )
                yield from decoded if isinstance(decoded, list) else [decoded]

    def compare(self, other: Transcript, *, ignore: Collection[str] = ()) -> None:
        """Raise an error unless `other`, a later transcript, has the same messages.

        The order of members does not matter. Members named in `VOLATILE_KEYS` or `ignore` are skipped at any depth.

        Raises:
            Mismatch: a message differs; the first one is named.
        """
        skipped = VOLATILE_KEYS | frozenset(ignore)
        own_lines, other_lines = self._normalized_lines(skipped), other._normalized_lines(skipped)
        for number in range(max(len(own_lines), len(other_lines))):
            before, now = ((lines[number] if number < len(lines) else "nothing") for lines in (own_lines, other_lines))
            if before != now:
                raise Mismatch(f"Message {number + 1} was\n  {before}\nand is now\n  {now}")

    def check(self, path: str | os.PathLike[str], *, ignore: Collection[str] = ()) -> None:
        """Compare with a file. If it does not exist, or `WHARFINGER_RECORD` is set, write it instead.

        Raises:
            Mismatch: a message differs from that of the file.
        """
        if os.environ.get("WHARFINGER_RECORD") or not Path(path).exists():
            self.save(path)
            return
        try:
            Transcript.load(path).compare(self, ignore=ignore)
        except Mismatch as error:
            raise Mismatch(f"{error}\nIf this is intended, set WHARFINGER_RECORD=1 to write {path} again.") from None

    def _normalized_lines(self, skipped: frozenset[str]) -> list[str]:
        return [f"{line.sender} {normalized(line.text, skipped)}" for line in self.lines if line.sender != "#"]


def normalized(text: str, skipped: frozenset[str] = VOLATILE_KEYS) -> str:
    """Return a message without the skipped members, and with the others sorted; unchanged if it is not JSON."""
    try:
        message = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.json.encode(_without(message, skipped), order="sorted").decode()


def _without(value: Any, skipped: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, skipped) for key, item in value.items() if key not in skipped}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return [_without(item, skipped) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
