"""Runs a server over stdio, over HTTP or on a Unix socket (`Server.run`), and defines the options of each."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from wharfinger.auth.server.token_auth import TokenAuth
    from wharfinger.auth.server.token_verifier import TokenVerifier
    from wharfinger.protocol.http.rules import HttpLimits
    from wharfinger.protocol.interfaces import Service, Verify
    from wharfinger.transports.http_server.app import Page

__all__ = ["HttpRunOptions", "UnixRunOptions", "run"]


class HttpRunOptions(TypedDict, total=False):
    """Options for serving over HTTP; see `wharfinger.transports.http_server.runner.serve_http`."""

    auth: TokenAuth | TokenVerifier | Sequence[TokenVerifier] | None
    """Requires a token: `TokenAuth`, a verifier such as `JWTVerifier(issuer=…, audience=…)`, or several."""
    verify: Verify | None
    """Finds the principal in the headers of a request; for credentials that are not bearer tokens."""
    insecure: bool
    """Whether other machines may connect without a token."""
    allow_hosts: Iterable[str]
    allow_origins: Iterable[str]
    public_url: str
    """The URL at which clients reach the server, if that is not where it listens."""
    tls_cert: str
    """The file of a certificate, with or without its key."""
    tls_key: str
    limits: HttpLimits | None
    pages: Mapping[str, Page] | None
    """Pages for people, by their path."""
    sse: bool
    """Whether clients of 2024-11-05 are served over HTTP+SSE."""
    on_ready: Callable[[str], None] | None
    """Called with the base URL once clients can connect."""


class UnixRunOptions(TypedDict, total=False):
    """Options for serving on a Unix socket; see `wharfinger.transports.unix_server.serve_unix`."""

    mode: int
    """The mode of the socket's file: users who may write to it may connect."""
    connections: int
    """The number of clients that may be connected at the same time."""
    on_ready: Callable[[], None] | None
    """Called once clients can connect."""


def run(
    service: Service,
    http: str | None,
    unix: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    tool: str | None,
) -> None:
    """Serve until the end of input or Ctrl-C. `tool` is the name of one of the tools, for a hint at a terminal.

    Raises:
        TypeError: `http` and `unix` are both given, `http` is not a string, or options are given without either.
        ValueError: `http` is not of the form HOST:PORT.
    """
    if http is not None and unix is not None:
        raise TypeError("http and unix exclude each other: serve over one of them.")
    if unix is not None:
        from wharfinger.transports.unix_server import serve_unix

        serve_unix(service, unix, **options)
    elif http is not None:
        from wharfinger.transports.http_server.runner import run_in_loop, serve_http

        if not isinstance(http, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError('run(http=…) takes HOST:PORT: run(http="127.0.0.1:8000")')
        host, _, port = http.rpartition(":")
        if not (port.isascii() and port.isdecimal() and int(port) < 65536):
            raise ValueError(f'{http!r} is not HOST:PORT: run(http="127.0.0.1:8000")')
        run_in_loop(serve_http(service, host or "127.0.0.1", int(port), **options))
    elif options:
        raise TypeError(f'run() over stdio takes no {next(iter(options))}=: for HTTP write run(http="127.0.0.1:8000").')
    else:
        from wharfinger.transports.stdio_server import serve_stdio

        if sys.stdin is not None and sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
            _explain_silence(service.info.name, tool)
        serve_stdio(service)


def _explain_silence(name: str, tool: str | None) -> None:
    """Explain on stderr why nothing happens at a terminal: people may not know that hosts start servers."""
    file = shlex.quote(sys.argv[0])
    commands = [f"wharfinger inspect {file}"] + ([f"wharfinger call {file} {shlex.quote(tool)}"] if tool else [])
    sys.stderr.write(
        f"{name} waits for MCP messages on stdin, which a host sends. To try it: {', or '.join(commands)}. "
        "Ctrl-C ends it.\n"
    )
