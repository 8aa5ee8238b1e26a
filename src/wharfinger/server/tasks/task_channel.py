"""One task that runs in this process: how it stands, and what its handler asks; knows nothing of clients and stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import ProtocolError
from wharfinger.protocol.jsonrpc import Message, encode
from wharfinger.protocol.request import Request
from wharfinger.types.task_extension import TaskStarted, TaskState, TaskStatus

__all__ = ["RunningTask", "TaskQuestion"]


class TaskQuestion:
    """What the client of a task is asked, as a member of `inputRequests`, and where its answer goes."""

    __slots__ = ("answer", "asked")

    def __init__(self, method: str, params: Any) -> None:
        self.asked: dict[str, Any] = {"method": method}
        if params is not UNSET:
            self.asked["params"] = Raw(encode(params))
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()


class RunningTask:
    """A task under way, and the channel of its request: questions wait here, and nothing else can be sent.

    `ttl` (seconds from now, None: for ever) is also the time within which it must be done. `changed` is called with it
    whenever it stands otherwise than before.
    """

    multiplexed = False

    def __init__(
        self,
        id: str,
        key: str,
        share: str,
        *,
        ttl: float | None,
        poll: float,
        changed: Callable[[RunningTask], None],
    ) -> None:
        self.id = id
        self.key = key
        """Its place in the store."""
        self.what = ""
        """What was called, for the log."""
        self.share = share
        """Whose share of the running tasks it uses."""
        self.created = self.updated = time.time()
        self.ttl_ms = None if ttl is None else max(1, round(ttl * 1000))
        self.poll_ms = max(1, round(poll * 1000))
        self.over: TaskStatus | None = None
        """Its final status, from when on nothing changes any more."""
        self.message = ""
        self.questions: dict[str, TaskQuestion] = {}
        """What was asked and not answered, by keys of which none is used twice."""
        self.runner: asyncio.Task[Any] | None = None
        self.why = ""
        """Why we cancelled it: `cancel`, `late`, `end`, `lost`; empty where we did not."""
        self.timer: asyncio.TimerHandle | None = None
        """Until it must be done."""
        self.telling: asyncio.TimerHandle | None = None
        """Until what changed is told."""
        self.saving = asyncio.Lock()
        self.saved: bytes | None = None
        """What the store has of it."""
        self._asked = 0
        self._changed = changed
        self._result: Raw | UnsetType = UNSET
        self._error: t.ErrorObject | UnsetType = UNSET

    # -- the channel of its request

    def send(self, request: Request, message: bytes) -> bool:
        """`Channel`: tasks have neither progress nor log messages (the extension, status notifications)."""
        return False

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message]:
        """`Channel`: put a question to the client, and wait until `tasks/update` brings its answer."""
        return self._ask(method, params)

    def detach(self, request: Request, retry_ms: int) -> bool:
        """`Channel`: a task has no connection of its own."""
        return False

    async def _ask(self, method: str, params: Any) -> Message:
        self._asked += 1
        key = f"question-{self._asked}"
        question = self.questions[key] = TaskQuestion(method, params)
        self._turn()
        try:
            return await question.answer
        finally:
            if self.questions.pop(key, None) is not None:  # the handler waits no more
                self._turn()

    def answer(self, responses: Mapping[str, Raw]) -> None:
        """Give answers to who asked; those to what is not asked, or is answered, are ignored."""
        waiting = [key for key in responses if key in self.questions]
        for key in waiting:
            future = self.questions.pop(key).answer
            if not future.done():
                future.set_result(Message("2.0", result=responses[key]))
        if waiting:
            self._turn()

    # -- how it stands

    @property
    def status(self) -> TaskStatus:
        """How it stands."""
        return self.over or ("input_required" if self.questions else "working")

    @property
    def expires(self) -> float | None:
        """When it may be forgotten, in seconds since 1970; None: never."""
        return None if self.ttl_ms is None else self.created + self.ttl_ms / 1000

    def started(self) -> TaskStarted:
        """What the call that became this task is answered."""
        return TaskStarted(result_type="task", status=self.status, **self._shared())

    def state(self) -> bytes:
        """What `tasks/get` answers, encoded."""
        asked: Any = {key: question.asked for key, question in self.questions.items()}
        final = self.over is not None
        return encode(
            TaskState(
                status=self.status,
                input_requests=asked if asked and not final else UNSET,
                result=self._result,
                error=self._error,
                **self._shared(),
            )
        )

    def _shared(self) -> dict[str, Any]:
        return {
            "task_id": self.id,
            "created_at": moment(self.created),
            "last_updated_at": moment(self.updated),
            "ttl_ms": self.ttl_ms,
            "poll_interval_ms": self.poll_ms,
            "status_message": self.message or UNSET,
        }

    def note(self, message: str) -> None:
        """Say in words how it stands, for the client's user or model."""
        message = message.encode(errors="replace").decode()  # every later answer about the task repeats it
        if self.over is None and message != self.message:
            self.message = message
            self._turn()

    def complete(self, result: Raw) -> None:
        """It is done; a result that says that the tool failed is one too."""
        self._end("completed", "")
        self._result = result

    def fail(self, error: ProtocolError) -> None:
        """Its request failed, with what would have been a JSON-RPC error."""
        self._end("failed", error.message)
        data = UNSET if error.data is None else error.data
        self._error = t.ErrorObject(code=error.code, message=error.message, data=data)

    def cancelled(self) -> None:
        """Its client wanted it no more."""
        self._end("cancelled", "")

    def _end(self, status: TaskStatus, message: str) -> None:
        self.over, self.message = status, message
        self.updated = time.time()
        for handle in (self.timer, self.telling):
            if handle is not None:
                handle.cancel()

    def _turn(self) -> None:
        if self.over is None:
            self.updated = time.time()
            self._changed(self)

    def stop(self, why: str) -> None:
        """Cancel its handler, which may still finish; nothing happens where it is over."""
        if self.over is None:
            self.why = self.why or why
            if self.runner is not None:
                self.runner.cancel()


def moment(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
