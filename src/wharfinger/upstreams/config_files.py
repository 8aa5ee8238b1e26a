"""The servers in the configuration files of hosts, and the values of their entries with every placeholder filled in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from wharfinger.net import has_control
from wharfinger.upstreams import jsonc
from wharfinger.upstreams.host_formats import BASES, HOSTS
from wharfinger.upstreams.placeholders import InvalidConfiguration, Placeholders

__all__ = ["ConfiguredServer", "all_servers", "config_files", "expanded", "servers_in"]

SERVER_TABLES = (("mcpServers",), ("servers",), ("mcp_servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
"""Where a file has the servers: for Claude Desktop and most hosts, VS Code, Codex, and (two) for VS Code's settings."""
URL_KEYS = ("url", "httpUrl", "serverUrl")
MAX_FILE_BYTES = 16 * 1024 * 1024
"""The maximum size of a file; Claude Code's has much other content."""
MAX_ENV_FILE_BYTES = 1024 * 1024
"""The maximum size of an `envFile`."""


class ConfiguredServer(NamedTuple):
    """One entry of a configuration, with `${…}` placeholders."""

    name: str
    file: Path | None
    """The file with the entry; None for an entry that a program passes to `Host`."""
    entry: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]] = {}
    """The descriptions of VS Code's inputs, by their id."""

    @property
    def folder(self) -> Path:
        """The folder of the file's project; the current folder if the file is the user's, or there is none."""
        if self.file is None or self.file in user_files():
            return HERE
        parent = self.file.parent
        return parent.parent if parent.name in PROJECT_FOLDERS else parent

    @property
    def name_in_errors(self) -> str:
        """The server's name, and its file if it has one, with which the messages of errors begin."""
        return repr(self.name) if self.file is None else f"{self.name!r} in {self.file}"

    @property
    def address(self) -> str:
        """The URL as it is written in the file, or an empty string for a command."""
        return next((str(self.entry[key]) for key in URL_KEYS if isinstance(self.entry.get(key), str)), "")


HERE = Path()
PROJECT_FOLDERS = frozenset((".vscode", ".cursor", ".codex", ".gemini"))


def config_files() -> list[Path]:
    """Return the usual files: those of the project, then of the user, `mcp.json` before those of hosts."""
    user = user_files()
    known = {file.resolve() for file in user}  # in the home folder, some files of the project are those of the user
    project = [Path("mcp.json"), *(Path(host.project) for host in HOSTS.values() if host.project)]
    return list(dict.fromkeys((*(file for file in project if file.resolve() not in known), *user)))


def user_files() -> list[Path]:
    """Return the files of the user: none in the home folder if there is no such folder."""
    places = [("config", "wharfinger/mcp.json"), *((host.base, host.user) for host in HOSTS.values())]
    files: list[Path] = []
    for base, path in places:
        with contextlib.suppress(FileNotFoundError):
            files.append(BASES[base]() / path)
    return files


def servers_in(file: Path, *, all_entries: bool = False) -> list[ConfiguredServer]:
    """Return the servers of a file; with `all_entries` also those that have neither a command nor a URL.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidConfiguration: the file cannot be read, or is not JSON (or TOML, for a file named `.toml`).
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidConfiguration(f"{file}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidConfiguration(f"{file} is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
    config = parse(file, data)
    inputs = inputs_of(config)
    servers: dict[str, ConfiguredServer] = {}
    local_table = ("projects", str(Path.cwd()), "mcpServers")  # Claude Code's servers for one folder
    for path in (*SERVER_TABLES, local_table):
        for name, entry in table_at(config, path).items():
            server = ConfiguredServer(
                name, file, cast("dict[str, Any]", entry if isinstance(entry, dict) else {}), inputs
            )
            if all_entries or server.entry.get("command") or server.address:
                servers[name] = server
    return list(servers.values())


def parse(file: Path, data: bytes) -> Any:
    """Read JSON with comments, or TOML. Raises InvalidConfiguration if it is malformed."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidConfiguration(f"{file} is not UTF-8") from None
    if file.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfiguration(f"{file}: {error}") from None
    try:
        return jsonc.loads(text)
    except jsonc.InvalidJson as error:
        raise InvalidConfiguration(f"{file}, {error}") from None


def table_at(table: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Return the table at a path, or an empty one if there is none."""
    for key in path:
        table = cast("dict[str, Any]", table).get(key) if isinstance(table, dict) else None
    return cast("dict[str, Any]", table) if isinstance(table, dict) else {}


def inputs_of(config: Any) -> dict[str, Mapping[str, Any]]:
    """Return the descriptions of VS Code's `inputs`, the values to ask a person for, by their id."""
    inputs: object = table_at(config, ()).get("inputs") or table_at(config, ("mcp",)).get("inputs")
    descriptions: dict[str, Mapping[str, Any]] = {}
    for item in cast("list[object]", inputs) if isinstance(inputs, list) else []:
        if isinstance(item, dict) and isinstance(cast("dict[str, Any]", item).get("id"), str):
            descriptions[cast("dict[str, str]", item)["id"]] = cast("dict[str, Any]", item)
    return descriptions


def all_servers(file: Path | None) -> tuple[list[ConfiguredServer], list[str]]:
    """Return the servers of one file, or of all usual ones, and an error for each file that cannot be read.

    Raises:
        FileNotFoundError: there is no such `file`. A usual file may be missing.
    """
    servers: list[ConfiguredServer] = []
    errors: list[str] = []
    for path in [file] if file else config_files():
        try:
            servers += servers_in(path)
        except FileNotFoundError:
            if file:
                raise
        except InvalidConfiguration as error:
            errors.append(str(error))
    return servers, errors


def expanded(server: ConfiguredServer, placeholders: Placeholders) -> dict[str, Any]:
    """Return an entry as `url` and `headers`, or `command`, `args`, `env` and `cwd`, with every placeholder filled in.

    Raises:
        InvalidConfiguration: a placeholder cannot be filled in, a value has the wrong type, or the entry has neither a
            URL nor a command.
    """
    entry, fill = server.entry, placeholders.fill
    if server.address:
        return {"url": fill(server.address, "url"), "headers": read_headers(placeholders, entry)}
    command: object = entry.get("command")
    if not command or not isinstance(command, str | list):
        raise InvalidConfiguration(f'{placeholders.name_in_errors} needs an object with either "url" or "command".')
    args: object = entry.get("args") or []
    words: list[object] = [*(cast("list[object]", command) if isinstance(command, list) else [command])]
    if not isinstance(args, list):
        raise InvalidConfiguration(f"{placeholders.name_in_errors}: args is not a list.")
    words += cast("list[object]", args)
    places = ("command", *(f"args {index}" for index in range(1, len(words))))
    program, *rest = (read_text(placeholders, word, place) for word, place in zip(words, places, strict=True))
    cwd = entry.get("cwd")
    if isinstance(cwd, str) and cwd:
        cwd = str(server.folder / os.path.expanduser(fill(cwd, "cwd")))
    else:
        cwd = None if server.folder == HERE else str(server.folder)
    env = read_env_file(placeholders, entry.get("envFile")) | read_passed_variables(placeholders, entry)
    env |= read_texts(placeholders, entry, "env")
    return {"command": program, "args": rest, "env": env, "cwd": cwd}


def read_headers(placeholders: Placeholders, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a URL. A file of Codex may name variables instead of values.

    Raises:
        InvalidConfiguration: a header cannot be sent, its variable is not set, or a member is not an object of texts.
    """
    fields = {**read_texts(placeholders, entry, "http_headers"), **read_texts(placeholders, entry, "headers")}
    for name, variable in read_texts(placeholders, entry, "env_http_headers").items():
        fields[name] = placeholders.value_of_variable(variable, f"env_http_headers {name}")
    token = entry.get("bearer_token_env_var")
    if isinstance(token, str):
        fields["Authorization"] = "Bearer " + placeholders.value_of_variable(token, "bearer_token_env_var")
    for name, value in fields.items():
        if has_control(name + value):
            raise InvalidConfiguration(
                f"{placeholders.name_in_errors}: the header {name!r} has a line break or another control character."
            )
    return fields


def read_texts(placeholders: Placeholders, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return a table of strings. Numbers and booleans become strings, such as `true`; null is skipped.

    Raises:
        InvalidConfiguration: the member is not an object, a value of it is a list or an object, or a placeholder cannot
            be filled in.
    """
    table: object = entry.get(key) or {}
    if not isinstance(table, Mapping):
        raise InvalidConfiguration(f"{placeholders.name_in_errors}: {key} is not an object.")
    strings: dict[str, str] = {}
    for name, value in cast("Mapping[str, object]", table).items():
        if value is not None:
            strings[name] = read_text(placeholders, value, f"{key} {name}")
    return strings


def read_text(placeholders: Placeholders, value: object, place: str) -> str:
    """Return a value as text, such as `true` or `8080`, with its placeholders filled in.

    Raises:
        InvalidConfiguration: it is null, a list or an object, or a placeholder cannot be filled in.
    """
    if value is None or isinstance(value, list | Mapping):
        raise InvalidConfiguration(f"{placeholders.name_in_errors}: {place} must be a text, a number, true or false.")
    return placeholders.fill(str(value).lower() if isinstance(value, bool) else str(value), place)


def read_passed_variables(placeholders: Placeholders, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that Codex's `env_vars` passes on, by name or as `{"name": …}`, without those not set.

    Raises:
        InvalidConfiguration: the member is not a list of these.
    """
    items: object = entry.get("env_vars") or []
    names: list[object] = [
        cast("Mapping[str, object]", item).get("name") if isinstance(item, Mapping) else item
        for item in (cast("list[object]", items) if isinstance(items, list) else [None])
    ]
    if not all(isinstance(name, str) for name in names):
        raise InvalidConfiguration(f"{placeholders.name_in_errors}: env_vars must be a list of names of variables.")
    values = {name: placeholders.variable(name) for name in cast("list[str]", names)}
    return {name: value for name, value in values.items() if value is not None}


def read_env_file(placeholders: Placeholders, file: object) -> dict[str, str]:
    """Read VS Code's `envFile`: lines of NAME=VALUE. Returns nothing if `file` is not a text.

    Raises:
        InvalidConfiguration: the file cannot be read, is not UTF-8, or is too large.
    """
    if not isinstance(file, str):
        return {}
    path = placeholders.folder / os.path.expanduser(placeholders.fill(file, "envFile"))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_ENV_FILE_BYTES + 1)
        if len(data) > MAX_ENV_FILE_BYTES:
            raise InvalidConfiguration(f"{placeholders.name_in_errors}: its envFile {path} is larger than 1 MiB.")
        lines = data.decode("utf-8-sig").splitlines()
    except InvalidConfiguration:
        raise
    except (OSError, ValueError) as error:  # such as a path with a null character
        raise InvalidConfiguration(
            f"{placeholders.name_in_errors}: cannot read its envFile {path} ({error})."
        ) from None
    variables: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            variables[name.strip()] = value[1:-1] if quoted else value
    return variables
