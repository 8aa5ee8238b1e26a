"""Every bound that the protocol layer keeps, as one frozen record; the transports have further ones of their own."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one service; each is a setting, and reaching one is answered, never suffered."""

    message: int = 4 * 1024 * 1024
    """Bytes of one incoming message."""
    depth: int = 64
    """Arrays and objects inside each other in one incoming message."""
    members: int = 250_000
    """Members of all objects together in one incoming message."""
    id_length: int = 256
    """Characters of a request id."""
    batch: int = 256
    """Messages of one batch (2025-03-26)."""
    in_flight: int = 4096
    """Requests of one connection that are being served."""
    listens: int = 64
    """Open `subscriptions/listen` requests of one connection."""
    watched: int = 10_000
    """URIs that one connection or one listen request may watch."""
    watched_total: int = 1_000_000
    """URIs that all of them together may watch; beyond it only callers with less than an equal part get more."""
    backlog: int = 1024 * 1024
    """Unsent bytes of one stream above which notifications are dropped; answers never are."""
    unread: int = 64 * 1024 * 1024
    """Unsent bytes of one stream from which requests are refused, also those being served; at twice as many in refusals
    and other small messages the connection is ended."""
    unread_total: int = 256 * 1024 * 1024
    """Unsent bytes of all connections of a server, in answers and batches of 256 KiB and more. Once it is reached, an
    owner who has an equal part gets no more large answers; one alone may be larger."""
    content: int = 256 * 1024 * 1024
    """Bytes of one content that a handler streams or names by its path."""
    handler_time: float = 300.0
    """Seconds that a handler may take before its request is cancelled and answered with an error."""
    answer_time: float = 1800.0
    """Seconds that a client gets to answer a question of ours; the time of its request stands still meanwhile."""
    questions: int = 64
    """Questions that one call may put while it waits for their answers."""
    rounds: int = 8
    """Times that one call may be sent again with answers before it fails (2026-07-28)."""
    state: int = 64 * 1024
    """Characters of the sealed state that a call's answers travel in."""
    state_time: float = 3600.0
    """Seconds for which such a state is good."""
    tasks: int = 1000
    """Tasks that one server runs at a time."""
    tasks_each: int = 100
    """Those of one caller among them."""
    tasks_kept: int = 10_000
    """Tasks in the store, under way and over, of which one principal may have half."""
    task_result: int = 16 * 1024 * 1024
    """Bytes of one task's result."""
    task_results: int = 256 * 1024 * 1024
    """Bytes of all tasks in the store, of which one principal may have half."""
    drain: float = 2.0
    """Seconds that requests already read get to finish when the connection or the server ends."""
