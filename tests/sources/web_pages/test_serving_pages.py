"""A site published by a server: policies, outages, the budget of tools, and the command as a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.sources.web_pages.conftest import html
from tests.sources.web_pages.site_server import SiteServer
from tests.sources.web_pages.test_web_pages import close, listed_uris, wait_until_crawled
from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger.errors import RemoteError
from wharfinger.server.document_search import search_documents
from wharfinger.sources import files, resource_tools, web

Permit = Callable[..., AbstractContextManager[None]]

TIMEOUT_SECONDS = 60


def test_denied_pages_appear_in_no_list_completion_or_search(site: SiteServer, permit: Permit) -> None:
    source = web(f"{site.origin}/docs/")
    top = f"{site.origin}/docs"
    wait_until_crawled(source)
    with permit(f"{top}/**", deny=[f"{top}/guide/quays.html", f"{top}/data/**"]):
        uris = listed_uris(source)
        assert uris == [f"{top}/guide/", f"{top}/guide/locks.md", f"{top}/tides.html"]
        assert [each.name for each in source.children(source.uri)[0]] == ["guide", "tides.html"]
        assert "quays" not in str(source.read(f"{top}/guide/?list=pages"))
        assert "left out" not in str(source.read(source.uri))
        assert source.complete(source.template, "path", "", {}) == ["guide/", "tides.html"]
        assert source.complete(source.template, "path", "q", {}) == []
        assert search_documents(source, "lantern", 10) == []
        first, key = source.page(None, 3)
        assert (len(first), key is None) == (3, False)
        assert len(source.page(key, 3)[0]) == 1
        assert source.page(key, 3)[1] is None
    with permit(f"{top}/guide/locks.md"):
        assert [each.uri for each in source.page(None, 10)[0]] == [f"{top}/guide/locks.md"]
    close(source)


def test_an_outage_is_reported_until_the_site_returns(site: SiteServer, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("healthy")
    source = web(f"{site.origin}/docs/", every=0.05)
    server = Server("all")
    server.include(files(folder, label="notes"))
    server.include(source)
    uri = f"{site.origin}/docs/tides.html"

    async def test() -> None:
        async with Client(server, cache=False) as client, client.watch(uri) as changes:

            async def read_text() -> str:
                return (await client.read_resource(uri)).text

            async def read_error() -> str:
                try:
                    assert "14:20" in await read_text()
                except RemoteError as error:
                    return str(error)
                return ""

            assert "14:20" in (await client.read_resource(uri)).text
            await asyncio.to_thread(site.stop)
            assert (await asyncio.wait_for(anext(changes), TIMEOUT_SECONDS)).uri == uri
            assert "cannot be reached" in await wait_until_async(read_error, "the page cannot be read")
            page = await client.request("resources/list")
            assert {each.uri for each in page.resources} >= {"file:///notes/a.md"}
            assert "web site" in str(page.meta)
            site.put("docs/tides.html", html("Tides", "now at 15:10"))
            await asyncio.to_thread(site.start)
            assert "15:10" in await wait_until_async(read_text, "the page can be read", ignore=RemoteError)

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_SECONDS))


async def search_ids(client: Client, query: str) -> list[str]:
    return [hit["id"] for hit in (await client.call_tool("search", {"query": query})).structured["results"]]


def test_tools_find_and_read_pages_within_the_budget(site: SiteServer) -> None:
    site.put("docs/guide/locks.md", "# Locks\n\n" + "The lock opens at dawn, and closes at dusk.\n" * 20_000)
    server = Server("site")
    source = web(f"{site.origin}/docs/")
    source._crawl._rest = 0.0
    server.include(source)
    server.include(resource_tools())

    async def test() -> None:
        async with Client(server) as client:
            directory = await client.call_tool("read_directory", {"uri": source.uri})
            entries = [entry["uri"] for entry in directory.structured["entries"]]
            top = f"{site.origin}/docs"
            assert entries == [f"{top}/data/?list=pages", f"{top}/guide/?list=pages", f"{top}/tides.html"]
            found = await wait_until_async(lambda: search_ids(client, "lantern"), "the page is found")
            assert found[0] == f"{site.origin}/docs/guide/quays.html"
            assert "The lantern is lit." in (await client.call_tool("fetch", {"id": found[0]})).text
            long_page = await client.call_tool("read_resource", {"uri": f"{site.origin}/docs/guide/locks.md"})
            assert len(long_page.text) < 60_000
            assert "?lines=" in long_page.text

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_SECONDS))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_command_serves_a_site_on_this_machine(site: SiteServer, revision: str) -> None:
    command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", "--every", "0.2", f"web:{site.origin}/docs/"]

    async def test() -> None:
        async with Client(command, revision=revision, cache=False) as client:
            uris = [resource.uri async for resource in client.list_resources()]
            assert f"{site.origin}/docs/tides.html" in uris
            uri = f"{site.origin}/docs/tides.html"
            assert "High water is at 14:20." in (await client.read_resource(uri)).text
            async with client.watch(uri) as changes:
                site.put("docs/tides.html", html("Tides", "High water is at 15:10."))
                assert (await asyncio.wait_for(anext(changes), TIMEOUT_SECONDS)).uri == uri
            assert "15:10" in (await client.read_resource(uri)).text
            found = await wait_until_async(lambda: search_ids(client, "lantern"), "the page is found")
            assert found[0] == f"{site.origin}/docs/guide/quays.html"

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_SECONDS))


def test_the_error_of_a_page_reaches_the_client(site: SiteServer) -> None:
    server = Server("site")
    server.include(web(f"{site.origin}/docs/"))
    url = site.put("docs/tides.html", "", status=500)

    async def test() -> None:
        async with Client(server) as client:
            with pytest.raises(RemoteError, match="the site answered 500"):
                await client.read_resource(url)

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_SECONDS))


def test_the_command_reports_an_unreachable_site() -> None:
    async def test() -> None:
        command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", "web:http://127.0.0.1:9/docs/"]
        async with Client(command, cache=False) as client:
            page = await client.request("resources/list")
            assert "cannot be reached" in str(page.meta)

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_SECONDS))
