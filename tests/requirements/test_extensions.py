"""Requirements of 2.19 to 2.23 that no other test covers."""

from __future__ import annotations

import pytest

from tests.conformance.server import make_server
from tests.server.driving import Wire, ask
from wharfinger import Server
from wharfinger.types import Icon


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"])
async def test_the_older_tasks_are_neither_declared_nor_served(method: str) -> None:
    """Requirement 2.19-19."""
    server = make_server()
    async with Wire(server, "2025-11-25") as wire:
        (opened,) = [answer for answer in wire.answers.values() if "protocolVersion" in answer["result"]]
        assert "tasks" not in opened["result"]["capabilities"]
        tools = (await wire.ask("tools/list"))["result"]["tools"]
        assert not [tool for tool in tools if "execution" in tool]
        assert (await wire.ask(method, {"taskId": "any"}))["error"]["code"] == -32601


async def test_icons_are_sent_unchanged() -> None:
    """Requirement 2.22-6."""
    icon = Icon(src="data:image/png;base64,AAAA", mime_type="image/png", sizes=["48x48"])
    server = Server("s", icons=[icon])
    server.tools.add(lambda: "", name="drawn", icons=[icon])
    reported = (await ask(server, "tools/list"))["result"]
    wire = {"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48"]}
    assert reported["tools"][0]["icons"] == [wire]
    assert reported["_meta"]["io.modelcontextprotocol/serverInfo"]["icons"] == [wire]


async def test_trace_keys_are_accepted() -> None:
    """Requirement 2.22-7."""
    server = Server("s")
    server.tools.add(lambda: "served", name="t")
    trace = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "vendor=value",
        "baggage": "a=b,c=d",
    }
    answer = await ask(server, "tools/call", {"name": "t", "_meta": trace})
    assert answer["result"]["content"][0]["text"] == "served"
