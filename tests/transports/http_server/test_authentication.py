"""Tokens over a real socket: metadata, challenges, expiry, and sessions that continue with another token."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from joserfc import jwk, jwt

from tests.transports.http_support import RawClient, SampleService, ServerThread
from wharfinger.auth import HttpRefusal, Principal, TokenAuth
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.app import HttpApp

METADATA = "/.well-known/oauth-protected-resource"


class StubVerifier:
    """A verifier of the tokens of ann, bob and short: `NAME`, and `NAME-2`, which has the scope `read` only.

    The token `short` expires at `expires_at`.
    """

    issuers = ("https://id.example",)
    trusted_seconds = 60.0
    expires_at = 0.0

    async def verify(self, token: str) -> Principal | None:
        name = token.removesuffix("-2")
        if name not in ("ann", "bob", "short"):
            return None
        scopes = frozenset({"read", "write"} if token == name else {"read"})
        return Principal(
            subject=name, issuer=self.issuers[0], scopes=scopes, expires=self.expires_at if token == "short" else None
        )

    def on_change(self, forget: Callable[[], None]) -> None:
        pass


@pytest.fixture
def verifier() -> StubVerifier:
    return StubVerifier()


@pytest.fixture
def http(verifier: StubVerifier) -> Iterator[ServerThread]:
    with ServerThread(auth=TokenAuth(verifier), limits=HttpLimits(sweep_time=0.02, watch_after=0.02)) as http:
        yield http


@pytest.mark.parametrize("path", [METADATA, METADATA + "/mcp"])
def test_the_metadata_is_public_at_both_well_known_urls(http: ServerThread, path: str) -> None:
    """Security A12."""
    with http.connect() as client:
        reply = client.fetch("GET", path, origin=None)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers["access-control-allow-origin"] == "*"
        document = json.loads(reply.body)
        assert document["resource"] == f"http://127.0.0.1:{http.port}/mcp"
        assert document["authorization_servers"] == ["https://id.example"]
        assert client.fetch("POST", path).status == 405
        assert client.fetch("GET", METADATA + "/other").status == 404


def test_the_challenge_contains_the_url_of_the_metadata(http: ServerThread) -> None:
    with http.connect() as client:
        reply = client.read("principal")
        url = f"http://127.0.0.1:{http.port}{METADATA}/mcp"
        assert (reply.status, reply.headers["www-authenticate"]) == (401, f'Bearer resource_metadata="{url}"')


def test_the_resource_of_a_server_behind_a_proxy_is_its_public_url(verifier: StubVerifier) -> None:
    with (
        ServerThread(auth=TokenAuth(verifier), public_url="https://docs.example/team/mcp") as http,
        http.connect() as client,
    ):
        host = {"host": "docs.example"}
        document = json.loads(client.fetch("GET", METADATA, **host).body)
        assert document["resource"] == "https://docs.example/team/mcp"
        challenge = client.read("a", **host).headers["www-authenticate"]
        assert challenge == f'Bearer resource_metadata="https://docs.example{METADATA}/team/mcp"'


@pytest.mark.parametrize("path", ["/", "/mcp", "/read?uri=a", "/nowhere", "/sse"])
def test_only_the_metadata_and_health_are_served_without_a_token(http: ServerThread, path: str) -> None:
    with http.connect() as client:
        assert client.fetch("GET", path).status == 401
    with http.connect() as client:
        assert client.fetch("GET", "/healthz").status == 200


def test_handlers_get_the_subject_of_the_token_in_both_eras(http: ServerThread) -> None:
    with http.connect() as client:
        assert client.read("principal", authorization="Bearer ann").text == "ann"
        session = client.initialize(authorization="Bearer bob")
        read = {"uri": "test://principal"}
        assert client.call_in_session(session, "resources/read", read, authorization="Bearer bob").text == "bob"


def test_a_session_accepts_a_new_token_of_the_same_principal_with_its_scopes(http: ServerThread) -> None:
    with http.connect() as client:
        session = client.initialize(authorization="Bearer ann")
        scopes: list[frozenset[str]] = []

        async def read(request: Any) -> Any:
            scopes.append(request.caller.principal.scopes)
            return await SampleService.read(http.service, request)

        http.service.handlers = {**http.service.handlers, "resources/read": read}
        for token in ("ann", "ann-2", "ann"):
            reply = client.call_in_session(
                session, "resources/read", {"uri": "test://a"}, authorization=f"Bearer {token}"
            )
            assert reply.status == 200
        assert scopes == [{"read", "write"}, {"read"}, {"read", "write"}]
        assert client.call_in_session(session, "ping", authorization="Bearer bob").status == 404


def test_a_listen_stream_ends_when_its_token_expires_and_reports_the_reason(
    http: ServerThread, verifier: StubVerifier
) -> None:
    verifier.expires_at = time.time() + 1
    with http.connect() as client, http.connect() as other:
        client.listen("test://a", authorization="Bearer short")
        other.listen("test://a", authorization="Bearer ann")
        while "error" not in (answer := client.event()):
            pass
        assert answer["error"]["message"].startswith("The token of this stream has expired")
        assert time.time() >= verifier.expires_at
        assert len(http.service.listeners) == 1, "the other stream stays open"


def test_the_stream_of_a_session_ends_when_its_token_expires_and_reports_the_reason(
    http: ServerThread, verifier: StubVerifier
) -> None:
    verifier.expires_at = time.time() + 1
    with http.connect() as client, http.connect() as other:
        session = other.initialize(authorization="Bearer short-2")
        client.request("GET", accept="text/event-stream", mcp_session_id=session, authorization="Bearer short")
        assert client.head()[0] == 200
        body = b"".join(client.chunks())
        assert b": the token has expired" in body
        assert other.call_in_session(session, "ping", authorization="Bearer short-2").status == 200, "the session stays"


def test_the_resumed_stream_of_a_request_ends_when_its_token_expires_and_the_request_continues(
    http: ServerThread, verifier: StubVerifier
) -> None:
    """A bug: it stayed open, and the reason was repeated every second."""
    verifier.expires_at = time.time() + 1
    with http.connect() as first, http.connect() as client, http.connect() as last:
        session = first.initialize(authorization="Bearer short-2")
        read = {"uri": "test://wait-progress"}
        first.send_in_session(session, "resources/read", read, "w", authorization="Bearer short-2")
        assert first.head()[0] == 200
        assert first.event()["params"]["progress"] == 1

        def resume(client: RawClient, token: str) -> None:
            headers = {"mcp_session_id": session, "last_event_id": first.last_id, "authorization": f"Bearer {token}"}
            client.request("GET", accept="text/event-stream", **headers)
            assert client.head()[0] == 200

        resume(client, "short")
        body = b""
        for chunk in client.chunks():
            body += chunk
            assert body.count(b": the token has expired") <= 1, "the stream has ended"
        assert b": the token has expired" in body
        resume(last, "short-2")
        http.open_gates()
        assert last.event()["id"] == "w"


def test_an_sse_stream_ends_when_its_token_expires(http: ServerThread, verifier: StubVerifier) -> None:
    verifier.expires_at = time.time() + 1
    with http.connect() as client:
        client.request("GET", "/sse", accept="text/event-stream", authorization="Bearer short")
        assert client.head()[0] == 200
        body = b"".join(client.chunks())
        assert b": the token has expired" in body


def test_verify_may_be_asynchronous() -> None:
    async def look_up(name: str) -> Principal:
        return Principal(subject=name)

    def verify(headers: Mapping[bytes, bytes]) -> Principal | Awaitable[Principal]:
        if b"x-user" not in headers:
            raise HttpRefusal(401, "Say who you are.")
        return look_up(headers[b"x-user"].decode())

    with ServerThread(verify=verify) as http, http.connect() as client:
        assert client.read("principal", x_user="ann").text == "ann"
    with ServerThread(verify=verify) as http, http.connect() as client:
        assert client.read("principal").status == 401


def test_auth_and_verify_exclude_each_other(verifier: StubVerifier) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        HttpApp(SampleService(), auth=TokenAuth(verifier), verify=lambda headers: Principal(subject="ann"))


@pytest.mark.parametrize("era", ["stateless", "session"])
def test_a_handler_may_require_more_scopes(http: ServerThread, verifier: StubVerifier, era: str) -> None:
    """The challenge of a 403 names the scopes, also in a session, whose other errors are sent with 200."""

    async def read(request: Any) -> Any:
        raise TokenAuth(verifier).insufficient_scope("http://docs.example/mcp", ["write"])

    http.service.handlers = {**http.service.handlers, "resources/read": read}
    with http.connect() as client:
        if era == "stateless":
            reply = client.read("a", authorization="Bearer ann")
        else:
            session = client.initialize(authorization="Bearer ann")
            reply = client.call_in_session(session, "resources/read", {"uri": "test://a"}, authorization="Bearer ann")
        assert reply.status == 403
        assert reply.headers["www-authenticate"].startswith('Bearer error="insufficient_scope", scope="write"')
        assert reply.json["error"]["message"] == "The token needs the scope write."


def test_a_dpop_proof_must_name_the_public_url_and_not_the_address_behind_the_proxy() -> None:
    key = jwk.generate_key("EC", "P-256")

    class DpopVerifier(StubVerifier):
        async def verify(self, token: str) -> Principal | None:
            return Principal(subject="ann", claims={"cnf": {"jkt": key.thumbprint()}})

    def proof(url: str) -> str:
        ath = base64.urlsafe_b64encode(hashlib.sha256(b"token").digest()).rstrip(b"=").decode()
        claims = {"htm": "POST", "htu": url, "iat": int(time.time()), "jti": url, "ath": ath}
        return jwt.encode({"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)}, claims, key)

    with ServerThread(auth=TokenAuth(DpopVerifier()), public_url="https://docs.example/team") as http:
        urls = ("https://docs.example/team/mcp", f"http://127.0.0.1:{http.port}/mcp", "https://docs.example/mcp")
        statuses = []
        for url in urls:
            with http.connect() as client:
                headers = {"authorization": "DPoP token", "dpop": proof(url), "host": "docs.example"}
                statuses.append(client.read("a", **headers).status)
        assert statuses == [200, 401, 401]
