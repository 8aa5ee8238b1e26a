"""The server that the stdio tests start as a real process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from wharfinger.protocol.limits import Limits
from wharfinger.server.app import Server
from wharfinger.transports import stdio_server

SHORT_TIMEOUTS = "short-timeouts" in sys.argv
"""Whether to use short timeouts, for tests that wait for them."""

server = Server("fixture", limits=Limits(drain=0.05 if SHORT_TIMEOUTS else 0.3, message=1 << 20))


@server.resource("fix://plain")
async def plain() -> str:
    return "plain"


@server.resource("fix://prints")
async def prints() -> str:
    print("stray")
    sys.stdout.flush()
    os.write(1, b"straight to descriptor one\n")
    return "printed"


@server.resource("fix://child")
def child() -> str:
    completed = subprocess.run([sys.executable, "-c", "print('from a child'); print(repr(input()))"], check=False)
    return f"child ended with {completed.returncode}"


@server.resource("fix://slow")
async def slow() -> str:
    await asyncio.sleep(0.1)
    return "slow"


@server.resource("fix://never")
async def never() -> str:
    await asyncio.Event().wait()
    return "never"


@server.resource("fix://blocks")
def blocks() -> str:
    time.sleep(600)
    return "never"


@server.resource("fix://exits")
async def exits() -> str:
    sys.exit(3)


@server.resource("fix://exits-in-thread")
def exits_in_thread() -> str:
    sys.exit(3)


@server.resource("fix://recursion")
def recursion() -> str:
    return recursion()


@server.resource("fix://surrogate")
async def surrogate() -> str:
    return "\ud800"


@server.resource("fix://raises")
async def raises() -> str:
    raise ValueError("the password is hunter2")


@server.resource("fix://cancels-itself")
async def cancels_itself() -> str:
    raise asyncio.CancelledError


@server.resource("fix://blob/{size}")
async def blob(size: int) -> bytes:
    return b"\xff" * size


if __name__ == "__main__":
    if SHORT_TIMEOUTS:
        stdio_server.ORPHAN_CHECK_SECONDS = 0.05
    print("started", file=sys.stderr, flush=True)
    server.run()
