"""The questions of servers (elicitation): forms and URLs, shown at the call that caused them.

A question in a result (stateless era), or on the response stream of a call over HTTP, is handled in the context of its
call. Over other streams the protocol does not say which call a question belongs to: the latest call to the server shows
it. If no call is running, the question is cancelled: a server cannot make a form appear by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from wharfinger import types as t

__all__ = ["Asking", "ServerQuestions"]

Asking = Callable[[t.ElicitRequestParams, bool], Awaitable[Any]]
"""Shows a question, and whether it is certain that this call asks it.

Returns the answers, `"decline"` or `"cancel"`; for a URL whether it was opened.
"""
MAX_CALLS = 100
"""Maximum number of running calls to one server that can show its questions."""

_asking_here: ContextVar[Asking | None] = ContextVar("_asking_here", default=None)
"""The function that shows the questions of the call in this context."""


class ServerQuestions:
    """The questions of one server."""

    def __init__(self) -> None:
        self._asking: list[Asking] = []

    @contextmanager
    def shown_by(self, asking: Asking) -> Generator[None]:
        """Show the server's questions with `asking` during a call."""
        self._asking.append(asking)
        del self._asking[:-MAX_CALLS]
        token = _asking_here.set(asking)
        try:
            yield
        finally:
            _asking_here.reset(token)
            if asking in self._asking:
                self._asking.remove(asking)

    async def ask(self, params: t.ElicitRequestParams) -> Any:
        """Show a question, and return the answer; without a running call, return `"cancel"`."""
        asking = _asking_here.get()
        if asking is not None and asking in self._asking:
            return await asking(params, True)
        return await self._asking[-1](params, len(self._asking) == 1) if self._asking else "cancel"

    async def ask_to_open(self, params: t.ElicitRequestParams) -> bool:
        """Show a URL, and return whether it was opened."""
        return await self.ask(params) is True
