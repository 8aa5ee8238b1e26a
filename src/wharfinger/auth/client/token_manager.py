"""`TokenManager`: adds tokens to requests, renews them in time, and obtains new ones after a refusal.

`SignIn` and `ClientCredentials` differ only in how they obtain tokens, and share the rest. One lock for each server
ensures that concurrent requests obtain or renew a token only once. After a refusal (401, or 403 `insufficient_scope`):

1. If another task or process has got a new token in the meantime, use it.
2. After a 401 that asks for no other scopes, renew the token, once.
3. Obtain a new token, with more scopes if the server asks for them.

Two refusals are errors, because a new token would not help: a 403 that asks only for scopes that were granted or
requested before, and a 401 for a token that was just issued and has no refresh token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from wharfinger.auth.client.challenge import Challenge, bearer_challenge
from wharfinger.auth.client.discovery import AuthServer, discover
from wharfinger.auth.client.grants import Grant, renew, scopes_to_ask
from wharfinger.auth.client.steps import Trace, TraceStep, run, shown
from wharfinger.auth.client.token_store import Tokens
from wharfinger.auth.urls import forbidden_reason
from wharfinger.errors import ConnectionFailed, NotAuthorized
from wharfinger.protocol.interfaces import MAX_AUTH_RETRIES, Fetch

__all__ = ["Obtain", "TokenManager"]

RENEW_EARLY_SECONDS = 30.0
"""How long before its expiry a token is renewed; at most a quarter of its lifetime."""
JUST_ISSUED_SECONDS = 30.0
"""If a server refuses a token so soon after it was issued, it would refuse the next one as well, and the refusal is an
error. A token with a refresh token is renewed instead. If the renewed token is refused too, a sign-in follows, since
the session may have been ended."""
AUTHORIZATION_WINDOW_SECONDS = 60.0
"""In this time there are at most `MAX_AUTH_RETRIES` authorizations for one server."""

Obtain = Callable[[AuthServer, tuple[str, ...], Fetch, Trace], Awaitable[Grant]]
"""Obtains tokens with these scopes from an authorization server."""


class TokenManager:
    """An `Authorize` that manages the tokens of several servers, and calls `obtain` for new ones."""

    def __init__(
        self,
        obtain: Obtain,
        tokens: Tokens,
        fetch: Callable[[str], Fetch],
        *,
        scopes: Iterable[str] = (),
        offline: bool = False,
        issuer: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`fetch` returns the fetch function for a server; `issuer` is preferred if a server names several.

        `offline` also requests the scope `offline_access`, if the server has it.
        """
        self._obtain = obtain
        self._tokens = tokens
        self._fetch = fetch
        self._scopes = tuple(scopes)
        self._offline = offline
        self._issuer = issuer
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the locks."""
        self._renewed: set[str] = set()
        """Access tokens that a renewal after a refusal has returned. If one is refused too, it is not renewed again."""
        self._authorization_times: dict[str, list[float]] = {}
        self._requested: dict[str, set[str]] = {}
        """By server: the scopes that this object has requested for the tokens that it got."""
        self._without_tokens: set[str] = set()
        """Servers for which the store had no tokens when it was asked first. It is asked again only after a refusal."""
        self.traces: dict[str, Trace] = {}
        """By server: the steps of the last sign-in."""

    async def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers with the token for this URL, if there is one. Renews a token that is about to expire.

        Raises:
            ConnectionFailed: the token has expired, and the authorization server cannot be reached.
            NotAuthorized: the token has expired, and the authorization server refuses to renew it, for a reason that a
                new sign-in does not solve.
        """
        grant = self._grants.get(url)
        if grant is None and url not in self._without_tokens:
            grant = await self._tokens.grant(url)
            if grant is None:
                self._without_tokens.add(url)
            else:
                self._grants.setdefault(url, grant)
        if grant is None:
            return {}
        if self._about_to_expire(grant):
            async with self._lock(url):
                grant = self._grants.get(url)
                if grant is not None and self._about_to_expire(grant):
                    grant = await self._renew(url, grant)
        return _headers(grant)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """Renew the token or obtain a new one, depending on the refusal. Returns whether to repeat the request.

        Raises:
            ConnectionFailed: a server of the sign-in cannot be reached.
            NotAuthorized: the sign-in failed; the message says what to do.
        """
        challenge = bearer_challenge(headers.get("www-authenticate", ""))
        if challenge is None or (status == 403 and challenge.error != "insufficient_scope"):
            return False
        async with self._lock(url):
            # The stored grant comes first: another process may have signed in again.
            old = await self._tokens.grant(url) or self._grants.get(url)
            if old is not None:
                self._grants[url] = old
            if old is not None and _headers(old) != sent:
                return True  # there is a newer token than the request had
            trace: Trace = []
            self.traces[url] = trace
            grant = await self._replace(url, status, challenge, old, trace)
            self._grants[url] = grant
            await self._tokens.keep(grant)
            return True

    async def forget(self, url: str) -> bool:
        """Delete the tokens for a server. Returns False if there were none."""
        self._grants.pop(url, None)
        grants = [grant for grant in await self._tokens.grants() if grant.server == url]
        for grant in grants:
            await self._tokens.forget(grant)
        return bool(grants)

    async def _replace(self, url: str, status: int, challenge: Challenge, old: Grant | None, trace: Trace) -> Grant:
        fetch = self._fetch(url)
        known = [issuer for issuer in (self._issuer, old.issuer if old is not None else None) if issuer is not None]
        auth_server = await run(discover(url, challenge, known, trace), fetch)
        # Do not send this authorization server the tokens of another server or resource.
        same = old is not None and (old.issuer, old.resource) == (auth_server.issuer, auth_server.resource)
        earlier = old if same else None
        if earlier is not None and status == 401 and not set(challenge.scope) - set(earlier.scope):
            if _may_renew(earlier) and earlier.access_token not in self._renewed:
                renewed = await self._renew(url, earlier)
                if renewed is not None and not self._expired(renewed):
                    self._renewed = {renewed.access_token, *list(self._renewed)[:63]}  # bounded
                    return renewed
            elif earlier.access_token not in self._renewed and self._clock() - earlier.taken_at < JUST_ISSUED_SECONDS:
                raise self._refused_again(url, auth_server, trace, "the token that was just issued")
        if status == 403 and earlier is not None:
            # A new token would not help if all scopes were already granted or requested.
            granted = earlier.scope if earlier.granted is None else earlier.granted
            if set(auth_server.scopes) <= {*granted, *self._requested.get(url, ())}:
                scopes = shown(" ".join(auth_server.scopes))
                subject = f"a token with the requested scopes ({scopes})" if scopes else "a token with all scopes"
                raise self._refused_again(url, auth_server, trace, subject)
        self._count_authorization(url)
        scopes_to_request = scopes_to_ask(
            auth_server, earlier.scope if earlier else (), self._scopes, offline=self._offline
        )
        before = self._requested.get(url, ()) if earlier is not None else ()
        grant = await self._obtain(auth_server, scopes_to_request, fetch, trace)
        self._requested[url] = {*before, *scopes_to_request}
        return grant

    def _refused_again(self, url: str, auth_server: AuthServer, trace: Trace, subject: str) -> NotAuthorized:
        fix = "Ask the operator which scopes and which resource are required."
        trace.append(TraceStep(url, False, f"it refuses {subject}", fix))
        return NotAuthorized(
            f"{url} refuses {subject} from {auth_server.issuer}: signing in again would not help. {fix}"
        )

    def _count_authorization(self, url: str) -> None:
        now = self._clock()
        earlier = self._authorization_times.get(url, ())
        times = [began for began in earlier if now - began < AUTHORIZATION_WINDOW_SECONDS]
        if len(times) >= MAX_AUTH_RETRIES:
            raise NotAuthorized(
                f"{url} required {len(times)} authorizations within {AUTHORIZATION_WINDOW_SECONDS:g} s: no more are "
                "attempted."
            )
        self._authorization_times[url] = [*times, now]

    async def _renew(self, url: str, grant: Grant) -> Grant | None:
        """Return the renewed grant, or the old one if it is still valid and cannot be renewed now.

        A grant that another process has renewed is returned instead. Returns None, and forgets the grant, if it has
        expired and cannot be renewed, or if its refresh token is not accepted.

        Raises:
            ConnectionFailed, NotAuthorized: it has expired, and renewing it failed.
        """
        newer = await self._renewed_elsewhere(url, grant)
        if newer is not None:
            return newer
        if _may_renew(grant):
            try:
                renewed = await run(renew(grant, self._clock()), self._fetch(url))
            except (ConnectionFailed, NotAuthorized):
                if self._expired(grant):
                    raise
                return grant
            if renewed is not None:
                self._grants[url] = renewed
                await self._tokens.keep(renewed)
                return renewed
            newer = await self._renewed_elsewhere(url, grant)
            if newer is not None:
                return newer
        if self._expired(grant) or _may_renew(grant):
            self._grants.pop(url, None)
            await self._tokens.forget(grant)
            return None
        return grant

    async def _renewed_elsewhere(self, url: str, grant: Grant) -> Grant | None:
        """Return another grant from the store, and use it from now on; None if there is none that is valid.

        If another process has renewed this grant, its refresh token no longer works.
        """
        stored = await self._tokens.grant(url)
        if (
            stored is None
            or stored.access_token == grant.access_token
            or stored.issuer != grant.issuer
            or self._about_to_expire(stored)
        ):
            return None
        self._grants[url] = stored
        return stored

    def _about_to_expire(self, grant: Grant) -> bool:
        if grant.expires_at is None:
            return False
        early = min(RENEW_EARLY_SECONDS, (grant.expires_at - grant.taken_at) / 4)
        return grant.expires_at - early <= self._clock()

    def _expired(self, grant: Grant) -> bool:
        return grant.expires_at is not None and grant.expires_at <= self._clock()

    def _lock(self, url: str) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a program may call `asyncio.run` several times, and a lock belongs to one loop
            self._loop, self._locks = loop, {}
        return self._locks.setdefault(url, asyncio.Lock())


def _may_renew(grant: Grant) -> bool:
    """Return whether there is a refresh token, and a token endpoint to which it may be sent."""
    return grant.refresh_token is not None and forbidden_reason(grant.token_endpoint, grant.server) is None


def _headers(grant: Grant | None) -> dict[str, str]:
    return {} if grant is None else {"Authorization": f"Bearer {grant.access_token}"}
