"""Calls that are sent as tasks (2025-11-25): which tools want that, polling, progress, and the result; opens nothing.

The extension of 2026-07-28 is in `asked_back`: there the server decides what becomes a task.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.client.calls import Budget
from wharfinger.client.multi_round import CANCELLED, open_any, pause
from wharfinger.errors import InvalidResponse, RemoteError
from wharfinger.protocol.client_peer import TASK_PROGRESS
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import METHODS, Method
from wharfinger.protocol.request import open_result
from wharfinger.types import tasks

__all__ = ["CANCEL", "TaskCalls", "as_task", "drive_task_call", "started_in"]

_ONLY: dict[str, Any] = {"first": "2025-11-25", "last": "2025-11-25"}
_CALL = METHODS["tools/call"]
_STARTED = Method("tools/call", "client", t.CallToolRequestParams, tasks.CreateTaskResult, **_ONLY)
GET = Method("tasks/get", "client", tasks.GetTaskRequestParams, tasks.GetTaskResult, **_ONLY)
RESULT = Method("tasks/result", "client", tasks.GetTaskPayloadRequestParams, t.CallToolResult, **_ONLY)
CANCEL = Method("tasks/cancel", "client", tasks.CancelTaskRequestParams, tasks.CancelTaskResult, **_ONLY)
"""Not in the table of methods: the extension of 2026-07-28 has other params under the same names."""

MOST_TOOLS = 10_000
"""Tools that are remembered as wanting tasks; a call of another one is refused first, and then sent as a task."""

_decode_progress = msgspec.json.Decoder(t.ProgressNotificationParams).decode
_decode_status = msgspec.json.Decoder(tasks.TaskStatusNotificationParams).decode


class TaskCalls:
    """Which tools of a server want to be called as tasks, and who follows the tasks that are under way."""

    __slots__ = ("_changed", "_optional", "_progress", "_tokens", "_wanted")

    def __init__(self, optional: bool) -> None:
        """`optional`: tools that may be called as tasks are, not only those that must."""
        self._optional = optional
        self._wanted: dict[str, bool] = {}
        self._tokens = count(1)
        self._progress: dict[str, Callable[[Message], None]] = {}
        self._changed: dict[str, asyncio.Event] = {}

    def wants(self, tool: str) -> bool:
        """Whether this tool is to be called as a task."""
        return tool in self._wanted

    def requires(self, tool: str) -> bool:
        """Whether this tool cannot be called otherwise."""
        return self._wanted.get(tool, False)

    def learn(self, tools: Iterable[t.Tool]) -> None:
        """Take what a list says of its tools."""
        for tool in tools:
            support = UNSET if isinstance(tool.execution, UnsetType) else tool.execution.task_support
            if support == "required" or (self._optional and support == "optional"):
                if len(self._wanted) < MOST_TOOLS or tool.name in self._wanted:
                    self._wanted[tool.name] = support == "required"
            else:
                self._wanted.pop(tool.name, None)

    def forget(self) -> None:
        """There is another connection, perhaps to another server."""
        self._wanted.clear()

    @contextmanager
    def progress(self, take: Callable[[Message], None] | None) -> Generator[str | UnsetType]:
        """A progress token, whose notifications go to `take` as long as the block runs; UNSET if nobody takes them.

        The token outlives the request: progress goes on after a call was answered with its task.
        """
        if take is None:
            yield UNSET
            return
        token = f"{TASK_PROGRESS}{next(self._tokens)}"
        self._progress[token] = take
        try:
            yield token
        finally:
            del self._progress[token]

    @contextmanager
    def following(self, task_id: str) -> Generator[asyncio.Event]:
        """An event that is set when the server says that the task has changed, as long as the block runs."""
        event = self._changed[task_id] = asyncio.Event()
        try:
            yield event
        finally:
            self._changed.pop(task_id, None)

    def take(self, message: Message) -> None:
        """Take a notification that belongs to no request: perhaps it belongs to a task."""
        if isinstance(message.params, UnsetType):
            return
        try:
            if message.method == "notifications/progress" and self._progress:
                take = self._progress.get(str(_decode_progress(message.params).progress_token))
                if take is not None:
                    take(message)
            elif message.method == "notifications/tasks/status" and self._changed:
                changed = self._changed.get(_decode_status(message.params).task_id)
                if changed is not None:
                    changed.set()
        except msgspec.MsgspecError:
            return


def as_task(params: t.CallToolRequestParams, token: str | UnsetType, most: float) -> t.CallToolRequestParams:
    """The params of a call that is to become a task, which need not be kept for longer than `most` seconds."""
    return msgspec.structs.replace(
        params,
        task=t.TaskMetadata(ttl=UNSET if most == math.inf else max(1, int(most * 1000))),
        meta=UNSET if isinstance(token, UnsetType) else t.RequestMeta(progress_token=token),
    )


def started_in(raw: Raw) -> tasks.Task | t.CallToolResult:
    """The task that a call became, or its result if the server answered at once.

    Raises:
        InvalidResponse: it is neither.
    """
    try:
        started: tasks.CreateTaskResult = open_result(_STARTED, raw)
    except InvalidResponse as error:
        try:
            result: t.CallToolResult = open_any(_CALL, raw, stateless=False)
        except InvalidResponse:
            raise error from None
        return result
    return started.task


async def drive_task_call(
    task: tasks.Task,
    changed: asyncio.Event,
    budget: Budget,
    send: Callable[[Method, Any, bool], Awaitable[Raw]],
) -> t.CallToolResult:
    """Wait for a task: poll it as often as its server wants, and fetch the result.

    `send` sends a request; its last argument says whether the answer may take as long as the task. That is so for
    `tasks/result` while input is required: the server puts its questions meanwhile, and answers when the task is done
    (2025-11-25, tasks: input required status).

    Raises:
        InvalidResponse: what the server says of the task breaks the protocol.
        RemoteError: the task failed, or was cancelled at the server.
    """
    state: tasks.Task = task
    while state.status == "working":
        await _changed_within(changed, pause(state.poll_interval, budget))
        changed.clear()  # before the question: a notice may come together with the answer to it
        state = open_result(GET, await send(GET, tasks.GetTaskRequestParams(task_id=task.task_id), False))
        if state.task_id != task.task_id:
            raise InvalidResponse("The server told of another task than the one it was asked for.")
    if state.status == "cancelled":
        raise RemoteError(CANCELLED, "The server cancelled the task of this tools/call.")
    wanted = tasks.GetTaskPayloadRequestParams(task_id=task.task_id)
    raw = await send(RESULT, wanted, state.status == "input_required")
    result: t.CallToolResult = open_any(_CALL, raw, stateless=False)
    return result


async def _changed_within(changed: asyncio.Event, seconds: float) -> None:
    """Wait until the server says that the task has changed, or for so long."""
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return
