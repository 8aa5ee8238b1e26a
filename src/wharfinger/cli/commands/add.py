"""`wharfinger add`: adds a server to a host, with the host's own command or in its configuration file."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.error_report import CommandError
from wharfinger.cli.options import COMMAND, NearChoice, TargetCommand, verbosity_of, verbosity_options
from wharfinger.cli.render.formatting import slug
from wharfinger.cli.targets.host_command import add_commands, remove_commands, run
from wharfinger.cli.targets.host_file import HostFile
from wharfinger.cli.targets.target import check_url
from wharfinger.content.text import escape_controls
from wharfinger.net import is_http_url
from wharfinger.upstreams.host_formats import HOSTS, HostFormat, LocalServer, RemoteServer, entry, user_file
from wharfinger.upstreams.public_names import program_name

if TYPE_CHECKING:
    from wharfinger.sources.registry import ParsedSource

__all__ = ["add"]


@click.command(
    cls=TargetCommand,
    epilog="""\b
Examples:
  wharfinger add claude-desktop ./charts
  wharfinger add claude-desktop ./docs git:. sqlite:///shop.db
  wharfinger add codex --name harbour server.py
  wharfinger add vscode --project https://example.test/mcp --token-env HARBOUR_TOKEN
  wharfinger add cursor --dry-run -- npx -y some-mcp-server
  wharfinger add claude-desktop --remove charts""",
)
@click.argument("host", type=NearChoice(list(HOSTS)), metavar="HOST")
@click.argument("words", nargs=-1, metavar="TARGET")
@click.option("--name", metavar="NAME", help="Name of the server in the host. Default: from TARGET.")
@click.option("--project", is_flag=True, help="Add the server only for the project in the current folder.")
@click.option("--file", "path", type=click.Path(path_type=Path, dir_okay=False), help="Edit this file.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment variable of the server. Repeatable.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    allow_from_autoenv=False,
    help="HTTP header for a URL. Repeatable; stored unchanged in the file.",
)
@click.option("--token-env", metavar="NAME", help="Variable with the bearer token; only its name is stored.")
@click.option("--dry-run", is_flag=True, help="Show the command or the change of the file, and do nothing.")
@click.option("--remove", is_flag=True, help="Remove the server of --name or TARGET, which may be its name.")
@verbosity_options
@click.pass_context
def add(
    ctx: click.Context,
    host: str,
    words: tuple[str, ...],
    name: str | None,
    project: bool,
    path: Path | None,
    env: tuple[str, ...],
    headers: tuple[str, ...],
    token_env: str | None,
    dry_run: bool,
    remove: bool,
) -> None:
    """Add a server to HOST: claude-desktop, claude-code, vscode, cursor, codex or gemini.

    TARGET is a URL, one or more folders or other words of `serve`, a Python file, or a command after `--`. Paths are
    stored as absolute paths. If the host's own command is installed (claude, code or codex) and can store the server,
    it is shown and run. Otherwise the file is edited: everything else in it stays unchanged, and the version before the
    last change is kept next to it as `.wharfinger.bak`.
    """
    host_format = HOSTS[host]
    if project and not host_format.project:
        raise click.UsageError(f"{host_format.title} has no file for a project: leave out --project.", ctx)
    file = HostFile(path or (Path.cwd() / host_format.project if project else user_file(host_format)), host_format)
    commands: list[tuple[str, ...]] = []
    secret_in_url = False
    if remove:
        key = name or name_to_remove(ctx, file, words)
        current_entry = file.find(key)
        if current_entry is None:
            other_names = present_names(file.path, key)
            raise CommandError(f"{host_format.title} has no server named {key!r} in {file.path}.{other_names}")
        if path is None:
            commands = remove_commands(host, project, key)
        new_text = "" if commands else file.without_entry(key)
        verb, next_step = "Removed", host_format.after_remove
    else:
        server, suggested = read_target(ctx, host_format, words, env, headers, token_env)
        if name and not re.fullmatch(r"\w[\w.-]{0,63}", name, re.ASCII):
            like = slug(name, fallback="server")
            raise click.UsageError(
                f"--name {name!r}: use at most 64 letters, digits, '_', '-' and '.', such as {like}.", ctx
            )
        secret_in_url = isinstance(server, RemoteServer) and has_plain_secret(server.url)
        key, new_entry = name or suggested, entry(host_format, server)
        current_entry = file.find(key, new_entry)
        if current_entry == new_entry:
            print_line(ctx, f"{host_format.title} already has {key} like this in {file.path}; nothing changed.")
            return
        if path is None:
            commands = add_commands(host, project, key, server, name_is_taken=current_entry is not None)
        new_text = "" if commands else file.with_entry(key, new_entry)
        verb, next_step = "Added" if current_entry is None else "Replaced", host_format.after_add
    if dry_run:
        click.echo("".join(f"{shlex.join(command)}\n" for command in commands) or file.diff(new_text), nl=False)
        return
    try:
        for command in commands:
            print_line(ctx, f"$ {shlex.join(command)}")
            for line in run(command, f"To edit the file instead: --file {shlex.join((str(file.path),))}").splitlines():
                print_line(ctx, line)
    except BaseException as error:
        if current_entry is not None and not remove and restore(file.path, host_format, key, current_entry):
            error.add_note(f"The entry {key} that was there before was written to {file.path} again.")
        raise
    backup = None if commands else file.write(new_text)
    where = "" if commands else f" {'from' if remove else 'to' if current_entry is None else 'in'} {file.path}"
    print_line(ctx, f"{verb} {key}{where}{f' (backup: {backup})' if backup else ''}. {next_step}.")
    if secret_in_url and not verbosity_of(ctx).quiet:
        stored = f"Warning: the password or token in the URL is stored as plain text in {file.path}."
        advice = "If the server accepts a bearer token, --token-env NAME stores only the name of its variable."
        click.echo(escape_controls(f"{stored} {advice}"), err=True)


def has_plain_secret(url: str) -> bool:
    """Return whether a URL contains a password or a token. In a URL with `${NAME}`, the host fills it in."""
    from wharfinger.content.redaction import has_password

    return "${" not in url and has_password(url)


def restore(path: Path, host_format: HostFormat, key: str, old_entry: dict[str, Any]) -> bool:
    """Write an entry again if the host's command has removed it, and return whether that was necessary."""
    file = HostFile(path, host_format)
    if file.find(key) is not None:
        return False
    file.write(file.with_entry(key, old_entry))
    return True


def read_target(
    ctx: click.Context,
    host_format: HostFormat,
    words: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    token_env: str | None,
) -> tuple[LocalServer | RemoteServer, str]:
    """Return the server that TARGET describes, and a name for it."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    first = words[0] if words else ""
    if command is None and is_http_url(first):
        if not host_format.url:
            raise click.UsageError(
                f"{host_format.title}'s file accepts servers on stdio only: give a folder, a Python file or"
                " `-- command…` (a public URL can be added in its settings, under Connectors).",
                ctx,
            )
        if len(words) > 1 or env:
            raise click.UsageError("With a URL, give no second TARGET and no --env.", ctx)
        check_url(ctx, first)
        return RemoteServer(first, parse_pairs(ctx, headers, ":"), token_env or ""), name_of_url(first)
    if headers or token_env:
        raise click.UsageError("--header and --token-env are for a URL; for a command use --env.", ctx)
    if command is not None:
        if words or not command:
            raise click.UsageError("Give the command after `--` and no other TARGET.", ctx)
        name = slug(program_name(command), fallback="server")
        return LocalServer(absolute_program(command), parse_pairs(ctx, env, "=")), name
    if not words:
        raise click.UsageError("Missing TARGET: a URL, a folder, a Python file, or `-- command…`.", ctx)
    from wharfinger.cli.executable import own_command
    from wharfinger.cli.serving.server_loader import split_place

    file, attribute = split_place(first)
    if len(words) == 1 and file.endswith(".py") and Path(file).is_file():
        place = f"{Path(file).absolute()}:{attribute}" if attribute else str(Path(file).absolute())
        server_command = (*own_command(), "run", "--stdio", place)
        return LocalServer(server_command, parse_pairs(ctx, env, "=")), slug(Path(file).stem, fallback="server")
    published = [absolute_source(ctx, word) for word in words]
    name = slug(*(label for label, _ in published))
    server_command = (*own_command(), "serve", "--stdio", *(word for _, word in published))
    return LocalServer(server_command, parse_pairs(ctx, env, "=")), name


def absolute_source(ctx: click.Context, word: str) -> tuple[str, str]:
    """Return the label of a word of `serve`, and the word with absolute paths.

    Raises:
        click.UsageError: a path does not exist, or the word cannot be stored for a host.
        UnusableSource: the word has an unknown scheme.
    """
    from wharfinger.content.redaction import has_password
    from wharfinger.sources.registry import FILES, absolute_word, parse_word, shown_word

    parsed = parse_word(word)
    if parsed.kind.needs:
        raise click.UsageError(f"{shown_word(parsed)}: give the whole command, `-- wharfinger serve --stdio …`.", ctx)
    if has_password(word):
        where = parsed.kind.secret or "the variables of its library"
        raise click.UsageError(f"Leave the password out of {absolute_word(parsed)}: pass it in {where} (--env).", ctx)
    if parsed.kind is FILES:
        path = absolute_word(parsed._replace(label=None))
        if not os.path.exists(path):
            raise click.UsageError(f"{word}: no such folder or file (looked for {path}).", ctx)
    return label_of(parsed), absolute_word(parsed)


def label_of(parsed: ParsedSource) -> str:
    """Return the label of a word of `serve`: the given label, or the name of the folder or other data."""
    from wharfinger.sources.registry import FILES, absolute_word, short_name

    return short_name(parsed) if parsed.label or parsed.kind is not FILES else os.path.basename(absolute_word(parsed))


def absolute_program(command: list[str]) -> tuple[str, ...]:
    """Make the program and the paths of a command absolute."""
    from wharfinger.cli.executable import absolute_command

    try:
        return absolute_command(command)
    except FileNotFoundError:
        raise click.UsageError(f"{command[0]}: no such command on PATH. Give its path.") from None


def parse_pairs(ctx: click.Context, words: tuple[str, ...], mark: str) -> dict[str, str]:
    """Return the values of `NAME: VALUE` or `NAME=VALUE` options by their names; `mark` is the separator."""
    values: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition(mark)
        if not separator or not name.strip():
            raise click.UsageError(f"{word!r}: write NAME{mark}VALUE.", ctx)
        values[name.strip()] = value.strip() if mark == ":" else value
    return values


def name_of_url(url: str) -> str:
    """Return a name for a server from its address."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host = "localhost" if parts.hostname in ("127.0.0.1", "::1", "localhost") else parts.hostname or "server"
    return slug(f"{host}-{parts.port}" if parts.port else host, fallback="server")


def name_to_remove(ctx: click.Context, file: HostFile, words: tuple[str, ...]) -> str:
    """Return the name to remove: TARGET itself, or the name under which TARGET would have been added."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    if command and not words:
        return slug(program_name(command), fallback="server")
    if command or len(words) != 1:
        raise click.UsageError("Give the name of the server to remove.", ctx)
    word = words[0]
    if file.find(word) is not None:
        return word
    if is_http_url(word):
        check_url(ctx, word)
        return name_of_url(word)
    from wharfinger.cli.serving.server_loader import split_place
    from wharfinger.source import UnusableSource
    from wharfinger.sources.registry import parse_word

    script = word if word.endswith(".py") else split_place(word)[0]
    if script.endswith(".py"):
        return slug(Path(script).stem, fallback="server")
    try:
        parsed = parse_word(word)
    except UnusableSource:
        return word
    is_name = not parsed.scheme and parsed.label is None and os.sep not in word and word not in (".", "..")
    return word if is_name else slug(label_of(parsed))


def present_names(file: Path, name: str) -> str:
    """Return a suggestion from the names of the servers in the file, or a list of these names.

    Returns an empty string if the file has no servers or cannot be read.
    """
    from wharfinger.cli.suggestions import name_suggestion
    from wharfinger.upstreams.config_files import servers_in
    from wharfinger.upstreams.placeholders import InvalidConfiguration

    try:
        return name_suggestion(name, [server.name for server in servers_in(file)], "It has")
    except (FileNotFoundError, InvalidConfiguration):
        return ""


def print_line(ctx: click.Context, line: str) -> None:
    """Print a line, unless `-q`."""
    if not verbosity_of(ctx).quiet:
        click.echo(escape_controls(line))
