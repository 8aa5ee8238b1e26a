"""Authorization: `TokenAuth` with its verifiers for servers; `SignIn` and `ClientCredentials` for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wharfinger.auth.bearer import static_token
from wharfinger.protocol.http.rules import HttpRefusal
from wharfinger.protocol.principal import Principal

if TYPE_CHECKING:
    from wharfinger.auth.client.client_credentials import ClientCredentials
    from wharfinger.auth.client.sign_in import SignIn
    from wharfinger.auth.client.token_store import FileTokens, MemoryTokens, Tokens
    from wharfinger.auth.server.introspection import IntrospectionVerifier
    from wharfinger.auth.server.jwt_verifier import JWTVerifier
    from wharfinger.auth.server.static_tokens import StaticTokens, create_token
    from wharfinger.auth.server.token_auth import TokenAuth
    from wharfinger.auth.server.token_verifier import InvalidToken, TokenVerifier, VerifierUnavailable

__all__ = [
    "ClientCredentials",
    "FileTokens",
    "HttpRefusal",
    "IntrospectionVerifier",
    "InvalidToken",
    "JWTVerifier",
    "MemoryTokens",
    "Principal",
    "SignIn",
    "StaticTokens",
    "TokenAuth",
    "TokenVerifier",
    "Tokens",
    "VerifierUnavailable",
    "create_token",
    "static_token",
]

_ON_USE = {
    "ClientCredentials": "client.client_credentials",
    "FileTokens": "client.token_store",
    "IntrospectionVerifier": "server.introspection",
    "InvalidToken": "server.token_verifier",
    "JWTVerifier": "server.jwt_verifier",
    "MemoryTokens": "client.token_store",
    "SignIn": "client.sign_in",
    "StaticTokens": "server.static_tokens",
    "TokenAuth": "server.token_auth",
    "TokenVerifier": "server.token_verifier",
    "Tokens": "client.token_store",
    "VerifierUnavailable": "server.token_verifier",
    "create_token": "server.static_tokens",
}


def __getattr__(name: str) -> object:
    """Import a class on first use: a server needs none of those for clients, and most servers need no verifier."""
    module = _ON_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"wharfinger.auth.{module}"), name)
