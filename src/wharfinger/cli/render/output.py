"""Printing on stdout: lines and columns for people, one JSON value per line for programs, bytes as they are."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from wharfinger.cli.render.formatting import columns
from wharfinger.content.text import escape_controls

__all__ = ["print_bytes", "print_json", "print_rows", "print_text", "stdout_is_terminal"]


def stdout_is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print a value as JSON (UTF-8) with the names of the protocol.

    It is one line; at a terminal it is indented and in colour, if rich is installed and NO_COLOR is not set.
    """
    line = printable_json(msgspec.json.encode(value).decode("utf-8"))
    if stdout_is_terminal() and not os.environ.get("NO_COLOR"):
        try:
            from rich.console import Console
            from rich.highlighter import JSONHighlighter
        except ImportError:  # without the extra `pretty`
            pass
        else:
            indented = msgspec.json.format(line, indent=2)  # unlike rich, it keeps the escapes
            Console(highlight=False, soft_wrap=True).print(JSONHighlighter()(indented))
            return
    print_bytes(f"{line}\n".encode())


def printable_json(line: str) -> str:
    """Escape the control characters that JSON allows in a text: DEL, C1 controls and direction marks."""
    if line.isascii() and line.isprintable():
        return line
    safe_line = escape_controls(line)
    if safe_line == line:
        return line
    return "".join(
        character if escape_controls(character) == character else f"\\u{ord(character):04x}" for character in line
    )


def print_rows(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns, with the control characters escaped."""
    for line in columns([tuple(escape_controls(cell) for cell in row) for row in rows]):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text: unchanged into a file or pipe; at a terminal with control characters escaped, and with a line end."""
    data = escape_controls(text, keep="\n\t\r") if stdout_is_terminal() else text
    print_bytes(data.encode("utf-8", "surrogatepass"))
    if stdout_is_terminal() and not text.endswith("\n"):
        print_bytes(b"\n")


def print_bytes(data: bytes) -> None:
    """Print bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
