"""A search index is built in the background, stored, and updated when documents change."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import string
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.content.search_query import query_of
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import SourceReader
from wharfinger.server.middleware.chain import Call, Next, Result, transparent
from wharfinger.source import VERSION, Document, Hit, Hits, Source, SourceUnavailable
from wharfinger.sources import files
from wharfinger.sources.search import index as index_module
from wharfinger.sources.search import index_search, index_store, indexing, search_index

StartServer = Callable[..., Any]


class Shelf(Source):
    """A source of texts in memory. Lists wait while `gate` is cleared."""

    name = "shelf"
    uri = "shelf://"

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.read_uris: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def _resource(self, name: str) -> t.Resource:
        version = str(hash(self.texts[name]))
        return t.Resource(uri=f"shelf://{name}", name=name, mime_type="text/plain", meta={VERSION: version})

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        self.gate.wait(20)
        names = sorted(name for name in self.texts if name > (after or ""))
        return [self._resource(name) for name in names[:limit]], names[limit - 1] if len(names) > limit else None

    def stat(self, uri: str) -> t.Resource:
        if uri.removeprefix("shelf://") not in self.texts:
            raise ResourceNotFound(uri)
        return self._resource(uri.removeprefix("shelf://"))

    def read(self, uri: str) -> t.ReadResourceResult:
        self.stat(uri)
        text = self.texts[uri.removeprefix("shelf://")]
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, mime_type="text/plain", text=text)])

    def text(self, uri: str) -> Any:
        self.read_uris.append(uri)
        return super().text(uri)

    def search(self, query: str, limit: int) -> Hits:
        return Hits([Hit(uri="shelf://slow", title="found slowly")])


class AsyncShelf(Shelf):
    """A shelf with coroutine functions, like a source that reads over a network."""

    async def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        await asyncio.sleep(0)
        documents: tuple[list[Document], str | None] = Source.documents(self, after, limit)
        return documents

    async def stat(self, uri: str) -> Any:
        await asyncio.sleep(0)
        return Shelf.stat(self, uri)

    async def text(self, uri: str) -> Any:
        async def pieces() -> Any:
            for character in self.texts[uri.removeprefix("shelf://")]:
                await asyncio.sleep(0)
                yield character

        return pieces()


def test_hits_have_a_snippet_and_matching_names_come_first(tmp_path: Path, start_server: StartServer) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "depth.md").write_text("nothing")
    (tmp_path / "charts" / "hull.ts").write_text("// Hull\nexport const Depth = 4;\n")

    async def main() -> None:
        async with start_server(files(tmp_path / "charts")) as indexed_server:
            hits = await indexed_server.find("depth")
            assert [(hit.uri, hit.snippet) for hit in hits] == [
                ("file:///charts/depth.md", ""),
                ("file:///charts/hull.ts", "1- // Hull\n2: export const Depth = 4;"),
            ]
            assert hits[1].resource == t.Resource(
                uri="file:///charts/hull.ts", name="hull.ts", title="hull.ts", mime_type="text/x-typescript"
            )
            assert not hits.truncated

    asyncio.run(main())


@pytest.mark.parametrize("source_class", [Shelf, AsyncShelf])
def test_plain_and_async_sources_are_indexed(source_class: type[Shelf], start_server: StartServer) -> None:
    async def main() -> None:
        async with start_server(source_class(one="the tide", two="the current")) as indexed_server:
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("TIDE") == ["shelf://one"]
            assert await indexed_server.uris("the") == ["shelf://two", "shelf://one"]

    asyncio.run(main())


def test_changed_added_and_removed_documents_are_indexed_soon(tmp_path: Path, start_server: StartServer) -> None:
    """The next walk finds them, without a watcher."""
    root = tmp_path / "charts"
    root.mkdir()
    (root / "a.txt").write_text("alpha")
    (root / "b.txt").write_text("beta")

    async def main() -> None:
        async with start_server(files(root)) as indexed_server:
            await indexed_server.wait_until_indexed()
            (root / "a.txt").write_text("gamma")
            (root / "b.txt").unlink()
            (root / "c.txt").write_text("delta")
            assert await indexed_server.uris("alpha") == []
            assert await indexed_server.uris("beta") == []

            async def found() -> bool:
                return [await indexed_server.uris(word) for word in ("gamma", "delta")] == [
                    ["file:///charts/a.txt"],
                    ["file:///charts/c.txt"],
                ]

            await wait_until_async(found, "the new text is found")

    asyncio.run(main())


def test_a_stored_index_rereads_only_changed_documents(cache: Path, start_server: StartServer) -> None:
    first = Shelf(one="alpha", two="beta")
    second = Shelf(one="alpha", two="gamma")

    async def main(shelf: Shelf) -> None:
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            reread = ["shelf://one", "shelf://two"] if shelf is first else ["shelf://two"]
            assert sorted(set(shelf.read_uris)) == reread
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    asyncio.run(main(first))
    assert (cache.stat().st_mode & 0o777, [path.suffix for path in sorted(cache.iterdir())]) == (
        0o700,
        [".lock", ".sqlite"],
    )
    asyncio.run(main(second))
    assert len(list(cache.glob("*.sqlite"))) == 1


def test_an_incomplete_index_is_reported_and_the_source_is_searched(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.2)
    shelf = Shelf(one="alpha")
    shelf.gate.clear()

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://slow"]
            assert "Indexing continues" in hits.truncated
            assert indexed_server.progress_reports
            shelf.gate.set()
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert not hits.truncated

    asyncio.run(main())


def test_a_search_reports_the_progress_of_indexing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.sources import resource_tools

    monkeypatch.setattr(index_module, "WAIT_SECONDS", 0.3)
    shelf = Shelf(one="alpha")
    shelf.gate.clear()
    server = Server("reporting")
    for part in (shelf, search_index(cache), resource_tools()):
        server.include(part)
    reports: list[str] = []

    async def main() -> None:
        async with Client(server) as client:
            await client.call_tool(
                "search", {"query": "alpha"}, progress=lambda done, total, message: reports.append(str(message))
            )
            shelf.gate.set()

    asyncio.run(main())
    assert reports
    assert reports[0].startswith("Indexing: ")


def test_indexing_does_not_block_the_event_loop(tmp_path: Path, start_server: StartServer) -> None:
    root = tmp_path / "many"
    root.mkdir()
    for number in range(400):
        (root / f"{number}.txt").write_text(f"harbour {number} " * 2_000)

    async def main() -> None:
        async with start_server(files(root)) as indexed_server:
            longest = 0.0
            while indexed_server.index.pending:
                began = time.thread_time()
                await asyncio.sleep(0)
                longest = max(longest, time.thread_time() - began)
            assert longest < 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "logged"), [(OSError("no route to it"), True), (SourceUnavailable("No route to it."), False)]
)
def test_a_failing_source_is_logged_and_others_are_searched(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, error: Exception, logged: bool
) -> None:
    """The server itself logs a source that says that it is unavailable."""

    class BrokenSource(Source):
        name = "broken"

        def matches(self, uri: str) -> bool:
            return False

        def page(self, after: str | None, limit: int) -> Any:
            raise error

    async def main() -> None:
        async with start_server(BrokenSource(), Shelf(one="alpha")) as indexed_server:
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert ("broken cannot be indexed now; retrying" in caplog.text) is logged


def test_searches_do_not_wait_for_another_walk_of_a_source_that_failed(start_server: StartServer) -> None:
    """A bug: during each walk, they waited 1.5 s for it."""

    class FailingShelf(Shelf):
        name, uri, walks = "failing", "failing://", 0

        def matches(self, uri: str) -> bool:
            return uri.startswith("failing://")

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            self.walks += 1
            if self.walks == 1:
                raise OSError("no route to it")
            return super().page(after, limit)

    async def main() -> None:
        failing = FailingShelf()
        failing.gate.clear()
        async with start_server(failing, Shelf(one="alpha")) as indexed_server:
            indexed_server.index.refresh()
            await wait_until_async(lambda: failing.walks == 2, "a second walk")
            assert "shelf://one" in await indexed_server.uris("alpha")
            assert indexed_server.progress_reports == []
            failing.gate.set()

    asyncio.run(main())


def test_a_source_that_fails_after_indexing_is_reported_and_others_are_searched(start_server: StartServer) -> None:
    class FailingShelf(Shelf):
        name, uri, down = "failing", "failing://", False

        def matches(self, uri: str) -> bool:
            return uri.startswith("failing://")

        def _resource(self, name: str) -> t.Resource:
            if self.down:
                raise InternalError("failing cannot be reached.")
            return msgspec.structs.replace(super()._resource(name), uri=f"failing://{name}")

        def stat(self, uri: str) -> t.Resource:
            return self._resource(uri.removeprefix("failing://"))

        def text(self, uri: str) -> Any:
            return [self.texts[uri.removeprefix("failing://")]]

    async def main() -> None:
        failing = FailingShelf(alpha="beta")
        async with start_server(failing, Shelf(one="alpha")) as indexed_server:
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("alpha") == ["failing://alpha", "shelf://one"]
            failing.down = True
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert hits.truncated == "Not searched: failing cannot be reached now."

    asyncio.run(main())


def test_transparent_middleware_does_not_change_hits(start_server: StartServer) -> None:
    @transparent
    async def observe(call: Call, next: Next) -> Result:
        return await next(call)

    async def main() -> None:
        async with start_server(Shelf(one="nothing\nalpha")) as indexed_server:
            indexed_server.server.methods.add_middleware(observe, ("resources/read",))
            await indexed_server.wait_until_indexed()
            assert [hit.snippet for hit in await indexed_server.find("alpha")] == ["1- nothing\n2: alpha"]

    asyncio.run(main())


def test_a_search_is_narrowed_by_source_type_and_path(tmp_path: Path, start_server: StartServer) -> None:
    root = tmp_path / "charts"
    (root / "north").mkdir(parents=True)
    (root / "north" / "a.md").write_text("tide")
    (root / "b.csv").write_text("tide")

    async def main() -> None:
        async with start_server(files(root), Shelf(one="tide")) as indexed_server:
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("tide", source="shelf") == ["shelf://one"]
            assert len(await indexed_server.uris("tide", source="CHARTS")) == 2
            assert await indexed_server.uris("tide", type="text/csv") == ["file:///charts/b.csv"]
            assert len(await indexed_server.uris("tide", type="text")) == 3
            assert await indexed_server.uris("tide", path="north/") == ["file:///charts/north/a.md"]
            assert await indexed_server.uris("tide", path="*.csv") == ["file:///charts/b.csv"]
            assert await indexed_server.uris("tide", path="shelf://") == ["shelf://one"]
            with pytest.raises(InvalidArgument, match="there are charts, shelf"):
                await indexed_server.uris("tide", source="elsewhere")

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["no database", "truncated", "garbage"])
def test_a_damaged_index_is_rebuilt_with_a_warning(
    cache: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    texts = {f"n{number}": f"alpha {number} " * 50 + os.urandom(200).hex() for number in range(300)}

    async def main() -> None:
        async with start_server(Shelf(**texts)) as indexed_server:

            async def found() -> bool:
                return len(await indexed_server.uris("alpha", 1_000)) == 300 and not indexed_server.index.pending

            await wait_until_async(found, "all documents are found")

    asyncio.run(main())
    (path,) = cache.glob("*.sqlite")
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(
        {"no database": b"x" * 9_000, "truncated": data[:half], "garbage": data[:half] + b"\xff" * half}[damage]
    )
    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "rebuilt" in caplog.text


def test_an_index_of_another_version_is_rebuilt_without_a_warning(
    cache: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(one="alpha")

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    asyncio.run(main())
    (path,) = cache.glob("*.sqlite")
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {index_store.LAYOUT_VERSION + 1}")
    database.commit()
    database.close()
    shelf.read_uris.clear()
    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert shelf.read_uris[0] == "shelf://one"
    assert [record.levelname for record in caplog.records if "rebuilt" in record.message] == ["INFO"]


def test_a_second_server_uses_a_temporary_index(cache: Path, start_server: StartServer) -> None:
    async def main() -> None:
        async with start_server(Shelf(one="alpha")) as first, start_server(Shelf(one="alpha")) as second:
            for indexed_server in (first, second):
                await indexed_server.wait_until_indexed()
                assert await indexed_server.uris("alpha") == ["shelf://one"]
            assert len(list(cache.glob("*.sqlite"))) == 1
            paths = [indexed_server.index._file.path for indexed_server in (first, second)]
            (temporary,) = (path for path in paths if path.parent != cache)
            assert temporary.exists()
        assert not temporary.exists()

    asyncio.run(main())


def test_a_full_index_is_reported_and_still_finds_names(start_server: StartServer) -> None:
    texts = {f"n{number}": os.urandom(40_000).hex() for number in range(30)}

    async def main() -> None:
        async with start_server(Shelf(**texts, last="omega"), max_size=1 << 17) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("n2")
            assert hits[0].uri == "shelf://n2"
            assert "the index is full (0.125 MiB)" in hits.truncated

    asyncio.run(main())


@pytest.mark.parametrize("uris", [("shelf://",) * 3, ("shelf://a#b",) * 3, ("shelf://", "shelf://", "shelf://#1")])
def test_sources_with_the_same_uri_have_different_keys(uris: tuple[str, ...]) -> None:
    """A bug: the last of the sources with the same URI replaced the others in the index, if the URI contains `#`."""
    shelves = [Shelf() for _ in uris]
    for shelf, uri in zip(shelves, uris, strict=True):
        shelf.uri = uri
    keys = index_module._keys_of(shelves)
    assert list(keys.values()) == shelves
    assert list(keys)[:2] == [uris[0], f"{uris[0]}#1"]


def test_unused_indexes_of_other_sources_are_deleted_to_free_space(cache: Path, start_server: StartServer) -> None:
    class OtherShelf(Shelf):
        pass

    async def main(shelf: Shelf, max_size: int) -> None:
        async with start_server(shelf, max_size=max_size) as indexed_server:
            await indexed_server.wait_until_indexed()

    asyncio.run(main(Shelf(**{f"n{number}": os.urandom(40_000).hex() for number in range(30)}), 1 << 30))
    (old,) = cache.glob("*.sqlite")
    asyncio.run(main(OtherShelf(one="alpha"), 1 << 17))
    assert not old.exists()
    assert len(list(cache.glob("*.sqlite"))) == 1


def test_an_index_that_another_server_deletes_meanwhile_does_not_prevent_keeping_one(
    cache: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: of two servers that started at once, one could see a file that the other deleted. It kept no index."""
    cache.mkdir()
    (cache / "search-0.sqlite").symlink_to("missing")  # listed, but without a status, like a file deleted meanwhile

    async def main() -> None:
        async with start_server(Shelf(one="alpha")) as indexed_server:
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "The search index is not kept" not in caplog.text
    assert len(list(cache.glob("search-[1-9a-f]*.sqlite"))) == 1


def test_a_source_that_fails_to_match_a_uri_does_not_end_indexing(start_server: StartServer) -> None:
    """A bug: the thread of the index ended, and later changes of all sources were not indexed."""

    class FailingMatches(Shelf):
        name, uri, failed = "failing", "failing://", False

        def matches(self, uri: str) -> bool:
            if threading.current_thread().name == "wharfinger-search":
                self.failed = True
                raise InternalError("failing cannot be reached.")
            return False

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            return [], None

    async def main() -> None:
        failing, shelf = FailingMatches(), Shelf(one="alpha")
        async with start_server(failing, shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            indexed_server.index.refresh("shelf://one")
            await wait_until_async(lambda: failing.failed, "a failure")
            shelf.texts["two"] = "omega"
            indexed_server.index.refresh()
            await wait_until_async(lambda: "shelf://two" in shelf.read_uris, "the new document is read")

    asyncio.run(main())


def test_sources_are_searched_directly_if_the_index_is_damaged_during_a_search(
    cache: Path, start_server: StartServer
) -> None:
    """A bug: the search failed if the damage was found while it counted the documents that are not indexed."""

    class DamagingShelf(Shelf):
        damages = False

        def text(self, uri: str) -> Any:
            if self.damages:
                (path,) = cache.glob("*.sqlite")
                with closing(sqlite3.connect(path)) as index:
                    index.execute("ALTER TABLE documents RENAME TO elsewhere")
            self.damages = False
            return super().text(uri)

    async def main() -> None:
        shelf = DamagingShelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.damages = True
            assert await indexed_server.uris("alpha") == ["shelf://slow"]

    asyncio.run(main())


def test_an_index_is_rebuilt_if_a_search_finds_that_it_is_damaged(
    cache: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the thread of the index does not read the words, so it did not notice, not even after a restart."""
    monkeypatch.setattr(index_store, "CHECK_BYTES", 0)  # as if the file were large
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.01)
    shelf = Shelf(**{f"n{number}": f"alpha {os.urandom(200).hex()}" for number in range(300)})

    async def main() -> None:
        async with start_server(shelf) as indexed_server:

            async def found() -> bool:
                await indexed_server.wait_until_indexed()
                return len(await indexed_server.uris("alpha", 1_000)) == 300

            await wait_until_async(found, "all documents are found")

    asyncio.run(main())
    (path,) = cache.glob("*.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE grams_data SET block = x'ff' WHERE id > 10")
    asyncio.run(main())
    assert "The search index is rebuilt" in caplog.text


def test_an_unusable_index_folder_is_logged_and_searches_succeed(
    tmp_path: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        async with start_server(Shelf(one="alpha"), folder=tmp_path / "file" / "below") as indexed_server:
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "The search index is not kept" in caplog.text


def test_an_index_without_any_usable_folder_is_made_when_there_is_one_again(
    tmp_path: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: an error of the file system, such as that of a full disk, ended the thread of the index for good."""
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    (tmp_path / "file").write_text("")

    async def main() -> None:
        async with start_server(Shelf(one="alpha"), folder=tmp_path / "file" / "below") as indexed_server:
            await wait_until_async(lambda: "The search index cannot be written" in caplog.text, "the failure is logged")
            (tmp_path / "missing").mkdir()
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("alpha") == ["shelf://one"]

    asyncio.run(main())


def test_sources_of_included_servers_are_indexed(cache: Path) -> None:
    part, whole = Server("part"), Server("whole")
    part.include(Shelf(one="alpha"))
    whole.include(part)
    index = search_index(cache)
    whole.include(index)

    async def main() -> None:
        from tests.server.driving import make_request

        await whole.start()
        try:
            hits = await whole.resources.search(make_request(whole, "resources/list"), "alpha", 5)
            assert [hit.uri for hit in hits] == ["shelf://one"]
        finally:
            await whole.close()

    asyncio.run(main())


def test_text_that_middleware_refuses_or_changes_is_not_shown(start_server: StartServer) -> None:
    async def main() -> None:
        async with start_server(Shelf(one="alpha open", two="alpha closed", three="alpha secret")) as indexed_server:

            @indexed_server.server.middleware("resources/read")
            async def guard(request: Any, call_next: Any) -> Any:
                if request.params.uri.endswith("two"):
                    raise ResourceNotFound(request.params.uri)
                result = await call_next(request)
                for content in result.contents:
                    content.text = content.text.replace("secret", "------")
                return result

            hits = await indexed_server.find("alpha")
            assert sorted((hit.uri, hit.snippet) for hit in hits) == [
                ("shelf://one", "1: alpha open"),
                ("shelf://three", "1: alpha ------"),
            ]
            assert await indexed_server.uris("secret") == []

    asyncio.run(main())


def test_a_second_index_is_refused(cache: Path) -> None:
    server = Server("one")
    index = search_index(cache)
    server.include(index)
    with pytest.raises(ValueError, match="one search index"):
        server.include(search_index(cache))
    with pytest.raises(ValueError, match="one server"):
        Server("two").include(index)


def test_an_index_can_be_added_to_a_running_server(cache: Path) -> None:
    server = Server("late")
    server.include(Shelf(one="alpha"))

    async def main() -> None:
        from tests.server.driving import make_request

        await server.start()
        server.include(search_index(cache))
        hits = await server.resources.search(make_request(server, "resources/list"), "alpha", 5)
        assert [hit.uri for hit in hits] == ["shelf://one"]
        await server.close()

    asyncio.run(main())


def test_a_search_succeeds_while_another_program_holds_the_write_lock(cache: Path, start_server: StartServer) -> None:
    async def main() -> None:
        async with start_server(Shelf(one="alpha")) as indexed_server:
            await indexed_server.wait_until_indexed()
            (path,) = cache.glob("*.sqlite")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            assert await indexed_server.uris("alpha") == ["shelf://one"]
            other.execute("COMMIT")
            other.close()

    asyncio.run(main())


def test_an_index_with_mostly_removed_documents_is_rebuilt(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_store, "MAX_ORPHANS", 2)
    monkeypatch.setattr(indexing, "MIN_PAUSE_SECONDS", 0.02)
    shelf = Shelf(one="text 0")

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            for number in range(8):
                shelf.texts["one"] = f"text {number}"

                async def found(number: int = number) -> bool:
                    return await indexed_server.uris(f'"text {number}"') == ["shelf://one"]

                await wait_until_async(found, "the new text is found")
            assert indexed_server.index._store._parts_made <= 4

    asyncio.run(main())


def test_documents_without_a_version_are_reread_only_after_an_interval(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a remote source without versions would send all of its texts for each walk."""
    monkeypatch.setattr(indexing, "MIN_PAUSE_SECONDS", 0.02)

    class UnversionedShelf(Shelf):
        walks = 0

        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            self.walks += 1
            return [Document(uri=f"shelf://{name}", title=name, version="") for name in self.texts], None

    shelf = UnversionedShelf(one="alpha")

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            await wait_until_async(lambda: shelf.walks > 3, "a fourth walk")
            assert shelf.read_uris == ["shelf://one"]
            monkeypatch.setattr(indexing, "REREAD_SECONDS", 0.0)
            indexed_server.index._indexing._reread_at.clear()
            await wait_until_async(lambda: len(shelf.read_uris) > 1, "the document is read again")

    asyncio.run(main())


def test_images_are_found_by_name_and_not_read(start_server: StartServer) -> None:
    class Album(Shelf):
        def _resource(self, name: str) -> t.Resource:
            return t.Resource(uri=f"shelf://{name}", name=name, mime_type="image/png", meta={VERSION: "1"})

    album = Album(buoy="never read", mast="never read")

    async def main() -> None:
        async with start_server(album) as indexed_server:
            await indexed_server.wait_until_indexed()
            assert await indexed_server.uris("buoy", type="image") == ["shelf://buoy"]
            assert album.read_uris == []

    asyncio.run(main())


class SlowShelf(Shelf):
    """A shelf that takes `delay` seconds for each text."""

    delay = 0.0

    def text(self, uri: str) -> Any:
        time.sleep(self.delay)
        return super().text(uri)


def test_a_search_stops_at_the_time_limit_and_reports_unread_documents(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_search, "READING_SECONDS", 3.0)

    async def main() -> None:
        shelf = SlowShelf(**{f"n{number}": "alpha beta" for number in range(200)})
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.delay = 0.05
            hits = await indexed_server.find('"alpha beta"', 200)
            assert 0 < len(hits) < 200
            assert "that may match were not read" in hits.truncated

    asyncio.run(main())


def test_a_watch_updates_the_index_before_the_next_walk(
    tmp_path: Path, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "MIN_PAUSE_SECONDS", 3600.0)
    root = tmp_path / "charts"
    root.mkdir()
    (root / "log.txt").write_text("alpha")

    async def main() -> None:
        async with start_server(files(root)) as indexed_server:
            await indexed_server.wait_until_indexed()
            async with Client(indexed_server.server) as client, client.watch("file:///charts/log.txt") as changes:
                (root / "log.txt").write_text("omega")
                await anext(changes)

                async def found() -> bool:
                    return await indexed_server.uris("omega") == ["file:///charts/log.txt"]

                await wait_until_async(found, "the new text is found")

    asyncio.run(main())


def test_a_changed_document_keeps_the_title_and_type_that_its_source_lists(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: until the next walk it was not found by its path or type, if `Source.stat` says something else."""
    monkeypatch.setattr(indexing, "MIN_PAUSE_SECONDS", 3600.0)

    class TitledShelf(Shelf):
        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            return [Document(uri="shelf://one", title="charts/one", version="1", mime_type="text/markdown")], None

    async def main() -> None:
        shelf = TitledShelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.texts["one"] = "omega"
            indexed_server.index.refresh("shelf://one")

            async def found() -> bool:
                return await indexed_server.uris("omega") == ["shelf://one"]

            await wait_until_async(found, "the new text is found")
            assert await indexed_server.uris("omega", path="charts/*", type="text/markdown") == ["shelf://one"]

    asyncio.run(main())


def test_a_changed_document_without_a_text_does_not_end_the_indexing(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the error of a source that was unavailable at that time ended the thread of the index."""
    asked = threading.Event()

    class FailingShelf(Shelf):
        fails = False

        def text(self, uri: str) -> Any:
            if self.fails:
                asked.set()
                raise SourceUnavailable("the shelf is away")
            return super().text(uri)

    async def main() -> None:
        shelf = FailingShelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.fails = True
            shelf.texts["one"] = "omega"
            indexed_server.index._indexing.notify("shelf://one")
            assert await asyncio.to_thread(asked.wait, 40)
            shelf.fails = False
            await wait_until_async(lambda: not indexed_server.index._indexing._notified, "the change is taken")
            indexed_server.index._indexing.notify()

            async def found() -> bool:
                return await indexed_server.uris("omega") == ["shelf://one"]

            await wait_until_async(found, "the new text is found")

    asyncio.run(main())


def test_a_source_without_documents_is_searched_by_its_own_search(start_server: StartServer) -> None:
    class UnlistedShelf(Shelf):
        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            return [], None

    async def main() -> None:
        async with start_server(UnlistedShelf(one="alpha")) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://slow"]
            assert not hits.truncated

    asyncio.run(main())


HOSTILE_QUERIES = (
    "a" * 2_000, "aB" * 1_000, "a_" * 1_000, " ".join(f"FooBarBazQux{number}Xyz" for number in range(60)), '"' * 2_000,
    '" ' * 1_000, "NEAR(a b) OR x*", "a OR", "^x", "-", "'; --", "\0", "\ud800", "\U0001f4a5", "((((", "{}[]",
    "\u202e\u0301" * 900, "\u00e9" * 2_000, "." * 2_000, "a.b" * 600, "--a " * 500, "__" * 900, "\u0661\u0662 " * 600,
    "\ufb00\ufb01" * 900, "\u0130" * 1_000, "x" * 257, '"unbalanced', 'colon: a:b -c +d "e', "%s %d {x}", "\r\n\t",
)  # fmt: skip


def test_hostile_queries_are_answered_within_the_time_limit(start_server: StartServer) -> None:
    text = "NEAR(a b) OR 'x' ^ * FooBarBazQux1Xyz heartbeat \0\n" * 50
    shelf = Shelf(one=text, two="x" * 100_000, three=" ".join("aBcDeFgH" for _ in range(10_000)))

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            for query in HOSTILE_QUERIES:
                began = time.process_time()
                hits = await indexed_server.find(query)
                assert time.process_time() - began < 2 * index_search.READING_SECONDS, query[:20]
                assert {hit.uri.partition("?")[0] for hit in hits} <= {"shelf://one", "shelf://two", "shelf://three"}
                assert len(hits.remark) < 2_000

    asyncio.run(main())


def test_a_misspelled_word_is_replaced_by_a_similar_one_and_reported(start_server: StartServer) -> None:
    shelf = Shelf(one="the heartbeat of it", two="a harbour", three="class HarbourMaster:\n    def call(self):")

    async def main() -> None:
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("heartbaet")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert hits.remark == "Nothing has \u201cheartbaet\u201d: searched for \u201cheartbeat\u201d."
            hits = await indexed_server.find("harbour_masters_call")
            assert hits[0].uri == "shelf://three"
            assert "searched for \u201charbour masters call\u201d" in hits.remark
            hits = await indexed_server.find("quite unheard zzz")
            assert (list(hits), hits.remark[:12]) == ([], "Nothing has ")
            assert await indexed_server.uris('"heartbaet"') == []

    asyncio.run(main())


@pytest.mark.parametrize(("length", "corrected"), [(64, True), (65, False)])
def test_no_other_spelling_is_looked_for_if_a_word_is_very_long(
    start_server: StartServer, length: int, corrected: bool
) -> None:
    """A bug: seven words of 256 random letters took ten seconds in an index of 19 MB."""
    word = (3 * string.ascii_lowercase)[:length]
    misspelled = word[:30] + word[31] + word[30] + word[32:]

    async def main() -> None:
        shelf = Shelf(one=word)
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.read_uris.clear()
            hits = await indexed_server.find(misspelled)
            assert [hit.uri for hit in hits] == (["shelf://one"] if corrected else [])
            assert bool(shelf.read_uris) is corrected

    asyncio.run(main())


def test_a_definition_ranks_above_all_mentions(tmp_path: Path, start_server: StartServer) -> None:
    root = tmp_path / "code"
    (root / "tests").mkdir(parents=True)
    for number in range(300):
        (root / f"use{number}.py").write_text(f"from charts import load_chart\nload_chart({number})\n")
    (root / "tests" / "test_charts.py").write_text("def load_chart(): ...\n")
    (root / "charts.py").write_text("import os\n\ndef load_chart(name):\n    return os.open(name)\n")

    async def main() -> None:
        async with start_server(files(root)) as indexed_server:
            await indexed_server.wait_until_indexed()
            for query in ("load_chart", "LoadChart", "where is load_chart defined?", "load chart"):
                hits = await indexed_server.find(query)
                assert hits[0].uri == "file:///code/charts.py", query
                assert "3: def load_chart(name):" in hits[0].snippet

    asyncio.run(main())


def test_hits_in_a_long_document_link_to_their_windows(tmp_path: Path, start_server: StartServer) -> None:
    root = tmp_path / "charts"
    root.mkdir()
    lines = ["nothing"] * 2_000
    for number in (100, 110, 900, 1_500, 1_900):
        lines[number] = "the depth"
    (root / "long.txt").write_text("\n".join(lines))
    (root / "short.txt").write_text("\n".join(lines[90:130]))

    async def main() -> None:
        async with start_server(files(root)) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("depth")
            assert sorted(hit.uri for hit in hits) == [
                "file:///charts/long.txt?lines=1481-1681",
                "file:///charts/long.txt?lines=81-281",
                "file:///charts/long.txt?lines=881-1081",
                "file:///charts/short.txt",
            ]
            (first,) = (hit for hit in hits if hit.uri.endswith("=881-1081"))
            assert first.snippet == "900- nothing\n901: the depth\n902- nothing\n903- nothing"

    asyncio.run(main())


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("no such table: notes"),
        sqlite3.DatabaseError("file is not a database"),
        sqlite3.OperationalError("database is locked"),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["page", "text"])
def test_an_sqlite_error_of_a_source_does_not_affect_the_index(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, error: Exception, method: str
) -> None:
    """A bug: the index was taken for damaged or unusable, and no source was indexed."""

    class FailingShelf(Shelf):
        name, uri, failed = "failing", "failing://", False

        def matches(self, uri: str) -> bool:
            return uri.startswith("failing://")

        def _fail(self, *_: object) -> Any:
            self.failed = True
            raise error

    failing = FailingShelf(broken="")
    setattr(failing, method, failing._fail)

    async def main() -> None:
        shelf = Shelf(one="alpha")
        async with start_server(failing, shelf) as indexed_server:
            await wait_until_async(lambda: failing.failed, "a failure")
            await wait_until_async(
                lambda: shelf.uri not in indexed_server.index._indexing.progress.pending, "the shelf is indexed"
            )
            assert "shelf://one" in await indexed_server.uris("alpha")

    asyncio.run(main())
    assert "The search index" not in caplog.text
    assert "There is no search index" not in caplog.text


def test_an_index_without_one_of_its_tables_is_rebuilt(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: it was taken for a Python without FTS5, and there was no index until the server was restarted."""
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        shelf = Shelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            with closing(sqlite3.connect(indexed_server.index._store.path)) as database:
                database.execute("DROP TABLE parts")
            shelf.texts["two"] = "omega"
            indexed_server.index.refresh()

            async def found() -> bool:
                return await indexed_server.uris("omega") == ["shelf://two"]

            await wait_until_async(found, "the new text is found")

    asyncio.run(main())
    assert "The search index is rebuilt: no such table" in caplog.text


@pytest.mark.parametrize("error", [ValueError("a damaged PDF"), InternalError("It changes while it is read.")], ids=str)
def test_a_document_that_cannot_be_read_is_indexed_by_name_and_the_others_completely(
    start_server: StartServer, error: Exception
) -> None:
    """A bug: no other document of its source was indexed."""

    class FailingShelf(Shelf):
        broken = True

        def text(self, uri: str) -> Any:
            if self.broken and uri == "shelf://broken":
                raise error
            return super().text(uri)

    async def main() -> None:
        shelf = FailingShelf(broken="alpha", other="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://other"]
            assert hits.truncated == (
                "1 document is indexed only by name or in part: it is very large or cannot be read."
            )
            hits = await indexed_server.find("broken")
            assert [hit.uri for hit in hits] == ["shelf://broken"]
            shelf.broken = False
            indexed_server.index.refresh()

            async def found() -> bool:
                return len(await indexed_server.uris("alpha")) == 2

            await wait_until_async(found, "the document is read again")
            shelf.broken = True
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://other"]
            assert hits.truncated == "1 document that may match cannot be read now."

    asyncio.run(main())


def test_the_time_for_reading_begins_when_the_index_has_found_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: if the index took longer than that, no document was read, and nothing found."""
    monkeypatch.setattr(index_search, "READING_SECONDS", 0.2)
    store = index_store.IndexStore(tmp_path / "index.sqlite")
    shelf = Shelf(one="alpha")
    document = Document(uri="shelf://one", title="one", version="1")
    store.put("shelf", document, ["alpha"], index_store.MAX_TEXT_CHARACTERS)
    store.commit()

    def shows(source: str, uri: str) -> bool:
        time.sleep(0.3)
        return True

    filters = index_store.Filters(shows=shows)
    hits = index_search.find(store, {"shelf": shelf}, SourceReader(), query_of("alpha"), filters, 10)
    assert [hit.uri for hit in hits] == ["shelf://one"]
    store.close()


def test_an_unexpected_error_for_one_document_does_not_end_a_search(start_server: StartServer) -> None:
    class BrokenShelf(Shelf):
        broken = False

        def stat(self, uri: str) -> t.Resource:
            if self.broken and uri == "shelf://alpha-broken":
                raise ValueError("a bug in the source")
            return super().stat(uri)

    async def main() -> None:
        shelf = BrokenShelf(**{"alpha-broken": "", "alpha-other": ""})
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.broken = True
            hits = await indexed_server.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://alpha-other"]
            assert hits.truncated == "1 document that may match cannot be read now."

    asyncio.run(main())


def test_a_title_that_cannot_be_stored_does_not_end_the_indexing_of_its_source(start_server: StartServer) -> None:
    """A bug: no document of a source was indexed if the title of one had a lone surrogate."""

    class OddShelf(Shelf):
        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            return [
                Document(uri=f"shelf://{name}", title=os.fsdecode(b"\xff ") + name, version="1") for name in self.texts
            ], None

    async def main() -> None:
        async with start_server(OddShelf(one="alpha", two="alpha")) as indexed_server:
            await indexed_server.wait_until_indexed()
            hits = await indexed_server.find("alpha two")
            assert [hit.title for hit in hits] == ["? two"]

    asyncio.run(main())


def test_only_incomplete_documents_of_the_searched_source_are_reported(start_server: StartServer) -> None:
    class UnreadableShelf(Shelf):
        name, uri = "cellar", "cellar://"

        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            return [Document(uri="cellar://one", title="one", version="1")], None

        def text(self, uri: str) -> Any:
            raise ValueError("a damaged file")

    async def main() -> None:
        async with start_server(Shelf(one="alpha"), UnreadableShelf()) as indexed_server:
            await indexed_server.wait_until_indexed()
            reported = "1 document is indexed only by name or in part: it is very large or cannot be read."
            assert (await indexed_server.find("alpha", source="shelf")).truncated == ""
            assert (await indexed_server.find("alpha", source="cellar")).truncated == reported
            assert (await indexed_server.find("alpha")).truncated == reported

    asyncio.run(main())


def test_a_search_whose_last_document_takes_too_long_says_that_its_end_may_be_missing(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: it said that 0 more documents were not read."""
    monkeypatch.setattr(index_search, "READING_SECONDS", 0.05)

    async def main() -> None:
        shelf = SlowShelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.delay = 0.1
            hits = await indexed_server.find("alpha")
            assert hits.truncated == "The search ended after 0.05 s: the end of a document may not have been read."

    asyncio.run(main())


def test_looking_for_other_spellings_leaves_time_to_read_the_documents(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the time for the spelling of each word was not limited by that of the search."""
    monkeypatch.setattr(index_search, "READING_SECONDS", 1.0)
    monkeypatch.setattr(index_search, "NEAR_SECONDS", 60.0)

    class EndlessShelf(Shelf):
        endless = False

        def text(self, uri: str) -> Any:
            yield self.texts[uri.removeprefix("shelf://")]
            while self.endless:
                time.sleep(0.01)
                yield "\n"

    async def main() -> None:
        shelf = EndlessShelf(one="the heartbeat of it")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.endless = True
            assert await indexed_server.uris("heartbaet") == ["shelf://one"]

    asyncio.run(main())


def test_a_source_that_failed_stays_pending_until_it_is_walked_again(start_server: StartServer) -> None:
    """A bug: the next walk took it for covered from its beginning."""

    class FailingShelf(Shelf):
        failures, fails = 0, False

        def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
            if self.fails:
                self.failures += 1
                self.gate.wait(20)
                raise OSError("no route to it")
            return super().page(after, limit)

    async def main() -> None:
        shelf = FailingShelf(one="alpha")
        async with start_server(shelf) as indexed_server:
            await indexed_server.wait_until_indexed()
            shelf.fails = True
            indexed_server.index.refresh()
            await wait_until_async(lambda: indexed_server.index.pending, "a failure")
            shelf.gate.clear()
            failures = shelf.failures
            indexed_server.index.refresh()
            await wait_until_async(lambda: shelf.failures > failures, "another walk")
            assert indexed_server.index.pending
            shelf.gate.set()

    asyncio.run(main())
