"""Watchers of both eras, and the notices that they receive. Changes can be reported from any thread.

A change is a URI, or the name of a list. Reporting one without watchers costs one look-up in a dict. Otherwise the
change waits for the next turn of the loop, so that several changes by one handler are sent once. Then it is sent to its
watchers, `WATCHERS_PER_TURN` in each turn, so that requests are served between turns. All changes of the same URI or
list in the next `COALESCE_SECONDS` are sent as one notice at the end of that time.

    nothing -- reported --> WAITING -- sending begins --> SENT -- time is over --> nothing
                              ^                            | reported
                              +------ time is over ----- AGAIN
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Protocol

from wharfinger.protocol import subscriptions
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Request
from wharfinger.protocol.shares import Shares
from wharfinger.server.logged_calls import call_logged

__all__ = ["Change", "ListenWatcher", "Observer", "SessionWatcher", "Watching", "run_watcher_function"]

log = logging.getLogger("wharfinger.server.subscriptions.watching")

COALESCE_SECONDS = 0.05
"""Time after a notice in which all further changes of the same URI or list become one more notice."""
WATCHERS_PER_TURN = 200
"""Watchers to which changes are sent in one turn of the loop. This takes about 3 ms, including the writes."""

Change = tuple[str, bool]
"""A URI, or the name of a list, and whether it is a list."""


class NoticePhase(Enum):
    """The phase of a change's notice; a change without a phase starts with WAITING."""

    WAITING = "it has not been sent yet, and will cover every change until then"
    SENT = "it was sent less than COALESCE_SECONDS ago"
    AGAIN = "it was sent, and there has been another change since"


class Watcher(Protocol):
    """Receives notifications."""

    def send(self, message: Callable[[subscriptions.Tag], bytes]) -> bool:
        """Send a notification, built with this watcher's tag; False if it was dropped."""
        ...


class Observer(Protocol):
    """Receives every change of a list or a watched resource immediately."""

    def updated(self, uri: str) -> None:
        """Called when a watched resource has changed, from any thread."""
        ...

    def list_changed(self, name: str) -> None:
        """Called when a list has changed, from any thread."""
        ...


class SessionWatcher:
    """A session of the handshake era. It equals any other watcher of the same session."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def principal(self) -> Principal:
        """The principal of the session."""
        return self.session.principal

    def send(self, message: Callable[[subscriptions.Tag], bytes]) -> bool:
        """Send on the session's own stream."""
        return self.session.send(message(None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionWatcher) and other.session is self.session

    def __hash__(self) -> int:
        return hash(self.session)


class ListenWatcher:
    """One open `subscriptions/listen` request (2026-07-28)."""

    __slots__ = ("_early", "request", "tag")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tag = encode(subscriptions.meta_of(request.id))
        self._early: dict[bytes, None] | None = {}
        """Notifications from before the acknowledgement, which must be the first message; None after it."""

    @property
    def principal(self) -> Principal:
        """The principal of the request."""
        return self.request.caller.principal

    def send(self, message: Callable[[subscriptions.Tag], bytes]) -> bool:
        """Send on the request's stream, tagged with its id, but not before `acknowledged` is called."""
        data = message(self.tag)
        if self._early is not None:
            self._early[data] = None
            return True
        return self.request.channel.send(self.request, data)

    def acknowledged(self) -> None:
        """Send what came before the acknowledgement, which has been sent now."""
        early, self._early = self._early, None
        for data in early or ():
            self.request.channel.send(self.request, data)


class Watching:
    """The watchers of each URI and of each list.

    `attach(uri)` is called before the first watcher of a URI receives a notice, and `detach(uri)` after the last one
    left; None stands for the list of resources. Both are called on the event loop. Their errors are logged, since the
    URI stays watched without them.
    """

    def __init__(self, attach: Callable[[str | None], None], detach: Callable[[str | None], None]) -> None:
        self.on_sent: Callable[[str, int], None] | None = None
        """Called with a URI and the number of watchers that received its notice, for example to log it."""
        self.may_send: Callable[[Watcher, str, bool, Callable[[subscriptions.Tag], bytes]], bool] | None = None
        """Returns whether a notice of a change may be sent to a watcher now, under a policy; None: always."""
        self.on_leave: Callable[[Watcher, str | None], None] | None = None
        """Called with a watcher and the URI that it left, or None if it left everything."""
        self.sent_count = 0
        """The number of notices that were sent to watchers."""
        self.observers: list[Observer] = []
        """Search indexes, and the `Watching` of servers in which this one is mounted."""
        self._attach = attach
        self._detach = detach
        self._by_uri: dict[str, dict[Watcher, None]] = {}
        self._by_list: dict[str, dict[Watcher, None]] = {name: {} for name in subscriptions.LISTS}
        self._by_watcher: dict[Watcher, set[str]] = {}
        self._owners: dict[Watcher, str] = {}
        """For each watcher, the owner towards whose share its URIs count."""
        self.shares = Shares()
        """The number of URIs that the watchers of each owner watch."""
        self._departures = 0
        """The number of times that a watcher has left a URI or list."""
        self._phases: dict[Change, NoticePhase] = {}
        self._waiting: deque[Change] = deque()
        self._work: Iterator[None] | None = None
        """Sends the waiting changes, to one watcher with each step; None if there are none."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to send changes on this loop."""
        self._loop, self._thread_id = loop, threading.get_ident()

    def stop(self) -> None:
        """Stop sending, and drop the waiting changes."""
        self._loop = self._work = None
        self._phases = {}
        self._waiting.clear()

    # -- watchers

    def watch(self, watcher: Watcher, uri: str, owner: str = "") -> None:
        """Add a watcher of a URI. All URIs of a watcher count for the `owner` that was passed with its first URI."""
        watchers = self._by_uri.setdefault(uri, {})
        first = not watchers
        if watcher not in watchers:
            self.shares.add(self._owners.setdefault(watcher, owner))
        watchers[watcher] = None
        self._by_watcher.setdefault(watcher, set()).add(uri)
        if first:
            call_logged(self._attach, uri)

    def unwatch(self, watcher: Watcher, uri: str) -> None:
        """Remove a watcher of a URI. Does nothing if it does not watch the URI."""
        watchers = self._by_uri.get(uri)
        if watchers is None or watcher not in watchers:
            return
        del watchers[watcher]
        self._departures += 1
        self._by_watcher[watcher].discard(uri)
        if self.on_leave is not None:
            self.on_leave(watcher, uri)
        self.shares.add(self._owners[watcher], -1)
        if not watchers:
            del self._by_uri[uri]
            call_logged(self._detach, uri)

    def watch_list(self, watcher: Watcher, name: str) -> None:
        """Add a watcher of a list."""
        watchers = self._by_list[name]
        first = not watchers
        watchers[watcher] = None
        if first and name == "resources":
            call_logged(self._attach, None)

    def drop(self, watcher: Watcher) -> None:
        """Remove a watcher from everything; its session or request is over."""
        for uri in tuple(self._by_watcher.get(watcher, ())):
            self.unwatch(watcher, uri)
        self._by_watcher.pop(watcher, None)
        self._owners.pop(watcher, None)
        if self.on_leave is not None:
            self.on_leave(watcher, None)
        for name, watchers in self._by_list.items():
            if watcher in watchers:
                del watchers[watcher]
                self._departures += 1
                if not watchers and name == "resources":
                    call_logged(self._detach, None)

    def is_watching(self, watcher: Watcher) -> bool:
        """Return whether a watcher watches any URI or list."""
        return watcher in self._by_watcher or any(watcher in watchers for watchers in self._by_list.values())

    def watches(self, watcher: Watcher, name: str, is_list: bool) -> bool:
        """Return whether a watcher watches this URI or list."""
        return watcher in (self._by_list[name] if is_list else self._by_uri.get(name, ()))

    def count(self, watcher: Watcher) -> int:
        """Return how many URIs a watcher watches."""
        return len(self._by_watcher.get(watcher, ()))

    def watchers_of(self, uri: str) -> list[Watcher]:
        """Return the watchers of a URI."""
        return list(self._by_uri.get(uri, ()))

    def watchers_of_lists(self) -> dict[str, dict[Watcher, None]]:
        """Return the watchers of each list."""
        return {name: dict(watchers) for name, watchers in self._by_list.items()}

    @property
    def watcher_count(self) -> int:
        """The number of sessions and requests that watch a URI or a list."""
        return len(self._by_watcher.keys() | set[Watcher]().union(*self._by_list.values()))

    def watched_by(self, watcher: Watcher) -> list[str]:
        """Return the URIs that a watcher watches."""
        return list(self._by_watcher.get(watcher, ()))

    def principals_of(self, uri: str) -> list[Principal]:
        """Return the principal of each session or request that watches a URI."""
        principals = [getattr(watcher, "principal", None) for watcher in self._by_uri.get(uri, ())]
        return [principal for principal in principals if isinstance(principal, Principal)]

    def watched(self) -> list[str]:
        """Return the URIs that have a watcher."""
        return list(self._by_uri)

    # -- changes

    def updated(self, uri: str) -> None:
        """Report that a resource changed. Can be called from any thread."""
        if uri in self._by_uri:
            for observer in self.observers:
                observer.updated(uri)
            self._queue((uri, False))

    def list_changed(self, name: str) -> None:
        """Report that a list changed. Can be called from any thread."""
        for observer in self.observers:
            observer.list_changed(name)
        if self._by_list[name]:
            self._queue((name, True))

    def call_on_loop(self, function: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop, if there is one. Can be called from any thread."""
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(function)

    def _queue(self, change: Change) -> None:
        """Call `_collect` on the event loop."""
        loop = self._loop
        if loop is None or self._phases.get(change) in (NoticePhase.WAITING, NoticePhase.AGAIN):
            return  # the notice that is still to be sent covers this change too
        if threading.get_ident() == self._thread_id:
            self._collect(change)
            return
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(self._collect, change)

    def _collect(self, change: Change) -> None:
        """Add a change to those that wait for the next turn."""
        if self._loop is None:
            return
        if change in self._phases:
            if self._phases[change] is NoticePhase.SENT:
                self._phases[change] = NoticePhase.AGAIN
            return
        self._phases[change] = NoticePhase.WAITING
        self._waiting.append(change)
        if self._work is None:
            # In the next turn, so that several changes by one handler are sent once.
            self._work = self._send_waiting()
            self._loop.call_soon(self._send_slice, self._work)

    def _send_slice(self, work: Iterator[None]) -> None:
        """Send to some watchers, and leave the rest to the next turn of the loop."""
        loop = self._loop
        if loop is None or work is not self._work:  # stopped in the meantime
            return
        if sum(1 for _ in islice(work, WATCHERS_PER_TURN)) == WATCHERS_PER_TURN:
            loop.call_soon(self._send_slice, work)
        else:
            self._work = None

    def _send_waiting(self) -> Iterator[None]:
        """Send the waiting changes to their watchers, change by change; each step sends to one watcher."""
        while self._waiting:
            change = name, is_list = self._waiting.popleft()
            self._phases[change] = NoticePhase.SENT
            watchers = self._by_list[name] if is_list else self._by_uri.get(name, {})
            notice = call_logged(subscriptions.list_changed if is_list else subscriptions.updated, name)
            if notice is None:
                del self._phases[change]
                continue
            sent, departures = 0, self._departures
            for watcher in tuple(watchers):
                if departures == self._departures or watcher in watchers:  # it may have left in an earlier turn
                    try:
                        if self.may_send is None or self.may_send(watcher, name, is_list, notice):
                            sent += watcher.send(notice)
                    except Exception:  # the other watchers must still get it
                        log.exception("The change of %s could not be sent to a watcher", name)
                    yield
            self.sent_count += sent
            if self.on_sent is not None and sent and not is_list:
                call_logged(self.on_sent, name, sent)
            if self._loop is not None:
                self._loop.call_later(COALESCE_SECONDS, self._end_coalescing, self._phases, change)

    def _end_coalescing(self, phases: dict[Change, NoticePhase], change: Change) -> None:
        if phases is self._phases and phases.pop(change) is NoticePhase.AGAIN:
            self._collect(change)


async def run_watcher_function(function: Callable[[str], Awaitable[None]], uri: str) -> None:
    """Run an author's watcher function; if it fails, the URI stays watched without it."""
    try:
        await function(uri)
    except Exception:
        log.exception("The watcher of %s failed", uri)
