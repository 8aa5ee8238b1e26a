"""The page that a browser shows at the address of a server: the banner, and the first resources and templates.

It has no scripts, and everything on it is escaped: strangers choose the names of files.
"""

from __future__ import annotations

import shlex
from html import escape
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from wharfinger.cli.render.banner import Banner, UsageLine
from wharfinger.cli.render.formatting import variables_of
from wharfinger.content.text import escape_controls
from wharfinger.net import is_loopback

__all__ = ["PageItem", "PageItems", "start_page"]


class PageItem(NamedTuple):
    """One resource or template."""

    uri: str
    title: str
    kind: str = ""
    size: str = ""


class PageItems(NamedTuple):
    """The resources and templates; `more_…` says how many are not shown, `complete` is false if a list was not read."""

    resources: tuple[PageItem, ...] = ()
    templates: tuple[PageItem, ...] = ()
    more_resources: str = ""
    more_templates: str = ""
    complete: bool = True


STYLE = """:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}dt{font-weight:600;margin-top:1rem}dd{margin:0}
code{display:block;overflow-x:auto;white-space:pre;padding:.5rem .7rem;border:1px solid #8886;border-radius:.3rem}
h2{font-size:1.1rem;margin-top:2rem}summary{cursor:pointer;overflow-wrap:anywhere}small{opacity:.7}"""
NAME_CHARACTERS = 200


def start_page(banner: Banner, items: PageItems | None = None) -> str:
    """Return the page as HTML.

    The page shows each resource with the command that reads it. If no token is needed, it also links to the content,
    except over plain HTTP to another machine: there, browsers do not say which site caused a request.
    """

    def row_html(title: str, text: str, remark: str) -> str:
        suffix = f" {escape(remark)}" if remark else ""
        return f"<dt>{escape(title)}{suffix}</dt><dd><code>{escape(escape_controls(text))}</code></dd>"

    heads = "".join(
        f"<p>{escape(source.verb)} <strong>{escape(escape_controls(source.what))}</strong>"
        f" {escape(escape_controls(source.facts))}</p>"
        for source in banner.published
    )
    rows = "\n".join(
        row_html(row.title, row.text, row.remark) for row in (UsageLine("MCP", banner.address.mcp), *banner.rows)
    )
    title = escape(escape_controls(banner.name))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}: MCP server</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{heads}\n"
        f"<p>This is a server of the Model Context Protocol. Applications connect to the MCP address below.</p>\n"
        f"<dl>\n{rows}\n</dl>\n{item_lists(banner, items or PageItems())}</body></html>\n"
    )


def item_lists(banner: Banner, items: PageItems) -> str:
    """Return the lists of resources and templates as HTML."""

    def shown(text: str) -> str:
        return escape(escape_controls(text if len(text) <= NAME_CHARACTERS else text[: NAME_CHARACTERS - 1] + "…"))

    client_options = ("--token-env", banner.address.header_env) if banner.address.header_env else ()
    url = urlsplit(banner.address.page)
    open_to_all = not client_options and not banner.address.issuers
    linked = open_to_all and (url.scheme == "https" or is_loopback(url.hostname or ""))
    parts: list[str] = []
    for title, listed, more, verb in (
        ("Resources", items.resources, items.more_resources, "read"),
        ("Templates", items.templates, items.more_templates, "complete"),
    ):
        if not listed:
            continue
        parts.append(f"<h2>{title}</h2>")
        for item in listed:
            facts = ", ".join(shown(fact) for fact in (item.kind, item.size) if fact)
            command = shlex.join((*banner.program, verb, *client_options, banner.address.mcp, item.uri))
            if verb == "complete":
                command += f" {shlex.join(variables_of(item.uri)[:1])}"
            name = shown(item.title)
            if linked and verb == "read":
                name = f'<a href="/read?uri={quote(item.uri, safe="", errors="surrogateescape")}">{name}</a>'
            parts.append(
                f"<details><summary>{name} <small>{facts}</small></summary>"
                f"<code>{escape(escape_controls(item.uri))}</code><code>{escape(escape_controls(command))}</code></details>"
            )
        if more:
            command = shlex.join((*banner.program, "ls", f"--{title.lower()}", *client_options, banner.address.mcp))
            parts.append(f"<p>{escape(more)}:</p><code>{escape(escape_controls(command))}</code>")
    if not items.complete:
        parts.append("<p>The lists are incomplete: the server answered with an error, or not in time.</p>")
    return "\n".join(parts) + ("\n" if parts else "")
