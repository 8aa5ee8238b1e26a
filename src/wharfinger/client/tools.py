"""The facts about listed tools that their calls depend on, as a client remembers them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from wharfinger import types as t
from wharfinger.client.calls import Call
from wharfinger.client.connect import Connection, Negotiated
from wharfinger.client.output_schemas import OutputSchemas
from wharfinger.client.results import text_of
from wharfinger.client.retry_step import RetryStep
from wharfinger.client.task_polling import CALL_AS_TASK, TaskTools
from wharfinger.errors import HeaderMismatch, RemoteError, RemoteMethodNotFound, WharfingerError
from wharfinger.protocol.http.headers import InvalidHeaderAnnotation, find_header_params

__all__ = ["KnownTools"]

log = logging.getLogger("wharfinger.client")

MAX_HEADER_TOOLS = 10_000
"""The maximum number of tools with remembered header params; the server refuses calls of others that need headers."""

ListAgain = Callable[[], Awaitable[list[t.Tool]]]
"""Lists the tools again, which calls `learn`."""


class KnownTools:
    """Remembers which listed tools are called as tasks or may be called twice, and their header params and schemas."""

    def __init__(self, retry: RetryStep, *, tasks: bool, validate: bool) -> None:
        """With `tasks`, tools that allow tasks are called as tasks. With `validate`, results are checked."""
        self._retry = retry
        self._tasks = TaskTools(optional=tasks)
        self.as_tasks = self._tasks.as_tasks
        """Tools that are called as tasks (2025-11-25)."""
        self.schemas = OutputSchemas() if validate else None
        self._link: Connection | None = None
        """The last connection, which may be lost: a list may come from the cache."""

    def connection_made(self, link: Connection) -> None:
        """Forget which tools to call as tasks: the previous connection may have been to another server."""
        self._link = link
        self.as_tasks.clear()

    def learn(self, tools: list[t.Tool], agreed: Negotiated) -> list[t.Tool]:
        """Remember the tools that the server lists. Returns those that can be called.

        Over stateless HTTP a tool with an invalid `x-mcp-header` is left out (2026-07-28, tools).
        """
        link = self._link
        assert link is not None
        self._retry.learn(tools)
        if TaskTools.supported(agreed):
            self._tasks.learn(tools)
        usable: list[t.Tool] = []
        for tool in tools:
            if link.header_params is not None and agreed.rules.era == "stateless":
                try:
                    header_params = find_header_params(tool.input_schema)
                except InvalidHeaderAnnotation as error:
                    log.warning("%s: left out the tool %.200r: %s", link.name, tool.name, error)
                    continue
                link.header_params.pop(tool.name, None)
                if header_params and len(link.header_params) < MAX_HEADER_TOOLS:
                    link.header_params[tool.name] = header_params
            usable.append(tool)
            if self.schemas is not None:
                self.schemas.learn(tool)
        return usable

    async def was_called_wrongly(
        self, call: Call, failure: RemoteError | t.CallToolResult, agreed: Negotiated, list_again: ListAgain
    ) -> bool:
        """Return whether a call failed because its tool must be called in another way; lists the tools again to see.

        In this case the tool did nothing. Its arguments must be repeated in headers (2026-07-28, x-mcp-header), or it
        must be called as a task, or without a task (2025-11-25, tasks: -32601). Some servers report that in a result,
        whose text shows whether it may help to list the tools again.
        """
        name, was_task = call.params.name, call.row is CALL_AS_TASK
        if isinstance(failure, RemoteError):
            if failure.code == HeaderMismatch.code and self._link is not None and self._link.header_params is not None:
                return await _listed(list_again) is not None
            if not isinstance(failure, RemoteMethodNotFound):
                return False
        elif was_task or "task" not in text_of(failure).lower():
            return False
        if not TaskTools.supported(agreed) or await _listed(list_again) is None:
            return False
        return name not in self.as_tasks if was_task else self.as_tasks.get(name, False)

    async def check_again(self, name: str, result: t.CallToolResult, list_again: ListAgain) -> None:
        """List the tools again, and check a result once more that did not match the output schema of its tool.

        The server may have changed the schema since it was listed, for example in a restart, which stateless HTTP does
        not show by a lost connection.

        Raises:
            InvalidResponse: it does not match the current schema, or the tools cannot be listed.
        """
        assert self.schemas is not None
        tools = await _listed(list_again)
        if tools is not None and all(tool.name != name for tool in tools):
            self.schemas.by_tool.pop(name, None)
        self.schemas.check(name, result)


async def _listed(list_again: ListAgain) -> list[t.Tool] | None:
    """List the tools again. Returns None if that fails: the caller then reports the failure of the call itself."""
    try:
        return await list_again()
    except WharfingerError as error:
        log.debug("the tools cannot be listed again: %s", error)
        return None
