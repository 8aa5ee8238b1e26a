"""The banner of `serve` and `run`: the sources, the address, and how to use the server. The start page shows it too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from wharfinger.content.text import escape_controls

__all__ = ["Banner", "PublishedSource", "ServerAddress", "UsageLine", "banner_text", "make_banner", "without_content"]


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
    about_content: bool = False
    """Whether the text has paths or URIs of the published data."""


class ServerAddress(NamedTuple):
    """The URL for clients, the start page, and how clients are let in: by a token, or by signing in."""

    mcp: str
    page: str
    token_env: str = ""
    """The environment variable with a client's token; empty if no such token is accepted."""
    issuers: tuple[str, ...] = ()
    """The authorization servers where clients sign in."""
    tokens: str = ""
    """The file with the tokens that are accepted, or an empty string."""

    @property
    def header_env(self) -> str:
        """`token_env` if hosts must be configured to send it; empty if they sign in."""
        return "" if self.issuers else self.token_env


SIGN_IN = ("(then type /mcp to sign in)", "(it asks to sign in)", "(then sign in at Settings, MCP)")
"""How to sign in with Claude Code, VS Code and Cursor, which discover the authorization server."""


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
        address: its URLs, and how clients are let in.
        program: the absolute command of this `wharfinger`.
        target: the arguments after `add claude-desktop`.
        live: a URI to watch in an example, or an empty string if no resource changes.
        remark: a remark on `target`.
    """
    url, token_env = address.mcp, address.header_env
    claude_remark, vscode_remark, cursor_remark = SIGN_IN if address.issuers else ("", "", "")
    stdio_remark = "; ".join(filter(None, ("its file takes stdio only", remark)))
    header = f' --header "Authorization: Bearer ${token_env}"' if token_env else ""
    claude = shlex.join(("claude", "mcp", "add", "--transport", "http", name, url)) + header
    client_options = ("--token-env", token_env) if token_env else ()
    rows = [
        UsageLine("Claude Code", claude, claude_remark),
        UsageLine(
            "VS Code",
            ".vscode/mcp.json " + compact({"servers": {name: http_entry(url, token_env, {"type": "http"})}}),
            vscode_remark,
        ),
        UsageLine("Cursor, others", compact({"mcpServers": {name: http_entry(url, token_env, {})}}), cursor_remark),
    ]
    if address.issuers and url.startswith("https:"):
        rows.append(UsageLine("Claude Desktop", url, "(add it in Settings, Connectors; it must be public)"))
    else:
        add = shlex.join((*program, "add", "claude-desktop", *target))
        rows.append(UsageLine("Claude Desktop", add, f"({stdio_remark})", about_content=True))
    login = f"{shlex.join((*program, 'auth', 'login', url))} && " if address.issuers else ""
    if live:
        watch = shlex.join((*program, "watch", *client_options, url, live))
        rows.append(UsageLine("See it live", login + watch, about_content=True))
    else:
        rows.append(UsageLine("See it", login + shlex.join((*program, "ls", *client_options, url))))
    return Banner(name, tuple(published), address, tuple(rows), program)


def without_content(banner: Banner) -> Banner:
    """Return the banner without facts about the published data, for people who may not read all of that data."""
    return banner._replace(published=(), rows=tuple(row for row in banner.rows if not row.about_content))


def http_entry(url: str, token_env: str, type_member: dict[str, Any]) -> dict[str, Any]:
    """Return the entry for a URL in the configuration of VS Code and Cursor, which replace `${env:NAME}`."""
    headers = {"headers": {"Authorization": f"Bearer ${{env:{token_env}}}"}} if token_env else {}
    return {**type_member, "url": url, **headers}


def compact(value: Any) -> str:
    """Return JSON on one line, to be pasted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def banner_text(banner: Banner, width: int = 16) -> str:
    """Return the banner as lines for a terminal."""
    lines = [
        f"{item.verb} {escape_controls(item.what)}  {escape_controls(item.facts)}".rstrip() for item in banner.published
    ]
    lines.append(f"  MCP  {banner.address.mcp}    page  {banner.address.page}    Ctrl-C stops")
    if banner.address.issuers:
        lines.append(
            f"  Hosts sign in at {', '.join(map(escape_controls, banner.address.issuers))} when they first connect."
        )
    if banner.address.tokens:
        create = shlex.join((*banner.program, "token", "create", banner.address.tokens, "--sub", "NAME"))
        sender = "A program that cannot sign in sends" if banner.address.issuers else "Each user's host sends"
        lines.append(f"  {sender} a token. To make one: {escape_controls(create)}")
    lines += [
        f"  {row.title:<{width}}{escape_controls(row.text)}" + (f"    {row.remark}" if row.remark else "")
        for row in banner.rows
    ]
    return "\n".join(lines) + "\n"
