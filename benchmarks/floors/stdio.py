"""The floor on stdio: one blocking loop, one write per line."""

import os
import sys

from core import answer

LARGE_BYTES = 1 << 20
"""Appending the newline to a message of this size costs more than a second write."""


def main() -> None:
    parts: list[bytes] = []
    while chunk := os.read(0, 1 << 16):
        parts.append(chunk)
        if b"\n" not in chunk:
            continue
        *lines, rest = b"".join(parts).split(b"\n")
        parts = [rest]
        for line in lines:
            if (out := answer(line)) is not None:
                if len(out) < LARGE_BYTES:
                    write(out + b"\n")
                else:
                    write(out)
                    write(b"\n")


def write(data: bytes) -> None:
    sent = os.write(1, data)
    while sent < len(data):
        sent += os.write(1, memoryview(data)[sent:])


if __name__ == "__main__":
    if len(sys.argv) > 2:  # if a client is measured, it starts this server, which must run on another core
        os.sched_setaffinity(0, {int(sys.argv[2])})
    main()
