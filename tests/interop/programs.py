"""The installed peers, and how tests run their programs and servers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, absent
from tests.waiting import wait_until_listening

HOME = ROOT / ".interop"
PROGRAMS = Path(__file__).resolve().parent / "peers"
FEATURE_SERVER = Path(__file__).resolve().parent / "feature_server.py"
TIMEOUT_SECONDS = 60.0
PROBE_SECONDS = 20.0
"""A slow peer must start within this time, or the client takes its silence for an older revision."""

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
OLDER_REVISIONS = ("2025-06-18", "2025-03-26", "2024-11-05")

# The revisions of each peer, as client and as server.
PEERS = {
    "mcp1": (HANDSHAKE,),
    "mcp2": (HANDSHAKE, STATELESS),
    "ts1": (HANDSHAKE,),
    "ts2": (HANDSHAKE, STATELESS),
}
# FastMCP 4 has no subscriptions as client or server, so it is not in tests that watch changes.
CLIENTS = PEERS | {"fastmcp": (HANDSHAKE, STATELESS)}


def program(peer: str, role: str) -> list[str]:
    """Return the command that runs a peer's program in the peer's environment. `role` names the program."""
    if peer.startswith("ts"):
        return node_program("ts", f"{peer}_{role}.mjs")
    return [installed(peer, "bin/python"), str(PROGRAMS / f"{peer}_{role}.py")]


def installed(environment: str, path: str, target: str = "interop") -> str:
    """Return the path of a file in an environment. If it is missing, skip the test (in CI fail it)."""
    file = HOME / environment / path
    if not file.exists():
        absent(f"{file.relative_to(ROOT)} (run: make {target})")
    return str(file)


def node(environment: str, script: str) -> list[str]:
    """Return the command that runs a script of an npm package in an environment."""
    runtime = ROOT / ".node" / "bin" / "node"
    if not runtime.exists():
        absent(f"{runtime.relative_to(ROOT)} (run: make interop)")
    return [str(runtime), installed(environment, f"node_modules/{script}")]


def node_program(environment: str, name: str) -> list[str]:
    """Return the command that runs one of our programs with the npm packages of an environment."""
    runtime, *_ = node(environment, "")
    folder = HOME / environment / "peers"  # node finds packages beside the program, so it runs a copy there
    folder.mkdir(exist_ok=True)
    for source in PROGRAMS.glob("*.mjs"):
        copy = folder / source.name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            fresh = folder / f"{source.name}.{os.getpid()}"  # another process may be reading the old one
            shutil.copyfile(source, fresh)
            fresh.replace(copy)
    return [runtime, str(folder / name)]


def wharfinger_command() -> list[str]:
    """Return the command `wharfinger` of the environment that runs the tests."""
    return [str(Path(sys.executable).with_name("wharfinger"))]


def run_client(peer: str, visit: dict[str, Any], role: str = "client") -> dict[str, Any]:
    """Run a peer's client on a visit (see `run_program`)."""
    return run_program(program(peer, role), visit)


def run_program(command: list[str], visit: dict[str, Any], timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Run a program that visits a server as `visit` says. Returns its results, or fails with all of its output."""
    completed = subprocess.run(
        [*command, json.dumps(visit)],
        capture_output=True, text=True, timeout=timeout, check=False, env=environment(),
    )  # fmt: skip
    lines = completed.stdout.splitlines()
    assert completed.returncode == 0 and lines, (
        f"{command[-1]} ended with {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
    )
    results: dict[str, Any] = json.loads(lines[-1])
    return results


@contextlib.contextmanager
def run_server(command: list[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block, with its output in `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment())
    try:
        wait_until_listening(process, port, lambda: log.read_text(errors="replace"))
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def stop(process: subprocess.Popen[bytes], within: float) -> int:
    """Send SIGINT and return the exit code. Fails after `within` seconds."""
    process.send_signal(signal.SIGINT)
    return process.wait(within)


def environment() -> dict[str, str]:
    """Return the environment without our variables and without colour."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("WHARFINGER_")}
    return {**variables, "NO_COLOR": "1"}
