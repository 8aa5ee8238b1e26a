"""A chat-completions endpoint on loopback with the model of peers/scripted.py.

It refuses the same invalid messages as OpenAI's endpoint, with the status 400.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.interop.peers import scripted

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class InvalidRequest(Exception):
    """A request that OpenAI answers with 400."""


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message. Parts of other kinds are allowed only in user messages."""
    content = message["content"]
    if isinstance(content, str):
        return content
    kinds = {part["type"] for part in content} - {"text"}
    if kinds and message["role"] != "user":
        raise InvalidRequest(
            f"Invalid content of a {message['role']} message: parts of type {sorted(kinds)}, not 'text'"
        )
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def tool_results(messages: list[dict[str, Any]]) -> list[str]:
    """Return the text of each call's result, in order. Raises InvalidRequest for messages in a wrong order."""
    call_ids: list[str] = []
    results: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] != call_ids[len(results)]:
                raise InvalidRequest(f"tool_call_id {message['tool_call_id']} does not answer the call before it")
            results.append(text_of(message))
        elif message["role"] == "assistant":
            call_ids += [call["id"] for call in message.get("tool_calls") or []]
        if message["role"] != "assistant" and len(results) < len(call_ids) and message["role"] != "tool":
            raise InvalidRequest("An assistant message with 'tool_calls' must be followed by tool messages")
    return results


def complete(request: dict[str, Any]) -> dict[str, Any]:
    """Return the assistant's message."""
    functions = [tool["function"] for tool in request.get("tools") or []]
    for function in functions:
        if not NAME.fullmatch(function["name"]):
            raise InvalidRequest(f"Invalid name of a function: {function['name']!r}")
        if function.get("parameters", {"type": "object"}).get("type") != "object":
            raise InvalidRequest(f"Invalid schema for function {function['name']!r}: its type must be 'object'")
    messages = request["messages"]
    results = tool_results(messages)
    prompt = text_of(next(message for message in messages if message["role"] == "user"))
    kind, tool_or_text, arguments = scripted.next_step(prompt, results, [function["name"] for function in functions])
    if kind == "say":
        return {"role": "assistant", "content": tool_or_text}
    function = {"name": tool_or_text, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{len(results)}", "type": "function", "function": function}],
    }


class Handler(BaseHTTPRequestHandler):
    """Answers `POST …/chat/completions`, as one response or as a stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            message = complete(request)
        except (InvalidRequest, LookupError) as error:
            reported = {"error": {"message": str(error), "type": "invalid_request_error", "param": None, "code": None}}
            self.send(400, "application/json", json.dumps(reported))
            return
        finish = "tool_calls" if "tool_calls" in message else "stop"
        head = {"id": "chat-1", "created": 1, "model": request["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self.send(200, "application/json", json.dumps(body))
            return
        calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls", []))]
        delta = {**message, "tool_calls": calls} if calls else message
        choices = (
            [{"index": 0, "delta": delta, "finish_reason": None}],
            [{"index": 0, "delta": {}, "finish_reason": finish}],
        )
        chunks = [{**head, "object": "chat.completion.chunk", "choices": choice} for choice in choices]
        events = [json.dumps(chunk) for chunk in [*chunks, {**chunks[-1], "choices": [], "usage": usage}]]
        self.send(200, "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]))

    def send(self, status: int, content_type: str, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def run_model() -> Iterator[str]:
    """Run the model until the end of the block. Yields its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
