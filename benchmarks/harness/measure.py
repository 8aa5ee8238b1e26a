"""The measurements: peers take turns within each workload, in new processes for each round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import environments
from .load import Client, StdioClient, Stuck
from .peers import Peer, serve_command
from .process import SERVER_CORE, environment, settle
from .workloads import Workload

Row = dict[str, Any]
"""Mode, workload, peer, turn and the figures, or `failed` instead of them. Rows of one turn are measured together."""
TURNS = 3
"""How often each workload of each server is measured in one round."""
REGISTERED = {"resources": "resources", "tools": "tools of many functions"}
"""The workloads that register ten thousand features, and the cases of `registering.py` that measure them."""


def say(text: str) -> None:
    """Print progress to stderr; the tables go to stdout."""
    print(text, file=sys.stderr, flush=True)


def requests(
    mode: str, peers: Sequence[Peer], workloads: Sequence[Workload], number: int, seconds: float, warm: float
) -> list[Row]:
    """Measure round `number` of one mode: start, check and warm up all servers, then measure each workload in turns.

    `seconds` is the time for one workload of one server, `warm` that of its warm-up.
    """
    rows: list[Row] = []
    clients: dict[str, Client] = {}
    try:
        for peer in peers:
            try:
                clients[peer.name] = client = peer.connect(mode)
                client.handshake()
                check(client, workloads)
                warm_up(client, workloads, warm * peer.warm)
            except (Stuck, OSError) as error:
                rows += [failed(mode, "start", peer.name, number, error)]
                drop(clients, peer.name)
        first = number % len(workloads)  # another workload is the first in each round
        for workload in [*workloads[first:], *workloads[:first]]:
            for turn in range(number * TURNS, (number + 1) * TURNS):
                for name, client in list(clients.items()):
                    try:
                        row = {"mode": mode, "workload": workload.name, "peer": name, "turn": turn}
                        rows.append({**row, **figures(client, workload, seconds / TURNS)})
                        say(_line(rows[-1]))
                    except (Stuck, OSError) as error:
                        rows += [failed(mode, workload.name, name, turn, error)]
                        drop(clients, name)
    finally:
        for name in list(clients):
            drop(clients, name)
    return rows


def check(client: Client, workloads: Iterable[Workload]) -> None:
    """Check whole answers before anything is timed.

    Raises:
        Stuck: an answer is wrong.
    """
    for workload in workloads:
        for params in workload.params[:3]:
            result = client.ask(workload.method, params)
            if not workload.check(result, params):
                raise Stuck(f"{workload.name}: wrong answer {str(result)[:300]}")


def warm_up(client: Client, workloads: Sequence[Workload], seconds: float) -> None:
    """Run the frequent workloads. A blob of 50 MiB is left out: more reads of it would warm up nothing."""
    light = [workload for workload in workloads if workload.mib < 50]
    for _ in range(2):
        for workload in light:
            client.run(workload, seconds / 2 / len(light))


def figures(client: Client, workload: Workload, seconds: float) -> Row:
    """Measure one workload on a warm client."""
    driver, server = time.process_time(), client.process.cpu()
    began = time.perf_counter()
    run = client.run(workload, seconds)
    elapsed = time.perf_counter() - began
    driver, server = time.process_time() - driver, client.process.cpu() - server
    count, latencies = len(run.latencies), sorted(run.latencies)
    return {
        "requests": count,
        "rate": count / run.seconds,
        "mib_s": count * workload.mib / run.seconds,
        "cpu_us": server / count * 1e6,
        "p50_us": latencies[count // 2] / 1e3,
        "p99_us": latencies[count * 99 // 100] / 1e3,
        "driver_busy": driver / elapsed,
        "server_busy": server / elapsed,
        "errors": run.errors,
    }


def start(peers: Sequence[Peer], turn: int) -> list[Row]:
    """Measure the start of servers: the import, the time until the first answer on stdio, and the idle memory."""
    rows: list[Row] = []
    for peer in peers:
        row = {"mode": "start", "peer": peer.name, "turn": turn}
        try:
            if peer.imports:
                rows.append({**row, "workload": "import", **_import(peer, peer.imports)})
            if "stdio" in peer.modes:
                rows.append({**row, "workload": "spawn", **_spawn(peer.argv("stdio"), peer.name)})
            if peer.name == environments.OURS:
                rows.append({**row, "workload": "client", **_import(peer, "from wharfinger import Client")})
                rows += [{**row, "workload": kind, **figure} for kind, figure in _register(peer).items()]
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, "tides.txt").write_text("high water 10:31\n")
                    rows.append({**row, "workload": "serve", **_spawn(serve_command(folder), "serve")})
        except (Stuck, OSError) as error:
            rows.append(failed("start", "start", peer.name, turn, error))
        else:
            say(f"start      {peer.name}")
    return rows


def _import(peer: Peer, statement: str) -> Row:
    # In the environment's folder, since Node resolves packages from the current folder.
    done = subprocess.run(
        peer.import_argv(statement),
        cwd=environments.HOME / peer.environment,
        env=environment(),
        preexec_fn=lambda: settle(SERVER_CORE),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise Stuck(f"import failed: {done.stderr[-600:]}")
    ms, mib = done.stdout.split()
    return {"ms": float(ms), "mib": float(mib)}


def _register(peer: Peer) -> dict[str, Row]:
    code = "from registering import CASES, make_function, shortest_seconds; import json\n"
    code += "functions = [make_function(n) for n in range(10_000)]\n"
    code += "print(json.dumps({name: shortest_seconds(case, functions) for name, case in CASES.items()}))"
    done = subprocess.run(
        [*peer.runtime(), "-c", code],
        cwd=environments.BENCHMARKS,
        env=environment(),
        preexec_fn=lambda: settle(SERVER_CORE),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise Stuck(f"registering failed: {done.stderr[-600:]}")
    seconds = json.loads(done.stdout)
    return {workload: {"ms": seconds[case] * 1e3} for workload, case in REGISTERED.items()}


def _spawn(argv: Sequence[str], name: str) -> Row:
    client = StdioClient(argv, f"{name}-spawn")
    try:
        client.handshake()
        ms = (client.arrived / 1e9 - client.process.spawned) * 1e3
        cpu = client.process.cpu() * 1e3
        time.sleep(0.1)  # until the server is idle again
        return {"ms": ms, "cpu_ms": cpu, "mib": client.process.rss()}
    finally:
        client.close()


def machine() -> Row:
    """Return the properties of this machine on which the figures depend."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": (model or ["unknown"])[0],
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load": os.getloadavg()[0],
    }


def drop(clients: dict[str, Any], name: str) -> None:
    """Close the client of a peer, and leave the peer out of the rest of the round."""
    if client := clients.pop(name, None):
        client.close()


def failed(mode: str, workload: str, peer: str, turn: int, error: Exception) -> Row:
    """Report a failure. Returns its row."""
    say(f"{mode:10} {peer} failed at {workload}: {error}")
    return {"mode": mode, "workload": workload, "peer": peer, "turn": turn, "failed": str(error)}


def _line(row: Row) -> str:
    wrong = f"  {row['errors']} WRONG" if row["errors"] else ""
    name = f"{row['mode']:10} {row['workload']:10} {row['peer']:10}"
    busy = f"busy: driver {row['driver_busy']:.2f} server {row['server_busy']:.2f}"
    return (
        f"{name} {row['rate']:>10,.1f}/s  {row['cpu_us']:>10,.1f} µs CPU  p99 {row['p99_us']:>8,.0f} µs  {busy}{wrong}"
    )
