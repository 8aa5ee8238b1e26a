"""How one block of content is printed for people, in answers of tools and in prompts; it writes no file."""

from __future__ import annotations

from typing import Any

import click

from wharfinger import types as t

__all__ = ["binary_of", "print_block"]


def binary_of(block: Any) -> tuple[str, bytes] | None:
    """Take MIME type and bytes of a block that is binary; None for any other."""
    if isinstance(block, (t.ImageContent, t.AudioContent)):
        return block.mime_type, block.data
    if isinstance(block, t.EmbeddedResource) and isinstance(block.resource.blob, bytes):
        kind = block.resource.mime_type
        return kind if isinstance(kind, str) else "application/octet-stream", block.resource.blob
    return None


def print_block(block: Any, saver: str = "-o DIR saves it, --json shows it") -> None:
    """Print a block; of a binary one what it is, and `saver`, which says how to get it."""
    from wharfinger.cli.output import print_text
    from wharfinger.cli.words import printable, size

    binary = binary_of(block)
    if isinstance(block, t.TextContent):
        print_text(ended(block.text))
    elif binary is not None:
        uri = f"{block.resource.uri}  " if isinstance(block, t.EmbeddedResource) else ""
        click.echo(printable(f"[{uri}{binary[0]}, {size(len(binary[1]))}: {saver}]"))
    elif isinstance(block, t.ResourceLink):
        click.echo(printable(f"{block.uri}  {block.title or block.name}"))
    elif isinstance(block, t.EmbeddedResource) and isinstance(block.resource.text, str):
        print_text(ended(block.resource.text))
    else:
        click.echo("[other content: --json shows it]")


def ended(text: str) -> str:
    """End a text with a line end."""
    return text if text.endswith("\n") else text + "\n"
