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

from tests.conftest import CACHE, free_port
from tests.interop import model
from tests.interop.frameworks import FRAMEWORKS
from tests.interop.programs import FEATURE_SERVER, HANDSHAKE, PROBE_SECONDS, node, program, run_program, run_server
from tests.interop.test_every_feature import check_results, visit
from wharfinger import Client, ResourceNotFound, ToolError

pytestmark = pytest.mark.timeout(180)


def supergateway(*arguments: str) -> list[str]:
    return [*node("servers_js", "supergateway/dist/index.js"), *arguments, "--logLevel", "none"]


def mcp_remote(url: str) -> list[str]:
    environment = ["env", f"MCP_REMOTE_CONFIG_DIR={CACHE}"]  # otherwise it leaves a folder in the user's home
    return [*environment, *node("servers_js", "mcp-remote/dist/proxy.js"), f"{url}/mcp", "--allow-http"]


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
def run_feature_server(log: Path) -> Iterator[str]:
    port = free_port()
    with run_server([sys.executable, str(FEATURE_SERVER), "http", str(port)], port, log):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def serve_over_http(command: list[str], transport: str, log: Path) -> Iterator[str]:
    """Serve a command with supergateway. Yields its URL."""
    options, path = TO_HTTP[transport]
    port = free_port()
    with run_server(supergateway("--stdio", shlex.join(command), *options, "--port", str(port)), port, log):
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
def test_our_client_reaches_our_http_server_through_a_command(bridge: str, tmp_path: Path) -> None:
    with run_feature_server(tmp_path / "features") as url:
        asyncio.run(check_client(TO_STDIO[bridge](url)))


AGENT_BRIDGES = [*(("langchain", bridge) for bridge in TO_STDIO), ("ai_sdk", "mcp-remote")]
"""One framework of each era. supergateway fails on `initialize` after the AI SDK's probe for 2026-07-28."""


@pytest.mark.parametrize(("framework", "bridge"), AGENT_BRIDGES)
def test_agents_reach_our_http_server_through_a_command(framework: str, bridge: str, tmp_path: Path) -> None:
    (agent,) = (candidate for candidate in FRAMEWORKS if candidate.program == framework)
    calls = [("berth", {"ship": "amber", "draught": 3.5}), ("refuse", {"ship": "amber"}), ("count", {"ship": "amber"})]
    with run_feature_server(tmp_path / "features") as url, model.run_model() as base:
        features = {
            "command": TO_STDIO[bridge](url),
            "read": "harbour://quay",
            "read_name": "quay",
            "runs": {"all": calls},
        }
        seen = run_program(agent.command(), {"model_url": base, "servers": {"features": features}}, 120)["features"]
    assert seen.get("read") == "the north quay", seen
    berth, refused, count = json.loads(seen["runs"]["all"])
    assert "north" in berth and "amber is not expected" in refused and "5" in count


@pytest.mark.parametrize("transport", TO_HTTP)
def test_our_clients_reach_our_stdio_server_over_http(transport: str, tmp_path: Path) -> None:
    """The clients run one after the other, since over SSE all clients share one process of the server."""
    with serve_over_http([sys.executable, str(FEATURE_SERVER), "stdio"], transport, tmp_path / "log") as url:
        for _ in range(2):
            asyncio.run(check_client(url))


@pytest.mark.parametrize("peer", ["mcp1", "mcp2"])
@pytest.mark.parametrize("bridge", TO_STDIO)
def test_our_client_reaches_their_http_server_through_a_command(bridge: str, peer: str, tmp_path: Path) -> None:
    port = free_port()
    kind = "sse" if bridge == "supergateway sse" else "http"

    async def check(command: list[str]) -> None:
        async with Client(command, probe_timeout=PROBE_SECONDS) as client:
            assert {"sound", "choose"} <= {tool.name for tool in await client.list_tools()}
            assert (await client.call_tool("sound")).data == {"name": "north", "depth": 7}

    with run_server([*program(peer, "interactive"), kind, str(port)], port, tmp_path / "log"):
        asyncio.run(check(TO_STDIO[bridge](f"http://127.0.0.1:{port}")))


@pytest.mark.parametrize("transport", TO_HTTP)
def test_our_client_reaches_the_everything_server_over_http(transport: str, tmp_path: Path) -> None:
    command = node("ts", "@modelcontextprotocol/server-everything/dist/index.js")

    async def check(url: str) -> None:
        async with Client(url, probe_timeout=PROBE_SECONDS) as client:
            assert (await client.call_tool("echo", {"message": "ünïcödé ✓"})).text == "Echo: ünïcödé ✓"
            assert len(await client.list_resources()) > 0
            with pytest.raises(ToolError):
                await client.call_tool("get-sum", {"a": "two"})

    with serve_over_http([*command, "stdio"], transport, tmp_path / "log") as url:
        asyncio.run(check(url))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
def test_their_clients_use_every_feature_of_our_http_server_through_mcp_remote(peer: str, tmp_path: Path) -> None:
    with run_feature_server(tmp_path / "features") as url:
        check_results(peer, HANDSHAKE, visit(peer, HANDSHAKE, command=mcp_remote(url)))


@pytest.mark.parametrize("peer", ["mcp1", "ts1"])
@pytest.mark.parametrize("transport", ["sse", "http in sessions"])
def test_their_clients_use_every_feature_of_our_stdio_server_over_http(
    transport: str, peer: str, tmp_path: Path
) -> None:
    with serve_over_http([sys.executable, str(FEATURE_SERVER), "stdio"], transport, tmp_path / "log") as url:
        check_results(peer, HANDSHAKE, visit(peer, HANDSHAKE, **{"sse" if transport == "sse" else "url": url}))
