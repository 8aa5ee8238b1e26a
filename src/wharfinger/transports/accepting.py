"""Errors of listening for connections: an address that cannot be used, and too few file descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from typing import Any

from wharfinger.errors import WharfingerError

__all__ = ["AddressInUse", "CannotListen", "Exhaustion"]

log = logging.getLogger("wharfinger.transports.accepting")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_LOG_SECONDS = 60.0
"""The minimum number of seconds between two log messages."""


class CannotListen(WharfingerError, OSError):
    """A server cannot listen on an address; the message names it and the reason."""

    exit_code = 3


class AddressInUse(CannotListen):
    """Another program listens on the address, or a file that may not be replaced is at the path of a Unix socket.

    A socket that nobody listens on is replaced, unless it belongs to another user.
    """


class Exhaustion:
    """Logs an error when connections cannot be accepted because file descriptors or memory have run out.

    asyncio reports each attempt to the loop's exception handler, with a traceback, and tries again after a second.
    uvloop closes the connections and reports nothing, so `check` must be called periodically.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._previous_handler = loop.get_exception_handler()
        self._logged_at = float("-inf")
        loop.set_exception_handler(self._handle)

    def stop(self) -> None:
        """Restore the loop's exception handler."""
        if self._loop.get_exception_handler() == self._handle:
            self._loop.set_exception_handler(self._previous_handler)

    def check(self) -> None:
        """Log the error if no file descriptor can be opened."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._log(error)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _EXHAUSTED and "accept" in context.get("message", ""):
            self._log(error)
        elif self._previous_handler is not None:
            self._previous_handler(loop, context)
        else:
            loop.default_exception_handler(context)

    def _log(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.error(
                "Connections cannot be accepted (%s): raise the limit of open files (ulimit -n, LimitNOFILE= in "
                "systemd), or allow fewer connections (--limit connections).",
                error.strerror,
            )
