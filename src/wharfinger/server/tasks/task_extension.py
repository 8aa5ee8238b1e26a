"""The extension `io.modelcontextprotocol/tasks`: its methods, what runs, what is kept; loaded with the first tool."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
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
from wharfinger.protocol.interfaces import Store
from wharfinger.protocol.jsonrpc import encode, encode_error
from wharfinger.protocol.request import Caller, Request, called, described, to_protocol_error, tool_failure
from wharfinger.protocol.shares import Shares
from wharfinger.server.owners import share_of
from wharfinger.server.tasks.task_channel import RunningTask, moment
from wharfinger.transports.background import BackgroundTasks
from wharfinger.types.task_extension import TASKS

if TYPE_CHECKING:
    from wharfinger.server.services import Services

__all__ = ["DeferredTask", "Tasks", "check_declared", "declares"]

log = logging.getLogger("wharfinger.server.tasks.task_extension")

COALESCE_SECONDS = 0.05
"""Seconds in which changes of one task become one notice and one write."""
MIN_KEPT_SECONDS = 300.0
"""Seconds for which a result is kept at least, however late it came."""
GRACE_SECONDS = 60.0
"""Seconds that the store keeps a running task beyond its time, so that its failure is found."""
LEASE_SECONDS = 15.0
"""Seconds after which a process that has said nothing is taken for dead, and its tasks for failed."""
HEARTBEAT_SECONDS = 1.0
"""Seconds between two looks for what came in at another process."""
MAX_INBOX_MESSAGES = 1000
"""What clients may have said of the tasks of one process while it has not looked."""
MAX_INBOX_BYTES = 64 * 1024 * 1024
"""The same in bytes."""
MAX_ID_LENGTH = 64
"""Characters of a task id that are looked at."""

STOPPED = "The server stopped before the task was done: call the tool again."

_KEPT, _WORKERS, _INBOX = "tasks/", "task-workers/", "task-inbox/"


class TaskListener(Protocol):
    """Someone to tell."""

    def send(self, message: Callable[[subscriptions.Tag], bytes]) -> bool: ...


class Record(msgspec.Struct, kw_only=True):
    """A task as the store has it; `worker` is the process that runs it, empty where it is over."""

    worker: str
    state: Raw


class TaskMessage(msgspec.Struct, kw_only=True):
    """What a client said of a task to another process than the one that runs it; no answers mean: cancel it."""

    key: str
    responses: dict[str, Raw] | None = None


class DeferredTask:
    """A call whose function decides itself when it becomes a task."""

    __slots__ = ("started", "task", "ttl")

    def __init__(self, ttl: float | None) -> None:
        self.ttl = ttl
        self.task: RunningTask | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()


_decode_record = msgspec.json.Decoder(Record).decode
_decode_message = msgspec.json.Decoder(TaskMessage).decode


def declares(caller: Caller) -> bool:
    """Whether its call may be answered with a task: this request says so, in a revision that has the extension."""
    extensions = caller.capabilities.extensions
    return caller.rules.tasks and extensions is not UNSET and TASKS in extensions


def check_declared(caller: Caller, what: str) -> None:
    """Raise MissingClientCapability for a caller whose requests do not declare the extension."""
    if not declares(caller):
        message = f"{what} needs a client of 2026-07-28 or later that declares the extension {TASKS} in its request."
        raise MissingClientCapability({"extensions": {TASKS: {}}}, message)


class Tasks:
    """The tasks of one server. Each is found by (principal, id): an id alone opens nothing.

    What runs here is answered from memory, the rest from the store, where every state is written, the first one before
    the call is answered. Of several processes that share a store each runs its own tasks, and any answers for all.
    `ttl` and `poll` are in seconds.
    """

    def __init__(self, services: Services, store: Store, *, ttl: float | None = 3600.0, poll: float = 1.0) -> None:
        self.store = store
        self.ttl = ttl
        self.poll = poll
        self.worker = secrets.token_hex(8)
        self.lease = LEASE_SECONDS
        self.heartbeat = HEARTBEAT_SECONDS
        self.running: dict[str, RunningTask] = {}
        """By their keys in the store."""
        self.calls: dict[Request, DeferredTask | RunningTask | None] = {}
        """What the functions that are called at the moment may become; None for those whose client knows no tasks."""
        self._services = services
        self._shares = Shares()
        self._watchers: dict[str, dict[TaskListener, None]] = {}
        self._watched: dict[TaskListener, set[str]] = {}
        self._last: dict[str, bytes] = {}
        """What was told last of tasks of other processes."""
        self._jobs = BackgroundTasks(report_failures=True)
        self._heartbeat_task: asyncio.Task[Any] | None = None
        self._leased = 0.0
        self._ending = False

    # -- making one

    async def begin(self, request: Request, ttl: float | None) -> RunningTask:
        """A new task for this request, in the store when this returns; nothing runs yet.

        Raises:
            Overloaded: too many run, or are kept.
            StoreUnusable: it cannot be stored.
        """
        share, limits = share_of(request), self._services.limits
        if self._ending:
            raise Overloaded("The server is stopping.")
        if self._shares[share] >= limits.tasks_each or not self._shares.has_room(share, limits.tasks):
            raise Overloaded("Too many tasks are running: wait for one, or cancel one.")
        id = secrets.token_urlsafe(24)  # 192 random bits
        folder = _folder(request.caller.principal)
        task = RunningTask(id, folder + id, share, ttl=ttl, poll=self.poll, changed=self._changed)
        task.what = called(request)
        self.running[task.key] = task
        self._shares.add(share)
        try:
            await self._check_room(folder, 1, 0)
            await self._renew()
            await self._save(task)
        except BaseException:
            self._forget(task)
            self._jobs.start(self._discard(task))
            raise
        if ttl is not None:
            task.timer = asyncio.get_running_loop().call_later(ttl, task.stop, "late")
        return task

    async def _check_room(self, folder: str, tasks: int, size: int) -> None:
        """Raise Overloaded where so much more would be too much for the store, or for one principal."""
        limits = self._services.limits
        for prefix, part in ((_KEPT, 1), (folder, 2)):
            kept, bytes_kept = await self.store.usage(prefix)
            if tasks and (kept + tasks) * part > limits.tasks_kept:
                raise Overloaded("Too many tasks are kept: try again when some have expired.")
            if (bytes_kept + size) * part > limits.task_results:
                raise Overloaded("The results of tasks take too much room: try again when some have expired.")

    def run(self, task: RunningTask, runner: asyncio.Task[Any]) -> None:
        """From now on `runner`, whose result is `capture`'s, does the work of the task."""
        task.runner = runner
        runner.add_done_callback(lambda done: self._jobs.start(self._finish(task, done)))
        if task.why:  # the server ended meanwhile
            runner.cancel()
        self._start_heartbeat()

    async def start(self, request: Request) -> bool:
        """Answer the call with a task and go on as one; False where its client knows no tasks.

        Raises:
            RuntimeError: the tool is not registered with `task=`.
        """
        try:
            pending = self.calls[request]
        except KeyError:
            raise RuntimeError('Register the tool with task="later" to start tasks in it.') from None
        if isinstance(pending, DeferredTask) and pending.task is None:
            task = await self.begin(request, pending.ttl)
            pending.task = self.calls[request] = request.channel = task
            pending.started.set_result(None)
        return pending is not None

    def note(self, request: Request, message: str) -> None:
        """Say how the task of a request stands; nothing happens where it is none."""
        task = self.calls.get(request)
        if isinstance(task, RunningTask):
            task.note(message)

    # -- what becomes of it

    async def _finish(self, task: RunningTask, runner: asyncio.Task[Any]) -> None:
        if task.over is not None:  # it did not end when it was cancelled, and nobody waited any longer
            return
        result, error = (None, asyncio.CancelledError()) if runner.cancelled() else runner.result()
        if error is None:
            error = await self._take(task, result)
        if error is not None:
            self._take_error(task, error)
        if task.ttl_ms is not None:
            task.ttl_ms = max(task.ttl_ms, round((task.updated - task.created + MIN_KEPT_SECONDS) * 1000))
        try:
            await self._save(task)
        except StoreUnusable:
            log.exception("The end of a task could not be stored: it is known to this process only")
            asyncio.get_running_loop().call_later(MIN_KEPT_SECONDS, self._forget, task)
        else:
            self._forget(task)
        self._tell(task.key, task.state())
        self._unwatch(task.key)

    async def _take(self, task: RunningTask, result: Any) -> BaseException | None:
        """Keep a result; what is wrong with it."""
        try:
            body = _encoded(result)
            limit = self._services.limits.task_result
            if len(body) > limit:
                raise InternalError(f"The task's result has {len(body)} bytes, the limit is {limit}.")
            with suppress(StoreUnusable):  # which shows again when it is stored
                await self._check_room(task.key.removesuffix(task.id), 0, len(body))
        except Exception as error:
            return error
        task.complete(Raw(body))
        return None

    def _take_error(self, task: RunningTask, error: BaseException) -> None:
        if task.why == "cancel":
            task.cancelled()
        elif task.why == "late":
            task.fail(InternalError(f"The task was not done within {(task.ttl_ms or 0) / 1000:g} s."))
        elif task.why:
            task.fail(InternalError(STOPPED))
        else:
            reference = os.urandom(4).hex()
            answer = to_protocol_error(error, reference)
            if answer is not error:
                log.error("%s", described(f"The task of {task.what}", error, reference), exc_info=error)
            if isinstance(answer, HandlerFailed):  # a result: only protocol errors fail a task
                task.complete(Raw(_encoded(tool_failure(answer))))
                return
            try:
                encode_error(None, answer)
            except Exception:  # an author's message or data that has no form on the wire
                log.exception("The error of a task could not be told (reference %s)", reference)
                answer = to_protocol_error(RuntimeError(), reference)
            task.fail(answer)

    async def _discard(self, task: RunningTask) -> None:
        with suppress(StoreUnusable):  # it expires by itself
            await self.store.delete(task.key)

    def _forget(self, task: RunningTask) -> None:
        if self.running.pop(task.key, None) is not None:
            self._shares.add(task.share, -1)

    def _changed(self, task: RunningTask) -> None:
        if task.telling is None:
            task.telling = asyncio.get_running_loop().call_later(COALESCE_SECONDS, self._publish, task)

    def _publish(self, task: RunningTask) -> None:
        task.telling = None
        self._tell(task.key, task.state())
        self._jobs.start(self._save_quietly(task))

    async def _save_quietly(self, task: RunningTask) -> None:
        try:
            await self._save(task)
        except StoreUnusable:
            log.exception("A change of a task could not be stored")

    async def _save(self, task: RunningTask) -> None:
        async with task.saving:
            value = encode(Record(worker="" if task.over else self.worker, state=Raw(task.state())))
            expires = task.expires
            if expires is not None and task.over is None:
                expires += GRACE_SECONDS
            if await self.store.put(task.key, value, expires=expires, instead_of=task.saved):
                task.saved = value
                return
        if task.why != "lost":
            log.warning("Another process took a task for failed, since this one had said nothing for %g s", self.lease)
            task.stop("lost")

    # -- the methods

    async def get(self, request: Request) -> Raw:
        """The handler of `tasks/get`.

        Raises:
            MissingClientCapability: the request does not declare the extension.
            InvalidParams: this caller has no such task, or it has expired.
        """
        task, record = await self._find(request)
        if task is None:
            return record.state
        if task.over is not None:
            async with task.saving:  # what has been told to be over must be so after a crash too
                pass
        return Raw(task.state())

    async def update(self, request: Request) -> t.EmptyResult:
        """The handler of `tasks/update`: gives answers to who asked. Raises as `get`."""
        task, record = await self._find(request)
        if task is not None:
            task.answer(request.params.input_responses)
        elif record.worker:
            await self._forward(request, record.worker, request.params.input_responses)
        return t.EmptyResult()

    async def cancel(self, request: Request) -> t.EmptyResult:
        """The handler of `tasks/cancel`: the handler is cancelled; one that is over stays as it is. Raises as `get`."""
        task, record = await self._find(request)
        if task is not None:
            task.stop("cancel")
        elif record.worker:
            await self._forward(request, record.worker, None)
        return t.EmptyResult()

    async def _find(self, request: Request) -> tuple[RunningTask | None, Record]:
        check_declared(request.caller, request.method)
        key = _key(request.caller.principal, request.params.task_id)
        if key in self.running:
            return self.running[key], _NOWHERE
        record = await self._stored(key)
        if record is None:
            raise InvalidParams("There is no such task, or it has expired.")
        return None, record

    async def _stored(self, key: str) -> Record | None:
        """A task as the store has it; one whose process has died is failed, there too."""
        while (value := await self.store.get(key)) is not None:
            record = _decode_record(value)
            if not record.worker or (record.worker != self.worker and await self._lives(record.worker)):
                return record
            task = self.running.get(key)
            if task is not None:  # it began meanwhile
                return Record(worker=self.worker, state=Raw(task.state()))
            failed, expires = _abandoned(record)
            if await self.store.put(key, encode(failed), expires=expires, instead_of=value):
                return failed
        return None

    # -- several processes

    async def _lives(self, worker: str) -> bool:
        return await self.store.get(_WORKERS + worker) is not None

    async def _renew(self) -> None:
        """Say that this process lives."""
        now = time.time()
        if self.store.shared and now >= self._leased + self.lease / 3:
            await self.store.put(_WORKERS + self.worker, b"", expires=now + self.lease)
            self._leased = now

    async def _forward(self, request: Request, worker: str, responses: dict[str, Raw] | None) -> None:
        key = _key(request.caller.principal, request.params.task_id)
        place = f"{_INBOX}{worker}/{time.time_ns():020}{secrets.token_hex(4)}"
        letter = encode(TaskMessage(key=key, responses=responses))
        waiting, size = await self.store.usage(f"{_INBOX}{worker}/")
        if waiting >= MAX_INBOX_MESSAGES or size + len(letter) > MAX_INBOX_BYTES:
            raise Overloaded("Too much waits for the process that runs this task: try again later.")
        await self.store.put(place, letter, expires=time.time() + self.lease + GRACE_SECONDS)

    def _start_heartbeat(self) -> None:
        if self.store.shared and (self._heartbeat_task is None or self._heartbeat_task.done()):
            self._heartbeat_task = asyncio.get_running_loop().create_task(self._keep_heartbeat_task())

    async def _keep_heartbeat_task(self) -> None:
        """While something runs or is listened to: tell other processes that this one lives, and hear from them."""
        while self.running or self._watchers:
            try:
                if self.running:
                    await self._renew()
                    for place, value in await self.store.scan(f"{_INBOX}{self.worker}/"):
                        await self.store.delete(place)
                        self._deliver(_decode_message(value))
                for key in tuple(self._watchers):
                    await self._look_at(key)
            except StoreUnusable as error:
                log.warning("%s", error)
            except Exception:  # without a beat every task of this process would be taken for failed
                log.exception("What another process left cannot be read")
            await asyncio.sleep(min(self.heartbeat, self.lease / 3))

    async def _look_at(self, key: str) -> None:
        """Tell who listens what another process has made of a task."""
        if key in self.running:
            return
        record = await self._stored(key)
        state = None if record is None else bytes(record.state)
        if state is not None and state != self._last.get(key) and key in self._watchers:
            self._last[key] = state
            self._tell(key, state)
        if record is None or not record.worker:
            self._unwatch(key)

    def _deliver(self, letter: TaskMessage) -> None:
        task = self.running.get(letter.key)
        if task is None:
            return
        if letter.responses is None:
            task.stop("cancel")
        else:
            task.answer(letter.responses)

    # -- who is told

    async def watch(self, request: Request, watcher: TaskListener, ids: list[str]) -> list[str]:
        """Tell `watcher` what becomes of those tasks that its caller has; which these are.

        Raises:
            MissingClientCapability: the request does not declare the extension.
        """
        check_declared(request.caller, "Listening to tasks")
        found: list[str] = []
        for id in ids:
            key = _key(request.caller.principal, id)
            if key in self.running or await self._stored(key) is not None:
                found.append(id)
                self._watchers.setdefault(key, {})[watcher] = None
                self._watched.setdefault(watcher, set()).add(key)
        return found

    async def catch_up(self, watcher: TaskListener) -> None:
        """Tell how its tasks stand now: one that ended before it was listened to would never be heard of."""
        for key in tuple(self._watched.get(watcher, ())):
            if key in self.running:
                _tell(watcher, self.running[key].state())
            elif (record := await self._stored(key)) is not None:
                self._last[key] = bytes(record.state)
                _tell(watcher, self._last[key])
                if not record.worker:
                    self._unwatch(key, watcher)
        if watcher in self._watched:
            self._start_heartbeat()

    def unwatch(self, watcher: TaskListener) -> None:
        """Tell it nothing more."""
        for key in tuple(self._watched.get(watcher, ())):
            self._unwatch(key, watcher)

    def _unwatch(self, key: str, *watchers: TaskListener) -> None:
        """Nobody, or these do not, listen to a task any more."""
        listening = self._watchers.get(key, {})
        for watcher in watchers or tuple(listening):
            listening.pop(watcher, None)
            keys = self._watched.get(watcher, set())  # none where the task's end came first
            keys.discard(key)
            if not keys:
                self._watched.pop(watcher, None)
        if not listening:
            self._watchers.pop(key, None)
            self._last.pop(key, None)

    def _tell(self, key: str, state: bytes) -> None:
        for watcher in tuple(self._watchers.get(key, ())):
            _tell(watcher, state)

    # -- beginning and end

    async def begin_serving(self) -> None:
        """Open the store, so that one that cannot be used is told at the start.

        Raises:
            StoreUnusable: it cannot be opened.
        """
        self._ending = False
        await self.store.usage(_KEPT)

    def drain(self) -> None:
        """Take no new task."""
        self._ending = True

    async def end(self) -> None:
        """Let what runs finish within `Limits.drain` seconds, cancel the rest, and store how it ended."""
        self._ending = True
        seconds = self._services.limits.drain
        for task in self.running.values():
            if task.questions:  # nobody will answer them in time
                task.stop("end")
        for _ in range(2):
            runners = {task.runner for task in self.running.values() if task.runner is not None}
            if runners:
                await asyncio.wait(runners, timeout=seconds)
            for task in self.running.values():
                task.stop("end")
        for task in tuple(self.running.values()):  # a handler that does not end when it is cancelled
            if task.over is None:
                self._take_error(task, asyncio.CancelledError())
                await self._save_quietly(task)
                self._forget(task)
        await self._jobs.finished()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait((self._heartbeat_task,))
            self._heartbeat_task = None
        if self._leased:
            self._leased = 0.0
            with suppress(StoreUnusable):  # it expires by itself
                await self.store.delete(_WORKERS + self.worker)
        await self.store.close()


async def capture(call: Callable[[], Awaitable[Any]]) -> tuple[Any, BaseException | None]:
    """What a call returns, or raises: `sys.exit()` in a task must not end the loop."""
    try:
        return await call(), None
    except BaseException as error:
        return None, error


def _encoded(result: Any) -> bytes:
    """What the call would have been answered, with the `resultType` that this era wants in every result."""
    kind = getattr(result, "result_type", UNSET)
    if kind is not UNSET and kind != "complete":
        raise TypeError(f"a task ended with a result of the type {kind!r}")
    body = bytes(result) if type(result) is Raw else encode(result)
    if kind is not UNSET:
        return body
    return b'{"resultType":"complete"%b%b' % (b"" if body == b"{}" else b",", body[1:])


def _tell(watcher: TaskListener, state: bytes) -> None:
    try:
        watcher.send(lambda tag: subscriptions.task_changed(state, tag))
    except Exception:  # it is nobody else's
        log.exception("A change of a task could not be told")


def _folder(principal: str) -> str:
    """Where the store has the tasks of a principal; nothing in it tells who that is."""
    import hashlib

    return f"{_KEPT}{hashlib.sha256(principal.encode()).hexdigest()[:32]}/"


def _key(principal: str, id: str) -> str:
    return _folder(principal) + id[:MAX_ID_LENGTH]


_NOWHERE = Record(worker="", state=Raw(b"{}"))


def _abandoned(record: Record) -> tuple[Record, float | None]:
    """The record of a task whose process has died, as failed, and when it expires."""
    state = msgspec.json.decode(record.state)
    state.pop("inputRequests", None)
    now = time.time()
    state |= {
        "status": "failed",
        "statusMessage": STOPPED,
        "lastUpdatedAt": moment(now),
        "error": {"code": InternalError.code, "message": STOPPED},
    }
    expires = None if state["ttlMs"] is None else now + MIN_KEPT_SECONDS
    return Record(worker="", state=Raw(encode(state))), expires
