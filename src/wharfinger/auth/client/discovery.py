"""Finds the authorization server of an MCP server that answered 401 or 403 (RFC 9728, RFC 8414).

Written as generator steps (see `steps`), so that this module does no I/O:

1. Get the server's own metadata: the URL in `WWW-Authenticate`, or a well-known URL on its origin. Its `resource` must
   cover the server.
2. Choose an authorization server that this metadata names, and get the metadata of that server. Its `issuer` must be
   exactly the URL in the first metadata.
3. A server without metadata follows 2025-03-26: it is its own authorization server.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from wharfinger.auth.client.challenge import Challenge
from wharfinger.auth.client.metadata import AuthServerMetadata, ResourceMetadata, read_document
from wharfinger.auth.client.steps import Steps, Trace, TraceStep, get, shown
from wharfinger.auth.urls import auth_server_metadata_urls, covers, forbidden_reason, resource_metadata_urls
from wharfinger.errors import ConnectionFailed, NotAuthorized
from wharfinger.net import origin_of

__all__ = ["AuthServer", "discover"]

D = TypeVar("D")

_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")


class AuthServer(msgspec.Struct, frozen=True, kw_only=True):
    """The authorization server that issues tokens for an MCP server.

    `server` is the URL of the MCP server. `resource` is that of its metadata; None if it publishes none
    (2025-03-26). `scopes` are those in the challenge of the MCP server or, if the challenge names none, those in its
    metadata. `assumed` is true if the authorization server has no metadata either, and the default endpoints of
    2025-03-26 are used.
    """

    server: str
    resource: str | None
    scopes: tuple[str, ...]
    metadata: AuthServerMetadata
    assumed: bool = False

    @property
    def issuer(self) -> str:
        """The issuer, by which credentials are stored."""
        return self.metadata.issuer


def discover(server: str, challenge: Challenge, known: Collection[str], trace: Trace) -> Steps[AuthServer]:
    """Find the authorization server of the MCP server at a URL.

    If the server names several, an issuer in `known` is preferred, then the first.

    Raises:
        NotAuthorized: a document is missing or must not be used; the message says which one and why.
        ConnectionFailed: a request got no response.
    """
    if (fault := forbidden_reason(server, server)) is not None:
        raise NotAuthorized(
            f"{server} cannot be used for signing in: {fault}. Use an https URL, so that the token is sent encrypted."
        )
    published = yield from _get_resource_metadata(server, challenge, trace)
    if published is None:
        return (yield from _use_own_auth_server(server, challenge, trace))
    issuer = next((issuer for issuer in published.authorization_servers if issuer in known), None)
    issuer = issuer or published.authorization_servers[0]
    metadata = yield from _get_auth_server_metadata(server, issuer, trace)
    scopes = challenge.scope or published.scopes_supported or ()
    return AuthServer(server=server, resource=published.resource, scopes=scopes, metadata=metadata)


def _get_resource_metadata(server: str, challenge: Challenge, trace: Trace) -> Steps[ResourceMetadata | None]:
    """Get the server's own metadata; None if it publishes none."""
    metadata_url = challenge.resource_metadata
    urls = resource_metadata_urls(server, metadata_url)
    if metadata_url is not None and metadata_url not in urls:
        fix = "Serve the metadata on the server's own origin."
        problem = f"{shown(metadata_url)} is on another origin, and is not requested"
        trace.append(TraceStep("resource_metadata in WWW-Authenticate", False, problem, fix))
    for url in urls:
        document = yield from _get_document("the server's metadata", url, ResourceMetadata, trace)
        if document is None:
            continue
        if not covers(document.resource, server):
            problem = f"its resource {shown(document.resource)!r} does not cover {server}"
            raise _record_failure(
                trace, url, problem, "Publish as `resource` the URL under which clients reach the server."
            )
        if not document.authorization_servers:
            fix = "Ask its operator for a token, or to list the issuer in `authorization_servers`."
            raise _record_failure(trace, url, "it names no authorization server", fix)
        servers = ", ".join(shown(issuer) for issuer in document.authorization_servers[:5])
        trace.append(TraceStep(url, True, f"resource {document.resource}; authorization servers: {servers}"))
        return document
    return None


def _get_auth_server_metadata(server: str, issuer: str, trace: Trace) -> Steps[AuthServerMetadata]:
    """Get the authorization server's metadata, in which `issuer` must be exactly the same (RFC 8414 §3.3)."""
    if (fault := forbidden_reason(issuer, server)) is not None:
        raise _record_failure(
            trace,
            shown(issuer),
            f"the authorization server is not used: {fault}",
            "Name an issuer with a public https URL.",
        )
    other_issuer: str | None = None
    for url in auth_server_metadata_urls(issuer):
        metadata = yield from _get_document("the authorization server's metadata", url, AuthServerMetadata, trace)
        if metadata is None:
            continue
        if metadata.issuer != issuer:
            other_issuer = metadata.issuer
            problem = f"not used: its issuer is {shown(other_issuer)!r}, and the server names {issuer!r}"
            trace.append(TraceStep(url, False, problem, "Both must be exactly the same, including a slash at the end."))
            continue
        return _check_endpoints(server, url, metadata, trace)
    if other_issuer is not None:
        raise NotAuthorized(
            f"The metadata of the authorization server {issuer} names another issuer, {shown(other_issuer)!r}, and is "
            "not used: both must be exactly the same."
        )
    raise NotAuthorized(f"The authorization server {issuer} publishes no metadata (RFC 8414, OpenID Connect).")


def _use_own_auth_server(server: str, challenge: Challenge, trace: Trace) -> Steps[AuthServer]:
    """Return the server as its own authorization server, without resource metadata (2025-03-26, authorization §2.3)."""
    origin = origin_of(server)
    assert origin is not None
    url = f"{origin}/.well-known/oauth-authorization-server"
    metadata = yield from _get_document("metadata at the server's root", url, AuthServerMetadata, trace)
    assumed = metadata is None
    if metadata is None:
        trace.append(TraceStep(origin, None, "no metadata: trying /authorize, /token and /register of 2025-03-26"))
        metadata = AuthServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods_supported=("S256",),
        )
    elif metadata.issuer.rstrip("/") != origin:
        problem = f"its issuer is {shown(metadata.issuer)!r}, not {origin}"
        raise _record_failure(trace, url, problem, "Serve metadata of the resource (RFC 9728) that names the issuer.")
    else:
        metadata = _check_endpoints(server, url, metadata, trace)
    return AuthServer(server=server, resource=None, scopes=challenge.scope, metadata=metadata, assumed=assumed)


def _check_endpoints(server: str, document_url: str, metadata: AuthServerMetadata, trace: Trace) -> AuthServerMetadata:
    """Return the metadata. Raises NotAuthorized if one of its endpoints must not be requested."""
    for name in _ENDPOINTS:
        url: str | None = getattr(metadata, name)
        if url is not None and (fault := forbidden_reason(url, server)) is not None:
            raise _record_failure(
                trace, document_url, f"its {name} {shown(url)!r} is not used: {fault}", "Publish a public https URL."
            )
    trace.append(TraceStep(document_url, True, f"issuer {metadata.issuer}"))
    return metadata


def _get_document(purpose: str, url: str, kind: type[D], trace: Trace) -> Steps[D | None]:
    """Get one document. Returns None if this URL has no such document, so that the next URL is tried."""
    try:
        answer = yield get(purpose, url)
    except ConnectionFailed as error:
        trace.append(TraceStep(url, False, str(error)))
        raise
    if answer.status != 200:
        to = f" to {shown(answer.headers.get('location', ''))}: not followed" if 300 <= answer.status < 400 else ""
        trace.append(TraceStep(url, None, f"{answer.status}{to}"))
        return None
    document = read_document(answer.body, kind)
    if isinstance(document, str):
        # Some sites answer every path with their front page.
        trace.append(TraceStep(url, None, f"200, but {shown(document)}"))
        return None
    return document


def _record_failure(trace: Trace, subject: str, problem: str, fix: str) -> NotAuthorized:
    """Record a step that failed. Returns the error to raise."""
    trace.append(TraceStep(subject, False, problem, fix))
    return NotAuthorized(f"Signing in stops at {subject}: {problem}. {fix}")
