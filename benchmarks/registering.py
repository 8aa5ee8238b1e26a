"""Measures the seconds that it takes to register ten thousand features. Run it before and after a change.

python benchmarks/registering.py [--count N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from wharfinger import Server

REPEATS = 5
"""The shortest of this many runs is printed: other processes can only make a run longer."""


def make_function(number: int) -> Callable[..., Any]:
    """Return a new function with the same source as all others, as a loop over a catalogue does."""

    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b + number

    return add


async def read() -> str:
    return "text"


Functions = list[Callable[..., Any]]


def one_function(server: Server, functions: Functions) -> None:
    """Register the same function under many names."""
    for number in range(len(functions)):
        server.tools.add(functions[0], name=f"add_{number}")


def many_functions(server: Server, functions: Functions) -> None:
    """Register another function for each name."""
    for number, function in enumerate(functions):
        server.tools.add(function, name=f"add_{number}")


def resources(server: Server, functions: Functions) -> None:
    """Register the same function for many URIs."""
    for number in range(len(functions)):
        server.resources.add(f"bench://entry/{number}", read, name=f"entry {number}")


CASES: dict[str, Callable[[Server, Functions], None]] = {
    "tools of one function": one_function,
    "tools of many functions": many_functions,
    "resources": resources,
}


def shortest_seconds(register: Callable[[Server, Functions], None], functions: Functions) -> float:
    """Return the shortest time of `REPEATS` runs, each with a new server."""
    shortest = float("inf")
    for _ in range(REPEATS):
        server = Server("registering")
        started = time.perf_counter()
        register(server, functions)
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    count = parser.parse_args().count
    functions = [make_function(number) for number in range(count)]
    for name, register in CASES.items():
        seconds = shortest_seconds(register, functions)
        print(f"{name:<24} {seconds:.3f} s for {count:,}, {seconds / count * 1e6:.1f} µs each")


if __name__ == "__main__":
    main()
