"""The limits of a service. HTTP has more of its own: see `http.rules.HttpLimits`."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one service; each is a setting.

    A request over a limit gets an error, unless the text of the limit says otherwise.
    """

    message: int = 4 * 1024 * 1024
    """Bytes of one incoming message."""
    depth: int = 64
    """Levels of nested arrays and objects in one incoming message."""
    members: int = 250_000
    """Members of all objects together in one incoming message."""
    id_length: int = 256
    """Characters of a request id."""
    batch: int = 256
    """Messages of one batch (2025-03-26)."""
    in_flight: int = 4096
    """Requests of one connection or session that are being served. Over HTTP, also requests without a session, of all
    clients together: beyond the limit, only callers with less than an equal share may send more of these."""
    listens: int = 64
    """Open `subscriptions/listen` requests of one connection."""
    watched: int = 10_000
    """URIs that one session may watch; URIs and tasks that one listen request may watch."""
    watched_total: int = 1_000_000
    """URIs that all connections and listen requests may watch together. Beyond it, only callers with less
    than an equal share get more."""
    backlog: int = 1024 * 1024
    """Unsent bytes of one stream above which notifications are dropped; responses never are."""
    unread: int = 64 * 1024 * 1024
    """Unsent bytes of one connection (not over HTTP) above which new requests are refused, and requests that finish are
    answered with an error. If refusals and other small messages exceed twice this number, the connection is closed."""
    unread_total: int = 256 * 1024 * 1024
    """Unsent bytes of all connections of a server. Beyond it, a caller who already has an equal share gets an error
    instead of a response or batch above 256 KiB. If nothing else is unsent, a response of any size is sent."""
    content: int = 256 * 1024 * 1024
    """Bytes of one content that a handler streams, or returns as a path, `Image`, `Audio` or `File`."""
    handler_time: float = 300.0
    """Seconds that a handler may take before its request is cancelled and answered with an error."""
    answer_time: float = 1800.0
    """Seconds that a client has to answer a request of the server. Meanwhile the client's request has no deadline."""
    questions: int = 64
    """Requests to the client that one call may make while it runs."""
    rounds: int = 8
    """Times that one call may be sent again with answers before it fails (2026-07-28)."""
    state: int = 64 * 1024
    """Characters of the sealed request state that a client sends back with its answers."""
    state_time: float = 3600.0
    """Seconds for which a request state is valid."""
    tasks: int = 1000
    """Tasks that one server runs at a time. Beyond it, only callers with less than an equal share get more."""
    tasks_each: int = 100
    """Tasks that one caller may run at a time."""
    tasks_kept: int = 10_000
    """Tasks in the store, running and finished, of which one principal may have half."""
    task_result: int = 16 * 1024 * 1024
    """Bytes of one task's result."""
    task_results: int = 256 * 1024 * 1024
    """Bytes of all tasks in the store, of which one principal may have half."""
    drain: float = 2.0
    """Seconds that running requests, tasks and watcher functions have to finish when the connection or the server ends.
    Requests over HTTP have `HttpLimits.drain`."""
