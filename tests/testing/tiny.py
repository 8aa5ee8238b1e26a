"""A correct source of a few texts in memory. The tests of `SourceContract` break it, each in a single way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Hit, Source, SourceUnavailable
from wharfinger.testing import SourceContract

TOP = "tiny://box"
WINDOW_CHARACTERS = 10
PASSWORD = "hunter2"


class TinySource(Source):
    """Texts by name. A text longer than ten characters is read in windows."""

    name = "box"
    uri = TOP
    location = "memory"
    templates: Sequence[t.ResourceTemplate] = (t.ResourceTemplate(uri_template=TOP + "/{name}", name="text"),)

    def __init__(self) -> None:
        self.texts = {f"{letter}.txt": letter * count for count, letter in enumerate("abcdefgh")}
        self.texts["large.txt"] = "".join(str(n) for n in range(30))
        self.watchers: dict[str | None, Changed] = {}
        self.hidden = False

    def hide(self, hidden: bool) -> None:
        """Make all texts unavailable, or available again, and notify every watcher."""
        self.hidden = hidden
        for uri in list(self.watchers):
            self.notify(uri)

    def check_available(self) -> None:
        if self.hidden:
            raise SourceUnavailable("The box is closed.")

    def put(self, name: str, text: str) -> str:
        new = name not in self.texts
        self.texts[name] = text
        uri = f"{TOP}/{name}"
        for changed_uri in (None, TOP) if new else (uri,):
            self.notify(changed_uri)
        return uri

    def notify(self, uri: str | None) -> None:
        if changed := self.watchers.get(uri):
            changed(uri)

    def matches(self, uri: str) -> bool:
        return uri == TOP or uri.startswith(TOP + "/")

    def page(self, after: str | None, limit: int) -> Any:
        if after is not None and not after.startswith("after:"):
            raise InvalidArgument("This cursor is not valid here: list again without one.")
        self.check_available()
        names = [name for name in sorted(self.texts) if after is None or f"after:{name}" > after]
        resources = [self.resource_of(name) for name in names[:limit]]
        return resources, f"after:{names[limit - 1]}" if len(names) > limit else None

    def resource_of(self, name: str) -> t.Resource:
        text = self.texts[name]
        return t.Resource(
            uri=f"{TOP}/{name}",
            name=name,
            mime_type="text/plain",
            size=len(text),
            meta={VERSION: str(hash(text))},
        )

    def find(self, uri: str) -> tuple[str, str]:
        self.check_available()
        path, _, query = uri.partition("?")
        name = path.removeprefix(TOP + "/")
        if not self.matches(uri) or name not in self.texts:
            raise ResourceNotFound(uri)
        return name, query

    def stat(self, uri: str) -> t.Resource:
        if uri == TOP:
            return t.Resource(uri=TOP, name="box", mime_type=DIRECTORY)
        return self.resource_of(self.find(uri)[0])

    def read(self, uri: str) -> t.ReadResourceResult:
        if uri == TOP:
            return t.ReadResourceResult(contents=[self.contents(TOP, "A box.", {})], ttl_ms=0, cache_scope="public")
        name, query = self.find(uri)
        text, base = self.texts[name], f"{TOP}/{name}"
        begin = self.start_of(query)
        part = text[begin : begin + WINDOW_CHARACTERS]
        meta: dict[str, object] = {VERSION: str(hash(text))}
        if len(text) > WINDOW_CHARACTERS:
            meta["wharfinger/window"] = query or "chars=0"
        contents = [self.contents(uri, part, meta)]
        if begin + WINDOW_CHARACTERS < len(text):
            following = f"{base}?chars={begin + WINDOW_CHARACTERS}"
            meta["wharfinger/next"] = following
            contents.append(self.contents(following, f"Go on at {following}", {}))
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="public")

    def start_of(self, query: str) -> int:
        name, _, value = query.partition("=")
        if query and (name != "chars" or not value.isdecimal()):
            raise InvalidArgument("Ask for a window as ?chars=20: the first character, counted from 0.")
        return int(value or 0)

    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return t.ResourceContents(uri=uri, mime_type="text/plain", text=text, meta=meta)

    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        if uri != TOP:
            raise ResourceNotFound(uri)
        return self.page(after, limit)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        if template != self.templates[0].uri_template or argument != "name":
            return []
        return [name for name in sorted(self.texts) if name.startswith(value)][:100]

    def search(self, query: str, limit: int) -> list[Hit]:
        found = [name for name in sorted(self.texts) if query in name]
        return [Hit(uri=f"{TOP}/{name}", title=name) for name in found[:limit]]

    def text(self, uri: str) -> Iterator[str]:
        yield self.texts[self.find(uri)[0]]

    def describe(self) -> str:
        return f"{len(self.texts)} texts"

    def watch(self, uri: str | None, changed: Changed) -> None:
        self.watchers[uri] = changed

    def unwatch(self, uri: str | None) -> None:
        self.watchers.pop(uri, None)


class TestTiny(SourceContract):
    """The source contract for the correct source."""

    missing = TOP + "/none"
    windowed = TOP + "/large.txt"
    secret = PASSWORD
    number = 0

    @pytest.fixture
    def source(self) -> TinySource:
        return TinySource()

    def change(self, source: Any) -> str | None:
        self.number += 1
        return str(source.put("c.txt", f"new {self.number}"))

    def add(self, source: Any) -> str | None:
        self.number += 1
        return str(source.put(f"new{self.number}.txt", "new"))

    def hide(self, source: Any) -> Callable[[], object] | None:
        source.hide(True)
        return lambda: source.hide(False)

    def whole(self, source: Any) -> str | bytes | None:
        return str(source.texts["large.txt"])
