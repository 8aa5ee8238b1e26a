"""Mounting: one server as a part of another.

The mounted server is called the part here, and the server that it is mounted in the whole. Nothing is copied:
its features stay in its own sets, and the sets of the whole show them under a prefix (`features.feature_set`); its
sources are listed, read and completed by the part, and searched by the whole. So later changes of the part show at
once.

A part's middleware applies to its features: if it has middleware for a method, the whole calls the part's handler with
the part's own names; if not, the whole calls the feature directly, however deep it is mounted (`direct`).
The part starts with the whole, and runs until its last holder closes it. Its changes are reported to the watchers of
the whole. While the whole has a watcher, it keeps a watcher at the part, so that the part's sources work only while a
client watches. The whole also serves the part's extension methods, by calling the part's handlers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.protocol import subscriptions
from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.methods import CORE
from wharfinger.protocol.request import Request
from wharfinger.server.extensions import declare
from wharfinger.server.features.feature_set import MountedFeatures

if TYPE_CHECKING:
    from wharfinger.server.service import FeatureService

__all__ = ["WHOLE_SERVER_METHODS", "Mount", "include"]

_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{0,64}")
_FEATURE_METHODS = ("tools/call", "prompts/get", "resources/read", "completion/complete")
"""The methods that use a feature of a part."""

WHOLE_SERVER_METHODS: dict[str, Callable[[FeatureService], None]] = {}
"""Methods that the whole answers for all of its parts together, each with the function that serves it there."""


def include(parent: FeatureService, other: FeatureService, prefix: str) -> None:
    """Make `other` a part of `parent`.

    Raises:
        ValueError: for the same reasons as in `Mount`.
        RuntimeError: `parent` runs, and the calling thread does not run its event loop.
    """
    if parent.running:
        asyncio.get_running_loop()  # raises before anything has changed
    _check_extensions(parent, other)
    mount = Mount(parent, other, prefix)
    parent.mounts.append(mount)
    other.parents.append(mount)
    mount.refresh()
    if other.services.keys.random:  # every process that serves the whole must open what the part seals
        other.services.keys = parent.services.keys
    if other.services.feature_scopes is not None:
        parent.enforce_scopes()
    if other.tasks is not None:
        other.own_tasks = None
        parent.take_tasks(parent.serve_tasks())
    for name in subscriptions.LISTS:
        if name in other.served:
            parent.serve(name)
            parent.watching.list_changed(name)
    publish_extensions(parent, other)
    if parent.running:
        parent.source_watches.join_part(mount)


class Mount:
    """`other` as a part of `parent`. See `Part`.

    Raises:
        ValueError: a name or URI is taken, a name is not valid with the prefix, or servers include each other. `parent`
            is unchanged then.
    """

    def __init__(self, parent: FeatureService, other: FeatureService, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"{prefix!r} is not a valid prefix: use letters, digits, '_', '-' and '.'.")
        _refuse_circles(parent, other)
        self.parent = parent
        self.other = other
        self.name = other.info.name
        self.prefix = f"{prefix}_" if prefix else ""
        self.direct: dict[str, bool] = {}
        self._watcher = _SilentWatcher()
        self._list_watcher = _SilentWatcher()
        whole_name = parent.info.name
        tools = MountedFeatures(self, other.tools.features, parent.tools.features, whole_name, prefix=self.prefix)
        prompts = MountedFeatures(self, other.prompts.features, parent.prompts.features, whole_name, prefix=self.prefix)
        parent.resources.mount(self, other.resources)
        tools.show()
        prompts.show()
        other.watching.observers.append(parent.watching)

    def refresh(self) -> None:
        """Recompute which methods may be called directly, since middleware may be added at any time."""
        other = self.other
        for method in _FEATURE_METHODS:
            self.direct[method] = not (
                other.services.replay
                or other.methods.has_middleware(method)
                or any(not mount.direct[method] for mount in other.mounts)
            )
        for mount in self.parent.parents:
            mount.refresh()

    def publish_extensions(self) -> None:
        """Make the whole serve the part's extensions."""
        publish_extensions(self.parent, self.other)

    async def serve(self, request: Request, **own: object) -> Any:
        """Serve a request with the part's handler; `own` are params to replace, with the names that the part uses."""
        params = request.params
        if own:
            request.params = msgspec.structs.replace(params, **own)
        try:
            return await self.other.handlers[request.method](request)
        finally:
            request.params = params

    async def start(self) -> None:
        """Start `other`, which runs as long as it has a holder."""
        await self.other.start(self)

    async def close(self) -> None:
        """Close `other`, unless it has another holder."""
        self.other.watching.drop(self._watcher)
        self.other.watching.drop(self._list_watcher)
        await self.other.close(self)

    def watch(self, uri: str | None) -> None:
        """Watch a URI, or (None) the list of resources. Called when the whole has its first watcher of it."""
        if uri is None:
            self.other.watching.watch_list(self._list_watcher, "resources")
        else:
            self.other.watching.watch(self._watcher, uri)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or (None) the list of resources. Called when the whole has no watcher of it any more."""
        if uri is None:
            self.other.watching.drop(self._list_watcher)
        else:
            self.other.watching.unwatch(self._watcher, uri)


class _SilentWatcher:
    """A watcher that only keeps a part's sources watching. Changes reach the whole through the part's `observers`."""

    __slots__ = ()

    def send(self, message: Any) -> bool:
        return False


def _refuse_circles(parent: FeatureService, other: FeatureService) -> None:
    names = (parent.info.name, other.info.name)
    if any(mount.other is other for mount in parent.mounts):
        raise ValueError(f"{names[0]!r} includes {names[1]!r} already: a server is included once.")
    unchecked = [other]
    while unchecked:
        server = unchecked.pop()
        if server is parent:
            raise ValueError(f"{names[0]!r} cannot include {names[1]!r}: it is the same server, or contains it.")
        unchecked += [mount.other for mount in server.mounts]


def _check_extensions(parent: FeatureService, other: FeatureService) -> None:
    """Check that the extensions of `other` do not conflict with those of `parent`.

    Raises:
        ValueError: both serve the same method, or declare an extension with different settings.
    """
    for name in other.handlers.keys() - CORE:
        if name in parent.handlers and name not in WHOLE_SERVER_METHODS:
            raise ValueError(f"{parent.info.name!r} and {other.info.name!r} both serve the method {name!r}.")
    for id, settings in other.extensions.declared.items():
        declare({id: dict(parent.extensions.declared.get(id, {}))}, id, settings)


def publish_extensions(parent: FeatureService, other: FeatureService) -> None:
    """Serve and declare in `parent` the extensions of `other`, a part of it."""
    for name in _extension_names(other.handlers):
        if name in WHOLE_SERVER_METHODS:
            WHOLE_SERVER_METHODS[name](parent)
        elif name not in parent.handlers:
            parent.methods.set(name, _handler_of_part(other, name))
    for name in _extension_names(other.notification_handlers):
        parent.notification_handlers.setdefault(name, other.notification_handlers[name])
    for id, settings in other.extensions.declared.items():
        declare(parent.extensions.declared, id, settings)
    for mount in parent.parents:
        publish_extensions(mount.parent, parent)


def _extension_names(table: Mapping[str, Any]) -> list[str]:
    return [name for name in table if name not in CORE]


def _handler_of_part(other: FeatureService, name: str) -> Handler:
    async def serve(request: Request) -> Any:
        return await other.handlers[name](request)  # looked up at each call, since middleware may have been added

    return serve
