"""Asks for approval before a tool runs, and remembers the answers for each tool of each server.

A lasting answer (`"always"`, `"never"`) is stored with a digest of the tool's definition and of the server's address.
If the definition or the address has changed, the question is asked again. Otherwise a server could make an approved
tool harmful later, or a server at another address could take the name of an approved one.

The annotation that a tool only reads counts only if its server is trusted.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NoReturn, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.redaction import redacted, redacted_command
from wharfinger.content.text import shown
from wharfinger.errors import Declined
from wharfinger.protocol.interfaces import Store
from wharfinger.upstreams.upstream import Upstream

__all__ = ["ApprovalRequest", "Approvals", "Approve", "unless_read_only"]

MAX_WAITING = 100
"""Maximum number of calls that wait for an answer; others are declined."""
MAX_REMEMBERED = 10_000
"""Maximum number of lasting answers that are remembered. Any others decide one call only."""
MAX_QUESTIONS = 3
"""Maximum number of questions about a call, if the definition of the tool changes while the person answers."""


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether a tool may run with these arguments."""

    server: str
    tool: t.Tool
    """The tool, with the server's own name for it. Show its title and description as the words of the server."""
    public_name: str
    """The name under which the host offers it."""
    arguments: Any
    """The arguments that will be sent, or None if the call has none."""
    read_only: bool
    """Whether a trusted server says that the tool changes nothing. Always False if the server is not trusted."""
    changed_since: bool
    """Whether an earlier lasting answer no longer counts, because the tool or its server has changed."""


Answer = bool | Literal["always", "never"]
Approve = Callable[[ApprovalRequest], Answer | Awaitable[Answer]]
"""Returns whether the tool may run: True or False for this call, `"always"` or `"never"` from now on."""


def unless_read_only(ask: Approve) -> Approve:
    """Return a function that approves the read-only tools of trusted servers, and asks `ask` about all others."""

    async def approve(request: ApprovalRequest) -> Answer:
        if request.read_only:
            return True
        answer = ask(request)
        return await answer if inspect.isawaitable(answer) else answer

    return approve


class Remembered(msgspec.Struct):
    """A lasting answer, as it is stored."""

    answer: Literal["always", "never"]
    definition: str
    """The digest of the tool and the server that the answer is about; see `definition_of`."""
    server: str
    tool: str


class Approvals:
    """Asks for approval, and remembers the answers in a store.

    Args:
        approve: Asks the person.
        store: Keeps the lasting answers.
        timeout: Seconds that the person has to answer.
        record: Called with the server, the tool's own name, whether it may run, and why.
    """

    def __init__(
        self, approve: Approve, store: Store, timeout: float, record: Callable[[str, str, bool, str], object]
    ) -> None:
        self._approve = approve
        self._store = store
        self._timeout = timeout
        self._record = record
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By key, the lock of the calls that wait for an answer about a tool; dropped with the last of these calls."""
        self._waiting = 0

    async def check(self, upstream: Upstream, name: str, public_name: str, arguments: Any, *, trusted: bool) -> None:
        """Ask whether a tool may run, unless a lasting answer decides it. `name` is the server's own name for it.

        Raises:
            Declined: it may not, or there was no answer in time.
        """
        if self._waiting >= MAX_WAITING:
            self._refuse(upstream, name, public_name, "too many calls wait for approval")
        self._waiting += 1
        key = key_of(upstream.name, name)
        turn = self._turns.setdefault(key, asyncio.Lock())
        try:
            async with turn:  # one question at a time, so that "always" also counts for the calls that wait
                await self._check(upstream, name, public_name, arguments, trusted)
        finally:
            self._waiting -= 1

    async def _check(self, upstream: Upstream, name: str, public_name: str, arguments: Any, trusted: bool) -> None:
        key = key_of(upstream.name, name)
        for _ in range(MAX_QUESTIONS):
            tool = await self._find_tool(upstream, name, public_name)
            definition = definition_of(upstream, tool)
            remembered = read_remembered(await self._store.get(key))
            if remembered is not None and remembered.definition == definition:
                if remembered.answer == "never":
                    self._refuse(upstream, name, public_name, "never")
                self._record(upstream.name, name, True, "always")
                return
            answer = await self._ask(
                ApprovalRequest(
                    server=upstream.name,
                    tool=tool,
                    public_name=public_name,
                    arguments=arguments,
                    read_only=trusted and tool.annotations is not UNSET and tool.annotations.read_only_hint is True,
                    changed_since=remembered is not None,
                )
            )
            if definition_of(upstream, await self._find_tool(upstream, name, public_name)) != definition:
                continue  # the answer was about another tool
            if isinstance(answer, str):
                await self._remember(key, Remembered(answer, definition, upstream.name, name))
            if answer in (False, "never"):
                self._refuse(upstream, name, public_name, "asked")
            self._record(upstream.name, name, True, "asked")
            return
        self._refuse(upstream, name, public_name, "its definition changed again and again")

    async def forget(self, server: str, tool: str) -> None:
        """Forget the lasting answer about a tool, by the server's own name for it."""
        await self._store.delete(key_of(server, tool))

    async def remembered(self) -> list[tuple[str, str, Literal["always", "never"]]]:
        """Return the lasting answers: server, the server's own name of the tool, and the answer."""
        answers: list[tuple[str, str, Literal["always", "never"]]] = []
        after = ""
        while page := await self._store.scan(PREFIX, after=after):
            for after, value in page:  # noqa: B007
                answer = read_remembered(value)
                if answer is not None:
                    answers.append((answer.server, answer.tool, answer.answer))
        return sorted(answers)

    async def _find_tool(self, upstream: Upstream, name: str, public_name: str) -> t.Tool:
        tool = next((tool for tool in await upstream.tools() if tool.name == name), None)
        if tool is None:
            self._refuse(upstream, name, public_name, f"{upstream.name} does not list it")
        return tool

    async def _ask(self, request: ApprovalRequest) -> Answer:
        timeout = asyncio.timeout(self._timeout)
        try:
            async with timeout:
                answer = self._approve(request)
                if inspect.isawaitable(answer):
                    answer = await answer
        except TimeoutError:
            if not timeout.expired():  # raised by the function itself
                raise
            self._record(request.server, request.tool.name, False, "nobody answered")
            raise Declined(f"Nobody approved the call of {request.public_name} within {self._timeout:g} s.") from None
        if not isinstance(answer, bool) and answer not in ("always", "never"):
            raise TypeError(f'approve returns True, False, "always" or "never", not {answer!r}.')
        return answer

    async def _remember(self, key: str, remembered: Remembered) -> None:
        count, _ = await self._store.usage(PREFIX)
        if count < MAX_REMEMBERED or await self._store.get(key) is not None:
            await self._store.put(key, msgspec.json.encode(remembered))

    def _refuse(self, upstream: Upstream, name: str, public_name: str, reason: str) -> NoReturn:
        """Record that a tool may not run, and raise Declined."""
        self._record(upstream.name, name, False, reason)
        if reason not in ("asked", "never"):  # the user was not asked, or the answer does not count
            raise Declined(f"The call of {public_name} was refused: {reason}.")
        why = " It is never approved." if reason == "never" else ""
        raise Declined(f"The user did not approve the call of {public_name}.{why}")


PREFIX = "approvals/"


def key_of(server: str, tool: str) -> str:
    """Return the key of an answer; names can have any length and characters."""
    return PREFIX + hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "backslashreplace")).hexdigest()


def definition_of(upstream: Upstream, tool: t.Tool) -> str:
    """Return a digest of the parts of a tool that a person sees, and of the address of its server."""
    target = upstream.config.target
    if isinstance(target, str | os.PathLike):
        address = redacted(os.fsdecode(target))
    elif isinstance(target, list | tuple):
        address = redacted_command([str(part) for part in cast("list[Any]", target)])
    else:
        address = type(target).__name__
    cwd = upstream.config.cwd
    members = (
        shown(address),  # a path may have bytes that are not UTF-8, which JSON cannot have
        cwd if cwd is None else shown(cwd),
        tool.name,
        tool.title,
        tool.description,
        tool.input_schema,
        tool.annotations,
    )
    encoded = msgspec.json.encode([None if member is UNSET else member for member in members], order="sorted")
    return hashlib.sha256(encoded).hexdigest()


def read_remembered(value: bytes | None) -> Remembered | None:
    """Read a stored answer. Returns None if there is none, or if it was stored in the form of another version."""
    try:
        return None if value is None else msgspec.json.decode(value, type=Remembered)
    except msgspec.MsgspecError:
        return None
