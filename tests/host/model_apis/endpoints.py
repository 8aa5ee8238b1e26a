"""Stubs of the four model APIs: they refuse (400) requests that the real APIs refuse, and answer with scripted calls.

The script is a list of steps. A step is a list of tool calls, `[(name, arguments), …]`, or the text of the last answer.
The accepted requests are recorded.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tests.host.model_apis.checkers import message_faults, tool_faults

Step = list[tuple[str, Any]] | str
Object = dict[str, Any]


class Endpoint:
    """The handlers of the four APIs, which share one script."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.requests: list[Object] = []
        self.url = ""

    def next_step(self, format: str, request: Object, tools: list[Object], messages: list[Object]) -> Step:
        """Return the next step, or raise HTTPBadRequest for a request that the API refuses."""
        faults = [*tool_faults(format, tools), *message_faults(format, messages)]
        if faults:
            raise web.HTTPBadRequest(
                text=json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": faults[0]}}),
                content_type="application/json",
            )
        self.requests.append(request)
        return self.steps[len(self.requests) - 1]

    async def chat(self, http: web.Request) -> web.StreamResponse:
        request = await http.json()
        step = self.next_step("openai", request, request.get("tools", []), request["messages"])
        message: Object = {"role": "assistant", "content": step if isinstance(step, str) else None}
        if not isinstance(step, str):
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": encode_arguments(arguments)},
                }
                for n, (name, arguments) in enumerate(step)
            ]
        head = {"id": "c", "created": 1, "model": "m"}
        finish = "stop" if isinstance(step, str) else "tool_calls"
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice]})
        deltas: list[Object] = [{"role": "assistant", "content": message["content"]}]
        for n, call in enumerate(message.get("tool_calls", [])):
            text = call["function"]["arguments"]
            deltas.append({"tool_calls": [{**call, "index": n, "function": {**call["function"], "arguments": ""}}]})
            for piece in (text[:5], text[5:]):
                deltas.append({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
        events = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": d}]} for d in deltas]
        return await stream_events(http, [(None, event) for event in events], done=True)

    async def responses(self, http: web.Request) -> web.StreamResponse:
        request = await http.json()
        step = self.next_step("openai-responses", request, request.get("tools", []), input_items(request["input"]))
        output: list[Object]
        if isinstance(step, str):
            content = [{"type": "output_text", "text": step, "annotations": []}]
            output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}]
        else:
            output = [{"type": "reasoning", "id": "r", "summary": []}]
            output += [
                {
                    "type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "status": "completed",
                    "name": name, "arguments": encode_arguments(arguments),
                }
                for n, (name, arguments) in enumerate(step)
            ]  # fmt: skip
        response = {
            "id": "resp", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": output,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        if not request.get("stream"):
            return web.json_response(response)
        events: list[Object] = []
        for n, item in enumerate(output):
            pending = {**item, "arguments": ""} if "arguments" in item else item
            events.append({"type": "response.output_item.added", "output_index": n, "item": pending})
            if "arguments" in item:
                delta = {"output_index": n, "item_id": item["id"], "delta": item["arguments"]}
                events.append({"type": "response.function_call_arguments.delta", **delta})
            events.append({"type": "response.output_item.done", "output_index": n, "item": item})
        events.append({"type": "response.completed", "response": response})
        numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
        return await stream_events(http, [(str(event["type"]), event) for event in numbered])

    async def anthropic(self, http: web.Request) -> web.StreamResponse:
        request = await http.json()
        step = self.next_step("anthropic", request, request.get("tools", []), request["messages"])
        blocks: list[Object] = [{"type": "text", "text": step if isinstance(step, str) else "Let me look."}]
        if not isinstance(step, str):
            blocks += [
                {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": arguments}
                for n, (name, arguments) in enumerate(step)
            ]
        message: Object = {
            "id": "msg", "type": "message", "role": "assistant", "model": "m", "content": blocks,
            "stop_reason": "end_turn" if isinstance(step, str) else "tool_use", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        if not request.get("stream"):
            return web.json_response(message)
        events: list[Object] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
        for n, block in enumerate(blocks):
            if block["type"] == "text":
                empty, pieces = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
            else:
                text = json.dumps(block["input"])
                empty = {**block, "input": {}}
                pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", text[:4], text[4:])]
            events.append({"type": "content_block_start", "index": n, "content_block": empty})
            events += [{"type": "content_block_delta", "index": n, "delta": piece} for piece in pieces]
            events.append({"type": "content_block_stop", "index": n})
        final_delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": final_delta, "usage": {"output_tokens": 1}})
        events.append({"type": "message_stop"})
        return await stream_events(http, [(str(event["type"]), event) for event in events])

    async def gemini(self, http: web.Request) -> web.StreamResponse:
        request = camel_case(await http.json())
        step = self.next_step("gemini", request, request.get("tools", []), request["contents"])
        parts: list[Object] = [{"text": step if isinstance(step, str) else "Let me look."}]
        if not isinstance(step, str):
            parts += [
                {"functionCall": {"id": f"f{n}", "name": name, "args": arguments}, "thoughtSignature": "c2ln"}
                for n, (name, arguments) in enumerate(step)
            ]

        def answer(parts: list[Object]) -> Object:
            return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "responseId": "r"}

        if http.path.endswith(":streamGenerateContent"):
            return await stream_events(http, [(None, answer([part])) for part in parts])
        return web.json_response(answer(parts))


def camel_case(value: Any) -> Any:
    """Return the value with field names in camel case, because protocol buffers also accept snake case."""
    if isinstance(value, list):
        return [camel_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {re.sub("_([a-z])", lambda match: match[1].upper(), name): member for name, member in value.items()}
    unchanged = ("parametersJsonSchema", "args", "response")
    return {name: member if name in unchanged else camel_case(member) for name, member in renamed.items()}


def encode_arguments(arguments: Any) -> str:
    """Return the arguments as JSON. A string is returned unchanged, to imitate a model that writes invalid JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def input_items(value: Any) -> list[Object]:
    return [] if isinstance(value, str) else value


async def stream_events(
    http: web.Request, events: list[tuple[str | None, Object]], *, done: bool = False
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(http)
    for name, event in events:
        prefix = f"event: {name}\n" if name else ""
        await response.write(f"{prefix}data: {json.dumps(event)}\n\n".encode())
    if done:
        await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


@contextlib.asynccontextmanager
async def serve(steps: list[Step]) -> AsyncIterator[Endpoint]:
    """Serve the four APIs at `Endpoint.url`."""
    endpoint = Endpoint(steps)
    app = web.Application(client_max_size=100 << 20)
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    app.router.add_post("/v1/responses", endpoint.responses)
    app.router.add_post("/v1/messages", endpoint.anthropic)
    for version in ("v1", "v1beta"):
        app.router.add_post(f"/{version}/models/{{call}}", endpoint.gemini)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
