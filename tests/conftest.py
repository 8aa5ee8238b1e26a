"""Fixtures and settings of all tests: async tests, a cache folder, and skips for missing programs."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
ASYNC_TEST_TIMEOUT_SECONDS = 150

CI = os.environ.get("CI") == "true"

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would the servers that tests start

CACHE = tempfile.mkdtemp(prefix="wharfinger-cache-")  # the servers that tests start save their search indexes here
os.environ["XDG_CACHE_HOME"] = CACHE
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)


def examples(number: int) -> int:
    """Return the number of examples of a property test: `number` in CI, and a third of it elsewhere."""
    return number if CI else number // 3


settings.register_profile("wharfinger", max_examples=examples(100), deadline=None)  # a deadline fails on a busy machine
settings.load_profile("wharfinger")


def absent(requirement: str) -> NoReturn:
    """Skip the running test because a program or library is missing. In CI (`CI=true`), fail it."""
    if CI:
        pytest.fail(f"{requirement} is missing, and CI skips no tests")
    pytest.skip(f"{requirement} is missing")


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(autouse=True)
def _forget_revisions() -> None:
    """Clear the cached revisions of servers, because tests reuse ports."""
    connect = sys.modules.get("wharfinger.client.connect")
    if connect is not None:
        connect.PROTOCOL_CACHE.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run() -> None:
        async with asyncio.timeout(ASYNC_TEST_TIMEOUT_SECONDS):
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape log output that is not UTF-8, because reports are sent between processes."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
