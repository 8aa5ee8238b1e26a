"""What a TARGET may be: URL, folder, Python file, socket, configured name, or command; it refuses to connect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import click

from wharfinger.cli.options import COMMAND, CONFIG

__all__ = ["Target", "parse_target", "split_words"]


NOTHING: Mapping[str, str] = MappingProxyType({})


class Target(NamedTuple):
    """A server to reach: by `url` (of HTTP, or `unix:/path`), else by starting `command`.

    What follows is what a configuration file adds: `origin` names the entry and its file. `ours` is true if the command
    is this program, whose last words are for the user.
    """

    url: str
    command: tuple[str, ...]
    env: Mapping[str, str] = NOTHING
    headers: Mapping[str, str] = NOTHING
    cwd: str | None = None
    origin: str = ""
    ours: bool = False

    def __str__(self) -> str:
        from wharfinger.redacting import redacted, redacted_command

        return self.origin or redacted(self.url) or redacted_command(self.command)


def split_words(ctx: click.Context, words: tuple[str, ...], names: tuple[str, ...]) -> tuple[Target, tuple[str, ...]]:
    """Split the arguments into the target and the rest, of which the first ones are required and named `names`."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    if command is not None:
        if not command:
            raise click.UsageError("Give a command after `--`, for example `-- python server.py`.", ctx)
        target, rest = Target("", tuple(command)), words
    elif not words:
        raise click.UsageError(
            "Missing TARGET: a URL such as http://127.0.0.1:8000/mcp, a configured name, or `-- command…`.", ctx
        )
    else:
        target, rest = parse_target(ctx, words[0]), words[1:]
    if len(rest) < len(names):
        raise click.UsageError(f"Missing {names[len(rest)]}.", ctx)
    return target, rest


def parse_target(ctx: click.Context, word: str) -> Target:
    """Read one word as a target."""
    if word.startswith(("http://", "https://", "unix:/")):
        return Target(word, ())
    if "://" in word or word.startswith("unix:"):
        hint = " Write unix:/path, with the whole path." if word.startswith("unix:") else ""
        raise click.UsageError(f"{word}: only http:// and https:// URLs, and unix:/path, can be reached.{hint}", ctx)
    return configured_target(ctx, word, chosen=True) or local_target(ctx, word) or named_target(ctx, word)


def local_target(ctx: click.Context, word: str) -> Target | None:
    """Read a word as a folder or file that is there."""
    from wharfinger.cli.programs import ourselves

    path = Path(word)
    if path.is_dir():
        return Target("", (*ourselves(), "serve", "--stdio", str(path.absolute())), ours=True)
    if path.is_file() and path.suffix == ".py":
        return Target("", (*ourselves(), "run", "--stdio", "--dev", str(path.absolute())), ours=True)
    if path.is_socket():
        return Target(f"unix:{path.absolute()}", ())
    file, colon, name = word.rpartition(":")
    if colon and name.isidentifier() and file.endswith(".py") and Path(file).is_file():
        return Target("", (*ourselves(), "run", "--stdio", "--dev", f"{Path(file).absolute()}:{name}"), ours=True)
    if path.is_file():
        raise click.UsageError(f"{word}: to start a program give it after `--`: `-- {word}`.", ctx)
    return None


def configured_target(ctx: click.Context, word: str, *, chosen: bool) -> Target | None:
    """Read a word as the name of a server in a configuration file; with `chosen` only in the one of `--config`."""
    file: Path | None = ctx.meta.get(CONFIG)
    if chosen and file is None:
        return None
    from wharfinger.cli.configured import look_up, resolve

    found = look_up(ctx, word, file)
    if found is None:
        return None
    server = resolve(ctx, found)
    return Target(server.url, server.command, server.env, server.headers, server.cwd, f"{word} ({found.file})")


def named_target(ctx: click.Context, word: str) -> Target:
    """Read a word as a name, or say what it might have been."""
    found = None if ctx.meta.get(CONFIG) else configured_target(ctx, word, chosen=False)
    if found is not None:
        return found
    if word.endswith(".py") or word.rpartition(":")[0].endswith(".py"):
        raise click.UsageError(f"{word}: no such file.", ctx)
    host = word.split("/")[0]
    if ":" in host or host == "localhost" or "." in host.strip("."):
        raise click.UsageError(f"{word}: no such folder; for a URL write http://{word} or https://{word}.", ctx)
    raise click.UsageError(
        f"{word}: give a URL, a folder, a Python file, a name{listed(ctx)}, or a command after `--`.", ctx
    )


MOST_NAMES = 12


def listed(ctx: click.Context) -> str:
    """Name the servers that are configured, for an error."""
    from wharfinger.cli.configured import known
    from wharfinger.cli.words import printable

    servers, wrong = known(ctx.meta.get(CONFIG))
    names = list(dict.fromkeys(printable(server.name) for server in servers))
    more = ", …" if len(names) > MOST_NAMES else ""
    told = f" ({', '.join(names[:MOST_NAMES])}{more})" if names else " from a configuration file"
    return told + (f" ({'; '.join(wrong)})" if wrong else "")
