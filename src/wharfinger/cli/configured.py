"""Servers by name, from the files in which hosts keep them; it refuses to connect, and to change a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from wharfinger.cli import jsonc
from wharfinger.cli.hosts import HOSTS, config_folder, user_file
from wharfinger.cli.placeholders import Blanks

__all__ = ["Configured", "Resolved", "known", "look_up", "names", "places", "resolve", "servers_in"]

TABLES = (("mcpServers",), ("servers",), ("mcp_servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
"""Where in a file the servers stand: Claude Desktop's and most others, VS Code's, Codex's, VS Code's settings."""
URLS = ("url", "httpUrl", "serverUrl")
MOST = 16 * 1024 * 1024
"""Bytes of a file that are read; Claude Code keeps much else in its own."""


class Configured(NamedTuple):
    """One server as a file says it."""

    name: str
    file: Path
    said: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]

    @property
    def folder(self) -> Path:
        """The folder of the project that the file belongs to, or the current one where it is the user's."""
        if self.file in user_places():
            return HERE
        holder = self.file.parent
        return holder.parent if holder.name in PROJECT_FOLDERS else holder

    @property
    def address(self) -> str:
        """The URL as the file says it; empty for a command."""
        return next((str(self.said[key]) for key in URLS if isinstance(self.said.get(key), str)), "")


class Resolved(NamedTuple):
    """How to reach a server, with every blank filled in."""

    url: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    headers: Mapping[str, str]
    cwd: str | None


HERE = Path()
PROJECT_FOLDERS = frozenset((".vscode", ".cursor", ".codex", ".gemini"))


class Unreadable(ValueError):
    """A file that is there and is no configuration; says why."""


def places() -> list[Path]:
    """List the usual files: the project's and the user's, ours before those of hosts."""
    project = [Path("mcp.json"), *(Path(host.project) for host in HOSTS.values() if host.project)]
    return list(dict.fromkeys((*project, *user_places())))


def user_places() -> list[Path]:
    """List the user's own files."""
    return [config_folder() / "wharfinger" / "mcp.json", *(user_file(host) for host in HOSTS.values())]


def servers_in(file: Path) -> list[Configured]:
    """List the servers of a file.

    Raises:
        FileNotFoundError: it is not there.
        Unreadable: it cannot be read, or is not JSON (TOML if it is named so).
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unreadable(f"{file}: {error.strerror}") from None
    if len(data) > MOST:
        raise Unreadable(f"{file} is larger than {MOST // 1024 // 1024} MiB")
    said = parse(file, data)
    inputs = inputs_of(said)
    found: dict[str, Configured] = {}
    for path in (*TABLES, ("projects", str(Path.cwd()), "mcpServers")):
        for name, entry in at(said, path).items():
            if isinstance(entry, dict) and is_server(cast("dict[str, Any]", entry)):
                found[name] = Configured(name, file, cast("dict[str, Any]", entry), inputs)
    return list(found.values())


def parse(file: Path, data: bytes) -> Any:
    """Read JSON with comments and trailing commas, or TOML."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{file} is not UTF-8") from None
    if file.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise Unreadable(f"{file}: {error}") from None
    try:
        return jsonc.loads(text)
    except jsonc.InvalidJson as error:
        raise Unreadable(f"{file}, {error}") from None


def at(said: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Go down to a table; an empty one where there is none."""
    for key in path:
        said = cast("dict[str, Any]", said).get(key) if isinstance(said, dict) else None
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def is_server(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry says how to reach a server."""
    return bool(entry.get("command")) or any(isinstance(entry.get(key), str) for key in URLS)


def inputs_of(said: Any) -> dict[str, Mapping[str, Any]]:
    """Take VS Code's `inputs`: what a person is asked for."""
    listed: object = at(said, ()).get("inputs") or at(said, ("mcp",)).get("inputs")
    found: dict[str, Mapping[str, Any]] = {}
    for one in cast("list[object]", listed) if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(cast("dict[str, Any]", one).get("id"), str):
            found[cast("dict[str, str]", one)["id"]] = cast("dict[str, Any]", one)
    return found


def known(file: Path | None) -> tuple[list[Configured], list[str]]:
    """List every server of one file, or of the usual ones, and what was wrong with files that cannot be read."""
    found: list[Configured] = []
    wrong: list[str] = []
    for place in [file] if file else places():
        try:
            found += servers_in(place)
        except FileNotFoundError:
            if file:
                raise
        except Unreadable as error:
            wrong.append(str(error))
    return found, wrong


def names(file: Path | None) -> list[str]:
    """Name every server, each once."""
    try:
        return list(dict.fromkeys(server.name for server in known(file)[0]))
    except FileNotFoundError:
        return []


def look_up(ctx: click.Context, name: str, file: Path | None) -> Configured | None:
    """Find a server by its name; None where there is none.

    Raises:
        click.UsageError: several files have different servers of that name, or the one file cannot be read.
    """
    try:
        servers, wrong = known(file)
    except FileNotFoundError:
        raise click.UsageError(f"No such file: {file}", ctx) from None
    if file and wrong:
        raise click.UsageError(f"{wrong[0]}.", ctx)
    found = [server for server in servers if server.name == name]
    if len({identity(server) for server in found}) > 1:
        where = ", ".join(str(server.file) for server in found)
        raise click.UsageError(f"{name!r} is another server in each of {where}: choose with --config FILE.", ctx)
    return found[0] if found else None


def identity(server: Configured) -> str:
    """Write what makes two entries the same server."""
    said = server.said
    parts = (server.address, said.get("command"), said.get("args"), said.get("env"), said.get("headers"))
    return repr(parts)


def resolve(ctx: click.Context, server: Configured) -> Resolved:
    """Fill in the blanks of an entry.

    Raises:
        click.UsageError: a blank cannot be filled in, or a value is of no use.
    """
    said, owner = server.said, f"{server.name!r} in {server.file}"
    blanks = Blanks(ctx, owner, server.folder.absolute(), server.inputs, {})
    env = {**env_file(ctx, blanks, said.get("envFile")), **texts(ctx, blanks, said, "env")}
    if server.address:
        return Resolved(blanks.fill(server.address, "url"), (), {}, headers(ctx, blanks, said), None)
    command: object = said.get("command")
    args: object = said.get("args") or []
    words: list[object] = [*(cast("list[object]", command) if isinstance(command, list) else [command])]
    if not isinstance(args, list):
        raise click.UsageError(f"{owner}: args is no list.", ctx)
    words += cast("list[object]", args)
    filled = tuple(blanks.fill(str(word), f"args {place}" if place else "command") for place, word in enumerate(words))
    cwd = said.get("cwd")
    if isinstance(cwd, str) and cwd:
        return Resolved("", filled, env, {}, str(server.folder / Path(blanks.fill(cwd, "cwd")).expanduser()))
    return Resolved("", filled, env, {}, None if server.folder == HERE else str(server.folder))


def headers(ctx: click.Context, blanks: Blanks, said: Mapping[str, Any]) -> dict[str, str]:
    """Read the headers of a URL; Codex names variables instead of values."""
    found = {**texts(ctx, blanks, said, "http_headers"), **texts(ctx, blanks, said, "headers")}
    for name, variable in texts(ctx, blanks, said, "env_http_headers").items():
        found[name] = blanks.variable(variable, f"env_http_headers {name}")
    token = said.get("bearer_token_env_var")
    if isinstance(token, str):
        found["Authorization"] = "Bearer " + blanks.variable(token, "bearer_token_env_var")
    return found


def texts(ctx: click.Context, blanks: Blanks, said: Mapping[str, Any], key: str) -> dict[str, str]:
    """Read a table of texts; numbers and yes or no are taken as they are written, null as absent."""
    table: object = said.get(key) or {}
    if not isinstance(table, dict):
        raise click.UsageError(f"{blanks.owner}: {key} is no object.", ctx)
    return {
        name: blanks.fill(written(value), f"{key} {name}")
        for name, value in cast("dict[str, object]", table).items()
        if value is not None
    }


def written(value: object) -> str:
    """Write a JSON scalar as a text."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def env_file(ctx: click.Context, blanks: Blanks, file: object) -> dict[str, str]:
    """Read VS Code's `envFile`: lines of NAME=VALUE."""
    if not isinstance(file, str):
        return {}
    path = blanks.folder / Path(blanks.fill(file, "envFile")).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{blanks.owner}: cannot read its envFile {path} ({error}).", ctx) from None
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found
