"""Compares reads of small files through `wharfinger serve` with a handler that returns the same text.

    python benchmarks/folder_reads.py                      every mode, 32 reads in flight
    python benchmarks/folder_reads.py --only stdio --rounds 9
    python benchmarks/folder_reads.py --files 1            always the same file; by default 32 in turn

Both servers run in their own processes, on the core that the driver does not use, and take turns: a ratio is the median
of the ratios of neighbouring turns, since a busy machine slows down both. The exit status is 1 if the folder has less
than `MIN_RATIO` of the handler's rate. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness import wire
from benchmarks.harness.arguments import add_only
from benchmarks.harness.load import Client, HttpClient, StdioClient
from benchmarks.harness.measure import Row, figures, say
from benchmarks.harness.process import settle_driver
from benchmarks.harness.workloads import Result, Workload
from benchmarks.servers import spec

MIN_RATIO = 20 / 75
"""The aim is 20,000 reads of files per second on a machine on which a handler serves 75,000."""
MODES = {"stdio": "", "session": wire.HANDSHAKE, "stateless": wire.STATELESS}
IN_FLIGHT = 32
HANDLER = str(Path(__file__).parent / "servers" / "ours.py")
PYTHON = [sys.executable, "-m", "wharfinger", "serve", "--no-search"]


def workload(uris: Sequence[str]) -> Workload:
    """Return a workload that reads texts of 1 KiB in turn."""

    def check(result: Result, _: object) -> bool:
        return bool(result["contents"][0]["text"] == spec.STATIC_TEXT)

    return Workload("read", "read 1 KiB", "resources/read", tuple({"uri": uri} for uri in uris), check, IN_FLIGHT)


def connect(mode: str, folder: str, files: int) -> dict[str, tuple[Client, Workload]]:
    """Start both servers and connect to each."""
    argv: dict[str, Callable[[int], list[str]]] = {
        "handler": lambda port: [sys.executable, HANDLER, *(("http", str(port), mode) if port else ("stdio",))],
        "folder": lambda port: [*PYTHON, *(("--http", f"127.0.0.1:{port}") if port else ("--stdio",)), folder],
    }
    clients: dict[str, tuple[Client, Workload]] = {}
    for name, uris in (("handler", [spec.STATIC_URI]), ("folder", [f"file:///bench/{n}.txt" for n in range(files)])):
        title = f"folder-reads-{name}-{mode}"
        client: Client = (
            HttpClient(argv[name], title, MODES[mode]) if MODES[mode] else StdioClient(argv[name](0), title)
        )
        client.handshake()
        clients[name] = client, workload(uris)
    return clients


def measure(mode: str, folder: str, files: int, rounds: int, seconds: float) -> dict[str, list[Row]]:
    """Return the figures of both servers, one row for each turn.

    Raises:
        SystemExit: an answer is wrong.
    """
    clients = connect(mode, folder, files)
    rows: dict[str, list[Row]] = {name: [] for name in clients}
    try:
        for name, (client, asked) in clients.items():
            if not asked.check(client.ask(asked.method, asked.params[0]), {}):
                raise SystemExit(f"{mode}: wrong answer of the {name}")
            client.run(asked, seconds)
        for _ in range(rounds):
            for name, (client, asked) in clients.items():
                row = figures(client, asked, seconds)
                rows[name].append(row)
                took = f"{row['cpu_us']:>6.1f} µs CPU, p99 {row['p99_us']:,.0f} µs"
                say(f"{mode:10} {name:8} {row['rate']:>9,.0f}/s {took}")
                if row["errors"]:
                    raise SystemExit(f"{mode}: {row['errors']} wrong answers of the {name}")
    finally:
        for client, _ in clients.values():
            client.close()
    return rows


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, MODES)
    parser.add_argument("--files", type=int, default=IN_FLIGHT, help="how many files are read in turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    chosen = parser.parse_args()
    settle_driver()
    missed = 0
    print(f"{'':10} {'handler/s':>10} {'folder/s':>10} {'µs CPU':>14} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "bench")
        folder.mkdir()
        for n in range(chosen.files):
            (folder / f"{n}.txt").write_text(spec.STATIC_TEXT)
        for mode in chosen.only:
            rows = measure(mode, str(folder), chosen.files, chosen.rounds, chosen.seconds)
            pairs = zip(rows["handler"], rows["folder"], strict=True)
            ratio = statistics.median(folder["rate"] / handler["rate"] for handler, folder in pairs)
            rate, cpu = (
                [statistics.median(row[key] for row in rows[name]) for name in ("handler", "folder")]
                for key in ("rate", "cpu_us")
            )
            low = ratio < MIN_RATIO
            missed += low
            print(
                f"{mode:10} {rate[0]:>10,.0f} {rate[1]:>10,.0f} {cpu[0]:>6.1f} {cpu[1]:>7.1f} {ratio:>7.3f}"
                + f" below {MIN_RATIO:.3f}" * low,
                flush=True,
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
