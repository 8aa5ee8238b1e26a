"""Signing a person in by the browser (OAuth 2.1 with PKCE): drives the steps of this folder; knows no transport."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from wharfinger.auth.client.callback import Callback
from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.fetching import fetch_for
from wharfinger.auth.client.grants import Attempt, Grant, NotOurs, authorization_url, exchange_code, read_redirect
from wharfinger.auth.client.registration import ClientIdentity, Registered, how_registered, register
from wharfinger.auth.client.steps import Trace, TraceStep, run
from wharfinger.auth.client.token_manager import TokenManager
from wharfinger.auth.client.token_store import MemoryTokens, Tokens
from wharfinger.auth.urls import objection
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import Fetch

__all__ = ["SignIn"]

Visit = Callable[[str], Awaitable[str | None]]
"""Opens a page for a person; returns the address it was redirected to where it sees that itself, else None."""


class SignIn:
    """Gets a client in by asking a person to sign in, once, in the browser: `Client(url, auth=SignIn())`.

    Where a server answers 401 it is found out who gives tokens for it, a page is opened, and the answer taken at a port
    of this machine. Tokens are renewed while they can be; more scopes are asked for where a server wants them. One
    object may serve clients of several servers; each server gets tokens of its own.
    """

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Wharfinger",
        scopes: Iterable[str] = (),
        offline: bool = True,
        tokens: Tokens | None = None,
        visit: Visit | None = None,
        tell: Callable[[str], None] | None = None,
        interactive: bool = True,
        redirect_port: int = 0,
        timeout: float = 300.0,
        private: bool = False,
        fetch: Callable[[str], Fetch] | None = None,
    ) -> None:
        """Nothing is asked yet.

        `client_id`, with its `client_secret`, is one that `issuer` has given out; it is shown to no other. Without
        `issuer` it belongs to the first authorization server that a server names. `client_metadata_url` is the https
        URL of the application's client ID metadata document. Without either the client registers itself, as
        `client_name`.

        `scopes` are asked for in addition to what a server wants; with `offline` also a way to renew without a person.
        `tokens` keeps them, by default as long as this object lives (`FileTokens()` for longer). `visit` opens the
        page, by default in the browser; `tell` is told its URL, to be shown. `interactive=False` opens nothing, and
        goes on with tokens that are kept only. `redirect_port` is a fixed one for clients that were registered so.
        `timeout` is how many seconds a person has. `private` allows an authorization server whose name leads into a
        private network; `fetch` gives another way to ask than ours.

        Raises:
            ValueError: a secret or an issuer without a client id.
        """
        if client_id is None and (client_secret is not None or issuer is not None):
            raise ValueError("client_secret and issuer belong to a client_id: give that too.")
        self._identity = ClientIdentity(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            metadata_url=client_metadata_url,
            name=client_name,
        )
        self._bound: dict[str, str] = {}
        self._tokens: Tokens = tokens if tokens is not None else MemoryTokens()
        self._visit = visit or _open_page
        self._tell = tell
        self._interactive = interactive
        self._port = redirect_port
        self._timeout = timeout
        self._holding = TokenManager(
            self._obtain,
            self._tokens,
            fetch or (lambda server: fetch_for(server, private=private)),
            scopes=scopes,
            offline=offline,
            issuer=issuer,
        )

    async def headers(self, url: str) -> Mapping[str, str]:
        """The token for the server at this URL, as `Authorize.headers`."""
        return await self._holding.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Sign in, or renew, as `Authorize.refused`."""
        return await self._holding.refused(url, status, headers, sent)

    async def forget(self, url: str) -> bool:
        """Drop the tokens for a server; False where there were none. They are not revoked."""
        return await self._holding.forget(url)

    async def kept(self, url: str) -> Grant | None:
        """The tokens for a server, as they are kept; None where there are none. They are secrets."""
        return await self._tokens.grant(url)

    def trail(self, url: str) -> tuple[TraceStep, ...]:
        """What the last sign-in to this server asked and found, step by step; it holds no secret."""
        return tuple(self._holding.trails.get(url, ()))

    async def _obtain(self, found: AuthServer, scopes: tuple[str, ...], fetch: Fetch, trail: Trace) -> Grant:
        if not self._interactive and found.assumed:
            raise NotAuthorized(f"{found.server} wants a token, and says nowhere how to sign in.")
        if not self._interactive:
            raise NotAuthorized(f"{found.server} wants you to sign in. Run: wharfinger auth login {found.server}")
        identity = self._identity_for(found)
        kept = await self._kept(found, identity)
        async with AsyncExitStack() as stack:
            callback = await self._listen(stack, kept)
            client = await run(register(found, identity, callback.url, trail, kept), fetch)
            if client != kept and how_registered(found, identity) == "dynamic":
                await self._tokens.keep_client(client)
            attempt = Attempt(secrets.token_urlsafe(48), secrets.token_urlsafe(24), callback.url)
            code = await self._ask(found, authorization_url(found, client, attempt, scopes), attempt, callback)
            trail.append(TraceStep("the person", True, "agreed"))
        try:
            return await run(exchange_code(found, client, attempt, code, scopes, time.time(), trail), fetch)
        except NotAuthorized:
            if kept is not None:
                await self._tokens.forget_client(found.issuer)  # it may be gone there: next time it is made anew
            raise

    def _identity_for(self, found: AuthServer) -> ClientIdentity:
        """A client id without an issuer is bound to the first one that its server names."""
        known = self._identity
        if known.client_id is None or known.issuer is not None:
            return known
        issuer = self._bound.setdefault(found.server, found.issuer)
        return ClientIdentity(
            client_id=known.client_id,
            client_secret=known.client_secret,
            issuer=issuer,
            metadata_url=known.metadata_url,
            name=known.name,
        )

    async def _kept(self, found: AuthServer, identity: ClientIdentity) -> Registered | None:
        if how_registered(found, identity) != "dynamic":
            return None
        kept = await self._tokens.client(found.issuer)
        return None if kept is None or 0 < kept.secret_expires_at <= time.time() else kept

    async def _listen(self, stack: AsyncExitStack, kept: Registered | None) -> Callback:
        """A listener, where an earlier registration expects it; the redirect's address has to be the same text."""
        port = self._port or (urlsplit(kept.redirect_uri).port or 0 if kept is not None else 0)
        try:
            return await stack.enter_async_context(Callback(port))
        except OSError as error:
            if self._port:
                raise NotAuthorized(f"Port {self._port} of this machine is taken: {error.strerror or error}.") from None
            return await stack.enter_async_context(Callback())

    async def _ask(self, found: AuthServer, url: str, attempt: Attempt, callback: Callback) -> str:
        """The code that a person's agreement brings."""
        if (fault := objection(url, found.server)) is not None:
            raise NotAuthorized(f"The sign-in page of {found.issuer} is not opened: {fault}.")
        if self._tell is not None:
            self._tell(url)

        def judge(query: str) -> str:
            return read_redirect(query, found, attempt)

        # A browser may stay open long after the answer has come.
        waiting = asyncio.ensure_future(callback.wait(judge, self._timeout))
        visiting = asyncio.ensure_future(self._visit(url))
        try:
            await asyncio.wait((waiting, visiting), return_when=asyncio.FIRST_COMPLETED)
            visited = visiting.result() if visiting.done() else None
            if visited is None:
                return await waiting
        finally:
            for task in (waiting, visiting):
                task.cancel()
            await asyncio.gather(waiting, visiting, return_exceptions=True)
        if visited.partition("?")[0] != attempt.redirect_uri:
            raise NotAuthorized(f"{found.issuer} sent the answer elsewhere.")
        try:
            return judge(urlsplit(visited).query)
        except NotOurs:
            raise NotAuthorized(f"{found.issuer} answered another question: `state` is not what was sent.") from None


async def _open_page(url: str) -> None:
    """Open the browser; that there is none is no failure, as the URL can be opened by hand.

    Some browsers return only when they are closed, so that nobody waits for them, not even the end of the program.
    """
    import webbrowser  # imported on use: most programs never open one

    threading.Thread(target=webbrowser.open, args=(url,), name="wharfinger-browser", daemon=True).start()
