"""Checks that several processes that serve one application share a secret."""

from __future__ import annotations

import os

from wharfinger.server.cursors import Keys

__all__ = ["check_secret"]


def check_secret(keys: Keys) -> None:
    """Check that several processes do not each seal with a random key of their own.

    `WEB_CONCURRENCY` says how many processes there are, as it does for uvicorn and gunicorn.

    Raises:
        RuntimeError: there are several, and no secret was given.
    """
    workers = os.environ.get("WEB_CONCURRENCY", "")
    if keys.random and workers.isdecimal() and int(workers) > 1:
        raise RuntimeError(
            f"{workers} workers serve this server, and one cannot open the cursors and request states that another "
            "has sealed: set WHARFINGER_SECRET to the same long random text for all of them, or pass Server(secret=…)."
        )
