"""What a TARGET may be: a URL, a folder, a Python file or `FILE:name`, a command after `--`; it refuses to connect."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from wharfinger.cli.options import COMMAND

__all__ = ["Target", "parse_target", "split_words"]


class Target(NamedTuple):
    """A server to reach: by `url`, else by starting `command`."""

    url: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        from wharfinger.cli.programs import shell

        return self.url or shell(self.command)


def split_words(ctx: click.Context, words: tuple[str, ...], names: tuple[str, ...]) -> tuple[Target, tuple[str, ...]]:
    """Split the arguments into the target and the rest, of which the first ones are required and named `names`."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    if command is not None:
        if not command:
            raise click.UsageError("Give a command after `--`, for example `-- python server.py`.", ctx)
        target, rest = Target("", tuple(command)), words
    elif not words:
        raise click.UsageError("Missing TARGET: a URL such as http://127.0.0.1:8000/mcp, or `-- command…`.", ctx)
    else:
        target, rest = parse_target(ctx, words[0]), words[1:]
    if len(rest) < len(names):
        raise click.UsageError(f"Missing {names[len(rest)]}.", ctx)
    return target, rest


def parse_target(ctx: click.Context, word: str) -> Target:
    """Read one word as a target."""
    if word.startswith(("http://", "https://")):
        return Target(word, ())
    if "://" in word:
        raise click.UsageError(f"{word}: only http:// and https:// URLs can be reached.", ctx)
    from wharfinger.cli.programs import ourselves

    path = Path(word)
    if path.is_dir():
        return Target("", (*ourselves(), "serve", "--stdio", str(path.absolute())))
    if path.is_file() and path.suffix == ".py":
        return Target("", (*ourselves(), "run", "--stdio", str(path.absolute())))
    file, colon, name = word.rpartition(":")
    if colon and name.isidentifier() and file.endswith(".py") and Path(file).is_file():
        return Target("", (*ourselves(), "run", "--stdio", f"{Path(file).absolute()}:{name}"))
    if path.is_file():
        raise click.UsageError(f"{word}: to start a program give it after `--`: `-- {word}`.", ctx)
    if path.suffix == ".py" or file.endswith(".py"):
        raise click.UsageError(f"{word}: no such file.", ctx)
    host = word.split("/")[0]
    if ":" in host or host == "localhost" or "." in host.strip("."):
        raise click.UsageError(f"{word}: no such folder; for a URL write http://{word} or https://{word}.", ctx)
    raise click.UsageError(f"{word}: give a URL, a folder, a Python file, or a command after `--`.", ctx)
