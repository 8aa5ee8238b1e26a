"""A server for tests. Arguments: its name, the seconds to sleep first, a file for process ids, and an HTTP address."""

from __future__ import annotations

import os
import sys
import time

name = sys.argv[1]
if len(sys.argv) > 3:
    with open(sys.argv[3], "a", encoding="ascii") as pids:
        pids.write(f"{os.getpid()}\n")
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)

from wharfinger import Context, Server  # noqa: E402

server = Server(name)


@server.tool(annotations={"readOnlyHint": True})
def pid() -> int:
    """Return the process id."""
    return os.getpid()


@server.tool
def variable(key: str) -> str:
    """Return an environment variable."""
    return os.environ.get(key, "")


@server.tool
def folder() -> str:
    """Return the current folder."""
    return os.getcwd()


@server.tool
def arguments() -> list[str]:
    """Return the arguments of the process."""
    return sys.argv[1:]


@server.tool
async def ask(ctx: Context) -> str:
    """Ask for a berth."""
    answer = await ctx.elicit("Which berth?", {"type": "object", "properties": {"berth": {"type": "string"}}})
    return str(answer)


@server.prompt
def greeting() -> str:
    """Greet."""
    return f"Hello from {name}"


@server.resource(f"{name}://log")
def log() -> str:
    """Return the log."""
    return f"The log of {name}"


@server.resource("shared://notes")
def notes() -> str:
    """Return the notes."""
    return f"The notes of {name}"


if __name__ == "__main__":
    server.run(http=sys.argv[4]) if len(sys.argv) == 5 and ":" in sys.argv[4] else server.run()
