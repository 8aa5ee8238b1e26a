"""One server as a part of another: its features under names of the whole, alive, each served by its own server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from wharfinger import types as t
from wharfinger.errors import InvalidParams, URLElicitationRequired
from wharfinger.protocol import subscriptions
from wharfinger.protocol.interfaces import Handler
from wharfinger.protocol.methods import CORE
from wharfinger.protocol.request import Request
from wharfinger.server.extensions import declare
from wharfinger.server.features.feature_set import Features
from wharfinger.server.features.prompts import Prompt
from wharfinger.server.features.resource import ResourceFeature
from wharfinger.server.features.tools import Tool

if TYPE_CHECKING:
    from wharfinger.server.app import Server
    from wharfinger.server.features.resources import Resources

__all__ = ["OF_THE_WHOLE", "Mount", "include", "pass_on"]

_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_PREFIX = re.compile(r"[A-Za-z0-9_.\-]{0,64}")


def include(parent: Server, other: Server, prefix: str) -> None:
    """Make `other` a part of `parent`.

    Raises:
        ValueError: as `Mount`.
        RuntimeError: `parent` runs, and this is not its event loop's thread.
    """
    if parent.running:
        asyncio.get_running_loop()  # raises before anything is done
    speaks_more = bool(other.extensions) or not (CORE.issuperset(other.handlers) and CORE.issuperset(other.notified))
    if speaks_more:
        check_part(parent, other)
    mount = Mount(parent, other, prefix)
    parent.mounts.append(mount)
    other.part_of.append(mount)
    if other.services.keys.random:  # what it seals is to be opened by every process that serves the whole
        other.services.keys = parent.services.keys
    if other.tasks is not None:
        other.own_tasks = None
        parent.take_tasks(parent.serve_tasks())
    for name in subscriptions.LISTS:
        if name in other.served:
            parent.serve(name)
            parent.list_changed(name)
    if speaks_more:
        pass_on(parent, other)
    if parent.running:
        parent.source_watches.join_part(mount)


class Mount:
    """`other` as a part of `parent`: what `other` has and gets, `parent` shows.

    Nothing is asked of `other` for its own features: each is put among the parent's as a view, which calls the feature
    itself, or `other`'s handler where that has hooks. Sources stay with `other`.

    Raises:
        ValueError: a name or URI is taken, a name is none, or servers include each other; `parent` is as before then.
    """

    def __init__(self, parent: Server, other: Server, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"{prefix!r} is no prefix: use letters, digits, '_', '-' and '.'.")
        _refuse_circles(parent, other)
        self.parent = parent
        self.other = other
        self.prefix = f"{prefix}_" if prefix else ""
        self.through: dict[str, Handler | None] = {}
        """Handlers of `other` that have something around them; None where its features may be called as they are."""
        self.look_again()
        self._mirrors = self._make_mirrors()
        self._watcher = _Quiet()
        self._list_watcher = _Quiet()
        self._fill()

    @property
    def name(self) -> str:
        return self.other.info.name

    @property
    def resources(self) -> Resources:
        return self.other.resources

    def _make_mirrors(self) -> list[tuple[Features[Any], _Mirror]]:
        parent, other = self.parent, self.other
        tools, prompts, resources = parent.tools, parent.prompts, parent.resources

        def named(kind: str, into: Any, view: Callable[[Any], Any], add: Any) -> _Mirror:
            return _Mirror(self, kind, self._named, into.features, view, add, into.remove, into.features)

        def by_uri(kind: str, into: Any, *, listed: bool = True) -> _Mirror:
            def add(key: str, view: Any, fallback: bool) -> None:
                resources.add(view, listed=listed)

            return _Mirror(self, kind, str, into, self._resource, add, resources.remove, resources)

        return [
            (other.tools.features, named("tool", tools, lambda tool: _MountedTool(self, tool), tools.put)),
            (
                other.prompts.features,
                named("prompt", prompts, lambda prompt: _MountedPrompt(self, prompt), _put(prompts)),
            ),
            (other.resources.static, by_uri("resource", resources.static)),
            (other.resources.templates, by_uri("resource template", resources.templates)),
            (other.resources.unlisted, by_uri("resource template", resources.unlisted, listed=False)),
        ]

    def _fill(self) -> None:
        """Show what there is, and from now on what comes."""
        done: list[tuple[Features[Any], _Mirror]] = []
        try:
            for features, mirror in self._mirrors:
                done.append((features, mirror))
                for key, feature, fallback in features.everything():
                    mirror.added(key, feature, fallback)
                    if features.is_disabled(key):
                        mirror.disabled(key)
        except ValueError:
            for features, mirror in done:
                for key, _, _ in features.everything():
                    mirror.removed(key)
            raise
        for features, mirror in self._mirrors:
            features.onlookers.append(mirror)
        for ours, theirs in (
            (self.parent.resources.listing, self.other.resources.listing),
            (self.parent.resources.templates_listing, self.other.resources.templates_listing),
        ):
            for provider in theirs.providers:
                ours.add_provider(provider)
            theirs.shown_by.append(ours)
        self.other.watching.passed_on.append(self.parent.watching)
        self.other.handlers.onlookers.append(self.look_again)

    def _named(self, name: str) -> str:
        """What a tool or prompt of `other` is called here."""
        full = self.prefix + name
        if not _NAME.fullmatch(full):
            raise ValueError(f"{full!r} is no name: pass a shorter prefix=, of letters, digits, '_', '-' and '.'.")
        return full

    def _resource(self, feature: ResourceFeature) -> ResourceFeature:
        return ResourceFeature(
            feature.definition,
            cast("Any", _MountedCall(self, feature)),
            template=feature.template,
            annotate=feature.annotate,
            ttl_ms=feature.ttl_ms,
            cache_scope=feature.cache_scope,
        )

    def look_again(self) -> None:
        """Find out what of `other` has something around it; hooks may come at any time."""
        handlers = self.other.handlers
        for method in ("tools/call", "prompts/get", "resources/read", "completion/complete"):
            wrapped = handlers.hooked(method) or self.other.services.replay
            self.through[method] = handlers.get(method) if wrapped else None
        for _, tool, _ in self.parent.tools.features.everything():
            view: Any = tool
            if isinstance(view, _MountedTool):
                view.look_again()
        for mount in self.parent.part_of:
            mount.look_again()

    # -- life and watches

    async def start(self) -> None:
        """Start `other`, which runs as long as anybody holds it."""
        await self.other.start(self)

    async def close(self) -> None:
        """Let go of `other`."""
        self.other.watching.drop(self._watcher)
        self.other.watching.drop(self._list_watcher)
        await self.other.close(self)

    def attach(self, uri: str | None) -> None:
        """The first watcher of a URI, or of the list, came."""
        if uri is None:
            self.other.watching.watch_list(self._list_watcher, "resources")
        else:
            self.other.watching.watch(self._watcher, uri)

    def detach(self, uri: str | None) -> None:
        """The last watcher of a URI, or of the list, went."""
        if uri is None:
            self.other.watching.drop(self._list_watcher)
        else:
            self.other.watching.unwatch(self._watcher, uri)

    # -- what is no feature of the parent's: data of sources, and completion

    async def read(self, request: Request) -> Any:
        """Read what a source of `other`, or of one of its parts, has."""
        handler = self.through["resources/read"]
        return await (
            self.other.resources.read_source(request, request.params.uri) if handler is None else handler(request)
        )

    def completes(self, ref: t.CompletionReference) -> bool:
        """Whether what a completion is for came from here."""
        if isinstance(ref, t.PromptReference):
            prompt: Any = self.parent.prompts.features.by_key.get(ref.name)
            return isinstance(prompt, _MountedPrompt) and prompt.mount is self
        feature: Any = self.parent.resources.templates.by_key.get(ref.uri)
        if feature is not None:
            return isinstance(feature.call, _MountedCall) and feature.call.mount is self
        return self.other.resources.has_source_template(ref.uri)

    async def complete(self, request: Request) -> Any:
        """Have `other` complete, in its own names."""
        handler = self.other.handlers.get("completion/complete")
        if handler is None:
            raise InvalidParams("Nothing completes this.")
        ref = request.params.ref
        if isinstance(ref, t.PromptReference):
            ref = msgspec.structs.replace(ref, name=ref.name.removeprefix(self.prefix))
        return await _served(request, handler, ref=ref)


def _put(prompts: Any) -> Callable[[str, Any, bool], None]:
    def put(name: str, prompt: Any, fallback: bool) -> None:
        prompts.features.add(name, prompt, fallback=fallback)

    return put


def _refuse_circles(parent: Server, other: Server) -> None:
    names = (parent.info.name, other.info.name)
    if any(mount.other is other for mount in parent.mounts):
        raise ValueError(f"{names[0]!r} includes {names[1]!r} already: a server is included once.")
    inside = [other]
    while inside:
        server = inside.pop()
        if server is parent:
            raise ValueError(f"{names[0]!r} cannot include {names[1]!r}, which is itself, or has it inside.")
        inside += [mount.other for mount in server.mounts]


async def _served(request: Request, handler: Handler, **own: Any) -> Any:
    """Serve a request by another server's handler, for whose hooks the params have the names that it knows."""
    params = request.params
    request.params = msgspec.structs.replace(params, **own)
    try:
        return await handler(request)
    finally:
        request.params = params


class _Mirror:
    """Puts what is added to one set of features into another, and takes it out again."""

    def __init__(
        self,
        mount: Mount,
        kind: str,
        named: Callable[[str], str],
        into: Features[Any],
        view: Callable[[Any], Any],
        add: Callable[[str, Any, bool], None],
        remove: Callable[[str], Any],
        sight: Any,
    ) -> None:
        self._mount = mount
        self._kind = kind
        self._named = named
        self._into = into
        self._view = view
        self._add = add
        self._remove = remove
        self._sight = sight
        """What has `disable` and `enable`."""
        self._views: dict[str, Any] = {}

    def added(self, key: str, feature: Any, fallback: bool) -> None:
        """Show a feature.

        Raises:
            ValueError: its name is taken, or is none; both servers are named.
        """
        name = self._named(key)
        view = self._view(feature)
        try:
            self._add(name, view, fallback)
        except ValueError as error:
            parent, other = self._mount.parent.info.name, self._mount.other.info.name
            if not self._into.has(name):
                raise ValueError(f"{parent!r} and {other!r}: {error}") from None
            present = self._into.by_key.get(name)
            owner = _home_of(present) or parent
            advice = "remove one" if self._kind.startswith("resource") else "include one with another prefix="
            raise ValueError(f"{owner!r} and {other!r} both have the {self._kind} {name!r}: {advice}.") from None
        self._views[key] = view

    def removed(self, key: str) -> None:
        """Show a feature no longer."""
        if self._shown(key, self._views.pop(key, None)):
            self._remove(self._named(key))

    def disabled(self, key: str) -> None:
        """Take a feature out of sight."""
        if self._shown(key, self._views.get(key)):
            self._sight.disable(self._named(key))

    def enabled(self, key: str) -> None:
        """Bring a feature back."""
        if self._shown(key, self._views.get(key)):
            self._sight.enable(self._named(key))

    def _shown(self, key: str, view: Any) -> bool:
        """Whether it is there, and no other has taken its place."""
        name = self._named(key) if view is not None else ""
        return view is not None and view in (self._into.by_key.get(name), self._into.disabled.get(name))


def _home_of(feature: Any) -> str:
    mount = getattr(feature, "mount", None) or getattr(getattr(feature, "call", None), "mount", None)
    return mount.other.info.name if isinstance(mount, Mount) else ""


class _MountedTool:
    """A tool of another server under another name; what it does not say itself, that tool says."""

    __slots__ = (
        "decode", "definition", "exact", "full_definition", "function", "mount", "name", "result", "tool", "wraps",
    )  # fmt: skip

    def __init__(self, mount: Mount, tool: Tool) -> None:
        self.mount = mount
        self.tool = tool
        self.wraps = tool.wraps
        self.name = mount.prefix + tool.name
        self.definition = msgspec.structs.replace(tool.definition, name=self.name)
        self.full_definition = msgspec.structs.replace(tool.full_definition, name=self.name)
        self.look_again()

    def look_again(self) -> None:
        """Settle whether the function may be called as it is."""
        tool = self.tool
        self.decode = tool.decode if self.mount.through["tools/call"] is None else None
        self.exact, self.function, self.result = tool.exact, tool.function, tool.result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tool, name)

    def call(self, request: Request) -> Awaitable[t.CallToolResult]:
        """Call the tool, or the handler with hooks around it."""
        handler = self.mount.through["tools/call"]
        return self.tool.call(request) if handler is None else _served(request, handler, name=self.tool.name)


class _MountedPrompt:
    """A prompt of another server under another name; what it does not say itself, that prompt says."""

    __slots__ = ("definition", "mount", "name", "prompt")

    def __init__(self, mount: Mount, prompt: Prompt) -> None:
        self.mount = mount
        self.prompt = prompt
        self.name = mount.prefix + prompt.name
        self.definition = msgspec.structs.replace(prompt.definition, name=self.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.prompt, name)

    def fill(self, request: Request) -> Awaitable[t.GetPromptResult]:
        """Fill the prompt, or have the handler with hooks around it do so."""
        handler = self.mount.through["prompts/get"]
        return self.prompt.fill(request) if handler is None else _served(request, handler, name=self.prompt.name)


class _MountedCall:
    """What reads a resource of another server."""

    __slots__ = ("completers", "direct", "feature", "finish", "mount")

    def __init__(self, mount: Mount, feature: ResourceFeature) -> None:
        self.mount = mount
        self.feature = feature
        self.completers = feature.completers
        self.direct = False
        self.finish: Any = None

    @property
    def takes_context(self) -> bool:
        return self.mount.through["resources/read"] is not None or self.feature.call.takes_context

    def __call__(self, request: Request, values: Any) -> Awaitable[Any]:
        handler = self.mount.through["resources/read"]
        if handler is not None:
            return handler(request)
        call = self.feature.call
        return call.function(**values) if call.direct else call(request, values)

    @property
    def function(self) -> Any:
        return self.feature.call.function

    def needs_url(self, request: Request, error: URLElicitationRequired) -> BaseException:
        return self.feature.call.needs_url(request, error)


class _Quiet:
    """A watcher that is told nothing: changes pass on at once, by another way."""

    __slots__ = ()

    def tell(self, message: Any) -> bool:
        return False


OF_THE_WHOLE: dict[str, Callable[[Server], None]] = {}
"""Methods whose answer is made of all parts of a server, each with what serves it in the whole."""


def check_part(parent: Server, other: Server) -> None:
    """Accept `other` as a part of `parent`, as far as extensions go.

    Raises:
        ValueError: both serve the same method, or declare an extension with different settings.
    """
    for name in _own(other.handlers):
        if name in parent.handlers and name not in OF_THE_WHOLE:
            raise ValueError(f"{parent.info.name!r} and {other.info.name!r} both serve the method {name!r}.")
    for id, settings in other.extensions.items():
        declare({id: dict(parent.extensions.get(id, {}))}, id, settings)


def pass_on(parent: Server, other: Server) -> None:
    """Serve in `parent` what `other`, a part of it, serves beyond the protocol, and declare what it declares."""
    for name in _own(other.handlers):
        if name in OF_THE_WHOLE:
            OF_THE_WHOLE[name](parent)
        elif name not in parent.handlers:
            parent.handlers[name] = _of_part(other, name)
    for name in _own(other.notified):
        parent.notified.setdefault(name, other.notified[name])
    for id, settings in other.extensions.items():
        declare(parent.extensions, id, settings)
    for mount in parent.part_of:
        pass_on(mount.parent, parent)


def _own(table: Mapping[str, Any]) -> list[str]:
    return [name for name in table if name not in CORE]


def _of_part(other: Server, name: str) -> Handler:
    """`other`'s handler, with the hooks that it has when it is called."""

    async def serve(request: Request) -> Any:
        return await other.handlers[name](request)

    return serve
