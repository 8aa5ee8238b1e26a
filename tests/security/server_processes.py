"""Real servers for the security tests: `wharfinger serve` and `wharfinger run` as processes, over stdio and HTTP."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CI
from tests.transports.http_support import META, RawClient

COMMAND = [sys.executable, "-m", "wharfinger"]
FIXTURE = str(Path(__file__).with_name("fixture.py"))
DEADLINE_SECONDS = 40.0
"""A test fails if it waits longer."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("WHARFINGER_")}
MIB = 1 << 20
INITIALIZE_PARAMS = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def handshake_request(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    """Return a request of the handshake era."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def stateless_request(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    """Return a request of the stateless era."""
    return handshake_request(id, method, {**(params or {}), "_meta": META})


def notification(method: str, params: Any = None) -> dict[str, Any]:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params or {}}


class ServerProcess:
    """A server process, which is killed at the end of the block."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, **pipes: Any) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=pipes.get("stdin", subprocess.PIPE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ENVIRONMENT, **(env or {})},
            bufsize=0,
        )
        self.errors = b""
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        while data := os.read(self.process.stderr.fileno(), 65536):  # type: ignore[union-attr]
            self.errors = (self.errors + data)[-MIB:]

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        self._reader.join(DEADLINE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def wait_for_exit(self, seconds: float = 20.0) -> int:
        """Wait for the end of the process. Return its exit code."""
        return self.process.wait(seconds)

    def status(self, name: str) -> int:
        """Return a number from /proc: `VmRSS` or `VmHWM` in bytes, or `Threads`."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        number = int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1])  # type: ignore[index]
        return number if name == "Threads" else number * 1024

    @property
    def rss(self) -> int:
        """Bytes of memory in use."""
        return self.status("VmRSS")

    @property
    def peak(self) -> int:
        """Peak of memory in bytes since the last `reset_peak`."""
        return self.status("VmHWM")

    def reset_peak(self) -> int:
        """Reset the peak, and return the memory in use."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.rss

    @property
    def processor_time(self) -> float:
        """Processor time in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        """Return the number of open files."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class StdioProcess(ServerProcess):
    """A server over stdio, line by line."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        super().__init__(*arguments, env=env)
        self.buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.process.stdin.fileno(), view) :]  # type: ignore[union-attr]

    def send(self, *messages: Any) -> None:
        """Send messages in one write. Messages that are bytes are sent unchanged."""
        self.write(b"".join(m + b"\n" if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages))

    def read_line(self, seconds: float = DEADLINE_SECONDS) -> bytes:
        """Return the next line, or b"" at the end of the output."""
        deadline = time.monotonic() + seconds
        seen = 0
        while (newline := self.buffer.find(b"\n", seen)) < 0:
            seen = len(self.buffer)
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no line within {seconds} s; stderr: {self.errors[-2000:]!r}")
            data = os.read(self.process.stdout.fileno(), MIB)  # type: ignore[union-attr]
            if not data:
                return b""
            self.buffer += data
        line = bytes(self.buffer[:newline])
        del self.buffer[: newline + 1]
        return line

    def receive(self, seconds: float = DEADLINE_SECONDS) -> Any:
        """Return the next message."""
        return json.loads(self.read_line(seconds))

    def read_until_answer(self, id: Any, seconds: float = DEADLINE_SECONDS) -> tuple[Any, list[Any]]:
        """Return the answer with this id, and the messages before it."""
        before = []
        while True:
            answer = self.receive(seconds)
            if answer.get("id") == id and type(answer.get("id")) is type(id) and "method" not in answer:
                return answer, before
            before.append(answer)

    def request(self, method: str, params: Any = None, id: Any = "ask") -> Any:
        """Send a stateless request and return its answer."""
        self.send(stateless_request(id, method, params))
        return self.read_until_answer(id)[0]

    def call_tool(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return the answer."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def initialize(self) -> None:
        """Perform the handshake."""
        self.send(handshake_request("open", "initialize", INITIALIZE_PARAMS), notification("notifications/initialized"))
        assert "result" in self.read_until_answer("open")[0]

    def close_input(self) -> None:
        """Close the input of the server."""
        self.process.stdin.close()  # type: ignore[union-attr]


class HttpProcess(ServerProcess):
    """A server over HTTP on a free port of the loopback interface."""

    def __init__(self, *arguments: str, address: str = "127.0.0.1:0", env: dict[str, str] | None = None) -> None:
        super().__init__(*arguments, "--http", address, env=env, stdin=subprocess.DEVNULL)
        self.output: list[str] = []
        for line in iter(self.process.stdout.readline, b""):  # type: ignore[union-attr]
            self.output.append(line.decode())
            if found := re.search(rb"MCP  (\w+)://\S+:(\d+)/mcp", line):
                self.port = int(found[2])
                break
        else:
            raise AssertionError(self.errors)
        threading.Thread(target=self._read_output, daemon=True).start()

    def _read_output(self) -> None:
        try:
            while data := os.read(self.process.stdout.fileno(), 65536):  # type: ignore[union-attr]
                self.output.append(data.decode(errors="replace"))
        except (OSError, ValueError):
            pass

    def connect(self, seconds: float = DEADLINE_SECONDS) -> RawClient:
        """Open a connection."""
        return RawClient(self.port, seconds)

    def call_tool(self, tool: str, **arguments: Any) -> Any:
        """Call a tool on a new connection."""
        with self.connect() as client:
            return call_tool(client, tool, **arguments)


def call_tool(client: RawClient, tool: str, id: Any = 1, **arguments: Any) -> Any:
    """Make a stateless tool call. Return the result or the error."""
    start_call(client, tool, id, **arguments)
    body = client.reply().json
    return body.get("result", body.get("error"))


def start_call(client: RawClient, tool: str, id: Any = 1, **arguments: Any) -> None:
    """Send a stateless tool call."""
    client.send_stateless("tools/call", {"name": tool, "arguments": arguments}, id, mcp_name=tool)


heavy = pytest.mark.skipif(not CI, reason="heavy: it runs with CI=true")
"""For tests that take seconds or much memory."""


def read_file(server: StdioProcess, uri: str) -> Any:
    """Return the contents of a resource, or the error."""
    answer = server.request("resources/read", {"uri": uri})
    return answer["result"]["contents"] if "result" in answer else answer["error"]


def read_over_http(client: RawClient, uri: str, **headers: str | None) -> Any:
    """Return the status, and the contents of a resource or the error, over HTTP."""
    client.send_stateless("resources/read", {"uri": uri}, 1, **{"mcp_name": uri, **headers})
    reply = client.reply()
    body = reply.json
    return reply.status, body["result"]["contents"] if "result" in body else body["error"]
