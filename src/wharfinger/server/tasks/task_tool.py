"""A tool whose calls become tasks for clients that support tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.protocol.request import Request, input_needed
from wharfinger.server.access_control import readable_part
from wharfinger.server.features.tools import ToolFeature, ToolOptions, Tools, check_task_ttl
from wharfinger.server.signature.arguments import BadArguments
from wharfinger.server.tasks.task_channel import RunningTask
from wharfinger.server.tasks.task_extension import DeferredTask, Tasks, capture, check_declared, declares

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["TaskTool"]


class TaskTool(ToolFeature):
    """A tool registered with `task=`. `task_ttl` is in seconds, None for no limit; by default the server's.

    Raises:
        ValueError: `task` is not one of its values, or `task_ttl` is not a possible time.
    """

    __slots__ = ("_has_ttl", "_kind", "_tools", "_ttl")

    def __init__(
        self,
        services: Services,
        function: Callable[..., Any],
        options: ToolOptions,
        tools: Tools,
    ) -> None:
        task = options.get("task")
        if task not in (True, "required", "later"):
            raise ValueError(f"task={task!r}: write True, 'required' or 'later'.")
        check_task_ttl(options.get("task_ttl"))
        super().__init__(services, function, options)
        self.decode = None
        tools.serve_tasks()
        self._tools = tools
        self.answer = self._answer
        self._kind = task
        self._has_ttl, self._ttl = "task_ttl" in options, options.get("task_ttl")

    async def _answer(self, request: Request) -> Any:
        """Call the function. Returns its result, or the task that will have it.

        Raises:
            MissingClientCapability: the tool has `task="required"`, and the request does not declare the extension.
            Overloaded: there are too many tasks.
            StoreUnusable: the task cannot be stored.
        """
        tasks = self._tools.serve_tasks()  # those of the outer server, if this one is mounted
        if not declares(request.caller):
            if self._kind == "required":
                check_declared(request.caller, f"The tool {self.name!r}")
            return await self._run(tasks, request, None)
        if self._kind == "later":
            return await self._call_until_task(tasks, request)
        try:
            self.signature.decode(request.params.arguments, json_strings=self._json_strings)
        except BadArguments:  # an error needs no task
            return await self._tools.call(request, self)
        task = await tasks.begin(request, self._ttl_seconds(tasks))
        task_request = msgspec.structs.replace(request, channel=task)
        tasks.run(task, _create_runner(lambda: self._run(tasks, task_request, task)))
        return task.start_result()

    def _ttl_seconds(self, tasks: Tasks) -> float | None:
        return self._ttl if self._has_ttl else tasks.ttl

    async def _run(self, tasks: Tasks, request: Request, entry: Any) -> Any:
        """Call the function; `entry` is the value for the request in `Tasks.calls`."""
        tasks.calls[request] = entry
        try:
            while True:
                try:
                    return readable_part(request, await self._tools.call(request, self))
                except BaseException as error:
                    stop = input_needed(error)
                    if stop is None or not isinstance(request.channel, RunningTask):
                        raise
                from wharfinger.server.input.round_trips import ask_and_resume  # only with `Server(replay=True)`

                await ask_and_resume(self._services, request, stop)
        finally:
            del tasks.calls[request]

    async def _call_until_task(self, tasks: Tasks, request: Request) -> Any:
        """Call the function of a tool with `task="later"`. Returns its result, or the task that it has started."""
        deferred = DeferredTask(self._ttl_seconds(tasks))
        runner = _create_runner(lambda: self._run(tasks, request, deferred))
        try:
            await asyncio.wait((runner, deferred.started), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            runner.cancel()
            if deferred.task is None:
                await asyncio.wait((runner,))
            if deferred.task is not None:  # the client would never learn the task's id
                tasks.run(deferred.task, runner)
                deferred.task.stop("cancel")
            raise
        if deferred.task is not None:
            tasks.run(deferred.task, runner)
            return deferred.task.start_result()
        result, error = runner.result()
        if error is not None:
            raise error
        return result


def _create_runner(call: Callable[[], Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(capture(call), name="task")
