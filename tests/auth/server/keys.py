"""An issuer of tokens for tests: its keys, the tokens that it signs, and its documents as a `Fetch`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
from joserfc import jwk, jwt
from joserfc.errors import SecurityWarning

from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import HttpResponse

ISSUER = "https://id.example"
AUDIENCE = "https://docs.example/mcp"


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token, with changes; None removes a claim."""
    now = int(time.time())
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, "iat": now, "scope": "docs.read"}
    return {name: value for name, value in (good | changes).items() if value is not None}


class Issuer:
    """Signs tokens, and serves its metadata and keys to `fetch`."""

    def __init__(self, name: str = ISSUER) -> None:
        self.name = name
        self.keys: list[Any] = []
        self.requested: list[str] = []
        self.down = False
        self.documents: dict[str, bytes] = {}
        """Documents by URL, which are served in place of the issuer's own."""
        self.rotate()

    def rotate(self, kind: str = "EC", **parameters: Any) -> Any:
        """Replace the keys by a new one, and return it."""
        kid = f"key-{len(self.requested)}-{time.monotonic_ns()}"
        size = {"EC": "P-256", "RSA": 2048, "OKP": "Ed25519"}[kind]
        key = jwk.generate_key(kind, parameters.pop("size", size), {"kid": kid, **parameters})  # type: ignore[call-overload]
        self.keys = [key]
        return key

    def sign(self, key: Any = None, header: Mapping[str, Any] = {}, **changes: Any) -> str:
        """Return a token with these changes of its claims and header."""
        key = key or self.keys[0]
        algorithm = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA", "oct": "HS256"}[key.key_type]
        head = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt"} | dict(header)
        head = {name: value for name, value in head.items() if value is not None}
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):
            return jwt.encode(head, claims(**changes), key, algorithms=[head["alg"]])

    def published(self) -> dict[str, Any]:
        """Return the key set that is published."""
        return {"keys": [key.as_dict(private=False) for key in self.keys]}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata that is published."""
        return {"issuer": self.name, "jwks_uri": f"{self.name}/keys"}

    async def fetch(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """`Fetch`."""
        self.requested.append(url)
        if self.down:
            raise ConnectionFailed(f"{url} did not answer within 5 s.")
        pages: dict[str, Any] = {
            f"{self.name}/.well-known/oauth-authorization-server": {
                "issuer": self.name,
                "jwks_uri": f"{self.name}/keys",
            },
            f"{self.name}/keys": self.published(),
        }
        if url in self.documents:
            return HttpResponse(200, {}, self.documents[url])
        if url not in pages:
            return HttpResponse(404, {}, b"")
        return HttpResponse(200, {}, msgspec.json.encode(pages[url]))
