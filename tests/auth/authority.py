"""A server that requires tokens and the authorization server that issues them, each on a real loopback port."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

REVISION = "2025-11-25"


class Authority:
    """An authorization server. Its attributes set how it behaves, and `asked` has the requests that it got."""

    def __init__(self) -> None:
        self.url = ""
        self.metadata: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.granted: dict[str, set[str]] = {}
        self.refresh: dict[str, set[str]] = {}
        self.expires_in: float | None = 3600
        self.secret: str | None = None
        self.answer: dict[str, str] = {}
        """Put over the query of the redirect."""
        self.clients = 0

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/oauth-authorization-server", self.document),
            web.post("/register", self.register),
            web.get("/authorize", self.authorize),
            web.post("/token", self.token),
        ]

    async def document(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                "scopes_supported": ["read", "write", "offline_access"],
                "authorization_response_iss_parameter_supported": True,
            }
            | self.metadata
        )

    async def register(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("register", body))
        self.clients += 1
        made = {"client_id": f"client-{self.clients}", "redirect_uris": body["redirect_uris"]}
        return web.json_response(made | ({"client_secret": self.secret} if self.secret else {}), status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.asked.append(("authorize", query))
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        answer = {"code": code, "state": query["state"], "iss": self.url} | self.answer
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(answer)}")

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append((form["grant_type"], form | {"authorization": request.headers.get("Authorization", "")}))
        if form["grant_type"] == "refresh_token":
            scopes = self.refresh.pop(form["refresh_token"], None)
            if scopes is None:
                return web.json_response({"error": "invalid_grant"}, status=400)
            return self.given(scopes)
        if form["grant_type"] == "client_credentials":
            return self.given(set(form.get("scope", "").split()))
        asked = self.codes.pop(form["code"], None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if asked is None or digest != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self.given(set(asked.get("scope", "").split()))

    def given(self, scopes: set[str]) -> web.Response:
        number = len(self.granted)
        self.granted[f"token-{number}"] = scopes
        given: dict[str, Any] = {"access_token": f"token-{number}", "token_type": "Bearer"}
        if self.expires_in is not None:
            given["expires_in"] = self.expires_in
        if "offline_access" in scopes:
            self.refresh[f"refresh-{number}"] = scopes
            given["refresh_token"] = f"refresh-{number}"
        return web.json_response(given)


class Guarded:
    """A server whose tool `write` needs the scope `write`, and everything else the scope `read`."""

    def __init__(self, authority: Authority) -> None:
        self.url = ""
        self.authority = authority
        self.resource: dict[str, Any] = {}
        self.seen: list[str] = []
        """Tokens that came with requests, in order."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/oauth-protected-resource/mcp", self.document),
            web.post("/mcp", self.post),
        ]

    async def document(self, request: web.Request) -> web.Response:
        return web.json_response({"resource": self.url, "authorization_servers": [self.authority.url]} | self.resource)

    async def post(self, request: web.Request) -> web.Response:
        message = json.loads(await request.read())
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.seen.append(token)
        scopes = self.authority.granted.get(token)
        wanted = "write" if message["method"] == "tools/call" else "read"
        where = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        reported = f'Bearer resource_metadata="{where}", scope="{wanted}"'
        if scopes is None:
            return web.Response(status=401, headers={"WWW-Authenticate": reported})
        if wanted not in scopes:
            return web.Response(status=403, headers={"WWW-Authenticate": f'{reported}, error="insufficient_scope"'})
        if "id" not in message:
            return web.Response(status=202)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": REVISION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]},
            "resources/list": {"resources": []},
            "resources/templates/list": {"resourceTemplates": []},
            "prompts/list": {"prompts": []},
            "tools/call": {"content": [{"type": "text", "text": "written"}]},
        }
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] not in results:
            return web.json_response(answer | {"error": {"code": -32601, "message": "no such method"}}, status=404)
        return web.json_response(answer | {"result": results[message["method"]]})


@asynccontextmanager
async def serving(*parts: Any) -> AsyncIterator[str]:
    """Serve the parts on one free port, and yield their origin."""
    app = web.Application()
    for part in parts:
        app.add_routes(part.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def harbour() -> AsyncIterator[tuple[Guarded, Authority]]:
    """Yield a guarded server with its authority, on two origins."""
    authority = Authority()
    guarded = Guarded(authority)
    async with serving(authority) as there, serving(guarded) as here:
        authority.url, guarded.url = there, f"{here}/mcp"
        yield guarded, authority


async def agree(url: str) -> str | None:
    """Act as a user who agrees at once: the browser is redirected to the client's address."""
    async with aiohttp.ClientSession() as session:
        async with session.get(url, allow_redirects=False) as response:
            there = response.headers["Location"]
        async with session.get(there) as response:
            await response.read()
    return None
