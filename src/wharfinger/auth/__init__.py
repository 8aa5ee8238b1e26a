"""Who is calling: checks of credentials that a transport is given as a `Verify`; knows no transport and no server."""

from __future__ import annotations

from wharfinger.auth.bearer import static_token
from wharfinger.protocol.http import Refused

__all__ = ["Refused", "static_token"]
