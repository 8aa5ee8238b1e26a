"""Lets a model answer questions with the tools of each server, and counts the right answers and their tokens.

Any endpoint works that has OpenAI's `POST /chat/completions` with tools:

OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=… WHARFINGER_MODEL=name python benchmarks/agent_tasks/run.py

Each question is a new conversation: the tools as the server lists them, and the question. Tokens are those that the
endpoint reports, or estimates of four characters each.
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
from benchmarks.agent_tasks.transcript import OURS, SERVERS, Transcript, client_of
from wharfinger import types as t
from wharfinger.cli.doctor.survey import tokens

__all__ = ["Endpoint", "ModelAnswer", "answer", "report"]

MAX_TURNS = 15
"""The maximum number of messages of the model in one conversation."""
MAX_RESULT_CHARACTERS = 400_000
"""The maximum number of characters of a tool's result. Most endpoints would refuse longer ones."""
REQUEST_SECONDS = 300.0
INSTRUCTIONS = "Today is 2026-11-20. Answer from the tools alone, in one sentence."


class Endpoint(NamedTuple):
    """An endpoint that speaks OpenAI's chat completions."""

    url: str
    key: str
    model: str

    @classmethod
    def from_environment(cls) -> Endpoint:
        """Return the endpoint that the environment variables name."""
        url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        return cls(url.rstrip("/"), os.environ.get("OPENAI_API_KEY", ""), os.environ["WHARFINGER_MODEL"])

    async def complete(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the response of the endpoint, with the model's next message and the usage.

        Raises:
            SystemExit: the endpoint cannot be reached, or refuses.
        """
        body = msgspec.json.encode({"model": self.model, "messages": messages, "tools": tools})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{self.url}/chat/completions", body, headers)

        def post() -> bytes:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as stream:
                return bytes(stream.read())

        try:
            response: dict[str, Any] = msgspec.json.decode(await asyncio.to_thread(post))
        except urllib.error.HTTPError as error:
            raise SystemExit(
                f"{self.url} answers {error.code}: {error.read()[:500].decode(errors='replace')}"
            ) from None
        except OSError as error:
            raise SystemExit(f"{self.url} cannot be reached: {error}") from None
        return response


class ModelAnswer(NamedTuple):
    """The answer of a model, the number of its calls, and the tokens that it read and wrote."""

    text: str
    calls: int
    tokens: int


async def answer(
    endpoint: Endpoint, transcript: Transcript, tools: Sequence[dict[str, Any]], question: str
) -> ModelAnswer:
    """Let a model answer one question with tools."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": question},
    ]
    used = 0
    for _ in range(MAX_TURNS):
        response = await endpoint.complete(messages, tools)
        message = response["choices"][0]["message"]
        used += (response.get("usage") or {}).get("total_tokens") or tokens(
            msgspec.json.encode([messages, response]).decode()
        )
        calls = message.get("tool_calls") or []
        messages.append({name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)})
        if not calls:
            return ModelAnswer(message.get("content") or "", len(transcript.calls), used)
        for call in calls:
            result = await _run(transcript, call["function"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result[:MAX_RESULT_CHARACTERS]})
    return ModelAnswer("", len(transcript.calls), used)


async def _run(transcript: Transcript, function: dict[str, Any]) -> str:
    """Return the text of the result of a call by the model, or of the error."""
    try:
        arguments = msgspec.json.decode(function.get("arguments") or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        return f"The arguments are not a JSON object: {error}"
    try:
        return await transcript.call(function["name"], **arguments)
    except Exception as error:  # the model sees the error and can continue
        return f"{type(error).__name__}: {error}"


async def ask_server(
    endpoint: Endpoint, name: str, data: Dataset, asked: Iterable[Question]
) -> list[tuple[bool, ModelAnswer]]:
    """Answer questions through one server, each in a new conversation. Returns for each whether it is right."""
    outcomes: list[tuple[bool, ModelAnswer]] = []
    async with client_of(SERVERS[name], data) as client:
        tools = [_function(tool) for tool in await client.list_tools()]
        for question in asked:
            reply = await answer(endpoint, Transcript(client), tools, question.text)
            outcomes.append((question.is_right(reply.text), reply))
    return outcomes


def _function(tool: t.Tool) -> dict[str, Any]:
    """Return a tool in the format of OpenAI's endpoints."""
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


async def report(data: Dataset, servers: Sequence[str]) -> str:
    """Return a table: the right answers through each server, and the mean calls and tokens for a question."""
    endpoint = Endpoint.from_environment()
    lines = ["", f"| {endpoint.model} through | right | of | calls each | tokens each |", "|---|---:|---:|---:|---:|"]
    for name in servers:
        asked = [question for question in questions(data, _databases(servers)) if name in question.servers]
        outcomes = await ask_server(endpoint, name, data, asked)
        number = max(1, len(outcomes))
        right = sum(is_right for is_right, _ in outcomes)
        calls = sum(reply.calls for _, reply in outcomes) / number
        used = sum(reply.tokens for _, reply in outcomes) / number
        lines.append(f"| {name} | {right} | {len(outcomes)} | {calls:.1f} | {used:,.0f} |")
    return "\n".join(lines)


def _databases(servers: Sequence[str]) -> list[str]:
    """Return the servers that get the questions about the database."""
    return [OURS, *[name for name in servers if name in ("mcp-server-sqlite", "server-postgres")]]
