"""Our client visits a server of each official SDK, over stdio and HTTP, in each era that the server speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.interop.peers import common
from tests.interop.programs import HANDSHAKE, PEERS, PROBE_SECONDS, STATELESS, program, run_server
from wharfinger import Client, ResourceNotFound, ToolError
from wharfinger.errors import RemoteError

CASES = [(peer, revision) for peer, revisions in PEERS.items() for revision in revisions]

# Servers whose error for a missing resource has no specific code.
WITHOUT_NOT_FOUND_CODE = {"mcp1", "ts1"}


@pytest.fixture(scope="module")
def server_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], str]]:
    """Run every peer's server over HTTP. A server that speaks one era at a time is started once for each era."""
    urls: dict[tuple[str, str], str] = {}
    logs = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        for peer, revisions in PEERS.items():
            for revision in revisions:
                if peer == "mcp2" and revision == STATELESS:
                    urls[peer, revision] = urls[peer, HANDSHAKE]
                    continue
                port = free_port()
                command = [*program(peer, "server"), "http", str(port), revision]
                stack.enter_context(run_server(command, port, logs / f"{peer}-{revision}"))
                urls[peer, revision] = f"http://127.0.0.1:{port}/mcp"
        yield urls


async def visit(peer: str, revision: str, target: Any) -> None:
    """List, read, complete, call, get a prompt, watch, get errors, and close."""
    async with Client(target, revision=revision, probe_timeout=PROBE_SECONDS) as client:
        assert client.revision == revision
        uris = [str(resource.uri) async for resource in client.list_resources()]
        assert {common.TEXT_URI, common.BLOB_URI} <= set(uris)
        assert [t.uri_template for t in await client.list_resource_templates()] == [common.ITEM_TEMPLATE]
        assert (await client.read_resource(common.TEXT_URI)).text == common.TEXT
        assert (await client.read_resource(common.BLOB_URI)).bytes == common.BLOB
        assert (await client.read_resource("peer://item/amber")).json() == {"id": "amber"}
        assert (await client.complete(common.ITEM_TEMPLATE, "id", "a")).values == ["amber", "anchor"]
        assert {"add", "touch", "fails"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("add", {"a": 2, "b": 3}, returns=int)).data == 5
        with pytest.raises(ToolError, match=r"on purpose|Error executing tool"):
            await client.call_tool("fails")
        prompt = await client.get_prompt("greet", {"name": "Mary"})
        assert getattr(prompt.messages[0].content, "text", None) == "Hello, Mary!"
        with pytest.raises(RemoteError if peer in WITHOUT_NOT_FOUND_CODE else ResourceNotFound):
            await client.read_resource("peer://none")
        await check_changes(client)


async def check_changes(client: Client) -> None:
    """Watch a resource and the lists, let the server change them, and receive the changes."""
    async with client.watch(common.TEXT_URI) as changes:
        await client.call_tool("touch", {"uri": common.TEXT_URI})
        async for change in changes:
            assert (change.kind, change.uri) == ("resource", common.TEXT_URI)
            break
        async with client.watch_lists() as lists:
            await client.call_tool("grow")
            async for change in lists:
                assert change.kind == "resources"
                break
    assert common.GROWN_URI in [resource.uri for resource in await client.list_resources()]


def children() -> str:
    """Return the ids of child processes that this thread has not waited for."""
    path = Path("/proc/thread-self/children")
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(("peer", "revision"), CASES)
def test_our_client_visits_their_server_over_stdio(peer: str, revision: str) -> None:
    """Afterwards the server's process has ended."""
    before = set(children().split())  # fixtures of other files may have started servers
    asyncio.run(visit(peer, revision, [*program(peer, "server"), "stdio"]))
    assert set(children().split()) <= before


@pytest.mark.parametrize(("peer", "revision"), CASES)
async def test_our_client_visits_their_server_over_http(
    peer: str, revision: str, server_urls: dict[tuple[str, str], str]
) -> None:
    await visit(peer, revision, server_urls[peer, revision])


@pytest.mark.parametrize("peer", PEERS)
async def test_our_client_negotiates_the_newest_revision_over_stdio(peer: str) -> None:
    async with Client([*program(peer, "server"), "stdio"], probe_timeout=PROBE_SECONDS) as client:
        assert client.revision == PEERS[peer][-1]


@pytest.mark.parametrize(("peer", "revision"), CASES)
async def test_our_client_negotiates_the_newest_revision_over_http(
    peer: str, revision: str, server_urls: dict[tuple[str, str], str]
) -> None:
    # The HTTP server of ts2 speaks only the era that it was started for.
    newest = revision if peer == "ts2" else PEERS[peer][-1]
    async with Client(server_urls[peer, revision], probe_timeout=PROBE_SECONDS) as client:
        assert client.revision == newest
