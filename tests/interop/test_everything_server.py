"""Our client uses all features of the TypeScript everything server, over each of its three transports."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.interop.programs import PROBE_SECONDS, node, run_server
from wharfinger import Client, ToolError
from wharfinger import types as t

PATHS = {"stdio": "", "streamableHttp": "/mcp", "sse": "/sse"}
"""The path of each transport."""


async def tour(target: Any) -> None:
    """Use all features of the server."""
    steps: list[tuple[float, float | None, str | None]] = []
    answers: list[Any] = [{"name": "Mary", "integer": 7}, "decline"]

    async def answer_elicitation(input_request: Any) -> Any:
        if "interpretation" in input_request.requested_schema.properties:
            return {"interpretation": "snake"}
        assert "name" in input_request.requested_schema.properties
        return answers.pop(0)

    async def sample(params: t.CreateMessageRequestParams) -> str:
        assert params.system_prompt == "You are a helpful test server."
        return "high water at ten"

    async with Client(
        target, elicitation=answer_elicitation, sampling=sample, roots=["file:///charts"], probe_timeout=PROBE_SECONDS,
        env={"PATH": os.environ["PATH"]} if isinstance(target, list) else None,
    ) as client:  # fmt: skip
        assert client.server_info is not None
        assert client.instructions
        tools = {tool.name for tool in await client.list_tools()}
        assert {"echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request"} <= tools
        assert (await client.call_tool("echo", {"message": "ünïcödé ✓"})).text == "Echo: ünïcödé ✓"
        assert "5" in (await client.call_tool("get-sum", {"a": 2, "b": 3})).text
        weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert weather.data == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
        image = await client.call_tool("get-tiny-image")
        assert any(isinstance(block, t.ImageContent) for block in image.content)
        await client.call_tool(
            "trigger-long-running-operation", {"duration": 0.4, "steps": 4}, progress=lambda *step: steps.append(step)
        )
        assert [step[:2] for step in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        with pytest.raises(ToolError):
            await client.call_tool("get-sum", {"a": "two"})

        assert len(await client.list_resources()) > 0
        templates = [template.uri_template for template in await client.list_resource_templates()]
        text = next(template for template in templates if "text" in template)
        assert "Resource 1" in (await client.template(text).read(resourceId="1")).text
        blob = next(template for template in templates if "blob" in template)
        assert b"Resource 2" in (await client.template(blob).read(resourceId="2")).bytes

        prompt = await client.get_prompt("args-prompt", {"city": "Hull", "state": "Yorkshire"})
        assert getattr(prompt.messages[0].content, "text", "") == "What's weather in Hull, Yorkshire?"
        assert (await client.complete("completable-prompt", "department", "S")).values == ["Sales", "Support"]
        names = await client.complete("completable-prompt", "name", "", {"department": "Sales"})
        assert names.values == ["David", "Eve", "Frank"]

        accepted = await client.call_tool("trigger-elicitation-request")
        assert "Name: Mary" in accepted.text and "Favorite Integer: 7" in accepted.text
        assert "declined" in (await client.call_tool("trigger-elicitation-request")).text
        sampled = await client.call_tool("trigger-sampling-request", {"prompt": "tide?", "maxTokens": 10})
        assert "high water at ten" in sampled.text
        assert "file:///charts" in (await client.call_tool("get-roots-list")).text

        # This tool must be called as a task, and the task sends an input request.
        report = await client.call_tool("simulate-research-query", {"topic": "python", "ambiguous": True})
        assert "Research Report: python (snake)" in report.text


@pytest.mark.parametrize("transport", PATHS)
def test_our_client_uses_every_feature_of_the_everything_server(transport: str, tmp_path: Path) -> None:
    command = [*node("ts", "@modelcontextprotocol/server-everything/dist/index.js"), transport]
    if transport == "stdio":
        asyncio.run(tour(command))
        return
    port = free_port()
    with run_server(["env", f"PORT={port}", *command], port, tmp_path / "log"):
        asyncio.run(tour(f"http://127.0.0.1:{port}{PATHS[transport]}"))
