"""Our server publishes servers of other SDKs: their resources are listed, read, completed and watched."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.conftest import free_port
from tests.interop.peers import common
from tests.interop.programs import program, run_server
from tests.sources.upstream_support import connect, listed_uris, run
from wharfinger import Client
from wharfinger import types as t
from wharfinger.errors import ResourceNotFound

SERVERS = [
    ("mcp1", "2025-11-25"),
    ("mcp2", "2025-11-25"),
    ("mcp2", "2026-07-28"),
    ("ts1", "2025-11-25"),
    ("ts2", "2025-11-25"),
]
REPORT_TO_ALL_SESSIONS = ("mcp1", "mcp2")  # the other servers report a change only in the session that makes it


@pytest.mark.parametrize(("peer", "revision"), SERVERS)
def test_their_server_is_published_by_ours(peer: str, revision: str, tmp_path: Path) -> None:
    port = free_port()

    async def test() -> None:
        async with connect(f"http://127.0.0.1:{port}/mcp", revision=revision) as (client, source):
            assert {common.TEXT_URI, common.BLOB_URI} <= set(await listed_uris(client))
            assert (await client.read_resource(common.TEXT_URI)).text == common.TEXT
            assert (await client.read_resource(common.BLOB_URI)).bytes == common.BLOB
            assert (await client.read_resource("peer://item/anchor")).json() == {"id": "anchor"}
            with pytest.raises(ResourceNotFound):
                await client.read_resource("other://item")
            reference = t.ResourceTemplateReference(uri=common.ITEM_TEMPLATE)
            assert (await client.complete(reference, "id", "a")).values == ["amber", "anchor"]
            assert revision in source.describe()
            if peer not in REPORT_TO_ALL_SESSIONS:
                return
            other = Client(f"http://127.0.0.1:{port}/mcp", revision=revision)
            async with other, client.watch(common.TEXT_URI) as changes:
                await anext(changes)  # a new watch starts with a change, since earlier ones may have been missed
                for _ in range(100):
                    await other.call_tool("touch", {"uri": common.TEXT_URI})
                    with contextlib.suppress(TimeoutError):
                        assert (await asyncio.wait_for(anext(changes), 0.2)).uri == common.TEXT_URI
                        return
            raise AssertionError("no change was reported")

    with run_server([*program(peer, "server"), "http", str(port)], port, tmp_path / "log"):
        run(test())
