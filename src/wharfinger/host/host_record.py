"""Records the calls and decisions of a host as lines of an audit log."""

from __future__ import annotations

import asyncio
import time

from wharfinger.client import Call
from wharfinger.errors import Cancelled, Declined, ProtocolError, RemoteError
from wharfinger.protocol.observing import outcome_of_error, outcome_of_result
from wharfinger.record import AuditLog
from wharfinger.record.audit_line import AuditLine, action_of, rfc3339

__all__ = ["HostRecord"]

RECORDED = {"resources/read": "uri", "tools/call": "name", "prompts/get": "name"}
"""The calls that are recorded, and the member of the params that names their target."""


class HostRecord:
    """Writes to an audit log; without one, does nothing. Arguments, answers and contents are not recorded."""

    def __init__(self, audit: AuditLog | None) -> None:
        self.audit = audit

    def check(self, call: Call) -> None:
        """Refuse a call that cannot be recorded.

        Raises:
            Overloaded: the file cannot be written, or not fast enough, and `on_error` of the log is `refuse`.
        """
        if self.audit is not None and call.method in RECORDED:
            self.audit.check_accepting()

    def called(
        self, server: str, call: Call, seconds: float, error: BaseException | None, result: object = None
    ) -> None:
        """Record a call to a server and its outcome, which the error or the result shows."""
        member = RECORDED.get(call.method)
        if self.audit is None or member is None:
            return
        size = len(memoryview(call.raw)) if call.raw else 0
        line = AuditLine(
            time=rfc3339(time.time()),
            action=action_of(call.method),
            outcome=outcome_of_call(error, result),
            method=call.method,
            target=getattr(call.params, member),
            server=server,
            bytes=size,
            ms=round(seconds * 1000, 3),
            error=error.code if isinstance(error, ProtocolError | RemoteError) else 0,
        )
        self.audit.add(line)

    def approved(self, server: str, tool: str, allowed: bool, reason: str) -> None:
        """Record whether a tool may run, and why."""
        self._decided("approve", "tools/call", server, tool, allowed, reason)

    def answered(self, server: str, method: str, accepted: bool, reason: str) -> None:
        """Record a question of a server, and whether it was accepted."""
        self._decided(action_of(method), method, server, "", accepted, reason)

    def _decided(self, action: str, method: str, server: str, target: str, allowed: bool, reason: str) -> None:
        if self.audit is None:
            return
        outcome = "allowed" if allowed else "refused"
        now = rfc3339(time.time())
        self.audit.add(
            AuditLine(
                time=now, action=action, outcome=outcome, method=method, target=target, server=server, reason=reason
            )
        )

    async def start(self) -> None:
        """Open the file.

        Raises:
            UnusableAuditFile: it cannot be written, and `on_error` of the log is `refuse`.
        """
        if self.audit is not None:
            await self.audit.start()

    async def close(self) -> None:
        """Write the pending lines, and close the file."""
        if self.audit is not None:
            await self.audit.close()


def outcome_of_call(error: BaseException | None, result: object) -> str:
    """Return the outcome of a call that raised this error, or returned this result."""
    if error is None:
        return outcome_of_result(result)
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "refused" if isinstance(error, Declined | Cancelled) else outcome_of_error(error)
