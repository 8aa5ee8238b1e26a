"""The load generator: one thread that sends requests encoded in advance, checks every answer and bounds every wait.

It is the same for all servers, and shares no code with them.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Protocol

import httptools
import msgspec

from . import wire
from .process import Process, free_port
from .workloads import Workload

TIMEOUT_SECONDS = 30.0
"""Seconds without any byte after which a server counts as stuck."""
PIPE_BYTES = 1 << 16
"""The capacity of a pipe: reading more at a time would only allocate more."""
now = time.perf_counter_ns


class Stuck(Exception):
    """A server or client does not answer, has exited or answered wrongly. The message has the end of its log."""


@dataclass
class Run:
    """One measurement: the latencies, the errors and the total time."""

    latencies: list[int] = field(default_factory=list)
    """ns, one per answer."""
    seconds: float = 0
    """Wall time of the requests; without the driver's checks if requests are sent one at a time."""
    errors: int = 0


class Client(Protocol):
    """A raw client of one server in one mode."""

    process: Process

    def handshake(self) -> None: ...
    def ask(self, method: str, params: dict[str, Any]) -> Any: ...
    def run(self, workload: Workload, seconds: float) -> Run: ...
    def close(self) -> None: ...


def _stuck(process: Process, problem: str) -> Stuck:
    code = process.popen.poll()
    state = "running" if code is None else f"exit code {code}"
    return Stuck(f"{problem} ({state}); the end of its log: {process.log_tail() or 'empty'}")


class StdioClient:
    """Speaks the handshake era on a server's pipes."""

    def __init__(self, argv: Sequence[str], name: str) -> None:
        self.process = Process(argv, name, pipes=True)
        stdin, stdout = self.process.popen.stdin, self.process.popen.stdout
        assert stdin and stdout
        self.inlet, self.outlet = stdin.fileno(), stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.outlet, select.POLLIN)
        self.rest: list[bytes] = []
        self.id = wire.FIRST_ID
        self.arrived = 0
        """When the last complete line had arrived, in ns."""

    def handshake(self) -> None:
        self.ask("initialize", wire.INITIALIZE)
        self._write(wire.notification("notifications/initialized") + b"\n")

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send one request. Returns its decoded result.

        Raises:
            Stuck: the response is an error.
        """
        before, after = wire.request(method, params, wire.HANDSHAKE)
        self.id += 1
        self._write(before + b"%d" % self.id + after + b"\n")
        message = self._answers()[0]
        if message.id != self.id or not message.ok:
            raise _stuck(self.process, f"{method}: {bytes(message.error or b'')[:300]!r}")
        return msgspec.json.decode(message.result)  # type: ignore[arg-type]

    def run(self, workload: Workload, seconds: float) -> Run:
        pairs = [wire.request(workload.method, params, wire.HANDSHAKE) for params in workload.params]
        lines = cycle([(before, after + b"\n") for before, after in pairs])
        if workload.in_flight == 1:
            return _one_at_a_time(self._exchange, lines, workload, seconds)
        return self._many(lines, workload, seconds)

    def close(self) -> None:
        self.process.end()

    def _exchange(self, pair: wire.Pair) -> tuple[int, bool]:
        before, after = pair
        self.id += 1
        start = now()
        self._write(before + b"%d" % self.id + after)
        message = self._answers()[0]
        return self.arrived - start, message.id == self.id and message.ok

    def _many(self, lines: cycle[wire.Pair], workload: Workload, seconds: float) -> Run:
        run, sent_at = Run(), dict[int | str | None, int]()
        left = workload.most

        def burst(size: int) -> None:
            nonlocal left
            out, at = [], now()
            for _ in range(min(size, left)):
                before, after = next(lines)
                self.id += 1
                left -= 1
                sent_at[self.id] = at
                out.append(before + b"%d" % self.id + after)
            self._write(b"".join(out))

        start = now()
        end = start + int(seconds * 1e9)
        burst(workload.in_flight)
        while sent_at:
            answers = self._answers()
            for message in answers:
                at = sent_at.pop(message.id, 0)
                run.errors += not (at and message.ok)
                run.latencies.append(self.arrived - at)
            if self.arrived < end and left:
                burst(len(answers))
        run.seconds = (self.arrived - start) / 1e9
        return run

    def _write(self, data: bytes) -> None:
        sent = os.write(self.inlet, data)
        while sent < len(data):
            sent += os.write(self.inlet, data[sent:])

    def _answers(self) -> list[wire.Message]:
        """Wait for at least one answer. Returns all that have arrived, without notifications."""
        while True:
            messages = [wire.decode(line) for line in self._lines() if line]
            if answers := [m for m in messages if m.method is None and m.id is not None]:
                return answers

    def _lines(self) -> list[bytes]:
        chunks = self.rest
        while True:
            if not self.poll.poll(TIMEOUT_SECONDS * 1000):
                raise _stuck(self.process, f"no answer within {TIMEOUT_SECONDS:.0f} s")
            chunk = os.read(self.outlet, PIPE_BYTES)
            if not chunk:
                raise _stuck(self.process, "closed its stdout")
            chunks.append(chunk)
            if b"\n" in chunk:
                self.arrived = now()
                *lines, rest = b"".join(chunks).split(b"\n")
                self.rest = [rest]
                return lines


_BUFFER = memoryview(bytearray(1 << 20))
"""The buffer into which every connection receives: a new one for each answer would cost more than receiving it."""


class Connection:
    """A keep-alive connection. If the server closes it after an answer, `send` opens it again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.id = self.sent_at = 0
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's timeouts: those of Python would cost an extra system call for each one.
        for side in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self.socket.setsockopt(socket.SOL_SOCKET, side, struct.pack("ll", int(TIMEOUT_SECONDS), 0))
        self.socket.setblocking(True)
        self.parser = httptools.HttpResponseParser(self)
        self.parts: list[bytes] = []
        self.complete = self.keep_alive = False

    def on_body(self, data: bytes) -> None:
        self.parts.append(data)

    def on_message_complete(self) -> None:
        self.keep_alive = self.parser.should_keep_alive()
        self.complete = True

    def send(self, data: bytes) -> bool:
        """Send one request. Returns whether it opened a new socket."""
        if reopen := self.complete and not self.keep_alive:
            self.close()
            self.open()
        self.complete = False
        self.parts.clear()
        self.socket.sendall(data)
        return reopen

    def receive_some(self) -> None:
        size = self.socket.recv_into(_BUFFER)
        if not size:
            raise Stuck("the server closed a connection in the middle of an answer")
        self.parser.feed_data(_BUFFER[:size])

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def status(self) -> int:
        return int(self.parser.get_status_code())

    def answered(self) -> bool:
        """Return whether the response to the last request has arrived and is a result."""
        message = wire.answer(self.body, self.id)
        return self.status == 200 and message is not None and message.ok

    def close(self) -> None:
        self.socket.close()


class HandshakeConnection(Connection):
    """A connection that keeps the session id. It is not used for measuring, since a callback per header is slow."""

    session = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mcp-session-id":
            self.session = value


class HttpClient:
    """Speaks Streamable HTTP to a server: one session of the handshake era, or the stateless era."""

    spins = False
    """Whether to poll without sleeping: the kernel adds the time to wake a reader to the server's CPU time."""

    def __init__(self, argv: Callable[[int], Sequence[str]], name: str, era: str, token: str = "") -> None:
        self.era = era
        self.token = token
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.session = b""
        self.id = wire.FIRST_ID
        self.process = Process(argv(self.port), name, pipes=False)
        self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        while self.process.age() < TIMEOUT_SECONDS and self.process.alive():
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.01)
        raise _stuck(self.process, "did not listen")

    def handshake(self) -> None:
        if self.era == wire.STATELESS:
            self.ask("server/discover", {})
            return
        connection = HandshakeConnection(self.port)
        self._ask(connection, "initialize", wire.INITIALIZE)
        self.session = connection.session
        body = wire.notification("notifications/initialized")
        connection.send(
            wire.head(self.host, "notifications/initialized", {}, self.era, self.session, len(body), self.token) + body
        )
        self._receive(connection)
        if connection.status not in (200, 202, 204):
            raise _stuck(self.process, f"initialized: HTTP {connection.status} {connection.body[:300]!r}")
        connection.close()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send one request on a new connection. Returns its decoded result.

        Raises:
            Stuck: the response is an error.
        """
        connection = Connection(self.port)
        try:
            return self._ask(connection, method, params)
        finally:
            connection.close()

    def _ask(self, connection: Connection, method: str, params: dict[str, Any]) -> Any:
        self._exchange(connection, wire.post(self.host, method, params, self.era, self.session, self.token))
        message = wire.answer(connection.body, connection.id)
        if connection.status != 200 or message is None or not message.ok:
            raise _stuck(self.process, f"{method}: HTTP {connection.status} {connection.body[:300]!r}")
        return msgspec.json.decode(message.result)  # type: ignore[arg-type]

    def run(self, workload: Workload, seconds: float) -> Run:
        pairs = [
            wire.post(self.host, workload.method, params, self.era, self.session, self.token)
            for params in workload.params
        ]
        connections = [Connection(self.port) for _ in range(workload.in_flight)]
        try:
            if workload.in_flight > 1:
                return self._many(connections, cycle(pairs), workload, seconds)
            only = connections[0]

            def exchange(pair: wire.Pair) -> tuple[int, bool]:
                return self._exchange(only, pair), only.answered()

            return _one_at_a_time(exchange, cycle(pairs), workload, seconds)
        finally:
            for connection in connections:
                connection.close()

    def close(self) -> None:
        self.process.end()

    def _send(self, connection: Connection, pair: wire.Pair) -> bool:
        self.id += 1
        connection.id, connection.sent_at = self.id, now()
        return connection.send(pair[0] + b"%d" % self.id + pair[1])

    def _receive(self, connection: Connection) -> None:
        while not connection.complete:
            connection.receive_some()

    def _exchange(self, connection: Connection, pair: wire.Pair) -> int:
        self._send(connection, pair)
        self._receive(connection)
        return now() - connection.sent_at

    def _many(self, connections: list[Connection], pairs: cycle[wire.Pair], workload: Workload, seconds: float) -> Run:
        run, left, arrived = Run(), workload.most, now()
        poll = select.epoll()
        waiting: dict[int, Connection] = {}

        def watch(connection: Connection) -> None:
            waiting[connection.socket.fileno()] = connection
            poll.register(connection.socket, select.EPOLLIN)

        def fire(connection: Connection) -> None:
            nonlocal left
            left -= 1
            old = connection.socket.fileno()
            if self._send(connection, next(pairs)):  # closing the old socket removed it from the poll
                del waiting[old]
                watch(connection)

        try:
            start = now()
            end = start + int(seconds * 1e9)
            for connection in connections:
                watch(connection)
                fire(connection)
            while waiting:
                ready = poll.poll(0) if self.spins else poll.poll(TIMEOUT_SECONDS)
                if not ready and self.spins and now() - arrived < TIMEOUT_SECONDS * 1e9:
                    continue
                if not ready:
                    raise _stuck(self.process, f"no answer within {TIMEOUT_SECONDS:.0f} s")
                for number, _ in ready:
                    connection = waiting[number]
                    connection.receive_some()
                    if not connection.complete:
                        continue
                    arrived = now()
                    run.latencies.append(arrived - connection.sent_at)
                    run.errors += not connection.answered()
                    if arrived < end and left > 0:
                        fire(connection)
                    else:
                        poll.unregister(number)
                        del waiting[number]
        finally:
            poll.close()
        run.seconds = (arrived - start) / 1e9
        return run


def _one_at_a_time(
    exchange: Callable[[wire.Pair], tuple[int, bool]], pairs: cycle[wire.Pair], workload: Workload, seconds: float
) -> Run:
    run, end = Run(), now() + int(seconds * 1e9)
    while not run.latencies or (now() < end and len(run.latencies) < workload.most):
        latency, ok = exchange(next(pairs))
        run.latencies.append(latency)
        run.errors += not ok
    run.seconds = sum(run.latencies) / 1e9
    return run
