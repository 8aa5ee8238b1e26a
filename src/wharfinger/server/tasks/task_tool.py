"""A tool whose calls become tasks where their clients know tasks; loaded with the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.protocol.request import Request, input_needed
from wharfinger.server.features.tools import Tool, ToolOptions, Tools
from wharfinger.server.signature.arguments import BadArguments
from wharfinger.server.tasks.task_channel import RunningTask
from wharfinger.server.tasks.task_extension import DeferredTask, Tasks, capture, check_declared, declares

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["TaskTool"]

_SERVERS = -1.0
"""As long as the server's."""


class TaskTool(Tool):
    """A tool registered with `task=`. `task_ttl` is in seconds; absent it is the server's, None is for ever.

    Raises:
        ValueError: `task` is none of the kinds, or `task_ttl` is not more than 0.
    """

    __slots__ = ("_kind", "_tools", "_ttl")

    def __init__(
        self,
        services: Services,
        function: Callable[..., Any],
        options: ToolOptions,
        tools: Tools,
    ) -> None:
        task, task_ttl = options.get("task"), options.get("task_ttl", _SERVERS)
        if task not in (True, "required", "later"):
            raise ValueError(f"task={task!r}: write True, 'required' or 'later'.")
        if task_ttl is not None and task_ttl <= 0 and task_ttl != _SERVERS:
            raise ValueError(f"task_ttl={task_ttl!r}: write more than 0 seconds, or None.")
        super().__init__(services, function, options)
        self.decode = None
        tools.serve_tasks()
        self._tools = tools
        self.answer = self._answer
        self._kind = task
        self._ttl = task_ttl

    async def _answer(self, request: Request) -> Any:
        """Call the function: answered with its result, or with the task that will have it.

        Raises:
            MissingClientCapability: this tool is a task or nothing, and the request does not declare the extension.
            Overloaded: there are too many tasks.
        """
        tasks = self._tools.serve_tasks()  # the whole's, where the server has become a part of another
        if not declares(request.caller):
            if self._kind == "required":
                check_declared(request.caller, f"The tool {self.name!r}")
            return await self._run(tasks, request, None)
        if self._kind == "later":
            return await self._call_first(tasks, request)
        try:
            self.signature.decode(request.params.arguments, json_strings=self._json_strings)
        except BadArguments:  # which needs no task to be told
            return await self._tools.call(request, self)
        task = await tasks.begin(request, self._seconds(tasks))
        inside = msgspec.structs.replace(request, channel=task)
        tasks.run(task, _begin(lambda: self._run(tasks, inside, task)))
        return task.started()

    def _seconds(self, tasks: Tasks) -> float | None:
        return tasks.ttl if self._ttl == _SERVERS else self._ttl

    async def _run(self, tasks: Tasks, request: Request, state: Any) -> Any:
        """Call the function, for which `state` says whether it is a task."""
        tasks.calls[request] = state
        try:
            while True:
                try:
                    return await self._tools.call(request, self)
                except BaseException as error:
                    stop = input_needed(error)
                    if stop is None or not isinstance(request.channel, RunningTask):
                        raise
                from wharfinger.server.input.round_trips import (
                    ask_and_resume,  # `Server(replay=True)`: nobody else sends it again
                )

                await ask_and_resume(self._services, request, stop)
        finally:
            del tasks.calls[request]

    async def _call_first(self, tasks: Tasks, request: Request) -> Any:
        """Call the function, until it is done or says that it goes on as a task."""
        pending = DeferredTask(self._seconds(tasks))
        runner = _begin(lambda: self._run(tasks, request, pending))
        try:
            await asyncio.wait((runner, pending.started), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            runner.cancel()
            if pending.task is not None:  # nobody will ever know its id
                tasks.run(pending.task, runner)
                pending.task.stop("cancel")
            else:
                await asyncio.wait((runner,))
            raise
        if pending.task is not None:
            tasks.run(pending.task, runner)
            return pending.task.started()
        result, error = runner.result()
        if error is not None:
            raise error
        return result


def _begin(call: Callable[[], Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(capture(call), name="task")
