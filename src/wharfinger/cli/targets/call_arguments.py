"""Arguments of tools and prompts on the command line: KEY=TEXT, KEY:=JSON, and @FILE for a text from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import click
import msgspec

__all__ = ["NOT_JSON", "json_hint", "parse_arguments", "parse_texts", "read_input"]

NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""The exceptions of `msgspec.json.decode`; RecursionError is for JSON that is nested too deeply."""


def parse_texts(ctx: click.Context, words: tuple[str, ...]) -> dict[str, str]:
    """Read KEY=TEXT words; the arguments of prompts and completions are texts.

    Raises:
        click.UsageError: a word has another form, a key is given twice, or a file cannot be read.
    """
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key or key.endswith(":"):
            raise click.UsageError(f"{word!r}: write KEY=TEXT.", ctx)
        add(ctx, arguments, key, read_text(ctx, text))
    return arguments


def parse_arguments(ctx: click.Context, words: tuple[str, ...]) -> dict[str, Any]:
    """Read KEY=TEXT and KEY:=JSON words; raises as `parse_texts` does, and for invalid JSON."""
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        is_json = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise click.UsageError(f"{word!r}: write KEY=TEXT or KEY:=JSON{form_hint(words, word)}.", ctx)
        content = read_text(ctx, text)
        add(ctx, arguments, key, parse_json(ctx, key, content, shown=text) if is_json else content)
    return arguments


def read_input(ctx: click.Context, source: str | None) -> dict[str, Any]:
    """Read the arguments of `--input`: a file, or `-` for stdin; raises click.UsageError."""
    if source is None:
        return {}
    if source.lstrip().startswith("{"):
        raise click.UsageError(f"--input takes a file: write the JSON into one, or echo '{source}' | … --input -", ctx)
    data = sys.stdin.buffer.read() if source == "-" else read_file(ctx, source).encode()
    try:
        arguments = msgspec.json.decode(data)
    except NOT_JSON as error:
        raise click.UsageError(f"--input {source} is not JSON ({error}).", ctx) from None
    if not isinstance(arguments, dict):
        raise click.UsageError(f"--input {source} is not a JSON object.", ctx)
    return cast("dict[str, Any]", arguments)


def json_hint(word: str) -> str:
    """Return a hint to write KEY:=JSON if the TEXT of KEY=TEXT is a JSON value other than a string; otherwise empty."""
    key, _, text = word.partition("=")
    try:
        is_value = not key.endswith(":") and not isinstance(msgspec.json.decode(text), str)
    except NOT_JSON:
        return ""
    return f"{key}={text} sends a text: write {key}:={text} for the value." if is_value else ""


def add(ctx: click.Context, arguments: dict[str, Any], key: str, value: Any) -> None:
    """Add an argument; raises click.UsageError if there is one with this key."""
    if key in arguments:
        raise click.UsageError(f"{key!r} is given twice.", ctx)
    arguments[key] = value


def read_text(ctx: click.Context, text: str) -> str:
    """Return a text, or the content of the file that it names after an @."""
    return read_file(ctx, text[1:]) if text.startswith("@") else text


def read_file(ctx: click.Context, name: str) -> str:
    """Read a file as UTF-8. Its line ends are kept."""
    try:
        return Path(name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"Cannot read {name}: {reason}.", ctx) from None


def parse_json(ctx: click.Context, key: str, text: str, shown: str) -> Any:
    """Return the value of a JSON text. An error has `shown`, the text as it was typed, not the content of a file."""
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        raise click.UsageError(f"{key}:={shown} is not JSON ({error}); for a text write {key}={shown}.", ctx) from None


def form_hint(words: tuple[str, ...], word: str) -> str:
    """Return a hint about the likely mistake in a word that is not an argument, or an empty string."""
    if word.lstrip().startswith("{"):
        return "; --input FILE, or --input -, reads a whole JSON object from a file or stdin"
    if "=" in words:
        return ", without spaces around the ="
    return ""
