"""The `Server`: features registered by decorators or included as sources, as a mapping from method to handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Literal, Protocol, TypeVar, overload

from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol import lifecycle
from wharfinger.protocol.exchange import Stamps
from wharfinger.protocol.interfaces import Handler, Notified
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import Revision
from wharfinger.protocol.uri_template import UriTemplate
from wharfinger.server.completion import Completions
from wharfinger.server.cursors import Keys
from wharfinger.server.feeds import Feeds
from wharfinger.server.functions import Call, is_async
from wharfinger.server.life import Life
from wharfinger.server.listening import Listening
from wharfinger.server.prompts import Prompts
from wharfinger.server.resources import ResourceFeature, Resources, check_uri
from wharfinger.server.source import Source
from wharfinger.server.threads import Pool
from wharfinger.server.tools import Tools
from wharfinger.server.watching import Watching

__all__ = ["Includable", "Lifespan", "Server"]

log = logging.getLogger("wharfinger.server")

Function = TypeVar("Function", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Includable(Protocol):
    """What `Server.include` takes: a source, or anything that knows how to add itself."""

    def include_into(self, server: Server) -> None: ...


class Server:
    """An MCP server of all five revisions. It is a description: transports serve it, any number at a time.

    `lifespan` is entered once per process, before the first request; what it yields is `state`, and `ctx.state` in
    handlers. `ttl` (seconds) and `cache_scope` are the caching hints of what has none of its own. `secret` (else
    `WHARFINGER_SECRET`) seals cursors; processes that serve the same clients must share it.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[t.Icon] | None = None,
        lifespan: Lifespan | None = None,
        page_size: int = 500,
        ttl: float = 0.0,
        cache_scope: t.CacheScope = "private",
        limits: Limits | None = None,
        secret: str | bytes | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.info = t.Implementation(
            name=name,
            version=version,
            title=_optional(title),
            description=_optional(description),
            website_url=_optional(website_url),
            icons=UNSET if icons is None else list(icons),
        )
        self.instructions = instructions
        self.limits = limits or Limits()
        self.stamps = Stamps(self.info)
        self.keys = Keys(secret)
        self.pool = pool or Pool()
        self.ttl_ms = round(ttl * 1000)
        self.cache_scope = cache_scope
        self.state: Any = None
        self.feeds = Feeds(self)
        self.watching = Watching(self.feeds.attach, self.feeds.detach)
        self.listening = Listening(self, self.watching)
        self.resources = Resources(self, page_size)
        self.tools = Tools(self, page_size)
        self.prompts = Prompts(self, page_size)
        self.completions = Completions(self)
        self.handlers: dict[str, Handler] = lifecycle.handlers(self)
        self.handlers["subscriptions/listen"] = self.listening.listen
        self.notified: dict[str, Notified] = {"notifications/initialized": self.listening.initialized}
        self._lifespan = lifespan
        self._life: Life | None = None

    # -- resources

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: t.Annotations | Callable[[], t.Annotations] | None = None,
        icons: Sequence[t.Icon] | None = None,
        ttl: float | None = None,
        cache_scope: t.CacheScope | None = None,
        inline: bool = False,
        timeout: float | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the resource `uri`, or as every resource that the template `uri` matches.

        See `add_resource` for the options.
        """
        options = {name: value for name, value in locals().items() if name not in ("self", "uri")}
        if callable(uri):
            raise TypeError('A resource needs its URI: @server.resource("notes://today")')

        def register(function: Function) -> Function:
            self.add_resource(uri, function, **options)
            return function

        return register

    def add_resource(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: t.Annotations | Callable[[], t.Annotations] | None = None,
        icons: Sequence[t.Icon] | None = None,
        ttl: float | None = None,
        cache_scope: t.CacheScope | None = None,
        inline: bool = False,
        timeout: float | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Register a resource, or a template where `uri` has variables; with watchers of the list, they are told.

        `annotations` may be a function, called for every list. `size` is in bytes. `ttl` is in seconds. A plain
        function runs in a thread unless it is `inline`, which promises that it never blocks. `timeout` is in seconds.

        Raises:
            InvalidTemplate: `uri` is not a template that can be parsed.
            ValueError: it is taken, is no URI, or is ambiguous with another template.
            TypeError: the function's parameters are not the template's variables.
        """
        template = UriTemplate(uri)
        shared: dict[str, Any] = {
            "name": name or getattr(function, "__name__", uri),
            "title": _optional(title),
            "description": _optional(description or _summary(function)),
            "mime_type": _optional(mime_type),
            "icons": UNSET if icons is None else list(icons),
            "meta": _optional(meta),
            "annotations": UNSET if callable(annotations) else _optional(annotations),
        }
        definition: t.Resource | t.ResourceTemplate
        if template.variables:
            if size is not None:
                raise ValueError("A template has no size: its resources have.")
            definition = t.ResourceTemplate(uri_template=uri, **shared)
        else:
            try:
                check_uri(uri)
            except InvalidParams as error:
                raise ValueError(f"{uri!r}: {error}") from None
            definition = t.Resource(uri=uri, size=_optional(size), **shared)
        self.resources.add(
            ResourceFeature(
                definition,
                Call(self, function, variables=template.variables, inline=inline, timeout=timeout),
                template=template if template.variables else None,
                annotate=annotations if callable(annotations) else None,
                ttl_ms=self.ttl_ms if ttl is None else round(ttl * 1000),
                cache_scope=cache_scope or self.cache_scope,
            )
        )
        self._serve_resources()

    def remove_resource(self, uri: str) -> None:
        """Remove a resource by its URI or a template by its text; watchers of the list are told.

        Raises:
            KeyError: there is none.
        """
        self.resources.remove(uri)

    @overload
    def list_resources(self, function: Function, /) -> Function: ...
    @overload
    def list_resources(self) -> Callable[[Function], Function]: ...
    def list_resources(self, function: Any = None) -> Any:
        """List what the decorated async generator yields behind the registered resources, in pages.

        With a parameter `after` it is given the URI of the last one shown (None at first) and yields those behind it;
        without one it starts over for each page and must keep its order. With or without parentheses.
        """
        return _decorated(self._add_catalogue, function, {})

    def _add_catalogue(self, function: Callable[..., AsyncIterator[t.Resource]]) -> None:
        self.resources.add_catalogue(function)
        self._serve_resources()

    def read_resource(self, template: str) -> Callable[[Function], Function]:
        """Read every URI that `template` matches by the decorated function; neither is listed."""

        def register(function: Function) -> Function:
            parsed = UriTemplate(template)
            definition = t.ResourceTemplate(uri_template=template, name=getattr(function, "__name__", template))
            feature = ResourceFeature(
                definition,
                Call(self, function, variables=parsed.variables),
                template=parsed,
                ttl_ms=self.ttl_ms,
                cache_scope=self.cache_scope,
            )
            self.resources.add(feature, listed=False)
            self._serve_resources()
            return function

        return register

    def watcher(self, template: str) -> Callable[[Function], Function]:
        """Run the decorated async function, given the URI, while something that `template` matches is watched.

        It starts with the first watcher of a URI and is cancelled when the last one goes; it calls
        `resource_updated(uri)` when something happens.
        """

        def register(function: Function) -> Function:
            if not is_async(function):
                raise TypeError(f"{getattr(function, '__name__', function)}() must be an async function.")
            self.feeds.followers.add(UriTemplate(template), function)
            return function

        return register

    def include(self, thing: Includable) -> None:
        """Add a source, or anything else that knows how to add itself."""
        thing.include_into(self)

    def add_source(self, source: Source) -> None:
        """Add a source's resources behind everything that is there.

        A server that runs already starts the source at once; this must then be called on its event loop.

        Raises:
            RuntimeError: the server runs, and this is not its event loop's thread.
        """
        if self._life is not None:
            self.feeds.join(source)
        self.resources.add_source(source)
        self._serve_resources()

    def resource_updated(self, uri: str) -> None:
        """Tell every watcher of `uri`, of either era, that it changed; from any thread, and at any time."""
        self.watching.updated(uri)

    def list_changed(self, name: Literal["resources", "tools", "prompts"]) -> None:
        """Tell every client that wants to know that a list changed; from any thread, and at any time."""
        self.watching.list_changed(name)

    def _serve_resources(self) -> None:
        resources = self.resources
        self.handlers.setdefault("resources/list", resources.listing.serve)
        self.handlers.setdefault("resources/templates/list", resources.templates_listing.serve)
        self.handlers.setdefault("resources/read", resources.read)
        self.handlers.setdefault("resources/subscribe", self.listening.subscribe)
        self.handlers.setdefault("resources/unsubscribe", self.listening.unsubscribe)
        self.handlers.setdefault("completion/complete", self.completions.complete)

    # -- tools and prompts

    @overload
    def tool(self, function: Function, /) -> Function: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: t.ToolAnnotations | None = None,
        icons: Sequence[t.Icon] | None = None,
        meta: dict[str, Any] | None = None,
        inline: bool = False,
        timeout: float | None = None,
    ) -> Callable[[Function], Function]: ...
    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register the decorated function as a tool; with or without parentheses. See `add_tool` for the options."""
        return _decorated(self.add_tool, function, options)

    def add_tool(self, function: Callable[..., Any], *, fallback: bool = False, **options: Any) -> None:
        """Register a function, or a bound method, as a tool; with watchers of the list, they are told.

        Its parameters make the input schema and are checked by type, its docstring describes it, and its return
        annotation makes the output schema. `options`: `name`, `title`, `description`, `annotations`, `icons`, `meta`;
        `inline` and `timeout` as for resources. A `fallback` gives way to a tool of the same name that is none.

        Raises:
            TypeError: a parameter cannot be filled from JSON.
            ValueError: the name is taken, or is none.
        """
        self.tools.add(function, fallback=fallback, **options)
        self.handlers.setdefault("tools/list", self.tools.listing.serve)
        self.handlers.setdefault("tools/call", self.tools.call)

    def remove_tool(self, name: str) -> None:
        """Remove a tool; watchers of the list are told.

        Raises:
            KeyError: there is none.
        """
        self.tools.remove(name)

    @overload
    def prompt(self, function: Function, /) -> Function: ...
    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[t.Icon] | None = None,
        meta: dict[str, Any] | None = None,
        inline: bool = False,
        timeout: float | None = None,
    ) -> Callable[[Function], Function]: ...
    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register the decorated function as a prompt; with or without parentheses; options as `add_prompt`."""
        return _decorated(self.add_prompt, function, options)

    def add_prompt(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a function as a prompt; with watchers of the list, they are told.

        Its parameters are the prompt's arguments, filled from text; it returns text, content, messages, or a list of
        these. `options`: `name`, `title`, `description`, `icons`, `meta`; `inline` and `timeout` as for resources.

        Raises:
            TypeError: a parameter cannot be filled from text.
            ValueError: the name is taken or empty.
        """
        self.prompts.add(function, **options)
        self.handlers.setdefault("prompts/list", self.prompts.listing.serve)
        self.handlers.setdefault("prompts/get", self.prompts.fill)
        self.handlers.setdefault("completion/complete", self.completions.complete)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; watchers of the list are told.

        Raises:
            KeyError: there is none.
        """
        self.prompts.remove(name)

    # -- being a service

    def capabilities(self, rules: Revision) -> t.ServerCapabilities:
        """What this server declares: what it has handlers for."""
        has = self.handlers.__contains__
        changes: Any = True
        return t.ServerCapabilities(
            logging={} if rules.era == "handshake" else UNSET,
            completions={} if has("completion/complete") else UNSET,
            resources=t.ResourcesCapability(subscribe=True, list_changed=changes) if has("resources/list") else UNSET,
            tools=t.ToolsCapability(list_changed=changes) if has("tools/list") else UNSET,
            prompts=t.PromptsCapability(list_changed=changes) if has("prompts/list") else UNSET,
        )

    def adapt(self, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """A source's method as something to await: `(owner, *arguments)`; plain functions run in the pool."""
        if is_async(method):

            async def called(owner: str, *arguments: Any) -> Any:
                return await method(*arguments)
        else:

            async def called(owner: str, *arguments: Any) -> Any:
                return await self.pool.run(owner, method, *arguments)

        return called

    async def start(self) -> None:
        """Enter the lifespan and start the sources; whoever comes second waits for the first.

        A start that failed may be tried again.
        """
        if self._life is None:
            self._life = Life(self._running())
        life = self._life
        try:
            await life.begun()
        except BaseException:
            if life.failed and self._life is life:
                self._life = None
            raise

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            if self._lifespan is not None:
                self.state = await stack.enter_async_context(self._lifespan(self))
            stack.push_async_callback(self.feeds.end)
            for source in self.resources.sources:
                await source.start()
            self.watching.start(asyncio.get_running_loop())
            yield

    def drain(self) -> None:
        """End every open listen with its final result."""
        self.listening.drain()

    async def close(self) -> None:
        """Stop telling changes, end the sources, leave the lifespan; does nothing the second time."""
        life, self._life = self._life, None
        if life is None:
            return
        self.drain()
        self.watching.stop()
        try:
            await life.end()
        finally:
            self.pool.close()

    # -- being run

    def run(self, *, http: str | None = None, **options: Any) -> None:
        """Serve until the end of input or Ctrl-C: over stdio, or with `http="127.0.0.1:8000"` over HTTP.

        `options` are those of `transports.http_runner.serve_http`.
        """
        if http is None:
            from wharfinger.transports.stdio import serve_stdio

            serve_stdio(self)
        else:
            from wharfinger.transports.http_runner import run_http

            host, _, port = http.rpartition(":")
            run_http(self, host or "127.0.0.1", int(port), **options)

    def asgi(self, **options: Any) -> Any:
        """This server as an ASGI application, for any ASGI server or framework; it serves `/mcp` and `/mcp/`.

        `options` are those of `transports.http_server.HttpApp`.
        """
        from wharfinger.transports.http_server import HttpApp

        return HttpApp(self, **options)


Value = TypeVar("Value")


def _decorated(add: Callable[..., None], function: Any, options: dict[str, Any]) -> Any:
    """What a decorator returns with or without parentheses."""
    if function is not None:
        add(function, **options)
        return function

    def register(function: Any) -> Any:
        add(function, **options)
        return function

    return register


def _optional(value: Value | None) -> Value | UnsetType:
    return UNSET if value is None else value


def _summary(function: Callable[..., Any]) -> str | None:
    """The first paragraph of the docstring."""
    text = (getattr(function, "__doc__", None) or "").strip()
    return " ".join(text.split("\n\n")[0].split()) or None
