"""A server that changes one resource on command, and measures how long its event loop was blocked.

Prints its port. Then it reads lines from stdin: `change` changes the resource and prints the time in ns, `pause` prints
the longest pause of the loop since the last `pause`, in ms.
"""

import asyncio
import sys
import threading
import time

from wharfinger import Server
from wharfinger.protocol.http.rules import HttpLimits
from wharfinger.transports.http_server.runner import run_in_loop, serve_http

URI = "bench://watched"
LIMITS = HttpLimits(connections=20_000, streams=20_000, streams_per_client=20_000, sessions=20_000)
BEAT_SECONDS = 0.001

server = Server("watched")


@server.resource(URI)
async def watched() -> str:
    return "text"


class Heartbeat:
    """Runs a callback once per millisecond. `longest` is the longest delay of a callback in seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.longest = 0.0
        self.due = 0.0
        self.beat()

    def beat(self) -> None:
        now = time.perf_counter()
        if self.due:
            self.longest = max(self.longest, now - self.due)
        self.due = now + BEAT_SECONDS
        self.loop.call_later(BEAT_SECONDS, self.beat)

    def change(self) -> None:
        print(time.time_ns(), flush=True)
        server.resource_updated(URI)

    def pause(self) -> None:
        print(self.longest * 1000, flush=True)
        self.longest = 0.0


def ready(url: str) -> None:
    """Print the port, and begin to read commands."""
    heartbeat = Heartbeat(asyncio.get_running_loop())
    print(url.rpartition(":")[2], flush=True)

    def read() -> None:
        for line in sys.stdin:
            heartbeat.loop.call_soon_threadsafe(heartbeat.change if line.strip() == "change" else heartbeat.pause)

    threading.Thread(target=read, daemon=True).start()


if __name__ == "__main__":
    run_in_loop(serve_http(server, port=0, limits=LIMITS, on_ready=ready))
