"""Calls a tool in both eras and compares the results and effects. Needs neither a transport nor a test framework.

In the handshake era, the function of a tool waits for the answer to its question. In the stateless era, it runs again
with the answer, so everything before the question happens twice, except what is inside `ctx.once`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.protocol.request import Request, input_needed, open_request
from wharfinger.protocol.revisions import HANDSHAKE, STATELESS
from wharfinger.server import Server
from wharfinger.testing.client_answers import Answers, answer_to, question_key
from wharfinger.testing.mismatch import Mismatch

__all__ = ["rehearse"]

_META = "io.modelcontextprotocol/"
_CAPABILITIES: dict[str, Any] = {
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
    effects: Callable[[], object] | None = None,
    reset: Callable[[], object] | None = None,
    principal: Principal = ANONYMOUS,
) -> t.CallToolResult:
    """Call a tool twice, once in each era, compare the two calls, and return the result.

    The server is started if necessary, and is not closed.

    Args:
        server: The server with the tool.
        tool: The name of the tool.
        arguments: Its arguments.
        answers: Answers to its questions, as for `Script`.
        effects: Returns a snapshot of the data that the tool changes, such as the number of rows of a table, or a copy
            of a log. It is called before and after each call.
        reset: Called before each call, to restore the state.
        principal: The principal of the caller.

    Raises:
        Mismatch: the questions, the results or the effects differ; the message says how.
        KeyError: a question has no answer.
        ProtocolError: the call itself failed.
    """
    await server.start()
    runs = [_Run(server, revision, answers, principal) for revision in (HANDSHAKE[0], STATELESS[0])]
    for run in runs:
        if reset is not None:
            reset()
        before = effects() if effects else None
        run.result = await run.call(tool, dict(arguments or {}))
        run.effects = _change(before, effects() if effects else None)
    waiting, repeating = runs
    differing = [
        f"{what}: {first!r} if it waits, {second!r} if it runs again"
        for what, first, second in (
            ("questions", waiting.questions, repeating.questions),
            ("result", _shown(waiting.result), _shown(repeating.result)),
            ("effects", waiting.effects, repeating.effects),
        )
        if first != second
    ]
    if differing:
        raise Mismatch(f"{tool}() does not do the same when it runs again: use ctx.once().\n" + "\n".join(differing))
    result: t.CallToolResult = waiting.result
    return result


def _change(before: Any, after: Any) -> Any:
    """Return the change between two snapshots: the difference of numbers, or the new items of lists.

    For other values, return both snapshots, or None if they are equal.
    """
    if isinstance(before, (int, float)):
        return after - before
    if isinstance(before, (list, tuple)):
        return after[len(cast("Any", before)) :]
    return (before, after) if before != after else None


def _shown(result: Any) -> Any:
    """Return a result as JSON values. Members that only one era has are added later, when a result is sent."""
    return msgspec.json.decode(msgspec.json.encode(result))


class _Run:
    """A call in one era. It is also the channel of the call's requests, which answers each question at once."""

    multiplexed = True

    def __init__(self, server: Server, revision: str, answers: Answers, principal: Principal) -> None:
        self.server = server
        self.answers = answers
        self.principal = principal
        self.questions: list[str] = []
        self.result: Any = None
        self.effects: Any = None
        self.session: Session | None = None
        self.meta: dict[str, Any] = {}
        if revision in HANDSHAKE:
            self.session = Session(principal)
            hello: dict[str, Any] = {
                "protocolVersion": revision,
                "capabilities": _CAPABILITIES,
                "clientInfo": _CLIENT,
            }
            self.session.agree(msgspec.convert(hello, t.InitializeRequestParams))
            self.session.advance("initialize")
            self.session.advance("notifications/initialized")
        else:
            self.meta = {f"{_META}protocolVersion": revision, f"{_META}clientCapabilities": _CAPABILITIES}

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call the tool, and return the result. In the stateless era, call it again with each answer."""
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
            requests: Any = {} if result.input_requests is UNSET else result.input_requests
            more = {"requestState": result.request_state} | {
                "inputResponses": {
                    key: self.answer(question.__struct_config__.tag, question.params)
                    for key, question in requests.items()
                }
            }

    def send(self, request: Request, message: bytes) -> bool:
        """Drop the notification."""
        return True

    def detach(self, request: Request, retry_ms: int) -> bool:
        """Return False: there is no stream to close."""
        return False

    def ask(self, request: Request, method: str, params: Any) -> Any:
        """Return an awaitable of the answer to a question, or None in the stateless era."""
        return None if request.session is None else self.reply(method, params)

    async def reply(self, method: str, params: Any) -> Message:
        """Return the answer as a message."""
        return Message(id=1, result=Raw(msgspec.json.encode(self.answer(method, params))))

    def answer(self, method: str, params: Any) -> Any:
        """Return the result for one question, from the answers of the test."""
        self.questions.append(question_key(method, params))
        return answer_to(method, params, self.answers)


_CLIENT = {"name": "rehearsal", "version": "1"}
