"""From a server's refusal to the authorization server that it trusts, as steps (RFC 9728, RFC 8414); does no I/O."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from wharfinger.auth.client.challenge import Challenge
from wharfinger.auth.client.metadata import ResourceMetadata, ServerMetadata, read_document
from wharfinger.auth.client.steps import Steps, Trace, TraceStep, get, shown
from wharfinger.auth.urls import covers, objection, origin_of, resource_metadata_places, server_metadata_places
from wharfinger.errors import ConnectionFailed, NotAuthorized

__all__ = ["AuthServer", "discover"]

D = TypeVar("D")

_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")


class AuthServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server's tokens come from.

    `resource` is as the server publishes it; None where it publishes nothing (2025-03-26). `assumed` is true where
    not even the authorization server has metadata, so that its endpoints are those of 2025-03-26.
    """

    server: str
    resource: str | None
    scopes: tuple[str, ...]
    metadata: ServerMetadata
    assumed: bool = False

    @property
    def issuer(self) -> str:
        """The authorization server, as credentials are keyed by it."""
        return self.metadata.issuer


def discover(server: str, challenge: Challenge, known: Collection[str], trail: Trace) -> Steps[AuthServer]:
    """Find the authorization server of the server at a URL that has answered 401 or 403.

    Of several, one of which the client is already `known` (by issuer) is taken, else the first.

    Raises:
        NotAuthorized: the documents are missing or must not be used; says which and why.
    """
    if (fault := objection(server, server)) is not None:
        raise NotAuthorized(f"{server} cannot be signed in to: {fault}. A token would travel in the clear.")
    published = yield from _resource(server, challenge, trail)
    if published is None:
        return (yield from _without_resource(server, challenge, trail))
    issuer = next((issuer for issuer in published.authorization_servers if issuer in known), None)
    issuer = issuer or published.authorization_servers[0]
    metadata = yield from _server(server, issuer, trail)
    scopes = challenge.scope or published.scopes_supported or ()
    return AuthServer(server=server, resource=published.resource, scopes=scopes, metadata=metadata)


def _resource(server: str, challenge: Challenge, trail: Trace) -> Steps[ResourceMetadata | None]:
    """The server's own metadata; None where there is none at all."""
    named = challenge.resource_metadata
    places = resource_metadata_places(server, named)
    if named is not None and named not in places:
        fix = "Serve the metadata on the server's own origin."
        told = f"{shown(named)} is elsewhere: not asked"
        trail.append(TraceStep("resource_metadata in WWW-Authenticate", False, told, fix))
    for place in places:
        document = yield from _document("the server's metadata", place, ResourceMetadata, trail)
        if document is None:
            continue
        if not covers(document.resource, server):
            told = f"its resource {shown(document.resource)!r} does not cover {server}"
            raise _stop(trail, place, told, "Publish the URL under which clients reach the server as `resource`.")
        if not document.authorization_servers:
            fix = "List the issuer in `authorization_servers`."
            raise _stop(trail, place, "it names no authorization server", fix)
        servers = ", ".join(shown(issuer) for issuer in document.authorization_servers[:5])
        trail.append(TraceStep(place, True, f"resource {document.resource}; authorization servers: {servers}"))
        return document
    return None


def _server(server: str, issuer: str, trail: Trace) -> Steps[ServerMetadata]:
    """The authorization server's metadata; only a document of exactly this issuer is used (RFC 8414 §3.3)."""
    if (fault := objection(issuer, server)) is not None:
        raise _stop(trail, issuer, f"the authorization server is not asked: {fault}", "Publish its https issuer.")
    other: str | None = None
    for place in server_metadata_places(issuer):
        metadata = yield from _document("the authorization server's metadata", place, ServerMetadata, trail)
        if metadata is None:
            continue
        if metadata.issuer != issuer:
            other = metadata.issuer
            told = f"not used: its issuer is {shown(other)!r}, and the server names {issuer!r}"
            trail.append(TraceStep(place, False, told, "Both must be the same text, to the last slash."))
            continue
        return _checked(server, place, metadata, trail)
    if other is not None:
        raise NotAuthorized(
            f"The authorization server {issuer} calls itself {shown(other)!r} in its metadata, which is therefore not "
            "used: both must be the same text."
        )
    raise NotAuthorized(f"The authorization server {issuer} publishes no metadata (RFC 8414, OpenID Connect).")


def _without_resource(server: str, challenge: Challenge, trail: Trace) -> Steps[AuthServer]:
    """A server without metadata is its own authorization server (2025-03-26, authorization §2.3)."""
    origin = origin_of(server)
    assert origin is not None
    place = f"{origin}/.well-known/oauth-authorization-server"
    metadata = yield from _document("metadata at the server's root", place, ServerMetadata, trail)
    assumed = metadata is None
    if metadata is None:
        trail.append(
            TraceStep(origin, None, "no metadata at all: /authorize, /token and /register of 2025-03-26 are tried")
        )
        metadata = ServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
            code_challenge_methods_supported=("S256",),
        )
    elif metadata.issuer.rstrip("/") != origin:
        told = f"its issuer is {shown(metadata.issuer)!r}, not {origin}"
        raise _stop(trail, place, told, "Serve metadata of the resource (RFC 9728) that names the issuer.")
    else:
        metadata = _checked(server, place, metadata, trail)
    return AuthServer(server=server, resource=None, scopes=challenge.scope, metadata=metadata, assumed=assumed)


def _checked(server: str, place: str, metadata: ServerMetadata, trail: Trace) -> ServerMetadata:
    """Metadata whose endpoints may all be asked."""
    for name in _ENDPOINTS:
        url: str | None = getattr(metadata, name)
        if url is not None and (fault := objection(url, server)) is not None:
            raise _stop(trail, place, f"its {name} {shown(url)!r} is not used: {fault}", "Publish an https address.")
    trail.append(TraceStep(place, True, f"issuer {metadata.issuer}"))
    return metadata


def _document(what: str, place: str, kind: type[D], trail: Trace) -> Steps[D | None]:
    """One document; None where there is none, and the next place is asked."""
    try:
        answer = yield get(what, place)
    except ConnectionFailed as error:
        trail.append(TraceStep(place, False, str(error)))
        raise
    if answer.status != 200:
        to = f" to {shown(answer.headers.get('location', ''))}: not followed" if 300 <= answer.status < 400 else ""
        trail.append(TraceStep(place, None, f"{answer.status}{to}"))
        return None
    document = read_document(answer.body, kind)
    if isinstance(document, str):
        # A site that answers every path with its front page is no document.
        trail.append(TraceStep(place, None, f"200, but {shown(document)}"))
        return None
    return document


def _stop(trail: Trace, what: str, found: str, fix: str) -> NotAuthorized:
    trail.append(TraceStep(what, False, found, fix))
    return NotAuthorized(f"Signing in stops at {what}: {found}. {fix}")
