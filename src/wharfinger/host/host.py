"""`Host`: the servers of an application that runs a model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, cast

import msgspec
from msgspec import UnsetType

from wharfinger import types as t
from wharfinger.client import (
    Call,
    CallOptions,
    ClientOptions,
    Next,
    ReadResult,
    ToolResult,
)
from wharfinger.client.connect import Target
from wharfinger.client.input_handlers import Consent, Elicit, Roots, Sample
from wharfinger.client.settings import HostClientOptions
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.host.approval import Approvals, Approve
from wharfinger.host.catalogue import Catalogue, unknown_server
from wharfinger.host.context import DEFAULT_BUDGET, ContextBlocks, CountTokens, Select, build_context
from wharfinger.host.function_calling import FunctionCalling
from wharfinger.host.host_record import HostRecord
from wharfinger.host.questions import Questions, Review
from wharfinger.protocol.interfaces import Store
from wharfinger.record import AuditLog
from wharfinger.store.memory import MemoryStore
from wharfinger.upstreams.config import ServerConfig, config_of, no_answer, read_config, read_host_config
from wharfinger.upstreams.config_files import ConfiguredServer
from wharfinger.upstreams.host_formats import HOSTS
from wharfinger.upstreams.placeholders import Ask, InvalidConfiguration
from wharfinger.upstreams.public_names import distinct_names, name_of_target
from wharfinger.upstreams.upstream import Upstream, UpstreamChange
from wharfinger.upstreams.upstreams import Upstreams

__all__ = ["Host", "HostOptions"]

ANSWER_SECONDS = 600.0
"""The default of `answer_timeout`: seconds that a person has for an answer."""


class HostOptions(HostClientOptions, total=False):
    """The options of `Host`, which describes them."""

    approve: Approve | None
    trusted: Iterable[str]
    approvals: Store | None
    elicitation: Elicit | None
    consent: Consent | None
    sampling: Sample | None
    sampling_tools: bool
    review: Review | None
    roots: Roots | None
    answer_timeout: float
    audit: AuditLog | None
    on_event: Callable[[UpstreamChange], object] | None
    index: bool
    search_tools: Mapping[str, str | None] | None


class Host(FunctionCalling):
    """The servers of an application that runs a model: `async with Host.from_config("mcp.json") as host`.

    `servers` maps names to targets, as `Client` takes them, or is a list of targets. Each server is started,
    supervised, and restarted when it ends. Entering waits for none of them; leaving stops all of them, and no process
    is left.

        async with Host({"docs": ["uvx", "wharfinger", "serve", "docs"]}, approve=ask) as host:
            await host.ready(timeout=30)
            print((await host.read("file:///docs/index.md")).text)

    With more than one server, the tool `read` of the server `docs` is called `docs_read`. Prompts are named in the same
    way; URIs are not changed.
    """

    def __init__(
        self,
        servers: Mapping[str, Target] | Sequence[Target | ServerConfig],
        *,
        approve: Approve | None = None,
        trusted: Iterable[str] = (),
        approvals: Store | None = None,
        elicitation: Elicit | None = None,
        consent: Consent | None = None,
        sampling: Sample | None = None,
        sampling_tools: bool = False,
        review: Review | None = None,
        roots: Roots | None = None,
        answer_timeout: float = ANSWER_SECONDS,
        audit: AuditLog | None = None,
        on_event: Callable[[UpstreamChange], object] | None = None,
        index: bool = False,
        search_tools: Mapping[str, str | None] | None = None,
        **options: Unpack[HostClientOptions],
    ) -> None:
        """Prepare a host. Entering it starts the servers.

        `approve` is asked before a tool runs, however it is called; without it every tool runs. The answers `"always"`
        and `"never"` are kept in `approvals`, by default in memory; `SqliteStore(path)` keeps them beyond this process.
        For approval, the annotations of a tool count only if its server is `trusted`.

        `elicitation` shows a form, `consent` asks whether a URL may be opened, `sampling` asks a model, and `roots` are
        the folders in which the user works, as with `Client`; the questions also have the name of the `server`.
        `review` shows a request for sampling before the model is asked, and the result before the server gets it.
        Each question has to be answered within `answer_timeout` seconds, which `sampling` and its reviews share.

        `catalogue` searches a server with its own tool `search`, but not with `approve`, because the person would be
        asked each time. `search_tools` maps a server to the tool to use, even with `approve`, or to None if the server
        must not get the words of searches. With `index`, the texts of the servers that are searched with no tool are
        read once, and indexed.

        `audit` records each read, tool call, prompt, approval and question. `on_event` is called when the state or a
        list of a server has changed. `options` are those of `HostClientOptions`, for the clients of all servers.

        Raises:
            InvalidConfiguration: a target cannot be a server, two servers have the same prefix, or a server in
                `trusted` or `search_tools` does not exist.
        """
        configs = configs_of(servers)
        self._trusted = frozenset(trusted) | {config.name for config in configs if config.trusted}
        names = [config.name for config in configs]
        for option, named in (("trusted", self._trusted), ("search_tools", frozenset(search_tools or ()))):
            if unknown := named.difference(names):
                raise InvalidConfiguration(f"{unknown_server(min(unknown), names)} Correct `{option}`.")
        self._record = HostRecord(audit)
        self.approvals: Approvals | None = None
        """The stored answers `"always"` and `"never"`; None without `approve`."""
        if approve is not None:
            store = MemoryStore() if approvals is None else approvals
            self.approvals = Approvals(approve, store, answer_timeout, self._record.approved)

        def client_options(config: ServerConfig) -> ClientOptions:
            questions = Questions(
                config.name,
                elicitation=elicitation,
                consent=consent,
                sampling=sampling,
                review=review,
                roots=roots,
                timeout=answer_timeout,
                record=self._record.answered,
            )
            merged = {**options, **questions.handlers, "sampling_tools": sampling_tools and sampling is not None}

            async def guard(call: Call, next: Next) -> Any:
                return await self._guard(config.name, call, next)

            merged["middleware"] = (guard, *options.get("middleware", ()))
            return cast("ClientOptions", merged)

        self.upstreams = Upstreams(configs, options=client_options)
        """The servers, their common lists, and the server of each name and URI."""
        # A search would ask for approval each time, so only search tools that are named on purpose are used.
        no_search = dict.fromkeys(self.upstreams, None) if approve is not None else {}
        self.catalogue = Catalogue(self.upstreams, index=index, search_tools={**no_search, **(search_tools or {})})
        """All resources and templates of the servers, live."""
        self.upstreams.on_change(self._list_changed)
        if on_event is not None:
            self.upstreams.on_change(on_event)

    @classmethod
    def from_config(
        cls,
        source: str | os.PathLike[str],
        *,
        environ: Mapping[str, str] = os.environ,
        inputs: Mapping[str, str] | Ask | None = None,
        **options: Unpack[HostOptions],
    ) -> Self:
        """Make a host with the servers of a configuration file, or of another host by its name.

        `Host.from_config("mcp.json")` reads a file. `Host.from_config("claude-desktop")` uses the servers that this
        user configured in Claude Desktop: `wharfinger hosts` lists these names. Nothing starts before the host is
        entered. Servers at URLs use the sign-ins of `wharfinger auth login`, unless `auth=` is given. `environ` and
        `inputs` fill in placeholders, as for `read_config`; `options` are those of `Host`, as in `HostOptions`.

        Raises:
            InvalidConfiguration: there is no such file or host, or the file or all of its entries cannot be used. If
                only some entries cannot, their servers are down.
        """
        text = os.fspath(source)
        is_name = text in HOSTS or not (os.path.exists(text) or os.sep in text or "/" in text or "." in text)
        read = read_host_config if is_name else read_config
        configs = read(text, environ=environ, inputs=inputs)
        if "auth" not in options and any(isinstance(config.target, str) for config in configs):
            from wharfinger.auth import FileTokens, SignIn

            options["auth"] = SignIn(tokens=FileTokens(), interactive=False)
        return cls(configs, **options)

    # The servers.

    @property
    def servers(self) -> Mapping[str, Upstream]:
        """The servers by their names, with their state and client."""
        return self.upstreams

    async def __aenter__(self) -> Self:
        await self._record.start()
        await self.upstreams.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every server. No process is left when this returns."""
        try:  # if this is cancelled, the rest is closed all the same
            await self.catalogue.close()
        finally:
            try:
                await self.upstreams.close()
            finally:
                await self._record.close()

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until every server has started, or its first attempt has failed, for `timeout` seconds at most.

        You need not call this before other methods: a call to a server that is starting waits for it.
        """
        await self.upstreams.ready(timeout)

    async def _guard(self, server: str, call: Call, next: Next) -> Any:
        """Ask for approval of a call, and record the call. This is middleware of every client: no call bypasses it."""
        self._record.check(call)
        if call.method == "tools/call" and self.approvals is not None:
            began = time.monotonic()
            params: t.CallToolRequestParams = call.params
            try:
                arguments = None if isinstance(params.arguments, UnsetType) else msgspec.json.decode(params.arguments)
                public_name = await self.upstreams.public_tool_name(server, params.name)
                trusted = server in self._trusted
                await self.approvals.check(self.upstreams[server], params.name, public_name, arguments, trusted=trusted)
            except BaseException as error:
                self._record.called(server, call, time.monotonic() - began, error)
                raise
            call.extend_deadline(time.monotonic() - began)  # the person's time does not count as the server's
        began = time.monotonic()
        try:
            result = await next(call)
        except BaseException as error:
            self._record.called(server, call, time.monotonic() - began, error)
            raise
        self._record.called(server, call, time.monotonic() - began, None, result)
        return result

    # Calls.

    async def read(self, uri: str, *, server: str | None = None, timeout: float | None = None) -> ReadResult:
        """Read a resource of the server that publishes it, or of the named one.

        Raises:
            InvalidArgument: several servers publish it, or there is no such server.
            ResourceNotFound: no server that can be reached publishes it.
            UpstreamUnreachable: the named server is down.
        """
        if server is None:
            upstreams = await self.upstreams.servers_of(uri)
        elif server in self.upstreams:
            upstreams = [self.upstreams[server]]
        else:
            raise InvalidArgument(unknown_server(server, self.upstreams))
        if not upstreams:
            raise ResourceNotFound(uri)
        if len(upstreams) > 1:
            names = " and ".join(repr(upstream.name) for upstream in upstreams)
            raise InvalidArgument(f"{uri} is published by {names}: say which one, server={upstreams[0].name!r}.")
        return await upstreams[0].client.read_resource(uri, timeout=timeout)

    async def context(
        self,
        question: str,
        *,
        budget: int = DEFAULT_BUDGET,
        select: Sequence[str] | Select | None = None,
        count_tokens: CountTokens | None = None,
    ) -> ContextBlocks:
        """Return the context for a question: blocks of resources with their origin, of at most `budget` tokens.

        `select` is a list of URIs or mentions (`@tides.csv`), a function such as `rules()`, or `select_with(model)`.
        Without it, the resources that the question mentions are chosen or, if it mentions none, those that the rules
        choose. `count_tokens` counts the tokens of a text; by default, they are estimated.

        Raises:
            InvalidArgument: the budget is out of bounds, or a mention fits no resource, or several.
        """
        return await build_context(self.catalogue, question, budget=budget, select=select, count_tokens=count_tokens)

    def _list_changed(self, change: UpstreamChange) -> None:
        if change.kind == "resources" or (change.kind == "status" and self.upstreams[change.server].status == "ready"):
            self.catalogue.list_changed(change.server)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """Get a prompt by its public name, filled in with these arguments.

        Raises:
            InvalidArgument: there is no such prompt.
            UpstreamUnreachable: its server is down.
        """
        upstream, own_name = await self.upstreams.look_up_prompt(name)
        return await upstream.client.get_prompt(own_name, arguments, timeout=timeout)

    async def call_tool(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult[Any]:
        """Call a tool by its public name, if it is approved.

        Raises:
            Declined: it was not approved.
            InvalidArgument: there is no such tool.
            UpstreamUnreachable: its server is down.
            ToolError: the tool failed; its text says why.
        """
        upstream, own_name = await self.upstreams.look_up_tool(name)
        return await upstream.client.call_tool(own_name, arguments, **options)


def configs_of(servers: Mapping[str, Target] | Sequence[Target | ServerConfig]) -> list[ServerConfig]:
    """Return the configurations of targets. A target without a name gets that of its program, file, URL or server.

    Raises:
        InvalidConfiguration: `servers` is a path, or one of its entries cannot be used.
    """
    if isinstance(servers, str | os.PathLike):
        raise InvalidConfiguration(
            "Give a list of targets, or a mapping of names to targets; Host.from_config reads a file."
        )
    if isinstance(servers, Mapping):
        named: Mapping[str, Target | ServerConfig] = servers
        return [config_of_target(name, target) for name, target in named.items()]
    configs = [config_of_target("server", target) for target in servers]
    names = [
        target.name if isinstance(target, ServerConfig) else name_of_target(config.target)
        for target, config in zip(servers, configs, strict=True)
    ]
    distinct = distinct_names(names)
    return [msgspec.structs.replace(config, name=name) for config, name in zip(configs, distinct, strict=True)]


def config_of_target(name: str, target: Target | ServerConfig) -> ServerConfig:
    """Return the configuration of a target, with this name.

    Raises:
        InvalidConfiguration: the target is an entry as in a file, and cannot be used.
    """
    if isinstance(target, ServerConfig):
        return msgspec.structs.replace(target, name=name)
    if isinstance(target, Mapping):
        server = ConfiguredServer(name, None, target)  # pyright: ignore[reportUnknownArgumentType]
        return config_of(server, os.environ, no_answer, {})
    return ServerConfig(name=name, target=target)
