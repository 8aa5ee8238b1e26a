"""A server with tools that crash it, which tests run as a process over stdio or over HTTP on a given port."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from wharfinger import types as t
from wharfinger.server import Server


def crashing_server(folder: Path) -> Server:
    """Return a server. Some of its tools and resources kill it, most of these only once.

    Files in `folder` record its starts and crashes.
    """
    server = Server("crashing")
    starts = folder / "starts"
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")

    def die_once(name: str) -> None:
        mark = folder / name
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    @server.resource("log://today")
    def today() -> str:
        return "calm"

    @server.resource("log://once")
    def once() -> str:
        die_once("once")
        return "afloat"

    @server.resource("log://never")
    def never() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    @server.tool
    def pid() -> int:
        return os.getpid()

    @server.tool
    def spawn() -> int:
        return subprocess.Popen(["sleep", "60"]).pid

    @server.tool
    def sink() -> str:
        die_once("sink")
        return "sunk"

    @server.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    def look() -> str:
        die_once("look")
        return "seen"

    @server.tool
    async def wait() -> str:
        (folder / "waiting").touch()
        await asyncio.sleep(60)
        return "late"

    @server.tool
    async def change(uri: str) -> str:
        server.resource_updated(uri)
        return "changed"

    @server.tool
    def grow() -> str:
        server.resources.add("log://grown", today)
        return "grown"

    return server


if __name__ == "__main__":
    if len(sys.argv) > 2:
        crashing_server(Path(sys.argv[1])).run(http=f"127.0.0.1:{sys.argv[2]}")
    else:
        crashing_server(Path(sys.argv[1])).run()
