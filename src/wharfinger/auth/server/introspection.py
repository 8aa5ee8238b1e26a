"""`IntrospectionVerifier`: verifies opaque tokens at the authorization server (RFC 7662)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from wharfinger.auth.basic import basic_authorization
from wharfinger.auth.server.token_verifier import (
    FETCH_SECONDS,
    LEEWAY_SECONDS,
    InvalidToken,
    VerifierUnavailable,
    principal_of,
)
from wharfinger.auth.urls import forbidden_reason
from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import Fetch
from wharfinger.protocol.principal import Principal

__all__ = ["IntrospectionVerifier"]


class IntrospectionVerifier:
    """Verifies tokens at the introspection endpoint of an authorization server.

    `url` is that endpoint. `client_id` and `client_secret` identify this server to the authorization server. A token
    must name the `audience`, or one of several; leave it out only if the endpoint accepts no tokens for other servers.
    `issuer` is published as the authorization server, and is the issuer of each principal. A token expires `leeway`
    seconds after its `exp`, because clocks differ. `fetch` sends the HTTP requests; by default they go only to the
    issuer's host, to an IP address or `localhost` in `url`, and to public addresses. With `allow_private_networks` they
    also go to names with private addresses.

    Raises:
        ValueError: a URL is neither https nor on this machine.
    """

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        client_id: str,
        client_secret: str,
        audience: str | Sequence[str] = (),
        leeway: float = LEEWAY_SECONDS,
        allow_private_networks: bool = False,
        fetch: Fetch | None = None,
    ) -> None:
        for used_url in (url, issuer):
            if fault := forbidden_reason(used_url, used_url):
                raise ValueError(f"IntrospectionVerifier() cannot use {used_url!r}: {fault}.")
        self.url = url
        self.issuer = issuer
        self.leeway = leeway
        self.audiences = frozenset((audience,) if isinstance(audience, str) else audience)
        self._authorization = basic_authorization(client_id, client_secret)
        if fetch is None:
            from wharfinger.auth.client.sign_in_fetch import fetch_for

            # The operator has named `url`, so it may be an address that the issuer could not name.
            named = url if forbidden_reason(url, issuer) else issuer
            fetch = fetch_for(named, allow_private_networks=allow_private_networks, timeout=FETCH_SECONDS)
        self._fetch = fetch

    trusted_seconds = 60.0
    """Seconds after which a verified token is verified again."""

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuer."""
        return (self.issuer,)

    def on_change(self, forget: Callable[[], None]) -> None:
        """Do nothing: a revoked token is noticed when it is verified again."""

    async def verify(self, token: str) -> Principal | None:
        """Return the principal of a token; None if the authorization server does not report it as active.

        Raises:
            InvalidToken: the token is of another issuer, is meant for another server, has no subject, or its `exp` is
                no time.
            VerifierUnavailable: the authorization server does not answer, or not with 200 and a JSON object.
        """
        headers = {
            "Accept": "application/json",
            "Authorization": self._authorization,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        try:
            response = await self._fetch("POST", self.url, headers, body)
        except ConnectionFailed as error:
            raise VerifierUnavailable(str(error)) from None
        if response.status != 200:
            raise VerifierUnavailable(f"{self.url} answered {response.status}.")
        try:
            claims = msgspec.json.decode(response.body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise VerifierUnavailable(f"{self.url} did not answer in JSON.") from None
        if claims.get("active") is not True:
            return None
        if claims.get("iss", self.issuer) != self.issuer:
            raise InvalidToken("The token is of another issuer.")
        return principal_of(claims, self.issuer, self.audiences, leeway=self.leeway)
