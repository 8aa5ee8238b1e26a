"""A client of the official Python SDK 2.x that signs in, calls tools and prints the results.

Its visit has `url`, `revision`, `calls` (names of tools, or seconds to wait), `tokens` (the file of its tokens and
registration) and optionally `document`, the URL of its client ID metadata document.
"""

import asyncio
import json
import pathlib
import urllib.parse
import warnings

import common
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

warnings.simplefilter("ignore")
REDIRECT = "http://127.0.0.1:3000/callback"
visit = common.read_input()


class TokenFile:
    """A file with the tokens and the registration of the client."""

    def __init__(self):
        self.file = pathlib.Path(visit["tokens"])
        self.content = json.loads(self.file.read_text()) if self.file.exists() else {}

    def _save(self, name, value):
        self.content[name] = value.model_dump(mode="json", exclude_none=True)
        self.file.write_text(json.dumps(self.content))

    async def get_tokens(self):
        return OAuthToken(**self.content["tokens"]) if "tokens" in self.content else None

    async def set_tokens(self, tokens):
        self._save("tokens", tokens)

    async def get_client_info(self):
        return OAuthClientInformationFull(**self.content["client"]) if "client" in self.content else None

    async def set_client_info(self, client_info):
        self._save("client", client_info)


class Browser:
    """A browser whose user consents at once."""

    def __init__(self):
        self.result = None

    async def open(self, url):
        async with httpx2.AsyncClient() as client:
            while not url.startswith(REDIRECT):
                answer = await client.get(url)
                assert answer.is_redirect, answer.text
                url = urllib.parse.urljoin(url, answer.headers["location"])
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        self.result = AuthorizationCodeResult(code=query.get("code"), state=query.get("state"), iss=query.get("iss"))

    async def receive(self):
        return self.result


async def main():
    seen, browser = {"answers": []}, Browser()
    metadata = OAuthClientMetadata(client_name="mcp2", redirect_uris=[REDIRECT], token_endpoint_auth_method="none")
    auth = OAuthClientProvider(
        visit["url"], metadata, TokenFile(), browser.open, browser.receive, visit.get("document")
    )
    mode = "auto" if visit["revision"] == "2026-07-28" else "legacy"
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30) as http,
        Client(streamable_http_client(visit["url"], http_client=http), mode=mode) as client,
    ):
        seen["revision"] = client.protocol_version
        for call in visit["calls"]:
            if isinstance(call, str):
                seen["answers"].append((await client.call_tool(call, {})).content[0].text)
            else:
                await asyncio.sleep(call)
    common.report(seen)


asyncio.run(main())
