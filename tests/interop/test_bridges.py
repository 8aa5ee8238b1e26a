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
from tests.interop.places import HANDSHAKE, PROBE_SECONDS, free_port, node, program, run_program, running
from tests.interop.test_every_feature import FEATURE_SERVER, check_results, visit
from wharfinger import Client, ResourceNotFound, ToolError

pytestmark = pytest.mark.timeout(180)


def supergateway(*arguments: str) -> list[str]:
    return [*node("servers_js", "supergateway/dist/index.js"), *arguments, "--logLevel", "none"]


def mcp_remote(url: str) -> list[str]:
    kept = ["env", f"MCP_REMOTE_CONFIG_DIR={CACHE}"]  # otherwise it leaves a folder in the user's home
    return [*kept, *node("servers_js", "mcp-remote/dist/proxy.js"), f"{url}/mcp", "--allow-http"]


def over_http(url: str) -> list[str]:
    return supergateway("--streamableHttp", f"{url}/mcp")


def over_sse(url: str) -> list[str]:
    return supergateway("--sse", f"{url}/sse")


TO_STDIO = {"supergateway http": over_http, "supergateway sse": over_sse, "mcp-remote": mcp_remote}
"""Bridges that turn a server's URL into a command."""
TO_HTTP = {
    "sse": (["--outputTransport", "sse"], "/sse"),
    "http": (["--outputTransport", "streamableHttp"], "/mcp"),
    "http in sessions": (["--outputTransport", "streamableHttp", "--stateful"], "/mcp"),
}
"""The options with which supergateway serves a command over HTTP, and the path."""


@contextlib.contextmanager
def features_over_http(log: Path) -> Iterator[str]:
    port = free_port()
    with running([sys.executable, str(FEATURE_SERVER), "http", str(port)], port, log):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def served_over_http(command: list[str], how: str, log: Path) -> Iterator[str]:
    """Serve a command with supergateway. Yields its URL."""
    options, path = TO_HTTP[how]
    port = free_port()
    with running(supergateway("--stdio", shlex.join(command), *options, "--port", str(port)), port, log):
        yield f"http://127.0.0.1:{port}{path}"


async def check_client(target: Any) -> None:
    """Check that our client lists, calls, reads, and gets errors."""
    async with Client(target, probe_timeout=PROBE_SECONDS) as client:
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
        asyncio.run(check_client(TO_STDIO[bridge](url)))


AGENT_BRIDGES = [*(("langchain", bridge) for bridge in TO_STDIO), ("ai_sdk", "mcp-remote")]
"""One framework of each era. supergateway fails on `initialize` after the AI SDK's probe for 2026-07-28."""


@pytest.mark.parametrize(("framework", "bridge"), AGENT_BRIDGES)
def test_agents_reach_our_http_server_by_a_command(framework: str, bridge: str, tmp_path: Path) -> None:
    (agent,) = (one for one in FRAMEWORKS if one.program == framework)
    calls = [("berth", {"ship": "amber", "draught": 3.5}), ("refuse", {"ship": "amber"}), ("count", {"ship": "amber"})]
    with features_over_http(tmp_path / "features") as url, model.running_model() as base:
        features = {
            "command": TO_STDIO[bridge](url),
            "read": "harbour://quay",
            "read_name": "quay",
            "runs": {"all": calls},
        }
        seen = run_program(agent.command(), {"model": base, "servers": {"features": features}}, 120)["features"]
    assert seen.get("read") == "the north quay", seen
    berth, refused, count = json.loads(seen["runs"]["all"])
    assert "north" in berth and "amber is not expected" in refused and "5" in count


@pytest.mark.parametrize("how", TO_HTTP)
def test_our_clients_reach_our_stdio_server_over_http(how: str, tmp_path: Path) -> None:
    """The clients run one after the other, since over SSE all clients share one process of the server."""
    with served_over_http([sys.executable, str(FEATURE_SERVER), "stdio"], how, tmp_path / "log") as url:
        for _ in range(2):
            asyncio.run(check_client(url))


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
@pytest.mark.parametrize("bridge", TO_STDIO)
def test_our_client_reaches_their_http_server_by_a_command(bridge: str, peer: str, tmp_path: Path) -> None:
    port = free_port()
    kind = "sse" if bridge == "supergateway sse" else "http"

    async def use(command: list[str]) -> None:
        async with Client(command, probe_timeout=PROBE_SECONDS) as client:
            assert {"sound", "choose"} <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("sound")).data == {"name": "north", "depth": 7}

    with running([*program(peer, "interactive"), kind, str(port)], port, tmp_path / "log"):
        asyncio.run(use(TO_STDIO[bridge](f"http://127.0.0.1:{port}")))


@pytest.mark.parametrize("how", TO_HTTP)
def test_our_client_reaches_the_everything_server_over_http(how: str, tmp_path: Path) -> None:
    command = node("ts", "@modelcontextprotocol/server-everything/dist/index.js")

    async def use(url: str) -> None:
        async with Client(url, probe_timeout=PROBE_SECONDS) as client:
            assert (await client.call_tool("echo", {"message": "ünïcödé ✓"})).text == "Echo: ünïcödé ✓"
            assert len(await client.list_resources()) > 0
            with pytest.raises(ToolError):
                await client.call_tool("get-sum", {"a": "two"})

    with served_over_http([*command, "stdio"], how, tmp_path / "log") as url:
        asyncio.run(use(url))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
def test_their_clients_use_every_feature_of_our_http_server_by_mcp_remote(peer: str, tmp_path: Path) -> None:
    with features_over_http(tmp_path / "features") as url:
        check_results(peer, HANDSHAKE, visit(peer, HANDSHAKE, command=mcp_remote(url)))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
@pytest.mark.parametrize("how", ["sse", "http in sessions"])
def test_their_clients_use_every_feature_of_our_stdio_server_over_http(how: str, peer: str, tmp_path: Path) -> None:
    with served_over_http([sys.executable, str(FEATURE_SERVER), "stdio"], how, tmp_path / "log") as url:
        check_results(peer, HANDSHAKE, visit(peer, HANDSHAKE, **{"sse" if how == "sse" else "url": url}))
