"""`Server`: authors register features with its decorators or include sources, and transports serve them to clients."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, Unpack, overload, runtime_checkable

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol import lifecycle
from wharfinger.protocol.interfaces import AsgiApp, Authorizer, Store
from wharfinger.protocol.limits import Limits
from wharfinger.server.context import Context
from wharfinger.server.cursors import Keys
from wharfinger.server.features.feature_registration import check_hints
from wharfinger.server.features.resource import is_uri
from wharfinger.server.middleware.chain import MethodTable, Middleware
from wharfinger.server.service import FeatureService, TaskSettings
from wharfinger.server.services import ListName, Services
from wharfinger.server.subscriptions.watching import Watching
from wharfinger.server.threads import Pool
from wharfinger.source import Source
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from wharfinger.auth.server.token_auth import TokenAuth
    from wharfinger.auth.server.token_verifier import TokenVerifier
    from wharfinger.record import AuditLog
    from wharfinger.server.apps import Page, PageOptions
    from wharfinger.server.extensions import MethodOptions
    from wharfinger.server.features.prompts import PromptOptions
    from wharfinger.server.features.resource import ResourceOptions
    from wharfinger.server.features.tools import ToolOptions
    from wharfinger.server.openapi_options import OpenApiOptions, OpenApiServerOptions
    from wharfinger.server.policy_file import PolicyFile
    from wharfinger.server.running import HttpRunOptions, UnixRunOptions
    from wharfinger.transports.http_server.app import HttpApp, HttpOptions

__all__ = ["Includable", "Lifespan", "Server"]

log = logging.getLogger("wharfinger.server")

Function = TypeVar("Function", bound=Callable[..., Any])
AnyMiddleware = TypeVar("AnyMiddleware", bound=Middleware)
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]
AnyPolicy: TypeAlias = "Authorizer | PolicyFile | str | os.PathLike[str] | None"
"""A policy, another `Authorizer`, or the file of a policy."""


@runtime_checkable
class Includable(Protocol):
    """An object that `Server.include` accepts besides sources and servers: it registers itself."""

    def include_into(self, server: Server) -> None:
        """Register the features of this object with `server`."""


class Server(FeatureService):
    """An MCP server of all five revisions. Any number of transports can serve it at the same time.

    `instructions` are for models: a string, or a plain function that returns it for the current caller. `lifespan` is
    entered when the first transport starts, and left after the last one has ended; the value that it yields is `state`,
    and `ctx.state` in handlers. Lists come in pages of `page_size` entries; by default, of at most 1,000 entries and
    1 MiB. `ttl` (seconds) and `cache_scope` are the default caching hints. `secret` (by default
    `WHARFINGER_SECRET`) seals cursors and the states of calls that ask for input; processes that serve the same clients
    must share it. With `replay`, handlers that ask for input run again with the answers in every revision, so that
    tests find code in them that must not run twice. With `decode_json_strings`, tools also accept arrays and objects as
    strings that contain their JSON.

    `task_store` keeps tasks, their results, and the ids of used DPoP proofs: a store, or `"sqlite:///tasks.db"`, which
    survives a restart; without a store they are lost when the process ends. `task_ttl` (seconds, None: for ever) is how
    long a task may take, and how long it is kept from its start; a result is kept for at least five minutes.
    `task_poll` is the time (seconds) after which clients should ask for the status of a task again.

    `policy` says who may read, call and query what: a `Policy`, another `Authorizer`, or the path of a file, which is
    read again when it changes. Without a policy, only the `scopes` of features limit what callers may do. `audit`
    records every request: a file, or an `AuditLog` with its options.

    Raises:
        ValueError: `page_size`, `ttl`, `cache_scope`, `task_ttl`, `task_poll` or the URL in `task_store` is not valid.
        UnusablePolicy: the policy cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | Callable[[], str | None] | None = None,
        website_url: str | None = None,
        icons: Sequence[t.Icon] | None = None,
        lifespan: Lifespan | None = None,
        page_size: int | None = None,
        ttl: float = 0.0,
        cache_scope: t.CacheScope = "private",
        limits: Limits | None = None,
        secret: str | bytes | None = None,
        decode_json_strings: bool = False,
        pool: Pool | None = None,
        replay: bool = False,
        task_store: Store | str | None = None,
        task_ttl: float | None = 3600.0,
        task_poll: float = 1.0,
        policy: AnyPolicy = None,
        audit: AuditLog | str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(task_store, str):
            from wharfinger.store import open_store  # imported on use: most servers keep their tasks in memory

            task_store = open_store(task_store)
        super().__init__(
            t.Implementation(
                name=name,
                version=version,
                title=or_unset(title),
                description=or_unset(description),
                website_url=or_unset(website_url),
                icons=UNSET if icons is None else list(icons),
            ),
            instructions=instructions,
            lifespan=lifespan,
            page_size=page_size,
            services=Services(
                name=name,
                limits=limits or Limits(),
                pool=pool or Pool(),
                keys=Keys(secret),
                methods=MethodTable(lifecycle.handlers(self)),
                serve=self.serve,
                enforce_scopes=self.enforce_scopes,
                watching=Watching(self._watched, self._unwatched),
                context=lambda request: Context(self, request),
                ttl_ms=check_hints(ttl, cache_scope),
                cache_scope=cache_scope,
                decode_json_strings=decode_json_strings,
                replay=replay,
            ),
            tasks=TaskSettings(task_store, task_ttl, task_poll),
        )
        if policy is not None:
            self.policy = policy
        self._audit: AuditLog | None = None
        if audit is not None:
            self.audit = audit

    @classmethod
    def from_openapi(
        cls,
        spec: str | os.PathLike[str] | Mapping[str, Any],
        *,
        name: str | None = None,
        tools: bool = True,
        app: AsgiApp | None = None,
        **options: Unpack[OpenApiOptions],
    ) -> Self:
        """Return a server of an HTTP API from its OpenAPI document: a URL, a file, or the content.

        GET operations become resources and templates; operations in `allow_operations` become tools. `app` and
        `options` are those of `sources.openapi`. With `tools`, the server also has tools that list, read and search the
        resources, for hosts that cannot read resources.

        Raises:
            UnusableSource: the document cannot be used, an operation does not exist, or a URL is not allowed.
            MissingExtra: the extra `openapi` is not installed.
        """
        # The only import of a higher layer, by name, so that no type of this module depends on it (docs/design.md, §2).
        sources = import_module("wharfinger.sources")
        api: Source = sources.openapi(spec, app=app, **options)
        server = cls(name or api.name)
        server.include(api)
        if tools:
            server.include(sources.resource_tools())
        return server

    @classmethod
    def from_fastapi(
        cls, app: AsgiApp, *, document: str | Mapping[str, Any] | None = None, **options: Unpack[OpenApiServerOptions]
    ) -> Self:
        """Return a server of an ASGI application, which is called in this process, without a socket.

        `document` is the OpenAPI document, or its path in the application. By default it is what FastAPI's
        `app.openapi()` returns, and `/openapi.json` for other applications. The other options, and the errors, are
        those of `from_openapi`. The application's lifespan starts with its first request, and ends with this server.
        """
        if document is None:
            describe: Callable[[], Mapping[str, Any]] | None = getattr(app, "openapi", None)
            document = describe() if callable(describe) else "/openapi.json"
        return cls.from_openapi(document, app=app, **options)

    @property
    def policy(self) -> Authorizer | None:
        """Who may read, call and query what; None if there is no policy.

        Replace it on the event loop at any time. A policy with a failing test is refused: at once if the server runs,
        otherwise when it starts.
        """
        return self.services.authorizer

    @policy.setter
    def policy(self, policy: AnyPolicy) -> None:
        self.server_policy.set(policy)

    @property
    def audit(self) -> AuditLog | None:
        """The record of every request, or None. Set it before the server starts."""
        return self._audit

    @audit.setter
    def audit(self, audit: AuditLog | str | os.PathLike[str] | None) -> None:
        from wharfinger.record import AuditLog

        if self._audit is not None:
            self.observers.remove(self._audit)
        self._audit = audit if audit is None or isinstance(audit, AuditLog) else AuditLog(audit)
        if self._audit is not None:
            self.observers.add(self._audit)

    # -- resources

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Function], Function]:
        """Register the decorated function as the resource `uri`, or as every resource that the template `uri` matches.

        `server.resources.add` does the same without a decorator. `ResourceOptions` describes the options.
        """
        if callable(uri):
            raise TypeError('A resource needs its URI: @server.resource("notes://today")')

        return _decorator(self.resources.add, uri, **options)

    @overload
    def list_resources(self, function: Function, /) -> Function: ...
    @overload
    def list_resources(self) -> Callable[[Function], Function]: ...
    def list_resources(self, function: Function | None = None) -> Function | Callable[[Function], Function]:
        """List what the decorated async generator yields, in pages, after the registered resources.

        A generator with a parameter `after` gets the URI of the last resource of the previous page (None for the first
        page), and yields the resources after it. Any other generator runs from the start for each page, and must yield
        the resources in the same order. The decorator works with and without parentheses.
        """
        register = _decorator(self.resources.add_catalogue)
        return register if function is None else register(function)

    def read_resource(
        self, template: str, *, allow_traversal: bool = False, scopes: Sequence[str] | str | None = None
    ) -> Callable[[Function], Function]:
        """Use the decorated function to read every URI that `template` matches; the template is not listed.

        `allow_traversal` and `scopes` are as for `server.resources.add`. `server.resources.add_unlisted` does the same
        without a decorator.
        """
        return _decorator(self.resources.add_unlisted, template, allow_traversal=allow_traversal, scopes=scopes)

    def watcher(self, template: str) -> Callable[[Function], Function]:
        """While a URI that `template` matches is watched, run the decorated async function with this URI.

        The function starts with the first watcher of a URI and is cancelled when the last one goes. It should call
        `resource_updated(uri)` whenever the resource has changed.
        """
        return _decorator(self.source_watches.add_watcher, template)

    def include(self, item: Includable | Source | Server, *, prefix: str = "") -> None:
        """Add a source, another server as a part of this one, or anything else that can add itself.

        With a `prefix`, another server's tools and prompts are named `prefix_name` here; its URIs stay the same.
        Features that it adds or removes later are added or removed here too. The other server starts and ends with this
        one. Its functions and middleware run as if it were served alone, with its own `state` and dependencies. Without
        a `secret` of its own, it seals with that of this server.

        Raises:
            ValueError: a name or a URI is taken (both servers are named) or is not valid; a server is included a second
                time, or in itself.
            TypeError: `item` cannot be included, or has a `prefix` and is not a server.
            RuntimeError: this server runs, and the calling thread does not run its event loop.
        """
        if isinstance(item, Server):
            from wharfinger.server.mounting import include  # imported on use: most servers have no parts

            include(self, item, prefix)
            self.sources_changed()
        elif prefix:
            raise TypeError("prefix= is only for a server: a source keeps its own URIs.")
        elif isinstance(item, Includable):
            item.include_into(self)
        elif isinstance(item, Source):
            self.add_source(item)
        else:
            raise TypeError(f"include() takes a Server or a source, such as files(path), not {type(item).__name__}.")

    def resource_updated(self, uri: str) -> None:
        """Report to everyone who watches `uri` that the resource has changed. Call this from any thread at any time.

        If `uri` is not a URI, no client can watch it, and a warning is logged once.
        """
        if not is_uri(uri):
            _warn_of_invalid_uri(uri)
        self.watching.updated(uri)

    def list_changed(self, name: ListName) -> None:
        """Report a change of a list to every client that watches it. Call this from any thread at any time.

        Raises:
            ValueError: there is no such list.
        """
        if name not in ("resources", "tools", "prompts"):
            raise ValueError(f"There is no list {name!r}: write resources, tools or prompts.")
        self.watching.list_changed(name)

    def elicitation_complete(self, elicitation_id: str) -> bool:
        """Report that the user has finished at a URL (`notifications/elicitation/complete`, 2025-11-25).

        Returns False if no client waits for this notification. In revisions without it, clients send the request again
        by themselves. Call this on the event loop.
        """
        from wharfinger.server.input.round_trips import complete_url

        return complete_url(self.services, elicitation_id)

    # -- tools and prompts

    @overload
    def tool(self, function: Function, /) -> Function: ...
    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[Function], Function]: ...
    def tool(
        self, function: Function | None = None, **options: Unpack[ToolOptions]
    ) -> Function | Callable[[Function], Function]:
        """Register the decorated function as a tool; with or without parentheses.

        `server.tools.add` does the same without a decorator. `ToolOptions` describes the options.
        """
        register = _decorator(self.tools.add, **options)
        return register if function is None else register(function)

    @overload
    def prompt(self, function: Function, /) -> Function: ...
    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[Function], Function]: ...
    def prompt(
        self, function: Function | None = None, **options: Unpack[PromptOptions]
    ) -> Function | Callable[[Function], Function]:
        """Register the decorated function as a prompt; with or without parentheses.

        `server.prompts.add` does the same without a decorator. `PromptOptions` describes the options.
        """
        register = _decorator(self.prompts.add, **options)
        return register if function is None else register(function)

    # -- extensions

    def method(self, name: str, **options: Unpack[MethodOptions]) -> Callable[[Function], Function]:
        """Serve a method of an extension with the decorated function.

        `server.extensions.add_method` does the same without a decorator. `MethodOptions` describes the options.
        """
        return _decorator(self.extensions.add_method, name, **options)

    def notification(
        self, name: str, *, params: type[t.NotificationParams] | None = None
    ) -> Callable[[Function], Function]:
        """Handle a client's notification of an extension with the decorated plain function.

        `server.extensions.add_notification` does the same without a decorator.
        """
        return _decorator(self.extensions.add_notification, name, params=params)

    def app(self, uri: str, **options: Unpack[PageOptions]) -> Callable[[Function], Function]:
        """Publish the page that the decorated function returns; see `add_app`."""
        return _decorator(self.add_app, uri, **options)

    def add_app(self, uri: str, page: Page, **options: Unpack[PageOptions]) -> None:
        """Publish a page that hosts show (MCP Apps), under a `ui://` URI. Tools refer to it with `app=`.

        `page` is HTML, a `Path`, or a function that returns either.

        Raises:
            TypeError: `page` is of another type, or the function has a parameter that the server cannot fill.
            ValueError: the URI is taken or not a `ui://` URI, or an option is not valid.
        """
        from wharfinger.server.apps import EXTENSION, make_page_resource

        self.resources.put(make_page_resource(self.services, uri, page, **options))
        self.extensions.declare(EXTENSION)

    # -- middleware, and replacing dependencies in tests

    @overload
    def middleware(self, middleware: AnyMiddleware, /) -> AnyMiddleware: ...
    @overload
    def middleware(self, *methods: str) -> Callable[[AnyMiddleware], AnyMiddleware]: ...
    def middleware(self, *arguments: Any) -> Any:
        """Put the decorated `async def around(call, next)` around every request, or around those of some methods.

        `@server.middleware`, or `@server.middleware("tools/call", "resources/read")`. See `add_middleware`.
        """
        if arguments and not isinstance(arguments[0], str):
            self.add_middleware(*arguments)
            return arguments[0]

        def add(middleware: Middleware) -> None:
            self.add_middleware(middleware, *arguments)

        return _decorator(add)

    def add_middleware(self, middleware: Middleware, *methods: str) -> None:
        """Put middleware around every request, or around those of some methods; the first one added is outermost.

        It also applies to features and methods that are added later. Notifications have no middleware.

        Raises:
            TypeError: it is not an async function of two parameters.
            ValueError: there is no such method, or it is not a request from clients.
        """
        self.methods.add_middleware(middleware, methods)
        self._refresh_mounts()

    def override(self, function: Callable[..., Any], fake: Callable[..., Any]) -> AbstractContextManager[None]:
        """Replace the dependency `function` of this server's features by `fake`: `with server.override(…):`.

        Raises:
            TypeError: `fake` has a parameter that the server cannot fill, or needs `function` itself.
        """
        return self.overrides.replaced(function, fake)

    # -- running

    @overload
    def run(self, *, policy: AnyPolicy = None) -> None: ...
    @overload
    def run(self, *, http: str, policy: AnyPolicy = None, **options: Unpack[HttpRunOptions]) -> None: ...
    @overload
    def run(
        self, *, unix: str | os.PathLike[str], policy: AnyPolicy = None, **options: Unpack[UnixRunOptions]
    ) -> None: ...
    def run(
        self,
        *,
        http: str | None = None,
        unix: str | os.PathLike[str] | None = None,
        policy: AnyPolicy = None,
        **options: Any,
    ) -> None:
        """Serve until the end of input or Ctrl-C: over stdio, with `http="127.0.0.1:8000"` over HTTP, or with
        `unix="/path"` on a Unix socket.

        `policy` is set as `self.policy`; None does not change it.

        Raises:
            TypeError: `http` and `unix` are both given, `http` is not a string, or options are given without either.
            ValueError: `http` is not of the form HOST:PORT.
            UnusablePolicy: the policy cannot be used, or does not fit the issuers of `auth`.
        """
        from wharfinger.server.running import run

        if policy is not None:
            self.policy = policy
        if (auth := self.server_policy.bind_auth(options.pop("auth", None), self.store)) is not None:
            options["auth"] = auth
        run(self, http, unix, options, next(iter(self.tools.names()), None))

    def asgi(
        self,
        *,
        auth: TokenAuth | TokenVerifier | Sequence[TokenVerifier] | None = None,
        policy: AnyPolicy = None,
        **options: Unpack[HttpOptions],
    ) -> HttpApp:
        """Return an ASGI application of this server, for any ASGI server or framework; it serves `/mcp` and `/mcp/`.

        With `auth`, every caller needs a token: `TokenAuth`, a verifier such as `JWTVerifier`, or several. `policy` is
        set as `self.policy`; None does not change it. `options` are those of `transports.http_server.HttpApp`. Chunked
        bodies are refused unless `separates_trailers=True` says that the ASGI server keeps trailers out of the headers.

        Raises:
            RuntimeError: there are several workers and no shared secret, so that no worker could open what another has
                sealed.
            UnusablePolicy: the policy cannot be used, or does not fit the issuers of `auth`.
        """
        from wharfinger.server.workers import check_secret
        from wharfinger.transports.http_server.app import HttpApp

        check_secret(self.services.keys)
        if policy is not None:
            self.policy = policy
        return HttpApp(self, auth=self.server_policy.bind_auth(auth, self.store), **options)


def _decorator(add: Callable[..., object], /, *arguments: Any, **options: Any) -> Callable[[Function], Function]:
    """Return a decorator that calls `add` with these arguments, the function, and the options."""

    def register(function: Function) -> Function:
        add(*arguments, function, **options)
        return function

    return register


@functools.lru_cache(maxsize=100)  # warns once for each URI
def _warn_of_invalid_uri(uri: str) -> None:
    log.warning("resource_updated(%r): this is not a URI, so no client can watch it", uri)
