"""Runs the async tests of the host, each on an event loop of its own, for a minute at most."""

from __future__ import annotations

import asyncio
import inspect

import pytest

TIMEOUT_SECONDS = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True
