"""Decides whether a URI may belong to a server: the server listed it or a similar one, or has a template for it."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.uri.template import InvalidTemplate, UnmatchableTemplate, UriTemplate
from wharfinger.protocol.uri.template_index import TemplateIndex
from wharfinger.server.features.resource import MAX_RESOURCE_URI_CHARACTERS, check_uri

__all__ = ["Cursor", "UriIndex", "is_uri"]

Cursor = str | UnsetType
"""Where a page of a list begins; UNSET for the first one."""

MAX_URIS = 50_000
"""The maximum number of listed URIs that are remembered. The oldest are dropped first."""
MAX_PREFIXES = 1_000
"""The maximum number of prefixes of listed URIs that are remembered, such as `git://repo/`."""
MAX_TEMPLATES = 1_000
MAX_VARIABLES = 64
"""The maximum number of variables in one template."""
MAX_ALL_VARIABLES = 10_000
"""The maximum number of variables in all templates together: they take a second to compile."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]+/|/[^/?#]+/)").match
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match


class UriIndex:
    """The URIs of one server. It is not thread-safe: use it only in the event loop."""

    def __init__(self) -> None:
        self.templates: list[t.ResourceTemplate] = []
        """The usable templates. The list is changed in place, and never replaced."""
        self._uris: OrderedDict[str, Cursor] = OrderedDict()
        self._prefixes: OrderedDict[str, None] = OrderedDict()
        self._index: TemplateIndex[None] = TemplateIndex()
        self._listed: list[t.ResourceTemplate] = []
        """The last list of templates, usable or not."""

    def __len__(self) -> int:
        return len(self._uris)

    def add(self, resources: Iterable[t.Resource], cursor: Cursor) -> None:
        """Remember the URIs of a page of the server's list, and the cursor of that page."""
        for resource in resources:
            self._uris[resource.uri] = cursor
            self._uris.move_to_end(resource.uri)
            prefix = prefix_of(resource.uri)
            if prefix:
                self._prefixes[prefix] = None
                self._prefixes.move_to_end(prefix)
        while len(self._uris) > MAX_URIS:
            self._uris.popitem(last=False)
        while len(self._prefixes) > MAX_PREFIXES:
            self._prefixes.popitem(last=False)

    def set_templates(self, templates: Sequence[t.ResourceTemplate]) -> bool:
        """Keep the usable templates of a new list. Returns whether they have changed.

        A template is not usable if it has no name, scheme or variable, is too long, or cannot be matched.
        """
        if templates == self._listed:
            return False
        self._listed, variables = list(templates), 0
        usable: dict[str, t.ResourceTemplate] = {}
        index: TemplateIndex[None] = TemplateIndex()
        for template in templates[:MAX_TEMPLATES]:
            text = template.uri_template
            if not template.name or text in usable or len(text) > MAX_RESOURCE_URI_CHARACTERS or not _SCHEME(text):
                continue
            try:
                parsed = UriTemplate(text)
                if not 0 < len(parsed.variables) <= min(MAX_VARIABLES, MAX_ALL_VARIABLES - variables):
                    continue
                variables += len(parsed.variables)
                index.add(parsed, None, allow_ambiguous=True)
            except (InvalidTemplate, UnmatchableTemplate):
                continue
            usable[text] = template
        changed = list(usable.values()) != self.templates
        self.templates[:] = usable.values()
        self._index = index
        return changed

    def share_templates(self, other: UriIndex) -> None:
        """Use the templates of another index, which need not be compiled again."""
        self.templates[:], self._index, self._listed = other.templates, other._index, other._listed

    def has(self, uri: str) -> bool:
        """Return whether the server has listed this URI."""
        return uri in self._uris

    def cursor_of(self, uri: str) -> Cursor:
        """Return the cursor of the page that listed this URI.

        Raises:
            KeyError: the server has not listed it.
        """
        return self._uris[uri]

    def covers(self, uri: str) -> bool:
        """Return whether the server may have this URI: it is listed, similar to a listed one, or matches a template."""
        if uri in self._uris or uri.partition("?")[0] in self._uris or prefix_of(uri) in self._prefixes:
            return True
        # check=False: only the server that has the template can judge which values are safe.
        return bool(len(self._index)) and is_uri(uri) and self._index.find(uri, check=False) is not None


def prefix_of(uri: str) -> str:
    """Return the prefix of similar URIs: the scheme with the authority, or else with the first part of the path.

    Returns an empty string for a URI without these, such as `urn:a`.
    """
    match = _PREFIX(uri)
    return match[0] if match else ""


def is_uri(uri: str) -> bool:
    """Return whether this is an absolute URI of bounded length that can be encoded."""
    try:
        check_uri(uri)
        uri.encode()
    except (InvalidParams, UnicodeEncodeError):
        return False
    return True
