"""Bridges between stdio and HTTP, with our server or our client at either end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CACHE
from tests.interop import model
from tests.interop.frameworks import FRAMEWORKS
from tests.interop.places import HANDSHAKE, SLOW, free_port, node, printed, program, running
from tests.interop.test_every_feature import FEATURE_SERVER, judge, visit
from wharfinger import Client, ResourceNotFound, ToolError

pytestmark = pytest.mark.timeout(180)


def supergateway(*arguments: str) -> list[str]:
    return [*node("servers_js", "supergateway/dist/index.js"), *arguments, "--logLevel", "none"]


def mcp_remote(url: str) -> list[str]:
    kept = ["env", f"MCP_REMOTE_CONFIG_DIR={CACHE}"]  # else it leaves a folder in the user's home
    return [*kept, *node("servers_js", "mcp-remote/dist/proxy.js"), f"{url}/mcp", "--allow-http"]


def over_http(url: str) -> list[str]:
    return supergateway("--streamableHttp", f"{url}/mcp")


def over_sse(url: str) -> list[str]:
    return supergateway("--sse", f"{url}/sse")


TO_STDIO = {"supergateway http": over_http, "supergateway sse": over_sse, "mcp-remote": mcp_remote}
"""What makes a command out of a server's URL."""
TO_HTTP = {
    "sse": (["--outputTransport", "sse"], "/sse"),
    "http": (["--outputTransport", "streamableHttp"], "/mcp"),
    "http in sessions": (["--outputTransport", "streamableHttp", "--stateful"], "/mcp"),
}
"""How supergateway offers a command over HTTP, and at which path."""


@contextlib.contextmanager
def features_over_http(log: Path) -> Iterator[str]:
    port = free_port()
    with running([sys.executable, str(FEATURE_SERVER), "http", str(port)], port, log):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def offered(command: list[str], how: str, log: Path) -> Iterator[str]:
    """The URL at which supergateway offers a command."""
    options, path = TO_HTTP[how]
    port = free_port()
    with running(supergateway("--stdio", shlex.join(command), *options, "--port", str(port)), port, log):
        yield f"http://127.0.0.1:{port}{path}"


async def stay(target: Any) -> None:
    """Our client lists, calls, reads, and gets an error."""
    async with Client(target, probe_timeout=SLOW) as client:
        assert {"berth", "refuse"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("count", {"ship": "amber"})).text == "5"
        assert "harbour://quay" in [resource.uri for resource in await client.list_resources()]
        assert (await client.read_resource("harbour://quay")).text == "the north quay"
        with pytest.raises(ToolError, match="amber is not expected"):
            await client.call_tool("refuse", {"ship": "amber"})
        with pytest.raises(ResourceNotFound):
            await client.read_resource("harbour://nothing")
        assert (await client.call_tool("count", {"ship": "amber"})).text == "5"


@pytest.mark.parametrize("bridge", TO_STDIO)
def test_our_client_reaches_our_http_server_by_a_command(bridge: str, tmp_path: Path) -> None:
    with features_over_http(tmp_path / "features") as url:
        asyncio.run(stay(TO_STDIO[bridge](url)))


AGENTS = [*(("langchain", bridge) for bridge in TO_STDIO), ("ai_sdk", "mcp-remote")]
"""One of each era. The AI SDK asks for 2026-07-28 first; supergateway then answers its `initialize` with an error."""


@pytest.mark.parametrize(("framework", "bridge"), AGENTS)
def test_agents_reach_our_http_server_by_a_command(framework: str, bridge: str, tmp_path: Path) -> None:
    (agent,) = (one for one in FRAMEWORKS if one.program == framework)
    calls = [("berth", {"ship": "amber", "draught": 3.5}), ("refuse", {"ship": "amber"}), ("count", {"ship": "amber"})]
    with features_over_http(tmp_path / "features") as url, model.answering() as base:
        features = {
            "command": TO_STDIO[bridge](url),
            "read": "harbour://quay",
            "read_name": "quay",
            "runs": {"all": calls},
        }
        seen = printed(agent.command(), {"model": base, "servers": {"features": features}}, 120)["features"]
    assert seen.get("read") == "the north quay", seen
    berth, refused, count = json.loads(seen["runs"]["all"])
    assert "north" in berth and "amber is not expected" in refused and "5" in count


@pytest.mark.parametrize("how", TO_HTTP)
def test_our_clients_reach_our_stdio_server_over_http(how: str, tmp_path: Path) -> None:
    """One after the other: over SSE all clients share one process of the server."""
    with offered([sys.executable, str(FEATURE_SERVER), "stdio"], how, tmp_path / "log") as url:
        for _ in range(2):
            asyncio.run(stay(url))


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
@pytest.mark.parametrize("bridge", TO_STDIO)
def test_our_client_reaches_their_http_server_by_a_command(bridge: str, peer: str, tmp_path: Path) -> None:
    port = free_port()
    kind = "sse" if bridge == "supergateway sse" else "http"

    async def use(command: list[str]) -> None:
        async with Client(command, probe_timeout=SLOW) as client:
            assert {"sound", "choose"} <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("sound")).data == {"name": "north", "depth": 7}

    with running([*program(peer, "asker"), kind, str(port)], port, tmp_path / "log"):
        asyncio.run(use(TO_STDIO[bridge](f"http://127.0.0.1:{port}")))


@pytest.mark.parametrize("how", TO_HTTP)
def test_our_client_reaches_the_everything_server_over_http(how: str, tmp_path: Path) -> None:
    command = node("ts", "@modelcontextprotocol/server-everything/dist/index.js")

    async def use(url: str) -> None:
        async with Client(url, probe_timeout=SLOW) as client:
            assert (await client.call_tool("echo", {"message": "ünïcödé ✓"})).text == "Echo: ünïcödé ✓"
            assert len(await client.list_resources()) > 0
            with pytest.raises(ToolError):
                await client.call_tool("get-sum", {"a": "two"})

    with offered([*command, "stdio"], how, tmp_path / "log") as url:
        asyncio.run(use(url))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
def test_their_clients_do_everything_at_our_http_server_by_mcp_remote(peer: str, tmp_path: Path) -> None:
    with features_over_http(tmp_path / "features") as url:
        judge(peer, HANDSHAKE, visit(peer, HANDSHAKE, command=mcp_remote(url)))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
@pytest.mark.parametrize("how", ["sse", "http in sessions"])
def test_their_clients_do_everything_at_our_stdio_server_over_http(how: str, peer: str, tmp_path: Path) -> None:
    with offered([sys.executable, str(FEATURE_SERVER), "stdio"], how, tmp_path / "log") as url:
        judge(peer, HANDSHAKE, visit(peer, HANDSHAKE, **{"sse" if how == "sse" else "url": url}))
