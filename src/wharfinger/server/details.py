"""Errors told in full to whoever calls, for the author at work: a hook that `wharfinger run --dev` adds."""

from __future__ import annotations

import logging
import os
from typing import Any

from wharfinger.errors import HandlerFailed, ProtocolError
from wharfinger.server.hooks import Call, Next, transparent

__all__ = ["errors_in_full"]

log = logging.getLogger("wharfinger.server")


@transparent
async def errors_in_full(call: Call, next: Next) -> Any:
    """Tell the caller what went wrong inside, besides the reference that the log repeats: never in production.

    Add it with `server.add_hook(errors_in_full)`.

    Raises:
        HandlerFailed: the handler failed; the message names the exception and repeats its text.
    """
    try:
        return await next(call)
    except Exception as error:
        if isinstance(error, ProtocolError) and not error.remote:
            raise
        reference = os.urandom(4).hex()
        log.exception("%s failed (reference %s)", call.method, reference)
        raise HandlerFailed(f"Internal error (reference {reference}): {type(error).__name__}: {error}") from None
