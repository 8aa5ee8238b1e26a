"""Registers the client at an authorization server, or uses an existing registration; as `Steps`, which do no I/O."""

from __future__ import annotations

import msgspec

from wharfinger.auth.client.discovery import AuthServer
from wharfinger.auth.client.metadata import AuthServerMetadata, read_document
from wharfinger.auth.client.steps import Steps, Trace, TraceStep, post_json, refusal, shown
from wharfinger.errors import NotAuthorized
from wharfinger.net import split_url

__all__ = ["ClientIdentity", "RegisteredClient", "how_registered", "register"]

_METHODS = ("none", "client_secret_basic", "client_secret_post")
"""Authentication methods that a new client requests, best first: a program on a user's machine cannot keep a secret."""
_METHODS_WITH_SECRET = ("client_secret_basic", "client_secret_post", "none")
"""Authentication methods for a client that has a secret, best first."""


class RegisteredClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client at one authorization server. Its credentials are sent to no other server (2026-07-28, authorization).

    `method` is its authentication method at the token endpoint. `redirect_uri` is empty if none was registered.
    `secret_expires_at` is in seconds since 1970, and 0 if the secret does not expire.
    """

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: str = ""
    redirect_uri: str = ""
    secret_expires_at: float = 0


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the application: its client id if it has one, the URL of its metadata document, and its name."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None
    metadata_url: str | None = None
    name: str = "Wharfinger"


def how_registered(auth_server: AuthServer, identity: ClientIdentity) -> str:
    """Return the first possible way to register (2025-11-25): `preregistered`, `document` or `dynamic`; "" if none."""
    if identity.client_id is not None and identity.issuer in (None, auth_server.issuer):
        return "preregistered"
    if identity.metadata_url is not None and auth_server.metadata.client_id_metadata_document_supported:
        return "document"
    return "dynamic" if auth_server.metadata.registration_endpoint is not None else ""


def register(
    auth_server: AuthServer,
    identity: ClientIdentity,
    redirect_uri: str,
    trace: Trace,
    registered: RegisteredClient | None = None,
) -> Steps[RegisteredClient]:
    """Return a client of this authorization server, registering it if necessary.

    `registered` is an earlier registration at this server, if there is one.

    Raises:
        NotAuthorized: the client cannot be registered; the message says why.
    """
    way = how_registered(auth_server, identity)
    if way == "preregistered" and identity.client_id is not None:
        trace.append(TraceStep("client", True, f"{shown(identity.client_id)}, registered before"))
        return RegisteredClient(
            issuer=auth_server.issuer,
            client_id=identity.client_id,
            client_secret=identity.client_secret,
            method=_auth_method(auth_server.metadata, identity.client_secret, None),
            redirect_uri=redirect_uri,
        )
    if way == "document" and identity.metadata_url is not None:
        fault = _document_fault(identity.metadata_url)
        if fault is not None:
            raise NotAuthorized(f"{identity.metadata_url} cannot be a client id: {fault}.")
        trace.append(TraceStep("client", True, f"the document {identity.metadata_url}"))
        return RegisteredClient(
            issuer=auth_server.issuer, client_id=identity.metadata_url, method="none", redirect_uri=redirect_uri
        )
    if registered is not None and registered.issuer == auth_server.issuer and registered.redirect_uri == redirect_uri:
        return registered
    if way == "dynamic":
        return (yield from _register_dynamically(auth_server, identity, redirect_uri, trace))
    reason = "does not support dynamic registration"
    if identity.client_id is not None:
        reason += f", and the given client id is for {identity.issuer}"
    fix = "Ask its operator for a client id, and pass it with its issuer."
    trace.append(TraceStep("client", False, f"{auth_server.issuer} {reason}", fix))
    raise NotAuthorized(f"{auth_server.issuer} {reason}. {fix}")


def _document_fault(url: str) -> str | None:
    """Return why a URL cannot be a client id (client ID metadata documents, §3); None if it can."""
    parts = split_url(url)
    if parts is None or parts.scheme != "https":
        return "it must be an https URL"
    if parts.path in ("", "/") or parts.fragment:
        return "it must have a path and no fragment"
    return None


class _Registration(msgspec.Struct, frozen=True):
    """The response to a registration (RFC 7591 §3.2.1)."""

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | None = None
    token_endpoint_auth_method: str | None = None


def _register_dynamically(
    auth_server: AuthServer, identity: ClientIdentity, redirect_uri: str, trace: Trace
) -> Steps[RegisteredClient]:
    """Register the client (RFC 7591), as a native application: the redirect is on this machine."""
    endpoint = auth_server.metadata.registration_endpoint
    assert endpoint is not None
    auth_method = next((method for method in _METHODS if method in auth_server.metadata.auth_methods), _METHODS[0])
    answer = yield post_json(
        "registration of this client",
        endpoint,
        {
            "client_name": identity.name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": auth_method,
            "application_type": "native",
        },
    )
    if answer.status not in (200, 201):
        _, refused = refusal(f"The registration at {endpoint}", answer)
        fix = "Ask for a client id, and pass it with its issuer."
        if auth_server.assumed:
            fix = "The server has no sign-in metadata: it may require a token in a header instead."
        trace.append(TraceStep(endpoint, False, str(refused), fix))
        raise NotAuthorized(f"{refused} {fix}")
    registration = read_document(answer.body, _Registration)
    if isinstance(registration, str) or not registration.client_id:
        fault = registration if isinstance(registration, str) else "its client_id is empty"
        trace.append(TraceStep(endpoint, False, f"the registration cannot be read: {shown(fault)}"))
        raise NotAuthorized(f"The response to the registration at {endpoint} cannot be used: {shown(fault)}.")
    trace.append(TraceStep(endpoint, True, f"registered as {shown(registration.client_id)}"))
    return RegisteredClient(
        issuer=auth_server.issuer,
        client_id=registration.client_id,
        client_secret=registration.client_secret or None,
        method=_auth_method(auth_server.metadata, registration.client_secret, registration.token_endpoint_auth_method),
        redirect_uri=redirect_uri,
        secret_expires_at=registration.client_secret_expires_at or 0,
    )


def _auth_method(metadata: AuthServerMetadata, secret: str | None, agreed: str | None) -> str:
    """Return the method of a client with a `secret`: the `agreed` one, else the best that the server supports.

    Returns `none` for a client without a secret.
    """
    if not secret:
        return "none"
    if agreed in _METHODS_WITH_SECRET:
        return agreed
    return next((method for method in _METHODS_WITH_SECRET if method in metadata.auth_methods), _METHODS_WITH_SECRET[0])
