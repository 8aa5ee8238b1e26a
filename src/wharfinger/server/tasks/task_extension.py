"""The extension `io.modelcontextprotocol/tasks`: calls that are answered at once and continue as tasks.

The life of a task: `begin` writes it to the store, and only then is its call answered with the task's id. `run` lets
the handler continue in its own asyncio task; questions wait in the `RunningTask` (see `task_channel`). Changes
are written and sent to listeners, several within 50 ms as one. `_finish` writes the result and removes the task
from memory; `tasks/get` reads it from the store until its `ttl` is over.

Several processes may share a store. Each runs its own tasks, and reports those of the others from the store. Answers
and cancellations for a task of another process go through that process's inbox in the store, which it reads with
every heartbeat. The heartbeat also renews a lease: if the lease of a process has expired, the next look-up of one of
its tasks marks that task as failed. Every write compares with the last known value, so that only one of two
processes can succeed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import (
    HandlerFailed,
    InternalError,
    InvalidParams,
    MissingClientCapability,
    Overloaded,
    StoreUnusable,
)
from wharfinger.protocol import subscriptions
from wharfinger.protocol.interfaces import Access, Store
from wharfinger.protocol.jsonrpc import encode, encode_error
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import (
    Caller,
    Request,
    failure_text,
    name_of_call,
    to_protocol_error,
    tool_failure,
)
from wharfinger.protocol.shares import Shares
from wharfinger.server.owners import share_owner_of
from wharfinger.server.tasks.task_channel import RunningTask, format_time
from wharfinger.transports.background import BackgroundTasks
from wharfinger.types.task_extension import EXTENSION

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["DeferredTask", "Tasks", "check_declared", "declares"]

log = logging.getLogger("wharfinger.server.tasks.task_extension")

COALESCE_SECONDS = 0.05
"""Changes of one task within this time become one notification and one write."""
MIN_KEPT_SECONDS = 300.0
"""The minimum time that a result is kept, even if the task took nearly all of its `ttl`."""
GRACE_SECONDS = 60.0
"""How long the store keeps a running task beyond its `ttl`, so that clients find its failure."""
LEASE_SECONDS = 15.0
"""A process without a heartbeat for this long counts as dead, and its tasks as failed."""
HEARTBEAT_SECONDS = 1.0
"""How often a process reads its inbox, and the tasks of other processes that its clients listen to."""
MAX_INBOX_MESSAGES = 1000
"""The maximum number of messages in the inbox of one process."""
MAX_INBOX_BYTES = 64 * 1024 * 1024
"""The maximum size in bytes of the messages in the inbox of one process."""
MAX_ID_CHARACTERS = 64
"""The maximum number of characters of a task id that are used to look it up; the server's own ids have 32."""

STOPPED = "The server stopped before the task was finished: call the tool again."

_TASKS_PREFIX, _WORKERS_PREFIX, _INBOX_PREFIX = "tasks/", "task-workers/", "task-inbox/"


class TaskListener(Protocol):
    """Receives the notifications of a principal's tasks."""

    @property
    def principal(self) -> Principal: ...

    def send(self, message: Callable[[subscriptions.Tag], bytes]) -> bool: ...


class Record(msgspec.Struct, kw_only=True):
    """A task in the store. `worker` is the process that runs it; empty after the task has ended."""

    worker: str
    state: Raw
    tool: str = ""
    """The name of the tool as its caller knows it, by which the policy decides."""


class _CalledTool(msgspec.Struct):
    """The name of a tool in the params that the client sent."""

    name: str


class TaskMessage(msgspec.Struct, kw_only=True):
    """A message to the process that runs a task: answers to its questions, or None to cancel it."""

    key: str
    responses: dict[str, Raw] | None = None


class DeferredTask:
    """A call whose function decides whether and when it becomes a task (`task="later"`)."""

    __slots__ = ("lock", "started", "task", "ttl")

    def __init__(self, ttl: float | None) -> None:
        self.ttl = ttl
        self.task: RunningTask | None = None
        self.lock = asyncio.Lock()
        """Held while the task begins, so that concurrent calls of `start_task` begin only one."""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()


_decode_record = msgspec.json.Decoder(Record).decode
_decode_message = msgspec.json.Decoder(TaskMessage).decode


def declares(caller: Caller) -> bool:
    """Return whether a call may be answered with a task: its revision has tasks and it declares the extension."""
    extensions = caller.capabilities.extensions
    return caller.rules.server_makes_tasks and extensions is not UNSET and EXTENSION in extensions


def check_declared(caller: Caller, feature: str) -> None:
    """Raise MissingClientCapability if the request does not declare the extension."""
    if not declares(caller):
        message = (
            f"{feature} needs a client of 2026-07-28 or later that declares the extension {EXTENSION} in its request."
        )
        raise MissingClientCapability({"extensions": {EXTENSION: {}}}, message)


class Tasks:
    """The tasks of one server, and the handlers of the extension's methods.

    A task is found by principal and id; the tasks of other principals are not found. `ttl` and `poll` are in seconds.
    """

    def __init__(self, services: Services, store: Store, *, ttl: float | None = 3600.0, poll: float = 1.0) -> None:
        self.store = store
        self.ttl = ttl
        self.poll = poll
        self.worker = secrets.token_hex(8)
        """The id of this process in the store."""
        self.lease_seconds = LEASE_SECONDS
        self.heartbeat_seconds = HEARTBEAT_SECONDS
        self.running: dict[str, RunningTask] = {}
        """The tasks of this process, by their keys in the store."""
        self.calls: dict[Request, DeferredTask | RunningTask | None] = {}
        """The running calls of `TaskTool`s; the value is None if the client does not know tasks."""
        self._services = services
        self._shares = Shares()
        self._listeners: dict[str, dict[TaskListener, None]] = {}
        """The listeners of each task, by its key in the store."""
        self._tools: dict[str, str] = {}
        """The tool of each task that has listeners, as its caller knows it."""
        self._keys_by_listener: dict[TaskListener, set[str]] = {}
        self._last_sent: dict[str, bytes] = {}
        """The last state that was sent, for each task of another process."""
        self._jobs = BackgroundTasks(report_failures=True)
        self._heartbeat_task: asyncio.Task[Any] | None = None
        self._lease_renewed = 0.0
        self._ending = False

    # -- starting tasks

    @property
    def running_count(self) -> int:
        """The number of tasks that run."""
        return len(self.running)

    async def begin(self, request: Request, ttl: float | None) -> RunningTask:
        """Make a task for this request and write it to the store. Nothing runs yet.

        Raises:
            Overloaded: too many tasks run or are stored, their results are too large, or the server is stopping.
            StoreUnusable: it cannot be stored.
        """
        owner, limits = share_owner_of(request), self._services.limits
        if self._ending:
            raise Overloaded("The server is stopping.")
        if self._shares[owner] >= limits.tasks_each or not self._shares.has_room(owner, limits.tasks):
            raise Overloaded("Too many tasks are running: wait for one, or cancel one.")
        id = secrets.token_urlsafe(24)  # 192 random bits
        folder = _folder(request.caller.principal.key)
        task = RunningTask(id, folder + id, owner, ttl=ttl, poll=self.poll, changed=self._changed)
        if request.access is not None:  # the params have the tool's own name, if its server is mounted
            task.tool = msgspec.json.decode(request.raw_params, type=_CalledTool).name
        task.call_name = name_of_call(request)
        self.running[task.key] = task
        self._shares.add(owner)
        try:
            await self._check_room(folder, 1, 0)
            await self._renew_lease()
            await self._save(task)
        except BaseException:
            self._forget(task)
            self._jobs.start(self._delete(task))
            raise
        if ttl is not None:
            task.timer = asyncio.get_running_loop().call_later(ttl, task.stop, "late")
        return task

    async def _check_room(self, folder: str, tasks: int, size: int) -> None:
        """Raise Overloaded if the store has no room for more tasks or bytes. One principal may use half of it."""
        limits = self._services.limits
        for prefix, divisor in ((_TASKS_PREFIX, 1), (folder, 2)):
            number, bytes_kept = await self.store.usage(prefix)
            if tasks and (number + tasks) * divisor > limits.tasks_kept:
                raise Overloaded("Too many tasks are stored: try again when some have expired.")
            if (bytes_kept + size) * divisor > limits.task_results:
                raise Overloaded("The stored results of tasks are too large: try again when some have expired.")

    def run(self, task: RunningTask, runner: asyncio.Task[Any]) -> None:
        """Start the task with `runner`, the asyncio task that runs `capture`."""
        task.runner = runner
        runner.add_done_callback(lambda done: self._jobs.start(self._finish(task, done)))
        if task.stop_reason:  # it was stopped in the meantime, for example by the end of the server
            runner.cancel()
        self._start_heartbeat()

    async def start_deferred(self, request: Request) -> bool:
        """Turn the call of a tool with `task="later"` into a task. Returns False if the client does not know tasks.

        Raises:
            Overloaded, StoreUnusable: as for `begin`.
            RuntimeError: the tool is not registered with `task=`.
        """
        try:
            deferred = self.calls[request]
        except KeyError:
            raise RuntimeError('Register the tool with task="later" to start tasks in it.') from None
        if isinstance(deferred, DeferredTask):
            async with deferred.lock:
                if deferred.task is None:
                    task = await self.begin(request, deferred.ttl)
                    deferred.task = self.calls[request] = request.channel = task
                    deferred.started.set_result(None)
        return deferred is not None

    def set_message(self, request: Request, message: str) -> None:
        """Set the `statusMessage` of a request's task. Does nothing if the request has none."""
        task = self.calls.get(request)
        if isinstance(task, RunningTask):
            task.set_message(message)

    # -- ending tasks

    async def _finish(self, task: RunningTask, runner: asyncio.Task[Any]) -> None:
        if task.final_status is not None:  # `end` has stopped waiting for it
            return
        result, error = (None, asyncio.CancelledError()) if runner.cancelled() else runner.result()
        if error is None:
            error = await self._complete_with(task, result)
        if error is not None:
            self._end_with(task, error)
        if task.ttl_ms is not None:
            task.ttl_ms = max(task.ttl_ms, round((task.updated - task.created + MIN_KEPT_SECONDS) * 1000))
        state = task.state()
        try:
            if not await self._save(task) and (record := await self._load(task.key)) is not None:
                state = bytes(record.state)  # another process has ended it, and clients may know that
        except StoreUnusable:
            log.exception("The end of a task could not be stored: only this process knows it")
            asyncio.get_running_loop().call_later(MIN_KEPT_SECONDS, self._forget, task)
        else:
            self._forget(task)
        self._notify(task.key, state)
        self._remove_listeners(task.key)

    async def _complete_with(self, task: RunningTask, result: Any) -> BaseException | None:
        """End the task with a result. Returns the error if the result cannot be sent, or has no room in the store."""
        try:
            body = _encode_result(result)
            limit = self._services.limits.task_result
            if len(body) > limit:
                raise InternalError(f"The task's result has {len(body)} bytes, the limit is {limit}.")
            with suppress(StoreUnusable):  # `_save` reports it
                await self._check_room(task.key.removesuffix(task.id), 0, len(body))
        except Exception as error:
            return error
        task.complete(Raw(body))
        return None

    def _end_with(self, task: RunningTask, error: BaseException) -> None:
        if task.stop_reason == "cancel":
            task.end_cancelled()
        elif task.stop_reason == "late":
            task.fail(InternalError(f"The task did not finish within {(task.ttl_ms or 0) / 1000:g} s."))
        elif task.stop_reason:
            task.fail(InternalError(STOPPED))
        else:
            reference = os.urandom(4).hex()
            answer = to_protocol_error(error, reference)
            if answer is not error:
                log.error("%s", failure_text(f"The task of {task.call_name}", error, reference), exc_info=error)
            if isinstance(answer, HandlerFailed):  # a result: only protocol errors fail a task
                task.complete(Raw(_encode_result(tool_failure(answer))))
                return
            try:
                encode_error(None, answer)
            except Exception:  # an author's message or data cannot be encoded
                log.exception("The error of a task cannot be sent (reference %s)", reference)
                answer = to_protocol_error(RuntimeError(), reference)
            task.fail(answer)

    async def _delete(self, task: RunningTask) -> None:
        with suppress(StoreUnusable):  # a task with a `ttl` expires by itself
            await self.store.delete(task.key)

    def _forget(self, task: RunningTask) -> None:
        if self.running.pop(task.key, None) is not None:
            self._shares.add(task.owner, -1)

    def _changed(self, task: RunningTask) -> None:
        if task.notify_timer is None:
            task.notify_timer = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._publish, task)

    def _publish(self, task: RunningTask) -> None:
        task.notify_timer = None
        self._notify(task.key, task.state())
        self._jobs.start(self._save_quietly(task))

    async def _save_quietly(self, task: RunningTask) -> None:
        try:
            await self._save(task)
        except StoreUnusable:
            log.exception("A change of a task could not be stored")

    async def _save(self, task: RunningTask) -> bool:
        """Write the task to the store. Returns False if another process has ended it."""
        async with task.save_lock:
            worker = "" if task.final_status else self.worker
            value = encode(Record(worker=worker, state=Raw(task.state()), tool=task.tool))
            expires = task.expires
            if expires is not None and task.final_status is None:
                expires += GRACE_SECONDS
            if await self.store.put(task.key, value, expires=expires, instead_of=task.stored):
                task.stored = value
                return True
        if not task.ended_by_other:
            task.ended_by_other = True
            log.warning(
                "Another process marked a task as failed, because this one had no heartbeat for %g s",
                self.lease_seconds,
            )
            task.stop("lost")
        return False

    # -- the methods

    async def get(self, request: Request) -> Raw:
        """Serve `tasks/get`.

        Raises:
            MissingClientCapability: the request does not declare the extension.
            InvalidParams: this caller has no such task, or it has expired.
            StoreUnusable: the store cannot be read.
        """
        task, record = await self._find(request)
        if task is None:
            return record.state
        if task.final_status is not None:
            async with task.save_lock:  # report the end only after it is stored
                pass
        if task.ended_by_other and (stored := await self._load(task.key)) is not None:
            return stored.state
        return Raw(task.state())

    async def update(self, request: Request) -> t.EmptyResult:
        """Serve `tasks/update`: pass answers to the task.

        Raises what `get` raises, and Overloaded if the process that runs the task has too many messages to handle.
        """
        task, record = await self._find(request)
        if task is not None:
            task.answer(request.params.input_responses)
        elif record.worker:
            await self._forward(request, record.worker, request.params.input_responses)
        return t.EmptyResult()

    async def cancel(self, request: Request) -> t.EmptyResult:
        """Serve `tasks/cancel`. A task that has ended stays as it is. Raises what `update` raises."""
        task, record = await self._find(request)
        if task is not None:
            task.stop("cancel")
        elif record.worker:
            await self._forward(request, record.worker, None)
        return t.EmptyResult()

    async def _find(self, request: Request) -> tuple[RunningTask | None, Record]:
        """Return the task of a request, or None and its record in the store if this process does not run it."""
        check_declared(request.caller, request.method)
        key = _key(request.caller.principal.key, request.params.task_id)
        task = self.running.get(key)
        record = await self._load(key) if task is None else _RUNS_HERE
        if record is None or not _may_know(request.access, record.tool if task is None else task.tool):
            raise InvalidParams("There is no such task, or it has expired.")
        return task, record

    async def _load(self, key: str) -> Record | None:
        """Return a task from the store, or None. If its process has died, the task is marked as failed first."""
        while (value := await self.store.get(key)) is not None:
            record = _decode_record(value)
            if not record.worker:
                return record
            if record.worker != self.worker and await self.store.get(_WORKERS_PREFIX + record.worker) is not None:
                return record  # its process is alive
            task = self.running.get(key)
            if task is not None:  # this process has started the task in the meantime
                return Record(worker=self.worker, state=Raw(task.state()), tool=task.tool)
            failed, expires = _failed_record(record)
            if await self.store.put(key, encode(failed), expires=expires, instead_of=value):
                return failed
        return None

    # -- several processes

    async def _renew_lease(self) -> None:
        """Renew the lease of this process, if the store is shared and a third of the lease is over."""
        now = time.time()
        if self.store.shared and now >= self._lease_renewed + self.lease_seconds / 3:
            await self.store.put(_WORKERS_PREFIX + self.worker, b"", expires=now + self.lease_seconds)
            self._lease_renewed = now

    async def _forward(self, request: Request, worker: str, responses: dict[str, Raw] | None) -> None:
        key = _key(request.caller.principal.key, request.params.task_id)
        message_key = f"{_INBOX_PREFIX}{worker}/{time.time_ns():020}{secrets.token_hex(4)}"
        message = encode(TaskMessage(key=key, responses=responses))
        waiting, size = await self.store.usage(f"{_INBOX_PREFIX}{worker}/")
        if waiting >= MAX_INBOX_MESSAGES or size + len(message) > MAX_INBOX_BYTES:
            raise Overloaded("The process that runs this task has too many messages to handle: try again later.")
        await self.store.put(message_key, message, expires=time.time() + self.lease_seconds + GRACE_SECONDS)

    def _start_heartbeat(self) -> None:
        if self.store.shared and (self._heartbeat_task is None or self._heartbeat_task.done()):
            self._heartbeat_task = asyncio.get_running_loop().create_task(self._run_heartbeat())

    async def _run_heartbeat(self) -> None:
        """Renew the lease, read the inbox and poll tasks of other processes, while tasks run or have listeners."""
        while self.running or self._listeners:
            try:
                if self.running:
                    await self._renew_lease()
                    for message_key, value in await self.store.scan(f"{_INBOX_PREFIX}{self.worker}/"):
                        await self.store.delete(message_key)
                        message = _decode_message(value)
                        task = self.running.get(message.key)
                        if task is None:
                            continue
                        if message.responses is None:
                            task.stop("cancel")
                        else:
                            task.answer(message.responses)
                for key in tuple(self._listeners):
                    await self._poll(key)
            except StoreUnusable as error:
                log.warning("%s", error)
            except Exception:  # without a heartbeat, other processes would mark every task of this one as failed
                log.exception("The heartbeat of tasks failed once, and continues")
            await asyncio.sleep(min(self.heartbeat_seconds, self.lease_seconds / 3))

    async def _poll(self, key: str) -> None:
        """Notify listeners of a task of another process, if it has changed."""
        if key in self.running:
            return
        record = await self._load(key)
        state = None if record is None else bytes(record.state)
        if state is not None and state != self._last_sent.get(key) and key in self._listeners:
            self._last_sent[key] = state
            self._notify(key, state)
        if record is None or not record.worker:
            self._remove_listeners(key)

    # -- listeners

    async def watch(self, request: Request, listener: TaskListener, ids: list[str]) -> list[str]:
        """Notify `listener` of changes of those tasks in `ids` that are the caller's. Returns their ids.

        Raises:
            MissingClientCapability: the request does not declare the extension.
        """
        check_declared(request.caller, "Listening to tasks")
        watched: list[str] = []
        for id in ids:
            key = _key(request.caller.principal.key, id)
            task_or_record = self.running.get(key) or await self._load(key)
            if task_or_record is not None and _may_know(request.access, task_or_record.tool):
                watched.append(id)
                self._tools[key] = task_or_record.tool
                self._listeners.setdefault(key, {})[listener] = None
                self._keys_by_listener.setdefault(listener, set()).add(key)
        return watched

    async def catch_up(self, listener: TaskListener) -> None:
        """Send a listener the current state of its tasks, because tasks that have ended will not change any more."""
        for key in tuple(self._keys_by_listener.get(listener, ())):
            if key in self.running:
                _send_state(listener, self.running[key].state())
            elif (record := await self._load(key)) is not None:
                self._last_sent[key] = bytes(record.state)
                _send_state(listener, self._last_sent[key])
                if not record.worker:
                    self._remove_listeners(key, listener)
        if listener in self._keys_by_listener:
            self._start_heartbeat()

    def unwatch(self, listener: TaskListener) -> None:
        """Stop notifying a listener."""
        for key in tuple(self._keys_by_listener.get(listener, ())):
            self._remove_listeners(key, listener)

    def _remove_listeners(self, key: str, *listeners: TaskListener) -> None:
        """Remove these listeners of a task, or all."""
        listening = self._listeners.get(key, {})
        for listener in listeners or tuple(listening):
            listening.pop(listener, None)
            keys = self._keys_by_listener.get(listener, set())  # missing if the task has ended already
            keys.discard(key)
            if not keys:
                self._keys_by_listener.pop(listener, None)
        if not listening:
            self._listeners.pop(key, None)
            self._last_sent.pop(key, None)
            self._tools.pop(key, None)

    def _notify(self, key: str, state: bytes) -> None:
        for listener in tuple(self._listeners.get(key, ())):
            access = self._services.access_of(listener.principal)
            if _may_know(access, self._tools.get(key, "")):
                _send_state(listener, state)

    # -- lifecycle

    async def begin_serving(self) -> None:
        """Open the store, so that its errors are reported when the server starts.

        Raises:
            StoreUnusable: it cannot be opened.
        """
        self.resume()
        await self.store.usage(_TASKS_PREFIX)

    def drain(self) -> None:
        """Refuse new tasks."""
        self._ending = True

    def resume(self) -> None:
        """Accept new tasks again."""
        self._ending = False

    async def end(self) -> None:
        """Let tasks finish within `Limits.drain` seconds, cancel the rest, and store how they ended."""
        self._ending = True
        seconds = self._services.limits.drain
        for task in self.running.values():
            if task.questions:  # they will not be answered in time
                task.stop("end")
        for _ in range(2):  # first wait for the results, then for the handlers that were cancelled
            runners = {task.runner for task in self.running.values() if task.runner is not None}
            if runners:
                await asyncio.wait(runners, timeout=seconds)
            for task in self.running.values():
                if not _has_returned(task):
                    task.stop("end")
        for task in tuple(self.running.values()):
            if task.final_status is None and not _has_returned(task):  # the handler ignores its cancellation
                self._end_with(task, asyncio.CancelledError())
                await self._save_quietly(task)
                self._forget(task)
        await asyncio.sleep(0)  # the callbacks of the last runners start `_finish`
        await self._jobs.finished()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait((self._heartbeat_task,))
            self._heartbeat_task = None
        if self._lease_renewed:
            self._lease_renewed = 0.0
            with suppress(StoreUnusable):  # it expires by itself
                await self.store.delete(_WORKERS_PREFIX + self.worker)
        await self.store.close()


async def capture(call: Callable[[], Awaitable[Any]]) -> tuple[Any, BaseException | None]:
    """Return the result of a call, or its exception: `sys.exit()` in a task must not end the event loop."""
    try:
        return await call(), None
    except BaseException as error:
        return None, error


def _has_returned(task: RunningTask) -> bool:
    """Return whether the handler has ended, so that `_finish` stores how."""
    return task.runner is not None and task.runner.done()


def _encode_result(result: Any) -> bytes:
    """Encode the result of a call, with the `resultType` that every result of the stateless era has."""
    kind = getattr(result, "result_type", UNSET)
    if kind is not UNSET and kind != "complete":
        raise TypeError(f"a task ended with a result of the type {kind!r}")
    body = bytes(result) if type(result) is Raw else encode(result)
    if kind is not UNSET:
        return body
    return b'{"resultType":"complete"%b%b' % (b"" if body == b"{}" else b",", body[1:])


def _may_know(access: Access | None, tool: str) -> bool:
    """Return whether a caller may learn of a task. `tool` is empty if the server had no policy when the task began."""
    return access is None or access.allows("call", f"tool:{tool}")


def _send_state(listener: TaskListener, state: bytes) -> None:
    try:
        listener.send(lambda tag: subscriptions.task_changed(state, tag))
    except Exception:  # it must not stop the other listeners
        log.exception("A listener could not be notified of a task")


def _folder(principal_key: str) -> str:
    """Return the prefix, in the store, of the keys of one principal's tasks."""
    import hashlib

    return f"{_TASKS_PREFIX}{hashlib.sha256(principal_key.encode()).hexdigest()[:32]}/"


def _key(principal_key: str, id: str) -> str:
    return _folder(principal_key) + id[:MAX_ID_CHARACTERS]


_RUNS_HERE = Record(worker="", state=Raw(b"{}"))
"""A placeholder for the record of a task of this process, which is not read from the store."""


def _failed_record(record: Record) -> tuple[Record, float | None]:
    """Return the record of a task whose process has died, with the status `failed`, and when it expires."""
    state = msgspec.json.decode(record.state)
    state.pop("inputRequests", None)
    now = time.time()
    state |= {
        "status": "failed",
        "statusMessage": STOPPED,
        "lastUpdatedAt": format_time(now),
        "error": {"code": InternalError.code, "message": STOPPED},
    }
    expires: float | None = None
    if state["ttlMs"] is not None:
        created = datetime.fromisoformat(state["createdAt"]).timestamp()
        state["ttlMs"] = max(state["ttlMs"], round((now - created + MIN_KEPT_SECONDS) * 1000))
        expires = created + state["ttlMs"] / 1000
    return Record(worker="", state=Raw(encode(state)), tool=record.tool), expires
