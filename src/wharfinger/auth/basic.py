"""The header with which an OAuth client identifies itself to an authorization server."""

from __future__ import annotations

import base64
from urllib.parse import quote_plus

__all__ = ["basic_authorization"]


def basic_authorization(client_id: str, client_secret: str) -> str:
    """Return the value of `Authorization` for a client's id and secret (RFC 6749 §2.3.1)."""
    # Id and secret are form-encoded before they are joined: a space becomes `+` (RFC 6749, appendix B).
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
