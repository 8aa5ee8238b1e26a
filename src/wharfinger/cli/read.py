"""`wharfinger read`: a resource's content to stdout or a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wharfinger.cli.completing import complete_words
from wharfinger.cli.options import TargetCommand, Verbosity, connection_options, json_option, verbosity_options
from wharfinger.cli.targets import split_words

if TYPE_CHECKING:
    from wharfinger.client import Client
    from wharfinger.types import ResourceContents

__all__ = ["read"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger read http://127.0.0.1:8000/mcp file:///charts/tides.log
  wharfinger read -o map.png http://127.0.0.1:8000/mcp file:///charts/map.png
  wharfinger read file:///charts/tides.log -- wharfinger serve ./charts""",
)
@click.argument("words", nargs=-1, metavar="TARGET URI", shell_complete=complete_words("uris"))
@click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE; into a folder (FOLDER/) each content under its own name."
)
@json_option
@connection_options
@verbosity_options
@click.pass_context
def read(ctx: click.Context, /, words: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Read the resource URI.

    Text and bytes come out as they are; several contents, such as those of a directory, each with a line before them
    that names it. Of what comes in windows the first is shown; -o FILE takes all of them. At a terminal text is in
    colour (with the extra `pretty`), and of binary content only is told what it is: -o FILE or a pipe takes it.
    """
    target, (uri, *more) = split_words(ctx, words, ("URI",), "`wharfinger ls TARGET` lists the resources")
    if more:
        raise click.UsageError(f"One URI only: {more[0]!r} is too much.", ctx)
    from wharfinger.cli.connecting import connecting, with_client
    from wharfinger.cli.near import suggesting
    from wharfinger.cli.talking import Talking

    into_folder = output is not None and (output.endswith(("/", os.sep)) or Path(output).is_dir())

    async def work(client: Client) -> Any:
        async with suggesting(uri, (client.list_resources, "uri"), all_of_them=False):
            result = (await client.read_resource(uri)).result
        if output and not as_json and not into_folder:
            await save_windows(ctx, client, result.contents, output)
        return result

    result = with_client(ctx, target, connecting(options), work, **Talking(ctx.obj).handlers)
    contents, further = apart(result.contents)
    if as_json and output == "-":
        from wharfinger.cli.output import print_bytes

        print_bytes(json_bytes(result))
    elif as_json:
        save(ctx, Path(output), json_bytes(result)) if output else show_json(result)
    elif output and into_folder:
        save_all(ctx, Path(output), contents)
    elif not output:
        show(contents)
    if further is not None and not as_json and (into_folder or not output):
        from wharfinger.cli.words import printable

        click.echo(printable(str(further.text).strip()), err=True)


def apart(contents: list[ResourceContents]) -> tuple[list[ResourceContents], ResourceContents | None]:
    """Take what a server says of the next window away from the contents."""
    from wharfinger.sources.windows.window import says_how_to_go_on

    further = next((content for content in contents[1:] if says_how_to_go_on(content)), None)
    return [content for content in contents if content is not further], further


async def windows(client: Client, contents: list[ResourceContents]) -> AsyncIterator[bytes]:
    """Yield what was read, and the windows that follow it."""
    contents, further = apart(contents)
    yield b"".join(map(octets, contents))
    while further is not None:
        contents, further = apart((await client.read_resource(further.uri)).result.contents)
        yield octets(contents[0])


def opened(output: str) -> BinaryIO:
    """Open a file for writing, once there is something to write."""
    return Path(output).open("wb")


async def save_windows(ctx: click.Context, client: Client, contents: list[ResourceContents], output: str) -> None:
    """Write a content to a file or stdout; one that comes in windows is whole then."""
    from wharfinger.cli.output import print_bytes
    from wharfinger.cli.words import size

    if output == "-":
        async for data in windows(client, contents):
            print_bytes(data)
        return
    only(ctx, apart(contents)[0])
    with opened(output) as file:
        async for data in windows(client, contents):
            file.write(data)
        total = file.tell()
    if not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
        click.echo(f"Wrote {output} ({size(total)}).", err=True)


def octets(content: ResourceContents) -> bytes:
    """Take the bytes of a content; text as UTF-8."""
    if isinstance(content.blob, bytes):
        return content.blob
    return content.text.encode("utf-8", "surrogatepass") if isinstance(content.text, str) else b""


def only(ctx: click.Context, contents: list[ResourceContents]) -> bytes:
    """Take the bytes of the only content."""
    if len(contents) != 1:
        raise click.UsageError(
            f"It has {len(contents)} contents, which are no one file: use -o FOLDER/ or --json.",
            ctx,
        )
    return octets(contents[0])


def show(contents: list[ResourceContents]) -> None:
    """Print the contents."""
    from wharfinger.cli.output import print_bytes, print_text, to_terminal
    from wharfinger.cli.pretty import print_highlighted, summary
    from wharfinger.cli.words import printable, size

    for content in contents:
        kind = content.mime_type if isinstance(content.mime_type, str) else ""
        if len(contents) > 1:
            amount = size(len(octets(content)))
            click.echo(printable(f"--- {content.uri}  {kind or 'no MIME type'}  {amount}"))
        if isinstance(content.text, str):
            text = content.text + ("\n" if len(contents) > 1 and not content.text.endswith("\n") else "")
            if not (to_terminal() and print_highlighted(text, kind, content.uri)):
                print_text(text)
        elif to_terminal():
            click.echo(printable(summary(octets(content), kind)))
        else:
            print_bytes(octets(content))


def save_all(ctx: click.Context, folder: Path, contents: list[ResourceContents]) -> None:
    """Write each content into a folder, under the last segment of its URI; nothing there is replaced."""
    from wharfinger.cli.files import name_of_uri, new_file
    from wharfinger.cli.words import size

    for content in contents:
        kind = content.mime_type if isinstance(content.mime_type, str) else ""
        path = new_file(folder, name_of_uri(content.uri), kind, octets(content))
        if not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
            click.echo(f"Wrote {path} ({size(len(octets(content)))}).", err=True)


def save(ctx: click.Context, output: Path, data: bytes) -> None:
    """Write the file and say so."""
    from wharfinger.cli.words import size

    output.write_bytes(data)
    if not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
        click.echo(f"Wrote {output} ({size(len(data))}).", err=True)


def json_bytes(result: Any) -> bytes:
    """Encode a result."""
    import msgspec

    return msgspec.json.encode(result) + b"\n"


def show_json(result: Any) -> None:
    """Print a result as JSON."""
    from wharfinger.cli.output import print_json

    print_json(result)
