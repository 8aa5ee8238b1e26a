"""`wharfinger read`: writes a resource's content to stdout or a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.options import TargetCommand, connection_options, json_option, verbosity_of, verbosity_options
from wharfinger.cli.targets.shell_completion import complete_words
from wharfinger.cli.targets.target import split_words

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
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, or write each content to its own file in FOLDER/.")
@json_option
@connection_options
@verbosity_options
@click.pass_context
def read(ctx: click.Context, /, words: tuple[str, ...], output: str | None, as_json: bool, **options: Any) -> None:
    """Read the resource URI.

    Text and bytes are printed unchanged. If there are several contents, as for a directory, a line with its URI
    precedes each. Only the first window of a large resource is shown; -o FILE writes all of it. At a terminal, text is
    in colour (with the extra `pretty`), and binary content is only described: write it to a file or pipe.
    """
    target, (uri, *more) = split_words(ctx, words, ("URI",), "`wharfinger ls TARGET` lists the resources")
    if more:
        raise click.UsageError(f"Give one URI only, without {more[0]!r}.", ctx)
    from wharfinger.cli.suggestions import suggest_names
    from wharfinger.cli.targets.client_callbacks import ClientCallbacks
    from wharfinger.cli.targets.open_client import take_connection_options, with_client

    into_folder = output is not None and (output.endswith(("/", os.sep)) or Path(output).is_dir())

    async def work(client: Client) -> Any:
        async with suggest_names(uri, (client.list_resources, "uri"), list_all=False):
            result = (await client.read_resource(uri)).result
        if output and not as_json and not into_folder:
            await save_windows(ctx, client, result.contents, output)
        return result

    result = with_client(
        ctx, target, take_connection_options(options), work, **ClientCallbacks(verbosity_of(ctx)).handlers
    )
    contents, remarks = split_remarks(result.contents)
    if as_json and output:
        save_json(ctx, result, output)
    elif as_json:
        from wharfinger.cli.render.output import print_json

        print_json(result)
    elif output and into_folder:
        save_all(ctx, Path(output), contents)
    elif not output:
        show(contents)
    if not as_json and (into_folder or not output):
        print_remarks(remarks)


def split_remarks(contents: list[ResourceContents]) -> tuple[list[ResourceContents], list[ResourceContents]]:
    """Separate the contents from the remarks about them, such as the one that names the next window."""
    from wharfinger.sources.windows.window import is_remark

    separated: tuple[list[ResourceContents], list[ResourceContents]] = contents[:1], []
    for content in contents[1:]:
        separated[is_remark(content)].append(content)
    return separated


def print_remarks(remarks: Iterable[ResourceContents]) -> None:
    """Print remarks to stderr."""
    from wharfinger.content.text import escape_controls

    for remark in remarks:
        click.echo(escape_controls(str(remark.text).strip()), err=True)


async def windows(client: Client, contents: list[ResourceContents]) -> AsyncIterator[bytes]:
    """Yield the bytes of the contents, and then of each window that follows. Print remarks that name no next window.

    Raises:
        CommandError: the server names a window twice, which would have no end.
    """
    from wharfinger.cli.error_report import CommandError
    from wharfinger.sources.windows.window import is_continuation

    read_uris: set[str] = set()
    while True:
        contents, remarks = split_remarks(contents)
        yield b"".join(map(bytes_of, contents))
        print_remarks(filterfalse(is_continuation, remarks))
        next_window = next(filter(is_continuation, remarks), None)
        if next_window is None:
            return
        if next_window.uri in read_uris:
            raise CommandError(f"The server names the window {next_window.uri} twice, so the resource has no end.")
        read_uris.add(next_window.uri)
        contents = (await client.read_resource(next_window.uri)).result.contents


async def save_windows(ctx: click.Context, client: Client, contents: list[ResourceContents], output: str) -> None:
    """Write the contents, and the windows that follow them, to a file or stdout."""
    from wharfinger.cli.render.output import print_bytes
    from wharfinger.cli.targets.saved_files import replacement

    if output == "-":
        async for data in windows(client, contents):
            print_bytes(data)
        return
    number = len(split_remarks(contents)[0])
    if number != 1:
        raise click.UsageError(f"The resource has {number} contents, not one: use -o FOLDER/ or --json.", ctx)
    total = 0
    with replacement(output) as file:
        async for data in windows(client, contents):
            total += file.write(data)
    report_written(ctx, output, total)


def bytes_of(content: ResourceContents) -> bytes:
    """Return the bytes of a content, text as UTF-8."""
    if isinstance(content.blob, bytes):
        return content.blob
    return content.text.encode("utf-8", "surrogatepass") if isinstance(content.text, str) else b""


def show(contents: list[ResourceContents]) -> None:
    """Print the contents."""
    from wharfinger.cli.render.content_blocks import with_line_end
    from wharfinger.cli.render.highlighting import print_highlighted, summary
    from wharfinger.cli.render.output import print_bytes, print_text, stdout_is_terminal
    from wharfinger.content.text import escape_controls, size_text

    for content in contents:
        mime_type = content.mime_type if isinstance(content.mime_type, str) else ""
        if len(contents) > 1:
            amount = size_text(len(bytes_of(content)))
            click.echo(escape_controls(f"--- {content.uri}  {mime_type or 'no MIME type'}  {amount}"))
        if isinstance(content.text, str):
            text = content.text if len(contents) == 1 else with_line_end(content.text)
            if not (stdout_is_terminal() and print_highlighted(text, mime_type, content.uri)):
                print_text(text)
        elif stdout_is_terminal():
            click.echo(escape_controls(summary(bytes_of(content), mime_type)))
        else:
            print_bytes(bytes_of(content))


def save_all(ctx: click.Context, folder: Path, contents: list[ResourceContents]) -> None:
    """Write each content into a folder, named after the last segment of its URI; no file is replaced."""
    from wharfinger.cli.targets.saved_files import name_of_uri, new_file

    for content in contents:
        mime_type = content.mime_type if isinstance(content.mime_type, str) else ""
        data = bytes_of(content)
        path = new_file(folder, name_of_uri(content.uri), mime_type, data)
        report_written(ctx, path, len(data))


def save_json(ctx: click.Context, result: Any, output: str) -> None:
    """Write a result to a file or stdout, as a line of JSON."""
    import msgspec

    from wharfinger.cli.render.output import print_bytes

    data = msgspec.json.encode(result) + b"\n"
    if output == "-":
        print_bytes(data)
    else:
        Path(output).write_bytes(data)
        report_written(ctx, output, len(data))


def report_written(ctx: click.Context, path: object, byte_count: int) -> None:
    """Print the name and size of a written file, unless `-q`."""
    from wharfinger.content.text import size_text

    if not verbosity_of(ctx).quiet:
        click.echo(f"Wrote {path} ({size_text(byte_count)}).", err=True)
