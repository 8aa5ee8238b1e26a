"""The options of `Server.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from wharfinger.protocol.http.rules import HttpLimits
    from wharfinger.protocol.interfaces import Verify
    from wharfinger.transports.http_server.app import Page

__all__ = ["HttpRunOptions", "UnixRunOptions"]


class HttpRunOptions(TypedDict, total=False):
    """What can be said of serving over HTTP; see `wharfinger.transports.http_server.runner.serve_http`."""

    verify: Verify | None
    """Turns a bearer token into a principal."""
    insecure: bool
    """Whether other machines may connect without a token."""
    allow_hosts: Iterable[str]
    allow_origins: Iterable[str]
    public_url: str
    """Where clients reach the server, if that is not where it listens."""
    tls_cert: str
    """The file of a certificate, with its key or without it."""
    tls_key: str
    limits: HttpLimits | None
    pages: Mapping[str, Page] | None
    """Pages for people, by their path."""
    sse: bool
    """Whether clients of 2024-11-05 are served over HTTP+SSE."""
    on_ready: Callable[[str], None] | None
    """Called with the base URL once clients can connect."""


class UnixRunOptions(TypedDict, total=False):
    """What can be said of serving on a Unix socket; see `wharfinger.transports.unix_server.serve_unix`."""

    mode: int
    """The mode of the socket's file: who may write to it may connect."""
    connections: int
    """How many clients may be connected at once."""
    on_ready: Callable[[], None] | None
    """Called once clients can connect."""
