"""Calls functions whose errors are logged instead of raised."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

__all__ = ["call_logged"]

log = logging.getLogger("wharfinger.server.logged_calls")

Args = TypeVarTuple("Args")
T = TypeVar("T")


def call_logged(function: Callable[[*Args], T], *args: *Args) -> T | None:
    """Call a function of one watcher, source or observer; if it fails, log the error, so that the others continue."""
    try:
        return function(*args)
    except Exception:
        log.exception("%s failed", getattr(function, "__qualname__", function))
        return None
