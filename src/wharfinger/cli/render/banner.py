"""The banner of `serve` and `run`: the sources, the address, and how to use the server. The start page shows it too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from wharfinger.cli.render.formatting import printable

__all__ = ["Banner", "PublishedSource", "ServerAddress", "UsageLine", "banner_text", "make_banner"]


class PublishedSource(NamedTuple):
    """One published source or module, and the facts about it."""

    what: str
    facts: str
    verb: str = "Publishing"


class UsageLine(NamedTuple):
    """One way to use the server: the host, what to run or paste there, and a remark."""

    title: str
    text: str
    remark: str = ""


class ServerAddress(NamedTuple):
    """The URL for clients, the start page, the environment variable with the token, and where clients sign in."""

    mcp: str
    page: str
    token_env: str = ""
    """Empty if no token is needed, or if clients get one where they sign in."""
    issuers: tuple[str, ...] = ()


class Banner(NamedTuple):
    """The whole banner; `program` is the absolute command of this `wharfinger`."""

    name: str
    published: tuple[PublishedSource, ...]
    address: ServerAddress
    rows: tuple[UsageLine, ...]
    program: tuple[str, ...] = ("wharfinger",)


def make_banner(
    name: str,
    published: Sequence[PublishedSource],
    address: ServerAddress,
    program: tuple[str, ...],
    target: tuple[str, ...],
    live: str,
    remark: str = "",
) -> Banner:
    """Make the banner.

    Args:
        name: the name of the server.
        published: its sources, or its module.
        address: its URLs, and the variable with its token.
        program: the absolute command of this `wharfinger`.
        target: the arguments after `add claude-desktop`.
        live: a URI worth watching, or an empty string if there is none.
        remark: a remark on `target`.
    """
    url, token = address.mcp, address.token_env
    stdio = "; ".join(filter(None, ("its file takes stdio only", remark)))
    claude = ("claude", "mcp", "add", "--transport", "http", name, url)
    client = ("--token-env", token) if token else ()
    rows = [
        UsageLine("Claude Code", shlex.join(claude) + (f' --header "Authorization: Bearer ${token}"' if token else "")),
        UsageLine(
            "VS Code", ".vscode/mcp.json " + compact({"servers": {name: http_entry(url, token, {"type": "http"})}})
        ),
        UsageLine("Cursor, others", compact({"mcpServers": {name: http_entry(url, token, {})}})),
        UsageLine("Claude Desktop", shlex.join((*program, "add", "claude-desktop", *target)), f"({stdio})"),
    ]
    if live:
        rows.append(UsageLine("See it live", shlex.join((*program, "watch", *client, url, live))))
    else:
        rows.append(UsageLine("See it", shlex.join((*program, "ls", *client, url))))
    return Banner(name, tuple(published), address, tuple(rows), program)


def http_entry(url: str, token_env: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Return the entry for a URL in the configuration of VS Code and Cursor, which replace `${env:NAME}`."""
    headers = {"headers": {"Authorization": f"Bearer ${{env:{token_env}}}"}} if token_env else {}
    return {**kind, "url": url, **headers}


def compact(value: Any) -> str:
    """Return JSON on one line, to be pasted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def banner_text(banner: Banner, width: int = 16) -> str:
    """Return the banner as lines for a terminal."""
    lines = [f"{item.verb} {printable(item.what)}  {printable(item.facts)}".rstrip() for item in banner.published]
    lines.append(f"  MCP  {banner.address.mcp}    page  {banner.address.page}    Ctrl-C stops")
    if banner.address.issuers:
        lines.append(f"  Hosts sign in at {', '.join(map(printable, banner.address.issuers))} when they first connect.")
    lines += [
        f"  {row.title:<{width}}{printable(row.text)}" + (f"    {row.remark}" if row.remark else "")
        for row in banner.rows
    ]
    return "\n".join(lines) + "\n"
