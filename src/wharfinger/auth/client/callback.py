"""`Callback`: a small HTTP listener on this machine for the redirect that ends a sign-in."""

from __future__ import annotations

import asyncio
import html
from collections.abc import Callable
from types import TracebackType
from typing import Self

from wharfinger.errors import NotAuthorized

__all__ = ["Callback"]

PATH = "/callback"
REQUEST_SECONDS = 5.0
"""Time for the head of one request."""
MAX_REQUEST_BYTES = 32 * 1024
"""The maximum size of the head of one request."""
MAX_CONNECTIONS = 16

ReadRedirect = Callable[[str], str]
"""Returns the code in the query of a redirect. Raises LookupError if the redirect belongs to another sign-in, and
NotAuthorized if the sign-in was refused."""


class Callback:
    """Listens on 127.0.0.1 for the redirect that ends a sign-in: `async with Callback() as callback`."""

    def __init__(self, port: int = 0) -> None:
        """A `port` of 0 means any free port."""
        self._port = port
        self._server: asyncio.Server | None = None
        self._read_redirect: ReadRedirect | None = None
        self._connections = 0
        self._code: asyncio.Future[str] | None = None

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            OSError: the port is taken.
        """
        self._code = asyncio.get_running_loop().create_future()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_REQUEST_BYTES)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None and self._code is not None
        self._server.close()
        self._code.cancel()

    @property
    def url(self) -> str:
        """The redirect URI."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    async def wait(self, read: ReadRedirect, timeout: float) -> str:
        """Return what `read` returns for the first redirect of this sign-in.

        Raises:
            NotAuthorized: `read` raised it, or there was no redirect within `timeout` seconds.
        """
        assert self._code is not None
        self._read_redirect = read
        await asyncio.wait((self._code,), timeout=timeout)
        if not self._code.done():
            raise NotAuthorized(f"The sign-in was not completed within {timeout:g} s.")
        return self._code.result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        verb, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if verb != "GET" or path != PATH:
            return _http_response(404, "Nothing here", "This address only receives the result of a sign-in.")
        if self._read_redirect is None or self._code is None or self._code.done():
            return _http_response(410, "Too late", "This sign-in has ended. Go back to your program.")
        try:
            code = self._read_redirect(query)
        except LookupError:
            return _http_response(400, "Not this sign-in", "This result belongs to another sign-in. Nothing was done.")
        except NotAuthorized as error:
            self._code.set_exception(error)
            return _http_response(400, "Not signed in", "Your program shows the reason. You can close this page.")
        self._code.set_result(code)
        return _http_response(200, "Signed in", "Go back to your program. You can close this page.")


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 410: "Gone"}


def _http_response(status: int, title: str, text: str) -> bytes:
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title>"
        "<style>body{font:18px/1.5 system-ui,sans-serif;max-width:32em;margin:20vh auto;padding:0 1em;"
        "color-scheme:light dark}</style>"
        f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></html>"
    ).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
