"""From a target to an open connection: picks the transport, finds the era, agrees on a revision; no other call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.auth_deadline import Patient
from wharfinger.client.retry import Retry
from wharfinger.client.subscriptions import Connection
from wharfinger.content.redaction import redacted, redacted_command, redacted_text
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RemoteError,
    RequestTimeout,
    UnsupportedRevision,
    WharfingerError,
    remote_error,
)
from wharfinger.protocol.interfaces import Authorize, Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.negotiation import (
    Discover,
    Found,
    GiveUp,
    Initialize,
    NextStep,
    RevisionCache,
    Stateless,
    decide_discover,
    decide_initialize,
    decide_refusal,
    first_step,
)
from wharfinger.protocol.revisions import REVISIONS, Revision

__all__ = ["Agreement", "Settings", "Target", "check_target", "connect"]


class Way(Protocol):
    """Opens connections itself, as those of `wharfinger.testing` do."""

    async def open_link(self, limits: Limits) -> Connection:
        """A new connection, ready to be used."""
        ...


Target = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any] | Service | Way
"""A URL; a command and its arguments; an entry of a host's configuration; a Python file, to be run; `unix:/path`, or
the path of a socket that is there; or a server of this process."""


class Socket(msgspec.Struct, frozen=True):
    """A Unix socket that a server listens on."""

    path: str


Checked = str | list[str] | Socket | Service | Way
"""A URL, a command, a Unix socket, or a server."""

STEPS = 5
"""Questions of one opening; no honest server needs more."""
MOST_TOLD = 200
"""Characters of an earlier failure that a later one repeats."""
MORE_PATIENCE = 5
"""How many times longer a server is waited for that was found to be stateless before: it may only be busy."""

ERAS = RevisionCache(time.monotonic)
"""What the servers behind URLs speak, for all clients of this process; a command's is kept by its client."""


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
    capabilities: t.ClientCapabilities = msgspec.field(default_factory=t.ClientCapabilities)
    """What this client declares."""
    log_level: t.LoggingLevel | UnsetType = UNSET
    """Log messages of this level and worse are wanted; none where it is UNSET (stateless era)."""
    asked: Callable[[Message], Awaitable[Any]] | None = None
    """Answers what the server asks (handshake era)."""
    auth: Authorize | None = None
    """What gets the client in (HTTP)."""
    stderr: Callable[[str], object] | None = None
    """Takes each line that the server of a command writes on its standard error."""
    reaches: Callable[[str], bool] | None = None
    """Says of an IP address whether it may be connected to (HTTP)."""
    retry: Retry = Retry()
    chance: Callable[[], float] = random.random
    """Numbers from 0 to 1, for jitter."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


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
    accepted = (
        'a URL, a command as a list such as ["python", "server.py"], an entry of a '
        "configuration, a Python file that is there, unix:/path, or a Server"
    )
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return target
    if isinstance(target, str | os.PathLike):
        text = str(cast("str | os.PathLike[str]", target))
        if text.startswith("unix:") and text.removeprefix("unix:").removeprefix("//"):
            return Socket(text.removeprefix("unix:").removeprefix("//"))
        if Path(text).is_socket():
            return Socket(text)
        if text.endswith(".py") and Path(text).is_file():
            return [sys.executable, text]
        shown = redacted_text(text)
        if " -" in shown:
            shown = redacted_command(shown.split())
        raise ValueError(f"Cannot tell what {shown!r} is: a client takes {accepted}.")
    if isinstance(target, list | tuple):
        parts = cast("Sequence[object]", target)
        if not parts or not all(isinstance(part, str | os.PathLike) for part in parts):
            raise ValueError("A command needs at least its program, and has only strings.")
        return [str(part) for part in parts]
    if hasattr(target, "open_link"):
        return cast("Way", target)
    if hasattr(target, "handlers") and hasattr(target, "stamps"):
        return cast("Service", target)
    raise TypeError(f"A client takes {accepted}, not {type(target).__name__}.")


async def connect(
    target: Checked, settings: Settings, eras: RevisionCache | None = None
) -> tuple[Connection, Agreement]:
    """Open a connection and agree on a revision; whatever was opened is closed again where that fails.

    `eras` is what commands were found to speak.

    Raises:
        ConnectionFailed, NotMCP, UnsupportedRevision, RemoteError: there is no server there, or none to speak with.
    """
    scope = asyncio.timeout(settings.open_time)
    trial = _Trial(target, settings, ERAS if isinstance(target, str) else eras)
    if settings.auth is not None:
        trial.auth = Patient(settings.auth, scope)
    try:
        async with scope:
            agreement = await trial.run()
            await trial.be_askable()
            return trial.link, agreement
    except BaseException as error:
        failure = error
        if trial.opened:
            await trial.link.close()
    if isinstance(failure, TimeoutError) and (scope.expired() or isinstance(failure, RequestTimeout)):
        raise trial.silent() from None
    if isinstance(failure, ConnectionLost):
        failure = _failed(failure)
    raise trial.told(failure) from None


class _Trial:
    """One opening: the link, which may be a second one, and the steps up to an agreement."""

    link: Connection

    def __init__(self, target: Checked, settings: Settings, eras: RevisionCache | None) -> None:
        self.target = target
        self.settings = settings
        self._eras = eras
        self._key = _place(target, settings) if eras is not None else None
        self._known: Found | None = eras.get(self._key) if eras is not None else None
        self.auth: Patient | None = None
        """What gets in, with the clocks of this opening standing still."""
        self.opened = False
        self._told_discover = False
        """The link's server has read `server/discover`: some servers of the handshake era end at that, and some bridges
        open a session of their own."""
        self._refused: WharfingerError | None = None
        """How a link failed that was asked `server/discover` first; None if no other one was opened for that."""
        self._tried_sse = False
        self._late: asyncio.Task[Message] | None = None
        """A question of the stateless era without an answer yet; a slow server may still answer it."""

    async def run(self) -> Agreement:
        self.link = await self._open_link()
        self.opened = True
        try:
            agreement = await self._steps()
            if self._eras is not None and self.settings.revision is None:
                self._eras.put(self._key, self._found(agreement))
            return agreement
        finally:
            if self.auth is not None:
                self.auth.opened()
            if self._late is not None:
                self._late.cancel()
                await asyncio.wait((self._late,))

    async def _steps(self) -> Agreement:
        pinned = self.settings.revision
        step: NextStep = first_step(pinned, self._known)
        for _ in range(STEPS):
            if isinstance(step, Discover):
                step = await self._discover(step)
            elif isinstance(step, Initialize):
                outcome = await self._initialize_as_known(step)
                if isinstance(outcome, Agreement):
                    return outcome
                step = outcome
            elif isinstance(step, Stateless):
                return self._stateless(step)
            else:
                raise step.error
        raise UnsupportedRevision("The server does not settle on a revision.")

    async def _open_link(self) -> Connection:
        link = await self._new_link()
        link.asked = self.settings.asked
        return link

    async def _new_link(self) -> Connection:
        target, settings = self.target, self.settings
        if isinstance(target, str):
            if self._known == "sse":
                return await self._sse_link(target)
            from wharfinger.transports.http_client.http_link import HttpLink

            return HttpLink(target, settings.limits, settings.headers, self.auth, settings.reaches)
        if isinstance(target, list):
            from wharfinger.transports.stdio_client import StdioLink

            child = StdioLink(target, settings.limits, settings.stderr)
            await child.open(settings.env, settings.cwd)
            return child
        if isinstance(target, Socket):
            from wharfinger.transports.unix_client import UnixLink

            socket = UnixLink(target.path, settings.limits)
            await socket.open()
            return socket
        here: Any = target
        if hasattr(here, "open_link"):
            return await cast("Way", here).open_link(settings.limits)
        from wharfinger.transports.memory import MemoryLink

        memory = MemoryLink(here, settings.limits)
        await memory.open()
        return memory

    async def _sse_link(self, url: str) -> Connection:
        from wharfinger.transports.http_client.sse_link import SseLink

        link = SseLink(url, self.settings.limits, self.settings.headers, self.auth, self.settings.reaches)
        try:
            async with asyncio.timeout(self.settings.probe_time):
                await link.open()
        except TimeoutError:
            await link.close()
            raise ConnectionFailed(f"{link.name} named no place to POST to in time.") from None
        return link

    async def _other_link(self, link: Connection) -> None:
        """Go on over this link; nobody is in the middle of anything on the one before."""
        before, self.link = self.link, link
        link.asked = self.settings.asked
        await before.close()

    def _found(self, agreement: Agreement) -> Found:
        if agreement.rules.era == "stateless":
            return "stateless"
        return "sse" if type(self.link).__name__ == "SseLink" else "handshake"

    async def be_askable(self) -> None:
        """Listen where questions may come: some servers ask on the session's own stream alone (2025-11-25, HTTP)."""
        if self.settings.asked is not None:
            with contextlib.suppress(ConnectionFailed, ConnectionLost, RequestTimeout):
                await self.link.listen_in(self.settings.probe_time)

    # The stateless era.

    async def _discover(self, step: Discover) -> NextStep:
        params = t.RequestParams(meta=self._meta(step.revision))
        asked = asyncio.ensure_future(self.link.request("server/discover", params, timeout=None))
        self._told_discover = True
        try:
            done, _ = await asyncio.wait((asked,), timeout=self._patience)
            while not done and self.auth is not None and not self.auth.idle.is_set():  # somebody signs in
                await self.auth.idle.wait()
                done, _ = await asyncio.wait((asked,), timeout=self._patience)
        except BaseException:
            asked.cancel()
            raise
        if done:
            return await self._judge(step, asked)
        if isinstance(self.target, str):
            # Over HTTP nothing waits for its turn: who says nothing there will say nothing.
            asked.cancel()
            return decide_discover(step, None, None)
        self._late = asked
        return decide_discover(step, None, None)

    @property
    def _patience(self) -> float | None:
        """How long to wait before asking in another way; where the revision is pinned there is no other way."""
        if self.settings.revision is not None:
            return None
        return self.settings.probe_time * (MORE_PATIENCE if self._known == "stateless" else 1)

    async def _judge(self, step: Discover, asked: asyncio.Future[Message]) -> NextStep:
        try:
            answer: Message | None = asked.result()
        except ConnectionLost as lost:
            if not await self._started_again(lost):
                raise
            answer = None
        except (InvalidResponse, _no_message()):
            answer = None
        return decide_discover(step, answer, self.settings.revision)

    async def _started_again(self, failure: WharfingerError) -> bool:
        """Open another link, which is only told `initialize`; False where the first one was told no more."""
        first_asked_so = self._told_discover and self._known != "stateless" and self.settings.revision is None
        if not first_asked_so or not isinstance(self.target, str | list | Socket):
            return False
        self._refused = failure
        self._told_discover = False
        await self._other_link(await self._new_link())
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
            client_capabilities=self.settings.capabilities,
            log_level=self.settings.log_level,
        )

    # The handshake era.

    async def _initialize_as_known(self, step: Initialize) -> Agreement | NextStep:
        """`_initialize`; where the server is only known for that era and does not answer so, ask from the beginning."""
        if self._known is None or self._eras is None:
            return await self._initialize(step)
        try:
            outcome = await self._initialize(step)
            if not isinstance(outcome, GiveUp):
                return outcome
        except (ConnectionFailed, ConnectionLost, InvalidResponse, NotMCP, UnsupportedRevision) as error:
            if isinstance(error, NotAuthorized):
                raise
        self._known = None
        self._eras.forget(self._key)
        await self._other_link(await self._new_link())
        return first_step()

    async def _initialize(self, step: Initialize) -> Agreement | NextStep:
        params = t.InitializeRequestParams(
            protocol_version=step.revision, capabilities=self.settings.capabilities, client_info=self.settings.info
        )
        asked = asyncio.ensure_future(self.link.request("initialize", params, timeout=None))
        try:
            if self._late is not None:
                late, self._late = self._late, None
                verdict = await self._first_of(asked, late)
                if verdict is not None:
                    return verdict
            answer = await asked
        except ConnectionLost as lost:
            if not await self._started_again(lost):
                raise
            return step
        except _no_message() as error:
            if cast("Any", error).status in _NO_ENDPOINT and await self._over_sse():
                return step
            raise _no_endpoint(error, self.target) from None
        finally:
            asked.cancel()
        if answer.error is not UNSET:
            verdict = decide_refusal(answer, None, self.settings.revision)
            # An error that names no request is the refusal of a URL, which may take no messages at all.
            if isinstance(verdict, GiveUp) and answer.id is UNSET and await self._over_sse():
                return step
            # A bridge that has opened a session of its own for the first question refuses to open a second one.
            if isinstance(verdict, GiveUp) and await self._started_again(verdict.error):
                return step
            return verdict
        try:
            return self._handshake(answer)
        except (InvalidResponse, NotMCP) as error:
            if not await self._started_again(error):
                raise
            return step

    async def _over_sse(self) -> bool:
        """Go over to HTTP+SSE of 2024-11-05; False where nothing says that the server speaks it (spec: §2.5)."""
        if not isinstance(self.target, str) or self._tried_sse:
            return False
        self._tried_sse = True
        try:
            await self._other_link(await self._sse_link(self.target))
        except NotAuthorized:
            raise
        except WharfingerError:
            return False
        return True

    async def _first_of(self, asked: asyncio.Future[Message], late: asyncio.Task[Message]) -> NextStep | None:
        """A slow server may answer the first question after all: then that counts; None where `initialize` counts."""
        try:
            await asyncio.wait((asked, late), return_when=asyncio.FIRST_COMPLETED)
            if late.done() and not late.cancelled() and late.exception() is None:
                verdict = decide_discover(Discover(""), late.result(), self.settings.revision)
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
        rules = REVISIONS[decide_initialize(result, self.settings.revision)]
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

    def told(self, failure: BaseException) -> BaseException:
        """The failure, with all that was tried before it."""
        if self._refused is None or not isinstance(failure, WharfingerError):
            return failure
        if isinstance(self._refused, ConnectionLost) and isinstance(failure, ConnectionFailed):
            return failure  # it just ends, twice
        reason = str(self._refused).partition("\n")[0][:MOST_TOLD]
        first = f"server/discover and then initialize ({reason})"
        tried = f"Tried over two connections: {first}, and initialize alone."
        if isinstance(failure, RemoteError):
            return remote_error(failure.code, f"{failure.message.removesuffix('.')}. {tried}", failure.data)
        if type(failure) is ConnectionFailed:
            text = str(failure).removesuffix(f"\n{failure.stderr}") if failure.stderr else str(failure)
            return ConnectionFailed(f"{text} {tried}", stderr=failure.stderr)
        return NotMCP(f"{failure} {tried}") if type(failure) is NotMCP else failure

    def silent(self) -> WharfingerError:
        """What to tell when nothing usable came in time."""
        waited = f"{self.settings.open_time:g} s"
        if not self.opened:
            return ConnectionFailed(f"The server did not start within {waited}.")
        stderr = getattr(self.link, "stderr", "")
        garbage: bytes = getattr(self.link, "garbage", b"")
        if garbage:
            first = redacted_text(repr(garbage[:80]))
            message = f"{self.link.name} is not MCP: no answer within {waited}; the first bytes were {first}."
            return NotMCP(f"{message}\n{stderr}" if stderr else message)
        return ConnectionFailed(f"{self.link.name} gave no answer within {waited}.", stderr=stderr)


def _failed(lost: ConnectionLost) -> ConnectionFailed:
    """The same, for a connection that never came about."""
    text = str(lost)
    message = text.removesuffix(f"\n{lost.stderr}") if lost.stderr else text
    return ConnectionFailed(f"{message.removesuffix('.')}, before it had answered.", stderr=lost.stderr)


def _no_message() -> type[Exception]:
    """HTTP's `NoMessage`, without loading the HTTP client for those who do not use it."""
    module = sys.modules.get("wharfinger.transports.http_client.origin")
    return cast("type[Exception]", module.NoMessage) if module is not None else _Never


class _Never(Exception):
    """Raised by nobody."""


def _no_endpoint(error: Any, target: Checked) -> ConnectionFailed:
    """An HTTP answer to `initialize` that is no message: the wrong path, or the transport of 2024-11-05."""
    if error.status not in _NO_ENDPOINT:
        return cast("ConnectionFailed", error)
    path = redacted(str(target)).partition("?")[0].rstrip("/")
    known = next((end for end in ("/mcp", "/sse") if path.endswith(end)), "")
    others = [path.removesuffix(known) + end for end in ("/mcp", "/sse") if end != known]
    old = "" if known else " (HTTP+SSE of 2024-11-05)"
    reason = str(error).removesuffix(".")
    return ConnectionFailed(f"No MCP server here: {reason}. Try {' or '.join(others)}{old}.")


_NO_ENDPOINT = frozenset((400, 404, 405))
"""Statuses that answer `initialize` where there is no Streamable HTTP (2025-03-26, backwards compatibility)."""


def _info_in(meta: Any) -> t.Implementation | None:
    """Who the server says it is, in the `_meta` of a stateless result; what cannot be read says nothing."""
    try:
        return None if meta is UNSET else msgspec.convert(meta.get(t.META_SERVER_INFO), t.Implementation)
    except msgspec.ValidationError:
        return None


def _place(target: Checked, settings: Settings) -> Hashable:
    """Which server it is, as far as its era goes: a URL without its query, or a command in its folder."""
    if isinstance(target, str):
        return target.partition("#")[0].partition("?")[0]
    return (*target, str(settings.cwd)) if isinstance(target, list) else None
