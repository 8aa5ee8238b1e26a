"""Authorization: `static_token` for servers; `SignIn` and `ClientCredentials` for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wharfinger.auth.bearer import static_token
from wharfinger.protocol.http.rules import HttpRefusal

if TYPE_CHECKING:
    from wharfinger.auth.client.client_credentials import ClientCredentials
    from wharfinger.auth.client.sign_in import SignIn
    from wharfinger.auth.client.token_store import FileTokens, MemoryTokens, Tokens

__all__ = ["ClientCredentials", "FileTokens", "HttpRefusal", "MemoryTokens", "SignIn", "Tokens", "static_token"]

_ON_USE = {
    "ClientCredentials": "client.client_credentials",
    "FileTokens": "client.token_store",
    "MemoryTokens": "client.token_store",
    "SignIn": "client.sign_in",
    "Tokens": "client.token_store",
}


def __getattr__(name: str) -> object:
    """Import the classes for clients on first use: servers do not need them."""
    module = _ON_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"wharfinger.auth.{module}"), name)
