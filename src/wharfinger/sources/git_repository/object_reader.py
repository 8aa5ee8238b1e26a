"""Reads objects by name through long-lived `git cat-file --batch-command` processes.

    reader = ObjectReader(private_directory)
    info = await reader.info("4b825dc…")            # GitObject(oid, kind, size); also of "4b825dc…~2" and "4b825d"
    data = await reader.contents(info.oid)          # checked against its name; at most WHOLE_BYTES

Requests that wait are written to a process together, and their answers are read in order, so that many small objects
cost few system calls. A repository has up to `MAX_REPOSITORY_PROCESSES` processes, and an event loop up to
`MAX_PROCESSES`. If all of them run when a repository needs one, the process that was idle longest is ended.

An object can end its process (damage, a bomb that exceeds the limits, a deadline), and with it the requests for other
objects. All of them, itself included, are then requested again, each alone. An object that ends a process again is
damaged, and only its caller gets the error. If git printed no reason, the process may have been killed from outside, so
the object is requested once more.

Of some damaged objects, git prints fewer bytes than their header promises, and then waits for the next request. So a
process that pauses within an object is ended after `STALLED_SECONDS`. A process with one request alone gets no further
input, so that it ends after its answer, complete or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections import deque
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

from wharfinger.errors import InvalidArgument, Overloaded
from wharfinger.sources.bounded_cache import BoundedCache
from wharfinger.sources.git_repository import git_process
from wharfinger.sources.git_repository.git_process import QUICK_SECONDS, GitFailed, GitPlace, run_git

if os.name == "posix":
    import fcntl

__all__ = ["WHOLE_BYTES", "AmbiguousName", "DamagedObject", "GitObject", "MissingObject", "ObjectReader"]

WHOLE_BYTES = 32 << 20
"""Maximum bytes of an object that is read whole."""
MAX_PROCESSES = 16
"""Maximum number of processes of one event loop."""
MAX_REPOSITORY_PROCESSES = max(1, min(4, os.cpu_count() or 1))
"""Maximum number of processes of one repository."""
MAX_PROCESS_REQUESTS = 64
"""Maximum number of requests that one process has at a time. Half of them are answered before it gets more."""
BUSY_REQUESTS = 8
"""If all processes have this many requests, another process is started."""
BYTES_AHEAD = 64 << 20
"""If a repository waits for more bytes of requested objects than this, only its idle processes get requests."""
MAX_WAITING_REQUESTS = 20_000
"""Maximum number of requests that wait."""
OBJECT_SECONDS = 10.0
"""Timeout for reading one object."""
STALLED_SECONDS = 3.0
"""Longest pause within the contents of an object, when it is requested for the first time."""
REQUESTS_PER_PROCESS = 20_000
"""Number of requests after which a process is replaced, so that its processor time stays below the limit."""
PROCESSOR_SECONDS = 120.0
"""Maximum processor time of one process."""
IDLE_SECONDS = 30.0
"""Time without requests after which a process ends; until then it keeps packs open that `git gc` has removed."""
LONG_BYTES = 1 << 20
"""The digest of contents longer than this is computed in a thread, because it would block the event loop."""
KEPT_BYTES = 16 << 20
"""Memory for contents that are kept for the next read."""
MAX_KNOWN_OBJECTS = 50_000
"""Maximum number of objects whose kind and size are kept."""
PIPE_BYTES = 1 << 20
UNKNOWN_REASON = "git ended"
"""The reason that is reported if a process printed none."""

_HEADER = re.compile(rb"([0-9a-f]{40,64}) ([a-z]+) (\d{1,19})").fullmatch


class MissingObject(KeyError):
    """This repository has no such object."""


class AmbiguousName(InvalidArgument):
    """The names of several objects start with these digits."""

    def __init__(self, digits: str) -> None:
        super().__init__(f"The names of several objects start with {digits}: write more digits.")


class DamagedObject(InvalidArgument):
    """This object cannot be read. The message has its name and the next step."""

    def __init__(self, oid: str, reason: str) -> None:
        super().__init__(f"The object {oid[:12]} of this repository is damaged ({reason}): see `git fsck`.")


class GitObject(NamedTuple):
    """An object: its name, its kind (`blob`, `tree`, `commit` or `tag`), and its size in bytes."""

    oid: str
    kind: str
    size: int


class _Request:
    """A request for one object. `alone` is true if it may have ended a process: it then gets a process of its own."""

    __slots__ = ("alone", "command", "killed", "name", "result", "size", "wants_data")

    def __init__(self, name: str, wants_data: bool, size: int, result: asyncio.Future[tuple[GitObject, bytes]]) -> None:
        self.name = name
        self.wants_data = wants_data
        self.size = size
        self.result = result
        self.alone = False
        self.killed = False
        """Whether a process with only this request ended without a reason: it may have been killed from outside."""
        self.command = f"{'contents' if wants_data else 'info'} {name}\0".encode()


class ObjectReader:
    """Reads the objects of one repository, on one event loop at a time."""

    def __init__(self, place: GitPlace, oid_length: int = 40) -> None:
        self.place = place
        self._hash = "sha256" if oid_length == 64 else "sha1"
        self._full = re.compile(rf"[0-9a-f]{{{oid_length}}}").fullmatch
        self._infos: BoundedCache[str, GitObject] = BoundedCache(MAX_KNOWN_OBJECTS)
        self._kept: BoundedCache[str, bytes] = BoundedCache(KEPT_BYTES)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[_Request] = deque()
        self._processes: list[_CatFile] = []
        self._pump_scheduled = False

    async def info(self, name: str) -> GitObject:
        """Return the kind and size of an object.

        `name` is its full name or the first digits of it, optionally followed by `~2` or `^2`.

        Raises:
            MissingObject: no object has this name.
            AmbiguousName: the names of several objects begin with these digits.
            DamagedObject: its header cannot be read.
        """
        cached = self._infos.get(name)
        if cached is None:
            cached, _ = await self._ask(name, False, 0)
            if cached.oid == name:
                self._infos.put(name, cached)
        return cached

    def kept_info(self, oid: str) -> GitObject | None:
        """Return the kind and size of an object if they are kept."""
        return self._infos.get(oid)

    async def contents(self, oid: str, max_bytes: int = WHOLE_BYTES) -> bytes:
        """Return the bytes of an object.

        Raises:
            MissingObject: no object has this name.
            DamagedObject: it cannot be read, or its bytes do not match its name.
            GitFailed: it has more than `max_bytes` bytes.
        """
        cached = self._kept.get(oid)
        if cached is not None:
            return cached
        info = await self.info(oid)
        if info.size > max_bytes:
            raise GitFailed(
                f"The object {oid[:12]} has {info.size:,} bytes: at most {max_bytes:,} can be read at once."
            )
        _, data = await self._ask(oid, True, info.size)
        digest = self.digest(info)
        if len(data) > LONG_BYTES:
            await asyncio.to_thread(digest.update, data)
        else:
            digest.update(data)
        if digest.hexdigest() != oid:
            raise DamagedObject(oid, "its bytes do not match its name")
        return self._kept.put(oid, data, len(data) + 100)

    def digest(self, info: GitObject) -> hashlib._Hash:
        """Return a digest of the header of an object. Add the bytes of the object to get its name."""
        return hashlib.new(self._hash, b"%s %d\0" % (info.kind.encode(), info.size), usedforsecurity=False)

    async def starting_with(self, digits: str, limit: int) -> list[str]:
        """Return at most `limit` names of objects that begin with these digits. At least four digits are needed."""
        output = await run_git(
            self.place,
            "rev-parse",
            f"--disambiguate={digits}",
            max_output_bytes=(limit + 1) * 65,
            partial=True,
            seconds=QUICK_SECONDS,
        )
        return sorted(output.data.decode("ascii").split("\n")[:-1])[:limit]

    def restart(self) -> None:
        """Clear the caches, and end each process after its answers. New ones read the directory again."""
        self._infos.clear()
        self._kept.clear()
        for process in list(self._processes):
            process.retire()

    async def close(self) -> None:
        """End all processes. The reader can be used again."""
        processes = list(self._processes)
        self._fail_all(Overloaded("The server ends."))
        if processes and self._loop is asyncio.get_running_loop():
            await asyncio.wait([process.lost for process in processes], timeout=1.0)

    # Requests

    async def _ask(self, name: str, wants_data: bool, size: int) -> tuple[GitObject, bytes]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._fail_all(Overloaded("This repository is read on another event loop now: try again."))
            self._loop, self._pump_scheduled = loop, False
        if len(self._queue) >= MAX_WAITING_REQUESTS:
            raise Overloaded("Too many reads of this repository are waiting: try again later.")
        try:
            return await self._request(name, wants_data, size)
        except MissingObject:
            if not (self._full(name) and await self.starting_with(name, 1)):
                raise
        try:  # it exists: it was just added, `git gc` moved it, or it cannot be read
            return await self._request(name, wants_data, size)
        except MissingObject:
            raise DamagedObject(name, await self._reason(name)) from None

    def _request(self, name: str, wants_data: bool, size: int) -> asyncio.Future[tuple[GitObject, bytes]]:
        result: asyncio.Future[tuple[GitObject, bytes]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Request(name, wants_data, size, result))
        self.pump_soon()
        return result

    async def _reason(self, oid: str) -> str:
        """Return why git cannot read an object that exists."""
        try:
            await run_git(self.place, "cat-file", "-s", oid, seconds=QUICK_SECONDS)
        except GitFailed as error:
            return error.why
        return "its header cannot be read"

    def _fail_all(self, error: Exception) -> None:
        """End all processes, and fail all requests with this error."""
        processes, self._processes = self._processes, []
        waiting = [*self._queue, *[request for process in processes for request in process.requests]]
        self._queue.clear()
        for process in processes:
            process.end()
        for request in waiting:
            loop = request.result.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_fail, request, error)

    def pump_soon(self) -> None:
        """Give requests to processes after this turn of the loop, in which more may arrive."""
        if not self._pump_scheduled and self._loop is not None and not self._loop.is_closed():
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        while self._queue:
            if self._queue[0].result.done():  # its caller has given up
                self._queue.popleft()
                continue
            process = self._choose(self._queue[0])
            if process is None:
                break
            ahead = self._bytes_ahead
            batch: list[_Request] = []
            while self._queue and len(process.requests) + len(batch) < MAX_PROCESS_REQUESTS:
                request = self._queue[0]
                if batch and (request.alone or batch[0].alone or ahead + request.size > BYTES_AHEAD):
                    break
                if len(batch) >= BUSY_REQUESTS and len(self._processes) < MAX_REPOSITORY_PROCESSES:
                    break  # the next process takes the others
                ahead += request.size
                batch.append(self._queue.popleft())
            process.send(batch)

    def _choose(self, request: _Request) -> _CatFile | None:
        """Return a process for the next request; None if the request must wait."""
        usable = [process for process in self._processes if not process.retired]
        process = min(usable, key=lambda candidate: len(candidate.requests), default=None)
        load = len(process.requests) if process else MAX_PROCESS_REQUESTS
        if load == 0:
            return process
        if len(self._processes) < MAX_REPOSITORY_PROCESSES and (load >= BUSY_REQUESTS or request.alone):
            started = _CatFile.start(self)
            if started is not None:
                self._processes.append(started)
                return started
        if request.alone or load > MAX_PROCESS_REQUESTS // 2 or self._bytes_ahead + request.size > BYTES_AHEAD:
            return None
        return process

    @property
    def _bytes_ahead(self) -> int:
        return sum([process.bytes_ahead for process in self._processes])

    def ended(self, process: _CatFile, reason: str) -> None:
        """Repeat or fail the requests that a process has not answered."""
        if process not in self._processes:
            return
        self._processes.remove(process)
        for request in reversed(process.requests):
            if request.alone and (request.killed or reason != UNKNOWN_REASON):
                _fail(request, DamagedObject(request.name, reason))
            elif not request.result.done():
                request.killed, request.alone = request.alone, True
                self._queue.appendleft(request)
        process.requests.clear()
        self.pump_soon()


def _fail(request: _Request, error: Exception) -> None:
    if not request.result.done():
        request.result.set_exception(error)


# Processes


class _Processes:
    """The processes of one event loop, the most recently used last, and the readers that wait for one."""

    def __init__(self) -> None:
        self.running: dict[_CatFile, None] = {}
        self.waiting: dict[ObjectReader, None] = {}

    def have_room(self, reader: ObjectReader) -> bool:
        """Return whether another process may start. If not, end an idle one; `reader` tries again afterwards."""
        if len(self.running) < MAX_PROCESSES:
            return True
        self.waiting[reader] = None
        # A process that is ending still counts, or there could be more than `MAX_PROCESSES`: wait for it.
        if not any(process.retired and not process.requests for process in self.running):
            idle = next((process for process in self.running if not process.requests), None)
            if idle is not None:
                idle.end_at_once()
        return False

    def removed(self, process: _CatFile) -> None:
        """Remove a process that has ended, and let the readers that wait for one try again."""
        self.running.pop(process, None)
        self.call_waiting()

    def call_waiting(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for reader in waiting:
            reader.pump_soon()


_processes_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Processes] = WeakKeyDictionary()


class _CatFile(asyncio.SubprocessProtocol):
    """One process, and its requests without an answer, in order."""

    @classmethod
    def start(cls, reader: ObjectReader) -> _CatFile | None:
        """Start a process; None if there are too many."""
        loop = asyncio.get_running_loop()
        processes = _processes_by_loop.setdefault(loop, _Processes())
        if not processes.have_room(reader):
            return None
        process = cls(reader, loop, processes)
        processes.running[process] = None
        process.starting = loop.create_task(process.open())
        return process

    def __init__(self, reader: ObjectReader, loop: asyncio.AbstractEventLoop, processes: _Processes) -> None:
        self.requests: deque[_Request] = deque()
        self.retired = False
        self.starting: asyncio.Task[None] | None = None
        self._reader = reader
        self._loop = loop
        self._processes = processes
        self._transport: asyncio.SubprocessTransport | None = None
        self._to_send = bytearray()
        self._received = bytearray()
        self._info: GitObject | None = None  # of the contents that are being received
        self._stderr = bytearray()
        self._why = ""
        self._served = 0
        self._timer: asyncio.TimerHandle | None = None
        self._watched: _Request | None = None
        self._deadline = 0.0  # of the answer to `_watched`, by the loop's time
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the process has ended."""

    @property
    def bytes_ahead(self) -> int:
        """Bytes that were requested and have not arrived."""
        return sum([request.size for request in self.requests])

    @property
    def has_alone(self) -> bool:
        """Whether it has a request that must be its only one."""
        return bool(self.requests) and self.requests[0].alone

    async def open(self) -> None:
        """Start git, set its limits, and send the requests."""
        place = self._reader.place
        try:
            transport, _ = await self._loop.subprocess_exec(
                lambda: self, place.program, "cat-file", "--batch-command", "-z", "--buffer",
                env=git_process.environment(place), cwd=place.path,
            )  # fmt: skip
        except OSError as error:
            for request in self.requests:
                _fail(request, GitFailed(f"git cannot be started ({error.strerror}): try again later."))
            self.connection_lost(None)
            return
        self._transport = transport
        git_process.set_limits(transport.get_pid(), seconds=PROCESSOR_SECONDS)
        with contextlib.suppress(OSError, AttributeError):
            pipe = cast("asyncio.BaseTransport", transport.get_pipe_transport(1)).get_extra_info("pipe")
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # 64 KiB would need more turns of the loop
        if self.retired and not self.requests:
            self._close_input()
        else:
            self._flush()

    def send(self, requests: list[_Request]) -> None:
        """Request objects."""
        self.requests += requests
        for request in requests:
            self._to_send += request.command
        self._to_send += b"flush\0"
        self._served += len(requests)
        if self._served >= REQUESTS_PER_PROCESS or self.has_alone:
            self.retire()
        if self._transport is not None:
            self._flush()
        self._watch()

    def _flush(self) -> None:
        pipe = self._transport and cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if pipe:
            pipe.write(bytes(self._to_send))
            if self.has_alone:
                pipe.close()  # git ends after the answer
        self._to_send.clear()

    def retire(self) -> None:
        """Accept no more requests, and end the process when all are answered."""
        self.retired = True
        if not self.requests:
            self.end()

    def end(self, reason: str = "") -> None:
        """End the process: kill it if it is busy, otherwise only close its input."""
        self._why = self._why or reason
        self.retired = True
        if self._transport is not None:
            if self.requests or self._received or self._info:
                git_process.kill(self._transport)
            self._close_input()
        self._report_end()

    def end_at_once(self) -> None:
        """End the process without waiting until git notices that its input is closed."""
        self.end()
        if self._transport is not None:
            git_process.kill(self._transport)

    def _close_input(self) -> None:
        """Let git end by itself. (If the transport were closed, asyncio would miss the exit code and warn.)"""
        pipe = self._transport and self._transport.get_pipe_transport(0)
        if pipe and not self._loop.is_closed():
            pipe.close()

    def _report_end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._reader.ended(self, self._why or git_process.find_reason(bytes(self._stderr)) or UNKNOWN_REASON)

    # Its output

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-git_process.STDERR_BYTES :]
            return
        self._received += data
        old_count = len(self.requests)
        try:
            while self.requests and self._take_answer():
                pass
        except ValueError:
            self.end("git printed an unexpected answer")
            return
        if len(self.requests) < old_count or self._info is not None:
            self._watch()
        if len(self.requests) < old_count:
            if self.retired and not self.requests:
                self.end()
            elif len(self.requests) <= MAX_PROCESS_REQUESTS // 2:
                self._reader.pump_soon()
            if not self.requests:
                self._processes.call_waiting()

    def _take_answer(self) -> bool:
        """Take the next answer, or only its header, out of the received bytes. Returns whether it was complete."""
        request = self.requests[0]
        received = self._received
        if self._info is None:
            end = received.find(b"\n")
            if end < 0:
                if len(received) > 1_000:
                    raise ValueError("no header")
                return False
            line = bytes(received[:end])
            del received[: end + 1]
            header = _HEADER(line)
            if header is None:
                self._refuse(request, line)
                return True
            info = GitObject(header[1].decode(), header[2].decode(), int(header[3]))
            if not request.wants_data:
                self._succeed(info, b"")
                return True
            if info.size != request.size:
                raise ValueError("another size than before")
            self._info = info
        size = self._info.size
        if len(received) <= size:
            return False
        data = bytes(memoryview(received)[:size])
        del received[: size + 1]
        info, self._info = self._info, None
        self._succeed(info, data)
        return True

    def _succeed(self, info: GitObject, data: bytes) -> None:
        request = self.requests.popleft()
        if not request.result.done():
            request.result.set_result((info, data))

    def _refuse(self, request: _Request, line: bytes) -> None:
        error: Exception = MissingObject(request.name)
        if line.endswith(b" ambiguous"):
            error = AmbiguousName(request.name)
        elif not line.endswith(b" missing"):
            raise ValueError("no header")
        self.requests.popleft()
        _fail(request, error)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._transport is not None:
            if self._info is not None and self._transport.get_returncode() == 0:
                self._why = self._why or "it has fewer bytes than its header says"
            self._transport.close()  # an open transport warns when it is garbage-collected
        self._processes.removed(self)
        self._report_end()

    # Its deadlines

    def _watch(self) -> None:
        """Start the deadline of the next answer, or that of an idle process."""
        first = self.requests[0] if self.requests else None
        may_stall = first is not None and not first.alone and self._info is not None
        if first is self._watched and self._timer is not None and first is not None and not may_stall:
            return
        now = self._loop.time()
        if first is not self._watched:
            self._deadline = now + OBJECT_SECONDS
        self._watched = first
        if self._timer is not None:
            self._timer.cancel()
        if first is None:
            self._processes.running.pop(self, None)  # moved to the end, as the most recently used
            self._processes.running[self] = None
            self._timer = self._loop.call_later(IDLE_SECONDS, self.end)
        elif may_stall and now + STALLED_SECONDS < self._deadline:
            self._timer = self._loop.call_later(STALLED_SECONDS, self.end, f"stalled for {STALLED_SECONDS:g} s")
        else:
            self._timer = self._loop.call_at(self._deadline, self.end, f"not read within {OBJECT_SECONDS:g} s")
