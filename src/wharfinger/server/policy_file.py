"""`PolicyFile`: a policy that is read again when its file changes, without a restart.

`ServerPolicy` checks the file once a second. If the new policy cannot be used, or a test in it fails, the error is
logged and the old one stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from wharfinger.errors import WharfingerError
from wharfinger.policy.policy import Policy
from wharfinger.policy.report_only import ReportOnly
from wharfinger.protocol.interfaces import Authorizer

__all__ = ["PolicyFile"]

log = logging.getLogger("wharfinger.server.policy")

Version = tuple[int, int, int] | None
"""The inode, size and modification time of a file; None if it cannot be found."""


class PolicyFile:
    """A policy in a file, which `load` reads; with `report_only`, refusals are recorded and not enforced.

    Several servers may be given the same `PolicyFile`: each follows the file by itself.

    Raises:
        UnusablePolicy: the file cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        load: Callable[[Path], Policy] = Policy.load,
        report_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self._load = load
        self._report_only = report_only
        self._loaded_version = self._version()
        self.policy = load(self.path)

    def authorizer(self, policy: Policy) -> Authorizer:
        """Return the authorizer that enforces a policy of this file, or only records its refusals."""
        return ReportOnly(policy) if self._report_only else policy

    def has_changed(self) -> bool:
        """Return whether the file has changed since it was last read."""
        return self._version() != self._loaded_version

    async def reload(self, apply: Callable[[Authorizer], bool]) -> None:
        """Read the file, and call `apply` if the policy has changed and can be used.

        `apply` may refuse the policy too: by an error, which is logged, or by returning False.
        """
        version = self._loaded_version = self._version()
        try:
            policy = await asyncio.to_thread(self._load, self.path)
            if self._loaded_version != version:  # the file has changed, and a later call of `reload` is reading it
                return
            if (policy.version, policy.tests) == (self.policy.version, self.policy.tests):
                return
            if not apply(self.authorizer(policy)):
                return
        except Exception as error:
            unexpected = not isinstance(error, WharfingerError)
            log.error("The old policy stays, since the new one cannot be used. %s", error, exc_info=unexpected)
            return
        self.policy = policy
        log.warning("The policy was read again from %s.", self.path)

    def _version(self) -> Version:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
