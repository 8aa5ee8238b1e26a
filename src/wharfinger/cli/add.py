"""`wharfinger add`: merge one server into a host's own configuration file, with a backup and a diff."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from wharfinger.cli import jsonc, toml_text
from wharfinger.cli.failures import Failed
from wharfinger.cli.hosts import HOSTS, Host, Local, Remote, entry, user_file
from wharfinger.cli.options import COMMAND, NearChoice, TargetCommand, Verbosity, verbosity_options
from wharfinger.cli.words import slug

__all__ = ["add"]

T = TypeVar("T")

LAUNCHERS = frozenset(
    ("npx", "uvx", "uv", "bunx", "pipx", "run", "exec", "node", "python", "python3", "docker", "wharfinger", "serve")
)
"""Words that start another program and so are no name for a server."""


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
@click.option("--name", metavar="NAME", help="Name of the server in the host's file. Default: from TARGET.")
@click.option("--project", is_flag=True, help="Write the file of the project in the current folder, not the user's.")
@click.option("--file", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write this file instead.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Environment for a command. Repeatable.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    allow_from_autoenv=False,
    help="HTTP header for a URL. Repeatable; stored in the file as it is.",
)
@click.option("--token-env", metavar="NAME", help="Variable that holds the bearer token; only its name is stored.")
@click.option("--dry-run", is_flag=True, help="Show the change as a diff and write nothing.")
@click.option("--remove", is_flag=True, help="Take the server out again; TARGET may be its name.")
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
    """Put a server into the configuration of HOST: claude-desktop, claude-code, vscode, cursor, codex or gemini.

    TARGET is a URL, one or more folders or other words of `serve`, a Python file, or a command after `--`. Paths are
    stored absolute, the rest of the file stays as it is, and the file as it was before the last change is kept beside
    it with `.wharfinger.bak`.
    """
    kind = HOSTS[host]
    file = path or choose_file(ctx, kind, project)
    old, edit = read_text(file), TOML if file.suffix == ".toml" else JSON
    if remove:
        key = name or remembered_name(ctx, words)
        new = change(file, kind, lambda: edit.drop(old, kind.table, key))
        if new == old:
            raise Failed(f"{kind.title} has no server named {key!r} in {file}.{present_names(file, key)}")
        done, then = f"Removed {key} from {file}", kind.gone
    else:
        server, suggested = describe(ctx, kind, words, env, headers, token_env)
        if name and not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            like = slug(name, fallback="server")
            raise click.UsageError(f"--name {name!r}: hosts take letters, digits, '_' and '-', such as {like}.", ctx)
        key, wanted = name or suggested, entry(kind, server)
        present = change(file, kind, lambda: edit.find(old, kind.table, key), wanted)
        if present == wanted:
            tell(ctx, f"{kind.title} has {key} already as it should be in {file}; nothing changed.")
            return
        new = change(file, kind, lambda: edit.put(old, kind.table, key, wanted), wanted)
        done, then = f"Added {key} to {file}" if present is None else f"Replaced {key} in {file}", kind.then
    if dry_run:
        click.echo(diff(file, old, new), nl=False)
        return
    backup = write(file, new)
    tell(ctx, done + (f" (as it was: {backup})" if backup else "") + f". {then}.")


def choose_file(ctx: click.Context, host: Host, project: bool) -> Path:
    """Pick the user's file or the project's."""
    if not project:
        return user_file(host)
    if not host.project:
        raise click.UsageError(f"{host.title} has no file for a project: leave out --project.", ctx)
    return Path.cwd() / host.project


class Editor(NamedTuple):
    """How one kind of file is changed."""

    find: Callable[[str, str, str], Any]
    put: Callable[[str, str, str, dict[str, Any]], str]
    drop: Callable[[str, str, str], str]


JSON = Editor(jsonc.find, jsonc.put, jsonc.drop)
TOML = Editor(toml_text.find, toml_text.put, toml_text.drop)


def change(file: Path, host: Host, edit: Callable[[], T], wanted: dict[str, Any] | None = None) -> T:
    """Run an edit; where the file cannot be read, say what to put into it by hand."""
    try:
        return edit()
    except jsonc.Unreadable as error:
        import json

        hand = f" Add this under {host.table!r} by hand: {json.dumps(wanted)}" if wanted else ""
        raise Failed(f"{file} cannot be changed safely ({error}); it was left as it is.{hand}") from None


def describe(
    ctx: click.Context,
    host: Host,
    words: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    token_env: str | None,
) -> tuple[Local | Remote, str]:
    """Turn TARGET into the server to store and a name for it."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    first = words[0] if words else ""
    if command is None and first.startswith(("http://", "https://")):
        if not host.url:
            raise click.UsageError(
                f"{host.title}'s file takes servers on stdio only: give a folder, a Python file or `-- command…`"
                " (a public URL can be added in its settings, under Connectors).",
                ctx,
            )
        if len(words) > 1 or env:
            raise click.UsageError("A URL stands alone: no second TARGET, no --env.", ctx)
        return Remote(first, pairs(ctx, headers, ":"), token_env or ""), name_of_url(first)
    if headers or token_env:
        raise click.UsageError("--header and --token-env are for a URL; for a command use --env.", ctx)
    if command is not None:
        if words or not command:
            raise click.UsageError("Give the command after `--` and no other TARGET.", ctx)
        return Local(located(command), pairs(ctx, env, "=")), name_of_command(command)
    if not words:
        raise click.UsageError("Missing TARGET: a URL, a folder, a Python file, or `-- command…`.", ctx)
    from wharfinger.cli.programs import ourselves

    file, colon, attribute = first.partition(":")
    if len(words) == 1 and file.endswith(".py") and Path(file).is_file():
        run = (*ourselves(), "run", "--stdio", f"{Path(file).absolute()}{colon}{attribute}")
        return Local(run, pairs(ctx, env, "=")), slug(Path(file).stem, fallback="server")
    published = [publishable(ctx, word) for word in words]
    named = slug(*(label for label, _ in published))
    return Local((*ourselves(), "serve", "--stdio", *(word for _, word in published)), pairs(ctx, env, "=")), named


def publishable(ctx: click.Context, word: str) -> tuple[str, str]:
    """Read a word of `serve`; its label, and the word with absolute paths. What is a path must be there."""
    from wharfinger.content.redaction import has_password
    from wharfinger.sources.labels import split_label
    from wharfinger.sources.registry import FILES, absolute_word, parse_word, short_name, shown_word

    asked = parse_word(word)
    if asked.kind.needs:
        raise click.UsageError(f"{shown_word(asked)}: give the whole command: `-- wharfinger serve --stdio …`.", ctx)
    if has_password(word):
        how = asked.kind.secret or "what its library reads"
        raise click.UsageError(f"Leave the password out of {absolute_word(asked)}: give it by {how} (--env).", ctx)
    if asked.kind is FILES:
        rest, label = split_label(word)
        path = absolute(Path(rest).expanduser())
        if not path.exists():
            raise click.UsageError(f"{word}: no such folder or file (looked for {path}).", ctx)
        return label or path.name, f"{label}={path}" if label else str(path)
    return short_name(asked), absolute_word(asked)


def absolute(path: Path) -> Path:
    """Make a path absolute without following links, so that it stays the one that was meant."""
    return Path(os.path.normpath(path.absolute()))


def located(command: list[str]) -> tuple[str, ...]:
    """Make the command absolute."""
    from wharfinger.cli.programs import absolute_command

    try:
        return absolute_command(command)
    except FileNotFoundError:
        raise click.UsageError(f"{command[0]}: no such command on PATH; give its path.") from None


def pairs(ctx: click.Context, words: tuple[str, ...], mark: str) -> dict[str, str]:
    """Read `NAME: VALUE` or `NAME=VALUE` options."""
    found: dict[str, str] = {}
    for word in words:
        name, marked, value = word.partition(mark)
        if not marked or not name.strip():
            raise click.UsageError(f"{word!r}: write NAME{mark}VALUE.", ctx)
        found[name.strip()] = value.strip() if mark == ":" else value
    return found


def name_of_url(url: str) -> str:
    """Name a server after its address."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    host = "localhost" if parts.hostname in ("127.0.0.1", "::1", "localhost") else parts.hostname or "server"
    return slug(f"{host}-{parts.port}" if parts.port else host, fallback="server")


def name_of_command(command: list[str]) -> str:
    """Name a server after the program that a command runs, past what merely launches it."""
    for word in command:
        name = word.rstrip("/").split("/")[-1].split("@")[0]
        if word.startswith("-") or name in LAUNCHERS or name.startswith("python3."):
            continue
        return slug(Path(name).stem, fallback="server")
    return "server"


def remembered_name(ctx: click.Context, words: tuple[str, ...]) -> str:
    """Find the name to remove: TARGET itself, or the name that adding TARGET would have given."""
    command: list[str] | None = ctx.meta.get(COMMAND)
    if command:
        return name_of_command(command)
    if len(words) != 1:
        raise click.UsageError("Give the name of the server to remove.", ctx)
    if words[0].startswith(("http://", "https://")):
        return name_of_url(words[0])
    if words[0].endswith(".py"):
        return slug(Path(words[0]).stem, fallback="server")
    if os.sep in words[0] or words[0] in (".", ".."):
        return slug(absolute(Path(words[0])).name)
    return words[0]


def present_names(file: Path, name: str) -> str:
    """Name the servers that the file has, the one that was probably meant first."""
    from wharfinger.cli.configured import Unreadable, servers_in
    from wharfinger.cli.near import choices

    try:
        return choices(name, [server.name for server in servers_in(file)], "It has")
    except (FileNotFoundError, Unreadable):
        return ""


def read_text(file: Path) -> str:
    """Read the host's file; one that is not there is empty."""
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise Failed(f"{file} is not UTF-8; it was left as it is.") from None


def write(file: Path, new: str) -> Path | None:
    """Replace the file in one step, keeping what it was beside it; a link stays one, and so does the mode."""
    import tempfile

    real = file.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    backup = keep(real) if real.exists() else None
    with tempfile.NamedTemporaryFile(dir=real.parent, prefix=real.name + ".", delete=False) as out:
        out.write(new.encode("utf-8"))
        out.flush()
        os.fsync(out.fileno())
    made = Path(out.name)
    try:
        made.chmod(real.stat().st_mode & 0o777 if real.exists() else 0o600)
        made.replace(real)
    except OSError:
        made.unlink()
        raise
    return backup


def keep(file: Path) -> Path:
    """Copy the file beside itself, over the copy of the last time: one backup, which is what the file was just before.

    Its name is ours alone, so that no backup of somebody else's is replaced.
    """
    import shutil

    backup = file.with_name(f"{file.name}.wharfinger.bak")
    backup.unlink(missing_ok=True)  # a link that somebody put there is not followed
    shutil.copy2(file, backup)
    return backup


def diff(file: Path, old: str, new: str) -> str:
    """Write the change as a unified diff."""
    import difflib

    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), str(file), f"{file} (changed)"
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def tell(ctx: click.Context, line: str) -> None:
    """Print what was done, unless `-q`."""
    if not (isinstance(ctx.obj, Verbosity) and ctx.obj.quiet):
        click.echo(line)
