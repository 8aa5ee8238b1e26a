"""Tests of the host are coroutine functions; each runs on an event loop of its own, for a minute at most."""

from __future__ import annotations

import asyncio
import inspect

import pytest

SECONDS = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await pyfuncitem.obj(**arguments)

    asyncio.run(bounded())
    return True
