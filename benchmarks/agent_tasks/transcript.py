"""Records a conversation with one server: the calls of its tools, and the tokens of their answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from benchmarks.agent_tasks.dataset import Dataset
from benchmarks.harness import environments
from wharfinger import Client, ToolError
from wharfinger import types as t
from wharfinger.cli.doctor.survey import tokens

__all__ = ["OURS", "SERVERS", "AgentServer", "AnsweredCall", "Transcript", "build", "client_of", "text_of"]

OURS = "wharfinger"


class AgentServer(NamedTuple):
    """A server under test: its environment (a file in `pins/`), and its command with placeholders for the data."""

    name: str
    environment: str
    command: tuple[str, ...]


_NODE = "{home}/node_modules/@modelcontextprotocol/{package}/dist/index.js"
SERVERS: Mapping[str, AgentServer] = {
    server.name: server
    for server in (
        AgentServer(
            OURS,
            "",
            (
                sys.executable, "-m", "wharfinger", "serve", "--allow-query", "git:{root}/shop",
                "shopdb=sqlite:///{root}/shop.db", "log:{root}/logs/*.log", "{root}/code", "pgshop={postgres}",
            ),
        ),
        AgentServer("server-filesystem", "agent_js", (
            "node", _NODE.replace("{package}", "server-filesystem"), "{root}/code", "{root}/logs",
        )),
        AgentServer("mcp-server-git", "agent_git", ("mcp-server-git", "--repository", "{root}/shop")),
        AgentServer("mcp-server-sqlite", "agent_sqlite", ("mcp-server-sqlite", "--db-path", "{root}/shop.db")),
        AgentServer("server-postgres", "agent_js", (
            "node", _NODE.replace("{package}", "server-postgres"), "{postgres_at_host}",
        )),
    )
}  # fmt: skip


def build(server: AgentServer) -> None:
    """Build the environment of a server.

    Raises:
        SetupFailed: it cannot be built.
    """
    if server.environment:
        environments.build(server.environment)


def client_of(server: AgentServer, data: Dataset) -> Client:
    """Return a client that starts the server over stdio."""
    home = environments.HOME / server.environment
    # The URL of a socket has its folder in the query and no host, which parsers by WHATWG refuse.
    at_host = data.postgres.replace("@/", "@localhost/")
    values = {"root": data.root, "home": home, "postgres": data.postgres, "postgres_at_host": at_host}
    words = [word.format(**values) for word in server.command]
    words = [word for word in words if not word.endswith("=")]
    if words[0] == "node":
        words[0] = environments.tool("node")
    elif server.environment:
        words[0] = str(environments.script(server.environment, words[0]))
    return Client(words, env={**os.environ, "XDG_CACHE_HOME": str(data.root / "cache")}, stderr=lambda line: None)


class AnsweredCall(NamedTuple):
    """One call, and the tokens of its answer."""

    tool: str
    arguments: Mapping[str, Any]
    tokens: int


class Transcript:
    """Calls tools and counts tokens. A caller gets only texts, as a model does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.calls: list[AnsweredCall] = []

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool. Returns the text of its answer, or of its error, which models see too."""
        try:
            result: Any = await self._client.call_tool(tool, arguments)
        except ToolError as error:
            result = error.result
        text = text_of(result.content)
        self.calls.append(AnsweredCall(tool, arguments, tokens(text)))
        return text

    @property
    def tokens(self) -> int:
        """The tokens of all answers."""
        return sum(call.tokens for call in self.calls)

    @property
    def largest(self) -> int:
        """The tokens of the largest answer."""
        return max((call.tokens for call in self.calls), default=0)


def text_of(content: Sequence[t.ContentBlock]) -> str:
    """Return an answer as a model sees it: text blocks unchanged, and other blocks as JSON."""
    return "\n".join(
        block.text if isinstance(block, t.TextContent) else msgspec.json.encode(block).decode() for block in content
    )
