"""A correct source of a few texts in memory, to be broken in one way at a time, and its contract."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Hit, Source, SourceUnavailable
from wharfinger.testing import SourceContract

TOP = "tiny://box"
WINDOW = 10
PASSWORD = "hunter2"


class Tiny(Source):
    """Texts by name. A text longer than ten characters is read in windows."""

    name = "box"
    uri = TOP
    location = "memory"
    templates: Sequence[t.ResourceTemplate] = (t.ResourceTemplate(uri_template=TOP + "/{name}", name="text"),)

    def __init__(self) -> None:
        self.texts = {f"{letter}.txt": letter * at for at, letter in enumerate("abcdefgh")}
        self.texts["large.txt"] = "".join(str(n) for n in range(30))
        self.watchers: dict[str | None, Changed] = {}
        self.lock = threading.Lock()
        self.hidden = False

    def hide(self, hidden: bool) -> None:
        """Make all texts unavailable, or bring them back, and report both to every watcher."""
        self.hidden = hidden
        for watched in list(self.watchers):
            self.notify(watched)

    def check(self) -> None:
        if self.hidden:
            raise SourceUnavailable("The box is closed.")

    def put(self, name: str, text: str) -> str:
        new = name not in self.texts
        self.texts[name] = text
        uri = f"{TOP}/{name}"
        for watched in (None, TOP) if new else (uri,):
            self.notify(watched)
        return uri

    def notify(self, uri: str | None) -> None:
        if reported := self.watchers.get(uri):
            reported(uri)

    def matches(self, uri: str) -> bool:
        return uri == TOP or uri.startswith(TOP + "/")

    def page(self, after: str | None, limit: int) -> Any:
        if after is not None and not after.startswith("behind:"):
            raise InvalidArgument("This cursor is not valid here: list again without one.")
        self.check()
        names = [name for name in sorted(self.texts) if after is None or f"behind:{name}" > after]
        shown = [self.described(name) for name in names[:limit]]
        return shown, f"behind:{names[limit - 1]}" if len(names) > limit else None

    def described(self, name: str) -> t.Resource:
        text = self.texts[name]
        return t.Resource(
            uri=f"{TOP}/{name}",
            name=name,
            mime_type="text/plain",
            size=len(text),
            meta={VERSION: str(hash(text))},
        )

    def find(self, uri: str) -> tuple[str, str]:
        self.check()
        path, _, query = uri.partition("?")
        name = path.removeprefix(TOP + "/")
        if not self.matches(uri) or name not in self.texts:
            raise ResourceNotFound(uri)
        return name, query

    def stat(self, uri: str) -> t.Resource:
        if uri == TOP:
            return t.Resource(uri=TOP, name="box", mime_type=DIRECTORY)
        return self.described(self.find(uri)[0])

    def read(self, uri: str) -> t.ReadResourceResult:
        if uri == TOP:
            return t.ReadResourceResult(contents=[self.contents(TOP, "A box.", {})], ttl_ms=0, cache_scope="public")
        name, query = self.find(uri)
        text, base = self.texts[name], f"{TOP}/{name}"
        begin = self.begin(query)
        part = text[begin : begin + WINDOW]
        meta: dict[str, object] = {VERSION: str(hash(text))}
        if len(text) > WINDOW:
            meta["wharfinger/window"] = query or "chars=0"
        contents = [self.contents(uri, part, meta)]
        if begin + WINDOW < len(text):
            following = f"{base}?chars={begin + WINDOW}"
            meta["wharfinger/next"] = following
            contents.append(self.contents(following, f"Go on at {following}", {}))
        return t.ReadResourceResult(contents=contents, ttl_ms=0, cache_scope="public")

    def begin(self, query: str) -> int:
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
    """The whole suite on the correct source."""

    missing = TOP + "/none"
    windowed = TOP + "/large.txt"
    secret = PASSWORD
    number = 0

    @pytest.fixture
    def source(self) -> Tiny:
        return Tiny()

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
