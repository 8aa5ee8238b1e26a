"""Decides, under a policy, which watchers may receive a notice that is about to be sent.

A watcher of a resource or list gets a notice only if what it sees has changed. Otherwise a notice would reveal that
something hidden has changed: a file added to a directory of which a caller sees a part, or a tool that the caller may
not call.

- No notice is sent for a resource that the caller may no longer read.
- If the caller may read the resource and all other resources of its source, the notice is sent at once.
- Otherwise the version of the resource, or a digest of the list, as this caller sees it, is compared with the last one,
  and the notice is sent if they differ. Versions and digests are computed in the background, once for all callers with
  the same access, and for the first time before a subscription is acknowledged.

Under a new policy, or when the first feature needs scopes, what each watcher sees is compared at once. If that waited
for the next change, and this was of something hidden, the notice would reveal it. A watcher that saw everything until
then gets a notice, because its last version or digest is not known. So does a watcher that sees everything from then
on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from wharfinger.errors import WharfingerError
from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.protocol import subscriptions
from wharfinger.protocol.interfaces import Access
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.shares import name_owner
from wharfinger.server.features.listing import view_of
from wharfinger.server.subscriptions.watching import Change
from wharfinger.transports.background import BackgroundTasks

if TYPE_CHECKING:
    from wharfinger.server.features.listing import PagedList
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.services import Services

__all__ = ["VisibleChanges"]

MISSING_STATE = "missing"
"""The state of a resource that cannot be read now."""

PAUSE_FACTOR = 4.0
"""A state that took one second is not computed again for this many seconds: a large list changes often."""
MAX_PAUSES = 10_000
"""The maximum number of pauses that are remembered; when it is reached, all are forgotten."""
MAX_JOBS = 200
"""After a new policy, the comparison of further resources waits while this many jobs run."""

Notice = Callable[[subscriptions.Tag], bytes]
"""A change notification. Called with a watcher's tag, it returns the bytes to send."""


class Subscriber(Protocol):
    """A watcher that belongs to a principal."""

    @property
    def principal(self) -> Principal: ...

    def send(self, message: Notice) -> bool: ...


class VisibleChanges:
    """The last states of the watched resources and lists that their watchers see only in part."""

    def __init__(self, services: Services, resources: Resources, lists: Mapping[str, PagedList[Any]]) -> None:
        self._services = services
        self._resources = resources
        self._lists = lists
        self._known: dict[Any, dict[Change, str]] = {}
        """By watcher, the state that it knows of each URI and list."""
        self._computing: dict[tuple[Change, str], asyncio.Task[str]] = {}
        """The states that are being computed, by change and `Access.key`."""
        self._comparing: dict[tuple[Any, Change], bool] = {}
        """The comparisons in progress, and whether another change was reported since they began."""
        self._pauses: dict[tuple[Change, str], float] = {}
        """The time before which a state is not computed again."""
        self._jobs = BackgroundTasks(report_failures=True)

    async def remember(self, watcher: Subscriber, name: str, is_list: bool) -> None:
        """Remember what a new watcher sees, before its subscription is acknowledged.

        If the state was computed a moment ago, this waits for the pause after it (see `PAUSE_FACTOR`).
        """
        access = self._access(watcher)
        if access is not None and not self._sees_all(access, name, is_list):
            state = await self._state((name, is_list), access, watcher)
            # The watcher may have left in the meantime. Under another policy, the state has been compared already.
            if self._services.watching.watches(watcher, name, is_list) and self._applies(access, watcher):
                self._known.setdefault(watcher, {})[name, is_list] = state

    def forget(self, watcher: Any, name: str | None = None) -> None:
        """Forget a URI that a watcher no longer watches, or everything about a watcher that has gone."""
        if name is None:
            self._known.pop(watcher, None)
        elif watcher in self._known:
            self._known[watcher].pop((name, False), None)

    def may_send(self, watcher: Any, name: str, is_list: bool, notice: Notice) -> bool:
        """Return whether a notice may be sent at once. If that is not certain yet, a comparison decides later."""
        access = self._access(watcher)
        if access is None or self._sees_all(access, name, is_list):
            return True
        if is_list or access.allows("read", name):
            self._compare(watcher, (name, is_list), notice)
        return False

    def _compare(self, watcher: Subscriber, change: Change, notice: Notice) -> None:
        """Compare in the background, and again if another change is reported before the comparison ends."""
        if (watcher, change) in self._comparing:
            self._comparing[watcher, change] = True
        else:
            self._comparing[watcher, change] = False
            self._jobs.start(self._keep_comparing(watcher, change, notice))

    async def _keep_comparing(self, watcher: Subscriber, change: Change, notice: Notice) -> None:
        try:
            while True:
                self._comparing[watcher, change] = False
                await self._send_if_changed(watcher, change, notice)
                if not self._comparing[watcher, change]:
                    return
        finally:
            del self._comparing[watcher, change]

    def policy_changed(self, *, only_restricted: bool = False) -> None:
        """Notify the watchers for whom a new policy changes what they see, or may change it.

        With `only_restricted`, watchers who may do everything get no notice: for them nothing has changed.
        """
        states = self._known
        if not self._services.restricts:
            self._known = {}
        for name, group in self._services.watching.watchers_of_lists().items():
            notice = subscriptions.list_changed(name)
            for watcher in group:
                if self.may_send(watcher, name, True, notice) and not only_restricted:
                    watcher.send(notice)
        if uris := self._services.watching.watched():
            self._jobs.start(self._compare_resources(uris, states))

    async def _compare_resources(self, uris: list[str], states: dict[Any, dict[Change, str]]) -> None:
        """Compare what the watchers of these URIs see under a new policy, slowly, since there may be a million URIs.

        `states` are those before the policy.
        """
        for uri in uris:
            notice = subscriptions.updated(uri)
            for watcher in self._services.watching.watchers_of(uri):
                sees_all = self.may_send(watcher, uri, False, notice)  # compares if the watcher sees only a part
                if sees_all and states.get(watcher, {}).pop((uri, False), None) is not None:
                    watcher.send(notice)  # it saw a part until now
                await asyncio.sleep(0)
                await self._jobs.wait_below(MAX_JOBS)

    async def close(self) -> None:
        """Cancel everything that runs in the background."""
        await self._jobs.cancel()

    def _access(self, watcher: Any) -> Access | None:
        # The watcher of a mounted server has no principal: its `send` does nothing.
        principal = getattr(watcher, "principal", None)
        return None if principal is None else self._services.access_of(principal)

    def _applies(self, access: Access, watcher: Any) -> bool:
        """Return whether a watcher still has this access."""
        now = self._access(watcher)
        return now is not None and now.key == access.key

    def _sees_all(self, access: Access, name: str, is_list: bool) -> bool:
        """Return whether the caller may read this resource, and all of its source if it has one; False for a list."""
        if is_list:
            return False
        if not access.allows("read", name):
            return False
        source = self._resources.source_of(name)
        if source is None:
            return True
        top = source.uri or name
        return access.reads_all_below(top if top.endswith("/") else f"{top}/")

    async def _send_if_changed(self, watcher: Subscriber, change: Change, notice: Notice) -> None:
        access = self._access(watcher)
        if access is None:
            watcher.send(notice)
            return
        state = await self._state(change, access, watcher)
        if not self._services.watching.watches(watcher, *change):  # it has left in the meantime
            return
        if not self._applies(access, watcher):
            if self.may_send(watcher, *change, notice):  # if not, it has begun to compare again
                watcher.send(notice)
            return
        known = self._known.setdefault(watcher, {})
        before = known.get(change)
        known[change] = state
        # A watcher without a known state saw everything, until the policy changed.
        if before != state and (change[1] or access.allows("read", change[0])):
            watcher.send(notice)

    async def _state(self, change: Change, access: Access, watcher: Subscriber) -> str:
        """Return a string that changes with each change that a caller with this access sees."""
        key = change, access.key
        running = self._computing.get(key)
        if running is not None:  # it may have begun before the change: compute once more after it
            await asyncio.wait((running,))
        running = self._computing.get(key)
        if running is None:
            running = self._computing[key] = self._jobs.start(self._compute(change, access, watcher.principal))
            running.add_done_callback(lambda _: self._computing.pop(key, None))
        return await asyncio.shield(running)

    async def _compute(self, change: Change, access: Access, principal: Principal) -> str:
        loop, key = asyncio.get_running_loop(), (change, access.key)
        await asyncio.sleep(self._pauses.get(key, 0.0) - loop.time())
        began = loop.time()
        try:
            return await self._read_state(change, access, principal)
        finally:
            if len(self._pauses) >= MAX_PAUSES:
                self._pauses.clear()
            self._pauses[key] = loop.time() + PAUSE_FACTOR * (loop.time() - began)

    async def _read_state(self, change: Change, access: Access, principal: Principal) -> str:
        CURRENT_ACCESS.set(access)  # for the task of `_compute` alone
        name, is_list = change
        owner = name_owner(principal.key, "")
        try:
            if is_list:
                listing = self._lists[name]
                digest = hashlib.sha256()
                await listing.feed_digest(digest.update, owner, view_of(listing.name, access, self._services.keys))
                return digest.hexdigest()
            source = self._resources.source_of(name)
            if source is None:
                return MISSING_STATE
            version = await self._resources.calls.call(source, source.version, owner, name)
            return f"version {version}"
        except (WharfingerError, OSError):
            return MISSING_STATE
