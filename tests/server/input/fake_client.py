"""A client of any revision that answers the server's input requests, and records them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.server.driving import META, STATELESS, Wire
from wharfinger.server.app import Server

ALL_CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
Answer = dict[str, Any] | Callable[[Any], Any]


class ErrorResponse(Exception):
    """The client answers with a JSON-RPC error."""

    def __init__(self, code: int, message: str = "no") -> None:
        self.error = {"code": code, "message": message}


def accept(**content: Any) -> dict[str, Any]:
    """Return the answer of a user who accepts the form and fills in these fields."""
    return {"action": "accept", "content": content}


def model_answer(text: str = "Paris") -> dict[str, Any]:
    """Return a model's answer to a sampling request."""
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": "endTurn"}


ROOTS = {"roots": [{"uri": "file:///home", "name": "Home"}]}


class FakeClient:
    """A client that answers an input request, `{"method": …, "params": …, "key": …}`, with the result of `answer`."""

    def __init__(
        self,
        server: Server,
        revision: str = STATELESS,
        answer: Callable[[Any], Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        principal: str = "",
    ) -> None:
        self.revision = revision
        self.answer = answer or (lambda input_request: accept())
        self.capabilities = ALL_CAPABILITIES if capabilities is None else capabilities
        self.wire = Wire(server, revision, principal)
        self.input_requests: list[Any] = []
        self.rounds = 0

    async def __aenter__(self) -> FakeClient:
        if self.revision != STATELESS:
            initialize_params = {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "clientInfo": {"name": "t", "version": "1"},
            }
            await self.wire.ask("initialize", initialize_params)
            self.wire.notify("notifications/initialized")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wire.__aexit__()

    @property
    def notifications(self) -> list[Any]:
        """Notifications from the server, without its requests."""
        return [message for message in self.wire.notifications if "id" not in message]

    def meta(self, meta: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return this `_meta` with the capabilities, which a stateless request declares."""
        declared = {f"{META}clientCapabilities": self.capabilities} if self.revision == STATELESS else {}
        return declared | (meta or {})

    async def send(self, method: str, params: dict[str, Any]) -> Any:
        """Send one request and return its answer: in the stateless era, it may be an `input_required` result."""
        return await self.wire.ask(method, {**params, "_meta": self.meta(params.get("_meta"))})

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, answer its input requests, and return its response, with `result` or `error`."""
        if self.revision != STATELESS:
            response = asyncio.ensure_future(self.send(method, params))
            handled = len(self.wire.notifications)
            while not response.done():
                next_message = asyncio.ensure_future(self.wire.wait_for_notifications(handled + 1))
                await asyncio.wait((response, next_message), return_when=asyncio.FIRST_COMPLETED)
                next_message.cancel()
                for message in self.wire.notifications[handled:]:
                    handled += 1
                    if "id" in message:
                        self.answer_in_session(message)
            return await response
        retry_params: dict[str, Any] = {}
        while True:
            reply = await self.send(method, {**params, **retry_params})
            self.rounds += 1
            if reply.get("result", {}).get("resultType") != "input_required":
                return reply
            retry_params = self.answer_all(reply["result"])

    def answer_all(self, result: Any) -> dict[str, Any]:
        """Answer the input requests of a stateless result, and return the params to repeat the request with."""
        responses = {}
        for key, input_request in result["inputRequests"].items():
            self.input_requests.append(input_request)
            try:
                responses[key] = self.answer({**input_request, "key": key})
            except ErrorResponse:
                continue
        params: dict[str, Any] = {"inputResponses": responses}
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        return params

    def answer_in_session(self, input_request: Any) -> None:
        """Answer one input request of the handshake era."""
        self.input_requests.append({"method": input_request["method"], "params": input_request["params"]})
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": input_request["id"]}
        try:
            message["result"] = self.answer({**input_request, "key": ""})
        except ErrorResponse as error:
            message["error"] = error.error
        self.wire.stream.data_received(json.dumps(message).encode() + b"\n")

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool, answer its input requests, and return the result or the error."""
        reply = await self.request("tools/call", {"name": name, "arguments": arguments})
        return reply.get("result", reply.get("error"))

    async def text(self, name: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        result = await self.call(name, **arguments)
        return str(result["content"][0]["text"]) if "content" in result else str(result)
