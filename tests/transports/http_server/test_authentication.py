"""Tokens over a real socket: metadata, challenges, streams that end with their token, and sessions that continue."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from joserfc import jwk, jwt

from tests.transports.http_support import SampleService, ServerThread
from wharfinger.auth import HttpRefusal, Principal, TokenAuth
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.app import HttpApp

METADATA = "/.well-known/oauth-protected-resource"


class Tokens:
    """A verifier of `NAME` and `NAME-2`, two tokens of the same caller; `short` expires at `ends`."""

    issuers = ("https://id.example",)
    trusted_seconds = 60.0
    ends = 0.0

    async def verify(self, token: str) -> Principal | None:
        name = token.removesuffix("-2")
        if name not in ("ann", "bob", "short"):
            return None
        scopes = frozenset({"read", "write"} if token == name else {"read"})
        return Principal(
            subject=name, issuer=self.issuers[0], scopes=scopes, expires=self.ends if token == "short" else None
        )

    def on_change(self, forget: Callable[[], None]) -> None:
        pass


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def http(tokens: Tokens) -> Iterator[ServerThread]:
    with ServerThread(auth=TokenAuth(tokens), limits=HttpLimits(sweep_time=0.02, watch_after=0.02)) as http:
        yield http


@pytest.mark.parametrize("path", [METADATA, METADATA + "/mcp"])
def test_the_metadata_is_public_at_both_well_known_urls(http: ServerThread, path: str) -> None:
    """Security A12."""
    with http.wire() as wire:
        reply = wire.ask("GET", path, origin=None)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert reply.headers["access-control-allow-origin"] == "*"
        document = json.loads(reply.body)
        assert document["resource"] == f"http://127.0.0.1:{http.port}/mcp"
        assert document["authorization_servers"] == ["https://id.example"]
        assert wire.ask("POST", path).status == 405
        assert wire.ask("GET", METADATA + "/other").status == 404


def test_a_challenge_leads_to_the_metadata(http: ServerThread) -> None:
    with http.wire() as wire:
        reply = wire.read("principal")
        url = f"http://127.0.0.1:{http.port}{METADATA}/mcp"
        assert (reply.status, reply.headers["www-authenticate"]) == (401, f'Bearer resource_metadata="{url}"')


def test_the_resource_of_a_server_behind_a_proxy_is_its_public_url(tokens: Tokens) -> None:
    with ServerThread(auth=TokenAuth(tokens), public_url="https://docs.example/team/mcp") as http, http.wire() as wire:
        host = {"host": "docs.example"}
        document = json.loads(wire.ask("GET", METADATA, **host).body)
        assert document["resource"] == "https://docs.example/team/mcp"
        challenge = wire.read("a", **host).headers["www-authenticate"]
        assert challenge == f'Bearer resource_metadata="https://docs.example{METADATA}/team/mcp"'


@pytest.mark.parametrize("path", ["/", "/mcp", "/read?uri=a", "/nowhere", "/sse"])
def test_nothing_else_is_served_without_a_token(http: ServerThread, path: str) -> None:
    with http.wire() as wire:
        assert wire.ask("GET", path).status == 401
    with http.wire() as wire:
        assert wire.ask("GET", "/healthz").status == 200


def test_handlers_get_the_subject_of_the_token_in_both_eras(http: ServerThread) -> None:
    with http.wire() as wire:
        assert wire.read("principal", authorization="Bearer ann").text == "ann"
        session = wire.initialize(authorization="Bearer bob")
        read = {"uri": "test://principal"}
        assert wire.in_session(session, "resources/read", read, authorization="Bearer bob").text == "bob"


def test_a_session_continues_with_a_new_token_of_the_same_caller_and_its_scopes(http: ServerThread) -> None:
    with http.wire() as wire:
        session = wire.initialize(authorization="Bearer ann")
        seen: list[frozenset[str]] = []

        async def read(request: Any) -> Any:
            seen.append(request.caller.principal.scopes)
            return await SampleService.read(http.service, request)

        http.service.handlers = {**http.service.handlers, "resources/read": read}
        for token in ("ann", "ann-2", "ann"):
            reply = wire.in_session(session, "resources/read", {"uri": "test://a"}, authorization=f"Bearer {token}")
            assert reply.status == 200
        assert seen == [{"read", "write"}, {"read"}, {"read", "write"}]
        assert wire.in_session(session, "ping", authorization="Bearer bob").status == 404


def test_a_listen_stream_ends_with_its_token_and_reports_the_reason(http: ServerThread, tokens: Tokens) -> None:
    tokens.ends = time.time() + 1
    with http.wire() as wire, http.wire() as other:
        wire.listen("test://a", authorization="Bearer short")
        other.listen("test://a", authorization="Bearer ann")
        answer = wire.event()
        while "error" not in answer:
            answer = wire.event()
        assert answer["error"]["message"].startswith("The token of this stream has expired")
        assert time.time() >= tokens.ends
        assert len(http.service.listeners) == 1, "the other stream stays open"


def test_the_stream_of_a_session_ends_with_its_token_and_reports_the_reason(http: ServerThread, tokens: Tokens) -> None:
    tokens.ends = time.time() + 1
    with http.wire() as wire, http.wire() as other:
        session = other.initialize(authorization="Bearer short-2")
        wire.request("GET", accept="text/event-stream", mcp_session_id=session, authorization="Bearer short")
        assert wire.head()[0] == 200
        message = b""
        while chunk := wire.chunk():
            message += chunk
        assert b": the token has expired" in message
        assert other.in_session(session, "ping", authorization="Bearer short-2").status == 200, "the session stays"


def test_an_sse_stream_ends_with_its_token(http: ServerThread, tokens: Tokens) -> None:
    tokens.ends = time.time() + 1
    with http.wire() as wire:
        wire.request("GET", "/sse", accept="text/event-stream", authorization="Bearer short")
        assert wire.head()[0] == 200
        message = b""
        while chunk := wire.chunk():
            message += chunk
        assert b": the token has expired" in message


def test_verify_may_be_asynchronous() -> None:
    async def look_up(name: str) -> Principal:
        return Principal(subject=name)

    def verify(headers: Mapping[bytes, bytes]) -> Principal | Awaitable[Principal]:
        if b"x-user" not in headers:
            raise HttpRefusal(401, "Say who you are.")
        return look_up(headers[b"x-user"].decode())

    with ServerThread(verify=verify) as http, http.wire() as wire:
        assert wire.read("principal", x_user="ann").text == "ann"
    with ServerThread(verify=verify) as http, http.wire() as wire:
        assert wire.read("principal").status == 401


def test_auth_and_verify_exclude_each_other(tokens: Tokens) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        HttpApp(SampleService(), auth=TokenAuth(tokens), verify=lambda headers: Principal(subject="ann"))


@pytest.mark.parametrize("era", ["stateless", "session"])
def test_a_handler_may_ask_for_more_scopes(http: ServerThread, tokens: Tokens, era: str) -> None:
    """The challenge of a 403 names the scopes, also in a session, whose other errors are sent with 200."""

    async def read(request: Any) -> Any:
        raise TokenAuth(tokens).insufficient_scope("http://docs.example/mcp", ["write"])

    http.service.handlers = {**http.service.handlers, "resources/read": read}
    with http.wire() as wire:
        if era == "stateless":
            reply = wire.read("a", authorization="Bearer ann")
        else:
            session = wire.initialize(authorization="Bearer ann")
            reply = wire.in_session(session, "resources/read", {"uri": "test://a"}, authorization="Bearer ann")
        assert reply.status == 403
        assert reply.headers["www-authenticate"].startswith('Bearer error="insufficient_scope", scope="write"')
        assert reply.json["error"]["message"] == "The token needs the scope write."


def test_a_proof_is_for_the_public_url_and_not_for_the_address_behind_a_proxy() -> None:
    key = jwk.generate_key("EC", "P-256")

    class Bound(Tokens):
        async def verify(self, token: str) -> Principal | None:
            return Principal(subject="ann", claims={"cnf": {"jkt": key.thumbprint()}})

    def proof(url: str) -> str:
        ath = base64.urlsafe_b64encode(hashlib.sha256(b"token").digest()).rstrip(b"=").decode()
        claims = {"htm": "POST", "htu": url, "iat": int(time.time()), "jti": url, "ath": ath}
        return jwt.encode({"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)}, claims, key)

    with ServerThread(auth=TokenAuth(Bound()), public_url="https://docs.example/team") as http:
        urls = ("https://docs.example/team/mcp", f"http://127.0.0.1:{http.port}/mcp", "https://docs.example/mcp")
        statuses = []
        for url in urls:
            with http.wire() as wire:
                headers = {"authorization": "DPoP token", "dpop": proof(url), "host": "docs.example"}
                statuses.append(wire.read("a", **headers).status)
        assert statuses == [200, 401, 401]
