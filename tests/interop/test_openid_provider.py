"""Clients sign in to our servers at a certified OpenID provider: discovery, tokens, refresh and step-up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import aiohttp
import pytest
from joserfc import jwk, jwt

from tests.conftest import free_port
from tests.interop.programs import (
    HANDSHAKE,
    STATELESS,
    environment,
    node_program,
    run_client,
    run_server,
    wharfinger_command,
)
from tests.transports.http_support import META
from wharfinger import Client
from wharfinger.auth import SignIn
from wharfinger.auth.server.key_set import COOLDOWN_SECONDS

SERVER = Path(__file__).with_name("guarded_server.py")
APPLICATION = "https://app.example/client.json"
EXPIRY_SECONDS = 6
"""The lifetime of tokens in tests of refresh. A user must sign in again if two tokens in a row expire on their way."""


class Provider:
    """A running OpenID provider and its issuer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("{")), "")
        self.issuer: str = json.loads(line)["issuer"]
        self.request_offset = 0

    def admin(self, **settings: Any) -> list[Any]:
        """Change settings, and return all requests so far."""
        origin = "/".join(self.issuer.split("/")[:3])
        with urlopen(Request(f"{origin}/admin", json.dumps(settings).encode(), method="POST"), timeout=40) as answer:
            found: list[Any] = json.load(answer)
        return found

    def requests(self, path: str, **form: str) -> list[dict[str, str]]:
        """Return the forms that were sent to a path since `reset` and have these fields."""
        found = [
            fields for _, request_path, fields in self.admin()[self.request_offset :] if request_path.endswith(path)
        ]
        return [fields for fields in found if form.items() <= fields.items()]

    def reset(self, **settings: Any) -> None:
        """Apply settings, and count requests from now on."""
        defaults = {"seconds": 3600, "format": "jwt", "documents": {}}
        self.request_offset = len(self.admin(**{**defaults, **settings}))


@contextlib.contextmanager
def run_provider(**settings: Any) -> Iterator[Provider]:
    command = [*node_program("oidc", "oidc_provider.mjs"), json.dumps(settings)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        yield Provider(process)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    """Start one provider for all tests. Its issuer has a path, like the issuer of a tenant."""
    with run_provider(path="/realms/harbour") as provider:
        yield provider


@pytest.fixture
def provider(shared: Provider) -> Provider:
    shared.reset()
    return shared


@contextlib.contextmanager
def run_guarded_server(provider: Provider, log: Path, *credentials: str) -> Iterator[str]:
    """Start `server.run(http=…, auth=…)` in another process and yield its MCP URL."""
    port = free_port()
    with run_server([sys.executable, str(SERVER), str(port), provider.issuer, *credentials], port, log):
        yield f"http://127.0.0.1:{port}/mcp"
    assert "Traceback" not in log.read_text(errors="replace")


@contextlib.contextmanager
def serve_folder(provider: Provider, folder: Path, log: Path, *options: str, port: int = 0) -> Iterator[str]:
    """Start `wharfinger serve --auth` of a folder and yield its MCP URL."""
    port = port or free_port()
    public = f"http://127.0.0.1:{port}"
    command = [
        *wharfinger_command(),
        "serve",
        "--http",
        f"127.0.0.1:{port}",
        "--auth",
        provider.issuer,
        "--public-url",
        public,
    ]
    with run_server([*command, *options, str(folder)], port, log):
        yield f"{public}/mcp"
    assert "Traceback" not in log.read_text(errors="replace")


async def browse(url: str) -> None:
    """Act as a browser whose user consents at once. It keeps cookies and follows redirects to the client."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        session.get(url, max_redirects=20) as response,
    ):
        assert response.status == 200, await response.text()


def run(test: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    asyncio.run(asyncio.wait_for(test, seconds))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("first")
    return folder


# -- the client of Wharfinger


def test_our_client_discovers_signs_in_and_reads(provider: Provider, folder: Path, tmp_path: Path) -> None:
    """The client registers itself, uses PKCE, and gets a token whose audience is the MCP URL."""

    async def visit(url: str) -> None:
        async with Client(url, auth=SignIn(open_browser=browse)) as client:
            assert (await client.read_resource("file:///docs/a.txt")).text == "first"
        (authorization,) = provider.requests("/auth")
        assert (authorization["resource"], authorization["code_challenge_method"]) == (url, "S256")
        assert authorization["scope"].split()[0] == "docs.read"
        (token_request,) = provider.requests("/token")
        assert token_request["resource"] == url
        assert len(provider.requests("/reg")) == 1

    with serve_folder(provider, folder, tmp_path / "log", "--require-scope", "docs.read") as url:
        run(visit(url))


def test_a_document_of_the_client_replaces_its_registration(provider: Provider, folder: Path, tmp_path: Path) -> None:
    document = {
        "client_id": APPLICATION,
        "client_name": "An application",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "application_type": "native",
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    }
    provider.reset(documents={APPLICATION: document})

    async def visit(url: str) -> None:
        async with Client(url, auth=SignIn(open_browser=browse, client_metadata_url=APPLICATION)) as client:
            assert (await client.read_resource("file:///docs/a.txt")).text == "first"
        assert provider.requests("/auth")[0]["client_id"] == APPLICATION
        assert provider.requests("/reg") == []

    with serve_folder(provider, folder, tmp_path / "log", "--require-scope", "docs.read") as url:
        run(visit(url))


def test_our_client_requests_the_missing_scope_of_a_call(provider: Provider, tmp_path: Path) -> None:
    async def visit(url: str) -> None:
        for revision in (STATELESS, HANDSHAKE):
            provider.reset()
            async with Client(url, auth=SignIn(open_browser=browse), revision=revision) as client:
                assert (await client.call_tool("who")).text == f"ann of {provider.issuer} in staff"
                assert (await client.call_tool("write")).text == "written"
                assert (await client.call_tool("write")).text == "written"
            scopes = [set(fields["scope"].split()) for fields in provider.requests("/auth")]
            assert scopes == [{"docs.read", "offline_access"}, {"docs.read", "docs.write", "offline_access"}]

    with run_guarded_server(provider, tmp_path / "log") as url:
        run(visit(url))


def test_our_client_requests_a_scope_that_the_operator_requires_later(
    provider: Provider, folder: Path, tmp_path: Path
) -> None:
    port = free_port()
    auth = SignIn(open_browser=browse)

    async def visit(url: str) -> None:
        async with Client(url, auth=auth) as client:
            assert (await client.read_resource("file:///docs/a.txt")).text == "first"

    with serve_folder(provider, folder, tmp_path / "log", "--require-scope", "docs.read", port=port) as url:
        run(visit(url))
    scopes = ("--require-scope", "docs.read", "--require-scope", "docs.write")
    with serve_folder(provider, folder, tmp_path / "log", *scopes, port=port) as url:
        run(visit(url))
    scopes = [set(fields["scope"].split()) for fields in provider.requests("/auth")]
    assert scopes == [{"docs.read", "offline_access"}, {"docs.read", "docs.write", "offline_access"}]


def test_our_client_refreshes_tokens_before_they_expire(provider: Provider, tmp_path: Path) -> None:
    """Each refresh token works once, and the user signs in once."""
    provider.reset(seconds=EXPIRY_SECONDS)

    async def visit(url: str) -> None:
        auth = SignIn(open_browser=browse)
        async with Client(url, auth=auth) as client:
            refreshes: list[dict[str, str]] = []
            deadline = time.monotonic() + 30
            while len(refreshes) < 2 and time.monotonic() < deadline:
                assert (await client.call_tool("who")).text.startswith("ann of ")
                await asyncio.sleep(0.1)
                refreshes = provider.requests("/token", grant_type="refresh_token")
        assert len(refreshes) >= 2
        assert len({fields["refresh_token"] for fields in refreshes}) == len(refreshes), "one was sent twice"
        assert len(provider.requests("/auth")) == 1

    with run_guarded_server(provider, tmp_path / "log") as url:
        run(visit(url))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("revision", [STATELESS, HANDSHAKE])
def test_a_stream_ends_with_its_token_and_our_client_resumes_it(
    provider: Provider, tmp_path: Path, revision: str
) -> None:
    provider.reset(seconds=EXPIRY_SECONDS)

    async def visit(url: str) -> None:
        auth = SignIn(open_browser=browse)
        gaps: list[str] = []
        async with (
            Client(url, auth=auth, revision=revision) as watcher,
            Client(url, auth=auth, revision=revision) as other,
        ):
            changes = watcher.watch("harbour://tide")
            changes.on_interruption = lambda reason: gaps.append(str(reason))
            await changes
            gap_count = 2 if revision == STATELESS else 0  # a session opens its only stream again without reporting it
            deadline = time.monotonic() + 40
            while time.monotonic() < deadline:
                await other.call_tool("change")
                change = await asyncio.wait_for(anext(changes), 20)
                assert change.uri == "harbour://tide"
                if len(provider.requests("/token", grant_type="refresh_token")) >= 2 and len(gaps) >= gap_count:
                    break
                await asyncio.sleep(0.2)
            await changes.close()
        if revision == STATELESS:
            assert len(gaps) >= 2
            assert all("The token of this stream has expired" in gap for gap in gaps)
        assert len(provider.requests("/auth")) == 1
        assert len(provider.requests("/token", grant_type="refresh_token")) >= 2

    with run_guarded_server(provider, tmp_path / "log") as url:
        run(visit(url), 90)


# -- changes at the provider


def test_tokens_of_a_removed_key_are_refused_and_those_of_the_new_key_accepted(
    provider: Provider, tmp_path: Path
) -> None:
    async def visit(url: str) -> None:
        auth = SignIn(open_browser=browse)
        async with Client(url, auth=auth) as client:
            before = await auth.headers(url)
            assert (await client.call_tool("who")).text.startswith("ann of ")
            provider.admin(rotate=True)
            await asyncio.sleep(COOLDOWN_SECONDS + 0.1)  # the server does not fetch the keys again before that
            async with Client(url, auth=SignIn(open_browser=browse)) as other:
                await other.call_tool("who")
            async with aiohttp.ClientSession() as session, session.post(url, headers=before, json={}) as refused:
                assert refused.status == 401
                assert "signature" in (await refused.json())["error"]["message"]
            assert (await client.call_tool("who")).text.startswith("ann of "), "the client got a new token"
        assert len(provider.requests("/auth")) == 2
        assert len(provider.requests("/token", grant_type="refresh_token")) == 1

    with run_guarded_server(provider, tmp_path / "log") as url:
        run(visit(url))


def test_opaque_tokens_are_verified_at_the_provider_and_revoked_there(provider: Provider, tmp_path: Path) -> None:
    provider.reset(format="opaque")

    async def visit(url: str) -> None:
        auth = SignIn(open_browser=browse)
        async with Client(url, auth=auth) as client:
            assert (await client.call_tool("who")).text.startswith(f"ann of {provider.issuer}")
            assert (await client.call_tool("write")).text == "written"
        assert len(provider.requests("/token/introspection")) == 2, "one for each token"
        grant = await auth.grant(url)
        assert grant is not None
        assert "." not in grant.access_token
        form = {"client_id": grant.client.client_id}
        async with aiohttp.ClientSession() as session:
            renewal = form | {"grant_type": "refresh_token", "refresh_token": str(grant.refresh_token)}
            async with session.post(f"{provider.issuer}/token", data=renewal) as answer:
                token = (await answer.json())["access_token"]
            revocation = form | {"token": token}
            async with session.post(f"{provider.issuer}/token/revocation", data=revocation) as answer:
                assert answer.status == 200
            async with session.post(url, headers={"Authorization": f"Bearer {token}"}, json={}) as answer:
                assert answer.status == 401

    with run_guarded_server(provider, tmp_path / "log", "harbour", "a secret of the harbour") as url:
        run(visit(url))


BOUND_SERVER = """
from wharfinger import Server

server = Server("bound", task_store="sqlite:///{file}")


@server.resource("harbour://tide")
async def tide() -> str:
    return "4 m"
"""


def test_a_key_bound_token_needs_a_proof_that_works_once_even_after_a_restart(
    provider: Provider, tmp_path: Path
) -> None:
    module, key, port = tmp_path / "bound.py", jwk.generate_key("EC", "P-256"), free_port()
    module.write_text(BOUND_SERVER.format(file=tmp_path / "store.db"))
    url = f"http://127.0.0.1:{port}/mcp"
    public = ("--public-url", f"http://127.0.0.1:{port}", "--auth", provider.issuer)
    command = [*wharfinger_command(), "run", str(module), "--http", f"127.0.0.1:{port}", *public]

    def proof(htu: str, token: str = "") -> str:
        claims: dict[str, Any] = {"htm": "POST", "htu": htu, "iat": int(time.time()), "jti": secrets.token_hex(8)}
        if token:
            claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
        head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)}
        return jwt.encode(head, claims, key)

    async def get_token(session: aiohttp.ClientSession) -> str:
        endpoint = f"{provider.issuer}/token"
        form = {"grant_type": "client_credentials", "resource": url, "scope": "docs.read"}
        form |= {"client_id": "bound", "client_secret": "a secret of the bound"}
        async with session.post(endpoint, data=form, headers={"DPoP": proof(endpoint)}) as answer:
            response = await answer.json()
            assert response["token_type"] == "DPoP", response
            token: str = response["access_token"]
            return token

    async def read(session: aiohttp.ClientSession, **headers: str) -> tuple[int, str]:
        params = {"uri": "harbour://tide", "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}
        routing = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "resources/read", "Mcp-Name": "harbour://tide"}
        accept = {"Accept": "application/json, text/event-stream"}
        async with session.post(url, json=message, headers=routing | accept | headers) as answer:
            return answer.status, answer.headers.get("WWW-Authenticate", await answer.text())

    async def use_token() -> tuple[str, str]:
        async with aiohttp.ClientSession() as session:
            token = await get_token(session)
            used_proof = proof(url, token)
            status, text = await read(session, Authorization=f"DPoP {token}", DPoP=used_proof)
            assert (status, "4 m" in text) == (200, True), text
            for headers in (
                {"Authorization": f"DPoP {token}", "DPoP": used_proof},
                {"Authorization": f"DPoP {token}", "DPoP": proof(url.replace("/mcp", "/other"), token)},
                {"Authorization": f"DPoP {token}"},
                {"Authorization": f"Bearer {token}"},
            ):
                status, challenge = await read(session, **headers)
                assert (status, challenge[:12]) == (401, 'DPoP error="'), headers
            return token, used_proof

    async def use_token_after_restart(token: str, used_proof: str) -> None:
        async with aiohttp.ClientSession() as session:
            assert (await read(session, Authorization=f"DPoP {token}", DPoP=used_proof))[0] == 401
            assert (await read(session, Authorization=f"DPoP {token}", DPoP=proof(url, token)))[0] == 200

    with run_server(command, port, tmp_path / "log"):
        token, used_proof = asyncio.run(asyncio.wait_for(use_token(), 60))
    with run_server(command, port, tmp_path / "log"):
        run(use_token_after_restart(token, used_proof))


# -- other clients

OTHER_CLIENTS = [("mcp2", STATELESS), ("mcp2", HANDSHAKE), ("ts1", HANDSHAKE)]


def sign_in(
    peer: str, revision: str, url: str, tokens: Path, *calls: str | float, document: str | None = None
) -> list[str]:
    """Let a client call tools, and return the texts of the results."""
    visit = {"url": url, "revision": revision, "tokens": str(tokens), "calls": calls}
    seen = run_client(peer, visit | ({"document": document} if document else {}), "sign_in")
    assert seen["revision"] == revision
    answers: list[str] = seen["answers"]
    return answers


@pytest.mark.parametrize(("peer", "revision"), OTHER_CLIENTS)
def test_other_clients_discover_sign_in_call_and_keep_their_tokens(
    provider: Provider, tmp_path: Path, peer: str, revision: str
) -> None:
    with run_guarded_server(provider, tmp_path / "log") as url:
        who = f"ann of {provider.issuer} in staff"
        assert sign_in(peer, revision, url, tmp_path / "tokens", "who") == [who]
        (authorization,) = provider.requests("/auth")
        assert (authorization["resource"], authorization["code_challenge_method"]) == (url, "S256")
        assert "docs.read" in authorization["scope"].split()
        assert sign_in(peer, revision, url, tmp_path / "tokens", "who") == [who]
        assert len(provider.requests("/auth")) == len(provider.requests("/reg")) == 1


@pytest.mark.parametrize(("peer", "revision"), OTHER_CLIENTS)
def test_other_clients_request_the_missing_scope_of_a_call(
    provider: Provider, tmp_path: Path, peer: str, revision: str
) -> None:
    """Both clients use a metadata document: a client that registers names the scopes that it knows, and this provider
    grants it no others.

    The TypeScript SDK answers a 403 with its refresh token, if it has one, and gets no new scopes.
    """
    application = f"https://app.example/{peer}.json"  # the provider caches it
    document = {
        "client_id": application,
        "client_name": peer,
        "redirect_uris": ["http://127.0.0.1:3000/callback"],
        "application_type": "native",
        "grant_types": ["authorization_code"],
        "token_endpoint_auth_method": "none",
    }
    provider.reset(documents={application: document})
    with run_guarded_server(provider, tmp_path / "log") as url:
        calls = ("who", "write", "write")
        answers = sign_in(peer, revision, url, tmp_path / "tokens", *calls, document=application)
    assert answers[1:] == ["written", "written"]
    first, second = (set(fields["scope"].split()) for fields in provider.requests("/auth"))
    assert "docs.write" not in first
    assert {"docs.read", "docs.write"} <= second


@pytest.mark.parametrize(("peer", "revision"), OTHER_CLIENTS)
def test_other_clients_refresh_an_expired_token(provider: Provider, tmp_path: Path, peer: str, revision: str) -> None:
    provider.reset(seconds=EXPIRY_SECONDS)
    with run_guarded_server(provider, tmp_path / "log") as url:
        pause = EXPIRY_SECONDS + 0.5
        answers = sign_in(peer, revision, url, tmp_path / "tokens", "who", pause, "who", pause, "who")
    assert len(answers) == 3
    assert len(provider.requests("/auth")) == 1
    assert len(provider.requests("/token", grant_type="refresh_token")) >= 2
