"""The application of the page: what its start opened is closed, whatever happens at the end."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import absent

SCRIPT = """
import asyncio
import sys
from contextlib import asynccontextmanager

from wharfinger import Server
from wharfinger.upstreams.config import ServerConfig
from wharfinger.web.browse_site import BrowseSite
from wharfinger.web.page_server import PageApp


@asynccontextmanager
async def lifespan(server):
    print("started")
    yield
    print("ended")


async def main():
    server = Server("charts", lifespan=lifespan)
    site = BrowseSite(lambda principal: [ServerConfig(name="charts", target=server)], name="charts", shared=True)
    app = PageApp(site, "127.0.0.1")
    await app.start()
    await site._shared_connections.upstreams.ready(20)
    waiting = asyncio.Event()

    class Tab(asyncio.Event):
        async def wait(self):
            waiting.set()
            return await super().wait()

    if "cancel" in sys.argv:
        site._ends.add(Tab())
        draining = asyncio.create_task(app.drain(1))
        await waiting.wait()
        draining.cancel()
    else:
        await app.drain(1)
    await app.aclose(0)
    print("closed")


asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["cancel", "without tabs"])
def test_the_connections_end_without_open_tabs_and_if_the_wait_for_them_is_cancelled(end: str) -> None:
    """A bug: closing the site failed, or was cancelled, and `aclose` did nothing after that."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    run = subprocess.run([sys.executable, "-c", SCRIPT, end], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["started", "ended", "closed"], run.stderr
