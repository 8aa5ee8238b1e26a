"""A client of any revision that answers the server's input requests, and records them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.server.driving import META, STATELESS, Wire
from wharfinger.server.app import Server

EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
Answer = dict[str, Any] | Callable[[Any], Any]


class Rejected(Exception):
    """An answer that is a JSON-RPC error."""

    def __init__(self, code: int, message: str = "no") -> None:
        self.error = {"code": code, "message": message}


def accepted(**content: Any) -> dict[str, Any]:
    """Return the answer of a user who accepts the form and fills in these fields."""
    return {"action": "accept", "content": content}


def model_answer(text: str = "Paris") -> dict[str, Any]:
    """Return a model's answer to a sampling request."""
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": "endTurn"}


ROOTS = {"roots": [{"uri": "file:///home", "name": "Home"}]}


class FakeClient:
    """One client of one revision. `answer` returns the answer to a request `{"method": …, "params": …, "key": …}`."""

    def __init__(
        self,
        server: Server,
        revision: str = STATELESS,
        answer: Callable[[Any], Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        principal: str = "",
    ) -> None:
        self.revision = revision
        self.answer = answer or (lambda input_request: accepted())
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.wire = Wire(server, revision, principal)
        self.input_requests: list[Any] = []
        self.rounds = 0

    async def __aenter__(self) -> FakeClient:
        if self.revision != STATELESS:
            hello = {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "clientInfo": {"name": "t", "version": "1"},
            }
            await self.wire.ask("initialize", hello)
            self.wire.notify("notifications/initialized")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wire.__aexit__()

    @property
    def sent(self) -> list[Any]:
        """Notifications of the server, without its requests."""
        return [notice for notice in self.wire.notices if "id" not in notice]

    def meta(self, meta: dict[str, Any] | None = None) -> dict[str, Any]:
        own = {f"{META}clientCapabilities": self.capabilities} if self.revision == STATELESS else {}
        return own | (meta or {})

    async def raw(self, method: str, params: dict[str, Any]) -> Any:
        """Send one request and return its answer, which may be an `input_required` result (stateless era)."""
        return await self.wire.ask(method, {**params, "_meta": self.meta(params.get("_meta"))})

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, answer its input requests, and return its outcome: `{"result": …}` or `{"error": …}`."""
        if self.revision != STATELESS:
            waiting = asyncio.ensure_future(self.raw(method, params))
            done = len(self.wire.notices)
            while not waiting.done():
                arrived = asyncio.ensure_future(self.wire.notice(done + 1))
                await asyncio.wait((waiting, arrived), return_when=asyncio.FIRST_COMPLETED)
                arrived.cancel()
                for notice in self.wire.notices[done:]:
                    done += 1
                    if "id" in notice:
                        self.reply(notice)
            return await waiting
        more: dict[str, Any] = {}
        while True:
            reply = await self.raw(method, {**params, **more})
            self.rounds += 1
            if reply.get("result", {}).get("resultType") != "input_required":
                return reply
            more = self.answers(reply["result"])

    def answers(self, result: Any) -> dict[str, Any]:
        """Return the params with which a stateless request is repeated."""
        responses = {}
        for key, input_request in result["inputRequests"].items():
            self.input_requests.append(input_request)
            try:
                responses[key] = self.answer({**input_request, "key": key})
            except Rejected:
                continue
        more: dict[str, Any] = {"inputResponses": responses}
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        return more

    def reply(self, input_request: Any) -> None:
        """Answer one input request of the handshake era."""
        self.input_requests.append({"method": input_request["method"], "params": input_request["params"]})
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": input_request["id"]}
        try:
            message["result"] = self.answer({**input_request, "key": ""})
        except Rejected as rejected:
            message["error"] = rejected.error
        self.wire.stream.data_received(json.dumps(message).encode() + b"\n")

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a tool until its end, and return the result or the error."""
        reply = await self.request("tools/call", {"name": name, "arguments": arguments})
        return reply.get("result", reply.get("error"))

    async def text(self, name: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        result = await self.call(name, **arguments)
        return str(result["content"][0]["text"]) if "content" in result else str(result)
