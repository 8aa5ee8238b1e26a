"""A registered resource or template: its definition, its function, and the checks of its URI."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.server.features.feature_registration import check_hints, check_scopes
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.features.result_errors import location_of
from wharfinger.server.signature.annotations import unwrap_partial
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = [
    "MAX_RESOURCE_URI_CHARACTERS",
    "ResourceFeature",
    "ResourceOptions",
    "check_scheme",
    "check_uri",
    "is_literal",
    "is_uri",
    "make_resource",
    "make_unlisted_resource",
]

log = logging.getLogger("wharfinger.server.features.resources")

MAX_CHECKED_CONTENTS = 10
"""The maximum number of contents of a result that are compared with their MIME types."""
MAX_CHECKED_CHARACTERS = 256 << 10
"""The maximum number of characters or bytes of each that are compared."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:[^\x00-\x20\x7f]*+\Z")
"""A URI by RFC 3986 §3: a scheme, then text that is compared as it is."""
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(:|\{\+)|\{")
"""The start of a template: a scheme, or variables that may contain one."""
_LITERAL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9/._~-]*\Z")
MAX_RESOURCE_URI_CHARACTERS = 8192


class ResourceFeature:
    """A registered resource or template: its definition, and the function that reads it."""

    __slots__ = (
        "annotate", "cache_scope", "call", "completers", "definition", "mime_type", "scopes", "template", "ttl_ms",
        "type_checked",
    )  # fmt: skip

    def __init__(
        self,
        definition: t.Resource | t.ResourceTemplate,
        call: HandlerFunction,
        *,
        template: UriTemplate | None = None,
        annotate: Callable[[], t.Annotations] | None = None,
        ttl_ms: int = 0,
        cache_scope: str = "private",
        scopes: Sequence[str] | str | None = None,
    ) -> None:
        self.scopes = check_scopes(scopes)
        """The scopes that a caller's token must have."""
        self.definition = definition
        self.call = call
        self.template = template
        self.annotate = annotate
        self.ttl_ms = ttl_ms
        self.cache_scope = "private" if self.scopes else cache_scope
        self.mime_type = definition.mime_type
        self.completers: Mapping[str, Any] = call.completers
        self.type_checked = False
        """Whether `check_type` was called."""

    @property
    def text(self) -> str:
        """The URI, or the URI template as text."""
        definition = self.definition
        return definition.uri if isinstance(definition, t.Resource) else definition.uri_template

    def check_type(self, result: t.ReadResourceResult) -> None:
        """Log a warning if contents of the first result contradict their MIME type; later results are not checked.

        Hosts trust the type: they show `image/png` as an image, and parse `application/json`.
        """
        from wharfinger.content.mime_check import contradiction

        self.type_checked = True
        for content in result.contents[:MAX_CHECKED_CONTENTS]:
            value = content.text if content.text is not UNSET else content.blob
            if not isinstance(content.mime_type, str) or not isinstance(value, str | bytes):
                continue
            complete = len(value) <= MAX_CHECKED_CHARACTERS
            if problem := contradiction(content.mime_type, value[:MAX_CHECKED_CHARACTERS], complete=complete):
                log.warning("The resource %r is %s. Correct its mime_type, or its content", self.text, problem)
                return

    def current_definition(self) -> t.Resource | t.ResourceTemplate:
        """Return the definition with its annotations computed now, or without them if that fails."""
        if self.annotate is None:
            return self.definition
        try:
            return msgspec.structs.replace(self.definition, annotations=self.annotate())
        except Exception:
            log.exception("The annotations of %r could not be computed", self.definition.name)
            return self.definition


class ResourceOptions(TypedDict, total=False):
    """Options for registering a resource or a template."""

    name: str | None
    """By default the function's name."""
    title: str | None
    description: str | None
    """By default the first paragraph of the function's docstring."""
    mime_type: str | None
    size: int | None
    """The size in bytes; templates have none."""
    annotations: t.Annotations | Callable[[], t.Annotations] | None
    """Annotations: a struct, or a function that is called for every list."""
    icons: Sequence[t.Icon] | None
    ttl: float | None
    """Seconds that clients may cache its content; by default the server's option."""
    cache_scope: t.CacheScope | None
    inline: bool
    """Whether a plain function runs on the event loop instead of in a thread, because it never blocks."""
    timeout: float | None
    """Seconds that a read may take."""
    meta: dict[str, Any] | None
    """`_meta` of the definition."""
    scopes: Sequence[str] | str | None
    """Scopes that a caller's token must have, all of them. Otherwise it is not listed, and reads get HTTP 403."""
    allow_traversal: bool
    """Whether `{+name}` and `{#name}` may contain anything, even absolute paths and ".."; the function must check."""


def make_resource(
    services: Services, uri: str, function: Callable[..., Any], options: ResourceOptions
) -> ResourceFeature:
    """Make a resource from a function, or a template if `uri` has variables. See `Resources.add`."""
    allow_traversal, annotations = options.get("allow_traversal", False), options.get("annotations")
    ttl, size = options.get("ttl"), options.get("size")
    check_scheme(uri, function)
    _refuse_plain_generator(function)
    template = None if is_literal(uri) and not allow_traversal else _parse_template(uri, allow_traversal)
    named = unwrap_partial(function)
    docstring = (getattr(named, "__doc__", None) or "").strip()
    first_paragraph = " ".join(docstring.split("\n\n")[0].split())
    shared: dict[str, Any] = {
        "name": options.get("name") or getattr(named, "__name__", uri),
        "title": or_unset(options.get("title")),
        "description": or_unset(options.get("description") or first_paragraph or None),
        "mime_type": or_unset(options.get("mime_type")),
        "icons": UNSET if (icons := options.get("icons")) is None else list(icons),
        "meta": or_unset(options.get("meta")),
        "annotations": UNSET if callable(annotations) else or_unset(annotations),
    }
    definition: t.Resource | t.ResourceTemplate
    if template is not None and template.variables:
        if size is not None:
            raise ValueError("A template has no size=: only its resources have one.")
        definition = t.ResourceTemplate(uri_template=uri, **shared)
    else:
        if template is not None:
            try:
                check_uri(uri)
            except InvalidParams as error:
                raise ValueError(f"{location_of(function)}: {uri!r}: {error}") from None
        template = None
        definition = t.Resource(uri=uri, size=or_unset(size), **shared)
    variables = template.variables if template else ()
    cache_scope = options.get("cache_scope") or services.cache_scope
    ttl_ms = check_hints(services.ttl_ms / 1000 if ttl is None else ttl, cache_scope)
    return ResourceFeature(
        definition,
        HandlerFunction(
            services,
            function,
            variables=variables,
            inline=options.get("inline", False),
            timeout=options.get("timeout"),
        ),
        template=template,
        annotate=annotations if callable(annotations) else None,
        ttl_ms=ttl_ms,
        cache_scope=cache_scope,
        scopes=options.get("scopes"),
    )


def make_unlisted_resource(
    services: Services,
    template: str,
    function: Callable[..., Any],
    allow_traversal: bool,
    scopes: Sequence[str] | str | None,
) -> ResourceFeature:
    """Make an unlisted template from a function that reads its URIs. See `Server.read_resource`."""
    check_scheme(template, function)
    _refuse_plain_generator(function)
    parsed = _parse_template(template, allow_traversal)
    return ResourceFeature(
        t.ResourceTemplate(uri_template=template, name=getattr(function, "__name__", template)),
        HandlerFunction(services, function, variables=parsed.variables),
        template=parsed,
        ttl_ms=services.ttl_ms,
        cache_scope=services.cache_scope,
        scopes=scopes,
    )


def _refuse_plain_generator(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function):
        raise TypeError(
            f"{location_of(function)} is a generator: return text, bytes or a list, or yield bytes in `async def`."
        )


def _parse_template(text: str, allow_traversal: bool) -> UriTemplate:
    template = UriTemplate(text, allow_traversal=allow_traversal)
    operators = {part.operator for part in template.parts if not isinstance(part, str)}
    if allow_traversal and operators.isdisjoint("+#"):
        raise ValueError(f"{text!r} has no {{+name}} or {{#name}} to which allow_traversal could apply: leave it out.")
    return template


def is_literal(uri: str) -> bool:
    """Return whether a string is certainly a URI and not a template. Faster than parsing it as a template."""
    return len(uri) <= MAX_RESOURCE_URI_CHARACTERS and _LITERAL.match(uri) is not None


def is_uri(text: str) -> bool:
    """Return whether a string is an absolute URI."""
    return _URI.match(text) is not None


def check_scheme(template: str, function: Callable[..., Any]) -> None:
    """Raise ValueError for a URI or template without a scheme, which no absolute URI can match."""
    if not _HAS_SCHEME.match(template):
        raise ValueError(
            f"{location_of(function)}: {template!r} has no scheme: write a URI such as notes://today or file:///x."
        )


def check_uri(uri: str) -> None:
    """Check that a text is an absolute URI of bounded length. After its scheme, only spaces and controls are refused.

    Raises:
        InvalidParams: it is not an absolute URI, or too long.
    """
    if len(uri) > MAX_RESOURCE_URI_CHARACTERS:
        raise InvalidParams(f"A URI may have at most {MAX_RESOURCE_URI_CHARACTERS} characters.")
    if not _URI.match(uri):
        raise InvalidParams("uri must be an absolute URI (RFC 3986), such as file:///notes/today.md, without spaces.")
