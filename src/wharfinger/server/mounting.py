"""Mounting: one server as a part of another.

The mounted server is called the part here, and the server that it is mounted in is its parent. Nothing is copied, so
later changes of the part show at once: its features stay in its own sets, and the sets of the parent show them under a
prefix (`features.feature_set`); its sources are listed, read and completed by the part, and searched by the parent.

A part's middleware, policy and observers apply to its features: if it has any for a method, the parent calls the part's
handler with the part's own names; if not, the parent calls the feature directly, however deep it is mounted (`direct`).
What the parent makes itself, such as lists and searches, is filtered by the part's policy too (`part_policies`).

The part starts with the parent, and runs until its last holder (see `lifespan`) closes it. Its changes are reported to
the watchers of the parent. While the parent has a watcher, it keeps a watcher at the part, so that the part's sources
work only while a client watches. The parent also serves the part's extension methods, by calling the part's handlers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.protocol import subscriptions
from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.methods import CORE
from wharfinger.protocol.request import Request
from wharfinger.server.extensions import check_settings
from wharfinger.server.features.feature_set import MountedFeatures

if TYPE_CHECKING:
    from wharfinger.server.service import FeatureService

__all__ = ["COMBINED_METHODS", "Mount", "include"]

_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{0,64}")
_FEATURE_METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete")
"""The methods that use a feature of a part."""

COMBINED_METHODS: dict[str, Callable[[FeatureService], None]] = {}
"""Methods that a server answers for itself and its parts together, each with the function that adds it to a server."""


def include(parent: FeatureService, part: FeatureService, prefix: str) -> None:
    """Make `part` a part of `parent`.

    Raises:
        ValueError: `parent` includes `part` already, or they would include each other; their extensions conflict; or
            for the same reasons as in `Mount`. `parent` is unchanged then.
        RuntimeError: `parent` runs, and the calling thread does not run its event loop.
    """
    if parent.running:
        asyncio.get_running_loop()  # raises before anything has changed
    _refuse_circles(parent, part)
    _check_extensions(parent, part)
    mount = Mount(parent, part, prefix)
    parent.mounts.append(mount)
    part.parents.append(mount)
    mount.refresh()
    _share_keys(parent, part)
    if part.services.feature_scopes is not None:
        parent.enforce_scopes()
    parent.enforce_part_policies()
    if part.tasks is not None:
        parent.take_tasks(parent.serve_tasks())  # the part's tasks are now kept by its parent
    for name in subscriptions.LISTS:
        if name in part.served:
            parent.serve(name)
            parent.watching.list_changed(name)
    publish_extensions(parent, part)
    if parent.running:
        parent.source_watches.join_part(mount)


class Mount:
    """Shows `part` in `parent`. Implements `Part`.

    Raises:
        ValueError: the prefix is not valid, a name is not valid with it, or a name or URI is taken. `parent` is
            unchanged then.
    """

    def __init__(self, parent: FeatureService, part: FeatureService, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"{prefix!r} is not a valid prefix: use at most 64 letters, digits, '_', '-' and '.'.")
        self.parent = parent
        self.part = part
        self.name = part.info.name
        self.prefix = f"{prefix}_" if prefix else ""
        self.direct: dict[str, bool] = {}
        self._watcher = _SilentWatcher()
        self._list_watcher = _SilentWatcher()
        parent_name = parent.info.name
        tools = MountedFeatures(self, part.tools.features, parent.tools.features, parent_name, prefix=self.prefix)
        prompts = MountedFeatures(self, part.prompts.features, parent.prompts.features, parent_name, prefix=self.prefix)
        parent.resources.mount(self, part.resources)
        tools.show()
        prompts.show()
        part.watching.observers.append(parent.watching)

    def refresh(self) -> None:
        """Recompute which methods may be called directly: middleware, a policy and observers may come at any time."""
        part = self.part
        for method in _FEATURE_METHODS:
            self.direct[method] = not (
                part.services.replay
                or part.methods.is_wrapped(method)
                or any(not mount.direct[method] for mount in part.mounts)
            )
        for mount in self.parent.parents:
            mount.refresh()

    def check_extension(self, name: str) -> None:
        """Check the name of a method or notification that is about to be added to the part.

        Raises:
            ValueError: the parent, or a server in which it is mounted, has a method or notification of this name.
        """
        _check_extension_name(self.parent, self.part, name)

    def check_settings(self, id: str, settings: Mapping[str, Any]) -> None:
        """Check settings that are about to be added to an extension of the part.

        Raises:
            ValueError: the parent, or a server in which it is mounted, declares one of them with another value.
        """
        for server in _with_ancestors(self.parent):
            check_settings(server.extensions.declared, id, settings)

    def publish_extensions(self) -> None:
        """Make the parent serve the part's extensions."""
        publish_extensions(self.parent, self.part)

    async def serve(self, request: Request, **own: object) -> Any:
        """Serve a request with the part's handler. `own` has the params that differ in the part, such as a name."""
        params = request.params
        if own:
            request.params = msgspec.structs.replace(params, **own)
        try:
            return await self.part.handlers[request.method](request)
        finally:
            request.params = params

    async def start(self) -> None:
        """Start `part`, which runs as long as it has a holder."""
        await self.part.start(self)

    async def close(self) -> None:
        """Close `part`, unless it has another holder."""
        self.part.watching.drop(self._watcher)
        self.part.watching.drop(self._list_watcher)
        await self.part.close(self)

    def watch(self, uri: str | None) -> None:
        """Watch a URI, or (None) the list of resources. Called when the parent has its first watcher of it."""
        if uri is None:
            self.part.watching.watch_list(self._list_watcher, "resources")
        else:
            self.part.watching.watch(self._watcher, uri)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or (None) the list of resources. Called when the parent has no more watchers of it."""
        if uri is None:
            self.part.watching.drop(self._list_watcher)
        else:
            self.part.watching.unwatch(self._watcher, uri)


class _SilentWatcher:
    """A watcher that only keeps a part's sources watching. Changes reach the parent through the part's `observers`."""

    __slots__ = ()

    def send(self, message: Any) -> bool:
        return False


def _refuse_circles(parent: FeatureService, part: FeatureService) -> None:
    names = (parent.info.name, part.info.name)
    if any(mount.part is part for mount in parent.mounts):
        raise ValueError(f"{names[0]!r} includes {names[1]!r} already: a server is included once.")
    unchecked = [part]
    while unchecked:
        server = unchecked.pop()
        if server is parent:
            raise ValueError(f"{names[0]!r} cannot include {names[1]!r}: it is the same server, or contains it.")
        unchecked += [mount.part for mount in server.mounts]


def _share_keys(parent: FeatureService, part: FeatureService) -> None:
    """Pass the keys of `parent` to `part`, and to the servers in it, unless they have a secret of their own.

    So every process that serves `parent` can open what these servers seal.
    """
    if part.services.keys.random:
        part.services.keys = parent.services.keys
        for mount in part.mounts:
            _share_keys(part, mount.part)


def _check_extensions(parent: FeatureService, part: FeatureService) -> None:
    """Check that the extensions of `part` do not conflict with those of `parent`, or of servers that it is mounted in.

    Raises:
        ValueError: both serve the same method or notification, or declare an extension with different settings.
    """
    for name in (*_extension_names(part.handlers), *_extension_names(part.notification_handlers)):
        _check_extension_name(parent, part, name)
    for id, settings in part.extensions.declared.items():
        for server in _with_ancestors(parent):
            check_settings(server.extensions.declared, id, settings)


def _check_extension_name(parent: FeatureService, part: FeatureService, name: str) -> None:
    for server in _with_ancestors(parent):
        names = f"{server.info.name!r} and {part.info.name!r}"
        if name in server.handlers and name not in COMBINED_METHODS:
            raise ValueError(f"{names} both serve the method {name!r}.")
        if name in server.notification_handlers:
            raise ValueError(f"{names} both handle the notification {name!r}.")


def _with_ancestors(server: FeatureService) -> Iterator[FeatureService]:
    """Yield a server, and each server in which it is mounted, at any depth."""
    yield server
    for mount in server.parents:
        yield from _with_ancestors(mount.parent)


def publish_extensions(parent: FeatureService, part: FeatureService) -> None:
    """Serve and declare in `parent` the extensions of `part`."""
    for name in _extension_names(part.handlers):
        if name in COMBINED_METHODS:
            COMBINED_METHODS[name](parent)
        elif name not in parent.handlers:
            parent.methods.set(name, _handler_of_part(part, name))
    for name in _extension_names(part.notification_handlers):
        parent.notification_handlers.setdefault(name, part.notification_handlers[name])
    for id, settings in part.extensions.declared.items():
        parent.extensions.declared.setdefault(id, {}).update(settings)
    for mount in parent.parents:
        publish_extensions(mount.parent, parent)


def _extension_names(table: Mapping[str, Any]) -> list[str]:
    return [name for name in table if name not in CORE]


def _handler_of_part(part: FeatureService, name: str) -> Handler:
    async def serve(request: Request) -> Any:
        return await part.handlers[name](request)  # looked up at each call, since middleware may have been added

    return serve
