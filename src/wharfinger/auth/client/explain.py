"""Checks each step of a server's sign-in, without signing in (`wharfinger auth explain`)."""

from __future__ import annotations

import msgspec

from wharfinger.auth.client.challenge import Challenge, bearer_challenge
from wharfinger.auth.client.discovery import AuthServer, discover
from wharfinger.auth.client.grants import scopes_to_ask
from wharfinger.auth.client.registration import ClientIdentity, how_registered
from wharfinger.auth.client.steps import HttpStep, Steps, Trace, TraceStep, run, shown
from wharfinger.errors import WharfingerError
from wharfinger.protocol.interfaces import Fetch

__all__ = ["explain", "request_without_token"]

_REGISTRATIONS = {
    "preregistered": "with the client id that was given",
    "document": "with the client's own document (client ID metadata document)",
    "dynamic": "the client registers itself (RFC 7591)",
}


async def explain(url: str, identity: ClientIdentity, fetch: Fetch) -> tuple[Trace, bool]:
    """Do the parts of a sign-in that need no person. Returns the steps, and whether a person could sign in.

    Registers nothing, and opens no page.
    """
    trace: Trace = []
    try:
        return trace, await run(_check_steps(url, identity, trace), fetch)
    except WharfingerError as error:
        if not trace or trace[-1].good is not False:  # the trace does not end with the failure
            trace.append(TraceStep("sign-in", False, str(error)))
        return trace, False


def request_without_token(url: str) -> Steps[tuple[int, str]]:
    """Send a request without a token. Returns the status and the `WWW-Authenticate` header of the response."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "wharfinger", "version": "0"},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    answer = yield HttpStep("a request without a token", "POST", url, headers, msgspec.json.encode(message))
    return answer.status, answer.headers.get("www-authenticate", "")


def _check_steps(url: str, identity: ClientIdentity, trace: Trace) -> Steps[bool]:
    status, header = yield from request_without_token(url)
    challenge = _check_challenge(url, status, header, trace)
    if challenge is None:
        return False
    auth_server = yield from discover(url, challenge, [identity.issuer] if identity.issuer else [], trace)
    good = _check_registration(auth_server, identity, trace)
    good = _check_pkce(auth_server, trace) and good
    scopes = scopes_to_ask(auth_server, (), (), offline=True)
    trace.append(TraceStep("scopes", True, shown(" ".join(scopes)) or "the server names none, so none are requested"))
    resource = auth_server.resource or "none is published (2025-03-26)"
    trace.append(TraceStep("resource", True if auth_server.resource else None, shown(resource)))
    _check_renewal(auth_server, trace)
    return good


def _check_challenge(url: str, status: int, header: str, trace: Trace) -> Challenge | None:
    step = f"POST {url}"
    if status not in (401, 403):
        trace.append(TraceStep(step, None, f"{status}: `initialize` needs no token; other requests may need one"))
        return Challenge("bearer", {})
    challenge = bearer_challenge(header)
    answer = f"{status}, WWW-Authenticate: {shown(header)}"
    if challenge is None:
        trace.append(
            TraceStep(step, False, answer, "The server requires credentials other than a token: send them in a header.")
        )
        return None
    if not header:
        answer, fix = f"{status} without WWW-Authenticate", 'Send WWW-Authenticate: Bearer resource_metadata="…".'
        trace.append(TraceStep(step, False, answer, fix))
    elif challenge.resource_metadata is None:
        fix = "Add resource_metadata to the header: otherwise clients must guess its URL."
        trace.append(TraceStep(step, None, answer, fix))
    else:
        trace.append(TraceStep(step, True, answer))
    return challenge


def _check_registration(auth_server: AuthServer, identity: ClientIdentity, trace: Trace) -> bool:
    way = how_registered(auth_server, identity)
    if way:
        trace.append(TraceStep("registration", True, _REGISTRATIONS[way]))
        return True
    fix = "Ask its operator for a client id, and pass it with --client-id."
    if auth_server.metadata.client_id_metadata_document_supported:
        fix = "It accepts client ID metadata documents: pass the URL of one with --client-metadata-url."
    trace.append(TraceStep("registration", False, f"{auth_server.issuer} does not register clients automatically", fix))
    return False


def _check_pkce(auth_server: AuthServer, trace: Trace) -> bool:
    methods = auth_server.metadata.code_challenge_methods_supported
    if methods and "S256" in methods:
        trace.append(
            TraceStep(
                "PKCE", None if auth_server.assumed else True, "S256" + (" is assumed" if auth_server.assumed else "")
            )
        )
        return True
    listed = shown(", ".join(methods)) if methods else "nothing"
    fix = "List S256 in code_challenge_methods_supported: without it a stolen code can be used."
    trace.append(TraceStep("PKCE", False, f"code_challenge_methods_supported lists {listed}", fix))
    return False


def _check_renewal(auth_server: AuthServer, trace: Trace) -> None:
    grants = auth_server.metadata.grant_types_supported
    if grants is not None and "refresh_token" not in grants:
        trace.append(
            TraceStep("renewal", None, "no refresh_token grant: a person signs in again when the token expires")
        )
    else:
        trace.append(TraceStep("renewal", True, "by refresh token"))
