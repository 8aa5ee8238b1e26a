"""`wharfinger call`: calls a tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_of, verbosity_options
from wharfinger.cli.targets.call_arguments import NOT_JSON, json_hint, parse_arguments, read_input
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client

__all__ = ["call"]


class CallCommand(TargetCommand):
    """A command that, for an unknown option, explains how to write an argument of a tool."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Report an unknown option as a probable argument of the tool."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if any(option.startswith(error.option_name) for option in error.possibilities or ()):
                raise  # the beginning of an option, such as --out: click suggests the option
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
@click.option("--input", "source", metavar="FILE", help="Read the arguments from FILE, as one JSON object; - is stdin.")
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

    KEY=TEXT passes a string, KEY:=JSON any other value, and KEY=@FILE the text of a file. They override the arguments
    of --input. stderr shows progress (each report restarts --timeout) and, with -v, the log of the server. At a
    terminal you are asked the questions of the server; elsewhere they are declined. The exit code is 1 if the tool
    reports an error.
    """
    target, rest = split_words(ctx, words, ("NAME",), "`wharfinger ls --tools TARGET` lists the tools")
    name, arguments = rest[0], {**read_input(ctx, source), **parse_arguments(ctx, rest[1:])}
    from wharfinger.cli.suggestions import suggest_names
    from wharfinger.cli.targets.client_callbacks import ClientCallbacks
    from wharfinger.cli.targets.open_client import take_connection_options, with_client
    from wharfinger.errors import ToolError

    callbacks = ClientCallbacks(verbosity_of(ctx))

    async def work(client: Client) -> Any:
        try:
            async with suggest_names(name, (client.list_tools, "name")):
                return (
                    await client.call_tool(name, arguments, progress=callbacks.progress, reset_on_progress=True)
                ).result
        finally:
            callbacks.clear()

    tool_error: ToolError | None = None
    try:
        result = with_client(ctx, target, take_connection_options(options), work, **callbacks.handlers)
    except ToolError as error:
        result, tool_error = error.result, error
    saved = save_blocks(folder, name, result.content) if folder else {}
    for path, amount in saved.values():
        callbacks.say(f"Wrote {path} ({amount}).")
    if as_json:
        from wharfinger.cli.render.output import print_json

        print_json(result)
        ctx.exit(1 if tool_error else 0)
    if tool_error is not None:
        hint = next((hint for hint in map(json_hint, rest[1:]) if hint), "")
        if hint and "got a string" in str(tool_error):
            tool_error.add_note(hint)
        raise tool_error
    show(result, saved)


def show(result: Any, saved: dict[int, tuple[Path, str]]) -> None:
    """Print the content of a result, without the blocks in `saved`. Structured content replaces a text that repeats it.

    If there is no content, the structured content is printed.
    """
    from msgspec import UNSET

    from wharfinger import types as t
    from wharfinger.cli.render.content_blocks import print_block
    from wharfinger.cli.render.output import print_json

    structured = result.structured_content
    if not result.content and structured is not UNSET:
        print_json(structured)
    for index, block in enumerate(result.content):
        if isinstance(block, t.TextContent) and is_same_content(block.text, structured):
            print_json(structured)
        elif index not in saved:
            print_block(block)


def is_same_content(text: str, structured: Any) -> bool:
    """Return whether a text repeats the structured content, as the protocol advises."""
    import msgspec

    if not isinstance(structured, dict):
        return False
    try:
        return bool(msgspec.json.decode(text) == structured)
    except NOT_JSON:
        return False


def save_blocks(folder: Path, name: str, blocks: list[Any]) -> dict[int, tuple[Path, str]]:
    """Write the binary blocks into a folder. Returns the file and size of each, by the index of the block."""
    from wharfinger.cli.render.content_blocks import binary_of
    from wharfinger.cli.render.formatting import slug
    from wharfinger.cli.targets.saved_files import new_file
    from wharfinger.content.text import size_text

    saved: dict[int, tuple[Path, str]] = {}
    for index, block in enumerate(blocks):
        binary = binary_of(block)
        if binary is not None:
            mime_type, data = binary
            saved[index] = (new_file(folder, slug(name, fallback="result"), mime_type, data), size_text(len(data)))
    return saved
