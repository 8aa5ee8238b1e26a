"""Measures how soon many clients are notified of a changed resource, and how long the server's event loop is blocked.

    python benchmarks/watchers.py                        200 and 10,000 watchers, in both eras, three rounds
    python benchmarks/watchers.py --count 200 --rounds 9
    python benchmarks/watchers.py --beside ../main       this checkout and another one, in turns

Each watcher has its own connection. `first` and `last` are milliseconds from the change until the kernel received the
first and the last notification (its time stamp on the packet). Until then the client sleeps, as if it ran on another
machine. `read` is the time until a client on this machine, which reads each notification as it arrives, has read the
last one. The pauses are the longest times for which one callback blocked the server's event loop: while all clients
connect, when the resource changes, and when all disconnect at once. The figures are medians of single changes a few
hundred milliseconds apart. The exit status is 1 if 200 watchers took more than 10 ms, 10,000 watchers more than 150 ms,
or a pause was longer than 50 ms. Linux only; needs one file descriptor for each watcher.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness.environments import BENCHMARKS, node_folder, tool
from benchmarks.harness.process import SERVER_CORE, settle, settle_driver
from benchmarks.harness.wire import CLIENT, META

ERAS = {"session": "2025-11-25", "stateless": "2026-07-28"}
URI = "bench://watched"
MAX_LAST_MS = {200: 10.0, 10_000: 150.0}
"""By number of watchers: the longest time until the kernel has received the last notification."""
MAX_PAUSE_MS = 50.0
CHANGES = 7
BATCH_SIZE = 100
"""Watchers that connect at once."""
TIMEOUT_SECONDS = 30.0
SO_TIMESTAMPNS = 35


class Figures(NamedTuple):
    """The results of one round, in milliseconds except for `seconds`."""

    first: float
    last: float
    read: float
    connecting: float
    changing: float
    disconnecting: float
    seconds: float
    """How long it took to connect all watchers."""


class ServerProcess:
    """A server process, and the commands that it reads from its stdin."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            preexec_fn=lambda: settle(SERVER_CORE),
        )
        self.port = int(self.answer())

    def answer(self) -> float:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("The server ended.")
        return float(line)

    def ask(self, word: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def post(message: dict[str, object], *headers: str) -> bytes:
    """Return a request as bytes."""
    body = json.dumps(message).encode()
    lines = (
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_until(connection: socket.socket, *marks: bytes) -> bytes:
    """Read until all of these marks have arrived, in this order."""
    data = b""
    for mark in marks:
        while mark not in data:
            data += (more := connection.recv(65536))
            if not more:
                raise SystemExit(f"The server closed a connection: {data[-500:]!r}")
    return data


def read_answer(connection: socket.socket) -> tuple[bytes, bytes]:
    """Read a response. Returns its head and its body, chunked or not."""
    head, _, body = read_until(connection, b"\r\n\r\n").partition(b"\r\n\r\n")
    length = int(found[1]) if (found := re.search(rb"(?i)content-length: (\d+)", head)) else 0
    chunked = b"transfer-encoding: chunked" in head.lower()
    while not body.endswith(b"0\r\n\r\n") if chunked else len(body) < length:
        body += connection.recv(65536)
    return head, body


def listen(connections: list[socket.socket]) -> None:
    """Watch by `subscriptions/listen` (2026-07-28)."""
    headers = "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen"
    wanted = {"notifications": {"resourceSubscriptions": [URI]}, "_meta": META}
    for number, connection in enumerate(connections):
        message = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": wanted}
        connection.sendall(post(message, *headers))
    for connection in connections:
        read_until(connection, b"acknowledged")


def subscribe(connections: list[socket.socket]) -> None:
    """Watch by `resources/subscribe`, and read the session's own stream (2025-11-25)."""
    client = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": CLIENT,
    }
    hello = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
    for connection in connections:
        connection.sendall(hello)
    sessions: list[str] = []
    for connection in connections:
        head, _ = read_answer(connection)
        sessions += re.findall(r"(?i)mcp-session-id: (\S+)", head.decode())
    messages: tuple[dict[str, object], ...] = (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": URI}},
    )
    for message in messages:
        for connection, session in zip(connections, sessions, strict=True):
            headers = f"Mcp-Session-Id: {session}", "MCP-Protocol-Version: 2025-11-25"
            connection.sendall(post(message, *headers))
        for connection in connections:
            read_answer(connection)
    for connection, session in zip(connections, sessions, strict=True):
        lines = (
            "GET /mcp HTTP/1.1",
            "Host: 127.0.0.1",
            "Accept: text/event-stream",
            f"Mcp-Session-Id: {session}",
            "MCP-Protocol-Version: 2025-11-25",
        )
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
    for connection in connections:
        read_until(connection, b"\r\n\r\n")


class Watchers:
    """Connections that watch the resource."""

    def __init__(self, port: int, era: str, count: int) -> None:
        self.connections: list[socket.socket] = []
        while len(self.connections) < count:
            batch = [
                socket.create_connection(("127.0.0.1", port))
                for _ in range(min(BATCH_SIZE, count - len(self.connections)))
            ]
            for connection in batch:
                connection.settimeout(TIMEOUT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            (subscribe if era == "session" else listen)(batch)
            self.connections += batch
        self.by_number = {connection.fileno(): connection for connection in self.connections}
        self.epoll = select.epoll()
        for number in self.by_number:
            self.epoll.register(number, select.EPOLLIN)

    def read_notifications(self) -> tuple[list[int], int]:
        """Read one notification from each connection. Returns when each arrived and when the last was read, in ns."""
        arrived: list[int] = []
        silent = set(self.by_number)
        while silent:
            ready = self.epoll.poll(TIMEOUT_SECONDS)
            if not ready:
                raise SystemExit(f"{len(silent)} watchers received no notification.")
            for number, _ in ready:
                data, ancillary, _, _ = self.by_number[number].recvmsg(65536, 64)
                if b"/updated" in data:
                    seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                    arrived.append(seconds * 10**9 + nanoseconds)
                    silent.discard(number)
        return arrived, time.time_ns()

    def disconnect(self) -> None:
        self.epoll.close()
        for connection in self.connections:
            connection.close()


def measure(argv: Sequence[str], environment: dict[str, str], era: str, count: int) -> Figures:
    """Connect all, change the resource a few times, and let all disconnect."""
    server = ServerProcess(argv, environment)
    try:
        idle = server.descriptors()
        server.ask("pause")
        began = time.perf_counter()
        watchers = Watchers(server.port, era, count)
        seconds = time.perf_counter() - began
        connecting = server.ask("pause")
        times: list[tuple[float, float, float]] = []
        for _ in range(CHANGES):
            time.sleep(0.3)
            changed = server.ask("change")
            _, read_at = watchers.read_notifications()
            read_ms = (read_at - changed) / 1e6
            time.sleep(0.3)
            changed = server.ask("change")
            time.sleep(0.2 + count / 20_000)
            arrived, _ = watchers.read_notifications()
            times.append(((min(arrived) - changed) / 1e6, (max(arrived) - changed) / 1e6, read_ms))
        changing = server.ask("pause")
        watchers.disconnect()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while server.descriptors() > idle + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.5)  # the server's clean-up after that may block the loop too
        disconnecting = server.ask("pause")
    finally:
        server.end()
    first, last, read = (statistics.median(column) for column in zip(*times, strict=True))
    return Figures(first, last, read, connecting, changing, disconnecting, seconds)


def ours(checkout: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command of our server in a checkout, and its environment."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout / "src")}
    return [sys.executable, str(BENCHMARKS / "servers" / "watched.py")], environment


def typescript() -> tuple[list[str], dict[str, str]] | None:
    """Return the command of the TypeScript SDK's server, or None if it is not installed (`run.py --peers ts2`)."""
    folder = node_folder("ts2")
    if not (folder / "node_modules").is_dir():
        return None
    file = folder / "watched_ts2.mjs"
    file.write_bytes((BENCHMARKS / "servers" / "watched_ts2.mjs").read_bytes())
    return [tool("node"), str(file)], {"PATH": os.environ["PATH"]}


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, action="append", help="watchers (200 and 10,000)")
    parser.add_argument("--era", choices=ERAS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="CHECKOUT")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    settle_driver()
    here = BENCHMARKS.parent
    servers = {"ours": ours(here), **{checkout.name: ours(checkout.resolve()) for checkout in options.beside}}
    print(f"{'ms':28} {'first':>7} {'last':>7} {'read':>7}   pauses: {'connect':>7} {'change':>7} {'disconnect':>10}")
    missed = False
    for count in options.count or MAX_LAST_MS:
        for era in options.era or ERAS:
            peers = dict(servers)
            if count <= 200 and (other := typescript()) is not None:
                peers["ts2"] = other
            rounds: dict[str, list[Figures]] = {name: [] for name in peers}
            for _ in range(options.rounds):
                for name, (argv, environment) in peers.items():
                    rounds[name].append(measure(argv, environment, era, count))
            for name, figures in rounds.items():
                median = Figures(*(statistics.median(column) for column in zip(*figures, strict=True)))
                late = median.last > MAX_LAST_MS.get(count, float("inf"))
                blocked = max(median.connecting, median.changing, median.disconnecting) > MAX_PAUSE_MS
                missed |= name == "ours" and (late or blocked)
                print(
                    f"{f'{count:,} {era} {name}':28} {median.first:7.1f} {median.last:7.1f} {median.read:7.1f}"
                    f"           {median.connecting:7.1f} {median.changing:7.1f} {median.disconnecting:10.1f}"
                    f"{' LATE' * late}{' PAUSE' * blocked}",
                    flush=True,
                )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
