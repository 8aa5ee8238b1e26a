"""`AuditLog`: a JSON line for each request, search and watch of a server, in a rotating file or on standard output."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from wharfinger.errors import Overloaded
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.observing import Observation, Refusal, outcome_of_error
from wharfinger.protocol.request import Request
from wharfinger.record.audit_file import MIN_MAX_BYTES, AuditFile, UnusableAuditFile
from wharfinger.record.audit_line import AuditLine, action_of, encode_line, name_caller, rfc3339, trace_id

__all__ = ["AuditLog"]

log = logging.getLogger("wharfinger.record")

MAX_BYTES = 100 * 1024 * 1024
"""The size at which the file is rotated unless another one is given."""
UNRECORDED = frozenset({"ping"})
"""Methods that are not recorded."""
CANNOT_WRITE = "The record of requests cannot be written, so requests are refused until it can be. Try again later."


class AuditLog:
    """Records each request, search and watch of a server: `Server("docs", audit=AuditLog("audit.jsonl"))`.

    Requests and messages that the server refuses are recorded too.

    `path` is a file, which is created with mode 0600, or `-` for standard output. Before it exceeds `max_bytes` (None:
    never), it is renamed to `NAME.TIME` and a new one begins; `keep` is how many renamed files are kept (None: all).
    `queries` adds the words of searches, which may be personal.

    `on_error` says what happens while the file cannot be written, for example because the disk is full: `refuse`
    answers every request with an error, `continue` serves them and counts the lines that are lost. Either way, the
    first line after that says how many requests were refused, or how many lines were lost.

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int | None = MAX_BYTES,
        keep: int | None = None,
        queries: bool = False,
        on_error: Literal["refuse", "continue"] = "refuse",
    ) -> None:
        if max_bytes is not None and max_bytes < MIN_MAX_BYTES:
            raise ValueError(f"max_bytes={max_bytes}: write at least {MIN_MAX_BYTES}, or None.")
        if keep is not None and keep < 0:
            raise ValueError(f"keep={keep}: write how many renamed files are kept, or None for all.")
        if on_error not in ("refuse", "continue"):
            raise ValueError(f'on_error={on_error!r}: write "refuse" or "continue".')
        target: Path | int = 1 if os.fspath(path) == "-" else Path(path).absolute()
        self.file = AuditFile(target, max_bytes=max_bytes, keep=keep)
        self.queries = queries
        self.on_error = on_error
        self._unrecorded = 0
        """How many requests were refused and lines were lost that no line has reported yet (`_record_gap`)."""
        self._failing_since = 0.0
        """When the file became unwritable, as a Unix time; 0 if only the queue was full."""

    # -- events

    def began(self, seen: Observation) -> None:
        """Refuse a request that cannot be recorded.

        Raises:
            Overloaded: the file cannot be written or the queue is half full, and `on_error` is `refuse`.
        """
        try:
            self.check_accepting()
        except Overloaded:
            seen.notes[self] = True  # it is counted already
            raise

    def ended(self, seen: Observation) -> None:
        """Record a request."""
        request = seen.request
        if request.method in UNRECORDED or self in seen.notes:
            return
        decision, caller = request.decision, request.caller
        now = time.time()
        line = AuditLine(
            time=rfc3339(now),
            action=action_of(request.method),
            outcome=seen.outcome,
            method=request.method,
            target=seen.target,
            rule="" if decision is None else decision.rule,
            via=seen.outer_method,
            bytes=seen.size,
            ms=round(seen.seconds * 1000, 3),
            error=seen.code or 0,
            trace=seen.trace or trace_id(request),
        )
        name_caller(line, caller.principal, caller.info, request.peer)
        self.add(line)

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Record a search, without its words unless `queries` is set."""
        self._record_event(request, "search", "allowed", "", hits=hits, query=words if self.queries else "")

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Record each URI that a stream begins to watch, and those that it may not watch."""
        for uri in uris:
            self._record_event(request, "watch", "allowed", uri)
        for uri in refused:
            self._record_event(request, "watch", "refused", uri)

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Record each URI that a session watched until it ended."""
        for uri in uris:
            self._record_event(request, "unwatch", "allowed", uri)

    def refused(self, refusal: Refusal) -> None:
        """Record a message that was refused or limited before it became a request, but no other errors."""
        outcome = outcome_of_error(refusal.error)
        if outcome == "failed":
            return
        if self.on_error == "refuse" and not self.file.accepting:
            self._count_unrecorded()
            return
        line = AuditLine(
            time=rfc3339(time.time()),
            action=action_of(refusal.method),
            outcome=outcome,
            method=refusal.method if refusal.method in METHODS else "",  # a header may have any text
            target=refusal.target,
            bytes=refusal.size,
            error=refusal.error.code,
            status=refusal.error.http_status,
        )
        name_caller(line, refusal.principal, None, refusal.address)
        self.add(line)

    # -- lines, also those of `HostRecord`

    def check_accepting(self) -> None:
        """Check that the next action can be recorded.

        Raises:
            Overloaded: the file cannot be written or the queue is half full, and `on_error` is `refuse`.
        """
        if self.on_error == "refuse" and not self.file.accepting:
            self._count_unrecorded()
            raise Overloaded(CANNOT_WRITE)

    def add(self, line: AuditLine) -> None:
        """Record a line. If earlier ones could not be recorded, a line with their number comes first."""
        self._record_gap()
        if not self.file.append(encode_line(line)):
            self._count_unrecorded()

    def _record_event(
        self, request: Request, action: str, outcome: str, target: str, hits: int | None = None, query: str = ""
    ) -> None:
        caller = request.caller
        rule = request.access.decide("read", target).rule if target and request.access is not None else ""
        line = AuditLine(
            time=rfc3339(time.time()),
            action=action,
            outcome=outcome,
            method=request.method,
            target=target,
            rule=rule,
            query=query,
            trace=trace_id(request),
        )
        name_caller(line, caller.principal, caller.info, request.peer)
        if hits is not None:
            line.hits = hits
        self.add(line)

    def _count_unrecorded(self) -> None:
        self._unrecorded += 1
        if self.file.failure:
            self._failing_since = self.file.failing_since

    def _record_gap(self) -> None:
        """Record how many requests were refused or lines lost, once the file can be written again."""
        file = self.file
        if not self._unrecorded or file.failure:
            return
        reason = f"since {rfc3339(self._failing_since)}" if self._failing_since else "the queue was full"
        line = AuditLine(
            time=rfc3339(time.time()), action="record", outcome="resumed", unrecorded=self._unrecorded, reason=reason
        )
        if file.append(encode_line(line)):
            self._unrecorded, self._failing_since = 0, 0.0

    # -- beginning and end

    async def start(self) -> None:
        """Open the file.

        Raises:
            UnusableAuditFile: it cannot be written, and `on_error` is `refuse`.
        """
        try:
            await asyncio.to_thread(self.file.open)
        except UnusableAuditFile as error:
            if self.on_error == "refuse":
                raise
            log.warning("%s. The server continues without a record until the log can be written.", error)

    async def close(self) -> None:
        """Write the lines that wait, and close the file."""
        self._record_gap()
        await asyncio.to_thread(self.file.close)
        if self._unrecorded:
            log.error("%s requests or lines are not in the audit log %s.", self._unrecorded, self.file.name)
