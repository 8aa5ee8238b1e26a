"""Reads the configuration of servers in the formats of hosts, with our own keys under `wharfinger`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from wharfinger.client.connect import Target
from wharfinger.client.host_entry import HostEntry, read_entry
from wharfinger.content.globs import MAX_PATTERN_CHARACTERS
from wharfinger.upstreams.config_files import ConfiguredServer, expanded, servers_in
from wharfinger.upstreams.host_formats import HOSTS, user_file
from wharfinger.upstreams.placeholders import Ask, InvalidConfiguration, Placeholders

__all__ = ["ServerConfig", "read_config", "read_host_config"]

OWN_KEY = "wharfinger"
"""The member of an entry that has our own keys."""
MAX_SERVERS = 1_000
MAX_PATTERNS = 1_000
MAX_SECONDS = 86_400.0
MAX_PREFIX_CHARACTERS = 32
MAX_REPORTED_ENTRIES = 10
"""The maximum number of entries that are named in the error for a file in which none is usable."""
NO_TARGET = ["false"]
"""The target of a server that is never started, because its entry cannot be used: the command `false`."""

USED_KEYS = frozenset(
    {
        "command", "args", "env", "envFile", "env_vars", "cwd", "url", "httpUrl", "serverUrl", "headers",
        "http_headers", "env_http_headers", "bearer_token_env_var", "disabled", "enabled", "includeTools",
        "excludeTools", "enabled_tools", "disabled_tools", OWN_KEY,
    }
)  # fmt: skip
"""Keys that have an effect. An unknown key that resembles one of them is an error; other unknown keys are ignored."""
READ_KEYS = frozenset(("envFile", "env_vars", "env_http_headers", "bearer_token_env_var"))
"""Keys that name a file or a variable to read."""
IGNORED_KEYS = frozenset(
    {
        "alwaysAllow", "authProviderType", "autoApprove", "description", "dev", "gallery", "headersHelper", "icon",
        "id", "name", "oauth", "required", "scopes", "scope", "startup_timeout_ms", "startup_timeout_sec",
        "targetAudience", "timeout", "title", "tool_timeout_sec", "tools", "transport", "trust", "type", "version",
    }
)  # fmt: skip
"""Known keys that have no effect here. For example, a server that another host trusts is not trusted."""
SIMILARITY = 0.8
"""How similar an unknown key must be to one of `USED_KEYS` to be refused, from 0 to 1 (`difflib`)."""


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One server: how to reach it, and what to offer under which names."""

    name: str
    target: Target
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    cwd: str | None = None
    disabled: bool = False
    include_tools: Sequence[str] | None = None
    """The server's own names of the only tools to offer; None to offer all."""
    exclude_tools: Sequence[str] = ()
    """The server's own names of tools that are not offered."""
    prefix: str | None = None
    """The prefix of its tools' and prompts' names, instead of the server's name; empty for none."""
    expose: Sequence[str] = ()
    """Patterns of the only tools, prompts and URIs to offer. A pattern with `://` is for URIs."""
    hide: Sequence[str] = ()
    """Patterns of tools, prompts and URIs that are not offered; they win over `expose`."""
    rename: Mapping[str, str] = {}
    """New names of tools and prompts, by the server's own names."""
    idle_seconds: float | None = None
    """Seconds without a call after which the server is stopped until the next call; None to keep it running."""
    timeout_seconds: float | None = None
    """Seconds that a call may take; None to use the default of the client."""
    trusted: bool = False
    """Whether `Host` trusts the annotations of its tools, such as `readOnlyHint`. No file can say so."""
    file: str = ""
    """The file that configures it, or an empty string."""
    error: str = ""
    """Why its entry cannot be used; such a server is down. Empty if the entry can be used."""


class OwnKeys(msgspec.Struct, frozen=True, rename="camel"):
    """The object `wharfinger` of an entry."""

    prefix: str | None = None
    expose: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    rename: Mapping[str, str] = {}
    idle_seconds: float | None = None
    timeout_seconds: float | None = None


def read_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] = os.environ,
    inputs: Mapping[str, str] | Ask | None = None,
) -> list[ServerConfig]:
    """Read the servers of a host's file: `mcpServers` of most hosts, `servers` of VS Code, `mcp_servers` of Codex.

    Placeholders are filled in from `environ`. `inputs` is a mapping with the values of `${input:id}` by their id, or a
    function that is called with the id and the object that describes the input. An input that the mapping does not have
    gets the value of `WHARFINGER_INPUT_<ID>`; the function is called if there is no such variable.

    The placeholders of a disabled server stay as they are. If its entry cannot be used, its target is `["false"]`.

    An entry that cannot be used does not affect the others; its `error` says what to change.

    Raises:
        InvalidConfiguration: the file cannot be used, or none of its entries can.
    """
    file = Path(path)
    try:
        servers = servers_in(file, all_entries=True)
    except FileNotFoundError:
        raise InvalidConfiguration(f"{file}: no such file.") from None
    if not servers:
        raise InvalidConfiguration(
            f'{file} configures no server: it has no entry in "mcpServers", "servers" or "mcp_servers".'
        )
    if len(servers) > MAX_SERVERS:
        raise InvalidConfiguration(f"{file} configures {len(servers):,} servers: {MAX_SERVERS:,} are allowed.")
    ask: Ask = inputs if callable(inputs) else no_answer
    input_values: dict[str, str] = dict(inputs) if isinstance(inputs, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]
    configs = [config_or_error(server, environ, ask, input_values) for server in servers]
    if all(config.error for config in configs):
        raise InvalidConfiguration("\n".join(config.error for config in configs[:MAX_REPORTED_ENTRIES]))
    return configs


def read_host_config(
    name: str, *, environ: Mapping[str, str] = os.environ, inputs: Mapping[str, str] | Ask | None = None
) -> list[ServerConfig]:
    """Read the servers that this user configured in a host, such as `claude-desktop`, as `read_config` does.

    Raises:
        InvalidConfiguration: there is no such host, or it has no configuration that can be used.
    """
    host = HOSTS.get(name)
    if host is None:
        raise InvalidConfiguration(f"There is no host {name!r}.{suggestion(name, HOSTS)}")
    try:
        file = user_file(host)
    except FileNotFoundError as error:
        raise InvalidConfiguration(f"The configuration of {host.title} cannot be found: {error}.") from None
    if not file.exists():
        raise InvalidConfiguration(f"{host.title} has no configuration of servers here: {file} does not exist.")
    return read_config(file, environ=environ, inputs=inputs)


def no_answer(name: str, described: Mapping[str, Any]) -> None:
    """Return None: there is no one to ask."""


def config_or_error(
    server: ConfiguredServer, environ: Mapping[str, str], ask: Ask, input_values: dict[str, str]
) -> ServerConfig:
    """Return the configuration of one entry of a file; if the entry cannot be used, one whose `error` says why."""
    try:
        return config_of(server, environ, ask, input_values)
    except InvalidConfiguration as error:
        return ServerConfig(name=server.name, target=NO_TARGET, file=str(server.file), error=str(error))


def config_of(
    server: ConfiguredServer, environ: Mapping[str, str], ask: Ask, input_values: dict[str, str]
) -> ServerConfig:
    """Return the configuration of one entry. `${…}` stays as it is in an entry that is not from a file.

    `input_values` has the known values of inputs by their id; those that `ask` returns are added to it.

    Raises:
        InvalidConfiguration: the entry cannot be used; the message says what to change.
    """
    entry, name_in_errors = server.entry, server.name_in_errors
    check_keys(name_in_errors, entry)
    own = read_own_keys(name_in_errors, entry.get(OWN_KEY))
    disabled = read_flag(name_in_errors, entry, "disabled", default=False)
    disabled = disabled or not read_flag(name_in_errors, entry, "enabled", default=True)
    if disabled:
        connection = connection_of_disabled(server)
    else:
        placeholders = Placeholders(
            name_in_errors,
            server.folder.absolute(),
            server.inputs,
            environ,
            ask,
            input_values,
            literal=server.file is None,
        )
        values = expanded(server, placeholders)
        try:
            connection = read_entry(values)
        except ValueError as error:
            raise InvalidConfiguration(f"{name_in_errors}: {error}") from None
    return ServerConfig(
        name=server.name,
        target=connection.target,
        env=connection.env,
        headers=connection.headers,
        cwd=connection.cwd,
        disabled=disabled,
        include_tools=read_names(name_in_errors, entry, "includeTools", "enabled_tools"),
        exclude_tools=read_names(name_in_errors, entry, "excludeTools", "disabled_tools") or (),
        file="" if server.file is None else str(server.file),
        **msgspec.structs.asdict(own),
    )


def connection_of_disabled(server: ConfiguredServer) -> HostEntry:
    """Return how to reach a disabled server, with its placeholders as they are, or `NO_TARGET` if it cannot be used.

    No file and no variable is read.
    """
    entry = {key: value for key, value in server.entry.items() if key not in READ_KEYS}
    placeholders = Placeholders(server.name_in_errors, server.folder, {}, {}, no_answer, {}, literal=True)
    try:
        return read_entry(expanded(server._replace(entry=entry), placeholders))
    except ValueError:
        return HostEntry(NO_TARGET, {}, {}, None)


def check_keys(name_in_errors: str, entry: Mapping[str, Any]) -> None:
    """Refuse a key that is probably a misspelling of one that has an effect."""
    for key in entry:
        if key in USED_KEYS or key in IGNORED_KEYS:
            continue
        from difflib import get_close_matches

        near = get_close_matches(key[:64], USED_KEYS, 1, SIMILARITY)
        if near:
            raise InvalidConfiguration(f"{name_in_errors} has the unknown key {key[:64]!r}. Did you mean {near[0]!r}?")


def read_own_keys(name_in_errors: str, value: object) -> OwnKeys:
    """Read the object `wharfinger` of an entry. Raises InvalidConfiguration if it is malformed."""
    if value is None:
        return OwnKeys()
    if not isinstance(value, dict):
        raise InvalidConfiguration(f'{name_in_errors}: "wharfinger" is not an object.')
    known = {field.encode_name: field.name for field in msgspec.structs.fields(OwnKeys)}
    for key in cast("dict[str, object]", value):
        if key not in known:
            raise InvalidConfiguration(
                f'{name_in_errors}: "wharfinger" has the unknown key {key[:64]!r}.{suggestion(key, known)}'
            )
    try:
        own = msgspec.convert(value, OwnKeys)
    except msgspec.ValidationError as error:
        raise InvalidConfiguration(f'{name_in_errors}: "wharfinger": {error}') from None
    for key, seconds in (("idleSeconds", own.idle_seconds), ("timeoutSeconds", own.timeout_seconds)):
        if seconds is not None and not 0 < seconds <= MAX_SECONDS:
            raise InvalidConfiguration(
                f"{name_in_errors}: {key} must be more than 0 and at most {MAX_SECONDS:g}, not {seconds:g}."
            )
    if own.prefix is not None and len(own.prefix) > MAX_PREFIX_CHARACTERS:
        raise InvalidConfiguration(
            f"{name_in_errors}: prefix has {len(own.prefix)} characters: {MAX_PREFIX_CHARACTERS} are allowed."
        )
    for key, patterns in (("expose", own.expose), ("hide", own.hide), ("rename", tuple(own.rename.values()))):
        if len(patterns) > MAX_PATTERNS:
            raise InvalidConfiguration(
                f"{name_in_errors}: {key} has {len(patterns):,} entries: {MAX_PATTERNS:,} are allowed."
            )
        if any(not 0 < len(pattern) <= MAX_PATTERN_CHARACTERS for pattern in patterns):
            raise InvalidConfiguration(
                f"{name_in_errors}: each entry of {key} must have 1 to {MAX_PATTERN_CHARACTERS:,} characters."
            )
    return own


def read_flag(name_in_errors: str, entry: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """Read a member that is true or false; null means the default. Raises InvalidConfiguration for anything else."""
    value = entry.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidConfiguration(f"{name_in_errors}: {key} must be true or false, not {value!r}.")
    return value


def read_names(name_in_errors: str, entry: Mapping[str, Any], *keys: str) -> tuple[str, ...] | None:
    """Read a list of names under the first of these keys that the entry has; None if it has none of them.

    Raises:
        InvalidConfiguration: it is not a list of strings.
    """
    for key in keys:
        value: object = entry.get(key)
        if value is None:
            continue
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, str) for item in items):
            raise InvalidConfiguration(f"{name_in_errors}: {key} must be a list of names of tools.")
        return tuple(cast("list[str]", items))
    return None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest of the known names, or else all of them."""
    known = list(known)
    from difflib import get_close_matches

    near = get_close_matches(name[:64], known, 1, 0.6)
    return f" Did you mean {near[0]!r}?" if near else f" The known ones are {', '.join(known)}."
