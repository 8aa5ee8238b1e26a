"""One call made in both eras, with what differs between them; needs no transport, and knows no test framework.

In the handshake era a question waits in place, in the stateless era the function runs again with the answer. What it
does before a question then happens twice, unless it is in `ctx.once`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.request import Request, input_needed, open_request
from wharfinger.protocol.revisions import HANDSHAKE, STATELESS
from wharfinger.server import Server
from wharfinger.testing.client_answers import Answers, answer_to, question_of
from wharfinger.testing.differences import Differs

__all__ = ["rehearse"]

_META = "io.modelcontextprotocol/"
_EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


async def rehearse(
    server: Server,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    answers: Answers = {},  # noqa: B006  # read only
    effects: Callable[[], Any] | None = None,
    reset: Callable[[], Any] | None = None,
    principal: str = "",
) -> t.CallToolResult:
    """Call a tool twice, once in each era, and return its result.

    `effects` gives what the tool has changed, such as the number of rows in a table or a copy of a log; it is called
    before and after each of the two calls. `reset` is called before each of them, to put everything back. The server is
    started where it was not, and stays so.

    Raises:
        Differs: the questions, the results, or the effects are not the same; the message says how.
        KeyError: a question has no answer.
        ProtocolError: the call failed as a whole.
    """
    await server.start()
    runs = [_Run(server, revision, answers, principal) for revision in (HANDSHAKE[0], STATELESS[0])]
    for run in runs:
        if reset is not None:
            reset()
        before = effects() if effects else None
        run.result = await run.call(tool, dict(arguments or {}))
        run.effects = _change(before, effects() if effects else None)
    waits, again = runs
    differing = [
        f"{what} where it waits: {one!r}; where it runs again: {other!r}"
        for what, one, other in (
            ("asked", waits.asked, again.asked),
            ("result", _shown(waits.result), _shown(again.result)),
            ("effects", waits.effects, again.effects),
        )
        if one != other
    ]
    if differing:
        raise Differs(f"{tool}() does not do the same when it runs again: use ctx.once().\n" + "\n".join(differing))
    result: t.CallToolResult = waits.result
    return result


def _change(before: Any, after: Any) -> Any:
    """What came to be between two snapshots: numbers by their difference, lists by what is new in them."""
    if isinstance(before, (int, float)):
        return after - before
    if isinstance(before, (list, tuple)):
        return after[len(cast("Any", before)) :]
    return (before, after) if before != after else None


def _shown(result: Any) -> Any:
    """A result as it would be sent, without what only one era has."""
    return msgspec.json.decode(msgspec.json.encode(result))


class _Run:
    """A call in one era, as a channel that answers at once."""

    multiplexed = True

    def __init__(self, server: Server, revision: str, answers: Answers, principal: str) -> None:
        self.server = server
        self.answers = answers
        self.principal = principal
        self.asked: list[str] = []
        self.result: Any = None
        self.effects: Any = None
        self.session: Session | None = None
        self.meta: dict[str, Any] = {}
        if revision in HANDSHAKE:
            self.session = Session(principal)
            hello: dict[str, Any] = {"protocolVersion": revision, "capabilities": _EVERYTHING, "clientInfo": _CLIENT}
            self.session.agree(msgspec.convert(hello, t.InitializeRequestParams))
            self.session.advance("initialize")
            self.session.advance("notifications/initialized")
        else:
            self.meta = {f"{_META}protocolVersion": revision, f"{_META}clientCapabilities": _EVERYTHING}

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The result, after as many runs as it takes."""
        more: dict[str, Any] = {}
        while True:
            params = {"name": tool, "arguments": arguments, "_meta": self.meta, **more}
            message = Message(method="tools/call", id=1, params=Raw(msgspec.json.encode(params)))
            request = open_request(message, self.session, self.principal)
            request.channel = self
            try:
                return await self.server.handlers["tools/call"](request)
            except BaseException as error:
                stop = input_needed(error)
                if stop is None:
                    raise
                result: t.InputRequiredResult = stop.result
            asked: Any = {} if result.input_requests is UNSET else result.input_requests
            more = {"requestState": result.request_state} | {
                "inputResponses": {
                    key: self.answer(one.__struct_config__.tag, one.params) for key, one in asked.items()
                }
            }

    def send(self, request: Request, message: bytes) -> bool:
        """Nobody looks at what is told."""
        return True

    def detach(self, request: Request, retry_ms: int) -> bool:
        """There is no connection."""
        return False

    def ask(self, request: Request, method: str, params: Any) -> Any:
        """The answer, where the era waits for it."""
        return None if request.session is None else self.reply(method, params)

    async def reply(self, method: str, params: Any) -> Message:
        """The answer as a message."""
        return Message(id=1, result=Raw(msgspec.json.encode(self.answer(method, params))))

    def answer(self, method: str, params: Any) -> Any:
        """The result for one question, from what the test said."""
        self.asked.append(question_of(method, params))
        return answer_to(method, params, self.answers)


_CLIENT = {"name": "rehearsal", "version": "1"}
