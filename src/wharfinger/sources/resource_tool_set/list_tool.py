"""The tools `list_resources`, for all resources, and `read_directory`, for the entries of one folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.content.text import many
from wharfinger.errors import InvalidParams, ResourceNotFound, ToolError
from wharfinger.policy.current import may_read, reads_source
from wharfinger.server.context import Context
from wharfinger.server.cursors import keys_for
from wharfinger.server.feature_scopes import decide_template
from wharfinger.server.owners import owner_of
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.source import Source
from wharfinger.sources.resource_tool_set.answer_budget import NOTES_CHARACTERS, Budget, count_fitting
from wharfinger.sources.resource_tool_set.tool_text import (
    as_json,
    clipped,
    errors_for_models,
    read,
    resource_entry,
)
from wharfinger.sources.resource_tool_set.uri_queries import template_entry

__all__ = ["MAX_ENTRIES", "list_resources", "read_directory"]

MAX_ENTRIES = 100
"""Maximum number of entries in one result."""
ENTRIES_CHARACTERS = Budget().characters - 3 * NOTES_CHARACTERS
"""Maximum number of characters of the entries in one result; the rest of the budget is for the cursor."""
MAX_EXAMINED = 100_000
"""Maximum number of entries of a folder that are examined for one result, for a caller who may not read all of them."""
MAX_TEMPLATES = 50
"""Maximum number of templates in one result."""


async def list_resources(ctx: Context[Any], cursor: str = "") -> t.CallToolResult:
    """List the resources of this server, up to 100 at a time.

    `search` is quicker for finding something by name or content, `read_directory` for one folder.

    Args:
        cursor: `nextCursor` of the previous result; leave it out to start.
    """
    server_cursor, last, shown = _split_cursor(cursor)
    with errors_for_models():
        page = await ctx.list_resources(server_cursor)
    resources = page.resources
    # If the last resource is gone, those after it have moved to its place.
    begin = next((at + 1 for at, resource in enumerate(resources) if resource.uri == last), max(0, shown - 1))
    entries = [resource_entry(resource) for resource in resources[begin : begin + MAX_ENTRIES]]
    del entries[count_fitting(entries, ENTRIES_CHARACTERS) :]
    following: str | None = None
    if begin + len(entries) < len(resources):
        following = _join_cursor(server_cursor, entries[-1]["uri"], begin + len(entries))
    elif page.next_cursor is not UNSET:
        following = _join_cursor(page.next_cursor, None, 0)
    missing_sources: list[dict[str, str]] = [] if page.meta is UNSET else page.meta.get(MISSING_META_KEY, [])
    notes = [source["message"] for source in missing_sources]
    if not entries and following is None:
        notes.append(
            "No resources are listed here. There may be templates: call read_directory without uri to see them."
        )
    structured: dict[str, Any] = {"resources": entries, **_next_page("list_resources", following)}
    if notes:
        structured["note"] = " ".join([*notes, structured.get("note", "")]).rstrip()
    return as_json(structured)


async def read_directory(ctx: Context[Any], uri: str = "", cursor: str = "") -> t.CallToolResult:
    """List a folder, up to 100 entries at a time; without `uri`, the top folders, all templates and their parameters.

    Args:
        uri: URI of the folder.
        cursor: `nextCursor` of the previous result; leave it out to start.
    """
    if not uri:
        return as_json(_top(ctx))
    contents = await read(ctx, uri, ENTRIES_CHARACTERS)  # also checks that this caller may read it
    source = ctx.server.resources.source_of(uri)
    children: Callable[..., Any] | None = getattr(source, "children", None)
    if source is None or children is None:
        parts = [{"uri": each.uri, "mimeType": each.mime_type or ""} for each in contents if each.uri != uri]
        if not parts:
            raise ToolError(f"{clipped(uri)} is not a folder: call read_resource.")
        entries = parts[:MAX_ENTRIES]
        del entries[count_fitting(entries, ENTRIES_CHARACTERS) :]
        folder = _folder(entries, None)
        if left_out := len(parts) - len(entries):
            folder["note"] = f"{many(left_out, 'entry')} left out: call read_resource."
        return as_json(folder)
    list_children = partial(ctx.server.resources.calls.call, source, children)
    with errors_for_models(uri):
        try:
            after = _open_key(ctx, uri, cursor)
            listed, key = await _readable_children(ctx, list_children, uri, after, MAX_ENTRIES)
            entries = [resource_entry(resource) for resource in listed]
            if (number := count_fitting(entries, ENTRIES_CHARACTERS)) < len(entries):
                # Only the source knows the key after an entry.
                listed, key = await _readable_children(ctx, list_children, uri, after, number)
                entries = [resource_entry(resource) for resource in listed]
        except (ResourceNotFound, InvalidParams):
            raise ToolError(f"{clipped(uri)} is not a folder, or the cursor does not belong to it.") from None
    return as_json(_folder(entries, _seal_key(ctx, uri, key)))


async def _readable_children(
    ctx: Context[Any], list_children: Callable[..., Any], uri: str, after: str | None, limit: int
) -> tuple[list[t.Resource], str | None]:
    """Return at most `limit` children that the caller may read, and the key of the next page.

    A custom source may also list children that the caller may not read.
    """
    children: list[t.Resource] = []
    examined = 0
    while True:
        listed, after = await list_children(owner_of(ctx.request), uri, after, limit - len(children))
        children += [resource for resource in listed if may_read(resource.uri)]
        examined += len(listed)
        if after is None or len(children) >= limit or examined >= MAX_EXAMINED:
            return children, after


def _seal_key(ctx: Context[Any], uri: str, key: str | None) -> str | None:
    """Return a source's key as a cursor. Under a policy it is encrypted, since it may contain a hidden name."""
    if key is None or ctx.request.access is None:
        return key
    return keys_for(ctx.server.services.keys, ctx.request).seal("read_directory", [uri, key])


def _open_key(ctx: Context[Any], uri: str, cursor: str) -> str | None:
    """Return the source's key from a cursor that `_seal_key` made for this folder.

    Raises:
        InvalidParams: the cursor is not one of this folder for this caller.
    """
    if not cursor or ctx.request.access is None:
        return cursor or None
    opened: tuple[str, str] = keys_for(ctx.server.services.keys, ctx.request).open(
        "read_directory", cursor, type=tuple[str, str]
    )
    place, key = opened
    if place != uri:
        raise InvalidParams("This cursor belongs to another folder.")
    return key


def _top(ctx: Context[Any]) -> dict[str, Any]:
    """Return the top folder of each source, and the templates with the parameters of their queries.

    A note says how many are left out, if not all fit.
    """
    resources = ctx.server.resources
    sources = [source for source in resources.every_source() if reads_source(source.uri)]
    tops = [source.uri for source in sources if source.uri and type(source).children is not Source.children]
    tops = [top for top in tops if may_read(top)]
    access = ctx.request.access
    templates = [
        template_entry(None, feature.current_definition())
        for text, feature in resources.templates.items()
        if access is None or decide_template(access, text).allowed
    ]
    templates += [
        template_entry(source, template)
        for source in sources
        for template in source.templates
        if access is None or decide_template(access, template.uri_template).allowed
    ]
    template_count = len(templates)
    del templates[MAX_TEMPLATES:]
    del templates[count_fitting(templates, ENTRIES_CHARACTERS // 2) :]
    entries = [{"uri": top, "mimeType": DIRECTORY} for top in tops]
    structured: dict[str, Any] = {"entries": entries[: count_fitting(entries, ENTRIES_CHARACTERS // 2)]}
    if templates:
        structured["templates"] = templates
    left_out = (
        (len(tops) - len(structured["entries"]), "folder"),
        (template_count - len(templates), "template"),
    )
    notes = [f"{many(number, noun)} left out." for number, noun in left_out if number]
    if not tops and not templates:
        notes = ["This server has no folders: call list_resources."]
    if notes:
        structured["note"] = " ".join(notes)
    return structured


def _folder(entries: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    structured: dict[str, Any] = {"entries": entries}
    if not entries:
        structured["note"] = "This folder is empty, or nothing in it is published."
    return structured | _next_page("read_directory for the same uri", cursor)


def _next_page(call: str, cursor: str | None) -> dict[str, str]:
    """Return the cursor of the next page and how to pass it, or an empty dictionary if there are no more pages."""
    if cursor is None:
        return {}
    return {"nextCursor": cursor, "note": f"To continue, call {call} with cursor set to nextCursor."}


def _join_cursor(server_cursor: str | None, last: str | None, shown: int) -> str:
    """Return the cursor that `_split_cursor` splits."""
    return msgspec.json.encode((server_cursor, last, shown)).decode()


def _split_cursor(cursor: str) -> tuple[str | None, str | None, int]:
    """Split a cursor into the cursor of the server's page, and the URI of the last resource that was returned from it.

    The third part is the number of resources of the page up to this one. The cursor of the page is None for the first
    one, and the URI is None for the beginning of a page.

    Raises:
        ToolError: the cursor does not come from `_join_cursor`.
    """
    if not cursor:
        return None, None, 0
    try:
        return msgspec.json.decode(cursor, type=tuple[str | None, str | None, int])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise ToolError("This cursor does not come from list_resources: leave it out to start.") from None
