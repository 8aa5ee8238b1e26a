"""Displays for a chat: the base class shows nothing, `TerminalDisplay` writes lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import msgspec

from wharfinger import types as t
from wharfinger.chat.model_clients.message_parts import result_parts
from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import escape_controls, many, printable

if TYPE_CHECKING:
    from wharfinger.chat.question_context import UsedResource

__all__ = ["ChatDisplay", "TerminalDisplay", "call_text"]

NAME_CHARACTERS = 128
ARGUMENT_CHARACTERS = 400
RESULT_CHARACTERS = 200
SHOWN_RESOURCES = 12


class ChatDisplay:
    """Receives the events of an answer. The methods of this class do nothing."""

    def context(self, used: Sequence[UsedResource], notes: Sequence[str]) -> None:
        """Show the resources for a question, and notes about mentioned ones that were left out."""

    def text(self, piece: str) -> None:
        """Show a piece of the answer."""

    def call(self, call: t.ToolUseContent) -> None:
        """Show that the model calls a tool."""

    def result(self, call: t.ToolUseContent, result: t.ToolResultContent) -> None:
        """Show the result of a call."""

    def note(self, line: str) -> None:
        """Show a remark."""

    def end(self) -> None:
        """End the line of the answer."""


class TerminalDisplay(ChatDisplay):
    """Writes answers to `out` (stdout), and everything else to `err` (stderr). Control characters are escaped."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._quiet = quiet
        self._in_line = False
        """Whether the last piece of an answer ended in the middle of a line."""

    def context(self, used: Sequence[UsedResource], notes: Sequence[str]) -> None:
        for resource in used[:SHOWN_RESOURCES]:
            self.note(f"  @{resource.uri}  {resource.server}, {many(resource.tokens, 'token')}, {resource.reason}")
        if len(used) > SHOWN_RESOURCES:
            self.note(f"  and {many(len(used) - SHOWN_RESOURCES, 'more resource')}: /context lists all")
        for note in notes:
            self.note(f"  {note}")

    def text(self, piece: str) -> None:
        write(self._out, escape_controls(piece, keep="\n\t"))
        self._in_line = not piece.endswith("\n")

    def call(self, call: t.ToolUseContent) -> None:
        self.note(f"→ {call_text(call)}")

    def result(self, call: t.ToolUseContent, result: t.ToolResultContent) -> None:
        text, pictures = result_parts(result)
        line = " ".join(text[: 4 * RESULT_CHARACTERS].split())
        if len(line) > RESULT_CHARACTERS or len(text) > 4 * RESULT_CHARACTERS:
            line = f"{line[:RESULT_CHARACTERS]}… ({len(text):,} characters)"
        if pictures:
            line = f"{line} [{many(len(pictures), 'picture')}]".strip()
        name = printable(call.name, NAME_CHARACTERS)
        self.note(f"{'✗' if result.is_error is True else '←'} {name}: {line or 'no content'}")

    def note(self, line: str) -> None:
        self.end()
        if not self._quiet:
            write(self._err, escape_controls(line.replace("\n", " ")) + "\n")

    def end(self) -> None:
        if self._in_line:
            write(self._out, "\n")
            self._in_line = False


def write(stream: TextIO, text: str) -> None:
    """Write text, and flush the stream. Characters that its encoding lacks, as on an old terminal, are escaped."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def call_text(call: t.ToolUseContent) -> str:
    """Return a call as one line: the tool and its arguments, shortened. Texts that look like secrets are hidden."""
    arguments = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in call.input.items())
    shown = redacted_text(arguments)  # before it is shortened: the first part of a secret may not look like one
    if len(shown) > ARGUMENT_CHARACTERS:
        shown = f"{shown[:ARGUMENT_CHARACTERS]}… ({len(arguments):,} characters)"
    return f"{printable(redacted_text(call.name), NAME_CHARACTERS)}({shown})"
