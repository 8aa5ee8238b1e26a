"""Measures how much a record and metrics slow down reads.

    python benchmarks/recording.py
    python benchmarks/recording.py --only session --rounds 15

The servers run in their own processes, on the core that the driver does not use, and take turns: a ratio is the median
of the ratios of neighbouring turns. The record is in the temporary directory. The exit status is 1 if reads with a
record take more than `MAX_RATIO` times the CPU time of reads without one. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.folder_reads import IN_FLIGHT, MODES, workload
from benchmarks.harness.arguments import add_only
from benchmarks.harness.load import Client, HttpClient, StdioClient
from benchmarks.harness.measure import Row, figures
from benchmarks.harness.process import settle_driver
from benchmarks.servers import spec

MAX_RATIO = 1.5
"""A line of the record takes about 10 µs of CPU time, and a small read between 30 and 60."""


def connect(mode: str, folder: Path) -> dict[str, Client]:
    """Start the servers and connect to each."""
    options = {
        "plain": [],
        "record": ["--audit", str(folder.parent / f"{mode}.jsonl")],
        "metrics": ["--metrics", "127.0.0.1:0"],
    }
    clients: dict[str, Client] = {}
    for name, arguments in options.items():
        command = [sys.executable, "-m", "wharfinger", "serve", "-q", "--no-search", *arguments]

        def argv(port: int, command: list[str] = command) -> list[str]:
            return [*command, *(("--http", f"127.0.0.1:{port}") if port else ("--stdio",)), str(folder)]

        title = f"recording-{name}-{mode}"
        make: Callable[[], Client] = (
            (lambda argv=argv, title=title: HttpClient(argv, title, MODES[mode]))  # type: ignore[misc]
            if MODES[mode]
            else (lambda argv=argv, title=title: StdioClient(argv(0), title))  # type: ignore[misc]
        )
        clients[name] = make()
        clients[name].handshake()
    return clients


def measure(mode: str, folder: Path, rounds: int, seconds: float) -> dict[str, list[Row]]:
    """Return the figures of every server, one row for each turn.

    Raises:
        SystemExit: an answer is wrong, or a read has no line.
    """
    clients, asked = connect(mode, folder), workload(["file:///bench/static.txt"])
    rows: dict[str, list[Row]] = {name: [] for name in clients}
    try:
        for name, client in clients.items():
            if not asked.check(client.ask(asked.method, asked.params[0]), {}):
                raise SystemExit(f"{mode}: wrong answer of {name}")
            client.run(asked, seconds)
        for _ in range(rounds):
            for name, client in clients.items():
                row = figures(client, asked, seconds)
                rows[name].append(row)
                if row["errors"]:
                    raise SystemExit(f"{mode}: {row['errors']} wrong answers of {name}")
    finally:
        for client in clients.values():
            client.close()
    lines = (folder.parent / f"{mode}.jsonl").read_bytes().count(b'"method":"resources/read"')
    if lines < sum(row["rate"] * seconds for row in rows["record"]):
        raise SystemExit(f"{mode}: the record has only {lines} lines, fewer than there were reads")
    return rows


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, MODES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    chosen = parser.parse_args()
    settle_driver()
    missed = 0
    print(f"{IN_FLIGHT} reads of {len(spec.STATIC_TEXT)} bytes in flight")
    print(f"{'':10} {'plain':>10} {'record':>10} {'metrics':>10} µs CPU {'record':>8} {'metrics':>8} ratio")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "bench")
        folder.mkdir()
        (folder / "static.txt").write_text(spec.STATIC_TEXT)
        for mode in chosen.only:
            rows = measure(mode, folder, chosen.rounds, chosen.seconds)
            cpu = {name: statistics.median(row["cpu_us"] for row in turns) for name, turns in rows.items()}
            ratio = {
                name: statistics.median(
                    row["cpu_us"] / plain["cpu_us"] for row, plain in zip(rows[name], rows["plain"], strict=True)
                )
                for name in ("record", "metrics")
            }
            missed += ratio["record"] > MAX_RATIO
            print(
                f"{mode:10} {cpu['plain']:>10.1f} {cpu['record']:>10.1f} {cpu['metrics']:>10.1f}"
                f"        {ratio['record']:>8.3f} {ratio['metrics']:>8.3f}"
                + f" above {MAX_RATIO}"
                * (ratio["record"] > MAX_RATIO),
                flush=True,
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
