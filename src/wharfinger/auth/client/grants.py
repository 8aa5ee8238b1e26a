"""Authorization requests, redirects and tokens (OAuth 2.1, RFC 7636, 8707, 9207), as `Steps`, which do no I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

import msgspec

from wharfinger.auth.basic import basic_authorization
from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.metadata import read_document
from wharfinger.auth.client.registration import RegisteredClient
from wharfinger.auth.client.steps import HttpStep, Steps, Trace, TraceStep, post_form, refusal, shown
from wharfinger.errors import NotAuthorized

__all__ = [
    "Attempt",
    "Grant",
    "UnrelatedRedirect",
    "authorization_url",
    "exchange_code",
    "read_redirect",
    "renew",
    "resource_and_scope",
    "scopes_to_ask",
    "take_tokens",
    "token_request",
]

MAX_TOKEN_CHARACTERS = 16 * 1024
MAX_EXPIRY_SECONDS = 1e10
"""A larger `expires_in` (300 years) is ignored, as infinity is."""
OFFLINE_ACCESS = "offline_access"


class Attempt(msgspec.Struct, frozen=True):
    """The values of one authorization request that prove that a redirect and its code belong to it."""

    verifier: str
    state: str
    redirect_uri: str


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one client for one server. Times are in seconds since 1970.

    `scope` has the requested and the granted scopes. `granted` has those that the token response names, and is None if
    it names none. `expires_at` is None if it is unknown.
    """

    server: str
    issuer: str
    resource: str | None
    client: RegisteredClient
    token_endpoint: str
    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: tuple[str, ...] = ()
    granted: tuple[str, ...] | None = None
    taken_at: float = 0


class UnrelatedRedirect(LookupError):
    """A redirect that does not belong to this authorization: keep waiting for the right one."""


def scopes_to_ask(
    auth_server: AuthServer, earlier: Iterable[str], wanted: Iterable[str], *, offline: bool
) -> tuple[str, ...]:
    """Return the scopes to request: the `earlier` ones, those of the server, and `wanted` (2026-07-28: the union).

    With `offline`, `offline_access` is added if the authorization server lists it and there are other scopes.
    """
    scopes = dict.fromkeys((*earlier, *auth_server.scopes, *wanted))
    if offline and scopes and OFFLINE_ACCESS in (auth_server.metadata.scopes_supported or ()):
        scopes[OFFLINE_ACCESS] = None
    return tuple(scopes)


def authorization_url(
    auth_server: AuthServer, client: RegisteredClient, attempt: Attempt, scopes: Sequence[str]
) -> str:
    """Return the URL of the sign-in page.

    Raises:
        NotAuthorized: the authorization server has no such page, or does not support PKCE with S256.
    """
    metadata = auth_server.metadata
    if metadata.authorization_endpoint is None:
        raise NotAuthorized(f"{auth_server.issuer} has no authorization_endpoint: signing in there is not possible.")
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise NotAuthorized(
            f"{auth_server.issuer} does not list S256 in code_challenge_methods_supported, so that a stolen code could "
            "be used; signing in stops here. Its operator should enable PKCE."
        )
    challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=")
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": attempt.redirect_uri,
        "state": attempt.state,
        "code_challenge": challenge.decode(),
        "code_challenge_method": "S256",
        **resource_and_scope(auth_server.resource, scopes),
    }
    if OFFLINE_ACCESS in scopes:
        query["prompt"] = "consent"  # OpenID Connect §11: without it offline_access may be ignored
    joint = "&" if "?" in metadata.authorization_endpoint else "?"
    return metadata.authorization_endpoint + joint + urlencode(query)


def read_redirect(query: str, auth_server: AuthServer, attempt: Attempt) -> str:
    """Return the code in the query of a redirect.

    The issuer is compared before an error is read (RFC 9207 §2.4), so that the error of another issuer is not shown.

    Raises:
        UnrelatedRedirect: the redirect does not belong to this authorization.
        NotAuthorized: the sign-in was refused, or the redirect is from another issuer.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise UnrelatedRedirect from None
    parameters = dict(pairs)  # shorter if a parameter occurs twice, which RFC 6749 §3.1 forbids
    state = parameters.get("state", "")
    if len(parameters) != len(pairs) or not hmac.compare_digest(state.encode(), attempt.state.encode()):
        raise UnrelatedRedirect
    issuer = parameters.get("iss")
    if issuer is None and auth_server.metadata.authorization_response_iss_parameter_supported:
        raise NotAuthorized(
            f"The redirect has no `iss`, although the metadata of {auth_server.issuer} announces it (RFC 9207)."
        )
    if issuer is not None and issuer != auth_server.issuer:
        raise NotAuthorized(f"The redirect is not from {auth_server.issuer} but from another issuer, and is not used.")
    if "error" in parameters:
        reason = ": ".join(shown(parameters[name]) for name in ("error", "error_description") if parameters.get(name))
        raise NotAuthorized(f"{auth_server.issuer} refused the sign-in ({reason}).")
    if not parameters.get("code"):
        raise NotAuthorized(f"{auth_server.issuer} redirected without a code.")
    return parameters["code"]


def exchange_code(
    auth_server: AuthServer,
    client: RegisteredClient,
    attempt: Attempt,
    code: str,
    scopes: Iterable[str],
    now: float,
    trace: Trace,
) -> Steps[Grant]:
    """Get the tokens for a code.

    Raises:
        NotAuthorized: the token endpoint refuses, or its response cannot be used.
    """
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        **resource_and_scope(auth_server.resource, ()),
    }
    return (yield from take_tokens(auth_server, client, form, scopes, now, trace))


def take_tokens(
    auth_server: AuthServer,
    client: RegisteredClient,
    form: Mapping[str, str],
    scopes: Iterable[str],
    now: float,
    trace: Trace,
) -> Steps[Grant]:
    """Get tokens with the form of any grant type; `now` is in seconds since 1970.

    Raises:
        NotAuthorized: the token endpoint refuses, or its response cannot be used.
    """
    endpoint = auth_server.metadata.token_endpoint
    answer = yield token_request("tokens", endpoint, client, form)
    if answer.status != 200:
        _, refused = refusal(f"The token request at {endpoint}", answer)
        trace.append(TraceStep(endpoint, False, str(refused)))
        raise refused
    tokens = _read_tokens(endpoint, answer.body)
    trace.append(TraceStep(endpoint, True, "a token" + (" and a refresh token" if tokens.refresh_token else "")))
    return Grant(
        server=auth_server.server,
        issuer=auth_server.issuer,
        resource=auth_server.resource,
        client=client,
        token_endpoint=endpoint,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or None,
        expires_at=_expiry_time(tokens, now),
        scope=tuple(dict.fromkeys((*scopes, *(tokens.scope or "").split()))),
        granted=None if tokens.scope is None else tuple(tokens.scope.split()),
        taken_at=now,
    )


def renew(grant: Grant, now: float) -> Steps[Grant | None]:
    """Get a new access token with the refresh token.

    Returns None if there is no refresh token, or if the server no longer accepts it (`invalid_grant`) or the client.

    Raises:
        NotAuthorized: the endpoint refuses for another reason, or its response cannot be used.
    """
    if grant.refresh_token is None:
        return None
    form = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh_token,
        **resource_and_scope(grant.resource, ()),
    }
    answer = yield token_request("new tokens", grant.token_endpoint, grant.client, form)
    if answer.status != 200:
        code, refused = refusal(f"The renewal at {grant.token_endpoint}", answer)
        if code in ("invalid_grant", "invalid_client", "unauthorized_client"):
            return None
        raise refused
    tokens = _read_tokens(grant.token_endpoint, answer.body)
    return msgspec.structs.replace(
        grant,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or grant.refresh_token,
        expires_at=_expiry_time(tokens, now),
        taken_at=now,
    )


def token_request(purpose: str, endpoint: str, client: RegisteredClient, form: Mapping[str, str]) -> HttpStep:
    """Return a request to the token endpoint, with the client's authentication (RFC 6749 §2.3.1)."""
    if client.method == "client_secret_basic":
        authorization = basic_authorization(client.client_id, client.client_secret or "")
        return post_form(purpose, endpoint, form, {"Authorization": authorization})
    credentials = {"client_id": client.client_id} if "client_assertion" not in form else {}
    if client.method == "client_secret_post":
        credentials["client_secret"] = client.client_secret or ""
    return post_form(purpose, endpoint, {**form, **credentials}, {})


class _Tokens(msgspec.Struct, frozen=True):
    """The response of a token endpoint (RFC 6749 §5.1)."""

    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


def _read_tokens(endpoint: str, body: bytes) -> _Tokens:
    tokens = read_document(body, _Tokens)
    if isinstance(tokens, str):
        # Leave out the reason, which may quote the response and thus a token.
        raise NotAuthorized(f"{endpoint} sent a response without readable tokens.")
    if tokens.token_type.lower() != "bearer":
        raise NotAuthorized(f"{endpoint} sent a token of the type {shown(tokens.token_type)!r}; it must be bearer.")
    token = tokens.access_token
    if not token or len(token) > MAX_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise NotAuthorized(f"{endpoint} sent a token that cannot be used in a header.")
    return tokens


def _expiry_time(tokens: _Tokens, now: float) -> float | None:
    try:
        seconds = float(tokens.expires_in or 0)
    except ValueError:
        return None
    return now + seconds if 0 < seconds < MAX_EXPIRY_SECONDS else None


def resource_and_scope(resource: str | None, scopes: Iterable[str]) -> dict[str, str]:
    """Return the parameters `resource`, exactly as published (RFC 8707 §2), and `scope`, if there are any."""
    parameters = {} if resource is None else {"resource": resource}
    scope = " ".join(scopes)
    return {**parameters, "scope": scope} if scope else parameters
