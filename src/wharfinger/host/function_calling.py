"""The part of `Host` that models use: tools in the format of an API, calls of them, and all servers as one server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from wharfinger import types as t
from wharfinger.client import CallOptions, ReadResult, ToolResult
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.function_calls import AnswerOptions, FunctionCalls
from wharfinger.host.model_apis import ModelToolCall, ToolDefinitions, ToolOutput, model_api
from wharfinger.host.resource_tools import HostResourceTools
from wharfinger.upstreams.upstreams import Upstreams

if TYPE_CHECKING:
    from wharfinger.server import Server

__all__ = ["FunctionCalling"]


class FunctionCalling(ABC):
    """Tools for a model API, and calls in its answers; the base class of `Host`."""

    upstreams: Upstreams
    catalogue: Catalogue

    @abstractmethod
    async def call_tool(self, name: str, arguments: Any = None, **options: Unpack[CallOptions]) -> ToolResult[Any]:
        """Call a tool by its public name, if it is approved."""

    @abstractmethod
    async def read(self, uri: str, *, server: str | None = None, timeout: float | None = None) -> ReadResult:
        """Read a resource of the server that publishes it, or of the named one."""

    @abstractmethod
    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> t.GetPromptResult:
        """Get a prompt by its public name."""

    @cached_property
    def _function_calls(self) -> FunctionCalls:
        resource_tools = HostResourceTools(
            self.catalogue, lambda uri, server, timeout: self.read(uri, server=server, timeout=timeout)
        )
        return FunctionCalls(self.upstreams, self.call_tool, resource_tools)

    async def tools(
        self, *, format: str, resources: bool = False, strict: bool = False, servers: Collection[str] | None = None
    ) -> ToolDefinitions:
        """Return the tools of all servers, or of those in `servers`, as definitions that a model API accepts.

        `format` is `openai` (Chat Completions), `openai-responses`, `anthropic` or `gemini`. Pass the list as `tools`
        to the API's client; its `dropped` reports the parts of the servers' schemas that the API does not accept. With
        `resources`, tools to list, search and read resources are added. With `strict`, the API makes sure that
        arguments match the schemas, if these can be expressed in strict mode.

        Raises:
            ValueError: there is no such format or server, or the API has no strict mode.
        """
        return await self._function_calls.define(format, resources=resources, strict=strict, servers=servers)

    async def call(
        self, tool_call: Any, format: str | None = None, **options: Unpack[AnswerOptions]
    ) -> list[dict[str, Any]]:
        """Run one tool call of a model. Returns the messages to append, usually one.

        `tool_call` is the object of the API's client, a dict, or JSON. The format is detected if it is not given. An
        error, such as wrong arguments or a user who does not approve, is a result for the model, not an exception. If
        an answer has several calls, pass it to `call_all`: APIs require their results together.

        Raises:
            ValueError: it is not one call of a known API, or `max_characters` is not positive.
            TypeError: it is neither an object of an API's client, nor a dict or JSON.
        """
        return await self._function_calls.run_answer(tool_call, format, single=True, **options)

    async def call_all(
        self, response: Any, format: str | None = None, **options: Unpack[AnswerOptions]
    ) -> list[dict[str, Any]]:
        """Run all tool calls in an answer of a model, side by side. Returns the messages to append after the answer.

        `response` is the object of the API's client, a dict, JSON, or a list of the events of a stream. The results are
        in the order of the calls. If the answer has no call, the list is empty: the model has finished.

        Raises:
            ValueError: it is not an answer of a known API, or `max_characters` is not positive.
            TypeError: it is neither an object of an API's client, nor a dict or JSON.
        """
        return await self._function_calls.run_answer(response, format, single=False, **options)

    async def run_calls(
        self, calls: Sequence[ModelToolCall], format: str, **options: Unpack[AnswerOptions]
    ) -> list[ToolOutput]:
        """Run tool calls, and return their results in order, for an application that writes the messages itself.

        `format` is the format of the definitions that the model was given. An error is a result, as in `call`.

        Raises:
            ValueError: there is no such format, or `max_characters` is not positive.
        """
        return await self._function_calls.run_calls(calls, model_api(format), **options)

    def as_server(self, name: str = "host") -> Server:
        """Return a server that offers the tools, resources and prompts of all servers, under their public names.

        It reports changes of their lists and resources. Serve it while this host is open; closing the server does not
        close the host. Tools run through `call_tool`, so `approve` is asked. A URI that several servers publish is
        listed once, and reading it raises an error that names them.
        """
        from wharfinger.host.host_server import host_server

        return host_server(self, name)
