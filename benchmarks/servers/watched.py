"""A server that changes one resource on command, and says how long its event loop was held up meanwhile.

Reads lines from stdin: `change` changes the resource, `pause` prints the longest pause of the loop since the last one
in ms. Prints its port first, and the time of each change.
"""

import asyncio
import sys
import threading
import time

from wharfinger import Server
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.runner import run_http

URI = "bench://watched"
LIMITS = HttpLimits(connections=20_000, streams=20_000, streams_per_client=20_000, sessions=20_000)
BEAT = 0.001

server = Server("watched")


@server.resource(URI)
async def watched() -> str:
    return "text"


class Heart:
    """Beats once per millisecond; `longest` is the longest time in seconds that it was late by."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.longest = 0.0
        self.due = 0.0
        self.beat()

    def beat(self) -> None:
        now = time.perf_counter()
        if self.due:
            self.longest = max(self.longest, now - self.due)
        self.due = now + BEAT
        self.loop.call_later(BEAT, self.beat)

    def change(self) -> None:
        print(time.time_ns(), flush=True)
        server.resource_updated(URI)

    def pause(self) -> None:
        print(self.longest * 1000, flush=True)
        self.longest = 0.0


def ready(url: str) -> None:
    """Take orders from now on."""
    heart = Heart(asyncio.get_running_loop())
    print(url.rpartition(":")[2], flush=True)

    def read() -> None:
        for line in sys.stdin:
            heart.loop.call_soon_threadsafe(heart.change if line.strip() == "change" else heart.pause)

    threading.Thread(target=read, daemon=True).start()


if __name__ == "__main__":
    run_http(server, port=0, limits=LIMITS, on_ready=ready)
