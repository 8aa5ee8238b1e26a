"""What it costs to register ten thousand features, in seconds: for before and after a change, not for comparing peers.

python benchmarks/registering.py [--count N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from wharfinger import Server

REPEATS = 5
"""The least of so many is told: what disturbs only ever adds."""


def made(number: int) -> Callable[..., Any]:
    """One of many functions of the same source, as a loop over a catalogue makes them."""

    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b + number

    return add


async def text() -> str:
    """A text."""
    return "text"


Functions = list[Callable[..., Any]]


def one_function(server: Server, functions: Functions) -> None:
    """The same function under many names."""
    for number in range(len(functions)):
        server.tools.add(functions[0], name=f"add_{number}")


def many_functions(server: Server, functions: Functions) -> None:
    """A function for each name."""
    for number, function in enumerate(functions):
        server.tools.add(function, name=f"add_{number}")


def resources(server: Server, functions: Functions) -> None:
    """A resource for each URI."""
    for number in range(len(functions)):
        server.resources.add(f"bench://entry/{number}", text, name=f"entry {number}")


WAYS: dict[str, Callable[[Server, Functions], None]] = {
    "tools of one function": one_function,
    "tools of many functions": many_functions,
    "resources": resources,
}


def seconds(way: Callable[[Server, Functions], None], functions: Functions) -> float:
    """The least time of some tries, each with a server of its own."""
    least = float("inf")
    for _ in range(REPEATS):
        server = Server("registering")
        started = time.perf_counter()
        way(server, functions)
        least = min(least, time.perf_counter() - started)
    return least


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count = parser.parse_args().count
    functions = [made(number) for number in range(count)]
    for name, way in WAYS.items():
        took = seconds(way, functions)
        print(f"{name:<24} {took:.3f} s for {count:,}, {took / count * 1e6:.1f} µs each")


if __name__ == "__main__":
    main()
