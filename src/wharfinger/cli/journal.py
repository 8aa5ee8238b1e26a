"""A line per read, change, call and client, made by hooks around all others; no I/O of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.cli.words import count, duration, printable, size
from wharfinger.server.middleware.chain import transparent

if TYPE_CHECKING:
    from wharfinger.protocol.request import Request
    from wharfinger.server import Server
    from wharfinger.server.middleware.chain import Hook, Next

__all__ = ["Journal"]

LONGEST = 200
"""Characters of foreign text that one line shows."""
CLIENTS = 256
"""Clients that are remembered, so that each is told once."""


class Journal:
    """Tells what a server does, one line each: local time, verb, what, and how it went."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.known: dict[tuple[str, str, str], None] = {}

    def follow(self, server: Server) -> None:
        """Stand around everything that the server does, and listen to its changes."""
        for method, describe in SUBJECTS.items():
            server.handlers.add_hook(self.observed(*describe), (method,), outermost=True)
        for method in GREETINGS:
            server.handlers.add_hook(self.greeted(again=method == "initialize"), (method,), outermost=True)
        server.watching.told = self.changed

    def observed(self, verb: str, subject: Callable[[Any], str]) -> Hook:
        """Tell each call after it."""

        @transparent
        async def hook(request: Request, next: Next) -> Any:
            self.greet(request, again=False)
            begun = time.perf_counter()
            what = subject(request.params)  # hooks of the server may change it
            try:
                result = await next(request)
            except BaseException as error:
                self.line(verb, what, failure(error), taken(begun), client(request))
                raise
            self.line(verb, what, extent(result), taken(begun), client(request))
            return result

        return hook

    def greeted(self, *, again: bool) -> Hook:
        """Tell of a client after what it calls first."""

        @transparent
        async def hook(request: Request, next: Next) -> Any:
            result = await next(request)
            self.greet(request, again=again)
            return result

        return hook

    def greet(self, request: Request, *, again: bool) -> None:
        """Tell of a client the first time, or each time that it connects anew."""
        key = (client(request), request.caller.rules.name, request.caller.principal)
        if key in self.known and not again:
            return
        if len(self.known) >= CLIENTS:
            self.known.pop(next(iter(self.known)))
        self.known[key] = None
        principal = request.caller.principal
        self.line("client", client(request), request.caller.rules.name, f"as {principal}" if principal else "")

    def changed(self, uri: str, watchers: int) -> None:
        """Tell of a change that watchers were told of."""
        self.line("changed", uri, f"told {count(watchers, 'watcher')}")

    def line(self, verb: str, *parts: str) -> None:
        """Write one line; what strangers wrote is made harmless and short."""
        shown = "  ".join(shortened(printable(part)) for part in parts if part)
        self.tell(f"{time.strftime('%H:%M:%S')} {verb:<7} {shown}")


def uri_of(params: Any) -> str:
    """Say which resource was asked for."""
    return str(getattr(params, "uri", ""))


def call_of(params: Any) -> str:
    """Say which tool was called, and with what."""
    arguments = getattr(params, "arguments", msgspec.UNSET)
    text = bytes(arguments).decode("utf-8", "replace") if isinstance(arguments, msgspec.Raw) else ""
    return f"{getattr(params, 'name', '')} {text}".rstrip()


SUBJECTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "resources/read": ("read", uri_of),
    "tools/call": ("call", call_of),
}
"""Methods that get a line per call: the verb, and what to say of the params."""

GREETINGS = ("initialize", "server/discover", "resources/list", "tools/list", "subscriptions/listen")
"""Methods that a client's first message is likely to call."""


def client(request: Request) -> str:
    """Name the caller's program."""
    info = request.caller.info
    return f"{info.name} {info.version}".strip() if info is not None else "unnamed client"


def taken(begun: float) -> str:
    """Say how long it took."""
    return duration(time.perf_counter() - begun)


def failure(error: BaseException) -> str:
    """Say in two words why there is no result; the text of a foreign exception is not for a line like this."""
    if type(error).__name__ == "CancelledError":
        return "cancelled"
    if type(error).__name__ in ("ResourceNotFound", "PermissionDenied"):
        return "not found"
    return f"failed: {type(error).__name__}"


def extent(result: Any) -> str:
    """Say how much was read, or that a tool failed."""
    if getattr(result, "is_error", False) is True:
        return "tool error"
    contents = getattr(result, "contents", None)
    if contents is None:
        return ""
    return size(sum(octets(item) for item in contents))


def octets(item: Any) -> int:
    """Count the bytes of one content."""
    text = item.text
    if isinstance(text, str):
        return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return len(item.blob) if item.blob is not msgspec.UNSET else 0


def shortened(text: str) -> str:
    """Cut what is too long for a line."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
