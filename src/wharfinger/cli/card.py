"""What a person needs to use a server that has just started, as one record shown twice: at the terminal and as a page.

No I/O: whoever shows it has found out the facts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from wharfinger.cli.programs import shell
from wharfinger.cli.words import printable

__all__ = ["Address", "Card", "Item", "Items", "Published", "Row", "make_card", "page", "terminal"]


class Published(NamedTuple):
    """One thing that is published: what it is, and the facts about it."""

    what: str
    facts: str
    verb: str = "Publishing"


class Row(NamedTuple):
    """One way to use the server: for whom, what to run or paste, and a remark."""

    title: str
    text: str
    remark: str = ""


class Address(NamedTuple):
    """Where the server is: the URL for clients, the page, and the variable that holds the token (or empty)."""

    mcp: str
    page: str
    token_env: str = ""


class Card(NamedTuple):
    """The whole card; `program` is the absolute command that is this `wharfinger`."""

    name: str
    published: tuple[Published, ...]
    address: Address
    rows: tuple[Row, ...]
    program: tuple[str, ...] = ("wharfinger",)


class Item(NamedTuple):
    """One resource or template of the page."""

    uri: str
    title: str
    kind: str = ""
    size: str = ""


class Items(NamedTuple):
    """What is listed on the page; `more…` is what to say of what is not, and `whole` is false if a list failed."""

    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    more_resources: str = ""
    more_templates: str = ""
    whole: bool = True


def make_card(
    name: str,
    published: Sequence[Published],
    address: Address,
    program: tuple[str, ...],
    target: tuple[str, ...],
    live: str,
    remark: str = "",
) -> Card:
    """Lay out the card.

    `program` is the absolute command that is this `wharfinger`, `target` what follows `add claude-desktop`, and
    `live` a URI worth watching, empty where there is none. `remark` is what is to be said of `target`.
    """
    url, token = address.mcp, address.token_env
    stdio = "; ".join(filter(None, ("its file takes stdio only", remark)))
    claude = ("claude", "mcp", "add", "--transport", "http", name, url)
    client = ("--token-env", token) if token else ()
    rows = [
        Row("Claude Code", shell(claude) + (f' --header "Authorization: Bearer ${token}"' if token else "")),
        Row("VS Code", ".vscode/mcp.json " + compact({"servers": {name: http_entry(url, token, {"type": "http"})}})),
        Row("Cursor, others", compact({"mcpServers": {name: http_entry(url, token, {})}})),
        Row("Claude Desktop", shell((*program, "add", "claude-desktop", *target)), f"({stdio})"),
    ]
    if live:
        rows.append(Row("See it live", shell((*program, "watch", *client, url, live))))
    else:
        rows.append(Row("See it", shell((*program, "ls", *client, url))))
    return Card(name, tuple(published), address, tuple(rows), program)


def http_entry(url: str, token_env: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Write the entry of a URL as VS Code and Cursor read it; both put in a variable for `${env:NAME}`."""
    headers = {"headers": {"Authorization": f"Bearer ${{env:{token_env}}}"}} if token_env else {}
    return {**kind, "url": url, **headers}


def compact(value: Any) -> str:
    """Write JSON on one line without blanks, to be pasted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def terminal(card: Card, width: int = 16) -> str:
    """Write the card for a terminal."""
    lines = [f"{item.verb} {printable(item.what)}  {printable(item.facts)}".rstrip() for item in card.published]
    lines.append(f"  MCP  {card.address.mcp}    page  {card.address.page}    Ctrl-C stops")
    lines += [
        f"  {row.title:<{width}}{printable(row.text)}" + (f"    {row.remark}" if row.remark else "")
        for row in card.rows
    ]
    return "\n".join(lines) + "\n"


STYLE = """:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}dt{font-weight:600;margin-top:1rem}dd{margin:0}
code{display:block;overflow-x:auto;white-space:pre;padding:.5rem .7rem;border:1px solid #8886;border-radius:.3rem}
h2{font-size:1.1rem;margin-top:2rem}summary{cursor:pointer;overflow-wrap:anywhere}small{opacity:.7}"""
LONGEST = 200
"""Characters of a name on the page."""


def page(card: Card, items: Items | None = None) -> str:
    """Write the card as a small page without scripts; every fact is escaped: people choose the names of files.

    A resource is a link to what it holds, where a browser says which site caused a request: on this machine and over
    HTTPS, without a token. It also opens to the command that reads it.
    """
    from html import escape

    def item(title: str, text: str, remark: str) -> str:
        after = f" {escape(remark)}" if remark else ""
        return f"<dt>{escape(title)}{after}</dt><dd><code>{escape(printable(text))}</code></dd>"

    heads = "".join(
        f"<p>{escape(item.verb)} <strong>{escape(printable(item.what))}</strong> {escape(printable(item.facts))}</p>"
        for item in card.published
    )
    rows = "\n".join(item(row.title, row.text, row.remark) for row in (Row("MCP", card.address.mcp), *card.rows))
    title = escape(printable(card.name))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}: MCP server</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{heads}\n"
        f"<p>This is a server of the Model Context Protocol. Applications connect to the MCP address below.</p>\n"
        f"<dl>\n{rows}\n</dl>\n{listed(card, items or Items())}</body></html>\n"
    )


def listed(card: Card, items: Items) -> str:
    """Write the lists of the page."""
    from html import escape
    from urllib.parse import quote, urlsplit

    from wharfinger.cli.words import variables_of
    from wharfinger.protocol.http.host_origin import is_loopback

    def shown(text: str) -> str:
        return escape(printable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"))

    client = ("--token-env", card.address.token_env) if card.address.token_env else ()
    place = urlsplit(card.address.page)
    linked = not client and (place.scheme == "https" or is_loopback(place.hostname or ""))
    parts: list[str] = []
    for title, some, more, verb in (
        ("Resources", items.resources, items.more_resources, "read"),
        ("Templates", items.templates, items.more_templates, "complete"),
    ):
        if not some:
            continue
        parts.append(f"<h2>{title}</h2>")
        for item in some:
            facts = ", ".join(shown(fact) for fact in (item.kind, item.size) if fact)
            command = shell((*card.program, verb, *client, card.address.mcp, item.uri))
            if verb == "complete":
                command += f" {shell(variables_of(item.uri)[:1])}"
            name = shown(item.title)
            if linked and verb == "read":
                name = f'<a href="/read?uri={quote(item.uri, safe="", errors="surrogateescape")}">{name}</a>'
            parts.append(
                f"<details><summary>{name} <small>{facts}</small></summary>"
                f"<code>{escape(printable(item.uri))}</code><code>{escape(printable(command))}</code></details>"
            )
        if more:
            command = shell((*card.program, "ls", f"--{title.lower()}", *client, card.address.mcp))
            parts.append(f"<p>{escape(more)}:</p><code>{escape(printable(command))}</code>")
    if not items.whole:
        parts.append("<p>The lists are not whole: the server did not answer in time, or with an error.</p>")
    return "\n".join(parts) + ("\n" if parts else "")
