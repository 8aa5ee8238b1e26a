"""Measures the cost of tokens, a policy and limits over HTTP, and whether a caller can slow down another.

    python benchmarks/policy.py                            everything
    python benchmarks/policy.py --only rules --rounds 9
    python benchmarks/policy.py --beside ../before         also compare with another checkout

- `rules`: reads of a file of 1 KiB with a JWT (already verified) and 1,000 rules, compared with reads without both: at
  most 1.15 times the CPU time of the server. The same for a handler that returns a constant.
- `open`: reads without tokens and policy, compared with those of another checkout: at most 1.05 times.
- `tree`: the first page of a list of 100,000 files for a caller who may see 1 % of them, all in one directory or spread
  over all: within 150 ms.
- `flood`: the p99 of a caller with and without a flood by another one, who is over a limit and uses 32 connections: at
  most twice as long. With one call at a time, and with 32.

Servers take turns on the core that the driver does not use; a ratio is the median of the ratios of neighbouring turns,
since a busy machine slows down both. For ratios of CPU time the driver polls without sleeping: the kernel adds the time
to wake a sleeping reader to the server's, 1.4 of 26 µs for a fast server, and 2.9 µs for one whose reader sleeps more
often. Clients on other machines do not have this cost. The exit status is 1 if a bound is missed. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from joserfc import jwk, jwt

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness import wire
from benchmarks.harness.arguments import add_only
from benchmarks.harness.load import HttpClient
from benchmarks.harness.measure import figures, say
from benchmarks.harness.process import DRIVER_CORE, settle_driver
from benchmarks.harness.workloads import Workload
from benchmarks.servers import spec

FILE_URI = "file:///docs/static.txt"
MAX_RULES_RATIO = 1.15
MAX_OPEN_RATIO = 1.05
MAX_PAGE_MS = 150.0
MAX_FLOOD_RATIO = 2.0
FILES, DIRECTORIES = 100_000, 100
STARTS = 3
"""Servers that are started for the first page of each caller."""
HERE = Path(__file__).parent
ERAS = {"session": wire.HANDSHAKE, "stateless": wire.STATELESS}
ISSUER, AUDIENCE = "https://id.example", "http://bench/mcp"
FLOOD_NICE = 10
"""The flood runs on the driver's core too, and must not take the time that the driver needs to measure."""


def read(in_flight: int, uri: str = spec.STATIC_URI) -> Workload:
    """Return a workload that reads 1 KiB of text, from a handler or a file."""
    return Workload(
        "read",
        "read 1 KiB",
        "resources/read",
        ({"uri": uri},),
        lambda result, _: bool(result["contents"][0]["text"] == spec.STATIC_TEXT),
        in_flight,
    )


class Bench:
    """A temporary folder with the keys of an issuer, and the servers that trust it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = jwk.ECKey.generate_key("P-256", {"kid": "bench", "use": "sig", "alg": "ES256"})
        keys = {"keys": [self.key.as_dict(private=False)]}
        (folder / "docs").mkdir()
        (folder / "docs" / "static.txt").write_text(spec.STATIC_TEXT)
        (folder / "keys.json").write_text(json.dumps(keys))

    def token(self, subject: str) -> str:
        """Return a signed token as large as those of common providers."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "client_id": "https://client.example/oauth/metadata.json",
            "iat": now,
            "exp": now + 3600,
            "jti": "0d3f7e7c-95a2-4b8a-bb70-6f0a3c7d2d41",
            "scope": "openid profile docs.read docs.write",
            "groups": [f"team{n}" for n in range(5)],
        }
        return jwt.encode({"alg": "ES256", "kid": "bench", "typ": "at+jwt"}, claims, self.key)

    def connect(self, what: str, era: str, subject: str = "", beside: Path | None = None) -> HttpClient:
        """Start a server and connect to it."""
        token = self.token(subject) if subject else ""
        script = "benchmarks/servers/guarded.py" if beside is None else "benchmarks/servers/ours.py"

        def argv(port: int) -> list[str]:
            if beside is None:
                return [sys.executable, str(HERE.parent / script), str(port), what, str(self.folder)]
            return [str(beside / ".venv/bin/python"), str(beside / script), "http", str(port), era]

        client = HttpClient(argv, f"policy-{what}-{'ours' if beside is None else 'beside'}", ERAS[era], token)
        client.handshake()
        return client


def compare(
    name: str, uri: str, one: HttpClient, other: HttpClient, rounds: int, seconds: float, max_ratio: float
) -> bool:
    """Measure two servers in turns, and print the ratio. Returns whether it is at most `max_ratio`."""
    workload, pairs = read(32, uri), []
    for client in (one, other):
        client.spins = True
        if not workload.check(client.ask(workload.method, workload.params[0]), {}):
            raise SystemExit(f"{name}: wrong answer")
        client.run(workload, seconds)
    for _ in range(rounds):
        rows = [figures(client, workload, seconds) for client in (one, other)]
        if any(row["errors"] for row in rows):
            raise SystemExit(f"{name}: wrong answers")
        pairs.append(tuple(row["cpu_us"] for row in rows))
        say(f"{name}: {pairs[-1][0]:.1f} and {pairs[-1][1]:.1f} µs CPU")
    ratio = statistics.median(second / first for first, second in pairs)
    first, second = (statistics.median(column) for column in zip(*pairs, strict=True))
    return verdict(
        f"{name:28} {first:7.1f} µs {second:7.1f} µs {ratio:6.3f}", ratio <= max_ratio, f"at most {max_ratio}"
    )


def verdict(line: str, good: bool, bound: str) -> bool:
    """Print a figure, and whether it is within its bound. Returns `good`."""
    print(f"{line}   {'' if good else 'MISSED: '}{bound}", flush=True)
    return good


def measure_rules(bench: Bench, rounds: int, seconds: float) -> bool:
    """Compare reads with a token and a thousand rules with reads without them."""
    good = True
    for era in ERAS:
        clients = bench.connect("open", era), bench.connect("rules", era, "ann")
        try:
            for name, uri in (("file", FILE_URI), ("handler", spec.STATIC_URI)):
                good &= compare(f"rules, {name}, {era}", uri, *clients, rounds, seconds, MAX_RULES_RATIO)
        finally:
            for client in clients:
                client.close()
    return good


def measure_open(bench: Bench, rounds: int, seconds: float, beside: Path) -> bool:
    """Compare reads without a policy with those of another checkout."""
    good = True
    for era in ERAS:
        clients = bench.connect("open", era, beside=beside), bench.connect("open", era)
        try:
            good &= compare(f"open, {era}", spec.STATIC_URI, *clients, rounds, seconds, MAX_OPEN_RATIO)
        finally:
            for client in clients:
                client.close()
    return good


def measure_tree(bench: Bench) -> bool:
    """Measure the first page of a list for a caller who sees one hundredth of it."""
    for directory in range(DIRECTORIES):
        folder = bench.folder / "tree" / f"d{directory:03}"
        folder.mkdir(parents=True)
        for file in range(FILES // DIRECTORIES):
            (folder / f"f{file}.txt").write_bytes(b"")
    good = True
    for subject in ("directory", "scattered"):
        firsts: list[float] = []
        for _ in range(STARTS):
            client = bench.connect("tree", "stateless", subject)
            try:
                began = time.perf_counter()
                page = client.ask("resources/list", {})
                firsts.append((time.perf_counter() - began) * 1000)
            finally:
                client.close()
            if len([one for one in page["resources"] if one["uri"].startswith("file:///tree/d")]) != FILES // 100:
                raise SystemExit(f"tree, {subject}: wrong answer")
            say(f"tree, {subject}: {firsts[-1]:.0f} ms")
        first = statistics.median(firsts)
        good &= verdict(
            f"{f'tree, {subject}':28} {first:7.0f} ms", first <= MAX_PAGE_MS, f"at most {MAX_PAGE_MS:.0f} ms"
        )
    return good


def measure_flood(bench: Bench, rounds: int, seconds: float) -> bool:
    """Compare the p99 of a caller with and without a flood by another caller."""
    good = True
    client = bench.connect("limits", "stateless", "ann")
    try:
        for in_flight in (1, 32):
            workload, latencies = read(in_flight), list[tuple[float, float]]()
            client.run(workload, seconds)
            for _ in range(rounds):
                quiet = figures(client, workload, seconds)
                flood = subprocess.Popen(
                    [sys.executable, __file__, "--flood", str(client.port), bench.token("flood")],
                    preexec_fn=settle_flood,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                try:
                    assert flood.stdout is not None
                    flood.stdout.readline()
                    busy = figures(client, workload, seconds)
                finally:
                    flood.terminate()
                    refused = flood.communicate()[0].strip()
                if quiet["errors"] or busy["errors"]:
                    raise SystemExit("flood: wrong answers")
                latencies.append((quiet["p99_us"], busy["p99_us"]))
                say(f"flood, {in_flight}: p99 {quiet['p99_us']:,.0f} and {busy['p99_us']:,.0f} µs; {refused}")
            ratio = statistics.median(second / first for first, second in latencies)
            first, second = (statistics.median(column) for column in zip(*latencies, strict=True))
            line = f"{f'flood, {in_flight} in flight':28} {first:7.0f} µs {second:7.0f} µs {ratio:6.3f}"
            good &= verdict(line, ratio <= MAX_FLOOD_RATIO, f"at most {MAX_FLOOD_RATIO}")
    finally:
        client.close()
    return good


def settle_flood() -> None:
    """Give the calling process a lower priority than the driver."""
    os.sched_setaffinity(0, {DRIVER_CORE})
    os.setpriority(os.PRIO_PROCESS, 0, FLOOD_NICE)


def flood(port: int, token: str) -> None:
    """Call as fast as 32 connections can until the process is ended; then print the number of answers."""
    import asyncio
    import signal

    counts: dict[str, int] = {}
    before, after = wire.post(
        f"127.0.0.1:{port}", "resources/read", {"uri": spec.STATIC_URI}, wire.STATELESS, b"", token
    )
    request = before + b"100000001" + after

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]))
            counts[head[9:12].decode()] = counts.get(head[9:12].decode(), 0) + 1

    async def run() -> None:
        tasks = [asyncio.create_task(one()) for _ in range(32)]
        await asyncio.sleep(0.3)
        print("flooding", flush=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [task.cancel() for task in tasks])
        await asyncio.gather(*tasks, return_exceptions=True)
        print(" ".join(f"{count} answers {status}" for status, count in sorted(counts.items())), flush=True)

    asyncio.run(run())


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, ("rules", "open", "tree", "flood"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    parser.add_argument("--beside", type=Path, help="another checkout with an environment in .venv")
    parser.add_argument("--flood", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.flood:
        flood(int(chosen.flood[0]), chosen.flood[1])
        return 0
    settle_driver()
    parts: dict[str, Callable[[Bench], bool]] = {
        "rules": lambda bench: measure_rules(bench, chosen.rounds, chosen.seconds),
        "open": lambda bench: measure_open(bench, chosen.rounds, chosen.seconds, chosen.beside.resolve()),
        "tree": measure_tree,
        "flood": lambda bench: measure_flood(bench, chosen.rounds, chosen.seconds),
    }
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(temporary))
        for name in chosen.only:
            if name == "open" and chosen.beside is None:
                say("open: not measured without --beside")
            else:
                good &= parts[name](bench)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
