"""`wharfinger call`: call a tool with arguments from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["call"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger call http://127.0.0.1:8000/mcp search query=tides
  wharfinger call https://example.test/mcp berth ship=Mary 'draught:=6.5' 'notes=@notes.txt'
  wharfinger call --json add a:=1 b:=2 -- python server.py""",
)
@click.argument("words", nargs=-1, metavar="TARGET NAME [KEY=TEXT | KEY:=JSON]…")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def call(ctx: click.Context, /, words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Call the tool NAME.

    KEY=TEXT gives a string, KEY:=JSON any other value; a text that begins with @ is read from the file of that name.
    A tool that reports an error ends with exit code 1.
    """
    target, rest = split_words(ctx, words, ("NAME",))
    name, given = rest[0], arguments(ctx, rest[1:])
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.errors import ToolError

    async def work(client: Client) -> tuple[Any, ToolError | None]:
        try:
            return (await client.call_tool(name, given)).result, None
        except ToolError as error:
            return error.result, error

    result, error = with_client(ctx, target, connecting(options), work)
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(result)
        ctx.exit(1 if error else 0)
    if error is not None:
        hint = next((_as_json(word) for word in rest[1:] if _as_json(word)), "") if "got a string" in str(error) else ""
        if hint:
            from wharfinger.cli.failures import Failed

            raise Failed(f"{error}\n{hint}") from error
        raise error
    show(result)


def arguments(ctx: click.Context, words: tuple[str, ...]) -> dict[str, Any]:
    """Read `key=text` and `key:=json`."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        as_value = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise click.UsageError(f"{word!r}: write KEY=TEXT or KEY:=JSON.", ctx)
        if key in found:
            raise click.UsageError(f"{key!r} is given twice.", ctx)
        if text.startswith("@"):
            text = contents(ctx, text[1:])
        found[key] = value(ctx, key, text) if as_value else text
    return found


def _as_json(word: str) -> str:
    """What to write where a text was given that is another value in JSON; empty where it is none."""
    import msgspec

    key, _, text = word.partition("=")
    try:
        meant = not key.endswith(":") and not isinstance(msgspec.json.decode(text), str)
    except msgspec.DecodeError:
        return ""
    return f"{key}={text} sends a text: write {key}:={text} for the value." if meant else ""


def contents(ctx: click.Context, name: str) -> str:
    """Read an argument from a file."""
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"Cannot read {name}: {reason}.", ctx) from None


def value(ctx: click.Context, key: str, text: str) -> Any:
    """Read a JSON value."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{key}:={text} is not JSON ({error}); for a text write {key}={text}", ctx) from None


def show(result: Any) -> None:
    """Print what a tool answered: its text, or the structured content where there is none, and what else there is."""
    from wharfinger import types as t
    from wharfinger.cli.output import print_json, print_text
    from wharfinger.cli.words import printable, size

    if not result.content and result.structured_content is not None:
        print_json(result.structured_content)
    for block in result.content:
        if isinstance(block, t.TextContent):
            print_text(block.text if block.text.endswith("\n") else block.text + "\n")
        elif isinstance(block, (t.ImageContent, t.AudioContent)):
            click.echo(printable(f"[{block.mime_type}, {size(len(block.data))}: --json shows it]"))
        elif isinstance(block, t.ResourceLink):
            click.echo(printable(f"{block.uri}  {block.title or block.name}"))
        elif isinstance(block, t.EmbeddedResource) and isinstance(block.resource.text, str):
            print_text(block.resource.text)
        else:
            click.echo("[other content: --json shows it]")
