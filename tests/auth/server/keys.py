"""An issuer of tokens for tests: its keys, the tokens that it signs, and the documents that it serves."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import msgspec
from joserfc import jwk, jwt
from joserfc.errors import SecurityWarning
from joserfc.jws import JWSRegistry

from wharfinger.errors import ConnectionFailed
from wharfinger.protocol.interfaces import HttpResponse

ISSUER = "https://id.example"
AUDIENCE = "https://docs.example/mcp"


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token with the changes. A change to None removes the claim."""
    now = int(time.time())
    valid = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, "iat": now, "scope": "docs.read"}
    return {name: value for name, value in (valid | changes).items() if value is not None}


class Issuer:
    """Signs tokens, and serves its metadata and keys to `fetch`."""

    def __init__(self, name: str = ISSUER) -> None:
        self.name = name
        self.keys: list[Any] = []
        self.requested_urls: list[str] = []
        self.down = False
        self.documents: dict[str, bytes] = {}
        """Documents by URL, which replace the documents of the issuer."""
        self.rotate()

    def rotate(self, kind: str = "EC", **parameters: Any) -> Any:
        """Replace all keys with a new one, and return it."""
        kid = f"key-{len(self.requested_urls)}-{time.monotonic_ns()}"
        size = {"EC": "P-256", "RSA": 2048, "OKP": "Ed25519"}[kind]
        key = jwk.generate_key(kind, parameters.pop("size", size), {"kid": kid, **parameters})  # type: ignore[call-overload]
        self.keys = [key]
        return key

    def sign(self, key: Any = None, header: Mapping[str, Any] = {}, **changes: Any) -> str:
        """Return a signed token with the changed claims and header."""
        key = key or self.keys[0]
        algorithm = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA", "oct": "HS256"}[key.key_type]
        head = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt"} | dict(header)
        head = {name: value for name, value in head.items() if value is not None}
        with warnings.catch_warnings(action="ignore", category=SecurityWarning):
            registry = JWSRegistry(algorithms=[head["alg"]], strict_check_header=False)
            return jwt.encode(head, claims(**changes), key, registry=registry)

    def key_set(self) -> dict[str, Any]:
        """Return the public keys as a JSON Web Key Set."""
        return {"keys": [key.as_dict(private=False) for key in self.keys]}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of this issuer as an authorization server."""
        return {"issuer": self.name, "jwks_uri": f"{self.name}/keys"}

    async def fetch(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """Answer a request without a network."""
        self.requested_urls.append(url)
        if self.down:
            raise ConnectionFailed(f"{url} did not answer within 5 s.")
        own_documents: dict[str, Any] = {
            f"{self.name}/.well-known/oauth-authorization-server": self.metadata(),
            f"{self.name}/keys": self.key_set(),
        }
        if url in self.documents:
            return HttpResponse(200, {}, self.documents[url])
        if url not in own_documents:
            return HttpResponse(404, {}, b"")
        return HttpResponse(200, {}, msgspec.json.encode(own_documents[url]))
