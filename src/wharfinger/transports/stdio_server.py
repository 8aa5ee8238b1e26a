"""A server for one client on stdin and stdout. Nothing else in the process can use them while it runs."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import stat
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from wharfinger.protocol.interfaces import Service
from wharfinger.transports.stream_server import StreamServer

__all__ = ["serve_stdio"]

READ_BYTES = 64 * 1024
"""Bytes read at once: the capacity of a pipe. With 128 KiB or more, each read would map and unmap memory (10 µs)."""
MAX_QUEUED_READS = 2
"""The maximum number of reads that wait for the event loop, if a thread reads: a file may be larger than the memory."""
END_CHECK_SECONDS = 1.0
"""Seconds between two checks of whether the event loop has ended, while the reading thread waits for it."""
ORPHAN_CHECK_SECONDS = 1.0
"""Seconds between two checks of whether the parent process is alive."""


def serve_stdio(service: Service) -> bool:
    """Serve until the input ends, a signal arrives (Ctrl-C, SIGTERM), or the parent process dies.

    Returns True after Ctrl-C.

    From here on `print` and child processes write to stderr, and only the server reads stdin: stdout is for messages
    only (stdio transport).
    """
    reader, writer = _take(0, os.O_RDONLY), _take(1, os.O_WRONLY)
    try:
        with asyncio.Runner() as runner:
            runner.run(_serve(service, reader, writer))
    except KeyboardInterrupt:  # the usual way to end: no traceback
        return True
    else:
        return False
    finally:
        # Daemon threads may stay in read() or in a blocking handler for ever. Flush now, because flushing the
        # buffers of stdio at exit must not wait for them.
        sys.stderr.flush()


def _take(descriptor: int, mode: int) -> int:
    """Replace a standard descriptor by the null device or by stderr. Returns a private copy of the original."""
    duplicate = os.dup(descriptor)
    os.set_inheritable(duplicate, False)
    if mode == os.O_RDONLY:
        null = os.open(os.devnull, mode)
        os.dup2(null, descriptor)
        os.close(null)
    else:
        sys.stdout.flush()
        os.dup2(2, descriptor)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Printed lines appear at once, in the right order among the lines of the log.
            sys.stdout.reconfigure(line_buffering=True)
    return duplicate


async def _serve(service: Service, reader: int, writer: int) -> None:
    loop = asyncio.get_running_loop()
    await service.start()
    stream = StreamServer(service)
    try:
        await _connect(loop, stream, reader, writer)
        _end_on_sigterm(loop, service, stream)
        orphaned = asyncio.ensure_future(_wait_for_parent_exit())
        await asyncio.wait([stream.ended, orphaned], return_when=asyncio.FIRST_COMPLETED)
        orphaned.cancel()
        await _wait_until_written(stream)
    finally:
        output = stream.transport
        stream.finish()
        if isinstance(output, _BlockingWriter):
            output.abort()
        await service.close()


async def _wait_for_parent_exit() -> None:
    """Return when the parent process has died: a client may be killed without closing the pipe.

    Never returns if the parent is process 1, because orphans get that parent too.
    """
    parent = os.getppid()
    while parent == os.getppid() or parent == 1:  # noqa: ASYNC110  # no event reports it on every platform
        await asyncio.sleep(ORPHAN_CHECK_SECONDS)


def _end_on_sigterm(loop: asyncio.AbstractEventLoop, service: Service, stream: StreamServer) -> None:
    """On SIGTERM, send the results of long requests, and give the others a moment to finish."""
    import signal

    def end() -> None:
        service.drain()
        loop.call_soon(stream.drain)

    with suppress(NotImplementedError, RuntimeError):  # Windows; a thread that is not the main one
        loop.add_signal_handler(signal.SIGTERM, end)


async def _connect(loop: asyncio.AbstractEventLoop, stream: StreamServer, reader: int, writer: int) -> None:
    one_socket = stat.S_ISSOCK(os.fstat(reader).st_mode) and os.path.sameopenfile(reader, writer)  # noqa: ASYNC240
    if one_socket:
        # asyncio's write pipe would treat incoming data as a closed pipe.
        os.close(writer)
        await loop.connect_accepted_socket(lambda: stream, socket.socket(fileno=reader))
        return
    # The event loop can wait for pipes and sockets, but not for a file, a terminal or the null device.
    if _is_pipe(writer):
        pipe = os.fdopen(writer, "wb", 0)
        stream.transport, _ = await loop.connect_write_pipe(lambda: _OutputProtocol(stream), pipe)
    else:
        stream.transport = _BlockingWriter(loop, stream, writer)
    if _is_pipe(reader):
        transport: Any
        transport, _ = await loop.connect_read_pipe(lambda: _InputProtocol(stream), os.fdopen(reader, "rb", 0))
        transport.max_size = READ_BYTES  # an attribute of asyncio's transport; other loops ignore it
    else:
        threading.Thread(target=_read, args=(loop, stream, reader), name="wharfinger-stdin", daemon=True).start()


class _InputProtocol(asyncio.Protocol):
    """Reads for a stream whose output is another descriptor."""

    def __init__(self, stream: StreamServer) -> None:
        self.data_received = stream.data_received  # type: ignore[method-assign]  # saves a call
        self.stream = stream

    def eof_received(self) -> None:
        self.stream.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.stream.drain()


def _read(loop: asyncio.AbstractEventLoop, stream: StreamServer, descriptor: int) -> None:
    """Read to the end of the input. At most `MAX_QUEUED_READS` reads are queued in the event loop."""
    free = threading.Semaphore(MAX_QUEUED_READS)

    def receive(data: bytes) -> None:
        free.release()
        stream.data_received(data)

    with suppress(RuntimeError):  # the loop has ended
        with suppress(OSError):  # the terminal was closed
            while data := os.read(descriptor, READ_BYTES):
                while not free.acquire(timeout=END_CHECK_SECONDS):
                    if loop.is_closed():
                        return
                loop.call_soon_threadsafe(receive, data)
        loop.call_soon_threadsafe(stream.eof_received)


class _OutputProtocol(asyncio.BaseProtocol):
    """Writes for a stream whose input is another descriptor."""

    def __init__(self, stream: StreamServer) -> None:
        self.pause_writing = stream.pause_writing  # type: ignore[method-assign]
        self.resume_writing = stream.resume_writing  # type: ignore[method-assign]
        self.stream = stream

    def connection_lost(self, exc: Exception | None) -> None:
        self.stream.connection_lost(exc)


class _BlockingWriter(asyncio.WriteTransport):
    """Writes from a thread to a descriptor that the loop cannot wait for."""

    HIGH_WATER_BYTES = 1024 * 1024

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: StreamServer, descriptor: int) -> None:
        super().__init__()
        self._loop = loop
        self._stream = stream
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._wake = threading.Semaphore(0)
        threading.Thread(target=self._work, name="wharfinger-stdout", daemon=True).start()

    def write(self, data: Any) -> None:
        self._waiting.append(bytes(data))
        self._size += len(data)
        if self._size > self.HIGH_WATER_BYTES:
            self._stream.pause_writing()
        self._wake.release()

    def get_write_buffer_size(self) -> int:
        return self._size

    def abort(self) -> None:
        """Drop the messages that wait. The thread ends later, when the current message is written."""
        self._waiting.clear()
        self._wake.release()

    def _work(self) -> None:
        # The thread must end. Otherwise it refers to the server until the interpreter exits, and DuckDB reports that.
        while self._wake.acquire():
            try:
                data = self._waiting.popleft()
            except IndexError:  # aborted
                return
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                self._loop.call_soon_threadsafe(self._data_written, len(data))
            except OSError as error:
                self._loop.call_soon_threadsafe(self._stream.connection_lost, error)
                return
            except RuntimeError:  # the loop has ended
                return

    def _data_written(self, size: int) -> None:
        self._size -= size
        if self._stream.blocked and self._size < self.HIGH_WATER_BYTES // 2:
            self._stream.resume_writing()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _wait_until_written(stream: StreamServer) -> None:
    """Wait until the transport has written everything, for at most 2 seconds."""
    transport: Any = stream.transport
    for _ in range(200):
        if transport is None or transport.get_write_buffer_size() == 0:
            return
        await asyncio.sleep(0.01)
