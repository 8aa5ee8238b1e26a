"""Upstream servers over HTTP, in both eras: they restart, misbehave and disappear."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.conftest import free_port
from tests.sources.upstream_support import connect, listed_uris, run
from tests.transports.http_support import ServerThread
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.errors import ConnectionLost, InternalError, InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.source import VERSION, Source, UnusableSource
from wharfinger.sources import files, resource_tools, search_index
from wharfinger.sources.upstream_server import UpstreamSource, upstream, upstream_watch
from wharfinger.sources.upstream_server.upstream_client import MAX_REQUESTS, UpstreamClient
from wharfinger.sources.upstream_server.upstream_lists import UpstreamLists
from wharfinger.sources.upstream_server.upstream_watch import MAX_WATCHES
from wharfinger.testing import SourceContract
from wharfinger.transports.http_server.runner import serve_http
from wharfinger.upstreams import UpstreamUnreachable
from wharfinger.upstreams import upstream as upstream_module

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def harbour(count: int = 25, page_size: int = 10) -> Server:
    """Return a server with several pages of resources."""
    server = Server("harbour", version="3", page_size=page_size, ttl=7.0, cache_scope="public")

    async def note() -> str:
        return "high tide"

    for number in range(count):
        server.resources.add(f"notes://quay/n{number:03}", note, name=f"n{number:03}", title=f"Note {number}")

    @server.resource("log://{vessel}/today", name="log")
    async def log(vessel: str) -> str:
        if vessel == "ghost":
            raise ResourceNotFound(f"log://{vessel}/today")
        return f"log of {vessel}"

    return server


@asynccontextmanager
async def serve(server: Any, port: int = 0, **options: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(serve_http(server, port=port, on_ready=ready.set_result, **options))
    try:
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        yield f"{await ready}/mcp"
    finally:
        task.cancel()
        await asyncio.wait((task,))


# Listing and reading


@ERAS
def test_resources_and_templates_are_listed_in_the_order_of_the_upstream(revision: str) -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url, revision=revision) as (client, _):
            assert await listed_uris(client) == [f"notes://quay/n{number:03}" for number in range(25)]
            (template,) = await client.list_resource_templates()
            assert template.uri_template == "log://{vessel}/today"

    run(test())


@pytest.mark.parametrize("limit", [1, 3, 10, 11, 100])
def test_pages_of_any_size_list_each_resource_once(limit: int) -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url) as (_, source):
            found: list[str] = []
            after = None
            while True:
                resources, after = await source.page(after, limit)
                assert len(resources) <= limit
                found += [resource.uri for resource in resources]
                if after is None:
                    break
            assert found == [f"notes://quay/n{number:03}" for number in range(25)]

    run(test())


def test_a_page_continues_after_its_cursor_when_the_list_has_changed() -> None:
    async def test() -> None:
        server = harbour(count=10)
        async with serve(server) as url, connect(url) as (_, source):
            first, after = await source.page(None, 4)
            server.resources.remove("notes://quay/n000")
            source._lists.forget()
            rest, _ = await source.page(after, 100)
            assert [resource.name for resource in first + rest] == [f"n{number:03}" for number in range(10)]

    run(test())


NUMBERS = st.sets(st.integers(0, 60), max_size=3)


@given(
    st.sets(st.integers(0, 60), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4),
)
def test_items_that_stay_in_a_changing_list_are_shown_once(
    first: set[int], page_size: int, limit: int, changes: list[tuple[set[int], set[int]]]
) -> None:
    """Resources are added and removed between two pages."""
    current, remaining, pending_changes = set(first), set(first), list(changes)

    async def fetch(cursor: Any) -> Any:
        numbers = sorted(number for number in current if cursor is UNSET or number > int(cursor))
        page = [t.Resource(uri=f"x://y/{number}", name=str(number)) for number in numbers[:page_size]]
        return page, page[-1].name if len(numbers) > page_size else UNSET

    async def test() -> None:
        lists = UpstreamLists("harbour", fetch)
        found: list[int] = []
        after = None
        for _ in range(200):
            page, after = await lists.page(after, limit)
            found += [int(resource.name) for resource in page]
            if after is None:
                break
            lists.forget()
            removed, added = pending_changes.pop() if pending_changes else (set[int](), set[int]())
            current.difference_update(removed)
            current.update(added)
            remaining.difference_update(removed)
        assert after is None
        assert sorted(number for number in found if number in remaining) == sorted(remaining)

    asyncio.run(test())


def test_a_page_that_was_fetched_while_the_list_changed_is_not_cached() -> None:
    """A bug: a client that listed after the notification could get the page from before the change."""
    numbers, began, finish = ["1"], asyncio.Event(), asyncio.Event()

    async def fetch(cursor: Any) -> Any:
        page = [t.Resource(uri=f"x://y/{number}", name=number) for number in numbers]
        began.set()
        await finish.wait()
        return page, UNSET

    async def test() -> None:
        lists = UpstreamLists("harbour", fetch)
        early = asyncio.create_task(lists.page(None, 10))
        await began.wait()
        numbers.append("2")
        lists.forget()
        finish.set()
        await early
        assert [resource.name for resource in (await lists.page(None, 10))[0]] == ["1", "2"]

    asyncio.run(test())


def test_a_refused_list_is_reported_with_the_reason_of_the_upstream() -> None:
    """A bug: the error asked the caller to list again without a cursor, which it had done."""

    async def refuse(cursor: Any) -> Any:
        raise InvalidArgument("harbour says: log in first")

    async def test() -> None:
        source = upstream("http://127.0.0.1:9/mcp", allow_private_networks=True)
        source._client.call = refuse  # type: ignore[method-assign,assignment]
        with pytest.raises(InternalError, match="log in first"):
            await source.page(None, 10)

    asyncio.run(test())


@ERAS
def test_a_read_has_the_content_ttl_and_cache_scope_of_the_upstream(revision: str) -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url, revision=revision) as (client, _):
            read = await client.read_resource("notes://quay/n001")
            assert (read.text, read.contents[0].uri) == ("high tide", "notes://quay/n001")
            expected = (7000, "public") if revision == "2026-07-28" else (0, "private")
            assert (read.result.ttl_ms, read.result.cache_scope) == expected
            assert (await client.read_resource("log://mary/today")).text == "log of mary"
            for missing in ("log://ghost/today", "notes://quay/none", "elsewhere://x"):
                with pytest.raises(ResourceNotFound) as caught:
                    await client.read_resource(missing)
                assert caught.value.uri == missing

    run(test())


def test_private_contents_of_the_upstream_stay_private() -> None:
    async def test() -> None:
        server = Server("vault", ttl=9.0, cache_scope="private")
        server.resources.add("notes://mine/a", lambda: "mine", name="a")
        async with serve(server) as url, connect(url) as (client, _):
            assert (await client.read_resource("notes://mine/a")).result.cache_scope == "private"

    run(test())


@ERAS
def test_blobs_and_several_contents_are_passed_on_unchanged(revision: str, charts: Path) -> None:
    async def test() -> None:
        server = Server("folder")
        server.include(files(charts, label="charts"))
        async with (
            serve(server) as url,
            connect(url, revision=revision) as (client, _),
            Client(url, revision=revision, cache=False) as direct,
        ):
            for uri in ("file:///charts/harbours/north/buoy.png", "file:///charts/harbours"):
                passed_on, original = await client.read_resource(uri), await direct.read_resource(uri)
                assert passed_on.contents == original.contents

    run(test())


@ERAS
def test_directories_are_listed_if_the_upstream_supports_it(revision: str, charts: Path) -> None:
    async def test() -> None:
        from wharfinger.server.skills import serve_skills

        server = Server("folder")
        server.include(files(charts, label="charts"))
        serve_skills(server)
        async with serve(server) as url, connect(url, revision=revision) as (client, source):
            assert await listed_uris(client)  # waits until the source knows the URIs of the upstream
            names = []
            after = None
            while True:
                children, after = await source.children("file:///charts", after, 2)
                names += [child.name for child in children]
                if after is None:
                    break
            assert names == ["harbours", "README.md", "empty.txt", "tides.csv"]
            with pytest.raises(ResourceNotFound):
                await source.children("file:///charts/tides.csv")

    run(test())


def test_completions_are_passed_on() -> None:
    async def test() -> None:
        from typing import Annotated

        from wharfinger.server.signature.complete import Complete

        server = Server("log")

        @server.resource("log://{vessel}/{day}")
        async def log(
            vessel: Annotated[str, Complete(["anna", "mary"])],
            day: Annotated[str, Complete(lambda typed, others: [f"{others.get('vessel')}-{typed}1"])],
        ) -> str:
            return vessel + day

        async with serve(server) as url, connect(url) as (client, _):
            template = "log://{vessel}/{day}"
            reference = t.ResourceTemplateReference(uri=template)
            assert (await client.complete(reference, "vessel", "m")).values == ["mary"]
            assert (await client.complete(reference, "day", "0", {"vessel": "mary"})).values == ["mary-01"]

    run(test())


async def search(source: UpstreamSource, query: str) -> list[str]:
    reader = SourceReader(asyncio.get_running_loop())
    return [hit.uri for hit in await asyncio.to_thread(search_documents, source, query, 5, reader)]


def test_a_search_matches_titles_without_reading_texts() -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url) as (_, source):
            assert await search(source, "note 17") == ["notes://quay/n017"]
            assert len(await search(source, "note")) == 5
            documents, _ = await source.documents(None, 100)
            assert {document.title for document in documents} >= {"Note 1"}
            assert await source.text("notes://quay/n001") == ()

    run(test())


def test_describe_counts_resources_and_names_the_revision() -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url) as (_, source):
            assert source.describe() == "25 resources, 1 template, 2026-07-28, subscribed"
            assert source.location == url
            assert "25 resources" in str((await source.read(source.status_uri)).contents[0].text)

    run(test())


# Which source a URI belongs to


@pytest.mark.parametrize("upstream_first", [True, False])
def test_an_upstream_does_not_shadow_uris_of_another_source(charts: Path, upstream_first: bool) -> None:
    async def test() -> None:
        evil = Server("evil")
        evil.resources.add("file:///charts/README.md", lambda: "evil", name="README.md")
        evil.resources.add("own://evil/notes", lambda: "own", name="notes")
        evil.resources.add("file:///{+path}", lambda path: f"evil {path}", name="all")
        folder = files(charts, label="charts")
        async with (
            serve(evil) as url,
            connect(url, *(() if upstream_first else (folder,)), after=(folder,) if upstream_first else ()) as (
                client,
                source,
            ),
        ):
            listed = await listed_uris(client)
            assert listed.count("file:///charts/README.md") == 1 and "own://evil/notes" in listed
            assert (await client.read_resource("file:///charts/README.md")).text.startswith("# Charts")
            with pytest.raises(ResourceNotFound):
                await client.read_resource("file:///charts/none.md")
            with pytest.raises(ResourceNotFound):
                await source.read("file:///charts/README.md")
            assert (await client.read_resource("file:///elsewhere/x")).text == "evil elsewhere/x"

    run(test())


def test_contents_with_uris_of_another_source_are_left_out(charts: Path) -> None:
    async def test() -> None:
        evil = Server("evil")

        @evil.resource("own://evil/{part}", name="notes")
        async def notes(part: str) -> t.ReadResourceResult:
            content_uris = ["file:///charts/README.md"] + ([f"own://evil/{part}"] if part == "both" else [])
            return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="evil") for uri in content_uris])

        async with serve(evil) as url, connect(url, files(charts, label="charts")) as (client, _):
            read = await client.read_resource("own://evil/both")
            assert [content.uri for content in read.contents] == ["own://evil/both"]
            with pytest.raises(Exception, match="no content of its own for this URI"):
                await client.read_resource("own://evil/one")

    run(test())


def test_two_upstreams_each_serve_the_uris_they_list() -> None:
    async def test() -> None:
        one, other = Server("one"), Server("other")
        one.resources.add("notes://shared/a", lambda: "one's", name="a")
        one.resources.add("notes://shared/{name}", lambda name: f"one's {name}", name="any")
        other.resources.add("notes://shared/b", lambda: "other's", name="b")
        async with serve(one) as first, serve(other) as second:
            second_upstream = upstream(second, allow_private_networks=True)
            async with connect(first, after=(second_upstream,)) as (client, _):
                assert await listed_uris(client) == ["notes://shared/a", "notes://shared/b"]
                assert (await client.read_resource("notes://shared/b")).text == "other's"
                assert (await client.read_resource("notes://shared/c")).text == "one's c"

    run(test())


# Watching


@ERAS
def test_upstream_changes_are_reported(revision: str) -> None:
    async def test() -> None:
        server = harbour()
        async with serve(server) as url, connect(url, revision=revision) as (client, source):
            uri = "notes://quay/n001"
            async with client.watch(uri, "notes://quay/n002", "log://mary/today") as changes:
                await wait_until_async(lambda: is_watched(server, uri), "the upstream is watched")
                server.resource_updated(uri)
                server.resource_updated("log://mary/today")
                seen = set()
                while not {uri, "log://mary/today"} <= seen:
                    seen.add((await anext(changes)).uri)
            if revision == "2026-07-28":
                assert len(source._upstream_watch._bundles) <= 1
            await wait_until_async(lambda: not is_watched(server, uri), "the watch of the upstream ends")

    run(test())


def is_watched(server: Server, uri: str) -> bool:
    return uri in server.watching.watched()


@ERAS
def test_a_list_change_of_the_upstream_is_reported(revision: str) -> None:
    async def test() -> None:
        server = harbour(count=3)
        async with (
            serve(server) as url,
            connect(url, revision=revision) as (client, _),
            client.watch_lists() as changes,
        ):
            await wait_until_async(lambda: is_list_watched(server), "the list of the upstream is watched")
            server.resources.add("notes://quay/new", lambda: "new", name="new")
            server.resources.add("depth://{place}", lambda place: place, name="depth")
            assert (await anext(changes)).kind == "resources"
            await wait_until_async(lambda: is_listed(client, "notes://quay/new"), "the new resource is listed")
            await wait_until_async(lambda: is_template_listed(client, "depth://{place}"), "the template is listed")

    run(test())


def is_list_watched(server: Server) -> bool:
    return bool(server.watching._by_list["resources"])


async def is_listed(client: Client, uri: str) -> bool:
    return uri in await listed_uris(client)


async def is_template_listed(client: Client, text: str) -> bool:
    return text in [template.uri_template for template in await client.list_resource_templates()]


def test_a_change_before_the_watch_starts_is_reported() -> None:
    async def test() -> None:
        uri = "notes://quay/n001"  # has no version, so a change since the last read cannot be excluded
        async with serve(harbour()) as url, connect(url) as (client, _), client.watch(uri) as changes:
            assert (await anext(changes)).uri == uri

    run(test())


def test_a_change_before_the_watch_is_reported_of_a_resource_with_annotations_but_no_date() -> None:
    """A bug: a resource with an audience or a priority counted as unchanged."""

    async def test() -> None:
        uri = "notes://quay/urgent"
        server = harbour()
        server.resources.add(uri, lambda: "high tide", name="urgent", annotations=t.Annotations(priority=1.0))
        async with serve(server) as url, connect(url) as (_, source):
            await source.stat(uri)
            changes: list[str | None] = []
            source.watch(uri, changes.append)
            await wait_until_async(lambda: has(changes, uri), "the change is reported")

    run(test())


@ERAS
def test_a_change_is_reported_for_the_resource_and_not_for_one_with_a_longer_name(revision: str) -> None:
    """A bug: every resource whose URI began with the changed one's was reported too."""

    async def test() -> None:
        short, long = "notes://quay/n001", "notes://quay/n001b"
        server = harbour()
        server.resources.add(long, lambda: "low tide", name="n001b")
        async with serve(server) as url, connect(url, revision=revision) as (_, source):
            changes: list[str | None] = []
            source.watch(short, changes.append)
            source.watch(long, changes.append)
            await wait_until_async(
                lambda: has(changes, short, long), "both changes are reported"
            )  # they may have changed before the watch
            changes.clear()
            server.resource_updated(long)
            await wait_until_async(lambda: has(changes, long), "the change is reported")
            server.resource_updated(short)
            await wait_until_async(lambda: has(changes, short), "the change is reported")
            assert changes == [long, short]

    run(test())


def test_the_beginning_of_a_watch_of_many_uris_takes_few_requests() -> None:
    """A bug: the list of the upstream was requested for each URI."""

    async def test() -> None:
        uris = [f"notes://quay/n{number:03}" for number in range(20)]
        async with serve(harbour(page_size=100)) as url, connect(url) as (client, source):
            await client.list_resources()
            cursors, fetch = list[Any](), source._lists._fetch
            source._lists._fetch = lambda cursor: cursors.append(cursor) or fetch(cursor)  # type: ignore[func-returns-value]
            changes: list[str | None] = []
            for uri in uris:
                source.watch(uri, changes.append)
            await wait_until_async(lambda: has(changes, *uris), "all changes are reported")
            assert len(cursors) < 5

    run(test())


def has(changes: list[str | None], *uris: str) -> bool:
    return set(uris) <= set(changes)


def test_a_uri_beyond_the_limit_of_watches_is_watched_when_another_watch_ends() -> None:
    """A bug: its changes were never reported."""

    async def test() -> None:
        source = upstream(f"http://127.0.0.1:{free_port()}/mcp", allow_private_networks=True)
        watch = source._upstream_watch
        uris = [f"notes://{number}" for number in range(MAX_WATCHES + 3)]
        for uri in uris:
            source.watch(uri, lambda uri: None)
            await asyncio.sleep(0)  # each watch begins in a turn of its own
        assert list(watch._task_of) == uris[:MAX_WATCHES]
        source.unwatch(uris[-1])
        source.unwatch(uris[0])
        await wait_until_async(lambda: list(watch._task_of) == uris[1:-1], "the others are watched")
        assert len(watch._bundles) == MAX_WATCHES
        await source.close()

    run(test())


def test_uris_that_cannot_be_watched_do_not_stop_the_others_at_the_limit_of_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug: the halves of a bundle were dropped when no more watches could be opened."""
    monkeypatch.setattr(upstream_watch, "MAX_WATCHES", 1)
    server = harbour()

    async def test() -> None:
        async with serve(server) as url, connect(url) as (client, source):
            assert await listed_uris(client)
            changes: asyncio.Queue[str] = asyncio.Queue()
            good = "notes://quay/n001"
            for uri in ("notes://quay/none", "notes://quay/nothing", "notes://quay/nowhere", good):
                source.watch(uri, changes.put_nowait)
            assert await changes.get() == good  # it may have changed before the watch began
            server.resource_updated(good)
            assert await changes.get() == good

    run(test())


def test_the_watches_of_thousands_of_uris_end_quickly() -> None:
    """A bug: a client that left with 10,000 watches blocked the server for seconds."""

    async def test() -> None:
        source = upstream(f"http://127.0.0.1:{free_port()}/mcp", allow_private_networks=True)
        uris = [f"notes://{number}" for number in range(10_000)]
        for uri in uris:
            source.watch(uri, lambda uri: None)
        await asyncio.sleep(0)  # the watch begins in the next turn of the loop
        began = time.process_time()
        for uri in uris:
            source.unwatch(uri)
        assert time.process_time() - began < 1
        assert not source._upstream_watch._bundles and not source._upstream_watch._task_of
        await source.close()

    run(test())


def test_a_change_before_a_uri_is_watched_again_is_reported() -> None:
    """A bug: no change was reported if the watch at the upstream had continued for another URI."""

    async def test() -> None:
        first, second = "notes://quay/n001", "notes://quay/n002"
        async with serve(harbour()) as url, connect(url) as (_, source):
            changes: list[str | None] = []
            source.watch(first, changes.append)
            source.watch(second, changes.append)
            await wait_until_async(lambda: has(changes, first, second), "both changes are reported")
            source.unwatch(first)
            changes.clear()
            source.watch(first, changes.append)
            await wait_until_async(lambda: has(changes, first), "the change is reported")
            assert changes == [first]

    run(test())


def test_one_of_many_uris_that_cannot_be_watched_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """A bug: each of the others got a watch of its own, and most exceeded the limit of watches."""

    async def test() -> None:
        server = harbour(count=150)
        uris = [f"notes://quay/n{number:03}" for number in range(150)]
        async with serve(server) as url, connect(url, revision="2025-11-25") as (_, source):
            changes: list[str | None] = []
            for uri in ("notes://quay/none", *uris):
                source.watch(uri, changes.append)
            await wait_until_async(lambda: has(changes, *uris), "all changes are reported")
            assert len(source._upstream_watch._bundles) < 10

    caplog.set_level(logging.INFO, "wharfinger.sources.upstream_server")
    run(test())
    (message,) = [record.message for record in caplog.records if "watched" in record.message]
    assert "does not let notes://quay/none be watched: Resource not found" in message


def test_a_uri_that_cannot_be_watched_does_not_stop_other_watches() -> None:
    async def test() -> None:
        server = harbour()
        async with serve(server) as url, connect(url) as (_, source):
            changes: list[str | None] = []
            source.watch("notes://quay/none", changes.append)
            source.watch("notes://quay/n001", changes.append)
            await wait_until_async(lambda: is_watched(server, "notes://quay/n001"), "the upstream is watched")
            server.resource_updated("notes://quay/n001")

            await wait_until_async(lambda: "notes://quay/n001" in changes, "the change is reported")

    run(test())


@ERAS
def test_a_watch_continues_after_a_restart_of_the_upstream(revision: str) -> None:
    async def test() -> None:
        uri, port = "notes://quay/n001", free_port()
        async with serve(harbour(), port) as url:
            connection = connect(url, revision=revision)
            client, _ = await connection.__aenter__()
            watch = await client.watch(uri)
            assert (await client.read_resource(uri)).text == "high tide"
        restarted = harbour(count=30)
        async with serve(restarted, port):
            await wait_until_async(lambda: is_watched(restarted, uri), "the upstream is watched again")
            while (await anext(watch)).uri != uri:
                pass

            async def is_readable() -> bool:
                try:
                    text, uris = (await client.read_resource(uri)).text, await listed_uris(client)
                    return text == "high tide" and len(uris) == 30
                except InternalError:
                    return False
                except Exception as error:
                    assert "cannot be reached" in str(error)
                    return False

            await wait_until_async(is_readable, "the upstream is read and listed")
            await watch.close()
            await connection.__aexit__(None, None, None)

    run(test())


# Servers that are down or misbehave


def test_an_upstream_that_is_down_is_reported_and_listed_once_it_is_up(charts: Path) -> None:
    async def test() -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        async with connect(url, files(charts, label="charts")) as (client, source):
            listed = await client.list_resources()
            assert "file:///charts/README.md" in [resource.uri for resource in listed]
            title = str(listed[-1].title)
            assert title.startswith(f"server '127.0.0.1:{port}' has been unavailable for")
            assert title.endswith("its resources are missing from this list.")
            assert "cannot be reached" in (await client.read_resource(listed[-1].uri)).text
            assert source.describe().startswith("cannot be reached")
            async with (
                serve(harbour(), port),
                client.watch_lists() as changes,
                client.watch(source.status_uri) as status_changes,
            ):
                await wait_until_async(lambda: is_listed(client, "notes://quay/n001"), "the upstream is listed")
                assert (await anext(changes)).kind == "resources"
                assert (await anext(status_changes)).uri == source.status_uri
                await wait_until_async(lambda: is_template_listed(client, "log://{vessel}/today"), "it is listed")
                assert source.status_uri not in await listed_uris(client)
                assert (await client.read_resource(source.status_uri)).text.endswith("subscribed\n")

    run(test())


def test_a_search_finds_other_sources_while_an_upstream_is_down(charts: Path, tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        server = Server("here")
        server.include(upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True))
        server.include(files(charts, label="charts"))
        server.include(search_index(folder=tmp_path / "cache"))
        server.include(resource_tools())

        async def finds(client: Client, query: str, uri: str) -> bool:
            found = await client.call_tool("search", {"query": query})
            return uri in [result["id"] for result in found.structured["results"]]

        async with serve(harbour(), port), Client(server, cache=False) as client:
            await wait_until_async(lambda: finds(client, "note 17", "notes://quay/n017"), "the note is found")
            await wait_until_async(lambda: finds(client, "tides", "file:///charts/tides.csv"), "the file is found")
        async with Client(server, cache=False) as client:
            for _ in range(3):
                assert not await finds(client, "note 17", "notes://quay/n017")
                await wait_until_async(lambda: finds(client, "tides", "file:///charts/tides.csv"), "the file is found")

    run(test())


def test_a_failed_upstream_is_not_reconnected_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "RESTART_SECONDS", 60.0)

    async def test() -> None:
        connections = 0

        async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            writer.close()

        listener = await asyncio.start_server(close_at_once, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            source = upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True)
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await source.page(None, 5)
            first_connections = connections
            for _ in range(50):
                with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                    await source.page(None, 5)
            assert connections == first_connections
            await source.close()

    run(test())


def test_an_upstream_that_does_not_answer_delays_only_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request fails without another attempt."""
    monkeypatch.setattr(upstream_module, "RESTART_SECONDS", 60.0)

    async def test() -> None:
        connections = 0

        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        listener = await asyncio.start_server(never_answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        async with listener:
            source = upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True, timeout=0.5)
            started = loop.time()
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await source.page(None, 5)
            assert loop.time() - started < 20
            first_connections = connections
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await source.page(None, 5)
            assert connections == first_connections
            await source.close()

    run(test())


def test_listing_a_server_that_includes_itself_ends() -> None:
    async def test() -> None:
        server, port = harbour(), free_port()
        server.include(upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True, timeout=1.0))
        async with serve(server, port) as url, Client(url, timeout=20, cache=False) as client:
            resources = (await client.list_resources())[:25]
            assert [resource.uri for resource in resources] == [f"notes://quay/n{number:03}" for number in range(25)]

    run(test())


def test_a_cursor_from_before_a_restart_is_refused() -> None:
    async def test() -> None:
        port = free_port()
        async with serve(harbour(), port) as url:
            source = upstream(url, allow_private_networks=True)
            _, after = await source.page(None, 10)
        async with serve(harbour(), port):
            source._lists.forget()
            with pytest.raises(InvalidArgument, match="has changed: list again without a cursor"):
                await source.page(after, 10)
            assert len((await source.page(None, 10))[0]) == 10
            await source.close()

    run(test())


class StubServer:
    """An HTTP server whose results come from a function of the method and the params (revision 2026-07-28)."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                message = json.loads(body) if body else {}
                self.requests.append((message.get("method", lines[0]), headers))
                status, extra_headers, result = self.answer(message.get("method", ""), message.get("params", {}))
                answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{extra_headers}"
                    f"Content-Length: {len(answer)}\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


DISCOVER_RESULT = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"resources": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}


@asynccontextmanager
async def stub_upstream(pages: Any, contents: Any = ()) -> AsyncIterator[tuple[UpstreamSource, StubServer]]:
    def answer(method: str, params: Any) -> tuple[int, str, Any]:
        if method == "server/discover":
            return 200, "", DISCOVER_RESULT
        if method == "resources/list":
            return 200, "", {"resultType": "complete", **pages(params.get("cursor"))}
        if method == "resources/read":
            return 200, "", {"resultType": "complete", "contents": contents}
        return 200, "", {"resultType": "complete", "resourceTemplates": []}

    server = StubServer(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        source = upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True)
        yield source, server
        await source.close()


async def list_all(source: UpstreamSource) -> list[t.Resource]:
    found: list[t.Resource] = []
    after = None
    while True:
        resources, after = await source.page(after, 100)
        found += resources
        if after is None:
            return found


@pytest.mark.parametrize(
    "pages",
    [
        lambda cursor: {"resources": [], "nextCursor": "a"},
        lambda cursor: {"resources": [], "nextCursor": {"a": "b", "b": "c"}.get(cursor, "a")},
        lambda cursor: {"resources": [{"uri": "x://y/z", "name": "z"}], "nextCursor": str((int(cursor or 0) + 1) % 50)},
        lambda cursor: {"resources": [], "nextCursor": str(int(cursor or 0) + 1)},
        lambda cursor: {"resources": [], "nextCursor": "x" * 20_000},
    ],
    ids=["itself", "circle", "long circle", "endless", "long cursor"],
)
def test_an_endless_list_is_refused(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(sys.modules["wharfinger.sources.upstream_server.upstream_lists"], "MAX_PAGES", 300)
        async with stub_upstream(pages) as (source, server):
            with pytest.raises(InternalError, match="has no end, or a cursor that cannot be used"):
                await list_all(source)
            assert len(server.requests) < 320

    run(test())


def test_resources_without_a_usable_uri_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    bad = ["", "no uri", "x", "x://a b", "x://" + "a" * 40_000, "x://\x1b[2J", "//host/x"]

    def pages(cursor: Any) -> Any:
        return {"resources": [{"uri": uri, "name": "bad"} for uri in [*bad, "good://host/x"]]}

    async def test() -> None:
        async with stub_upstream(pages) as (source, _):
            assert [resource.uri for resource in await list_all(source)] == ["good://host/x"]
            await list_all(source)

    with caplog.at_level(logging.WARNING):
        run(test())
    assert caplog.text.count("left out") == 1


@pytest.mark.parametrize("content", [{}, {"text": "calm", "blob": "YQ=="}])
def test_contents_with_both_a_text_and_a_blob_or_neither_are_refused(content: dict[str, str]) -> None:
    """A bug: they were reported as an error of this server, and a traceback was logged."""

    async def test() -> None:
        page = {"resources": [{"uri": "good://host/x", "name": "x"}]}
        async with stub_upstream(lambda cursor: page, [{"uri": "good://host/x", **content}]) as (source, _):
            await list_all(source)
            with pytest.raises(InternalError, match=r"sent a result that cannot be used: .* either text or blob"):
                await source.read("good://host/x")

    run(test())


def test_a_page_with_too_many_resources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(sys.modules["wharfinger.sources.upstream_server.upstream_lists"], "MAX_PAGE_ITEMS", 10)
        many = {"resources": [{"uri": f"x://y/{number}", "name": "z"} for number in range(11)]}
        async with stub_upstream(lambda cursor: many) as (source, _):
            with pytest.raises(InternalError, match="more than 10 resources"):
                await list_all(source)

    run(test())


def test_indexed_uris_of_a_huge_list_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(sys.modules["wharfinger.upstreams.uri_index"], "MAX_URIS", 10)
        async with serve(harbour()) as url, connect(url) as (_, source):
            assert len(source._index) == 10
            assert source.matches("notes://quay/n000")  # in the same folder as an indexed URI

    run(test())


# Addresses and headers of the connection


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/mcp",
        "http://localhost/mcp",
        "http://[::1]/mcp",
        "http://10.1.2.3/mcp",
        "http://169.254.169.254/mcp",
        "http://[::ffff:10.0.0.1]/mcp",
        "http://0.0.0.0/mcp",
    ],
)
def test_a_private_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(UnusableSource, match="allow_private_networks=True"):
        upstream(url)


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "host/mcp", "http://", "https://host:x/mcp", "http://[::1/mcp", "http://h\ud83d/mcp"]
)
def test_an_invalid_server_url_is_refused(url: str) -> None:
    with pytest.raises(UnusableSource, match="https://host/mcp"):
        upstream(url)


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer key\n"}, {"X\x7f": "a"}])
def test_a_header_with_a_control_character_is_refused_without_its_value(headers: dict[str, str]) -> None:
    """A bug: all lists of the server that included the source failed with an internal error."""
    with pytest.raises(UnusableSource, match=r"^The header '.*' has a line break or another control character\.$"):
        upstream("https://harbour.example/mcp", headers=headers)


def test_a_host_name_with_a_private_address_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        requests: list[bytes] = []

        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append(await reader.read(10))
            writer.close()

        listener = await asyncio.start_server(record, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()

        async def getaddrinfo(name: str, port: int, **_: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo, raising=False)
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        async with listener:
            source = upstream(f"http://inner.example:{port}/mcp")
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await source.page(None, 10)
            assert "in a private network or on this machine" in source.describe()
            assert requests == []
            await source.close()

    run(test())


def test_a_redirect_to_another_server_is_not_followed() -> None:
    async def test() -> None:
        target_requests: list[bytes] = []

        async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            target_requests.append(await reader.read(10))
            writer.close()

        target = await asyncio.start_server(record, "127.0.0.1", 0)
        target_port = target.sockets[0].getsockname()[1]
        server = StubServer(lambda method, params: (307, f"Location: http://127.0.0.1:{target_port}/mcp\r\n", {}))
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        async with target, listener:
            port = listener.sockets[0].getsockname()[1]
            source = upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True)
            with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
                await source.page(None, 10)
            assert "redirects to another server, which is not followed" in source.describe()
            assert target_requests == []
            await source.close()

    run(test())


def test_only_configured_headers_are_sent_and_never_a_callers_token() -> None:
    async def test() -> None:
        server = StubServer(
            lambda method, params: (
                200,
                "",
                DISCOVER_RESULT
                if method == "server/discover"
                else {"resultType": "complete", "resources": [], "resourceTemplates": []},
            )
        )
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            gateway = Server("here")
            gateway.include(
                upstream(f"http://127.0.0.1:{port}/mcp", allow_private_networks=True, headers={"X-Key": "ours"})
            )
            caller_headers = {"Authorization": "Bearer caller", "X-Caller": "me"}
            async with serve(gateway) as url, Client(url, headers=caller_headers) as client:
                await client.list_resources()
            assert server.requests
            for _, headers in server.requests:
                assert headers["x-key"] == "ours"
                assert not {"authorization", "x-caller", "cookie"} & headers.keys()
                assert "caller" not in str(headers)

    run(test())


def test_credentials_of_the_url_are_never_shown() -> None:
    source = upstream("https://user:barnacle@harbour.example/mcp?key=limpet#x")
    assert source.location == "https://harbour.example/mcp"
    for shown in (repr(source), source.name, source.status_uri, source.describe()):
        assert "barnacle" not in shown and "limpet" not in shown


def test_a_server_that_is_lost_again_is_pinged_by_one_task() -> None:
    """A bug: two tasks pinged it, and each kept the event loop busy while the other waited for an answer."""

    async def test() -> None:
        client = UpstreamClient("harbour", lambda: Client(harbour()), lambda: None)
        for _ in range(3):
            client.failed(ConnectionLost("gone"))
            client.succeeded()
        client.failed(ConnectionLost("gone"))
        await asyncio.sleep(0)  # cancelled tasks end in the next turn of the loop
        pinging = [task for task in asyncio.all_tasks() if "_keep_pinging" in repr(task.get_coro())]
        assert len(pinging) == 1
        await client.close()

    run(test())


def test_calls_that_wait_for_a_slot_open_no_client_after_the_end() -> None:
    """A bug: they started the other server again, and nothing stopped it."""

    async def test() -> None:
        clients: list[Client] = []
        released = asyncio.Event()

        def make() -> Client:
            clients.append(Client(harbour()))
            return clients[-1]

        async def wait_and_fail(client: Client) -> None:
            await released.wait()
            raise ConnectionLost("closed")

        client = UpstreamClient("harbour", make, lambda: None)
        calls = [asyncio.ensure_future(client.call(wait_and_fail)) for _ in range(MAX_REQUESTS + 1)]
        await wait_until_async(lambda: client.opened, "the client is open")
        await client.close()
        released.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} == {UpstreamUnreachable}
        assert len(clients) == 1

    run(test())


def test_calls_that_wait_for_the_connection_fail_when_the_source_is_closed() -> None:
    """A bug: they ended as if they had been cancelled."""

    async def test() -> None:
        connected = asyncio.Event()

        async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        listener = await asyncio.start_server(never_answer, "127.0.0.1", 0)
        async with listener:
            source = upstream(
                f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp", allow_private_networks=True
            )
            page = asyncio.ensure_future(source.page(None, 5))
            await connected.wait()
            await source.close()
            with pytest.raises(UpstreamUnreachable, match="closing"):
                await page

    run(test())


def test_a_source_can_be_started_and_closed_repeatedly() -> None:
    async def test() -> None:
        async with serve(harbour()) as url:
            source = upstream(url, allow_private_networks=True)
            for _ in range(2):
                await source.start()
                await source.start()
                assert len((await source.page(None, 100))[0]) > 0
                await source.close()
                await source.close()

    run(test())


def test_invalid_and_duplicate_templates_are_left_out() -> None:
    source = upstream("https://harbour.example/mcp")
    texts = ["a://{x}/b", "a://{x}/b", "{+all}", "a://{", "a://fixed", "a://{y}/b"]
    source._index.set_templates([t.ResourceTemplate(uri_template=text, name="x") for text in texts])
    assert [template.uri_template for template in source.templates] == ["a://{x}/b", "a://{y}/b"]
    assert source.matches("a://1/b") and not source.matches("b://1") and not source.matches("a://1/c")


def test_many_hostile_templates_are_indexed_quickly() -> None:
    """Regression: each template was compared with all before it, which took minutes for a thousand."""
    source = upstream("https://harbour.example/mcp")
    texts = [f"a://{{+x}}/{number}{'/a' * 500}{{b}}" for number in range(1_000)]
    texts += ["a://" + "{x}" * 2_000, "a://{x}" + "a" * 10_000, "a://" + "".join(f"{{v{n}}}/" for n in range(65))]
    started = time.thread_time()
    source._index.set_templates([t.ResourceTemplate(uri_template=text, name="x") for text in texts])
    assert source.matches(f"a://c/999{'/a' * 500}d")
    assert not source.matches("a://" + "1/" * 65)
    assert time.thread_time() - started < 5


def test_stat_returns_the_listed_resource_or_describes_a_read() -> None:
    async def test() -> None:
        async with serve(harbour()) as url, connect(url) as (_, source):
            assert (await source.stat("notes://quay/n017")).title == "Note 17"
            described = await source.stat("log://mary/today")
            assert (described.name, described.mime_type, described.size) == ("today", "text/plain", UNSET)
            for method in (source.stat, source.read, source.version):
                with pytest.raises(ResourceNotFound):
                    await method("notes://quay/" + "x" * 100_000)

    run(test())


class Ledger(Source):
    """Texts with versions, published by a Wharfinger server."""

    templates = (t.ResourceTemplate(uri_template="ledger://quay/{name}", name="entries"),)

    def __init__(self) -> None:
        self.texts = {f"ledger://quay/e{number:02}": (f"entry {number}", 0) for number in range(25)}
        self.server: Server | None = None

    def matches(self, uri: str) -> bool:
        return uri.startswith("ledger://quay/")

    def page(self, after: str | None, limit: int) -> Any:
        names = [uri for uri in sorted(self.texts) if uri > (after or "")]
        return [self.stat(uri) for uri in names[:limit]], names[limit - 1] if len(names) > limit else None

    def stat(self, uri: str) -> t.Resource:
        text, version = self.entry(uri)
        name = uri.rpartition("/")[2]
        meta = {VERSION: str(version)}
        return t.Resource(uri=uri, name=name, mime_type="text/plain", size=len(text), meta=meta)

    def read(self, uri: str) -> t.ReadResourceResult:
        text, version = self.entry(uri)
        content = t.ResourceContents(uri=uri, mime_type="text/plain", text=text, meta={VERSION: str(version)})
        return t.ReadResourceResult(contents=[content], ttl_ms=0)

    def entry(self, uri: str) -> tuple[str, int]:
        if uri not in self.texts:
            raise ResourceNotFound(uri)
        return self.texts[uri]

    def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
        return [uri.rpartition("/")[2] for uri in self.texts if uri.rpartition("/")[2].startswith(value)]


class TestUpstreamContract(SourceContract):
    missing = "ledger://quay/none"
    secret = "barnacle"

    @pytest.fixture
    def ledger(self) -> Ledger:
        return Ledger()

    @pytest.fixture
    def http(self, ledger: Ledger) -> Iterator[ServerThread]:
        server: Any = Server("ledger", page_size=10)
        server.include(ledger)
        ledger.server = server
        with ServerThread(server) as http:
            yield http

    @pytest.fixture
    def source(self, http: ServerThread, ledger: Ledger) -> UpstreamSource:
        self.ledger = ledger
        url = f"http://user:barnacle@127.0.0.1:{http.port}/mcp?key=barnacle"
        return upstream(url, allow_private_networks=True, headers={"x-key": "barnacle"})

    def change(self, source: UpstreamSource) -> str:
        uri = "ledger://quay/e03"
        text, version = self.ledger.texts[uri]
        self.ledger.texts[uri] = (text + "!", version + 1)
        assert self.ledger.server is not None
        self.ledger.server.resource_updated(uri)
        return uri

    def add(self, source: UpstreamSource) -> str:
        uri = f"ledger://quay/f{len(self.ledger.texts)}"
        self.ledger.texts[uri] = ("new", 0)
        assert self.ledger.server is not None
        self.ledger.server.list_changed("resources")
        return uri
