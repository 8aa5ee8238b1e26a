"""Opens a connection to a target: chooses the transport, detects the server's era, and negotiates a revision.

The first request to an unknown server is `server/discover`. The response decides the next step (see
`protocol.negotiation`): either the server supports the stateless era, or the client sends `initialize`. Old servers at
URLs take it only over HTTP+SSE. Servers that exit when they do not know the first request need a second connection. The
outcome is remembered for each server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.client.settings import Settings
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
from wharfinger.net import is_http_url
from wharfinger.protocol.interfaces import Authorize, Link, LinkEvents, Service
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.negotiation import (
    Discover,
    GiveUp,
    Initialize,
    NextStep,
    ProtocolCache,
    ServerProtocol,
    Stateless,
    decide_discover,
    decide_initialize,
    decide_refusal,
    first_step,
)
from wharfinger.protocol.revisions import REVISIONS, Revision
from wharfinger.transports.timeouts import PausableTimeout, paused

__all__ = ["CheckedTarget", "Connection", "LinkFactory", "Negotiated", "Target", "check_target", "connect"]


class Connection(Link, Protocol):
    """A `Link` with more members for the client."""

    name: str
    """The server's name for error messages."""
    transport: str
    header_params: Any
    """The arguments that HTTP headers repeat, by tool; None if the transport has no headers."""
    rules: Any
    """The rules of the negotiated revision."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection is lost."""
        ...

    async def open_session_stream(self, timeout: float | None) -> None:
        """Open the stream for the server's messages that belong to no request of the client."""
        ...


class LinkFactory(Protocol):
    """A target that opens its connections itself, as `Wire` and `Replay` of `wharfinger.testing` do."""

    async def open_link(self, limits: Limits, events: LinkEvents) -> Connection:
        """Open a new connection, ready to be used."""
        ...


Target = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any] | Service | LinkFactory
"""A URL; a command and its arguments; an entry of a host's configuration; a Python file, to be run; `unix:/path`, or
the path of an existing socket; or a server of this process."""


class Socket(msgspec.Struct, frozen=True):
    """A Unix socket on which a server listens."""

    path: str


CheckedTarget = str | list[str] | Socket | Service | LinkFactory
"""A URL, a command, a Unix socket, or a server."""

MAX_STEPS = 5
"""The maximum number of requests to open a connection."""
MAX_REASON_CHARACTERS = 200
"""The maximum number of characters of an earlier failure that a later one repeats."""
STATELESS_PROBE_FACTOR = 5
"""Factor by which to wait longer for a server that was stateless before, because it may only be busy."""

PROTOCOL_CACHE = ProtocolCache(time.monotonic)
"""The protocols of servers at URLs, for all clients of this process. For other targets, a client has its own cache."""


class Negotiated(msgspec.Struct, frozen=True, kw_only=True):
    """The revision that client and server negotiated, and the server's description of itself."""

    rules: Revision
    capabilities: t.ServerCapabilities
    server_info: t.Implementation | None
    instructions: str | None
    meta: t.RequestMeta | UnsetType
    """The `_meta` of every request; UNSET in the handshake era."""


def check_target(target: Any) -> CheckedTarget:
    """Check a target, and find out its kind.

    Raises:
        TypeError, ValueError: it cannot be a server; the message lists what is accepted.
    """
    accepted = (
        'a URL, a command as a list such as ["python", "server.py"], an entry of a '
        "configuration, an existing Python file, unix:/path, or a Server"
    )
    if isinstance(target, str) and is_http_url(target):
        return target
    if isinstance(target, str | os.PathLike):
        text = str(cast("str | os.PathLike[str]", target))
        if text.startswith("unix:") and text.removeprefix("unix:").removeprefix("//"):
            return Socket(text.removeprefix("unix:").removeprefix("//"))
        with contextlib.suppress(OSError):  # too long for a path, or in a folder that may not be entered
            if Path(text).is_socket():
                return Socket(text)
            if text.endswith(".py") and Path(text).is_file():
                return [sys.executable, str(Path(text).absolute())]  # it may be run in another folder: `cwd`
        shown = redacted_text(text)
        if " -" in shown:
            shown = redacted_command(shown.split())
        raise ValueError(f"{shown!r} is not a target of a known kind: a client takes {accepted}.")
    if isinstance(target, list | tuple):
        parts = cast("Sequence[object]", target)
        if not parts or not all(isinstance(part, str | os.PathLike) for part in parts):
            raise ValueError("A command needs at least a program, and consists of strings.")
        return [str(part) for part in parts]
    if hasattr(target, "open_link"):
        return cast("LinkFactory", target)
    if hasattr(target, "handlers") and hasattr(target, "result_meta"):
        return cast("Service", target)
    raise TypeError(f"A client takes {accepted}, not {type(target).__name__}.")


async def connect(
    target: CheckedTarget, settings: Settings, events: LinkEvents, protocols: ProtocolCache | None = None
) -> tuple[Connection, Negotiated]:
    """Open a connection and agree on a revision. If that fails, everything opened is closed again.

    `events` receives the events of the link. `protocols` caches the protocol of a target that is not a URL. The
    protocols of URLs are cached in `PROTOCOL_CACHE`.

    Raises:
        ConnectionFailed, NotMCP, UnsupportedRevision, RemoteError, InvalidResponse: there is no server, or negotiating
            failed.
    """
    timeout = PausableTimeout(settings.open_timeout)
    opening = _Opening(target, settings, events, timeout, PROTOCOL_CACHE if isinstance(target, str) else protocols)
    try:
        async with timeout:
            agreed = await opening.run()
            await opening.open_session_stream()
            return opening.link, agreed
    except BaseException as error:
        failure = error
        if opening.opened:
            await opening.link.close()
    finally:
        opening.timeouts.clear()  # a later sign-in must not pause the timeouts of this opening
    if isinstance(failure, TimeoutError) and (timeout.expired or isinstance(failure, RequestTimeout)):
        raise opening.timeout_error() from None
    if isinstance(failure, ConnectionLost):  # to the caller, the connection was never established
        message = _without_stderr(failure).removesuffix(".")
        failure = ConnectionFailed(f"{message}, before it had answered.", stderr=failure.stderr)
    raise opening.with_history(failure) from None


class _PausingAuth:
    """An `Authorize` that pauses the timeouts of an opening while a person signs in."""

    def __init__(self, auth: Authorize, timeouts: list[PausableTimeout]) -> None:
        self._auth = auth
        self._timeouts = timeouts

    async def headers(self, url: str) -> Mapping[str, str]:
        return await self._auth.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        with paused(*self._timeouts):
            return await self._auth.refused(url, status, headers, sent)


class _Opening:
    """One attempt to connect: its link, which may be replaced by another, and the steps of the negotiation."""

    link: Connection

    def __init__(
        self,
        target: CheckedTarget,
        settings: Settings,
        events: LinkEvents,
        timeout: PausableTimeout,
        protocols: ProtocolCache | None,
    ) -> None:
        self.target = target
        self.settings = settings
        self._events = events
        self._protocols = protocols
        self._key = _protocol_key(target, settings) if protocols is not None else None
        self._known: ServerProtocol | None = protocols.get(self._key) if protocols is not None else None
        """The protocol of the server according to the cache."""
        self.timeouts = [timeout]
        """Timeouts that pause while a person signs in."""
        self._auth = None if settings.auth is None else _PausingAuth(settings.auth, self.timeouts)
        self.opened = False
        self._sent_discover = False
        """Whether `server/discover` was sent on the link: some servers of the handshake era exit when they receive it,
        and some bridges open a session for it and then refuse `initialize`."""
        self._first_failure: WharfingerError | None = None
        """The failure of the first link, on which `server/discover` was sent; None if no second link was opened."""
        self._tried_sse = False
        self._late_discover: asyncio.Task[Message] | None = None
        """The pending `server/discover`, which a slow server may still answer."""

    async def run(self) -> Negotiated:
        try:
            self.link = await self._new_link()
        except (ConnectionFailed, ConnectionLost, InvalidResponse, NotMCP) as error:
            if self._known != "sse" or isinstance(error, NotAuthorized):
                raise
            self._forget_protocol()  # the server may have been updated
            self.link = await self._new_link()
        self.opened = True
        try:
            agreed = await self._negotiate()
            if self._protocols is not None and self.settings.revision is None:
                protocol: ServerProtocol = "stateless"
                if agreed.rules.era == "handshake":
                    protocol = "sse" if self.link.transport == "http+sse" else "handshake"
                self._protocols.put(self._key, protocol)
            return agreed
        finally:
            if self._late_discover is not None:
                self._late_discover.cancel()
                await asyncio.wait((self._late_discover,))

    async def _negotiate(self) -> Negotiated:
        pinned = self.settings.revision
        step: NextStep = first_step(pinned, self._known)
        for _ in range(MAX_STEPS):
            if isinstance(step, Discover):
                step = await self._discover(step)
            elif isinstance(step, Initialize):
                outcome = await self._initialize_or_start_over(step)
                if isinstance(outcome, Negotiated):
                    return outcome
                step = outcome
            elif isinstance(step, Stateless):
                return self._finish_stateless(step)
            else:
                raise step.error
        raise UnsupportedRevision("The server keeps changing its answer about revisions.")

    async def _new_link(self) -> Connection:
        # Transports are imported on use: most clients need one of them.
        target, settings = self.target, self.settings
        if isinstance(target, str):
            if self._known == "sse":
                return await self._sse_link(target)
            from wharfinger.transports.http_client.http_link import HttpLink

            return HttpLink(target, settings.limits, settings.headers, self._auth, settings.allow_address, self._events)
        if isinstance(target, list):
            from wharfinger.transports.stdio_client import StdioLink

            child = StdioLink(target, settings.limits, settings.stderr, self._events)
            await child.open(settings.env, settings.cwd)
            return child
        if isinstance(target, Socket):
            from wharfinger.transports.unix_client import UnixLink

            socket = UnixLink(target.path, settings.limits, self._events)
            await socket.open()
            return socket
        in_process: Any = target
        if hasattr(in_process, "open_link"):
            return await cast("LinkFactory", in_process).open_link(settings.limits, self._events)
        from wharfinger.transports.memory import MemoryLink

        memory = MemoryLink(in_process, settings.limits, self._events)
        await memory.open()
        return memory

    async def _sse_link(self, url: str) -> Connection:
        from wharfinger.transports.http_client.sse_link import SseLink

        settings = self.settings
        link = SseLink(url, settings.limits, settings.headers, self._auth, settings.allow_address, self._events)
        probe = PausableTimeout(settings.probe_timeout)
        self.timeouts.append(probe)
        try:
            async with probe:
                await link.open()
        except TimeoutError:
            await link.close()
            raise ConnectionFailed(f"{link.name} did not send its endpoint event in time.") from None
        finally:
            self.timeouts.remove(probe)
        return link

    async def _replace_link(self, link: Connection) -> None:
        """Continue over this link, and close the previous one."""
        before, self.link = self.link, link
        await before.close()

    async def open_session_stream(self) -> None:
        """Open the session's own stream if the client answers requests of the server: some are sent only there
        (2025-11-25, HTTP)."""
        if self._events.on_request is not None:
            with contextlib.suppress(ConnectionFailed, ConnectionLost, RequestTimeout):
                await self.link.open_session_stream(self.settings.probe_timeout)

    # The stateless era.

    async def _discover(self, step: Discover) -> NextStep:
        params = t.RequestParams(meta=self._meta(step.revision))
        response = asyncio.ensure_future(self.link.request("server/discover", params, timeout=None))
        self._sent_discover = True
        seconds = None  # with a pinned revision there is nothing else to try
        if self.settings.revision is None:
            seconds = self.settings.probe_timeout * (STATELESS_PROBE_FACTOR if self._known == "stateless" else 1)
        probe = PausableTimeout(seconds)
        self.timeouts.append(probe)
        try:
            async with probe:
                await asyncio.wait((response,))
        except TimeoutError:
            if not probe.expired:
                raise
        except BaseException:
            response.cancel()
            raise
        finally:
            self.timeouts.remove(probe)
        if not response.done():
            if isinstance(self.target, str):
                # Over HTTP requests do not queue: a server that has not answered yet will not answer.
                response.cancel()
            else:
                self._late_discover = response
            return decide_discover(step, None, None)
        try:
            answer: Message | None = response.result()
        except ConnectionLost as lost:
            if not await self._reconnect(lost):
                raise
            answer = None
        except InvalidResponse:
            answer = None
        except ConnectionFailed as failed:
            if failed.status is None:
                raise
            answer = None
        return decide_discover(step, answer, self.settings.revision)

    async def _reconnect(self, failure: WharfingerError) -> bool:
        """Open another link, on which only `initialize` will be sent. Returns False if that cannot help."""
        may_help = self._sent_discover and self._known != "stateless" and self.settings.revision is None
        if not may_help or not isinstance(self.target, str | list | Socket):
            return False
        self._first_failure = failure
        self._sent_discover = False
        await self._replace_link(await self._new_link())
        return True

    def _finish_stateless(self, step: Stateless) -> Negotiated:
        rules = REVISIONS[step.revision]
        self.link.rules = rules
        discovered = step.discovered
        return Negotiated(
            rules=rules,
            capabilities=discovered.capabilities,
            server_info=_info_in(discovered.meta),
            instructions=None if isinstance(discovered.instructions, UnsetType) else discovered.instructions,
            meta=self._meta(step.revision),
        )

    def _meta(self, revision: str) -> t.RequestMeta:
        return t.RequestMeta(
            protocol_version=revision,
            client_info=self.settings.info,
            client_capabilities=self.settings.capabilities,
            log_level=self.settings.requested_log_level,
        )

    # The handshake era.

    async def _initialize_or_start_over(self, step: Initialize) -> Negotiated | NextStep:
        """Call `_initialize`. If it fails with a protocol from the cache, forget that protocol and start over."""
        if self._known is None:
            return await self._initialize(step)
        try:
            outcome = await self._initialize(step)
            if not isinstance(outcome, GiveUp):
                return outcome
        except (ConnectionFailed, ConnectionLost, InvalidResponse, NotMCP, UnsupportedRevision) as error:
            if isinstance(error, NotAuthorized):
                raise
        self._forget_protocol()
        await self._replace_link(await self._new_link())
        return first_step(self.settings.revision)

    def _forget_protocol(self) -> None:
        self._known = None
        if self._protocols is not None:
            self._protocols.forget(self._key)

    async def _initialize(self, step: Initialize) -> Negotiated | NextStep:
        params = t.InitializeRequestParams(
            protocol_version=step.revision, capabilities=self.settings.capabilities, client_info=self.settings.info
        )
        response = asyncio.ensure_future(self.link.request("initialize", params, timeout=None))
        try:
            if self._late_discover is not None:
                late, self._late_discover = self._late_discover, None
                verdict = await self._decide_late(late, response)
                if verdict is not None:
                    return verdict
            answer = await response
        except ConnectionLost as lost:
            if not await self._reconnect(lost):
                raise
            return step
        except ConnectionFailed as error:
            if error.status is None:
                raise
            if error.status in _NO_ENDPOINT and await self._change_to_sse():
                return step
            raise _endpoint_error(error, self.target) from None
        finally:
            response.cancel()
        if answer.error is not UNSET:
            verdict = decide_refusal(answer, self.settings.revision)
            # An error without an id may come from a URL that is not for messages, such as one of HTTP+SSE.
            if isinstance(verdict, GiveUp) and answer.id is UNSET and await self._change_to_sse():
                return step
            # A bridge that opened its own session for `server/discover` refuses to open a second one.
            if isinstance(verdict, GiveUp) and await self._reconnect(verdict.error):
                return step
            return verdict
        try:
            return self._finish_handshake(answer)
        except (InvalidResponse, NotMCP) as error:
            if not await self._reconnect(error):
                raise
            return step

    async def _change_to_sse(self) -> bool:
        """Change to HTTP+SSE of 2024-11-05. Returns False if this fails, was tried before, or the target is no URL."""
        if not isinstance(self.target, str) or self._tried_sse:
            return False
        self._tried_sse = True
        try:
            await self._replace_link(await self._sse_link(self.target))
        except NotAuthorized:
            raise
        except WharfingerError:
            return False
        return True

    async def _decide_late(self, late: asyncio.Task[Message], initialized: asyncio.Future[Message]) -> NextStep | None:
        """Return the step after a late response to `server/discover`.

        Returns None if the response to `initialize` decides instead.
        """
        try:
            await asyncio.wait((initialized, late), return_when=asyncio.FIRST_COMPLETED)
            if late.done() and not late.cancelled() and late.exception() is None:
                # The revision in the request makes no difference to the next step.
                verdict = decide_discover(Discover(""), late.result(), self.settings.revision)
                if not isinstance(verdict, Initialize):
                    return verdict
            return None
        finally:
            if not late.done():
                late.cancel()
                await asyncio.wait((late,))

    def _finish_handshake(self, answer: Message) -> Negotiated:
        if isinstance(answer.result, UnsetType):
            raise InvalidResponse(f"{self.link.name} answered initialize without a result.")
        try:
            result: t.InitializeResult = METHODS["initialize"].decode_result(answer.result)
        except msgspec.MsgspecError as error:
            raise NotMCP(f"{self.link.name} answered initialize with an invalid InitializeResult: {error}.") from None
        rules = REVISIONS[decide_initialize(result, self.settings.revision)]
        self.link.rules = rules
        self.link.notify("notifications/initialized", UNSET)
        return Negotiated(
            rules=rules,
            capabilities=result.capabilities,
            server_info=result.server_info,
            instructions=None if isinstance(result.instructions, UnsetType) else result.instructions,
            meta=UNSET,
        )

    # Failures.

    def with_history(self, failure: BaseException) -> BaseException:
        """Return the failure, with a sentence about the first attempt if that failed in another way."""
        if self._first_failure is None or not isinstance(failure, WharfingerError):
            return failure
        if isinstance(self._first_failure, ConnectionLost) and isinstance(failure, ConnectionFailed):
            return failure  # the server exited both times
        reason = str(self._first_failure).partition("\n")[0]
        if reason == str(failure).partition("\n")[0]:
            return failure
        first = f"server/discover and then initialize ({reason[:MAX_REASON_CHARACTERS]})"
        tried = f"Tried over two connections: {first}, and initialize alone."
        if isinstance(failure, RemoteError):
            return remote_error(failure.code, f"{failure.message.removesuffix('.')}. {tried}", failure.data)
        if type(failure) is ConnectionFailed:
            return ConnectionFailed(f"{_without_stderr(failure)} {tried}", stderr=failure.stderr)
        return NotMCP(f"{failure} {tried}") if type(failure) is NotMCP else failure

    def timeout_error(self) -> WharfingerError:
        """Return the error to raise if the server did not respond in time."""
        waited = f"{self.settings.open_timeout:g} s"
        if not self.opened:
            return ConnectionFailed(f"The server did not start within {waited}.")
        stderr = getattr(self.link, "stderr", "")
        garbage: bytes = getattr(self.link, "garbage", b"")
        if garbage:
            first = redacted_text(repr(garbage[:80]))
            message = f"{self.link.name} is not MCP: no answer within {waited}; the first bytes were {first}."
            return NotMCP(f"{message}\n{stderr}" if stderr else message)
        return ConnectionFailed(f"{self.link.name} gave no answer within {waited}.", stderr=stderr)


def _without_stderr(error: ConnectionLost | ConnectionFailed) -> str:
    """Return the message of an error without the end of the server's stderr."""
    return str(error).removesuffix(f"\n{error.stderr}") if error.stderr else str(error)


def _endpoint_error(error: ConnectionFailed, target: CheckedTarget) -> ConnectionFailed:
    """Return the error for an HTTP response to `initialize` that is not a message, with other paths to try."""
    if error.status not in _NO_ENDPOINT:
        return error
    path = redacted(str(target)).partition("?")[0].rstrip("/")
    known = next((end for end in ("/mcp", "/sse") if path.endswith(end)), "")
    others = [path.removesuffix(known) + end for end in ("/mcp", "/sse") if end != known]
    old = "" if known else " (HTTP+SSE of 2024-11-05)"
    reason = str(error).removesuffix(".")
    return ConnectionFailed(f"No MCP server here: {reason}. Try {' or '.join(others)}{old}.")


_NO_ENDPOINT = frozenset((400, 404, 405))
"""HTTP statuses for `initialize` if the URL has no Streamable HTTP (2025-03-26, backwards compatibility)."""


def _info_in(meta: Any) -> t.Implementation | None:
    """Return the server's name and version in the `_meta` of a stateless result; None if missing or invalid."""
    try:
        return None if meta is UNSET else msgspec.convert(meta.get(t.META_SERVER_INFO), t.Implementation)
    except msgspec.ValidationError:
        return None


def _protocol_key(target: CheckedTarget, settings: Settings) -> Hashable:
    """Return the key of a server in the cache of protocols: the URL without query and fragment, or the command and its
    folder.

    For other targets the key is None. The cache belongs to one client, and so to one server.
    """
    if isinstance(target, str):
        return target.partition("#")[0].partition("?")[0]
    return (*target, str(settings.cwd)) if isinstance(target, list) else None
