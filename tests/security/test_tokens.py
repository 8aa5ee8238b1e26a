"""Missing, stolen and forged tokens, and tokens in logs, errors and files (rows A01 to A20, A23 and A25)."""

from __future__ import annotations

import base64
import hmac
import http.server
import json
import os
import re
import resource
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk

from tests.auth.server.keys import Issuer, claims
from tests.conftest import ROOT, absent, free_port
from tests.security.server_processes import COMMAND, ENVIRONMENT, FIXTURE, META, MIB, HttpProcess
from tests.transports.http_support import INITIALIZE, RawClient, Reply
from tests.waiting import wait_until
from wharfinger.auth import IntrospectionVerifier, JWTVerifier, TokenAuth, create_token
from wharfinger.auth.client.grants import Grant
from wharfinger.auth.client.registration import RegisteredClient

WELL_KNOWN = "/.well-known/oauth-authorization-server"
METADATA = "/.well-known/oauth-protected-resource/mcp"


class IssuerSite(Issuer):
    """An issuer that serves its metadata and keys over HTTP. It answers only while `may_answer` is set."""

    def __init__(self) -> None:
        site = self
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.paths: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.paths.append(self.path)
                site.may_answer.wait(30)
                pages = {WELL_KNOWN: site.metadata(), "/keys": site.key_set()}
                body = json.dumps(pages.get(self.path, {})).encode()
                self.send_response(200 if self.path in pages else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        super().__init__(f"http://127.0.0.1:{self.server.server_address[1]}")

    def close(self) -> None:
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()


class ProtectedServer(HttpProcess):
    """A server that accepts tokens of an issuer and of a file. All of them need the scope `docs.read`."""

    def __init__(self, issuer: IssuerSite, folder: Path, *options: str) -> None:
        self.issuer = issuer
        file = folder / "tokens.json"
        self.tokens = {name: create_token(file, name, scopes=["docs.read"])[0] for name in ("ann", "bob")}
        self.tokens["eve"] = create_token(file, "eve", scopes=["docs.write"])[0]
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}/mcp"
        access = ("--auth", issuer.name, "--tokens", str(file), "--require-scope", "docs.read")
        super().__init__("run", FIXTURE, *access, *options, address=address)

    def sign(self, *key: Any, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """Return a token of the issuer for this server, with changed claims and header."""
        return self.issuer.sign(*key, header=header or {}, **{"iss": self.issuer.name, "aud": self.url} | changes)

    def status(self, token: str | None, **headers: str | None) -> int:
        """Return the status of a tool call with this token."""
        return self.tool_call(token, **headers).status

    def tool_call(self, token: str | None, tool: str = "quick", **headers: str | None) -> Reply:
        params = {"name": tool, "arguments": {}}
        bearer = None if token is None else f"Bearer {token}"
        with self.connect() as client:
            return client.call("tools/call", params, **{"mcp_name": tool, "authorization": bearer, **headers})

    def challenge(self, *codes: str) -> str:
        """Return the expected challenge of a 401."""
        metadata = self.url.replace("/mcp", METADATA)
        return "Bearer " + ", ".join([*codes, f'resource_metadata="{metadata}"', 'scope="docs.read"'])


@pytest.fixture(scope="module")
def issuer() -> Iterator[IssuerSite]:
    site = IssuerSite()
    yield site
    site.close()


@pytest.fixture(scope="module")
def server(issuer: IssuerSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtectedServer]:
    with ProtectedServer(issuer, tmp_path_factory.mktemp("guarded")) as server:
        assert server.status(server.sign()) == server.status(server.tokens["ann"]) == 200
        yield server


def send_everything(server: HttpProcess, *, sse: bool = True, **headers: str | None) -> Iterator[Reply]:
    """Send each kind of request on its own connection, since a refusal ends the connection.

    `/sse` answers a valid token with an endless stream.
    """
    fetches = (("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/"), ("POST", "/messages"), ("GET", "/sse"))
    requests: list[Callable[[RawClient], Reply]] = [
        lambda client, verb=verb, path=path: client.fetch(verb, path, accept="text/event-stream", **headers)
        for verb, path in (fetches if sse else fetches[:-1])
    ]
    requests += [
        lambda client: client.call("tools/list", **headers),
        lambda client: client.call("server/discover", **headers),
        lambda client: client.call_in_session("", "initialize", INITIALIZE, **headers),
        lambda client: client.fetch("POST", body=b"not json", **headers),
    ]
    for request in requests:
        with server.connect() as client:
            yield request(client)


def test_requests_without_a_token_get_only_the_challenge(server: ProtectedServer) -> None:
    """A01."""
    for reply in send_everything(server):
        assert (reply.status, reply.headers["www-authenticate"]) == (401, server.challenge())
        assert b"fixture" not in reply.body


def test_an_unknown_token_is_refused(server: ProtectedServer, issuer: IssuerSite) -> None:
    """A02: also a token with a known id, and one that the issuer of another server has signed."""
    other = Issuer("https://other.example")
    id = server.tokens["ann"].rpartition("_")[0]
    for token in ("x" * 40, "wf_0123456789ab_" + "x" * 43, f"{id}_{'x' * 43}", other.sign(aud=server.url)):
        for reply in send_everything(server, authorization=f"Bearer {token}"):
            assert reply.status == 401
            assert reply.headers["www-authenticate"] == server.challenge('error="invalid_token"')


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Bearer é", "Bearer a b", 'Bearer "a"', "Bearer a,b", "Basic YTpi", "Bearer =", "Token x",
     "Bearer " + "x" * 17_000],
)  # fmt: skip
def test_a_malformed_authorization_header_is_refused(server: ProtectedServer, value: str) -> None:
    """A03."""
    with server.connect() as client:
        assert client.call("tools/list", authorization=value).status == 401


def test_an_expired_token_is_refused(server: ProtectedServer) -> None:
    """A03: after the leeway for clocks that differ."""
    now = int(time.time())
    assert server.status(server.sign(exp=now - 5)) == 200
    assert server.status(server.sign(exp=now - 31)) == 401


@pytest.mark.parametrize(
    "audience", ["https://other.example/mcp", "{}x", "x{}", "{}/", "x {} y", "", None, ["{}x"], [], 7]
)
def test_a_token_for_another_audience_is_refused_by_default(server: ProtectedServer, audience: Any) -> None:
    """A04: `aud` is compared exactly, as a string or as a list."""
    audience_claim = json.loads(json.dumps(audience).replace("{}", server.url))
    assert server.status(server.sign(aud=audience_claim)) == 401
    assert server.status(server.sign(aud=["https://other.example/mcp", server.url])) == 200


def test_a_missing_scope_is_forbidden(server: ProtectedServer) -> None:
    """A05: for every request, before its body is read."""
    for token in (server.tokens["eve"], server.sign(scope="docs.reader docs"), server.sign(scope=None)):
        for reply in send_everything(server, authorization=f"Bearer {token}"):
            assert reply.status == 403


def test_the_challenge_names_a_missing_scope(server: ProtectedServer) -> None:
    """A06."""
    reply = server.tool_call(server.tokens["eve"])
    metadata = server.url.replace("/mcp", METADATA)
    expected = f'Bearer error="insufficient_scope", scope="docs.read", resource_metadata="{metadata}"'
    assert reply.headers["www-authenticate"] == expected


def test_a_token_in_the_query_or_the_body_is_ignored(server: ProtectedServer) -> None:
    """A07."""
    token = server.tokens["ann"]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "access_token": token}).encode()
    with server.connect() as client:
        assert client.fetch("POST", f"/mcp?access_token={token}", body).status == 401
    for headers in ({"cookie": f"access_token={token}"}, {"x_authorization": f"Bearer {token}"}):
        with server.connect() as client:
            assert client.call("tools/list", **headers).status == 401


def test_two_authorization_headers_are_refused(server: ProtectedServer) -> None:
    """A08: in either order."""
    good = f"Authorization: Bearer {server.tokens['ann']}\r\n".encode()
    for header_lines in (good + good, good + b"Authorization: Bearer x\r\n", b"authorization: Basic x\r\n" + good):
        with server.connect() as client:
            head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
            client.write(head + header_lines + b"\r\n{}")
            assert client.reply().status in (400, 401)


def test_a_stolen_session_id_is_useless(server: ProtectedServer) -> None:
    """A09, A10: another caller gets 404, and a caller without a token gets 401."""
    ann, bob = (f"Bearer {server.tokens[name]}" for name in ("ann", "bob"))
    with server.connect() as client:
        session = client.initialize(authorization=ann)
        for verb in ("GET", "DELETE"):
            session_headers = {"accept": "text/event-stream", "mcp_session_id": session}
            with server.connect() as thief:
                assert thief.fetch(verb, authorization=bob, **session_headers).status == 404
            with server.connect() as thief:
                assert thief.fetch(verb, **session_headers).status == 401
        with server.connect() as thief:
            unknown = thief.call_in_session("0" * len(session), "ping", authorization=bob)
        with server.connect() as thief:
            answer = thief.call_in_session(session, "ping", authorization=bob)
        assert (answer.status, answer.body) == (unknown.status, unknown.body) == (404, answer.body)
        with server.connect() as thief:
            assert thief.call_in_session(session, "ping").status == 401
        same_name = server.sign(sub="ann")  # the same `sub` of another issuer is another principal
        with server.connect() as thief:
            assert thief.call_in_session(session, "ping", authorization=f"Bearer {same_name}").status == 404
        assert client.call_in_session(session, "ping", authorization=ann).status == 200


def test_events_of_another_caller_are_not_resumed(server: ProtectedServer) -> None:
    """A11: with the event id and the session id of the other caller, or with the caller's own session."""
    ann, bob = (f"Bearer {server.tokens[name]}" for name in ("ann", "bob"))
    with server.connect() as client, server.connect() as other:
        session = client.initialize(authorization=ann)
        own = other.initialize(authorization=bob)
        params = {"name": "chatter", "arguments": {"events": 3}, "_meta": {"progressToken": 1}}
        client.send_in_session(session, "tools/call", params, authorization=ann)
        assert client.head()[0] == 200
        assert client.event()["method"] == "notifications/progress"
        for session_id in (session, own):
            with server.connect() as thief:
                resume = {"accept": "text/event-stream", "mcp_session_id": session_id, "last_event_id": client.last_id}
                thief.request("GET", authorization=bob, **resume)
                status, _ = thief.head()
                assert status == (404 if session_id == session else 200)
                if session_id == own:
                    thief.socket.settimeout(0.5)
                    with pytest.raises(TimeoutError):
                        thief.event()


def test_the_metadata_describes_this_endpoint(server: ProtectedServer, issuer: IssuerSite) -> None:
    """A12: at the address that the challenge names, and readable without a token."""
    match = re.search('resource_metadata="http://[^/]+([^"]+)"', server.challenge())
    assert match is not None
    with server.connect() as client:
        document = client.fetch("GET", match[1]).json
    assert document["resource"] == server.url
    assert document["authorization_servers"] == [issuer.name]
    assert document["scopes_supported"] == ["docs.read"]


@pytest.mark.parametrize(
    "path",
    ["/mcp/", "//mcp", "/./mcp", "/healthz/../mcp", "/%6dcp", "/MCP", "/mcp;x=1", "/mcp%2f", "/mcp%00", "/mcp?x",
     "/.well-known/oauth-protected-resource/../../mcp", "/.well-known/oauth-protected-resource/mcp/../../mcp",
     "http://127.0.0.1/mcp", "http://evil.test/healthz", "/healthz%2f..%2fmcp", "/messages?session_id=1", "*"],
)  # fmt: skip
def test_no_spelling_of_the_path_is_served_without_a_token(server: ProtectedServer, path: str) -> None:
    """A13."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
    headers = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}
    with server.connect() as client:
        reply = client.fetch("POST", path, body, **headers)
        assert 400 <= reply.status < 500
        assert b"tools" not in reply.body


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1/healthz?", "127.0.0.1/.well-known/oauth-protected-resource#", "evil.test", "127.0.0.1.evil.test",
     "127.0.0.1@evil.test", "", "127.0.0.1:x", "[::1", "a b"],
)  # fmt: skip
def test_no_host_header_bypasses_the_token(server: ProtectedServer, host: str) -> None:
    """A14: and the metadata never repeats the host."""
    assert 400 <= server.status(None, host=host) < 500
    assert 400 <= server.status(server.tokens["ann"], host=host) < 500
    with server.connect() as client:
        reply = client.fetch("GET", METADATA, host=host)
        assert 400 <= reply.status < 500
        assert b"authorization_servers" not in reply.body


def test_a_stateless_request_needs_a_token_too(server: ProtectedServer) -> None:
    """A15: also on a connection whose last request had a token."""
    with server.connect() as client:
        bearer = f"Bearer {server.tokens['ann']}"
        assert client.call("tools/list", authorization=bearer).status == 200
        assert client.call("tools/list").status == 401


def test_a_request_without_a_token_is_refused_before_its_body_is_read(server: ProtectedServer) -> None:
    """A16: the refusal comes before any of the 3 MiB are sent."""
    for headers in ("", "Authorization: Bearer x\r\n", "Expect: 100-continue\r\n"):
        with server.connect() as client:
            head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            client.write(f"{head}Content-Length: {3 * MIB}\r\n{headers}\r\n".encode())
            reply = client.reply()
            assert (reply.status, reply.headers["connection"]) == (401, "close")


def test_a_token_is_never_repeated_in_an_answer(server: ProtectedServer) -> None:
    """A17."""
    for token in (server.tokens["ann"], server.tokens["eve"], "secret-of-somebody", server.sign(exp=1)):
        for reply in send_everything(server, sse=False, authorization=f"Bearer {token}"):
            assert token not in f"{reply.headers}{reply.body!r}"
            assert token.rpartition(".")[2] not in f"{reply.headers}{reply.body!r}"


@pytest.mark.parametrize("end", [b"\r\nX: 1", b"\rX: 1", b"\nX: 1", b"\0", b"\r\n X: 1", b"\x0b", b"\x7f"])
def test_a_header_with_an_injected_line_break_is_refused(server: ProtectedServer, end: bytes) -> None:
    """A18."""
    with server.connect() as client:
        head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        client.write(head + b"Authorization: Bearer x" + end + b"\r\n\r\n{}")
        status, headers = client.head()
        assert 400 <= status < 500
        assert "x" not in headers


# -- A19


def encode_part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public_key_as_secret(server: ProtectedServer, form: Callable[[Any], bytes]) -> str:
    """Return a token with an HMAC whose secret is the published key (RS/HS confusion)."""
    key = server.issuer.keys[0]
    head = encode_part({"alg": "HS256", "kid": key.kid, "typ": "at+jwt"})
    payload = encode_part(claims(iss=server.issuer.name, aud=server.url))
    return f"{head}.{payload}.{encode_part(hmac.digest(form(key), f'{head}.{payload}'.encode(), 'sha256'))}"


def with_parts(server: ProtectedServer, **changes: Any) -> str:
    """Return a valid token with another header or payload and the old signature."""
    head, payload, signature = server.sign().split(".")
    parts = {"head": head, "payload": payload, "signature": signature}
    return ".".join((parts | {name: encode_part(value) for name, value in changes.items()}).values())


def with_own_key(server: ProtectedServer, **header: Any) -> str:
    """Return a token that its sender has signed with a different key."""
    return server.sign(jwk.generate_key("EC", "P-256", {"kid": server.issuer.keys[0].kid}), header=header)


FORGED_TOKENS: dict[str, Callable[[ProtectedServer], str]] = {
    "alg none": lambda s: with_parts(s, head={"alg": "none"}, signature=b""),
    "alg None": lambda s: with_parts(s, head={"alg": "None", "kid": s.issuer.keys[0].kid}),
    "alg nONE and a signature": lambda s: with_parts(s, head={"alg": "nONE", "kid": s.issuer.keys[0].kid}),
    "no alg": lambda s: with_parts(s, head={"typ": "at+jwt", "kid": s.issuer.keys[0].kid}),
    "a list of algs": lambda s: with_parts(s, head={"alg": ["ES256"], "kid": s.issuer.keys[0].kid}),
    "another alg of the same key": lambda s: with_parts(s, head={"alg": "RS256", "kid": s.issuer.keys[0].kid}),
    "an empty signature": lambda s: with_parts(s, signature=b""),
    "a signature of zeros": lambda s: with_parts(s, signature=bytes(64)),
    "the PEM of the key as a secret": lambda s: public_key_as_secret(s, lambda key: key.as_pem(private=False)),
    "the JWK of the key as a secret": lambda s: public_key_as_secret(
        s, lambda key: json.dumps(key.as_dict(private=False)).encode()
    ),
    "an empty secret": lambda s: public_key_as_secret(s, lambda key: b""),
    "a key of its own": with_own_key,
    "a key of its own in the header": lambda s: with_own_key(
        s, jwk=jwk.generate_key("EC", "P-256").as_dict(private=False)
    ),
    "a URL of keys": lambda s: with_own_key(s, jku=f"{s.issuer.name}/evil"),
    "a URL of certificates": lambda s: with_own_key(s, x5u=f"{s.issuer.name}/evil"),
    "a key id that is a path": lambda s: with_own_key(s, kid="../../../../dev/null"),
    "a key id that is SQL": lambda s: with_own_key(s, kid="x' UNION SELECT 'key"),
    "a key id that is a URL": lambda s: with_own_key(s, kid=f"{s.issuer.name}/evil"),
    "a key id that is empty": lambda s: with_own_key(s, kid=""),
    "a key id that is a list": lambda s: with_parts(s, head={"alg": "ES256", "kid": [s.issuer.keys[0].kid]}),
    "a critical extension": lambda s: with_parts(
        s, head={"alg": "ES256", "kid": s.issuer.keys[0].kid, "crit": ["exp"], "exp": 1}
    ),
    "an issuer with a slash": lambda s: s.sign(iss=s.issuer.name + "/"),
    "an issuer that begins alike": lambda s: s.sign(iss=s.issuer.name + ".evil.test"),
    "an issuer in a list": lambda s: s.sign(iss=[s.issuer.name]),
    "no issuer": lambda s: s.sign(iss=None),
    "no audience": lambda s: s.sign(aud=None),
    "an audience that is a part": lambda s: s.sign(aud=s.url[:-1]),
    "a list with a part": lambda s: s.sign(aud=[s.url[:-1], s.url + "x"]),
    "an audience that is an object": lambda s: s.sign(aud={s.url: True}),
    "not yet valid": lambda s: s.sign(nbf=int(time.time()) + 60),
    "a start that is a text": lambda s: s.sign(nbf="0"),
    "an expiry that is a text": lambda s: s.sign(exp="9999999999"),
    "no expiry": lambda s: s.sign(exp=None),
    "an infinite expiry": lambda s: s.sign(exp=float("inf")),
    "an ID token": lambda s: s.sign(aud="client", nonce="x", header={"typ": "JWT"}),
    "a logout token": lambda s: s.sign(header={"typ": "logout+jwt"}),
    "a DPoP proof": lambda s: s.sign(header={"typ": "dpop+jwt"}),
    "no subject": lambda s: s.sign(sub=None),
    "a subject that is a number": lambda s: s.sign(sub=7),
    "another payload": lambda s: with_parts(s, payload=claims(iss=s.issuer.name, aud=s.url, sub="root")),
    "claims twice": lambda s: with_parts(
        s, payload=json.dumps(claims(iss="x", aud=s.url)).encode()[:-1] + b',"iss":"%b"}' % s.issuer.name.encode()
    ),
    "nested JSON": lambda s: with_parts(s, payload=b"[" * 10_000),
    "nested claims": lambda s: s.sign(extra=json.loads("[" * 500 + "]" * 500), aud="x"),
    "a header that is no JSON": lambda s: with_parts(s, head=b"\xff{"),
    "a header that is large": lambda s: with_parts(s, head={"alg": "ES256", "x": "y" * 8000}),
    "an encrypted token": lambda s: s.sign() + ".a.b",
    "a token in JSON form": lambda s: encode_part({"payload": "e30", "signatures": []}),
    "a huge token": lambda s: s.sign(x="y" * 14_000),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED_TOKENS)
def test_a_forged_token_is_refused(server: ProtectedServer, name: str) -> None:
    """A19: and no URL in the token is fetched."""
    token = FORGED_TOKENS[name](server)
    assert server.status(token) == 401
    assert "/evil" not in server.issuer.paths
    assert server.status(server.sign()) == 200, "the server still accepts valid tokens"


# -- A20


@pytest.mark.parametrize("case", ["down", "slow"])
def test_callers_are_refused_while_the_issuer_is_down(case: str, tmp_path: Path) -> None:
    """A20: within the timeout, for many callers at once. Callers with tokens from the file are served meanwhile."""
    issuer = IssuerSite()
    try:
        with ProtectedServer(issuer, tmp_path) as server:
            tokens = [server.sign(jti=str(number)) for number in range(20)]
            if case == "down":
                issuer.server.shutdown()
                issuer.server.server_close()
            else:
                issuer.may_answer.clear()
            replies: list[Reply] = []
            callers = [
                threading.Thread(target=lambda token=token: replies.append(server.tool_call(token))) for token in tokens
            ]
            began = time.monotonic()
            for caller in callers:
                caller.start()
            while any(caller.is_alive() for caller in callers):
                assert server.status(server.tokens["ann"]) == 200
            assert time.monotonic() - began < 30
            assert {(reply.status, reply.headers["retry-after"]) for reply in replies} == {(503, "5")}
            assert len(replies) == 20
            assert len(issuer.paths) <= 1
            wait_until(lambda: b"Tokens cannot be verified now" in server.errors, "the failure is logged")
    finally:
        if case == "slow":
            issuer.close()


# -- A23


def test_a_request_state_is_valid_only_unchanged_for_its_caller_and_call(server: ProtectedServer) -> None:
    """A23: the requestState of a call that requires input."""
    meta = META | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

    def ask(token: str, ship: str = "Elbe", **more: Any) -> Any:
        params = {"name": "asks", "arguments": {"ship": ship}, "_meta": meta, **more}
        with server.connect() as client:
            client.post(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
                mcp_protocol_version="2026-07-28",
                mcp_method="tools/call",
                mcp_name="asks",
                authorization=f"Bearer {token}",
            )
            return client.reply().json

    ann, bob = server.tokens["ann"], server.tokens["bob"]
    state = ask(ann)["result"]["requestState"]
    answers = {"inputResponses": {"agree": {"action": "accept", "content": {"value": True}}}}
    changed = state[:-6] + ("A" if state[-6] != "A" else "B") + state[-5:]
    same_name = server.sign(sub="ann")  # the same `sub` of the issuer and of the file are two principals
    for token, ship, used_state in (
        (bob, "Elbe", state), (same_name, "Elbe", state), (ann, "Weser", state), (ann, "Elbe", changed),
        (ann, "Elbe", state[:-1]), (ann, "Elbe", "x"),
    ):  # fmt: skip
        assert ask(token, ship, requestState=used_state, **answers)["error"]["code"] == -32602
    assert ask(ann, requestState=state, **answers)["result"]["content"][0]["text"] == "Elbe sails for ann"


# -- A25


def test_no_token_is_in_logs_tracebacks_or_the_process_table(issuer: IssuerSite, tmp_path: Path) -> None:
    """A25: for every failure, at every log level."""
    with ProtectedServer(issuer, tmp_path, "-vv") as server:
        good = [*server.tokens.values(), server.sign()]
        bad = [server.sign(exp=1), server.sign(aud="x"), "opaque-secret-of-somebody", "wf_012345678901_" + "s" * 43]
        for token in (*good, *bad):
            for tool in ("quick", "raises", "recursion", "surrogate", "missing"):
                server.tool_call(token, tool)
            for reply in send_everything(server, sse=False, authorization=f"Bearer {token}"):
                assert reply.status
        wait_until(lambda: b"hunter2" in server.errors, "the traceback of the tool is logged")
        message = "".join(server.output).encode() + server.errors
        message += Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        for token in (*good, *bad):
            assert token.encode() not in message
            assert token.rpartition(".")[2].encode() not in message


def test_a_server_with_tokens_writes_no_core_file(issuer: IssuerSite, tmp_path: Path) -> None:
    """A25: its memory contains tokens that are valid for a minute or more."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if not before[1]:
        absent("core files (ulimit -Hc unlimited)")
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        with ProtectedServer(issuer, tmp_path) as server:
            limits = Path(f"/proc/{server.process.pid}/limits").read_text()
            assert re.search(r"^Max core file size\s+0\s", limits, re.M)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def test_secrets_are_not_in_the_repr_of_objects() -> None:
    """A25: a repr may appear in a log or a traceback."""
    secret = "the-secret-of-the-client"
    introspection = IntrospectionVerifier(
        "https://id.example/introspect", issuer="https://id.example", client_id="a", client_secret=secret
    )
    auth = TokenAuth(introspection, JWTVerifier(issuer="https://id.example", audience="x"))
    encoded = base64.b64encode(f"a:{secret}".encode()).decode()
    for text in (repr(introspection), repr(auth), str(auth)):
        assert secret not in text
        assert encoded not in text


def test_files_with_tokens_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    """A25: with any umask. The server's file has only digests."""
    file, grants = tmp_path / "tokens.json", tmp_path / "saved"
    command = [*COMMAND, "token", "create", "-q", str(file), "--sub", "ann"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT, umask=0)
    token = result.stdout.strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in file.read_text()
    assert token.rpartition("_")[2] not in file.read_text()
    program = (
        "import asyncio, sys\nfrom wharfinger.auth import FileTokens\n"
        "from tests.security.test_tokens import GRANT\nasyncio.run(FileTokens(sys.argv[1]).keep(GRANT))"
    )
    subprocess.run(
        [COMMAND[0], "-c", program, str(grants)], check=True, umask=0, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert stat.S_IMODE(grants.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in grants.iterdir()} == {0o600}


GRANT = Grant(
    server="https://docs.example/mcp",
    issuer="https://id.example",
    resource=None,
    client=RegisteredClient(issuer="https://id.example", client_id="a"),
    token_endpoint="https://id.example/token",
    access_token="secret",
)
