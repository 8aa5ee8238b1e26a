"""Makes the public names of the tools and prompts of several servers, and names for servers that have none.

With more than one server, the tool `read` of the server `docs` is `docs_read`. APIs of models accept at most 64
letters, digits, `_` and `-`, so other characters become `_`, and a longer name is cut. A name that would then be
ambiguous ends with a digest of the server's and the tool's own names. A name depends on the configuration and on the
lists of its own server, but never on whether other servers run, or which of them answers first.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import cast
from urllib.parse import urlsplit

from wharfinger.net import is_http_url

__all__ = [
    "MAX_NAME_CHARACTERS",
    "distinct_names",
    "name_of_target",
    "prefixes_of",
    "program_name",
    "public_names",
]

MAX_NAME_CHARACTERS = 64
"""The maximum length of a tool's name that the APIs of models accept."""
MAX_PREFIX_CHARACTERS = 32
DIGEST_CHARACTERS = 8

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_HAS_DIGEST = re.compile(r"_[0-9a-f]{8}\Z").search
_LAUNCHERS = frozenset((
    "bun", "bunx", "deno", "docker", "node", "npx", "pipx", "pnpm", "podman", "py", "python", "uv", "uvx", "wharfinger",
))  # fmt: skip
"""Programs that start another program. The server is named after the other one."""
_SUBCOMMANDS = frozenset(("container", "dlx", "exec", "run", "serve", "tool", "x"))
_OPTIONS_WITH_VALUE = frozenset((
    "-e", "-p", "-r", "-u", "-v", "-w", "--entrypoint", "--env", "--env-file", "--from", "--import", "--mount",
    "--name", "--network", "--package", "--platform", "--publish", "--python", "--require", "--spec", "--user",
    "--volume", "--with", "--workdir",
))  # fmt: skip
"""Options of launchers whose value is the next word, which does not name the started program, and may be a secret."""
_RUNNABLE = re.compile(r"(@?\w[\w.-]{0,63})(?:\[[\w,.-]*\])?(?:[@:][\w.:^~*-]*|[=<>~!]=[^=]*)?").fullmatch
"""The name of a script, package or image, with extras and a version. It does not match code, or `NAME=VALUE`."""


def prefixes_of(servers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the prefix of each server's names, without the `_` after it.

    `servers` has the configured prefix of each server. None stands for the server's name. Different prefixes stay
    different. A single server has no prefix, unless one is configured.
    """
    if len(servers) == 1:
        return {name: _replace_unusable(prefix or "") for name, prefix in servers.items()}
    configured = {name: name if prefix is None else prefix for name, prefix in servers.items()}
    usable = {name: _replace_unusable(prefix) for name, prefix in configured.items()}
    counts = Counter(usable.values())
    prefixes: dict[str, str] = {}
    for name, prefix in usable.items():
        changed = prefix != configured[name]
        if len(prefix) > MAX_PREFIX_CHARACTERS or (counts[prefix] > 1 and changed):
            prefix = _cut(prefix, name, MAX_PREFIX_CHARACTERS)
        prefixes[name] = prefix
    return prefixes


def public_names(
    server: str, prefix: str, own_names: Iterable[str], rename: Mapping[str, str], prefixes: Iterable[str]
) -> dict[str, str]:
    """Return the public name of each tool, or each prompt, of one server by its own name.

    Args:
        server: The server's name.
        prefix: The server's prefix.
        own_names: The tools' own names.
        rename: New names, by the tools' own names.
        prefixes: The prefixes of all servers.
    """
    start = f"{prefix}_" if prefix else ""
    # If another prefix is `a_b`, the tool `b_c` of the server `a` must not become `a_b_c`.
    starts = [f"{other}_" if other else "" for other in prefixes if other != prefix]
    reserved_starts = tuple(other for other in starts if other.startswith(start) and other)
    # The name that the tool `b_c` gets instead must not be one that the server `a_b` can choose.
    may_take_names = any(start.startswith(other) for other in starts)
    full_names = {own: start + rename.get(own, own) for own in own_names}
    usable = {own: _replace_unusable(name) for own, name in full_names.items()}
    counts = Counter(usable.values())
    name_by_own: dict[str, str] = {}
    for own, name in usable.items():
        # The tool whose own name is usable keeps it; other tools that would have the same name get a digest.
        ambiguous = counts[name] > 1 and (name != full_names[own] or own in rename)
        taken = name.startswith(reserved_starts) or (may_take_names and _HAS_DIGEST(name) is not None)
        if not name or len(name) > MAX_NAME_CHARACTERS or ambiguous or taken:
            name = _cut(name, f"{server}\0{own}", MAX_NAME_CHARACTERS)
        name_by_own[own] = name
    return name_by_own


def _replace_unusable(name: str) -> str:
    return _UNUSABLE.sub("_", name)


def _cut(name: str, digested: str, limit: int) -> str:
    """Return the beginning of a name with a digest at its end, together not longer than `limit`."""
    digest = hashlib.sha256(digested.encode("utf-8", "backslashreplace")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: limit - DIGEST_CHARACTERS - 1]}_{digest}"


def name_of_target(target: object) -> str:
    """Return a name for a server that was given without one: the name of its object, program or file, or its host.

    The name of a target that cannot be used is `server`.
    """
    if isinstance(target, str) and is_http_url(target):
        try:
            return urlsplit(target).hostname or "server"
        except ValueError:  # such as http://[::1
            return "server"
    if isinstance(target, str | os.PathLike):
        path = str(cast("str | os.PathLike[str]", target))
        return os.path.splitext(os.path.basename(path))[0] or "server"
    if isinstance(target, Sequence):
        parts = [str(part) for part in target]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return program_name(parts) if parts and parts[0] else "server"
    info = getattr(target, "info", None)
    return str(getattr(info, "name", "") or "server")


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after each that has occurred before: `a`, `a_2`, `a_3`."""
    taken, distinct = set(names), dict[str, None]()
    for name in names:
        if name in distinct:
            name = next(new for number in count(2) if (new := f"{name}_{number}") not in taken)
            taken.add(name)
        distinct[name] = None
    return list(distinct)


def program_name(parts: Sequence[str]) -> str:
    """Return the name of what a command runs: its program, or the script, package or image that a launcher starts.

    The name has no folder, version or extension: it is `tides` for `uv run src/tides.py` and `npx -y @harbour/tides@1`.
    """
    name = os.path.splitext(os.path.basename(parts[0]))[0] or parts[0]
    words = iter(parts[1:])
    for word in words:
        if name.rstrip("0123456789.") not in _LAUNCHERS or word == "-c":  # `python3.12` is `python`; after -c is code
            break
        if word in _OPTIONS_WITH_VALUE:
            next(words, None)
        elif word not in _SUBCOMMANDS and (match := _RUNNABLE(os.path.basename(word.rstrip("/")))):
            name = os.path.splitext(match[1])[0]
    return name
