"""Calls of an application that writes the messages for its model itself."""

from __future__ import annotations

import asyncio

import pytest

from wharfinger import Server
from wharfinger.host import Host
from wharfinger.host.model_apis import ModelToolCall


def test_calls_give_their_results_in_order_without_an_api() -> None:
    server = Server("harbour")

    @server.tool
    async def berth(ship: str, wait: float = 0) -> str:
        await asyncio.sleep(wait)
        return f"{ship} at 4"

    async def run() -> None:
        async with Host({"harbour": server}, approve=lambda approval: "refused" not in str(approval.arguments)) as host:
            await host.ready(10)
            tools = await host.tools(format="openai")
            calls = [
                ModelToolCall("1", "berth", {"ship": "Mary", "wait": 0.05}),
                ModelToolCall("2", "berth", {"ship": "refused"}),
                ModelToolCall("3", "bert", {}),
                ModelToolCall("4", "berth", {}, fault="not JSON"),
                ModelToolCall("5", "berth", {"ship": "Olga"}),
            ]
            outputs = await host.run_calls(calls, "openai", tools=tools)
            assert [(output.call.id, output.is_error) for output in outputs] == [
                ("1", False), ("2", True), ("3", True), ("4", True), ("5", False),
            ]  # fmt: skip
            assert outputs[0].text == "Mary at 4" and outputs[4].text == "Olga at 4"
            assert (
                "did not approve" in outputs[1].text and "'berth'" in outputs[2].text and "not JSON" in outputs[3].text
            )
            assert await host.run_calls([], "anthropic") == []
            with pytest.raises(ValueError, match="format"):
                await host.run_calls(calls, "nonsense")
            with pytest.raises(ValueError, match="max_characters must be positive"):
                await host.run_calls(calls, "openai", max_characters=0)

    asyncio.run(asyncio.wait_for(run(), 30))
