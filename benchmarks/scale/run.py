"""Measures how long first pages and windows of large data take, and how much memory they cost a server.

    python benchmarks/scale/run.py                     everything: a minute, and another to make the data the first time
    python benchmarks/scale/run.py --only log,table

Each source is served by its own process (`wharfinger serve … --http`) without a search index. Requests use one
connection. A warm time is the median of the twenty answers after the first; memory is the peak during the requests,
minus the memory of the process when it was ready. The exit status is 1 if a bound was missed. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from benchmarks.scale import data

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / ".bench" / "scale"
REPEATS = 20
MAX_MS = 100.0
MAX_MIB = 64.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Figure(NamedTuple):
    """The measurement of one request: milliseconds of the first and of later answers, and MiB of growth.

    If `warm` is None, the time has no bound. `floor` is the milliseconds that the store itself takes.
    """

    name: str
    cold: float
    warm: float | None
    growth: float
    floor: float = 0.0


class Served:
    """A server process and one connection to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.ready = self.resident()

    def resident(self, name: str = "VmRSS") -> float:
        """Return the MiB of resident memory now, or the peak (`VmHWM`)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def send(self, method: str, **params: Any) -> http.client.HTTPResponse:
        """Send one request. Returns the response, whose body is not read yet."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if "uri" in params:
            headers["Mcp-Name"] = params["uri"]
        self.connection.request("POST", "/mcp", body, headers)
        return self.connection.getresponse()

    def ask(self, method: str, **params: Any) -> Any:
        """Send one request. Returns its result.

        Raises:
            SystemExit: the response is an error.
        """
        answer = json.loads(self.send(method, **params).read())
        if "result" not in answer:
            raise SystemExit(f"{method} {params}: {answer['error']}")
        return answer["result"]

    def measure(self, name: str, question: Callable[[], Any]) -> Figure:
        """Ask once, and then `REPEATS` times."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        times: list[float] = []
        for _ in range(1 + REPEATS):
            began = time.perf_counter()
            question()
            times.append((time.perf_counter() - began) * 1000)
        return Figure(name, times[0], statistics.median(times[1:]), self.resident("VmHWM") - self.ready)


@contextlib.contextmanager
def serving(*words: str) -> Iterator[Served]:
    """Run `wharfinger serve` with these arguments on a free port. Yields the server."""
    command = [sys.executable, "-m", "wharfinger", "serve", *words, "--no-search", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"MCP  http://\S+:(\d+)/mcp", line):
                    yield Served(process, int(found[1]))
                    break
            else:
                raise SystemExit(f"{' '.join(command)} did not start")
        finally:
            process.terminate()


def read(served: Served, name: str, uri: str) -> Figure:
    """Measure the read of a URI."""
    return served.measure(name, lambda: served.ask("resources/read", uri=uri))


def files() -> Iterator[Figure]:
    """Measure a folder of 100,000 files."""
    with serving(f"files={DATA / 'files'}") as served:
        yield served.measure("first page of 100,000 files", lambda: served.ask("resources/list"))
        second = served.ask("resources/list")["nextCursor"]
        yield served.measure("second page", lambda: served.ask("resources/list", cursor=second))
        yield read(served, "a directory", "file:///files/d0500/")


def table() -> Iterator[Figure]:
    """Measure a table of ten million rows."""
    with serving(f"shop=sqlite:///{DATA / 'shop.db'}") as served:
        yield served.measure("list of tables", lambda: served.ask("resources/list"))
        yield read(served, "first rows of 10,000,000", "sqlite://shop/soundings/rows")
        yield read(served, "rows after row 9,000,000", "sqlite://shop/soundings/rows?after=9000000")
        yield read(served, "one row", "sqlite://shop/soundings/rows/5000000")


def log() -> Iterator[Figure]:
    """Measure a log of 5 GiB."""
    with serving(f"logs=log:{DATA / 'logs'}/*.log") as served:
        uri = "log://logs/harbour.log"
        yield served.measure("list of logs", lambda: served.ask("resources/list"))
        yield read(served, "a log of 5 GiB", uri)
        yield read(served, "its last 200 lines", f"{uri}?tail=200")
        yield read(served, "its first 200 lines", f"{uri}?lines=1-200")
        yield read(served, "bytes in its middle", f"{uri}?bytes=2684354560-2684420095")
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_750_002_500))
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_750_002_501))
        yield read(served, "a second in its middle", f"{uri}?since={begin}&until={end}")


def repository() -> Iterator[Figure]:
    """Measure a repository of ten thousand commits."""
    with serving(f"notes=git:{DATA / 'repository'}") as served:
        yield served.measure("first page of 10,000 commits", lambda: served.ask("resources/list"))
        yield read(served, "the newest commits", "git://notes/log/main")
        yield read(served, "a file", "git://notes/tree/main/notes/42.txt")


def bucket() -> Iterator[Figure]:
    """Measure a bucket of fifty thousand objects."""
    import os

    store = [sys.executable, str(Path(__file__).with_name("bucket.py"))]
    with subprocess.Popen(store, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            os.environ |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            with serving("s3://charts/tiles") as served:
                figure = served.measure("first page of 50,000 objects", lambda: served.ask("resources/list"))
                number = len(served.ask("resources/list")["resources"])
                yield figure._replace(floor=_store_alone(number))
                uri = served.ask("resources/list")["resources"][-1]["uri"]
                yield read(served, "an object", uri)
        finally:
            process.kill()


def _store_alone(number: int) -> float:
    """Return the milliseconds that the store itself takes to list this many objects."""
    import boto3

    client = boto3.client("s3")
    times: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        client.list_objects_v2(Bucket="charts", Prefix="tiles/", MaxKeys=number)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def blob() -> Iterator[Figure]:
    """Measure the read of a whole file of 1 GiB."""
    with serving(f"blob={DATA / 'blob'}", "--max-size", "2GiB") as served:
        served.ask("resources/list")
        Path(f"/proc/{served.process.pid}/clear_refs").write_text("5")
        began = time.perf_counter()
        answer = served.send("resources/read", uri="file:///blob/tide.bin")
        size = 0
        while part := answer.read(1 << 20):
            size += len(part)
        milliseconds = (time.perf_counter() - began) * 1000
        if size < data.BLOB_BYTES * 4 // 3:
            raise SystemExit(f"the blob is incomplete: {size} bytes")
        yield Figure("a blob of 1 GiB", milliseconds, None, served.resident("VmHWM") - served.ready)


PROBES: dict[str, Callable[[], Iterator[Figure]]] = {
    "files": files,
    "table": table,
    "log": log,
    "repository": repository,
    "bucket": bucket,
    "blob": blob,
}


def main() -> int:
    """Measure the chosen cases, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PROBES), metavar="A,B", help=f"of {', '.join(PROBES)}")
    chosen = parser.parse_args().only.split(",")
    if unknown := set(chosen) - set(PROBES):
        parser.error(f"--only: unknown: {', '.join(sorted(unknown))}")
    data.make(DATA, lambda text: print(text, file=sys.stderr))
    print(f"{'':32} {'cold ms':>9} {'warm ms':>9} {'MiB more':>9}")
    missed = 0
    for name in chosen:
        for figure in PROBES[name]():
            late = figure.warm is not None and figure.warm - figure.floor > MAX_MS
            large = figure.growth > MAX_MIB
            missed += late or large
            warm = "" if figure.warm is None else f"{figure.warm:.1f}"
            warm += f" ({figure.floor:.0f} of it the store's)" * bool(figure.floor)
            verdict = " over 100 ms" * late + " over 64 MiB" * large
            print(f"{figure.name:32} {figure.cold:9.1f} {warm:>9} {figure.growth:9.1f}{verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
