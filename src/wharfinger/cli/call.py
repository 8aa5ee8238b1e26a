"""`wharfinger call`: call a tool with arguments from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from wharfinger.cli.completing import complete_words
from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["call"]


class CallCommand(TargetCommand):
    """A command whose unknown options were probably meant for the tool."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say how the arguments of a tool are written."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if any(option.startswith(error.option_name) for option in error.possibilities or ()):
                raise
            raise click.UsageError(
                f"No such option {error.option_name!r}. An argument of the tool is written"
                f" {error.option_name.lstrip('-')}=TEXT.",
                ctx,
            ) from None


@click.command(
    cls=CallCommand,
    epilog="""\b
Examples:
  wharfinger call http://127.0.0.1:8000/mcp search query=tides
  wharfinger call https://example.test/mcp berth ship=Mary 'draught:=6.5' 'notes=@notes.txt'
  wharfinger call harbour berth --input arguments.json ship=Mary
  wharfinger call --json add a:=1 b:=2 -- python server.py""",
)
@click.argument(
    "words", nargs=-1, metavar="TARGET NAME [KEY=TEXT | KEY:=JSON]…", shell_complete=complete_words("tools")
)
@click.option("--input", "source", metavar="FILE", help="Read the arguments, one JSON object, from FILE; - is stdin.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Save images, audio and other binary content in DIR.",
)
@json_option
@connection_options
@verbosity_options
@click.pass_context
def call(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    source: str | None,
    folder: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Call the tool NAME.

    KEY=TEXT gives a string, KEY:=JSON any other value; a text that begins with @ is read from the file of that name.
    They win over what --input has. Progress, and with -v what the server logs, is shown on stderr; each sign of
    progress begins --timeout anew. What the server asks is asked at the terminal; where there is none it is declined.
    A tool that reports an error ends with exit code 1.
    """
    target, rest = split_words(ctx, words, ("NAME",), "`wharfinger ls --tools TARGET` lists the tools")
    name, given = rest[0], {**from_input(ctx, source), **arguments(ctx, rest[1:])}
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.cli.near import suggesting
    from wharfinger.cli.talking import Talking
    from wharfinger.errors import ToolError

    talking = Talking(ctx.obj)

    async def work(client: Client) -> Any:
        try:
            async with suggesting(name, (client.list_tools, "name")):
                return (await client.call_tool(name, given, progress=talking.progress, reset_on_progress=True)).result
        finally:
            talking.clear()

    failed: ToolError | None = None
    try:
        result = with_client(ctx, target, connecting(options), work, **talking.handlers)
    except ToolError as error:
        result, failed = error.result, error
    saved = save_blocks(folder, name, result.content) if folder else {}
    for path, amount in saved.values():
        talking.tell(f"Wrote {path} ({amount}).")
    if as_json:
        from wharfinger.cli.output import print_json

        print_json(result)
        ctx.exit(1 if failed else 0)
    if failed is not None:
        hint = next((_as_json(word) for word in rest[1:] if _as_json(word)), "")
        if hint and "got a string" in str(failed):
            failed.add_note(hint)
        raise failed
    show(result, saved)


def from_input(ctx: click.Context, source: str | None) -> dict[str, Any]:
    """Read the arguments of `--input`."""
    if source is None:
        return {}
    import sys

    import msgspec

    if source.lstrip().startswith("{"):
        raise click.UsageError(f"--input takes a file: write the JSON into one, or echo '{source}' | … --input -", ctx)
    text = sys.stdin.buffer.read() if source == "-" else contents(ctx, source).encode()
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--input {source} is not JSON ({error}).", ctx) from None
    if not isinstance(found, dict):
        raise click.UsageError(f"--input {source} is no JSON object.", ctx)
    return cast("dict[str, Any]", found)


def arguments(ctx: click.Context, words: tuple[str, ...]) -> dict[str, Any]:
    """Read `key=text` and `key:=json`."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        as_value = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise click.UsageError(f"{word!r}: write KEY=TEXT or KEY:=JSON{in_other_words(words, word)}.", ctx)
        if key in found:
            raise click.UsageError(f"{key!r} is given twice.", ctx)
        if text.startswith("@"):
            text = contents(ctx, text[1:])
        found[key] = value(ctx, key, text) if as_value else text
    return found


def in_other_words(words: tuple[str, ...], word: str) -> str:
    """Say what was probably meant by a word that is no argument."""
    if word.lstrip().startswith("{"):
        return "; a whole JSON object is read from a file or stdin by --input FILE, or --input -"
    if "=" in words:
        return ", without blanks around the ="
    return ""


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


def show(result: Any, saved: dict[int, tuple[Path, str]]) -> None:
    """Print what a tool answered: its text, or the structured content where there is none, and what else there is."""
    from msgspec import UNSET

    from wharfinger import types as t
    from wharfinger.cli.blocks import print_block
    from wharfinger.cli.output import print_json

    structured = result.structured_content
    if not result.content and structured is not UNSET:
        print_json(structured)
    for place, block in enumerate(result.content):
        if isinstance(block, t.TextContent) and says_the_same(block.text, structured):
            print_json(structured)
        elif place not in saved:
            print_block(block)


def says_the_same(text: str, structured: Any) -> bool:
    """Tell whether a text is the structured content once more, as the protocol advises servers to send it."""
    import msgspec

    if not isinstance(structured, dict):
        return False
    try:
        return bool(msgspec.json.decode(text) == structured)
    except msgspec.DecodeError:
        return False


def save_blocks(folder: Path, name: str, blocks: list[Any]) -> dict[int, tuple[Path, str]]:
    """Write the binary blocks into a folder; return the file and size of each by its place."""
    from wharfinger.cli.blocks import binary_of
    from wharfinger.cli.files import new_file
    from wharfinger.cli.words import size, slug

    saved: dict[int, tuple[Path, str]] = {}
    for place, block in enumerate(blocks):
        found = binary_of(block)
        if found is not None:
            kind, data = found
            saved[place] = (new_file(folder, slug(name, fallback="result"), kind, data), size(len(data)))
    return saved
