"""Prints one block of content from the result of a tool or prompt."""

from __future__ import annotations

from typing import Any

import click

from wharfinger import types as t

__all__ = ["binary_of", "print_block", "with_line_end"]


def binary_of(block: Any) -> tuple[str, bytes] | None:
    """Return the MIME type and bytes of a block, or None if it is not binary."""
    if isinstance(block, (t.ImageContent, t.AudioContent)):
        return block.mime_type, block.data
    if isinstance(block, t.EmbeddedResource) and isinstance(block.resource.blob, bytes):
        mime_type = block.resource.mime_type
        return mime_type if isinstance(mime_type, str) else "application/octet-stream", block.resource.blob
    return None


def print_block(block: Any, advice: str = "-o DIR saves it, --json shows it") -> None:
    """Print a block. A binary block is only described, with `advice` on how to get it."""
    from wharfinger.cli.render.output import print_text
    from wharfinger.content.text import escape_controls, size_text

    binary = binary_of(block)
    if isinstance(block, t.TextContent):
        print_text(with_line_end(block.text))
    elif binary is not None:
        uri = f"{block.resource.uri}  " if isinstance(block, t.EmbeddedResource) else ""
        click.echo(escape_controls(f"[{uri}{binary[0]}, {size_text(len(binary[1]))}: {advice}]"))
    elif isinstance(block, t.ResourceLink):
        click.echo(escape_controls(f"{block.uri}  {block.title or block.name}"))
    elif isinstance(block, t.EmbeddedResource) and isinstance(block.resource.text, str):
        print_text(with_line_end(block.resource.text))
    else:
        click.echo("[other content: --json shows it]")


def with_line_end(text: str) -> str:
    """Return the text, with a line end added if it does not end with one."""
    return text if text.endswith("\n") else text + "\n"
