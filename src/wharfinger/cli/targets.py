"""What a TARGET may be: URL, folder, Python file, socket, configured name, or command; it refuses to connect."""

from __future__ import annotations

import os
import re
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
        from wharfinger.content.redaction import redacted, redacted_command

        return self.origin or redacted(self.url) or redacted_command(self.command)


def split_words(
    ctx: click.Context, words: tuple[str, ...], names: tuple[str, ...], where: str = ""
) -> tuple[Target, tuple[str, ...]]:
    """Split the arguments into the target and the rest, of which the first ones are required and named `names`.

    `where` says where the first of them is found.
    """
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
        check_quotes(ctx, words)
        target, rest = parse_target(ctx, words[0]), words[1:]
    if len(rest) < len(names):
        raise click.UsageError(f"Missing {names[len(rest)]}{f': {where}' if where and not rest else ''}.", ctx)
    return target, rest


def check_quotes(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Refuse a path with blanks that a shell has cut into several words."""
    if Path(words[0]).exists():
        return
    for number in range(2, min(len(words), 8) + 1):
        whole = " ".join(words[:number])
        if Path(whole).exists():
            from wharfinger.cli.programs import shell

            raise click.UsageError(f"The path has blanks in it: put it in quotes, {shell([whole])}.", ctx)


def parse_target(ctx: click.Context, word: str) -> Target:
    """Read one word as a target."""
    if word.startswith(("http://", "https://")):
        check_url(ctx, word)
        return Target(word, ())
    if word.startswith("unix:/"):
        return Target(word, ())
    if re.match(r"https?:/*[^/]", word):
        scheme, _, rest = word.partition(":")
        raise click.UsageError(f"{word} is no URL: write {scheme}://{rest.lstrip('/')}", ctx)
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
    file = word.rpartition(":")[0] if ".py:" in word else word
    if file.endswith(".py"):
        raise click.UsageError(f"{file}: no such file.{near_file(file)}", ctx)
    host = word.split("/")[0]
    if word.isdigit():
        raise click.UsageError(f"{word}: for a server on this port write http://127.0.0.1:{word}/mcp", ctx)
    if ":" in host or host == "localhost" or "." in host.strip("."):
        local = host.partition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
        url = f"http{'' if local else 's'}://{word}{'' if '/' in word else '/mcp'}"
        raise click.UsageError(f"{word}: no such folder; for a URL write {url}", ctx)
    if word.endswith(("/", os.sep)):
        raise click.UsageError(f"{word}: no such folder.{near_file(word)}", ctx)
    raise click.UsageError(
        f"{word}: no folder, file or configured server has this name.{near_server(ctx, word) or near_file(word)}"
        f" {searched(ctx)} Or give a URL, or a command after `--`.",
        ctx,
    )


def check_url(ctx: click.Context, word: str) -> None:
    """Refuse what begins as a URL does and is none."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(word)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise click.UsageError(f"{word} is no URL ({error}): write http://HOST:PORT/mcp", ctx) from None
    if not host or port == 0:
        missing = "a host" if not host else "a port from 1 on"
        raise click.UsageError(f"{word} is no URL, it lacks {missing}: write http://HOST:PORT/mcp", ctx)


def near_file(word: str) -> str:
    """Ask whether another file or folder beside it was meant."""
    from wharfinger.cli.near import nearest

    path = Path(word)
    try:
        names = [one.name for one in path.parent.iterdir() if not one.name.startswith(".")]
    except OSError:
        return ""
    found = nearest(path.name, names)
    return f" Did you mean {path.parent / found}?" if found else ""


def near_server(ctx: click.Context, word: str) -> str:
    """Ask whether another configured server was meant."""
    from wharfinger.cli.configured import known
    from wharfinger.cli.near import nearest

    found = nearest(word, (server.name for server in known(ctx.meta.get(CONFIG))[0]))
    return f" Did you mean {found!r}?" if found else ""


MOST_NAMES = 12


def searched(ctx: click.Context) -> str:
    """Say which configurations were searched for a name, and what is in them."""
    from wharfinger.cli.configured import known, places
    from wharfinger.cli.words import printable

    chosen: Path | None = ctx.meta.get(CONFIG)
    servers, wrong = known(chosen)
    found: list[str] = []
    for file in [chosen] if chosen else places():
        names = list(dict.fromkeys(printable(server.name) for server in servers if server.file == file))
        more = ", …" if len(names) > MOST_NAMES else ""
        if names or file.exists():
            found.append(f"{file} ({', '.join(names[:MOST_NAMES])}{more})" if names else f"{file} (no server)")
    if not found:
        return f"No configuration was found: searched {', '.join(map(str, places()))}."
    return f"Searched {', '.join(found)}." + (f" Unreadable: {'; '.join(wrong)}." if wrong else "")
