"""What a type checker knows of a source's author's methods: plain or async, with narrower types. Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import assert_type

from wharfinger import Server, types
from wharfinger.server import Hit, Hits, Source
from wharfinger.source import Changed, Document, DocumentPage, MaybeAwaitable, ResourcePage


class Plain(Source):
    def matches(self, uri: str) -> bool:
        return uri.startswith("plain:")

    def page(self, after: str | None, limit: int) -> tuple[list[types.Resource], str | None]:
        return [self.stat("plain:a")][:limit], after

    def stat(self, uri: str) -> types.Resource:
        return types.Resource(uri=uri, name="a")

    def version(self, uri: str) -> str:
        return "1"

    def read(self, uri: str) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.ResourceContents(uri=uri, text="a")])

    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> ResourcePage:
        return self.page(after, limit)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [value, *context]

    def search(self, query: str, limit: int) -> Hits:
        return Hits([Hit(uri="plain:a", title=query)][:limit])

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], None]:
        return [Document(uri="plain:a", title="a", version=self.version("plain:a"))], None

    def text(self, uri: str) -> Iterator[str]:
        yield uri

    def watch(self, uri: str | None, changed: Changed) -> None:
        changed(uri)

    def unwatch(self, uri: str | None) -> None:
        pass


class Async(Source):
    def matches(self, uri: str) -> bool:
        return uri.startswith("async:")

    async def page(self, after: str | None, limit: int) -> tuple[list[types.Resource], str | None]:
        return [await self.stat("async:a")][:limit], after

    async def stat(self, uri: str) -> types.Resource:
        return types.Resource(uri=uri, name="a")

    async def version(self, uri: str) -> str:
        return "1"

    async def read(self, uri: str) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.ResourceContents(uri=uri, text="a")])

    async def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> ResourcePage:
        return await self.page(after, limit)

    async def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> tuple[str, ...]:
        return (value, *context)

    async def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri="async:a", title=query)][:limit]

    async def documents(self, after: str | None, limit: int) -> DocumentPage:
        return [Document(uri="async:a", title="a", version=await self.version("async:a"))], None

    async def text(self, uri: str) -> list[str]:
        return [uri]


class Streamed(Async):
    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], None]:
        return [], None


class Streaming(Source):
    async def text(self, uri: str) -> AsyncIterator[str]:
        yield uri


async def use(source: Source) -> None:
    assert_type(Plain().page(None, 1), tuple[list[types.Resource], str | None])
    assert_type(await Async().stat("async:a"), types.Resource)
    assert_type(source.version("x"), MaybeAwaitable[str])


server = Server("harbour")
server.include(Plain())
server.include(Async())
server.include(Streaming())
