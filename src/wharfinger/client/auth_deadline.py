"""While somebody signs in the clocks of an opening stand still; knows not how anybody gets in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from wharfinger.protocol.interfaces import Authorize

__all__ = ["Patient"]


class Patient:
    """An `Authorize` for one opening, whose deadline does not run while `refused` is at work.

    `idle` is set while it is not.
    """

    def __init__(self, auth: Authorize, deadline: asyncio.Timeout) -> None:
        self._auth = auth
        self._deadline: asyncio.Timeout | None = deadline
        self._at_work = 0
        self._left: float | None = None
        self.idle = asyncio.Event()
        self.idle.set()

    async def headers(self, url: str) -> Mapping[str, str]:
        """As `Authorize.headers`."""
        return await self._auth.headers(url)

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        """As `Authorize.refused`."""
        self._begin()
        try:
            return await self._auth.refused(url, status, headers, sent)
        finally:
            self._end()

    def opened(self) -> None:
        """The opening is over, and its deadline with it."""
        self._deadline = None

    def _begin(self) -> None:
        self._at_work += 1
        self.idle.clear()
        if self._at_work == 1 and self._deadline is not None and (when := self._deadline.when()) is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._deadline.reschedule(None)

    def _end(self) -> None:
        self._at_work -= 1
        if self._at_work:
            return
        self.idle.set()
        if self._deadline is not None and self._left is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + self._left)
        self._left = None
