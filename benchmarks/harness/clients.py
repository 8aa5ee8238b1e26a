"""Clients under test: each runs in its own process and sends requests to a floor server when the driver says so."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .environments import BENCHMARKS, node_folder
from .load import Stuck
from .measure import TURNS, Row, drop, failed, say
from .peers import BY_NAME, Peer
from .process import DRIVER_CORE, Process, free_port
from .workloads import Workload

CLIENT_MODES = {
    "client-stdio": "clients, stdio (2025-11-25)",
    "client-session": "clients, HTTP sessions (2025-11-25)",
    "client-stateless": "clients, stateless HTTP (2026-07-28)",
}
MEASURED = ("call", "call-32", "static-32", "blob-1", "blob-50")
"""The workloads that depend on the client."""
TIMEOUT_SECONDS = 300.0
"""Seconds without an answer after which a client counts as stuck. Some need almost a minute for 50 MiB."""


class ClientUnderTest:
    """A peer's client, connected to its own floor server on stdio, or to a shared one over HTTP."""

    def __init__(self, peer: Peer, mode: str, url: str) -> None:
        self.peer = peer
        kind = mode.removeprefix("client-")
        target: dict[str, Any] = {"mode": kind}
        if kind == "stdio":
            target["command"] = [*BY_NAME["floor"].argv("stdio"), str(DRIVER_CORE)]
        else:
            target["url"] = url
        if peer.node:
            program = node_folder(peer.environment) / f"{peer.name}_client.mjs"
        else:
            program = BENCHMARKS / "clients" / f"{peer.name}.py"
        self.process = Process([*peer.runtime(), str(program), json.dumps(target)], f"{peer.name}-{mode}", pipes=True)
        self._buffer = b""
        if self._line(60) != b"ready":
            raise Stuck(f"{peer.name} did not report that it is ready")

    def run(self, workload: Workload, seconds: float) -> Row:
        """Let the client send requests for `seconds`. Returns the figures that it reports."""
        order = {
            "method": workload.method,
            "params": params_in_turn(workload),
            "in_flight": workload.in_flight,
            "seconds": seconds,
            "most": min(workload.most, 1) if workload.mib >= 50 else workload.most,
            "length": length(workload),
        }
        stdin = self.process.popen.stdin
        assert stdin is not None
        data = memoryview(json.dumps(order).encode() + b"\n")
        server = self._server_cpu()
        while data:
            data = data[stdin.write(data) :]
        figures = json.loads(self._line(TIMEOUT_SECONDS))
        server = self._server_cpu() - server
        return {
            "requests": figures["requests"],
            "rate": figures["requests"] / figures["seconds"],
            "mib_s": figures["requests"] * workload.mib / figures["seconds"],
            "cpu_us": figures["cpu"] / figures["requests"] * 1e6,
            "p50_us": figures["p50"] / 1e3,
            "p99_us": figures["p99"] / 1e3,
            "driver_busy": server / figures["seconds"],
            "errors": figures["errors"],
        }

    def close(self) -> None:
        self.process.end()

    def _server_cpu(self) -> float:
        """Return the CPU seconds of the floor server that the client started; 0 if it did not start one."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        with suppress(OSError):
            return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)
        return 0.0

    def _line(self, seconds: float) -> bytes:
        stdout = self.process.popen.stdout
        assert stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([stdout], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                problem = "ended" if ready else f"did not answer for {seconds:g} s"
                raise Stuck(f"{self.peer.name} {problem}: {self.process.log_tail()}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line


def params_in_turn(workload: Workload) -> Sequence[dict[str, Any]]:
    """Return the params that a client sends in turn."""
    return workload.params[1:900] or workload.params


def length(workload: Workload) -> int:
    """Return the length of the text or base64 blob of an answer. The sums of `params_in_turn` have three digits."""
    if workload.mib:
        return 4 * -(-int(workload.mib * 2**20) // 3)
    return 3 if workload.method == "tools/call" else 1024


def requests(
    mode: str, peers: Sequence[Peer], workloads: Sequence[Workload], number: int, seconds: float, warm: float
) -> list[Row]:
    """Measure round `number` of one mode, with new clients that take turns within each workload."""
    rows: list[Row] = []
    chosen = [workload for workload in workloads if workload.name in MEASURED]
    taking_part = measured(peers, mode)
    clients: dict[str, ClientUnderTest] = {}
    floor: Process | None = None
    try:
        url = ""
        if mode != "client-stdio":
            floor, url = _floor(mode)
        for peer in taking_part:
            try:
                clients[peer.name] = client = ClientUnderTest(peer, mode, url)
                for workload in [w for w in chosen if w.mib < 50]:
                    client.run(workload, warm * peer.warm / 4)
            except (Stuck, OSError, ValueError) as error:
                rows.append(failed(mode, "start", peer.name, number, error))
                drop(clients, peer.name)
        for workload in chosen:
            for turn in range(number * TURNS, number * TURNS + (1 if workload.mib >= 50 else TURNS)):
                for name, client in list(clients.items()):
                    row: Row = {"mode": mode, "workload": workload.name, "peer": name, "turn": turn}
                    before = floor.cpu() if floor else 0.0
                    try:
                        row |= client.run(workload, seconds / TURNS)
                    except (Stuck, OSError, ValueError) as error:
                        rows.append(failed(mode, workload.name, name, turn, error))
                        drop(clients, name)
                        continue
                    if floor:
                        row["driver_busy"] = (floor.cpu() - before) / (row["requests"] / row["rate"])
                    rows.append(row)
                    say(
                        f"{mode:16} {workload.name:10} {name:10} {row['rate']:>10,.1f}/s {row['cpu_us']:>12,.1f} µs CPU"
                    )
    finally:
        for name in list(clients):
            drop(clients, name)
        if floor:
            floor.end()
    return rows


def measured(peers: Sequence[Peer], mode: str) -> list[Peer]:
    """Return the peers that have a client for this mode."""
    kind = mode.removeprefix("client-")
    return [peer for peer in peers if kind in peer.modes and peer.name not in ("floor", "mcp2-fast")]


def _floor(mode: str) -> tuple[Process, str]:
    """Start the HTTP floor server for all clients, on the driver's core: meanwhile, the driver only waits."""
    port = free_port()
    process = Process(BY_NAME["floor"].argv(mode.removeprefix("client-"), port), f"floor-{mode}", pipes=False)
    os.sched_setaffinity(process.pid, {DRIVER_CORE})
    deadline = time.monotonic() + 20
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process, f"http://127.0.0.1:{port}/mcp"
        if not process.alive() or time.monotonic() > deadline:
            process.end()
            raise Stuck(f"the floor has not started: {process.log_tail()}")
        time.sleep(0.05)
