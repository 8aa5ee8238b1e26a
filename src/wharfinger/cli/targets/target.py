"""The TARGET argument: a URL, folder, Python file, socket, configured name, or command."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import click

from wharfinger.cli.options import COMMAND, CONFIG
from wharfinger.net import is_http_url

__all__ = ["Target", "only_target", "parse_target", "split_words"]


EMPTY: Mapping[str, str] = MappingProxyType({})


class Target(NamedTuple):
    """A server: its `url` (HTTP or `unix:/path`), or the `command` that starts it.

    `env`, `headers` and `cwd` come from a configuration file; `origin` names the entry and its file. `own_command` is
    true if the command is this program, whose error messages are meant for the user.
    """

    url: str
    command: tuple[str, ...]
    env: Mapping[str, str] = EMPTY
    headers: Mapping[str, str] = EMPTY
    cwd: str | None = None
    origin: str = ""
    own_command: bool = False

    def __str__(self) -> str:
        from wharfinger.content.redaction import redacted, redacted_command

        return self.origin or redacted(self.url) or redacted_command(self.command)


def split_words(
    ctx: click.Context, words: tuple[str, ...], names: tuple[str, ...], where: str = ""
) -> tuple[Target, tuple[str, ...]]:
    """Split the arguments into the target and the rest.

    Args:
        ctx: the context of the command.
        words: the arguments.
        names: the names of the required arguments after the target.
        where: says in the error which command lists values for the first of these arguments, if it is missing.

    Raises:
        click.UsageError: an argument is missing, or the target is not valid.
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


def only_target(ctx: click.Context, words: tuple[str, ...]) -> Target:
    """Return the target of a command that takes no other argument. Raises click.UsageError."""
    target, rest = split_words(ctx, words, ())
    if rest:
        raise click.UsageError(f"Give one TARGET only, without {rest[0]!r}.", ctx)
    return target


def check_quotes(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Raise click.UsageError if the words are one path with spaces, which the shell has split."""
    if os.path.exists(words[0]):  # unlike Path.exists, it accepts words that are too long for a path
        return
    for number in range(2, min(len(words), 8) + 1):
        path = " ".join(words[:number])
        if os.path.exists(path):
            import shlex

            raise click.UsageError(f"The path has spaces in it: put it in quotes, {shlex.join([path])}.", ctx)


def parse_target(ctx: click.Context, word: str) -> Target:
    """Read one word as a target. Raises click.UsageError."""
    if is_http_url(word):
        check_url(ctx, word)
        return Target(word, ())
    if word.startswith("unix:/"):
        return Target(word, ())
    if re.match(r"https?:/*[^/]", word):
        scheme, _, rest = word.partition(":")
        raise click.UsageError(f"{word} is not a URL: write {scheme}://{rest.lstrip('/')}", ctx)
    if "://" in word or word.startswith("unix:"):
        hint = " Write unix:/path with the absolute path." if word.startswith("unix:") else ""
        raise click.UsageError(f"{word}: only http:// and https:// URLs and unix:/path are supported.{hint}", ctx)
    # A path takes precedence over the name of a server, unless the file with the names was chosen with --config.
    readers = (configured_target, local_target) if ctx.meta.get(CONFIG) else (local_target, configured_target)
    for read in readers:
        target = read(ctx, word)
        if target is not None:
            return target
    raise unknown_target(ctx, word)


def local_target(ctx: click.Context, word: str) -> Target | None:
    """Read a word as the path of a folder, file or socket. Returns None if it is not such a path."""
    from wharfinger.cli.executable import own_command

    file, colon, name = word.rpartition(":")
    if colon and name.isidentifier() and file.endswith(".py") and os.path.isfile(file):
        return Target(
            "", (*own_command(), "run", "--stdio", "--dev", f"{Path(file).absolute()}:{name}"), own_command=True
        )
    if not os.path.exists(word):
        return None
    path = Path(word)
    if path.is_dir():
        return Target("", (*own_command(), "serve", "--stdio", str(path.absolute())), own_command=True)
    if path.is_file() and path.suffix == ".py":
        return Target("", (*own_command(), "run", "--stdio", "--dev", str(path.absolute())), own_command=True)
    if path.is_socket():
        return Target(f"unix:{path.absolute()}", ())
    if path.is_file():
        raise click.UsageError(f"{word} is not a Python file. If it is a program, put it after `--`: `-- {word}`.", ctx)
    return None


def configured_target(ctx: click.Context, word: str) -> Target | None:
    """Read a word as the name of a configured server. Returns None if there is no such server."""
    from wharfinger.cli.targets.configured_servers import look_up, resolve

    configured = look_up(ctx, word, ctx.meta.get(CONFIG))
    if configured is None:
        return None
    server = resolve(ctx, configured)
    url, command = (server.target, ()) if isinstance(server.target, str) else ("", tuple(server.target))
    return Target(url, command, server.env, server.headers, server.cwd, f"{word} ({configured.file})")


def unknown_target(ctx: click.Context, word: str) -> click.UsageError:
    """Return the error for a word that is no target, with a suggestion."""
    file = word.rpartition(":")[0] if ".py:" in word else word
    if file.endswith(".py"):
        return click.UsageError(f"{file}: no such file.{near_file(file)}", ctx)
    host = word.split("/")[0]
    if word.isdigit():
        return click.UsageError(f"{word}: for a server on this port write http://127.0.0.1:{word}/mcp", ctx)
    if ":" in host or host == "localhost" or "." in host.strip("."):
        local = host.partition(":")[0] in ("localhost", "127.0.0.1", "[::1]")
        url = f"http{'' if local else 's'}://{word}{'' if '/' in word else '/mcp'}"
        return click.UsageError(f"{word}: no such folder; for a URL write {url}", ctx)
    if word.endswith(("/", os.sep)):
        return click.UsageError(f"{word}: no such folder.{near_file(word)}", ctx)
    return click.UsageError(
        f"{word}: no folder, file or configured server has this name.{near_server(ctx, word) or near_file(word)}"
        f" {searched_files(ctx)} Or give a URL, or a command after `--`.",
        ctx,
    )


def check_url(ctx: click.Context, word: str) -> None:
    """Raise click.UsageError if a URL is invalid."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(word)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise click.UsageError(f"{word} is not a URL ({error}): write http://HOST:PORT/mcp", ctx) from None
    if not host or port == 0:
        missing = "a host" if not host else "a port above 0"
        raise click.UsageError(f"{word} is not a URL, it lacks {missing}: write http://HOST:PORT/mcp", ctx)


def near_file(word: str) -> str:
    """Return a question that suggests a similar file or folder, or an empty string if no name is similar."""
    from wharfinger.cli.suggestions import nearest

    path = Path(word)
    try:
        names = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return ""
    name = nearest(path.name, names)
    return f" Did you mean {path.parent / name}?" if name else ""


def near_server(ctx: click.Context, word: str) -> str:
    """Return a question that suggests a similar configured server, or an empty string if no name is similar."""
    from wharfinger.cli.suggestions import nearest
    from wharfinger.upstreams.config_files import all_servers

    name = nearest(word, (server.name for server in all_servers(ctx.meta.get(CONFIG))[0]))
    return f" Did you mean {name!r}?" if name else ""


SHOWN_NAMES = 12
"""Maximum number of servers of one file that an error lists."""


def searched_files(ctx: click.Context) -> str:
    """Return a sentence that names the searched configuration files and their servers."""
    from wharfinger.content.text import escape_controls
    from wharfinger.upstreams.config_files import all_servers, config_files

    chosen: Path | None = ctx.meta.get(CONFIG)
    servers, unreadable = all_servers(chosen)
    listed_files: list[str] = []
    for file in [chosen] if chosen else config_files():
        names = list(dict.fromkeys(escape_controls(server.name) for server in servers if server.file == file))
        more = ", …" if len(names) > SHOWN_NAMES else ""
        if names or file.exists():
            listed_files.append(f"{file} ({', '.join(names[:SHOWN_NAMES])}{more})" if names else f"{file} (no server)")
    if not listed_files:
        return f"No configuration file was found: searched {', '.join(map(str, config_files()))}."
    return f"Searched {', '.join(listed_files)}." + (f" Unreadable: {'; '.join(unreadable)}." if unreadable else "")
