"""A local model endpoint with scripted answers in the formats of the three model APIs.

It streams one piece at a time, so that a test can check what is shown before the answer ends.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

__all__ = ["Call", "Endpoint", "Hold", "Raw", "Refusal", "TokenLimit", "endpoint"]

WAIT_SECONDS = 60.0


@dataclass
class Call:
    """A tool call of the model. If `text` is set, it is sent in place of the JSON of `arguments`."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = "call-1"
    text: str | None = None

    @property
    def json(self) -> str:
        return json.dumps(self.arguments) if self.text is None else self.text


@dataclass
class Hold:
    """A pause of the stream until the test calls `release`. `reached` is set when the pause begins."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    disconnected: threading.Event = field(default_factory=threading.Event)
    """Set when the client closes the connection during the pause."""

    def release(self) -> None:
        self.released.set()


@dataclass
class Raw:
    """Bytes that are streamed unchanged."""

    data: bytes


@dataclass
class Refusal:
    """An error response with an HTTP status and a message, or with the bytes of a whole body."""

    status: int
    message: str | bytes = "no"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class TokenLimit:
    """The end of an answer that has reached its token limit. It is the last step."""


Step = str | Call | Hold | Raw | Refusal | TokenLimit


class Endpoint:
    """A model endpoint that answers each request with the next list of steps in `script`, and records the requests."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.script: list[list[Step]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.url = ""

    def answer(self, *steps: Step) -> None:
        """Answer the next request with these steps."""
        self.script.append(list(steps))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that select this endpoint and its model."""
        return {
            "openai": {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": "sk-test-0123456789abcdef"},
            "anthropic": {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdef"},
            "ollama": {"OLLAMA_HOST": self.url},
        }[self.api] | {"WHARFINGER_MODEL": self.model}

    @property
    def model(self) -> str:
        return f"{self.api}/scripted-1"

    @property
    def path(self) -> str:
        return {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}[self.api]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.path == self.path
        self.times.append(asyncio.get_running_loop().time())
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        steps = self.script.pop(0) if self.script else ["The script has ended."]
        if steps and isinstance(steps[0], Refusal):
            status, message, headers = steps[0].status, steps[0].message, steps[0].headers
            if isinstance(message, bytes):
                return web.Response(body=message, status=status, headers=headers)
            return web.json_response(self.error(message), status=status, headers=headers)
        content_type = "application/x-ndjson" if self.api == "ollama" else "text/event-stream"
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        for piece in self.pieces(steps):
            if isinstance(piece, Hold):
                piece.reached.set()
                try:
                    await asyncio.get_running_loop().run_in_executor(None, piece.released.wait, WAIT_SECONDS)
                except asyncio.CancelledError:
                    piece.disconnected.set()
                    piece.release()
                    raise
            else:
                await response.write(piece)
        return response

    def error(self, message: str) -> Any:
        if self.api == "openai":
            return {"error": {"message": message, "type": "invalid_request_error", "code": None}}
        return {"error": message} if self.api == "ollama" else {"type": "error", "error": {"message": message}}

    def pieces(self, steps: list[Step]) -> Iterator[bytes | Hold]:
        """Yield the bytes of a stream in the documented format of the API."""
        return {"openai": openai, "anthropic": anthropic, "ollama": ollama}[self.api](steps)

    @property
    def last_texts(self) -> str:
        """The JSON text of the last request."""
        return json.dumps(self.requests[-1], ensure_ascii=False)


def event(data: object, name: str = "") -> bytes:
    prefix = f"event: {name}\n" if name else ""
    return f"{prefix}data: {json.dumps(data)}\n\n".encode()


def openai(steps: list[Step]) -> Iterator[bytes | Hold]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return event({"id": "c1", "object": "chat.completion.chunk", "model": "scripted-1", "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for step in steps:
        if isinstance(step, Hold):
            yield step
        elif isinstance(step, Raw):
            yield step.data
        elif isinstance(step, Call):
            function = {"name": step.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": calls, "id": step.id, "type": "function", "function": function}]})
            for start in range(0, len(step.json), 5):
                piece = {"arguments": step.json[start : start + 5]}
                yield chunk({"tool_calls": [{"index": calls, "function": piece}]})
            calls += 1
        elif isinstance(step, str):
            yield chunk({"content": step})
    cut = isinstance(steps[-1], TokenLimit)
    yield chunk({}, "length" if cut else "tool_calls" if calls else "stop")
    yield event({"choices": [], "model": "scripted-1", "usage": {"prompt_tokens": 100, "completion_tokens": 7}})
    yield b"data: [DONE]\n\n"


def anthropic(steps: list[Step]) -> Iterator[bytes | Hold]:
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "scripted-1", "content": [],
               "usage": {"input_tokens": 100, "output_tokens": 1}}  # fmt: skip
    yield event({"type": "message_start", "message": message}, "message_start")
    yield event({"type": "ping"}, "ping")
    index, calls = 0, 0
    for step in steps:
        if isinstance(step, Hold):
            yield step
            continue
        if isinstance(step, Raw):
            yield step.data
            continue
        if isinstance(step, TokenLimit):
            continue
        if isinstance(step, Call):
            block: dict[str, Any] = {"type": "tool_use", "id": step.id, "name": step.name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": step.json[start : start + 5]}
                      for start in range(0, len(step.json), 5)]  # fmt: skip
            calls += 1
        else:
            assert isinstance(step, str)
            block = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": step}]
        yield event({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start")
        for delta in deltas:
            yield event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield event({"type": "content_block_stop", "index": index}, "content_block_stop")
        index += 1
    cut = isinstance(steps[-1], TokenLimit)
    delta = {"stop_reason": "max_tokens" if cut else "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


def ollama(steps: list[Step]) -> Iterator[bytes | Hold]:
    def line(message: dict[str, Any], **fields: Any) -> bytes:
        chunk = {"model": "scripted-1", "message": {"role": "assistant", "content": "", **message}, "done": False}
        return json.dumps({**chunk, **fields}).encode() + b"\n"

    for step in steps:
        if isinstance(step, Hold):
            yield step
        elif isinstance(step, Raw):
            yield step.data
        elif isinstance(step, Call):
            yield line({"tool_calls": [{"function": {"name": step.name, "arguments": step.arguments}}]})
        elif isinstance(step, str):
            yield line({"content": step})
    reason = "length" if isinstance(steps[-1], TokenLimit) else "stop"
    yield line({}, done=True, done_reason=reason, prompt_eval_count=100, eval_count=7)


@contextmanager
def endpoint(api: str) -> Iterator[Endpoint]:
    """Run an endpoint on its own thread."""
    scripted = Endpoint(api)
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", scripted.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(WAIT_SECONDS)
    try:
        yield scripted
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(WAIT_SECONDS)
        loop.close()
