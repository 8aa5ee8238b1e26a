"""The questions of servers (elicitation): forms and URLs, shown at the call that caused them.

Of the calls to a server that are running, the latest shows the server's question. If none is running, the question is
cancelled: a server cannot make a form appear by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from wharfinger import types as t

__all__ = ["Asking", "CallQuestions", "ServerQuestions"]

Asking = Callable[[t.ElicitRequestParams], Awaitable[Any]]
"""Shows a question. Returns the answers, `"decline"` or `"cancel"`; for a URL whether it was opened."""
MAX_WAITING = 100
"""Maximum number of running calls to one server that can show its questions."""


class ServerQuestions:
    """The questions of one server."""

    def __init__(self) -> None:
        self._asking: list[Asking] = []

    @contextmanager
    def shown_by(self, asking: Asking) -> Generator[None]:
        """Show the server's questions in this way during a call."""
        self._asking.append(asking)
        del self._asking[:-MAX_WAITING]
        try:
            yield
        finally:
            if asking in self._asking:
                self._asking.remove(asking)

    async def ask(self, params: t.ElicitRequestParams) -> Any:
        """Show a form, and return the answer."""
        return await self._asking[-1](params) if self._asking else "cancel"

    async def ask_to_open(self, params: t.ElicitRequestParams) -> bool:
        """Show a URL, and return whether it was opened."""
        return bool(self._asking and await self._asking[-1](params) is True)


class CallQuestions:
    """The questions of all servers."""

    def __init__(self) -> None:
        self._by_server: dict[str, ServerQuestions] = {}

    def of(self, server: str) -> ServerQuestions:
        """Return the questions of one server."""
        return self._by_server.setdefault(server, ServerQuestions())
