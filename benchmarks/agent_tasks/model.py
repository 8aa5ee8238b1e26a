"""A model answers questions through the tools of each server: how many answers are right, and what they cost.

The model is one of any endpoint that has OpenAI's `POST /chat/completions` with tools:

OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=… WHARFINGER_MODEL=name python benchmarks/agent_tasks/run.py

One conversation for each question: the tools as the server lists them, and the question. Tokens are those that the
endpoint reports, or else estimates of four characters.
"""

from __future__ import annotations

import asyncio
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from benchmarks.agent_tasks.dataset import Dataset
from benchmarks.agent_tasks.questions import Question, questions
from benchmarks.agent_tasks.transcript import SERVERS, Transcript, client_of
from wharfinger import types as t
from wharfinger.cli.doctor.survey import tokens

__all__ = ["Endpoint", "ModelAnswer", "answer", "report"]

TURNS = 15
"""Answers of the model in one conversation."""
LONGEST_RESULT = 400_000
"""Characters of a tool's result that the model gets; more would be refused by most endpoints."""
SECONDS = 300.0
TODAY = "Today is 2026-11-20. Answer from the tools alone, in one sentence."


class Endpoint(NamedTuple):
    """An endpoint that speaks OpenAI's chat completions."""

    url: str
    key: str
    model: str

    @classmethod
    def from_environment(cls) -> Endpoint:
        """The endpoint that the environment names."""
        url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        return cls(url.rstrip("/"), os.environ.get("OPENAI_API_KEY", ""), os.environ["WHARFINGER_MODEL"])

    async def complete(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The next message of the model, and the usage, as the endpoint returns them.

        Raises:
            SystemExit: the endpoint refuses; the message says what it said.
        """
        body = msgspec.json.encode({"model": self.model, "messages": messages, "tools": tools})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.url}/chat/completions", body, headers)

        def post() -> bytes:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return bytes(response.read())

        try:
            found: dict[str, Any] = msgspec.json.decode(await asyncio.to_thread(post))
        except urllib.error.HTTPError as error:
            raise SystemExit(
                f"{self.url} answers {error.code}: {error.read()[:500].decode(errors='replace')}"
            ) from None
        except OSError as error:
            raise SystemExit(f"{self.url} cannot be reached: {error}") from None
        return found


class ModelAnswer(NamedTuple):
    """What a model answered, the calls that it made, and all tokens that it read and wrote."""

    text: str
    calls: int
    tokens: int


async def answer(
    endpoint: Endpoint, transcript: Transcript, tools: Sequence[dict[str, Any]], asked: str
) -> ModelAnswer:
    """Let a model answer one question with tools."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": TODAY}, {"role": "user", "content": asked}]
    used = 0
    for _ in range(TURNS):
        found = await endpoint.complete(messages, tools)
        message = found["choices"][0]["message"]
        used += (found.get("usage") or {}).get("total_tokens") or tokens(
            msgspec.json.encode([messages, found]).decode()
        )
        wanted = message.get("tool_calls") or []
        messages.append({name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)})
        if not wanted:
            return ModelAnswer(message.get("content") or "", len(transcript.calls), used)
        for call in wanted:
            result = await _run(transcript, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result[:LONGEST_RESULT]})
    return ModelAnswer("", len(transcript.calls), used)


async def _run(transcript: Transcript, function: dict[str, Any]) -> str:
    """The text of the result of a call that the model wants; what is wrong with it, if it is none."""
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        return f"The arguments are not a JSON object: {error}"
    try:
        return await transcript.call(function["name"], **arguments)
    except Exception as error:  # a model can go on after whatever a server makes of its call
        return f"{type(error).__name__}: {error}"


async def ask_server(
    endpoint: Endpoint, name: str, data: Dataset, asked: Iterable[Question]
) -> list[tuple[bool, ModelAnswer]]:
    """Answer questions through one server, each in a conversation of its own; whether each answer is right."""
    outcomes: list[tuple[bool, ModelAnswer]] = []
    async with client_of(SERVERS[name], data) as client:
        tools = [_function(tool) for tool in await client.list_tools()]
        for question in asked:
            said = await answer(endpoint, Transcript(client), tools, question.text)
            outcomes.append((question.is_right(said.text), said))
    return outcomes


def _function(tool: t.Tool) -> dict[str, Any]:
    """A tool as OpenAI's endpoints want it."""
    said = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": said}


async def report(data: Dataset, servers: Sequence[str]) -> str:
    """A table: for each server how many of its questions were answered rightly, and calls and tokens of each."""
    endpoint = Endpoint.from_environment()
    lines = ["", f"| {endpoint.model} through | right | of | calls each | tokens each |", "|---|---:|---:|---:|---:|"]
    for name in servers:
        asked = [question for question in questions(data, _databases(servers)) if name in question.servers]
        outcomes = await ask_server(endpoint, name, data, asked)
        number = max(1, len(outcomes))
        right = sum(is_right for is_right, _ in outcomes)
        calls = sum(said.calls for _, said in outcomes) / number
        used = sum(said.tokens for _, said in outcomes) / number
        lines.append(f"| {name} | {right} | {len(outcomes)} | {calls:.1f} | {used:,.0f} |")
    return "\n".join(lines)


def _databases(servers: Sequence[str]) -> list[str]:
    """The servers that are asked about the database."""
    return ["wharfinger", *[name for name in servers if name in ("mcp-server-sqlite", "server-postgres")]]
