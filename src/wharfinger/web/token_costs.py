"""The cost in tokens of tools, instructions and prompts.

Tools and instructions go into every conversation with a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from wharfinger.errors import WharfingerError
from wharfinger.web.html_elements import HtmlElement, name_text, node, table
from wharfinger.web.server_connections import ServerConnections

__all__ = ["CHARACTERS_PER_TOKEN", "TokenCost", "estimate_tokens", "find_costs", "show_costs"]

CHARACTERS_PER_TOKEN = 4
"""An estimate, since tokenizers differ."""
MAX_SHOWN_COSTS = 500


class TokenCost(NamedTuple):
    """The cost of the definition of a tool or prompt, or of the instructions of a server."""

    server: str
    kind: str
    name: str
    tokens: int


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


async def find_costs(connections: ServerConnections) -> tuple[list[TokenCost], list[str]]:
    """Return the costs of all servers, largest first, and a sentence for each server that could not be asked."""
    costs: list[TokenCost] = []
    notes: list[str] = []
    for upstream in connections.upstreams.values():
        try:
            client = upstream.client
            tools, prompts = await upstream.tools(), await upstream.prompts()
            instructions = client.instructions or ""
        except WharfingerError as error:
            notes.append(f"{upstream.name}: {error}")
            continue
        for tool in tools:
            definition = {"name": tool.name, "description": tool.description or "", "schema": tool.input_schema}
            tokens = estimate_tokens(msgspec.json.encode(definition).decode())
            costs.append(TokenCost(upstream.name, "tool", tool.name, tokens))
        for prompt in prompts:
            tokens = estimate_tokens(msgspec.json.encode(prompt).decode())
            costs.append(TokenCost(upstream.name, "prompt", prompt.name, tokens))
        if instructions:
            costs.append(TokenCost(upstream.name, "instructions", "", estimate_tokens(instructions)))
    costs.sort(key=lambda cost: (-cost.tokens, cost))
    return costs, notes


def show_costs(container: HtmlElement, costs: Sequence[TokenCost], notes: Sequence[str]) -> None:
    """Show the costs in an element of the page."""
    container.clear()
    with container:
        node("h2", "Cost in tokens")
        total = sum(cost.tokens for cost in costs if cost.kind != "prompt")
        node(
            "p",
            f"About {total:,} tokens in each request to a model that gets all tools and instructions "
            f"({CHARACTERS_PER_TOKEN} characters for each token; tokenizers differ). Prompts are not in "
            "this total: one that is used costs as much as its messages.",
        )
        for note in notes[:20]:
            node("p", name_text(note, 1000), classes="error")
        rows = [(cost.server, cost.kind, cost.name, f"{cost.tokens:,}") for cost in costs[:MAX_SHOWN_COSTS]]
        table("Costs", ("Server", "Kind", "Name", "Tokens"), [[name_text(text) for text in row] for row in rows])
        if len(costs) > MAX_SHOWN_COSTS:
            node("p", f"{len(costs) - MAX_SHOWN_COSTS} smaller ones are not shown.")
