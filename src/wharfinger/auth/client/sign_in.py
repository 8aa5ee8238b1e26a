"""`SignIn`: signs a person in with the browser (OAuth 2.1 with PKCE)."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import msgspec

from wharfinger.auth.client.callback import Callback
from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.grants import (
    Attempt,
    Grant,
    UnrelatedRedirect,
    authorization_url,
    exchange_code,
    read_redirect,
)
from wharfinger.auth.client.registration import ClientIdentity, RegisteredClient, how_registered, register
from wharfinger.auth.client.sign_in_fetch import fetch_for
from wharfinger.auth.client.steps import Trace, TraceStep, run
from wharfinger.auth.client.token_manager import TokenManager
from wharfinger.auth.client.token_store import MemoryTokens, Tokens
from wharfinger.auth.urls import forbidden_reason
from wharfinger.errors import NotAuthorized
from wharfinger.protocol.interfaces import Fetch

__all__ = ["SignIn"]

OpenBrowser = Callable[[str], Awaitable[str | None]]
"""Opens the sign-in page. Returns the URL of the redirect that ends the sign-in if it receives it itself, else None."""


class SignIn:
    """Signs a person in once, in the browser: `Client(url, auth=SignIn())`.

    When a server answers 401, `SignIn` finds its authorization server, opens the sign-in page and receives the answer
    on a port of this machine. It renews tokens as long as it can, and asks for more scopes when a server requires them.
    One object may serve clients of several servers; each server gets its own tokens.
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
        open_browser: OpenBrowser | None = None,
        on_url: Callable[[str], None] | None = None,
        interactive: bool = True,
        redirect_port: int = 0,
        timeout: float = 300.0,
        allow_private_networks: bool = False,
        fetch: Callable[[str], Fetch] | None = None,
    ) -> None:
        """Create the object; it sends no request yet.

        Args:
            client_id: An id that `issuer` issued; it is sent to no other authorization server.
            client_secret: The secret of that id.
            issuer: The authorization server of that id. By default the first one that each server names.
            client_metadata_url: The https URL of the application's client ID metadata document. If an authorization
                server does not support these, and did not issue `client_id`, the client registers itself there.
            client_name: The name under which the client registers.
            scopes: Scopes to request in addition to those that a server requires.
            offline: Whether to request `offline_access`, to renew tokens without a person.
            tokens: Where tokens are stored, by default in memory. `FileTokens()` keeps them on disk.
            open_browser: Opens the sign-in page, by default in the browser.
            on_url: Called with the URL of the page, to show it.
            interactive: Whether to open a page. If False, only stored tokens are used.
            redirect_port: A fixed port for the redirect, for clients that were registered with one.
            timeout: Seconds that a person has to sign in.
            allow_private_networks: Allow an authorization server whose name resolves to a private address.
            fetch: Returns the function that sends the HTTP requests for a server.

        Raises:
            ValueError: a secret or an issuer was given without a client id.
        """
        if client_id is None and (client_secret is not None or issuer is not None):
            raise ValueError("client_secret and issuer require a client_id.")
        self._identity = ClientIdentity(
            client_id=client_id,
            client_secret=client_secret,
            issuer=issuer,
            metadata_url=client_metadata_url,
            name=client_name,
        )
        self._issuers: dict[str, str] = {}
        """By server: the issuer to which a client id without an issuer is bound."""
        self._tokens: Tokens = tokens if tokens is not None else MemoryTokens()
        self._open_browser = open_browser or _open_page
        self._on_url = on_url
        self._interactive = interactive
        self._port = redirect_port
        self._timeout = timeout
        self._manager = TokenManager(
            self._obtain,
            self._tokens,
            fetch or (lambda server: fetch_for(server, allow_private_networks=allow_private_networks)),
            scopes=scopes,
            offline=offline,
            issuer=issuer,
        )

    async def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers with the token for the server at this URL; see `Authorize.headers`."""
        return await self._manager.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Sign in, or renew the token; see `Authorize.refused`."""
        return await self._manager.refused(url, status, headers, sent)

    async def forget(self, url: str) -> bool:
        """Delete the tokens for a server, without revoking them. Returns False if there were none."""
        return await self._manager.forget(url)

    async def grant(self, url: str) -> Grant | None:
        """Return the stored tokens for a server, which are secrets, or None."""
        return await self._tokens.grant(url)

    def trace(self, url: str) -> tuple[TraceStep, ...]:
        """Return the steps of the last sign-in to this server and their results. They contain no secrets."""
        return tuple(self._manager.traces.get(url, ()))

    async def _obtain(self, auth_server: AuthServer, scopes: tuple[str, ...], fetch: Fetch, trace: Trace) -> Grant:
        if not self._interactive and auth_server.assumed:
            raise NotAuthorized(f"{auth_server.server} requires a token, but does not say how to sign in.")
        if not self._interactive:
            raise NotAuthorized(
                f"{auth_server.server} requires you to sign in. Run: wharfinger auth login {auth_server.server}"
            )
        identity = self._identity
        if identity.client_id is not None and identity.issuer is None:
            # The id belongs to the first issuer that the server named.
            issuer = self._issuers.setdefault(auth_server.server, auth_server.issuer)
            identity = msgspec.structs.replace(identity, issuer=issuer)
        registers_itself = how_registered(auth_server, identity) == "dynamic"
        saved = await self._tokens.client(auth_server.issuer) if registers_itself else None
        if saved is not None and 0 < saved.secret_expires_at <= time.time():
            saved = None
        async with AsyncExitStack() as stack:
            callback = await self._listen(stack, saved)
            client = await run(register(auth_server, identity, callback.url, trace, saved), fetch)
            if client != saved and registers_itself:
                await self._tokens.keep_client(client)
            attempt = Attempt(secrets.token_urlsafe(48), secrets.token_urlsafe(24), callback.url)
            url = authorization_url(auth_server, client, attempt, scopes)
            try:
                code = await self._get_code(auth_server, url, attempt, callback)
                trace.append(TraceStep("the person", True, "agreed"))
                return await run(exchange_code(auth_server, client, attempt, code, scopes, time.time(), trace), fetch)
            except (NotAuthorized, asyncio.CancelledError):
                if saved is not None:
                    # The issuer may have deleted the client, and its page for an unknown client does not redirect. So
                    # register again next time.
                    await self._tokens.forget_client(auth_server.issuer)
                raise

    async def _listen(self, stack: AsyncExitStack, saved: RegisteredClient | None) -> Callback:
        """Listen for the redirect, if possible on the port of an earlier registration, whose redirect URI is fixed."""
        saved_port = urlsplit(saved.redirect_uri).port if saved is not None else None
        try:
            return await stack.enter_async_context(Callback(self._port or saved_port or 0))
        except OSError as error:
            if self._port:
                raise NotAuthorized(f"Cannot listen on port {self._port}: {error.strerror or error}.") from None
            return await stack.enter_async_context(Callback())

    async def _get_code(self, auth_server: AuthServer, url: str, attempt: Attempt, callback: Callback) -> str:
        """Open the sign-in page and return the authorization code of the redirect."""
        if (fault := forbidden_reason(url, auth_server.server)) is not None:
            raise NotAuthorized(f"The sign-in page of {auth_server.issuer} is not opened: {fault}.")
        if self._on_url is not None:
            self._on_url(url)

        def read(query: str) -> str:
            return read_redirect(query, auth_server, attempt)

        # Do not wait for the browser: it may stay open long after the redirect.
        waiting = asyncio.ensure_future(callback.wait(read, self._timeout))
        visiting = asyncio.ensure_future(self._open_browser(url))
        try:
            await asyncio.wait((waiting, visiting), return_when=asyncio.FIRST_COMPLETED)
            redirect = visiting.result() if visiting.done() else None
            if redirect is None:
                return await waiting
        finally:
            for task in (waiting, visiting):
                task.cancel()
            await asyncio.gather(waiting, visiting, return_exceptions=True)
        if redirect.partition("?")[0] != attempt.redirect_uri:
            raise NotAuthorized(f"{auth_server.issuer} redirected to another URL.")
        try:
            return read(urlsplit(redirect).query)
        except UnrelatedRedirect:
            raise NotAuthorized(f"{auth_server.issuer} returned another `state` than the one that was sent.") from None


async def _open_page(url: str) -> None:
    """Open the browser. It is not an error if there is none: a person can open the URL.

    The call runs in a daemon thread, because with some browsers it returns only when they are closed.
    """
    import webbrowser  # imported on use: most programs never open one

    threading.Thread(target=webbrowser.open, args=(url,), name="wharfinger-browser", daemon=True).start()
