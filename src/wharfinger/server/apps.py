"""MCP Apps: pages that a host shows, as `ui://` resources, and the tools whose results they show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.request import Request
from wharfinger.server.features.feature_registration import check_hints
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.features.resource import ResourceFeature
from wharfinger.server.features.resources import Content
from wharfinger.types.apps import (
    EXTENSION,
    MIME_TYPE,
    Permission,
    UiCsp,
    UiPermissions,
    UiResourceMeta,
    UiToolMeta,
    Visibility,
)
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["EXTENSION", "Page", "PageOptions", "make_page_resource", "shows_apps", "tool_meta"]

Page = str | PathLike[str] | Callable[..., Any]
"""A page: its HTML, the path of its file, or a function that returns either."""

_URI = re.compile(r"ui://[^\x00-\x20\x7f{}]+")
_ORIGIN = re.compile(r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
"""An origin that a Content Security Policy may list; any other text could loosen the policy."""


class PageOptions(TypedDict, total=False):
    """Options for publishing a page."""

    name: str | None
    title: str | None
    description: str | None
    csp: UiCsp | None
    """The origins that the page needs."""
    permissions: Sequence[Permission]
    """Permissions that the page needs: `camera`, `microphone`, `geolocation`, `clipboard_write`."""
    domain: str | None
    """A separate origin for this page."""
    prefers_border: bool | None
    """Whether the host should draw a border."""
    icons: Sequence[t.Icon] | None
    ttl: float | None
    cache_scope: t.CacheScope | None
    inline: bool
    timeout: float | None
    scopes: Sequence[str] | str | None
    """Scopes that a caller's token must have, all of them. Otherwise the page is not listed, and reads get HTTP 403."""


def make_page_resource(
    services: Services,
    uri: str,
    page: Page,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    csp: UiCsp | None = None,
    permissions: Sequence[Permission] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
    icons: Sequence[t.Icon] | None = None,
    ttl: float | None = None,
    cache_scope: t.CacheScope | None = None,
    inline: bool = False,
    timeout: float | None = None,
    scopes: Sequence[str] | str | None = None,
) -> ResourceFeature:
    """Make a resource from a page.

    Raises:
        TypeError: the page is not HTML, a path or a function.
        ValueError: the URI is not a `ui://` URI, or an option is not valid.
    """
    function, inline = _as_function(page, inline)
    cache_scope = cache_scope or services.cache_scope
    ttl_ms = check_hints(services.ttl_ms / 1000 if ttl is None else ttl, cache_scope)
    meta = {"ui": msgspec.to_builtins(_resource_meta(csp, permissions, domain, prefers_border))}
    definition = t.Resource(
        uri=_check_uri(uri),
        name=name or (getattr(page, "__name__", "") if callable(page) else "") or uri.rpartition("/")[2],
        title=or_unset(title),
        description=or_unset(description),
        mime_type=MIME_TYPE,
        icons=UNSET if icons is None else list(icons),
        meta=meta if meta["ui"] else UNSET,
    )
    return ResourceFeature(
        definition,
        _PageFunction(services, function, meta, inline, timeout),
        ttl_ms=ttl_ms,
        cache_scope=cache_scope,
        scopes=scopes,
    )


def tool_meta(
    meta: Mapping[str, Any] | None, app: str | None, visibility: Sequence[Visibility] | None
) -> dict[str, Any]:
    """Return a tool's `_meta`, which names the page that shows its results and says who may call it.

    Raises:
        ValueError: `app` is not a `ui://` URI, or `visibility` is empty or has a value other than `model` and `app`.
    """
    if visibility is not None and (not visibility or not set(visibility) <= set(get_args(Visibility))):
        raise ValueError(f'visibility={visibility!r}: write ["model"], ["app"], or both.')
    ui = UiToolMeta(
        resource_uri=UNSET if app is None else _check_uri(app),
        visibility=UNSET if visibility is None else list(visibility),
    )
    return {**(meta or {}), "ui": msgspec.to_builtins(ui)}


def shows_apps(request: Request) -> bool:
    """Return whether the caller declares that it shows pages. If not, a result must say everything in text."""
    return MIME_TYPE in ((request.caller.extension(EXTENSION) or {}).get("mimeTypes") or ())


class _PageFunction(HandlerFunction):
    """A function that returns a page. Adds the MIME type and the `_meta` that the host needs."""

    __slots__ = ("_meta",)

    def __init__(
        self,
        services: Services,
        function: Callable[..., Any],
        meta: dict[str, Any],
        inline: bool,
        timeout: float | None,
    ) -> None:
        super().__init__(services, function, inline=inline, timeout=timeout)
        self._meta = meta
        self.is_plain_async = False

    async def __call__(self, request: Request, values: Mapping[str, Any]) -> Any:
        value = await super().__call__(request, values)
        if not isinstance(value, str | bytes | PathLike):
            raise TypeError(f"a page must be HTML or the path of a file, not {type(value).__name__}")
        document: Any = Path(value) if isinstance(value, PathLike) else value  # pyright: ignore[reportUnknownArgumentType]
        return Content(document, mime_type=MIME_TYPE, meta=self._meta if self._meta["ui"] else None)


def _as_function(page: Page, inline: bool) -> tuple[Callable[..., Any], bool]:
    """Return a function that returns the page, and whether it may run on the event loop."""
    if callable(page):
        return page, inline
    if isinstance(page, str) and "<" not in page:
        raise TypeError(f"{page[:80]!r} is not HTML: give the path of a file as a pathlib.Path.")
    document = page if isinstance(page, str) else Path(page)

    def return_document() -> Any:
        return document

    return return_document, True


def _check_uri(uri: str) -> str:
    """Return the URI; raise ValueError if it is not a `ui://` URI."""
    if not _URI.fullmatch(uri):
        raise ValueError(f"{uri!r} is not the URI of a page: write one like ui://harbour/berths.")
    return uri


def _resource_meta(
    csp: UiCsp | None, permissions: Sequence[Permission], domain: str | None, prefers_border: bool | None
) -> UiResourceMeta:
    if isinstance(permissions, str) or not set(permissions) <= set(_WIRE_NAMES):
        raise ValueError(f"permissions={permissions!r}: write a list of {', '.join(_WIRE_NAMES)}.")
    for field in UiCsp.__struct_fields__ if csp is not None else ():
        for origin in getattr(csp, field) or ():
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{field}: {origin!r} is not an origin: write one like https://api.example.com.")
    requested: dict[str, Any] = {_WIRE_NAMES[name]: {} for name in permissions}
    return UiResourceMeta(
        csp=or_unset(csp),
        permissions=msgspec.convert(requested, UiPermissions) if requested else UNSET,
        domain=or_unset(domain),
        prefers_border=or_unset(prefers_border),
    )


_WIRE_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(UiPermissions)}
