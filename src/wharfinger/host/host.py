"""`Host`: many servers for one application."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack, cast

from wharfinger import types as t
from wharfinger.client import Cache, CallOptions, ClientOptions, Middleware, ReadResult, Retry, ToolResult
from wharfinger.client.connect import Target
from wharfinger.client.input_handlers import Roots
from wharfinger.errors import Declined, InvalidArgument, ResourceNotFound
from wharfinger.host.approval import Approval, Approve
from wharfinger.protocol.interfaces import Authorize
from wharfinger.protocol.limits import Limits
from wharfinger.upstreams.config import ServerConfig, read_config, read_host_config, server_config
from wharfinger.upstreams.host_formats import HOSTS
from wharfinger.upstreams.public_names import name_of_target
from wharfinger.upstreams.upstream import Upstream
from wharfinger.upstreams.upstreams import Upstreams

__all__ = ["Host"]


class HostClientOptions(TypedDict, total=False):
    """The options of `Client` that a host passes to the client of every server."""

    revision: str | None
    timeout: float
    max_timeout: float
    open_timeout: float
    probe_timeout: float
    info: t.Implementation | None
    stderr: Callable[[str], object] | None
    auth: Authorize | None
    allow_address: Callable[[str], bool] | None
    log: Callable[[t.LoggingMessageNotificationParams], Any] | None
    log_level: t.LoggingLevel
    middleware: Sequence[Middleware]
    validate: bool
    retry: Retry | None
    cache: Cache | bool
    max_pages: int
    limits: Limits


class Host:
    """The servers of one application: `async with Host.from_config("mcp.json") as host`."""

    def __init__(
        self,
        servers: Mapping[str, Target] | Sequence[Target | ServerConfig],
        *,
        approve: Approve | None = None,
        roots: Roots | None = None,
        **options: Unpack[HostClientOptions],
    ) -> None:
        self._approve = approve
        self._roots = roots
        self._options = options
        self.upstreams = Upstreams(_configs(servers), options=self._client_options)

    @classmethod
    def from_config(cls, source: str | os.PathLike[str], **options: Any) -> Self:
        """Make a host with the servers of a file, or those of another host by its name, such as `claude-desktop`."""
        read = {key: options.pop(key) for key in ("environ", "inputs") if key in options}
        named = isinstance(source, str) and (source in HOSTS or not (os.path.exists(source) or "." in source))
        configs = read_host_config(str(source), **read) if named else read_config(source, **read)
        return cls(configs, **options)

    def _client_options(self, config: ServerConfig) -> ClientOptions:
        options = cast("ClientOptions", dict(self._options))
        if self._roots is not None:
            options["roots"] = self._roots
        return options

    @property
    def servers(self) -> Mapping[str, Upstream]:
        """The servers by their names."""
        return self.upstreams

    async def __aenter__(self) -> Self:
        await self.upstreams.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every server; no process is left."""
        await self.upstreams.close()

    async def ready(self, timeout: float | None = None) -> None:
        """Return when every server has started or failed to, or after `timeout` seconds."""
        await self.upstreams.ready(timeout)

    async def read(self, uri: str, *, server: str | None = None, timeout: float | None = None) -> ReadResult:
        """Read a resource of the server that publishes it, or of the named one.

        Raises:
            InvalidArgument: several servers publish it, or there is no such server.
            ResourceNotFound: no server publishes it.
        """
        return await (await self._server_of(uri, server)).client.read_resource(uri, timeout=timeout)

    async def _server_of(self, uri: str, server: str | None) -> Upstream:
        if server is not None:
            if server not in self.upstreams:
                raise InvalidArgument(f"There is no server {server!r}: there is {', '.join(self.upstreams)}.")
            return self.upstreams[server]
        found = await self.upstreams.servers_of(uri)
        if not found:
            raise ResourceNotFound(uri)
        if len(found) > 1:
            names = " and ".join(repr(one.name) for one in found)
            raise InvalidArgument(f"{uri} is published by {names}: say which one, server={found[0].name!r}.")
        return found[0]

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """Get a prompt by its public name, filled in with these arguments."""
        await self.upstreams.prompts()
        upstream, own = self.upstreams.find_prompt(name)
        return await upstream.client.get_prompt(own, arguments, timeout=timeout)

    async def call_tool(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult[Any]:
        """Call a tool by its public name, if it is approved."""
        tools = await self.upstreams.tools()
        upstream, own = self.upstreams.find_tool(name)
        if self._approve is not None:
            tool = next(one.tool for one in tools if one.name == name)
            approval = Approval(
                server=upstream.name,
                tool=tool,
                public_name=name,
                arguments=arguments,
                read_only=False,
                changed_since=False,
            )
            answer = self._approve(approval)
            if not isinstance(answer, bool | str):
                answer = await answer
            if answer in (False, "never"):
                raise Declined(f"The user did not approve the call of {name}.")
        return await upstream.client.call_tool(own, arguments, **options)


def _configs(servers: Mapping[str, Target] | Sequence[Target | ServerConfig]) -> list[ServerConfig]:
    if isinstance(servers, Mapping):
        named: list[tuple[str, Any]] = list(servers.items())
    else:
        named = []
        counts: dict[str, int] = {}
        for target in servers:
            name = target.name if isinstance(target, ServerConfig) else name_of_target(target)
            counts[name] = counts.get(name, 0) + 1
            named.append((f"{name}_{counts[name]}" if counts[name] > 1 else name, target))
    found: list[ServerConfig] = []
    for name, target in named:
        if isinstance(target, ServerConfig):
            found.append(target)
        elif isinstance(target, Mapping):
            found.append(server_config(name, target))
        else:
            found.append(ServerConfig(name=name, target=target))
    return found
