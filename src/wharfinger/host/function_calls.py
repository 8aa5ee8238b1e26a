"""Function calling: the host's tools for a model API, and the calls in its answers.

`Host.call` does not need the definitions that `Host.tools` returned: the names of a tool and its arguments, as a model
writes them, are mapped back to the server's own by the same rules that made them. With `tools=`, the model can call
only the tools of these definitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import msgspec

from wharfinger import types as t
from wharfinger.client import ToolResult
from wharfinger.client.concurrency import gather_limited
from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import printable
from wharfinger.errors import ConnectionFailed, ConnectionLost, ToolError, WharfingerError
from wharfinger.host.catalogue import unknown_server
from wharfinger.host.model_apis import (
    MAX_RESULT_CHARACTERS,
    ModelAPI,
    ModelToolCall,
    OfferedTool,
    OutputLimits,
    ToolDefinitions,
    ToolOutput,
    define_tools,
    find_calls,
    model_api,
    tool_output,
)
from wharfinger.host.model_apis.definitions import accepted_names, narrowed_schema
from wharfinger.host.model_apis.schema_arguments import restore
from wharfinger.host.model_apis.tool_outputs import failed_output
from wharfinger.host.resource_tools import READ_RESOURCE, READ_RESULT, HostResourceTools
from wharfinger.upstreams import Upstreams, UpstreamTool

__all__ = ["AnswerOptions", "FunctionCalls", "error_for_clients"]

CONCURRENT_CALLS = 16
"""Maximum number of calls of one answer that run at the same time."""
MAX_CALLS = 128
"""Maximum number of calls of one answer that are run; models get an error for any others."""
MAX_NAMED = 10
"""Maximum number of servers that an error for a model names."""
UNKNOWN_EFFECT = "It is not known whether the call had an effect."
_SELECTING_ARGUMENTS = (
    "limit",
    "offset",
    "page",
    "cursor",
    "start",
    "end",
    "head",
    "tail",
    "count",
    "max_results",
    "per_page",
)
"""Arguments that select a part of a result in many tools."""

CallTool = Callable[..., Awaitable[ToolResult[Any]]]


class AnswerOptions(TypedDict, total=False):
    """Options of `Host.call`, `Host.call_all` and `Host.run_calls`."""

    tools: ToolDefinitions | None
    """The definitions that the model was given: other tools are refused. By default, any tool may be called."""
    max_characters: int
    """Characters of text in the result of each call (40,000). A longer one is cut, and says how to get the rest."""
    files: bool
    """Whether images and documents are sent; False for models that take only text."""
    timeout: float | None
    """Seconds for each call; by default the timeout of the server's client."""


class _CallableTools(NamedTuple):
    """The tools that may be called now."""

    tools: Mapping[str, UpstreamTool]
    """Tools of servers, by public name."""
    names: Mapping[str, str]
    """The public name of each tool, by its name for models."""
    resource_tools: Mapping[str, str]
    """The original names of the host's resource tools, by public name."""
    gave_resource_tools: bool
    """Whether the definitions have the resource tools. Without `tools=`, the last ones that this host made count."""


class FunctionCalls:
    """Defines the tools of one host for model APIs, and runs calls of them."""

    def __init__(self, upstreams: Upstreams, call_tool: CallTool, resource_tools: HostResourceTools) -> None:
        """`call_tool(name, arguments, timeout=…)` calls a tool by its public name, if it is approved."""
        self._upstreams = upstreams
        self._call_tool = call_tool
        self._resource_tools = resource_tools
        self._gave_resource_tools = False

    async def define(
        self, format: str, *, resources: bool, strict: bool, servers: Collection[str] | None
    ) -> ToolDefinitions:
        """Return the definitions of the tools for an API; see `Host.tools`."""
        api = model_api(format)
        tools = await self._upstreams.tools()
        unknown = [name for name in servers or () if name not in self._upstreams]
        if unknown:
            raise ValueError(unknown_server(unknown[0], self._upstreams))
        offered = [OfferedTool(tool.name, tool.tool) for tool in tools if servers is None or tool.server in servers]
        public_names: dict[str, str] = {}
        if resources:
            public_names = self._resource_tools.names(tool.name for tool in tools)
            offered = [*self._resource_tools.offered(public_names), *offered]
        self._gave_resource_tools = resources
        definitions = define_tools(offered, api, strict=strict)
        definitions.resource_tools = {public: original for original, public in public_names.items()}
        return definitions

    async def run_answer(
        self, answer: Any, format: str | None, *, single: bool, **options: Unpack[AnswerOptions]
    ) -> list[dict[str, Any]]:
        """Run the calls of an answer, or (`single`) exactly one, and return the messages with their results.

        Raises:
            ValueError: the answer is not of a known API, `max_characters` is not positive or, with `single`, the answer
                is not one call.
            TypeError: the answer is not an object of an API's client, a dict or JSON.
        """
        api, calls = find_calls(answer, format)
        if single and len(calls) != 1:
            raise ValueError(f"This is not one call, but {len(calls)}: pass the whole answer to call_all().")
        outputs = await self.run_calls(calls, api, **options)
        return api.messages(outputs) if outputs else []

    async def run_calls(
        self, calls: Sequence[ModelToolCall], api: ModelAPI, **options: Unpack[AnswerOptions]
    ) -> list[ToolOutput]:
        """Run calls side by side, and return their results in order.

        Raises:
            ValueError: `max_characters` is not positive.
        """
        limit = options.get("max_characters", MAX_RESULT_CHARACTERS)
        if limit < 1:
            raise ValueError(f"max_characters must be positive, not {limit}.")
        if not calls:
            return []
        callable_tools = await self._callable_tools(options.get("tools"))
        limits = OutputLimits(limit, api.file_types if options.get("files", True) else frozenset())
        seconds = options.get("timeout")

        async def run(call: ModelToolCall) -> ToolOutput:
            return await self._run_call(call, api, callable_tools, limits, seconds)

        outputs: list[Any] = await gather_limited(run, calls[:MAX_CALLS], CONCURRENT_CALLS, return_errors=False)
        reason = f"An answer may have {MAX_CALLS} calls. Make the others in your next answer."
        outputs += [failed_output(call, reason, limits) for call in calls[MAX_CALLS:]]
        return outputs

    async def _callable_tools(self, definitions: ToolDefinitions | None) -> _CallableTools:
        tools = {tool.name: tool for tool in await self._upstreams.tools()}
        if definitions is not None:
            resource_tools = dict(definitions.resource_tools)
            return _CallableTools(tools, definitions.names, resource_tools, bool(resource_tools))
        resource_tools = {name: original for original, name in self._resource_tools.names(tools).items()}
        names = accepted_names([*resource_tools, *tools])
        return _CallableTools(tools, names, resource_tools, self._gave_resource_tools)

    async def _run_call(
        self,
        call: ModelToolCall,
        api: ModelAPI,
        callable_tools: _CallableTools,
        limits: OutputLimits,
        seconds: float | None,
    ) -> ToolOutput:
        """Run one call. Every error that is not a fault of the application is an output for the model."""
        name = callable_tools.names.get(call.name)
        if name is None or (name not in callable_tools.tools and name not in callable_tools.resource_tools):
            from difflib import get_close_matches  # only for mistakes

            matches = get_close_matches(call.name[:128], callable_tools.names, 1)
            hint = f" Did you mean {matches[0]!r}?" if matches and matches[0] != call.name else ""
            reason = f"There is no tool {printable(call.name, 128)!r} now.{hint}{self._missing_servers()}"
            return failed_output(call, reason, limits)
        if call.fault:
            return failed_output(call, call.fault, limits)
        try:
            msgspec.json.encode(call.arguments)
        except (UnicodeEncodeError, RecursionError):  # half an emoji, or thousands of nested lists
            return failed_output(call, "The arguments cannot be written as JSON. Call the tool again.", limits)
        how_to_read, how_to_continue = self._hints(call, name, callable_tools)
        try:
            if name in callable_tools.resource_tools:
                result = await self._resource_tools.call(
                    callable_tools.resource_tools[name], call.arguments, timeout=seconds
                )
            else:
                tool = callable_tools.tools[name].tool
                renamed = narrowed_schema(tool, api)[0].renamed
                arguments = restore(call.arguments, tool.input_schema, renamed)
                options = {} if seconds is None else {"timeout": seconds}
                result = (await self._call_tool(name, arguments, **options)).result
        except ToolError as error:
            if not isinstance(error.result, t.CallToolResult):
                return failed_output(call, str(error), limits)
            result = error.result
        except (ConnectionLost, ConnectionFailed) as error:
            reason = error_for_clients(error)
            may_have_run = isinstance(error, ConnectionLost) and not error.unsent and name in callable_tools.tools
            return failed_output(call, f"{reason} {UNKNOWN_EFFECT}" if may_have_run else reason, limits)
        except WharfingerError as error:
            return failed_output(call, error_for_clients(error), limits)
        return tool_output(call, result, limits, how_to_read=how_to_read, how_to_continue=how_to_continue)

    def _missing_servers(self) -> str:
        """Return a sentence that names servers whose tools may be missing, or an empty string."""
        down = [name for name, server in self._upstreams.items() if server.status == "down"]
        more = f" and {len(down) - MAX_NAMED} more" if len(down) > MAX_NAMED else ""
        return f" These servers cannot be reached now: {', '.join(down[:MAX_NAMED])}{more}." if down else ""

    def _hints(
        self, call: ModelToolCall, name: str, callable_tools: _CallableTools
    ) -> tuple[Callable[[str], str], Callable[[str, int], str]]:
        """Return the functions that say how to read a link, and how to get the rest of a result."""
        model_names = {public: model for model, public in callable_tools.names.items()}
        public_names = {original: public for public, original in callable_tools.resource_tools.items()}
        server = callable_tools.tools[name].server if name not in callable_tools.resource_tools else ""

        def how_to_read(uri: str) -> str:
            if not callable_tools.gave_resource_tools:
                return ""
            arguments = {"uri": uri, **({"server": server} if server and len(self._upstreams) > 1 else {})}
            return f"Read it with {model_names[public_names[READ_RESOURCE]]} {_json(arguments)}."

        def how_to_continue(text: str, shown: int) -> str:
            if callable_tools.resource_tools.get(name) in (READ_RESOURCE, READ_RESULT):
                start = msgspec.convert(call.arguments.get("start") or 0, int, strict=False)  # as the tool reads it
                next_arguments = {**call.arguments, "start": start + shown}
                return f"To get the rest, call {call.name} with {_json(next_arguments)}."
            if callable_tools.gave_resource_tools:
                arguments = {"id": self._resource_tools.keep(text), "start": shown}
                return f"To get the rest, call {model_names[public_names[READ_RESULT]]} with {_json(arguments)}."
            schema = callable_tools.tools[name].tool.input_schema if name in callable_tools.tools else {}
            properties: Any = schema.get("properties")
            selecting = [
                argument for argument in _SELECTING_ARGUMENTS if isinstance(properties, dict) and argument in properties
            ]
            if selecting:
                return f"To get another part, call {call.name} again with another value of {' or '.join(selecting)}."
            return f"To see the rest, call {call.name} again with arguments that select less."

        return how_to_read, how_to_continue


def error_for_clients(error: WharfingerError) -> str:
    """Return the text of an error for a model, or a client of the host: without secrets, and without what the server
    wrote to stderr, which is for people."""
    text = redacted_text(str(error))
    return text.partition("\n")[0] if isinstance(error, ConnectionLost | ConnectionFailed) else text


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
