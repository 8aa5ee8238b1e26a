"""From a target to an open connection: picks the transport, finds the era, agrees on a revision; no other call."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.watching import Connection
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotMCP,
    RequestTimeout,
    UnsupportedRevision,
    WharfingerError,
)
from wharfinger.protocol.era import (
    Discover,
    Initialize,
    Stateless,
    Verdict,
    first_step,
    judge_discover,
    judge_initialize,
    judge_refusal,
)
from wharfinger.protocol.interfaces import Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.revisions import REVISIONS, Revision

__all__ = ["Agreement", "Settings", "Target", "check_target", "connect"]

Target = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Service
"""A URL; a command and its arguments; a Python file, to be run; or a server of this process."""

Checked = str | list[str] | Service
"""A URL, a command, or a server."""

STEPS = 5
"""Questions of one opening; no honest server needs more."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to open a connection; times are in seconds."""

    revision: str | None
    info: t.Implementation
    open_time: float
    probe_time: float
    limits: Limits
    headers: Mapping[str, str]
    env: Mapping[str, str]
    cwd: str | os.PathLike[str] | None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What the two ends know of each other once a connection is open."""

    rules: Revision
    capabilities: t.ServerCapabilities
    server_info: t.Implementation | None
    instructions: str | None
    meta: t.RequestMeta | UnsetType
    """What every request carries in `_meta`."""


def check_target(target: Any) -> Checked:
    """Refuse at once what cannot be a server.

    Raises:
        TypeError, ValueError: with what would do.
    """
    accepted = 'a URL, a command as a list such as ["python", "server.py"], a Python file that is there, or a Server'
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return target
    if isinstance(target, str | os.PathLike):
        text = str(cast("str | os.PathLike[str]", target))
        if text.endswith(".py") and Path(text).is_file():
            return [sys.executable, text]
        raise ValueError(f"Cannot tell what {text!r} is: a client takes {accepted}.")
    if isinstance(target, list | tuple):
        parts = cast("Sequence[object]", target)
        if not parts or not all(isinstance(part, str | os.PathLike) for part in parts):
            raise ValueError("A command needs at least its program, and has only strings.")
        return [str(part) for part in parts]
    if hasattr(target, "handlers") and hasattr(target, "stamps"):
        return cast("Service", target)
    raise TypeError(f"A client takes {accepted}, not {type(target).__name__}.")


async def connect(target: Checked, settings: Settings) -> tuple[Connection, Agreement]:
    """Open a connection and agree on a revision; whatever was opened is closed again where that fails.

    Raises:
        ConnectionFailed, NotMCP, UnsupportedRevision, RemoteError: there is no server there, or none to speak with.
    """
    scope = asyncio.timeout(settings.open_time)
    trial = _Trial(target, settings)
    try:
        async with scope:
            agreement = await trial.run()
            return trial.link, agreement
    except BaseException as error:
        failure = error
        if trial.opened:
            await trial.link.close()
    if isinstance(failure, TimeoutError) and (scope.expired() or isinstance(failure, RequestTimeout)):
        raise trial.silent() from None
    if isinstance(failure, ConnectionLost):
        raise _failed(failure) from None
    raise failure


class _Trial:
    """One opening: the link, which may be a second one, and the steps up to an agreement."""

    link: Connection

    def __init__(self, target: Checked, settings: Settings) -> None:
        self.target = target
        self.settings = settings
        self.opened = False
        self._told_discover = False
        """The link's child has read a first message that some servers of the handshake era end at."""
        self._late: asyncio.Task[Message] | None = None
        """A question of the stateless era without an answer yet; a slow server may still answer it."""

    async def run(self) -> Agreement:
        pinned = self.settings.revision
        step: Verdict = first_step(pinned)
        self.link = await self._open_link()
        self.opened = True
        try:
            for _ in range(STEPS):
                if isinstance(step, Discover):
                    step = await self._discover(step)
                elif isinstance(step, Initialize):
                    outcome = await self._initialize(step)
                    if isinstance(outcome, Agreement):
                        return outcome
                    step = outcome
                elif isinstance(step, Stateless):
                    return self._stateless(step)
                else:
                    raise step.error
        finally:
            if self._late is not None:
                self._late.cancel()
                await asyncio.wait((self._late,))
        raise UnsupportedRevision("The server does not settle on a revision.")

    async def _open_link(self) -> Connection:
        target, settings = self.target, self.settings
        if isinstance(target, str):
            from wharfinger.transports.http_client import HttpLink

            return HttpLink(target, settings.limits, settings.headers)
        if isinstance(target, list):
            from wharfinger.transports.stdio_client import StdioLink

            child = StdioLink(target, settings.limits)
            await child.open(settings.env, settings.cwd)
            return child
        from wharfinger.transports.memory import MemoryLink

        memory = MemoryLink(target, settings.limits)
        await memory.open()
        return memory

    # The stateless era.

    async def _discover(self, step: Discover) -> Verdict:
        params = t.RequestParams(meta=self._meta(step.revision))
        asked = asyncio.ensure_future(self.link.request("server/discover", params, timeout=None))
        self._told_discover = True
        try:
            done, _ = await asyncio.wait((asked,), timeout=self._patience)
        except BaseException:
            asked.cancel()
            raise
        if done:
            return await self._judge(step, asked)
        if isinstance(self.target, str):
            # Over HTTP nothing waits for its turn: who says nothing there will say nothing.
            asked.cancel()
            return judge_discover(step, None, None)
        self._late = asked
        return judge_discover(step, None, None)

    @property
    def _patience(self) -> float | None:
        """How long to wait before asking in another way; where the revision is pinned there is no other way."""
        return None if self.settings.revision is not None else self.settings.probe_time

    async def _judge(self, step: Discover, asked: asyncio.Future[Message]) -> Verdict:
        try:
            answer: Message | None = asked.result()
        except ConnectionLost:
            if not await self._started_again():
                raise
            answer = None
        except (InvalidResponse, _no_message()):
            answer = None
        return judge_discover(step, answer, self.settings.revision)

    async def _started_again(self) -> bool:
        """Start another child, which is only told `initialize`; False where the first one was told no more."""
        if not isinstance(self.target, list) or self.settings.revision is not None or not self._told_discover:
            return False
        lost = self.link
        self.link = await self._open_link()
        self._told_discover = False
        await lost.close()
        return True

    def _stateless(self, step: Stateless) -> Agreement:
        rules = REVISIONS[step.revision]
        self.link.rules = rules
        found = step.discovered
        return Agreement(
            rules=rules,
            capabilities=found.capabilities,
            server_info=_info_in(found.meta),
            instructions=None if isinstance(found.instructions, UnsetType) else found.instructions,
            meta=self._meta(step.revision),
        )

    def _meta(self, revision: str) -> t.RequestMeta:
        return t.RequestMeta(
            protocol_version=revision,
            client_info=self.settings.info,
            client_capabilities=t.ClientCapabilities(),
        )

    # The handshake era.

    async def _initialize(self, step: Initialize) -> Agreement | Verdict:
        params = t.InitializeRequestParams(
            protocol_version=step.revision, capabilities=t.ClientCapabilities(), client_info=self.settings.info
        )
        asked = asyncio.ensure_future(self.link.request("initialize", params, timeout=None))
        try:
            if self._late is not None:
                late, self._late = self._late, None
                verdict = await self._first_of(asked, late)
                if verdict is not None:
                    return verdict
            answer = await asked
        except ConnectionLost:
            if not await self._started_again():
                raise
            return step
        except _no_message() as error:
            raise _no_endpoint(error, self.target) from None
        finally:
            asked.cancel()
        if answer.error is not UNSET:
            return judge_refusal(answer, None, self.settings.revision)
        return self._handshake(answer)

    async def _first_of(self, asked: asyncio.Future[Message], late: asyncio.Task[Message]) -> Verdict | None:
        """A slow server may answer the first question after all: then that counts; None where `initialize` counts."""
        try:
            await asyncio.wait((asked, late), return_when=asyncio.FIRST_COMPLETED)
            if late.done() and not late.cancelled() and late.exception() is None:
                verdict = judge_discover(Discover(""), late.result(), self.settings.revision)
                if not isinstance(verdict, Initialize):
                    return verdict
            return None
        finally:
            if not late.done():
                late.cancel()
                await asyncio.wait((late,))

    def _handshake(self, answer: Message) -> Agreement:
        if isinstance(answer.result, UnsetType):
            raise InvalidResponse(f"{self.link.name} answered initialize without a result.")
        try:
            result: t.InitializeResult = METHODS["initialize"].decode_result(answer.result)
        except msgspec.MsgspecError as error:
            raise NotMCP(f"{self.link.name} answered initialize with what is no InitializeResult: {error}.") from None
        rules = REVISIONS[judge_initialize(result, self.settings.revision)]
        self.link.rules = rules
        self.link.notify("notifications/initialized", UNSET)
        return Agreement(
            rules=rules,
            capabilities=result.capabilities,
            server_info=result.server_info,
            instructions=None if isinstance(result.instructions, UnsetType) else result.instructions,
            meta=UNSET,
        )

    # Failures.

    def silent(self) -> WharfingerError:
        """What to tell when nothing usable came in time."""
        waited = f"{self.settings.open_time:g} s"
        if not self.opened:
            return ConnectionFailed(f"The server did not start within {waited}.")
        stderr = getattr(self.link, "stderr", "")
        garbage: bytes = getattr(self.link, "garbage", b"")
        if garbage:
            message = f"{self.link.name} is not MCP: no answer within {waited}; the first bytes were {garbage[:80]!r}."
            return NotMCP(f"{message}\n{stderr}" if stderr else message)
        return ConnectionFailed(f"{self.link.name} gave no answer within {waited}.", stderr=stderr)


def _failed(lost: ConnectionLost) -> ConnectionFailed:
    """The same, for a connection that never came about."""
    text = str(lost)
    message = text.removesuffix(f"\n{lost.stderr}") if lost.stderr else text
    return ConnectionFailed(f"{message.removesuffix('.')}, before it had answered.", stderr=lost.stderr)


def _no_message() -> type[Exception]:
    """HTTP's `NoMessage`, without loading the HTTP client for those who do not use it."""
    module = sys.modules.get("wharfinger.transports.http_client")
    return cast("type[Exception]", module.NoMessage) if module is not None else _Never


class _Never(Exception):
    """Raised by nobody."""


def _no_endpoint(error: Any, target: Checked) -> ConnectionFailed:
    """An HTTP answer to `initialize` that is no message: the wrong path, or the transport of 2024-11-05."""
    if error.status not in (400, 404, 405):
        return cast("ConnectionFailed", error)
    path = str(target).partition("?")[0].rstrip("/")
    elsewhere = "" if path.endswith("/mcp") else f" Try {path}/mcp."
    old = " If it speaks HTTP+SSE of 2024-11-05: that is not spoken here." if error.status == 405 else ""
    return ConnectionFailed(f"No MCP server here: {error}{elsewhere}{old}")


def _info_in(meta: Any) -> t.Implementation | None:
    """Who the server says it is, in the `_meta` of a stateless result; what cannot be read says nothing."""
    try:
        return None if meta is UNSET else msgspec.convert(meta.get(t.META_SERVER_INFO), t.Implementation)
    except msgspec.ValidationError:
        return None
