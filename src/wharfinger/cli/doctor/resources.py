"""Checks of resources, templates and pages: what their lists say, and what came of reading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from wharfinger import types as t
from wharfinger.cli.doctor.offer import Finding, Offer, app_of, found, said

__all__ = ["check_apps", "check_reads", "check_resources", "check_templates"]

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]+")


def check_resources(offer: Offer) -> Iterator[Finding]:
    """What a list of resources says of them."""
    items = offer.resources.items
    uris = Counter(item.uri for item in items)
    yield from found(
        "problem",
        "duplicate-uri",
        "Several resources have the same URI",
        (uri for uri, number in uris.items() if number > 1),
        "Only one of them can be read: give each its own.",
    )
    yield from found(
        "problem",
        "invalid-uri",
        "URIs of resources are not absolute",
        (repr(uri) for uri in uris if not _ABSOLUTE.fullmatch(uri)),
        "Write a scheme and a path, such as harbour://berths/7.",
    )
    yield from found(
        "advice",
        "no-mime-type",
        "Resources without a MIME type",
        (item.uri for item in items if not said(item.mime_type)),
        "Hosts decide by it how to show them: pass mime_type=.",
    )
    yield from found(
        "advice",
        "no-size",
        "Resources without a size",
        (item.uri for item in items if not isinstance(item.size, int) and item.mime_type != "inode/directory"),
        "A host that does not know the size may read everything to find out: give it where it is known.",
    )


def check_templates(offer: Offer) -> Iterator[Finding]:
    """Templates that cannot be filled."""
    from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate

    broken: list[str] = []
    for item in offer.templates.items:
        try:
            UriTemplate(item.uri_template)
        except InvalidTemplate as error:
            broken.append(f"{item.uri_template} ({error})")
    yield from found(
        "problem", "invalid-template", "Resource templates that cannot be read", broken, "They follow RFC 6570."
    )
    if offer.templates.items and not isinstance(offer.capabilities.completions, dict):
        yield Finding(
            severity="advice",
            check="no-completion",
            what="The server has templates and completes no variable.",
            change="People pick from what is completed, and otherwise must guess: Annotated[str, Complete(function)].",
        )


def check_reads(offer: Offer) -> Iterator[Finding]:
    """What came when resources were read."""
    sizes = {item.uri: item.size for item in offer.resources.items if isinstance(item.size, int)}
    types = {item.uri: said(item.mime_type) for item in offer.resources.items}
    good = {uri: read.contents for uri, read in offer.reads.items() if not read.error}
    own = {uri: [part for part in parts if part.uri == uri] for uri, parts in good.items()}
    yield from found(
        "problem",
        "unreadable",
        "Resources cannot be read",
        (f"{uri} ({read.error})" for uri, read in offer.reads.items() if read.error and uri in types),
        "What is listed must be readable: mend it, or do not list it.",
    )
    yield from found(
        "problem",
        "empty-read",
        "Reading gives no content at all",
        (uri for uri, parts in good.items() if not parts),
        "An empty resource is one content with an empty text.",
    )
    yield from found(
        "problem",
        "wrong-size",
        "Resources have another size than is listed",
        (
            f"{uri} ({len(data):,} bytes, listed {sizes[uri]:,})"
            for uri, parts in own.items()
            if len(parts) == 1 and uri in sizes and len(data := _data(parts[0])) != sizes[uri]
            if not _is_other_than_listed(parts[0])
        ),
        "`size` is in bytes, before any encoding: mend it, or leave it out.",
    )
    yield from found(
        "advice",
        "other-mime-type",
        "Resources have another MIME type than is listed",
        (
            f"{uri} ({told}, listed {types[uri]})"
            for uri, parts in own.items()
            for told in [said(parts[0].mime_type) if parts else ""]
            if told and types.get(uri) and _essence(told) != _essence(types[uri]) and types[uri] != "inode/directory"
        ),
        "Say the same in both places.",
    )


def _data(part: t.ResourceContents) -> bytes:
    return part.blob if isinstance(part.blob, bytes) else str(part.text or "").encode()


def _is_other_than_listed(part: t.ResourceContents) -> bool:
    """Whether the server says that this was decoded from what has the size, or is a part of it."""
    return isinstance(part.meta, dict) and any(name.endswith(("/encoding", "/window")) for name in part.meta)


def _essence(mime_type: str) -> str:
    return mime_type.partition(";")[0].strip().casefold()


def check_apps(offer: Offer) -> Iterator[Finding]:
    """Pages that tools name."""
    from wharfinger.types.apps import MIME_TYPE

    listed = {item.uri: said(item.mime_type) for item in offer.resources.items}
    named = {tool.name: uri for tool in offer.tools.items if (uri := app_of(tool))}
    yield from found(
        "problem",
        "missing-app",
        "Tools name a page that cannot be read",
        (
            f"{name} ({uri})"
            for name, uri in named.items()
            if (read := offer.reads.get(uri)) is not None and read.error and uri not in listed
        ),
        "Publish it with server.add_app(), or mend `_meta.ui.resourceUri`.",
    )
    yield from found(
        "problem",
        "app-of-another-type",
        "Pages have another MIME type",
        (f"{uri} ({kind or 'none'})" for uri, kind in listed.items() if uri.startswith("ui://") and kind != MIME_TYPE),
        f"Hosts show only {MIME_TYPE}.",
    )
