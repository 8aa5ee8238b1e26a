"""The service that transports serve: a server's features and methods, and its start and end.

`Server` derives from it and adds what authors call. Mounting works on this class, since it needs no decorators. See
`protocol.interfaces.Service` for the interface that transports use.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.interfaces import Authorizer, NotificationHandler, Store
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request, ResultMeta
from wharfinger.protocol.revisions import Revision
from wharfinger.server.access_control import AccessControl
from wharfinger.server.extensions import Extensions
from wharfinger.server.features.completion import Completions
from wharfinger.server.features.listing import PagedList
from wharfinger.server.features.prompts import Prompts
from wharfinger.server.features.resources import Resources
from wharfinger.server.features.tools import MAX_TASK_TTL_SECONDS, Tools, check_task_ttl, report_tool_errors
from wharfinger.server.lifespan import ServerLifespan, logged_lifespan
from wharfinger.server.observers import Observers
from wharfinger.server.server_policy import ServerPolicy
from wharfinger.server.services import ListName, Services
from wharfinger.server.subscriptions.listening import Listening
from wharfinger.server.subscriptions.source_watches import SourceWatches
from wharfinger.server.subscriptions.visible_changes import VisibleChanges
from wharfinger.source import Source
from wharfinger.types.task_extension import EXTENSION as TASKS

if TYPE_CHECKING:
    from wharfinger.server.mounting import Mount
    from wharfinger.server.tasks.task_extension import Tasks

__all__ = ["FeatureService", "TaskSettings"]


class TaskSettings(NamedTuple):
    """The store of tasks, how long it keeps a task, and after which time clients should ask for it again (seconds)."""

    store: Store | None
    """None keeps them in memory."""
    ttl: float | None
    poll: float


class FeatureService:
    """The tools, resources and prompts of a server, and their handlers."""

    def __init__(
        self,
        info: t.Implementation,
        *,
        instructions: str | Callable[[], str | None] | None,
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None,
        page_size: int | None,
        services: Services,
        tasks: TaskSettings,
    ) -> None:
        self.info = info
        self._instructions = instructions
        self.result_meta = ResultMeta(info)
        self.services: Services = services
        """Objects that all features of this server share."""
        self.methods = services.methods
        """Every method that this server has, with its middleware."""
        self.handlers = services.methods.handlers
        self.pool = services.pool
        self.watching = services.watching
        self.overrides = services.overrides
        """Replaces dependencies, for tests: `server.overrides[database] = fake`; see `Server.override`."""
        self.state: Any = None
        self.mounts: list[Mount] = []
        """The servers that are mounted in this one, in the order in which they were included."""
        self.parents: list[Mount] = []
        """The mounts of this server in other servers."""
        self.resources: Resources = Resources(services, page_size)
        self.source_watches: SourceWatches = SourceWatches(services, self.resources, self.mounts)
        self.tools: Tools = Tools(services, page_size, self.serve_tasks, self.resources.wait_for_starts)
        self.header_params = self.tools.header_params
        """The arguments that HTTP headers repeat, by the name of the tool."""
        self.prompts: Prompts = Prompts(services, page_size)
        self.completions = Completions(services, self.prompts, self.resources)
        listings: dict[str, PagedList[Any]] = {
            "tools": self.tools.listing,
            "prompts": self.prompts.listing,
            "resources": self.resources.listing,
        }
        self.visible_changes = VisibleChanges(services, self.resources, listings)
        self.listening = Listening(services, self.resources, self.visible_changes, lambda: self.tasks)
        self.methods.set("subscriptions/listen", self.listening.listen)
        self.notification_handlers: dict[str, NotificationHandler] = {
            "notifications/initialized": self.listening.initialized
        }
        self.access_control = AccessControl(services, self.resources, self.visible_changes)
        self.observers = Observers(services.methods, self._refresh_mounts)
        """Objects that observe every request, such as a record; see `protocol.observing`."""
        self.gauges: dict[str, list[Callable[[], int]]] = {
            "watchers": [lambda: self.watching.watcher_count],
            "source_outages": [lambda: sum(source.breaker.down for source in self.resources.every_source())],
            "tasks": [lambda: 0 if self.tasks is None else self.tasks.running_count],
        }
        """Numbers that change, for metrics. Transports add theirs."""
        self.server_policy = ServerPolicy(services, self.resources, self._set_authorizer)
        self.extensions = Extensions(services, self.notification_handlers, self.parents)
        self.tasks: Tasks | None = None
        """Runs and stores tasks; None if no call of a tool can become a task."""
        self.own_tasks: Tasks | None = None
        """`tasks` if this server created them; None if they belong to a server in which it is mounted."""
        check_task_ttl(tasks.ttl)
        if not 0 < tasks.poll <= MAX_TASK_TTL_SECONDS:
            most = f"{MAX_TASK_TTL_SECONDS:g}"
            raise ValueError(f"task_poll={tasks.poll!r}: write more than 0 seconds, and at most {most}.")
        self._task_settings = tasks
        self.store = tasks.store
        """The store of tasks, and of the ids of used DPoP proofs; None keeps them in memory."""
        self.served: set[ListName] = set()
        """The kinds of features that have handlers."""
        self.lifespan = lifespan
        self.running = ServerLifespan(self._serving, self._stop)
        """Starts and ends the server; true while it runs."""

    def serve(self, name: ListName) -> None:
        """Set the handlers of a kind of feature, here and in every server in which this one is mounted."""
        if name in self.served:
            return
        self.served.add(name)
        features: Resources | Tools | Prompts = getattr(self, name)
        methods = features.handlers()
        if name != "tools":
            methods["completion/complete"] = self.completions.complete
        if name == "resources":
            methods["resources/subscribe"] = self.listening.subscribe
            methods["resources/unsubscribe"] = self.listening.unsubscribe
        for method, handler in methods.items():
            if method in self.handlers:
                continue
            if self.services.replay and method in ("tools/call", "prompts/get", "resources/read"):
                from wharfinger.server.input.round_trips import with_replay

                handler = with_replay(self.services, handler)
            self.methods.set(method, handler, outside=report_tool_errors if method == "tools/call" else None)
        for mount in self.parents:
            mount.parent.serve(name)

    def enforce_scopes(self) -> None:
        """Check the scopes of features, here and in every server in which this one is mounted."""
        if self.services.feature_scopes is None:
            from wharfinger.server.feature_scopes import FeatureScopes  # on use: most servers have no scopes

            resources = self.resources
            sets = (resources.static, resources.templates, resources.unlisted)
            scopes = FeatureScopes(self.tools.features, self.prompts.features, sets, resources.feature_of)
            self.access_control.enforce_scopes(scopes)
            self._refresh_mounts()
        for mount in self.parents:
            mount.parent.enforce_scopes()

    def _refresh_mounts(self) -> None:
        """In each server that mounts this one, find again which methods may call this server's handlers directly."""
        for mount in self.parents:
            mount.refresh()

    def _set_authorizer(self, authorizer: Authorizer | None) -> None:
        """Enforce a policy, also on calls from the servers in which this one is mounted."""
        self.access_control.set(authorizer)
        self._refresh_mounts()
        for mount in self.parents:
            mount.parent.enforce_part_policies()

    def enforce_part_policies(self) -> None:
        """Enforce the policies of mounted servers, here and in every server in which this one is mounted."""
        parts = [(mount, mount.part.services) for mount in self.mounts]
        restricted = [
            (mount, services.access_of)
            for mount, services in parts
            if services.authorizer is not None or services.part_policies is not None
        ]
        if not restricted and self.services.part_policies is None:
            return
        policies = None
        if restricted:
            from wharfinger.server.part_policies import PartPolicies  # on use: most servers have no parts

            resources = self.resources
            policies = PartPolicies(
                restricted,
                self.tools.features,
                self.prompts.features,
                resources.part_of,
                resources.part_of_any_template,
            )
        self.access_control.enforce_part_policies(policies)
        self._refresh_mounts()
        for mount in self.parents:
            mount.parent.enforce_part_policies()

    @property
    def has_policy_file(self) -> bool:
        """Whether the policy is in a file, which `reload` reads again."""
        return self.server_policy.has_file

    async def reload(self) -> None:
        """Read the file of the policy again now, instead of within a second after it has changed.

        If it cannot be used, or one of its tests fails, the error is logged and the old policy stays.
        """
        await self.server_policy.reload()

    def add_source(self, source: Source) -> None:
        """Add a source, whose resources are listed after those of earlier sources.

        If the server runs already, the source is started at once; call this on the server's event loop then.

        Raises:
            RuntimeError: the server runs, and the calling thread does not run its event loop.
        """
        if self.running:
            self.source_watches.join(source)
        self.resources.add_source(source)
        self.sources_changed()

    def sources_changed(self) -> None:
        """Find again which sources the `roots` of policies mean, here and in each server that mounts this one."""
        self.server_policy.bind_roots()
        for mount in self.parents:
            mount.parent.sources_changed()

    def serve_tasks(self) -> Tasks:
        """Serve the methods of the tasks extension. The first tool with `task=` calls this."""
        if self.tasks is not None:
            return self.tasks
        if self.parents:
            return self.take_tasks(self.parents[0].parent.serve_tasks())
        from wharfinger.server.tasks.task_extension import Tasks
        from wharfinger.store import open_store

        store, ttl, poll = self._task_settings
        self.own_tasks = Tasks(self.services, store or open_store(), ttl=ttl, poll=poll)
        return self.take_tasks(self.own_tasks)

    def take_tasks(self, tasks: Tasks) -> Tasks:
        """Serve these tasks: this server's own, or those of the server in which it is mounted."""
        self.tasks = tasks
        for word in ("get", "update", "cancel"):
            self.methods.set(f"tasks/{word}", getattr(tasks, word))
        for mount in self.mounts:
            if mount.part.tasks is not None:
                mount.part.own_tasks = None
                mount.part.take_tasks(tasks)
        return tasks

    def hides_tool(self, request: Request) -> bool:
        """Return whether the caller may not call the tool that a request names: no answer may reveal the tool then."""
        access = self.services.access_of(request.caller.principal)
        return access is not None and not access.allows("call", f"tool:{request.params.name}")

    def capabilities(self, rules: Revision) -> t.ServerCapabilities:
        """Return the capabilities that this server declares: those for which it has handlers."""
        has = self.handlers.__contains__
        list_changed: Any = True
        extensions = dict(self.extensions.declared) if rules.extensions else {}
        if rules.server_makes_tasks and self.tasks is not None:
            extensions[TASKS] = {}
        return t.ServerCapabilities(
            logging={},  # any handler may log, and a server that logs must declare it in every revision
            completions={} if has("completion/complete") else UNSET,
            resources=t.ResourcesCapability(subscribe=True, list_changed=list_changed)
            if has("resources/list")
            else UNSET,
            tools=t.ToolsCapability(list_changed=list_changed) if has("tools/list") else UNSET,
            prompts=t.PromptsCapability(list_changed=list_changed) if has("prompts/list") else UNSET,
            extensions=extensions or UNSET,
        )

    @property
    def instructions(self) -> str | None:
        """The instructions for the model that uses the server; a function returns those for the current caller."""
        return self._instructions() if callable(self._instructions) else self._instructions

    @property
    def limits(self) -> Limits:
        """Bounds on what clients can make this server do or keep."""
        return self.services.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self.services.limits = limits

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        """Start the observers, lifespan, sources, index, policy, parts and tasks, in this order."""
        try:
            async with AsyncExitStack() as stack:
                if "opentelemetry" in sys.modules and not self.parents:
                    self._trace()
                await self.observers.start()
                stack.push_async_callback(self.observers.close)
                if self.lifespan is not None:
                    self.state = await stack.enter_async_context(logged_lifespan(self.info.name, self.lifespan, self))
                stack.push_async_callback(self.visible_changes.close)
                stack.push_async_callback(self.source_watches.end)
                stack.push_async_callback(self.resources.calls.close)
                await self.resources.calls.start()
                await self._start_index(stack)
                stack.push_async_callback(self._close_parts)
                await stack.enter_async_context(self.server_policy.following())
                for mount in self.mounts:
                    await mount.start()
                if self.own_tasks is not None:
                    await self.own_tasks.begin_serving()
                self.watching.start(asyncio.get_running_loop())
                try:
                    yield
                finally:
                    if self.own_tasks is not None:
                        await self.own_tasks.end()
        finally:
            self.pool.close()

    def _trace(self) -> None:
        """Make spans for OpenTelemetry, if the application uses it."""
        from wharfinger.record.tracing import Tracing, is_traced

        if is_traced() and not any(isinstance(observer, Tracing) for observer in self.observers):
            self.observers.add(Tracing())

    async def _start_index(self, stack: AsyncExitStack) -> None:
        """Start the index after the sources, which it reads. Sources that start slowly do not delay the server."""
        index, calls = self.resources.search_index, self.resources.calls
        if index is None:
            return
        if not calls.starting:
            await index.start()
            return

        async def start_later() -> None:
            await calls.wait_for_starts()
            await index.start()

        later = asyncio.get_running_loop().create_task(start_later())
        stack.callback(later.cancel)

    def _stop(self) -> None:
        """End the listens, refuse new tasks, and stop reporting changes, since the server is about to end."""
        self.drain()
        self.watching.stop()

    def _watched(self, uri: str | None) -> None:
        self.source_watches.attach(uri)

    def _unwatched(self, uri: str | None) -> None:
        self.source_watches.detach(uri)

    async def _close_parts(self) -> None:
        """Close the parts, the last one first, and then the index. If one fails, the others are still closed."""
        async with AsyncExitStack() as stack:
            if self.resources.search_index is not None:
                stack.push_async_callback(self.resources.search_index.close)
            for mount in self.mounts:
                stack.push_async_callback(mount.close)

    async def start(self, holder: object = None) -> None:
        """Enter the lifespan and start the sources, or wait for a start in progress.

        A start that failed may be tried again. A `holder`, such as a server that this one is a part of, keeps this one
        running until `close` is called for the same holder.
        """
        await self.running.begin(holder or self)

    def drain(self) -> None:
        """End every open `subscriptions/listen` with its final result, and refuse new tasks."""
        self.listening.drain()
        if self.own_tasks is not None:
            self.own_tasks.drain()

    async def close(self, holder: object = None) -> None:
        """End the tasks and the sources, and leave the lifespan; does nothing the second time.

        A server with other holders keeps running for them.
        """
        await self.running.end(holder or self)
        if self.running and self.own_tasks is not None:
            self.own_tasks.resume()  # the transport that ends has called `drain`
