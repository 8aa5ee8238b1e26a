"""Which URIs are another server's, as far as it has shown them: listed ones, what lies beside them, and templates."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate
from wharfinger.protocol.uri.template_index import TemplateIndex
from wharfinger.server.features.resource import LONGEST_URI, check_uri
from wharfinger.sources.upstream_server.upstream_lists import Cursor

__all__ = ["UriIndex", "is_uri"]

URIS = 50_000
"""Listed URIs that are remembered, the latest ones."""
TOPS = 1_000
"""Beginnings of them, such as `git://repo/`."""
TEMPLATES = 1_000
VARIABLES = 64
"""Of one template: the pattern of one with thousands takes a second to compile."""

_TOP = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]+/|/[^/?#]+/)").match
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match


class UriIndex:
    """What one server has shown; the loop's alone, as the source is."""

    def __init__(self) -> None:
        self.templates: list[t.ResourceTemplate] = []
        """Those that can be used; the list stays the same object."""
        self._uris: OrderedDict[str, Cursor] = OrderedDict()
        self._tops: OrderedDict[str, None] = OrderedDict()
        self._index: TemplateIndex[None] = TemplateIndex()

    def __len__(self) -> int:
        return len(self._uris)

    def learn(self, resources: Iterable[t.Resource], cursor: Cursor) -> None:
        """Take a page of its list, which stood at this cursor."""
        for resource in resources:
            self._uris[resource.uri] = cursor
            self._uris.move_to_end(resource.uri)
            top = top_of(resource.uri)
            if top:
                self._tops[top] = None
                self._tops.move_to_end(top)
        while len(self._uris) > URIS:
            self._uris.popitem(last=False)
        while len(self._tops) > TOPS:
            self._tops.popitem(last=False)

    def learn_templates(self, templates: Sequence[t.ResourceTemplate]) -> bool:
        """Take its templates, without those that nothing can be made of; whether they are others than before."""
        usable: dict[str, t.ResourceTemplate] = {}
        index: TemplateIndex[None] = TemplateIndex()
        for template in templates[:TEMPLATES]:
            text = template.uri_template
            if not template.name or text in usable or len(text) > LONGEST_URI or not _SCHEME(text):
                continue
            try:
                parsed = UriTemplate(text)
                if not 0 < len(parsed.variables) <= VARIABLES:
                    continue
                index.add(parsed, None, allow_ambiguous=True)
            except InvalidTemplate:
                continue
            usable[text] = template
        changed = list(usable.values()) != self.templates
        self.templates[:] = usable.values()
        self._index = index
        return changed

    def has(self, uri: str) -> bool:
        """Whether it has listed this very URI."""
        return uri in self._uris

    def page_of(self, uri: str) -> Cursor:
        """The cursor of the page that listed it.

        Raises:
            KeyError: none did.
        """
        return self._uris[uri]

    def covers(self, uri: str) -> bool:
        """Whether it may have this URI: listed, a window of a listed one, beside one, or of a template."""
        base = uri.partition("?")[0]
        return uri in self._uris or base in self._uris or top_of(uri) in self._tops or self._matches(uri)

    def _matches(self, uri: str) -> bool:
        # Which values are safe is for the server to judge that has the template.
        return bool(len(self._index)) and is_uri(uri) and self._index.find(uri, check=False) is not None


def top_of(uri: str) -> str:
    """The beginning that URIs of one kind share: scheme and authority, or else the first part of the path."""
    found = _TOP(uri)
    return found[0] if found else ""


def is_uri(uri: str) -> bool:
    """Whether this may be asked for at all: an absolute URI of bounded length that can be written."""
    try:
        check_uri(uri)
        uri.encode()
    except (InvalidParams, UnicodeEncodeError):
        return False
    return True
