"""Several servers as one: started side by side, supervised one by one, with common lists and unambiguous names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from wharfinger import types as t
from wharfinger.client import ClientOptions
from wharfinger.errors import InvalidArgument, WharfingerError
from wharfinger.transports.background import retrieve
from wharfinger.upstreams.config import ServerConfig
from wharfinger.upstreams.placeholders import InvalidConfiguration
from wharfinger.upstreams.public_names import prefixes_of, public_names
from wharfinger.upstreams.upstream import Upstream, UpstreamChange

__all__ = ["UpstreamPrompt", "UpstreamResource", "UpstreamTemplate", "UpstreamTool", "Upstreams"]

log = logging.getLogger("wharfinger.upstreams")

LIST_SECONDS = 5.0
"""The maximum time that a list of all servers waits for each of them. A slower server's last list is used instead."""
START_SECONDS = 60.0
"""The maximum time that a call of an unknown tool, or a read of an unknown URI, waits for servers that are starting."""
INDEX_AGE_SECONDS = 10.0
"""How long an outdated list of URIs is still used if it has the requested URI: reading it again may be slow."""

Item = TypeVar("Item")


class UpstreamTool(NamedTuple):
    """A tool of a server: `name` is its public name, and `tool.name` the server's own."""

    server: str
    name: str
    tool: t.Tool


class UpstreamPrompt(NamedTuple):
    """A prompt of a server: `name` is its public name, and `prompt.name` the server's own."""

    server: str
    name: str
    prompt: t.Prompt


class UpstreamResource(NamedTuple):
    """A resource and its server."""

    server: str
    resource: t.Resource


class UpstreamTemplate(NamedTuple):
    """A resource template and its server."""

    server: str
    template: t.ResourceTemplate


class _Names:
    """The public names of the tools, or of the prompts, of all servers."""

    def __init__(self, upstreams: Mapping[str, Upstream], prefixes: Mapping[str, str]) -> None:
        self._upstreams, self._prefixes = upstreams, prefixes
        self._of_server: dict[str, tuple[list[str], dict[str, str]]] = {}
        """By server, its own names, and the public name of each."""
        self.origins: dict[str, tuple[str, str]] = {}
        """The server of each public name, and the server's own name."""

    def update(self, server: str, own_names: list[str]) -> dict[str, str]:
        """Return the public names of the tools or prompts that a server lists, by its own names."""
        before = self._of_server.get(server)
        if before is not None and before[0] == own_names:
            return before[1]
        upstream = self._upstreams[server]
        rename = upstream.config.rename
        names = public_names(server, self._prefixes[server], own_names, rename, self._prefixes.values())
        self._of_server[server] = own_names, names
        for name in [name for name, (of_server, _) in self.origins.items() if of_server == server]:
            del self.origins[name]
        for own, name in names.items():
            self.origins.setdefault(name, (server, own))
        return names


class Upstreams(Mapping[str, Upstream]):
    """The servers of a configuration, by their names: `async with Upstreams(read_config("mcp.json")) as upstreams`.

    Entering starts all of them side by side, and waits for none; `ready` waits. Leaving stops them: no process is left.
    Use it in one event loop, and enter it only once.
    """

    def __init__(
        self, configs: Iterable[ServerConfig], *, options: Callable[[ServerConfig], ClientOptions] | None = None
    ) -> None:
        """`options` returns the options of a server's client, such as its handlers. `auth` is only used for a server
        without an Authorization header.

        Raises:
            InvalidConfiguration: two servers have the same name or prefix, or a target cannot be a server.
        """
        self._observers: list[Callable[[UpstreamChange], object]] = []
        self._upstreams: dict[str, Upstream] = {}
        for config in configs:
            if config.name in self._upstreams:
                raise InvalidConfiguration(f"Two servers are named {config.name!r}: rename one of them.")
            client_options = options(config) if options is not None else ClientOptions()
            self._upstreams[config.name] = Upstream(config, client_options, self._report)
        prefixes = prefixes_of({name: upstream.config.prefix for name, upstream in self._upstreams.items()})
        server_by_prefix: dict[str, str] = {}
        for name, prefix in prefixes.items():
            other = server_by_prefix.setdefault(prefix, name)
            if other != name:
                raise InvalidConfiguration(
                    f"The servers {other!r} and {name!r} have the same prefix {prefix!r}: give one of them another one."
                )
        self._tool_names = _Names(self._upstreams, prefixes)
        self._prompt_names = _Names(self._upstreams, prefixes)

    # A mapping.

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._upstreams)

    def __len__(self) -> int:
        return len(self._upstreams)

    # Starting and stopping.

    async def __aenter__(self) -> Self:
        for upstream in self._upstreams.values():
            upstream.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every server; their processes have ended when this returns."""
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams.values()))

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until every server has started, or its first attempt has failed, for `timeout` seconds at most."""
        waiting = [asyncio.ensure_future(upstream.settled()) for upstream in self._upstreams.values()]
        if not waiting:
            return
        try:
            await asyncio.wait(waiting, timeout=timeout)
        finally:
            for task in waiting:
                task.cancel()

    def on_change(self, callback: Callable[[UpstreamChange], object]) -> Callable[[], None]:
        """Call a function when the state or a list of a server has changed. Returns a function that removes it.

        The result of the function is not awaited. Its exceptions are logged.
        """
        self._observers.append(callback)

        def remove() -> None:
            if callback in self._observers:
                self._observers.remove(callback)

        return remove

    def _report(self, change: UpstreamChange) -> None:
        for observer in tuple(self._observers):
            try:
                observer(change)
            except Exception:
                log.exception("%r failed", observer)

    # Lists.

    async def tools(self) -> list[UpstreamTool]:
        """Return the tools of all servers that are not down, with their public names, in the servers' order."""
        public_tools: list[UpstreamTool] = []
        for upstream, tools in await self._list_each("tools", Upstream.tools):
            names = self._tool_names.update(upstream.name, [tool.name for tool in tools])
            public_tools += (UpstreamTool(upstream.name, names[tool.name], tool) for tool in tools)
        return public_tools

    async def prompts(self) -> list[UpstreamPrompt]:
        """Return the prompts of all servers that are not down, with their public names, in the servers' order."""
        public_prompts: list[UpstreamPrompt] = []
        for upstream, prompts in await self._list_each("prompts", Upstream.prompts):
            names = self._prompt_names.update(upstream.name, [prompt.name for prompt in prompts])
            public_prompts += (UpstreamPrompt(upstream.name, names[prompt.name], prompt) for prompt in prompts)
        return public_prompts

    async def resources(self) -> list[UpstreamResource]:
        """Return the resources of all servers that answer in time."""
        return [
            UpstreamResource(upstream.name, resource)
            for upstream, resources in await self._list_each("resources", Upstream.resources)
            for resource in resources
        ]

    async def templates(self) -> list[UpstreamTemplate]:
        """Return the resource templates of all servers that are not down, in the servers' order."""
        return [
            UpstreamTemplate(upstream.name, template)
            for upstream, templates in await self._list_each("templates", Upstream.templates)
            for template in templates
        ]

    async def _list_each(
        self,
        kind: str,
        listing: Callable[[Upstream], Coroutine[Any, Any, list[Item]]],
    ) -> list[tuple[Upstream, list[Item]]]:
        """Return the list of each server that is not down.

        If a server is starting, slow or failing, its last list is used. No last list of resources is kept, so such a
        server then has none. An idle server is started only if it has no last list.
        """
        candidates = [
            upstream for upstream in self._upstreams.values() if upstream.status in ("ready", "idle", "starting")
        ]
        tasks: dict[Upstream, asyncio.Task[list[Item]]] = {}
        for upstream in candidates:
            if upstream.status == "ready" or (upstream.status == "idle" and not upstream.knows(kind)):
                tasks[upstream] = asyncio.get_running_loop().create_task(listing(upstream))
                tasks[upstream].add_done_callback(retrieve)
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=LIST_SECONDS)
            for task in late:  # a list that others also wait for is still read to its end
                task.cancel()
        lists: list[tuple[Upstream, list[Item]]] = []
        for upstream in candidates:
            items = _result(upstream, kind, tasks.get(upstream))
            lists.append((upstream, upstream.last_listed(kind) if items is None else items))
        return lists

    # Routing.

    def find_tool(self, public_name: str) -> tuple[Upstream, str]:
        """Return the server of a tool and the server's own name for it, from the lists that were read last.

        Raises:
            InvalidArgument: there is no such tool; the message suggests another one, and names servers that are down.
        """
        return self._find(self._tool_names.origins, public_name, "tool")

    async def look_up_tool(self, public_name: str) -> tuple[Upstream, str]:
        """Return the server of a tool, and the server's own name for it. Unlike `find_tool`, this reads lists, and
        waits for servers that are starting.

        Raises:
            InvalidArgument: there is no such tool; the message suggests another one, and names servers that are down.
        """
        return await self._look_up(self._tool_names.origins, public_name, "tool", self.tools)

    async def look_up_prompt(self, public_name: str) -> tuple[Upstream, str]:
        """Return the server of a prompt, and the server's own name for it; see `look_up_tool`."""
        return await self._look_up(self._prompt_names.origins, public_name, "prompt", self.prompts)

    async def _look_up(
        self,
        origins: Mapping[str, tuple[str, str]],
        name: str,
        noun: str,
        listing: Callable[[], Coroutine[Any, Any, object]],
    ) -> tuple[Upstream, str]:
        if name not in origins:
            await listing()
        if name not in origins:
            await self.ready(START_SECONDS)  # a server that is starting may have it
            await listing()
        return self._find(origins, name, noun)

    async def public_tool_name(self, server: str, own_name: str) -> str:
        """Return the public name of a tool of a server; its own name if the server does not list it.

        Raises what `Upstream.tools` raises.
        """
        tools = await self._upstreams[server].tools()
        return self._tool_names.update(server, [tool.name for tool in tools]).get(own_name, own_name)

    def find_prompt(self, public_name: str) -> tuple[Upstream, str]:
        """Return the server of a prompt and the server's own name for it, from the last lists; see `find_tool`."""
        return self._find(self._prompt_names.origins, public_name, "prompt")

    def _find(self, origins: Mapping[str, tuple[str, str]], name: str, noun: str) -> tuple[Upstream, str]:
        if name not in origins:
            from difflib import get_close_matches

            near = get_close_matches(name[:128], origins, 1)
            down = [upstream.name for upstream in self._upstreams.values() if upstream.status == "down"]
            message = f"There is no {noun} {name[:128]!r}.{f' Did you mean {near[0]!r}?' if near else ''}"
            raise InvalidArgument(message + (f" Not reached: {', '.join(down)}." if down else ""))
        server, own_name = origins[name]
        return self._upstreams[server], own_name

    async def servers_of(self, uri: str) -> list[Upstream]:
        """Return the servers that publish a URI: those that list it, or else those that may have it.

        If there are several, the caller must choose one or report the collision. A server that is down is left out. If
        the configuration has a single server, it is returned without a look at its lists.
        """
        usable = self._usable(uri)
        if len(self._upstreams) == 1:
            return usable
        for waited in (False, True):
            for max_age in (INDEX_AGE_SECONDS, 0.0):
                await self._list_each("uris", partial(_index_uris, max_age))
                exact = [upstream for upstream in usable if upstream.uris.has(uri)]
                if exact:
                    return exact
            if waited or all(upstream.status != "starting" for upstream in usable):
                break
            await self.ready(START_SECONDS)  # a server that is starting may have it
            usable = self._usable(uri)
        return [upstream for upstream in usable if upstream.uris.covers(uri)]

    def _usable(self, uri: str) -> list[Upstream]:
        """Return the servers that are not down and whose configuration does not hide a URI."""
        usable = [upstream for upstream in self._upstreams.values() if upstream.status not in ("down", "disabled")]
        return [upstream for upstream in usable if upstream.offers_uri(uri)]


async def _index_uris(max_age: float, upstream: Upstream) -> list[Any]:
    await upstream.index_uris(max_age)
    return []


def _result(upstream: Upstream, kind: str, task: asyncio.Task[list[Item]] | None) -> list[Item] | None:
    """Return the list that was read; None if reading failed, or has not ended."""
    if task is None or not task.done() or task.cancelled():
        return None
    error = task.exception()
    if isinstance(error, WharfingerError):
        log.debug("%s does not list its %s: %s", upstream.name, kind, error)
    elif error is not None:
        log.error("the %s of %s could not be listed", kind, upstream.name, exc_info=error)
    return task.result() if error is None else None
