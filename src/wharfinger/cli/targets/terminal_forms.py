"""Asks a person a server's questions at the terminal, field by field; declines them if there is no terminal."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.text import escape_controls
from wharfinger.net import page_host

__all__ = ["TerminalForms", "choices_of", "read_field"]

Value = str | int | float | bool | list[str]
LINE_BYTES = 64 * 1024
"""Maximum bytes of a line from the terminal."""
YES, NO = frozenset(("y", "yes", "true", "1")), frozenset(("n", "no", "false", "0"))


class FormDeclined(Exception):
    """The person declined by an answer or Ctrl-D, a typed line is too long, or the terminal was closed."""


class TerminalForms:
    """Asks a person the questions of servers, one at a time. `before` is called before each question is printed.

    Text that was typed before a question appeared is dropped: it does not answer the question, and a server must not
    get it.
    """

    def __init__(self, before: Callable[[], None] | None = None) -> None:
        self._before = before
        self._turn = asyncio.Lock()
        self._rest = b""
        """Input that was read after the end of the last line."""

    @property
    def has_terminal(self) -> bool:
        """Whether a person can be asked: stdin and stderr are a terminal."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    async def form(self, question: t.ElicitRequestParams) -> dict[str, Any] | str:
        """Ask for the fields of a form one by one, and return the values or `decline`."""
        answers = await self._in_turn(question, self._ask_form)
        return "decline" if answers is None else answers

    async def consent(self, question: t.ElicitRequestParams) -> bool:
        """Show a URL with its host, and return whether the person agreed to open it."""
        return await self._in_turn(question, self._ask_consent) is not None

    async def choose(self, lines: Sequence[str], prompt: str, *, lower: bool = True) -> str:
        """Show lines and return the typed text, in lower case unless `lower` is False.

        Returns an empty string without a terminal, and for Ctrl-D.
        """
        async with self._turn:
            self._begin()
            if not self.has_terminal:
                return ""
            for line in lines:
                show(line)
            try:
                typed = await self._read_line(prompt)
                return typed.lower() if lower else typed
            except FormDeclined:
                return ""

    async def _in_turn(
        self, question: t.ElicitRequestParams, ask: Callable[[t.ElicitRequestParams], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any] | None:
        """Ask a question as soon as the earlier ones are answered. Returns None if it is declined."""
        async with self._turn:
            self._begin()
            if not self.has_terminal:
                show(
                    f"wharfinger: declined the question {question.message!r} of the server:"
                    " there is no terminal to answer at."
                )
                return None
            try:
                return await ask(question)
            except FormDeclined:
                show("Declined.")
                return None

    def _begin(self) -> None:
        """Prepare the terminal for a question."""
        if self._before is not None:
            self._before()
        self._rest = b""
        if self.has_terminal:
            drop_typed()

    async def _ask_consent(self, question: t.ElicitRequestParams) -> dict[str, Any]:
        url = question.url if isinstance(question.url, str) else ""
        host = page_host(url)
        if not host:
            show(f"{asker(question)} asks to open a page without a clear http:// or https:// address: {url}")
            raise FormDeclined
        show(f"{asker(question)} asks to open a page: {question.message}")
        show(f"  Host: {plain_host(host)}{'' if url.lower().startswith('https:') else '  (not encrypted)'}")
        show(f"  Page: {url}")
        while True:
            answer = await self._read_line("If you trust this host, open the page and type y; n declines> ")
            if answer.lower() in YES:
                return {}
            if answer.lower() in NO or not answer:
                raise FormDeclined

    async def _ask_form(self, question: t.ElicitRequestParams) -> dict[str, Any]:
        show(f"{asker(question)} asks: {question.message}")
        schema = question.requested_schema
        fields = {} if schema is UNSET else schema.properties
        required = () if schema is UNSET or schema.required is UNSET else schema.required
        show("  (Ctrl-D declines)" if fields else "  (y agrees, n declines)")
        if not fields and (await self._read_line("  ")).lower() not in YES:
            raise FormDeclined
        answers: dict[str, Any] = {}
        for name, field in fields.items():
            value = await self._ask_field(name, field, name in required)
            if value is not None:
                answers[name] = value
        return answers

    async def _ask_field(self, name: str, field: t.PrimitiveSchema, required: bool) -> Value | None:
        title = field.title if isinstance(field.title, str) else name
        about = f": {field.description}" if isinstance(field.description, str) else ""
        show(f"  {title}{about}{'' if required else ' (optional)'}")
        for number, (value, label) in enumerate(choices_of(field), 1):
            show(f"    {number}. {label}" + (f" ({value})" if value != label else ""))
        default = "" if field.default is UNSET else f" [{default_text(field.default)}]"
        while True:
            typed = await self._read_line(f"  {name}{default}> ")
            if not typed and field.default is not UNSET:
                return field.default
            if not typed and not required:
                return None
            try:
                return read_field(field, typed)
            except ValueError as error:
                show(f"    {error}")

    async def _read_line(self, prompt: str) -> str:
        sys.stderr.write(escape_controls(prompt))
        sys.stderr.flush()
        while b"\n" not in self._rest:
            data = await typed_bytes()
            if not data or len(self._rest) > LINE_BYTES:
                sys.stderr.write("\n")
                raise FormDeclined
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


async def typed_bytes() -> bytes:
    """Return the next input from the terminal, or b"" at its end. Can be cancelled, unlike a blocked `input()`."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    fd = sys.stdin.fileno()
    try:
        loop.add_reader(fd, settle, readable, None)
    except NotImplementedError:  # the event loop of Windows watches sockets only
        return await threaded_read(fd)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
    try:
        return os.read(fd, 4096)
    except OSError:  # the terminal was closed
        return b""


def asker(question: t.ElicitRequestParams) -> str:
    """Return the name of the server that asks, or `The server` if the question has no name."""
    return str(getattr(question, "server", "")) or "The server"


def drop_typed() -> None:
    """Drop typed text that was not read yet."""
    try:
        import termios
    except ImportError:  # on Windows
        return
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def settle(waiting: asyncio.Future[Any], value: object) -> None:
    """Set the result of a future, unless it is done."""
    if not waiting.done():
        waiting.set_result(value)


async def threaded_read(fd: int) -> bytes:
    """Read in a daemon thread, which does not delay the end of the program."""
    import threading

    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()

    def work() -> None:
        try:
            data = os.read(fd, 4096)
        except OSError:
            data = b""
        loop.call_soon_threadsafe(settle, read, data)

    threading.Thread(target=work, daemon=True).start()
    return await read


def show(line: str) -> None:
    """Print a line with the control characters escaped."""
    sys.stderr.write(escape_controls(line) + "\n")
    sys.stderr.flush()


def plain_host(host: str) -> str:
    """Write a host so that letters of other alphabets cannot be mistaken for ASCII."""
    if host.isascii():
        return host
    try:
        return f"{host.encode('idna').decode()} (shown as {host})"
    except UnicodeError:
        return f"{host.encode('unicode_escape').decode()} (not a valid name)"


def choices_of(field: t.PrimitiveSchema) -> list[tuple[str, str]]:
    """Return the choices of a field as value and label, or an empty list for a free field."""
    titled = field.one_of
    plain = field.enum
    if field.type == "array" and field.items is not UNSET:
        titled, plain = field.items.any_of, field.items.enum
    if titled is not UNSET:
        return [(option.const, option.title) for option in titled]
    if plain is UNSET:
        return []
    labels = plain if field.enum_names is UNSET or len(field.enum_names) != len(plain) else field.enum_names
    return list(zip(plain, labels, strict=True))


def default_text(value: Value) -> str:
    """Write a default value as a person would type it."""
    if isinstance(value, list):
        return ", ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def read_field(field: t.PrimitiveSchema, typed: str) -> Value:
    """Convert the typed text of one field.

    Raises:
        ValueError: it is not valid; the message says what to type.
    """
    if field.type == "array":
        return read_several(field, typed)
    if choices_of(field):
        return match_choice(choices_of(field), typed)
    return READERS[field.type](field, typed)


def read_several(field: t.PrimitiveSchema, typed: str) -> list[str]:
    """Convert choices separated by commas."""
    options = choices_of(field)
    chosen = list(dict.fromkeys(match_choice(options, word.strip()) for word in typed.split(",") if word.strip()))
    if field.min_items is not UNSET and len(chosen) < field.min_items:
        raise ValueError(f"Choose at least {field.min_items}, separated by commas.")
    if field.max_items is not UNSET and len(chosen) > field.max_items:
        raise ValueError(f"Choose at most {field.max_items}.")
    return chosen


def match_choice(options: list[tuple[str, str]], typed: str) -> str:
    """Return the value of the choice whose value, label or number was typed. A value takes precedence over a label."""
    for value, _ in options:
        if typed == value:
            return value
    for value, label in options:
        if typed.casefold() in (label.casefold(), value.casefold()):
            return value
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(options):
        return options[int(typed) - 1][0]
    raise ValueError(f"{typed!r} is not one of the choices: type one of them, or its number.")


def read_text(field: t.PrimitiveSchema, typed: str) -> str:
    """Check the length and format of a text."""
    if field.min_length is not UNSET and len(typed) < field.min_length:
        raise ValueError(f"Type at least {field.min_length} characters.")
    if field.max_length is not UNSET and len(typed) > field.max_length:
        raise ValueError(f"Type at most {field.max_length} characters.")
    if field.format is not UNSET and not FORMATS[field.format][0](typed):
        raise ValueError(f"Type {FORMATS[field.format][1]}.")
    return typed


def read_number(field: t.PrimitiveSchema, typed: str) -> int | float:
    """Convert a number and check its bounds."""
    whole = field.type == "integer"
    try:
        # A whole number stays exact. With more than 300 digits, `int` may refuse it, and `float` says "infinity".
        number = int(typed) if whole or re.fullmatch(r"[-+]?\d{1,300}", typed) else float(typed)
    except ValueError:
        raise ValueError("Type a whole number." if whole else "Type a number.") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("Type a number.")
    if field.minimum is not UNSET and number < field.minimum:
        raise ValueError(f"Type {field.minimum} or more.")
    if field.maximum is not UNSET and number > field.maximum:
        raise ValueError(f"Type {field.maximum} or less.")
    return number


def read_yes(field: t.PrimitiveSchema, typed: str) -> bool:
    """Convert yes or no."""
    if typed.lower() not in YES | NO:
        raise ValueError("Type y or n.")
    return typed.lower() in YES


READERS: dict[str, Callable[[t.PrimitiveSchema, str], Value]] = {
    "string": read_text,
    "number": read_number,
    "integer": read_number,
    "boolean": read_yes,
}


def parses(kind: type[date], form: str) -> Callable[[str], bool]:
    """Return a function that returns whether a text has this form (RFC 3339 §5.6) and is a date of the calendar."""

    def check(text: str) -> bool:
        try:
            return re.fullmatch(form, text, re.ASCII) is not None and bool(kind.fromisoformat(text))
        except ValueError:
            return False

    return check


FORMATS: dict[str, tuple[Callable[[str], bool], str]] = {
    "email": (lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None, "an e-mail address"),
    "uri": (lambda text: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text) is not None, "a URI, with its scheme"),
    "date": (parses(date, r"\d{4}-\d\d-\d\d"), "a date such as 2026-07-28"),
    "date-time": (
        parses(datetime, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"),
        "a time with its zone, such as 2026-07-28T09:30:00Z",
    ),
}
"""For each format: the function that checks a text, and the description of what to type."""
