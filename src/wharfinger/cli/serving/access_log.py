"""The access log of a server: a line for each read, call, change and new client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.cli.render.formatting import duration
from wharfinger.content.redaction import redacted, redacted_text
from wharfinger.content.text import escape_controls, many, size_text
from wharfinger.errors import PermissionDenied, ResourceNotFound
from wharfinger.server.middleware.chain import transparent

if TYPE_CHECKING:
    from wharfinger.protocol.request import Request
    from wharfinger.server import Server
    from wharfinger.server.middleware.chain import Middleware, Next

__all__ = ["AccessLog"]

PART_CHARACTERS = 200
"""Maximum length of a URI, name or argument that a line shows."""
SEARCHED_CHARACTERS = 4_000
"""Maximum length of the beginning of a URI, or of arguments, that is searched for secrets: they may have megabytes."""
MAX_KNOWN_CLIENTS = 256
"""Maximum number of clients that are remembered, so that each is logged once."""


class AccessLog:
    """Writes lines of local time, verb, subject and outcome."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self.known: dict[tuple[str, str, str], None] = {}

    def follow(self, server: Server) -> None:
        """Log the reads, calls, clients and changes of a server."""
        for method, (verb, describe) in SUBJECTS.items():
            server.methods.add_middleware(self._call_middleware(verb, describe), (method,), outermost=True)
        for method in FIRST_METHODS:  # of these, `initialize` begins a session, and each session is logged
            server.methods.add_middleware(
                self._client_middleware(again=method == "initialize"), (method,), outermost=True
            )
        server.watching.on_sent = self._log_change

    def _call_middleware(self, verb: str, describe: Callable[[Any], str]) -> Middleware:
        """Return middleware that logs each request after it has ended."""

        @transparent
        async def around(request: Request, next: Next) -> Any:
            self._log_client(request, again=False)
            started = time.perf_counter()
            subject = describe(request.params)  # before the server's own middleware changes the params
            try:
                result = await next(request)
            except BaseException as error:
                self._write_line(verb, subject, failure(error), elapsed(started), client_name(request))
                raise
            self._write_line(verb, subject, outcome(result), elapsed(started), client_name(request))
            return result

        return around

    def _client_middleware(self, *, again: bool) -> Middleware:
        """Return middleware that logs the client after a request (see `_log_client`)."""

        @transparent
        async def around(request: Request, next: Next) -> Any:
            result = await next(request)
            self._log_client(request, again=again)
            return result

        return around

    def _log_client(self, request: Request, *, again: bool) -> None:
        """Log a client when it is first seen; with `again`, also if it is known."""
        key = (client_name(request)[:PART_CHARACTERS], request.caller.rules.name, request.caller.principal.key)
        if key in self.known and not again:
            return
        if len(self.known) >= MAX_KNOWN_CLIENTS:
            self.known.pop(next(iter(self.known)))
        self.known[key] = None
        principal = request.caller.principal
        subject = f"as {principal.subject}" if principal.key else ""
        self._write_line("client", client_name(request), request.caller.rules.name, subject)

    def _log_change(self, uri: str, watcher_count: int) -> None:
        """Log a change and how many watchers were notified."""
        self._write_line("changed", uri, f"notified {many(watcher_count, 'watcher')}")

    def _write_line(self, verb: str, *parts: str) -> None:
        """Write one line, with each part shortened and its control characters escaped."""
        # Only what may be shown is escaped: a request may have megabytes of arguments.
        line = "  ".join(shortened(escape_controls(part[: PART_CHARACTERS + 1])) for part in parts if part)
        self.write(f"{time.strftime('%H:%M:%S')} {verb:<7} {line}")


def uri_of(params: Any) -> str:
    """Return the URI of the resource, without passwords."""
    return redacted(str(getattr(params, "uri", ""))[:SEARCHED_CHARACTERS])


def call_of(params: Any) -> str:
    """Return the name of the tool with its arguments, without passwords and tokens."""
    arguments = getattr(params, "arguments", msgspec.UNSET)
    text = bytes(arguments).decode("utf-8", "replace") if isinstance(arguments, msgspec.Raw) else ""
    return f"{getattr(params, 'name', '')} {redacted_text(text[:SEARCHED_CHARACTERS])}".rstrip()


SUBJECTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "resources/read": ("read", uri_of),
    "tools/call": ("call", call_of),
}
"""The methods of which each request is logged, with the verb of its line and the function that describes its params."""

FIRST_METHODS = ("initialize", "server/discover", "resources/list", "tools/list", "subscriptions/listen")
"""Methods that a client is likely to call first."""


def client_name(request: Request) -> str:
    """Return the name and version of the client."""
    info = request.caller.info
    return f"{info.name} {info.version}".strip() if info is not None else "unnamed client"


def elapsed(started: float) -> str:
    """Return the time since `started`."""
    return duration(time.perf_counter() - started)


def failure(error: BaseException) -> str:
    """Return in a few words why there is no result, without the text of the exception."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    # The client gets the same answer for both. A RemoteResourceNotFound, a subclass, is an internal error here.
    if type(error) in (ResourceNotFound, PermissionDenied):
        return "not found"
    return f"failed: {type(error).__name__}"


def outcome(result: Any) -> str:
    """Return the size of the contents of a read, or that a tool failed; an empty string for any other result."""
    if getattr(result, "is_error", False) is True:
        return "tool error"
    contents = getattr(result, "contents", None)
    if contents is None:
        return ""
    return size_text(sum(byte_count(item) for item in contents))


def byte_count(item: Any) -> int:
    """Return the size of one content in bytes."""
    text = item.text
    if isinstance(text, str):
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return len(item.blob) if item.blob is not msgspec.UNSET else 0


def shortened(text: str) -> str:
    """Cut a text that is too long for a line."""
    return text if len(text) <= PART_CHARACTERS else text[: PART_CHARACTERS - 1] + "…"
