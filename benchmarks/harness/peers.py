"""The peers, one row each. Apart from the verdicts, nothing else in the harness names a peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import wire
from .environments import BENCHMARKS, node_folder, python, script, tool
from .load import Client, HttpClient, StdioClient

MODES = {
    "stdio": "stdio, handshake era (2025-11-25)",
    "session": "HTTP sessions, handshake era (2025-11-25)",
    "stateless": "stateless HTTP (2026-07-28)",
}
ERAS = {"stdio": wire.HANDSHAKE, "session": wire.HANDSHAKE, "stateless": wire.STATELESS}


@dataclass(frozen=True)
class Peer:
    """A server under test."""

    name: str
    about: str
    modes: tuple[str, ...]
    environment: str
    server: str
    """The file of its server, below `benchmarks/` (Node: in its environment). `{face}` stands for `stdio` or `asgi`."""
    imports: str
    """The import statement of a server; empty if another row measures it."""
    options: tuple[str, ...] = ()
    node: bool = False
    warm: float = 1
    """Factor of the warm-up time: V8 takes longer to optimize than CPython."""

    def argv(self, mode: str, port: int = 0) -> list[str]:
        """Return the command of its server in `mode`."""
        transport = ["stdio"] if mode == "stdio" else ["http", str(port), mode]
        file = self.server.format(face="stdio" if mode == "stdio" else "asgi")
        folder = node_folder(self.environment) if self.node else BENCHMARKS
        return [*self.runtime(), str(folder / file), *transport, *self.options]

    def runtime(self) -> list[str]:
        return [tool("node")] if self.node else [str(python(self.environment))]

    def import_argv(self, statement: str) -> list[str]:
        """Return a command that prints the milliseconds of an import, and the resident MiB of the process after it."""
        if self.node:
            code = f"const t = performance.now(); {statement}; const ms = performance.now() - t;"
            code += "console.log(ms, process.memoryUsage().rss / 2**20)"
            return [*self.runtime(), "--input-type=module", "-e", code]
        code = f"import time; t = time.perf_counter(); {statement}; ms = (time.perf_counter() - t) * 1e3\n"
        code += "import os; pages = int(open('/proc/self/statm').read().split()[1])\n"
        code += "print(ms, pages * os.sysconf('SC_PAGE_SIZE') / 2**20)"
        return [*self.runtime(), "-c", code]

    def connect(self, mode: str) -> Client:
        """Start its server in `mode` and connect to it."""
        name = f"{self.name}-{mode}"
        if mode == "stdio":
            return StdioClient(self.argv(mode), name)
        return HttpClient(lambda port: self.argv(mode, port), name, ERAS[mode])


ALL, HANDSHAKE_ONLY, HTTP_ONLY = tuple(MODES), ("stdio", "session"), ("session", "stateless")
_TS1, _TS2 = "@modelcontextprotocol/sdk/server", "@modelcontextprotocol/server"
PEERS = (
    Peer("floor", "no framework: what the machine can do", ALL, "floor", "floors/{face}.py", "import msgspec"),
    Peer("ours", "this repository", ALL, "ours", "servers/ours.py", "from wharfinger import Server"),
    Peer(
        "mcp2",
        "mcp 2.3.0, default install",
        ALL,
        "mcp2",
        "servers/mcp2.py",
        "from mcp.server.mcpserver import MCPServer",
    ),
    Peer(
        "mcp2-fast",
        "mcp 2.3.0, JSON answers, uvloop, httptools",
        HTTP_ONLY,
        "mcp2-fast",
        "servers/mcp2.py",
        "",
        ("fast",),
    ),
    Peer("mcp1", "mcp 1.30.0", HANDSHAKE_ONLY, "mcp1", "servers/mcp1.py", "from mcp.server.fastmcp import FastMCP"),
    Peer("fastmcp4", "FastMCP 4.1.6", ALL, "fastmcp4", "servers/fastmcp4.py", "from fastmcp import FastMCP"),
    Peer(
        "ts1", "TypeScript SDK 1.32.2", HANDSHAKE_ONLY, "ts1", "ts1.mjs", f"await import('{_TS1}/mcp.js')", (), True, 4
    ),
    Peer("ts2", "TypeScript SDK 2.4.0", ALL, "ts2", "ts2.mjs", f"await import('{_TS2}')", (), True, 4),
)
BY_NAME = {peer.name: peer for peer in PEERS}


def serve_command(folder: str) -> Sequence[str]:
    """Return the command that publishes a folder over stdio."""
    return [str(script("ours", "wharfinger")), "serve", folder, "--stdio"]
