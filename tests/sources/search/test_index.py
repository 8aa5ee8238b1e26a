"""An index is built in the background, stored, updated, and never stale."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.errors import InternalError, InvalidArgument, ResourceNotFound
from wharfinger.server.middleware.chain import Call, Next, Result, transparent
from wharfinger.source import VERSION, Document, Hit, Hits, Source
from wharfinger.sources import files
from wharfinger.sources.search import index as module
from wharfinger.sources.search import index_search, index_store, indexing, search_index

Serving = Callable[..., Any]


class Shelf(Source):
    """Texts in memory."""

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
    """The same with coroutine functions, as in a source over the network."""

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


def run(use: Any) -> Any:
    return asyncio.run(use)


def test_hits_have_a_snippet_and_matching_names_come_first(tmp_path: Path, serving: Serving) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "depth.md").write_text("nothing")
    (tmp_path / "charts" / "hull.ts").write_text("// Hull\nexport const Depth = 4;\n")

    async def main() -> None:
        async with serving(files(tmp_path / "charts")) as searched:
            hits = await searched.find("depth")
            assert [(hit.uri, hit.snippet) for hit in hits] == [
                ("file:///charts/depth.md", ""),
                ("file:///charts/hull.ts", "1- // Hull\n2: export const Depth = 4;"),
            ]
            assert hits[1].resource == t.Resource(
                uri="file:///charts/hull.ts", name="hull.ts", title="hull.ts", mime_type="text/x-typescript"
            )
            assert not hits.truncated

    run(main())


@pytest.mark.parametrize("kind", [Shelf, AsyncShelf])
def test_plain_and_async_sources_are_indexed(kind: type[Shelf], serving: Serving) -> None:
    async def main() -> None:
        async with serving(kind(one="the tide", two="the current")) as searched:
            await searched.complete()
            assert await searched.uris("TIDE") == ["shelf://one"]
            assert await searched.uris("the") == ["shelf://two", "shelf://one"]

    run(main())


def test_changed_added_and_removed_documents_are_noticed_soon(tmp_path: Path, serving: Serving) -> None:
    """We promise: within a few seconds, without a watcher."""
    root = tmp_path / "charts"
    root.mkdir()
    (root / "a.txt").write_text("alpha")
    (root / "b.txt").write_text("beta")

    async def main() -> None:
        async with serving(files(root)) as searched:
            await searched.complete()
            (root / "a.txt").write_text("gamma")
            (root / "b.txt").unlink()
            (root / "c.txt").write_text("delta")
            assert await searched.uris("alpha") == []
            assert await searched.uris("beta") == []

            async def found() -> bool:
                return [await searched.uris(word) for word in ("gamma", "delta")] == [
                    ["file:///charts/a.txt"],
                    ["file:///charts/c.txt"],
                ]

            await searched.until(found, 5)

    run(main())


def test_a_stored_index_rereads_only_changed_documents(cache: Path, serving: Serving) -> None:
    first = Shelf(one="alpha", two="beta")
    second = Shelf(one="alpha", two="gamma")

    async def main(shelf: Shelf) -> None:
        async with serving(shelf) as searched:
            await searched.complete()
            assert sorted(set(shelf.read_uris)) == ["shelf://one", "shelf://two"] if shelf is first else ["shelf://two"]
            assert await searched.uris("alpha") == ["shelf://one"]

    run(main(first))
    assert (cache.stat().st_mode & 0o777, [path.suffix for path in sorted(cache.iterdir())]) == (
        0o700,
        [".lock", ".sqlite"],
    )
    run(main(second))
    assert len(list(cache.glob("*.sqlite"))) == 1


def test_an_incomplete_index_is_reported_and_the_source_is_searched(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
    shelf = Shelf(one="alpha")
    shelf.gate.clear()

    async def main() -> None:
        async with serving(shelf) as searched:
            hits = await searched.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://slow"]
            assert "Indexing continues" in hits.truncated
            assert searched.progress_reports
            shelf.gate.set()
            await searched.complete()
            hits = await searched.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert not hits.truncated

    run(main())


def test_a_client_with_a_progress_token_gets_progress(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wharfinger.sources import resource_tools

    monkeypatch.setattr(module, "WAIT_SECONDS", 0.3)
    shelf = Shelf(one="alpha")
    shelf.gate.clear()
    server = Server("told")
    for part in (shelf, search_index(cache), resource_tools()):
        server.include(part)
    reports: list[str] = []

    async def main() -> None:
        async with Client(server) as client:
            await client.call_tool(
                "search", {"query": "alpha"}, progress=lambda done, total, message: reports.append(str(message))
            )
            shelf.gate.set()

    run(main())
    assert reports
    assert reports[0].startswith("Indexing: ")


def test_indexing_does_not_block_the_event_loop(tmp_path: Path, serving: Serving) -> None:
    """400 files are indexed while the event loop runs."""
    root = tmp_path / "many"
    root.mkdir()
    for number in range(400):
        (root / f"{number}.txt").write_text(f"harbour {number} " * 2_000)

    async def main() -> None:
        async with serving(files(root)) as searched:
            longest = 0.0
            while searched.index.pending:
                began = time.perf_counter()
                await asyncio.sleep(0)
                longest = max(longest, time.perf_counter() - began)
            assert longest < 2.5

    run(main())


def test_a_failing_source_is_logged_and_others_are_searched(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Source):
        name = "broken"

        def matches(self, uri: str) -> bool:
            return False

        def page(self, after: str | None, limit: int) -> Any:
            raise OSError("no route to it")

    async def main() -> None:
        async with serving(Broken(), Shelf(one="alpha")) as searched:
            assert await searched.uris("alpha") == ["shelf://one"]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "broken cannot be indexed" in caplog.text


def test_a_source_that_fails_later_is_reported_and_others_are_searched(serving: Serving) -> None:
    class Failing(Shelf):
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
        failing = Failing(alpha="beta")
        async with serving(failing, Shelf(one="alpha")) as searched:
            await searched.complete()
            assert await searched.uris("alpha") == ["failing://alpha", "shelf://one"]
            failing.down = True
            hits = await searched.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert hits.truncated == "Not searched: failing cannot be reached now."

    run(main())


def test_transparent_middleware_does_not_change_hits(serving: Serving) -> None:
    @transparent
    async def observe(call: Call, next: Next) -> Result:
        return await next(call)

    async def main() -> None:
        async with serving(Shelf(one="nothing\nalpha")) as searched:
            searched.server.methods.add_middleware(observe, ("resources/read",))
            await searched.complete()
            assert [hit.snippet for hit in await searched.find("alpha")] == ["1- nothing\n2: alpha"]

    run(main())


def test_a_search_is_narrowed_by_source_type_and_path(tmp_path: Path, serving: Serving) -> None:
    root = tmp_path / "charts"
    (root / "north").mkdir(parents=True)
    (root / "north" / "a.md").write_text("tide")
    (root / "b.csv").write_text("tide")

    async def main() -> None:
        async with serving(files(root), Shelf(one="tide")) as searched:
            await searched.complete()
            assert await searched.uris("tide", source="shelf") == ["shelf://one"]
            assert len(await searched.uris("tide", source="CHARTS")) == 2
            assert await searched.uris("tide", type="text/csv") == ["file:///charts/b.csv"]
            assert len(await searched.uris("tide", type="text")) == 3
            assert await searched.uris("tide", path="north/") == ["file:///charts/north/a.md"]
            assert await searched.uris("tide", path="*.csv") == ["file:///charts/b.csv"]
            assert await searched.uris("tide", path="shelf://") == ["shelf://one"]
            with pytest.raises(InvalidArgument, match="there are charts, shelf"):
                await searched.uris("tide", source="elsewhere")

    run(main())


@pytest.mark.parametrize("damage", ["no database", "half", "garbage"])
def test_a_damaged_index_is_rebuilt_and_that_is_logged(
    cache: Path, serving: Serving, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    texts = {f"n{number}": f"alpha {number} " * 50 + os.urandom(200).hex() for number in range(300)}

    async def main() -> None:
        async with serving(Shelf(**texts)) as searched:

            async def found() -> bool:
                return len(await searched.uris("alpha", 1_000)) == 300 and not searched.index.pending

            await searched.until(found, 30)

    run(main())
    (path,) = cache.glob("*.sqlite")
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(
        {"no database": b"x" * 9_000, "half": data[:half], "garbage": data[:half] + b"\xff" * half}[damage]
    )
    with caplog.at_level(logging.WARNING):
        run(main())
    assert "rebuilt" in caplog.text


def test_an_index_of_another_version_is_rebuilt_without_a_warning(
    cache: Path, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(one="alpha")

    async def main() -> None:
        async with serving(shelf) as searched:
            await searched.complete()
            assert await searched.uris("alpha") == ["shelf://one"]

    run(main())
    (path,) = cache.glob("*.sqlite")
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {index_store.LAYOUT_VERSION + 1}")
    database.commit()
    database.close()
    shelf.read_uris.clear()
    with caplog.at_level(logging.INFO):
        run(main())
    assert shelf.read_uris[0] == "shelf://one"
    assert [record.levelname for record in caplog.records if "rebuilt" in record.message] == ["INFO"]


def test_two_servers_use_separate_indexes(cache: Path, serving: Serving) -> None:
    async def main() -> None:
        async with serving(Shelf(one="alpha")) as first, serving(Shelf(one="alpha")) as second:
            for searched in (first, second):
                await searched.complete()
                assert await searched.uris("alpha") == ["shelf://one"]
            assert len(list(cache.glob("*.sqlite"))) == 1
            paths = [searched.index._file.path for searched in (first, second)]
            (temporary,) = (path for path in paths if path.parent != cache)
            assert temporary.exists()
        assert not temporary.exists()

    run(main())


def test_a_full_index_is_reported_and_still_finds_names(serving: Serving) -> None:
    texts = {f"n{number}": os.urandom(40_000).hex() for number in range(30)}

    async def main() -> None:
        async with serving(Shelf(**texts, last="omega"), max_size=1 << 17) as searched:
            await searched.complete()
            hits = await searched.find("n2")
            assert hits[0].uri == "shelf://n2"
            assert "the index is full (0.125 MiB)" in hits.truncated

    run(main())


def test_unused_indexes_of_other_sources_are_deleted_for_space(cache: Path, serving: Serving) -> None:
    class Other(Shelf):
        pass

    async def main(shelf: Shelf, max_size: int) -> None:
        async with serving(shelf, max_size=max_size) as searched:
            await searched.complete()

    run(main(Shelf(**{f"n{number}": os.urandom(40_000).hex() for number in range(30)}), 1 << 30))
    (old,) = cache.glob("*.sqlite")
    run(main(Other(one="alpha"), 1 << 17))
    assert not old.exists()
    assert len(list(cache.glob("*.sqlite"))) == 1


def test_an_unusable_folder_is_reported_and_search_works(
    tmp_path: Path, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        async with serving(Shelf(one="alpha"), folder=tmp_path / "file" / "below") as searched:
            assert await searched.uris("alpha") == ["shelf://one"]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "The search index is not kept" in caplog.text


def test_sources_of_included_servers_are_indexed(cache: Path) -> None:
    part, whole = Server("part"), Server("whole")
    part.include(Shelf(one="alpha"))
    whole.include(part)
    index = search_index(cache)
    whole.include(index)

    async def main() -> None:
        from tests.server.driving import opened

        await whole.start()
        try:
            hits = await whole.resources.search(opened(whole, "resources/list"), "alpha", 5)
            assert [hit.uri for hit in hits] == ["shelf://one"]
        finally:
            await whole.close()

    run(main())


def test_text_that_middleware_refuses_or_changes_is_not_shown(serving: Serving) -> None:
    """A snippet reveals nothing that a read would not."""

    async def main() -> None:
        async with serving(Shelf(one="alpha open", two="alpha closed", three="alpha secret")) as searched:

            @searched.server.middleware("resources/read")
            async def guard(request: Any, following: Any) -> Any:
                if request.params.uri.endswith("two"):
                    raise ResourceNotFound(request.params.uri)
                result = await following(request)
                for content in result.contents:
                    content.text = content.text.replace("secret", "------")
                return result

            hits = await searched.find("alpha")
            assert sorted((hit.uri, hit.snippet) for hit in hits) == [
                ("shelf://one", "1: alpha open"),
                ("shelf://three", "1: alpha ------"),
            ]
            assert await searched.uris("secret") == []

    run(main())


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
        from tests.server.driving import opened

        await server.start()
        server.include(search_index(cache))
        hits = await server.resources.search(opened(server, "resources/list"), "alpha", 5)
        assert [hit.uri for hit in hits] == ["shelf://one"]
        await server.close()

    run(main())


def test_a_search_works_while_another_program_locks_the_index(cache: Path, serving: Serving) -> None:
    """The index can be read while another program holds the write lock."""

    async def main() -> None:
        async with serving(Shelf(one="alpha")) as searched:
            await searched.complete()
            (path,) = cache.glob("*.sqlite")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            assert await searched.uris("alpha") == ["shelf://one"]
            other.execute("COMMIT")
            other.close()

    run(main())


def test_an_index_with_mostly_removed_documents_is_rebuilt(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(index_store, "MAX_ORPHANS", 2)
    monkeypatch.setattr(indexing, "WALK_SECONDS", 0.02)
    shelf = Shelf(one="text 0")

    async def main() -> None:
        async with serving(shelf) as searched:
            for number in range(8):
                shelf.texts["one"] = f"text {number}"

                async def found(number: int = number) -> bool:
                    return await searched.uris(f'"text {number}"') == ["shelf://one"]

                await searched.until(found)
            assert searched.index._store._parts_made <= 4

    run(main())


def test_documents_without_a_version_are_reread_only_after_an_interval(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remote source, such as another server, does not send all of its texts repeatedly."""
    monkeypatch.setattr(indexing, "WALK_SECONDS", 0.02)

    class Unversioned(Shelf):
        walks = 0

        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            self.walks += 1
            return [Document(uri=f"shelf://{name}", title=name, version="") for name in self.texts], None

    shelf = Unversioned(one="alpha")

    async def main() -> None:
        async with serving(shelf) as searched:
            await searched.until(lambda: shelf.walks > 3)
            assert shelf.read_uris == ["shelf://one"]
            monkeypatch.setattr(indexing, "REREAD_SECONDS", 0.0)
            searched.index._indexing._read_again.clear()
            await searched.until(lambda: len(shelf.read_uris) > 1)

    run(main())


def test_pictures_are_found_by_name_and_not_read(serving: Serving) -> None:
    class Album(Shelf):
        def _resource(self, name: str) -> t.Resource:
            return t.Resource(uri=f"shelf://{name}", name=name, mime_type="image/png", meta={VERSION: "1"})

    album = Album(buoy="never read", mast="never read")

    async def main() -> None:
        async with serving(album) as searched:
            await searched.complete()
            assert await searched.uris("buoy", type="image") == ["shelf://buoy"]
            assert album.read_uris == []

    run(main())


def test_a_search_ends_in_time_and_reports_unread_documents(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(index_search, "READING_SECONDS", 0.3)

    class Slow(Shelf):
        def text(self, uri: str) -> Any:
            time.sleep(0.01)
            return super().text(uri)

    async def main() -> None:
        async with serving(Slow(**{f"n{number}": "alpha beta" for number in range(200)})) as searched:
            await searched.complete()
            began = time.monotonic()
            hits = await searched.find('"alpha beta"', 200)
            assert time.monotonic() - began < 2
            assert 0 < len(hits) < 200
            assert "that may match too were not read" in hits.truncated

    run(main())


def test_changes_of_a_watched_folder_are_found_at_once(
    tmp_path: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next walk is an hour away."""
    root = tmp_path / "charts"
    root.mkdir()
    (root / "log.txt").write_text("alpha")

    async def main() -> None:
        async with serving(files(root)) as searched:
            await searched.complete()
            monkeypatch.setattr(indexing, "WALK_SECONDS", 3600.0)
            await searched.until(lambda: searched.index._indexing._wake.is_set() is False)
            async with Client(searched.server) as client, client.watch("file:///charts/log.txt") as changes:
                (root / "log.txt").write_text("omega")
                await anext(changes)

                async def found() -> bool:
                    return await searched.uris("omega") == ["file:///charts/log.txt"]

                await searched.until(found, 5)

    run(main())


def test_a_source_without_documents_is_searched_by_its_own_search(serving: Serving) -> None:
    class Bare(Shelf):
        def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
            return [], None

    async def main() -> None:
        async with serving(Bare(one="alpha")) as searched:
            await searched.complete()
            hits = await searched.find("alpha")
            assert [hit.uri for hit in hits] == ["shelf://slow"]
            assert not hits.truncated

    run(main())


HOSTILE = (
    "a" * 2_000, "aB" * 1_000, "a_" * 1_000, " ".join(f"FooBarBazQux{number}Xyz" for number in range(60)), '"' * 2_000,
    '" ' * 1_000, "NEAR(a b) OR x*", "a OR", "^x", "-", "'; --", "\0", "\ud800", "\U0001f4a5", "((((", "{}[]",
    "\u202e\u0301" * 900, "\u00e9" * 2_000, "." * 2_000, "a.b" * 600, "--a " * 500, "__" * 900, "\u0661\u0662 " * 600,
    "\ufb00\ufb01" * 900, "\u0130" * 1_000, "x" * 257, '"unbalanced', 'colon: a:b -c +d "e', "%s %d {x}", "\r\n\t",
)  # fmt: skip


def test_hostile_queries_are_answered_within_the_time_limit(serving: Serving) -> None:
    """All hits are existing documents."""
    text = "NEAR(a b) OR 'x' ^ * FooBarBazQux1Xyz heartbeat \0\n" * 50
    shelf = Shelf(one=text, two="x" * 100_000, three=" ".join("aBcDeFgH" for _ in range(10_000)))

    async def main() -> None:
        async with serving(shelf) as searched:
            await searched.complete()
            for query in HOSTILE:
                began = time.monotonic()
                hits = await searched.find(query)
                assert time.monotonic() - began < 2 * index_search.READING_SECONDS, query[:20]
                assert {hit.uri.partition("?")[0] for hit in hits} <= {"shelf://one", "shelf://two", "shelf://three"}
                assert len(hits.remark) < 2_000

    run(main())


def test_a_misspelled_word_is_replaced_by_the_nearest_one_and_reported(serving: Serving) -> None:
    shelf = Shelf(one="the heartbeat of it", two="a harbour", three="class HarbourMaster:\n    def call(self):")

    async def main() -> None:
        async with serving(shelf) as searched:
            await searched.complete()
            hits = await searched.find("heartbaet")
            assert [hit.uri for hit in hits] == ["shelf://one"]
            assert hits.remark == "Nothing has \u201cheartbaet\u201d: searched for \u201cheartbeat\u201d."
            hits = await searched.find("harbour_masters_call")
            assert hits[0].uri == "shelf://three"
            assert "searched for \u201charbour masters call\u201d" in hits.remark
            hits = await searched.find("quite unheard zzz")
            assert (list(hits), hits.remark[:12]) == ([], "Nothing has ")
            assert await searched.uris('"heartbaet"') == []

    run(main())


def test_a_definition_ranks_above_all_mentions(tmp_path: Path, serving: Serving) -> None:
    root = tmp_path / "code"
    (root / "tests").mkdir(parents=True)
    for number in range(300):
        (root / f"use{number}.py").write_text(f"from charts import load_chart\nload_chart({number})\n")
    (root / "tests" / "test_charts.py").write_text("def load_chart(): ...\n")
    (root / "charts.py").write_text("import os\n\ndef load_chart(name):\n    return os.open(name)\n")

    async def main() -> None:
        async with serving(files(root)) as searched:
            await searched.complete()
            for query in ("load_chart", "LoadChart", "where is load_chart defined?", "load chart"):
                hits = await searched.find(query)
                assert hits[0].uri == "file:///code/charts.py", query
                assert "3: def load_chart(name):" in hits[0].snippet

    run(main())


def test_hits_in_a_long_document_link_to_their_windows(tmp_path: Path, serving: Serving) -> None:
    root = tmp_path / "charts"
    root.mkdir()
    lines = ["nothing"] * 2_000
    for at in (100, 110, 900, 1_500, 1_900):
        lines[at] = "the depth"
    (root / "long.txt").write_text("\n".join(lines))
    (root / "short.txt").write_text("\n".join(lines[90:130]))

    async def main() -> None:
        async with serving(files(root)) as searched:
            await searched.complete()
            hits = await searched.find("depth")
            assert sorted(hit.uri for hit in hits) == [
                "file:///charts/long.txt?lines=1481-1681",
                "file:///charts/long.txt?lines=81-281",
                "file:///charts/long.txt?lines=881-1081",
                "file:///charts/short.txt",
            ]
            (first,) = (hit for hit in hits if hit.uri.endswith("=881-1081"))
            assert first.snippet == "900- nothing\n901: the depth\n902- nothing\n903- nothing"

    run(main())
