"""A server on a Unix socket with scripted answers, and an event loop whose clock skips idle time."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any

from wharfinger.client import Client

STATELESS, TASKS_ERA, HANDSHAKE = "2026-07-28", "2025-11-25", "2025-06-18"


class QuickLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while it works, and jumps to the next timer when it is idle."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        selector: Any = getattr(self, "_selector")  # noqa: B009  # no public way to wait otherwise
        wait = selector.select

        def select(timeout: float | None = None) -> Any:
            ready = wait(0)
            if ready or timeout == 0:
                return ready
            if timeout is None:
                return wait(5)  # without a timer, only a child, a thread or a bug is waited for
            self.now += timeout
            return ready

        selector.select = select

    def time(self) -> float:
        return self.now


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a `QuickLoop`. A test that waits forever fails at once."""
    random.seed(1)  # jitter
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(asyncio.wait_for(test, 1_000_000))


def now() -> float:
    """Return the time of the event loop in seconds."""
    return asyncio.get_running_loop().time()


async def settle(times: int = 60) -> None:
    """Run everything that is ready, without passing time."""
    for _ in range(times):
        await asyncio.sleep(0)


class Refusal(Exception):
    """An error that answers a request."""

    def __init__(self, code: int = -32603, message: str = "refused", data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


SILENCE = object()
"""Used instead of an answer: the request gets no answer."""
Answer = Callable[[dict[str, Any]], Any]


class Script:
    """A server of one revision. `answers` maps a method to a result, a Refusal, SILENCE or a function of the message.

    `received` contains every received message in order, and `times` the time of each.
    """

    def __init__(self, revision: str = STATELESS, *, capabilities: Any = None, **answers: Any) -> None:
        self.revision = revision
        self.answers: dict[str, Any] = {name.replace("__", "/"): answer for name, answer in answers.items()}
        self.received: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.connections = 0
        self.writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        declared = {"tools": {}, "resources": {}, "prompts": {}} if capabilities is None else capabilities
        if revision == STATELESS:
            self.answers.setdefault("server/discover", {"supportedVersions": [STATELESS], "capabilities": declared})
            self.answers.setdefault("initialize", Refusal(-32601))
        else:
            info = {"name": "script", "version": "1"}
            started = {"protocolVersion": revision, "capabilities": declared, "serverInfo": info}
            self.answers.setdefault("initialize", started)
            self.answers.setdefault("ping", {})

    async def __aenter__(self) -> Script:
        self._folder = tempfile.mkdtemp(prefix="s")
        self.path = os.path.join(self._folder, "s")
        await self.listen()
        return self

    async def listen(self) -> None:
        """Start listening."""
        self._server = await asyncio.start_unix_server(self._connected, self.path, limit=1 << 26)

    async def leave(self) -> None:
        """Stop listening and close the connection."""
        self._server.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.hang_up()
        await settle()

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self.leave()
        shutil.rmtree(self._folder)

    def hang_up(self) -> None:
        """Abort the connection."""
        if self.writer is not None:
            self.writer.transport.abort()

    def client(self, **settings: Any) -> Client:
        """Return a client that is pinned to this server's revision."""
        return Client(f"unix:{self.path}", **{"revision": self.revision, **settings})

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connections += 1
        try:
            while line := await reader.readline():
                message = json.loads(line)
                self.received.append(message)
                self.times.append(now())
                if "method" in message and "id" in message:
                    task = asyncio.get_running_loop().create_task(self._answer(message, writer))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        answer = self.answers.get(message["method"], Refusal(-32601))
        try:
            if callable(answer):
                answer = answer(message)
            if inspect.isawaitable(answer):
                answer = await answer
        except Refusal as refusal:
            answer = refusal
        if answer is SILENCE or writer.is_closing():
            return
        if isinstance(answer, Refusal):
            self.say(id=message["id"], error=answer.error)
            return
        result = {"resultType": "complete", **answer} if self.revision == STATELESS else answer
        self.say(id=message["id"], result=result)

    def say(self, **message: Any) -> None:
        """Send a message."""
        assert self.writer is not None
        if not self.writer.is_closing():
            self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.say(method=method, params=params)

    def params(self, method: str) -> list[Any]:
        """Return the params of each request or notification of this method, without `_meta`."""
        found = [message.get("params") for message in self.received if message.get("method") == method]
        return [each and {key: value for key, value in each.items() if key != "_meta"} for each in found]

    def metas(self, method: str) -> list[Any]:
        """Return the `_meta` of each request or notification of this method."""
        return [m.get("params", {}).get("_meta") for m in self.received if m.get("method") == method]

    def count(self, method: str) -> int:
        """Return the number of requests and notifications of this method."""
        return len(self.params(method))

    def when(self, method: str) -> list[float]:
        """Return the times of the requests and notifications of this method."""
        return [at for at, message in zip(self.times, self.received, strict=True) if message.get("method") == method]


def text(words: str) -> dict[str, Any]:
    """Return a tool's result with one text."""
    return {"content": [{"type": "text", "text": words}]}
