"""`wharfinger completion`: prints the script with which a shell completes `wharfinger`."""

from __future__ import annotations

import os
from pathlib import PurePath

import click

__all__ = ["completion"]


@click.command(
    epilog="""\b
Examples:
  wharfinger completion bash >> ~/.bashrc
  wharfinger completion zsh >> ~/.zshrc
  wharfinger completion fish > ~/.config/fish/completions/wharfinger.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the completion script for a shell, by default the one in $SHELL."""
    from click.shell_completion import get_completion_class

    name = shell or PurePath(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise click.UsageError("Name the shell: bash, zsh or fish.", ctx)
    click.echo(kind(ctx.find_root().command, {}, "wharfinger", "_WHARFINGER_COMPLETE").source())
