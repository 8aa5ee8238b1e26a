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
    """An authorization server whose attributes set its answers, and which records its requests."""

    def __init__(self) -> None:
        self.url = ""
        self.metadata: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.scopes_by_token: dict[str, set[str]] = {}
        self.scopes_by_refresh_token: dict[str, set[str]] = {}
        self.expires_in: float | None = 3600
        self.secret: str | None = None
        self.redirect_changes: dict[str, str] = {}
        """Query parameters of the redirect that replace the usual ones."""
        self.client_count = 0
        self.token_count = 0

    def request_names(self) -> list[str]:
        """Return the path or grant type of each request."""
        return [name for name, _ in self.requests]

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
        self.requests.append(("register", body))
        self.client_count += 1
        client = {"client_id": f"client-{self.client_count}", "redirect_uris": body["redirect_uris"]}
        return web.json_response(client | ({"client_secret": self.secret} if self.secret else {}), status=201)

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.requests.append(("authorize", query))
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        answer = {"code": code, "state": query["state"], "iss": self.url} | self.redirect_changes
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(answer)}")

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append((form["grant_type"], form | {"authorization": request.headers.get("Authorization", "")}))
        if form["grant_type"] == "refresh_token":
            scopes = self.scopes_by_refresh_token.pop(form["refresh_token"], None)
            if scopes is None:
                return web.json_response({"error": "invalid_grant"}, status=400)
            return self.issue_token(scopes)
        if form["grant_type"] == "client_credentials":
            return self.issue_token(set(form.get("scope", "").split()))
        authorized = self.codes.pop(form["code"], None)
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if authorized is None or (digest, form["redirect_uri"]) != (
            authorized["code_challenge"],
            authorized["redirect_uri"],
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self.issue_token(set(authorized.get("scope", "").split()))

    def issue_token(self, scopes: set[str]) -> web.Response:
        number = self.token_count
        self.token_count += 1
        self.scopes_by_token[f"token-{number}"] = scopes
        response: dict[str, Any] = {"access_token": f"token-{number}", "token_type": "Bearer"}
        if self.expires_in is not None:
            response["expires_in"] = self.expires_in
        if "offline_access" in scopes:
            self.scopes_by_refresh_token[f"refresh-{number}"] = scopes
            response["refresh_token"] = f"refresh-{number}"
        return web.json_response(response)


class ProtectedServer:
    """An MCP server that requires the scope `write` for tool calls, and the scope `read` for every other request."""

    def __init__(self, authority: Authority) -> None:
        self.url = ""
        self.authority = authority
        self.metadata_changes: dict[str, Any] = {}
        self.received_tokens: list[str] = []

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/oauth-protected-resource/mcp", self.document),
            web.post("/mcp", self.post),
        ]

    async def document(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"resource": self.url, "authorization_servers": [self.authority.url]} | self.metadata_changes
        )

    async def post(self, request: web.Request) -> web.Response:
        message = json.loads(await request.read())
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.received_tokens.append(token)
        scopes = self.authority.scopes_by_token.get(token)
        required = "write" if message["method"] == "tools/call" else "read"
        metadata_url = self.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        challenge = f'Bearer resource_metadata="{metadata_url}", scope="{required}"'
        if scopes is None:
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if required not in scopes:
            return web.Response(status=403, headers={"WWW-Authenticate": f'{challenge}, error="insufficient_scope"'})
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
async def serve(*sites: Any) -> AsyncIterator[str]:
    """Serve the sites together on a free port, and yield their origin."""
    app = web.Application()
    for site in sites:
        app.add_routes(site.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def protected_server() -> AsyncIterator[tuple[ProtectedServer, Authority]]:
    """Run a protected server and its authorization server on two origins."""
    authority = Authority()
    server = ProtectedServer(authority)
    async with serve(authority) as authority_origin, serve(server) as server_origin:
        authority.url, server.url = authority_origin, f"{server_origin}/mcp"
        yield server, authority


async def approve(url: str) -> str | None:
    """Act as the browser of a user who approves the request: follow the redirect to the client."""
    async with aiohttp.ClientSession() as session:
        async with session.get(url, allow_redirects=False) as response:
            redirect = response.headers["Location"]
        async with session.get(redirect) as response:
            await response.read()
    return None
