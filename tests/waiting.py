"""Waiting for what no event, future, queue or condition reports. Await those instead where they exist."""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

WAIT_SECONDS = 40.0
"""Long enough for a busy machine."""
POLL_SECONDS = 0.01


def wait_until(
    condition: Callable[[], T],
    expected: str,
    *,
    seconds: float = WAIT_SECONDS,
    ignore: Errors = (),
    details: Callable[[], object] = str,
) -> T:
    """Call `condition` until its result is true, and return the result.

    After `seconds`, raises AssertionError with `expected`, which describes the condition, and the result of `details`.
    An exception of a class in `ignore` counts as false.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if result := condition():
                return result
        except ignore:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {expected} {details()}".rstrip())
        time.sleep(POLL_SECONDS)


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]],
    expected: str,
    *,
    seconds: float = WAIT_SECONDS,
    ignore: Errors = (),
    details: Callable[[], object] = str,
) -> T:
    """Do the same as `wait_until` in a coroutine. `condition` may be a coroutine function."""
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            while True:
                try:
                    result = condition()
                    if inspect.isawaitable(result):
                        result = await result
                    if result:
                        return result
                except ignore:
                    pass
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        if not timeout.expired():
            raise
    raise AssertionError(f"not within {seconds:g} s: {expected} {details()}".rstrip())


def connect_when_listening(path: Path, output: Callable[[], object] = str) -> socket.socket:
    """Connect to the Unix socket of a server that is starting; its file appears before the server listens."""

    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
        except OSError:
            client.close()
            raise
        return client

    return wait_until(connect, f"a connection to {path}", ignore=OSError, details=output)


def wait_until_listening(process: subprocess.Popen[Any], port: int, output: Callable[[], object] = str) -> None:
    """Wait until a process accepts connections on a port. If it ends, raises AssertionError with the output."""

    def accepts() -> bool:
        assert process.poll() is None, f"the server ended {output()}"
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True

    wait_until(accepts, f"a connection to port {port}", ignore=OSError, details=output)
