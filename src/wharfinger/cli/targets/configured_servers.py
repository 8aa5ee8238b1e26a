"""Servers by name, from the configuration files of hosts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import click

from wharfinger.cli.targets import jsonc
from wharfinger.cli.targets.hosts import HOSTS, config_folder, user_file
from wharfinger.cli.targets.placeholders import Placeholders

__all__ = [
    "ConfiguredServer",
    "InvalidConfigFile",
    "ResolvedServer",
    "all_servers",
    "config_files",
    "look_up",
    "resolve",
    "servers_in",
]

SERVER_TABLES = (("mcpServers",), ("servers",), ("mcp_servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
"""The paths of the servers in a file: of Claude Desktop and most others, VS Code, Codex, VS Code's settings."""
URL_KEYS = ("url", "httpUrl", "serverUrl")
FILE_BYTES = 16 * 1024 * 1024
"""The maximum size of a file; Claude Code's has much other content."""


class ConfiguredServer(NamedTuple):
    """One entry of a file, with `${…}` placeholders; `inputs` describes those of VS Code by their id."""

    name: str
    file: Path
    entry: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]

    @property
    def folder(self) -> Path:
        """The folder of the project that the file belongs to, or the current folder if the file is the user's."""
        if self.file in user_files():
            return HERE
        parent = self.file.parent
        return parent.parent if parent.name in PROJECT_FOLDERS else parent

    @property
    def address(self) -> str:
        """The URL as it is in the file, or an empty string for a command."""
        return next((str(self.entry[key]) for key in URL_KEYS if isinstance(self.entry.get(key), str)), "")


class ResolvedServer(NamedTuple):
    """How to reach a server, with every placeholder filled in: by its URL and headers, or by a command."""

    url: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    headers: Mapping[str, str]
    cwd: str | None


HERE = Path()
PROJECT_FOLDERS = frozenset((".vscode", ".cursor", ".codex", ".gemini"))


class InvalidConfigFile(ValueError):
    """A file cannot be read as a configuration; the message says why."""


def config_files() -> list[Path]:
    """Return the usual files: those of the project, then of the user, `mcp.json` before those of hosts."""
    project = [Path("mcp.json"), *(Path(host.project) for host in HOSTS.values() if host.project)]
    return list(dict.fromkeys((*project, *user_files())))


def user_files() -> list[Path]:
    """Return the files of the user."""
    return [config_folder() / "wharfinger" / "mcp.json", *(user_file(host) for host in HOSTS.values())]


def servers_in(file: Path) -> list[ConfiguredServer]:
    """Return the servers of a file.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidConfigFile: it cannot be read, or is not JSON (or TOML, for a file named `.toml`).
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidConfigFile(f"{file}: {error.strerror}") from None
    if len(data) > FILE_BYTES:
        raise InvalidConfigFile(f"{file} is larger than {FILE_BYTES // 1024 // 1024} MiB")
    config = parse(file, data)
    inputs = inputs_of(config)
    found: dict[str, ConfiguredServer] = {}
    for path in (*SERVER_TABLES, ("projects", str(Path.cwd()), "mcpServers")):
        for name, entry in table_at(config, path).items():
            server = ConfiguredServer(
                name, file, cast("dict[str, Any]", entry if isinstance(entry, dict) else {}), inputs
            )
            if server.entry.get("command") or server.address:
                found[name] = server
    return list(found.values())


def parse(file: Path, data: bytes) -> Any:
    """Read JSON with comments, or TOML."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidConfigFile(f"{file} is not UTF-8") from None
    if file.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidConfigFile(f"{file}: {error}") from None
    try:
        return jsonc.loads(text)
    except jsonc.InvalidJson as error:
        raise InvalidConfigFile(f"{file}, {error}") from None


def table_at(table: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Return the table at a path, or an empty one if there is none."""
    for key in path:
        table = cast("dict[str, Any]", table).get(key) if isinstance(table, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}


def inputs_of(config: Any) -> dict[str, Mapping[str, Any]]:
    """Return VS Code's `inputs` by id: the values to ask a person for."""
    listed: object = table_at(config, ()).get("inputs") or table_at(config, ("mcp",)).get("inputs")
    found: dict[str, Mapping[str, Any]] = {}
    for one in cast("list[object]", listed) if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(cast("dict[str, Any]", one).get("id"), str):
            found[cast("dict[str, str]", one)["id"]] = cast("dict[str, Any]", one)
    return found


def all_servers(file: Path | None) -> tuple[list[ConfiguredServer], list[str]]:
    """Return the servers of one file, or of all usual ones, and an error for each file that cannot be read."""
    found: list[ConfiguredServer] = []
    errors: list[str] = []
    for path in [file] if file else config_files():
        try:
            found += servers_in(path)
        except FileNotFoundError:
            if file:
                raise
        except InvalidConfigFile as error:
            errors.append(str(error))
    return found, errors


def look_up(ctx: click.Context, name: str, file: Path | None) -> ConfiguredServer | None:
    """Find a server by its name; None if there is none.

    Raises:
        click.UsageError: several files have different servers of that name, or the one file cannot be read.
    """
    try:
        servers, errors = all_servers(file)
    except FileNotFoundError:
        raise click.UsageError(f"No such file: {file}", ctx) from None
    if file and errors:
        raise click.UsageError(f"{errors[0]}.", ctx)
    found = [server for server in servers if server.name == name]
    if len({identity(server) for server in found}) > 1:
        where = ", ".join(str(server.file) for server in found)
        raise click.UsageError(
            f"{name!r} is a different server in each of {where}: choose a file with --config FILE.", ctx
        )
    return found[0] if found else None


def identity(server: ConfiguredServer) -> str:
    """Return what two entries of the same server have in common."""
    parts = (server.address, *(server.entry.get(key) for key in ("command", "args", "env", "headers")))
    return repr(parts)


def resolve(ctx: click.Context, server: ConfiguredServer) -> ResolvedServer:
    """Fill in the placeholders of an entry.

    Raises:
        click.UsageError: a placeholder cannot be filled in, or a value has the wrong type.
    """
    entry, owner = server.entry, f"{server.name!r} in {server.file}"
    placeholders = Placeholders(ctx, owner, server.folder.absolute(), server.inputs, {})
    env = {**env_file(ctx, placeholders, entry.get("envFile")), **texts(ctx, placeholders, entry, "env")}
    if server.address:
        return ResolvedServer(placeholders.fill(server.address, "url"), (), {}, headers(ctx, placeholders, entry), None)
    command: object = entry.get("command")
    args: object = entry.get("args") or []
    words: list[object] = [*(cast("list[object]", command) if isinstance(command, list) else [command])]
    if not isinstance(args, list):
        raise click.UsageError(f"{owner}: args is not a list.", ctx)
    words += cast("list[object]", args)
    filled = tuple(
        placeholders.fill(str(word), f"args {index}" if index else "command") for index, word in enumerate(words)
    )
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        return ResolvedServer(
            "", filled, env, {}, str(server.folder / Path(placeholders.fill(cwd, "cwd")).expanduser())
        )
    return ResolvedServer("", filled, env, {}, None if server.folder == HERE else str(server.folder))


def headers(ctx: click.Context, placeholders: Placeholders, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a URL; Codex can name variables instead of values."""
    found = {**texts(ctx, placeholders, entry, "http_headers"), **texts(ctx, placeholders, entry, "headers")}
    for name, variable in texts(ctx, placeholders, entry, "env_http_headers").items():
        found[name] = placeholders.variable(variable, f"env_http_headers {name}")
    token = entry.get("bearer_token_env_var")
    if isinstance(token, str):
        found["Authorization"] = "Bearer " + placeholders.variable(token, "bearer_token_env_var")
    return found


def texts(ctx: click.Context, placeholders: Placeholders, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return a table of texts; numbers and booleans become texts as they are written, null is skipped."""
    table: object = entry.get(key) or {}
    if not isinstance(table, dict):
        raise click.UsageError(f"{placeholders.owner}: {key} is not an object.", ctx)
    found: dict[str, str] = {}
    for name, value in cast("dict[str, object]", table).items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[name] = placeholders.fill(text, f"{key} {name}")
    return found


def env_file(ctx: click.Context, placeholders: Placeholders, file: object) -> dict[str, str]:
    """Read VS Code's `envFile`: lines of NAME=VALUE."""
    if not isinstance(file, str):
        return {}
    path = placeholders.folder / Path(placeholders.fill(file, "envFile")).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{placeholders.owner}: cannot read its envFile {path} ({error}).", ctx) from None
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            found[name.strip()] = value[1:-1] if quoted else value
    return found
