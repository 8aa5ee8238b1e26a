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
from urllib.parse import urlsplit

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

from benchmarks.harness.arguments import add_only
from benchmarks.harness.process import serve
from benchmarks.harness.wire import META
from benchmarks.scale import data

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT / ".bench" / "scale"
REPEATS = 20
MAX_MS = 100.0
MAX_MIB = 64.0


class Figure(NamedTuple):
    """The measurement of one request: milliseconds of the first and of later answers, and MiB of growth.

    If `warm` is None, the time has no bound. `floor` is the milliseconds that the store itself takes.
    """

    name: str
    cold: float
    warm: float | None
    growth: float
    floor: float = 0.0


class ServerProcess:
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
def serving(*words: str) -> Iterator[ServerProcess]:
    """Run `wharfinger serve` with these arguments. Yields the server."""
    with serve(*words) as (process, url):
        yield ServerProcess(process, urlsplit(url).port or 0)


def read(server: ServerProcess, name: str, uri: str) -> Figure:
    """Measure the read of a URI."""
    return server.measure(name, lambda: server.ask("resources/read", uri=uri))


def files() -> Iterator[Figure]:
    """Measure a folder of 100,000 files."""
    with serving(f"files={DATA / 'files'}") as server:
        yield server.measure("first page of 100,000 files", lambda: server.ask("resources/list"))
        second = server.ask("resources/list")["nextCursor"]
        yield server.measure("second page", lambda: server.ask("resources/list", cursor=second))
        yield read(server, "a directory", "file:///files/d0500/")


def table() -> Iterator[Figure]:
    """Measure a table of ten million rows."""
    with serving(f"shop=sqlite:///{DATA / 'shop.db'}") as server:
        yield server.measure("list of tables", lambda: server.ask("resources/list"))
        yield read(server, "first rows of 10,000,000", "sqlite://shop/soundings/rows")
        yield read(server, "rows after row 9,000,000", "sqlite://shop/soundings/rows?after=9000000")
        yield read(server, "one row", "sqlite://shop/soundings/rows/5000000")


def log() -> Iterator[Figure]:
    """Measure a log of 5 GiB."""
    with serving(f"logs=log:{DATA / 'logs'}/*.log") as server:
        uri = "log://logs/harbour.log"
        yield server.measure("list of logs", lambda: server.ask("resources/list"))
        yield read(server, "a log of 5 GiB", uri)
        yield read(server, "its last 200 lines", f"{uri}?tail=200")
        yield read(server, "its first 200 lines", f"{uri}?lines=1-200")
        yield read(server, "bytes in its middle", f"{uri}?bytes=2684354560-2684420095")
        begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_750_002_500))
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_750_002_501))
        yield read(server, "a second in its middle", f"{uri}?since={begin}&until={end}")


def repository() -> Iterator[Figure]:
    """Measure a repository of ten thousand commits."""
    with serving(f"notes=git:{DATA / 'repository'}") as server:
        yield server.measure("first page of 10,000 commits", lambda: server.ask("resources/list"))
        yield read(server, "the newest commits", "git://notes/log/main")
        yield read(server, "a file", "git://notes/tree/main/notes/42.txt")


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
            with serving("s3://charts/tiles") as server:
                figure = server.measure("first page of 50,000 objects", lambda: server.ask("resources/list"))
                number = len(server.ask("resources/list")["resources"])
                yield figure._replace(floor=_store_alone(number))
                uri = server.ask("resources/list")["resources"][-1]["uri"]
                yield read(server, "an object", uri)
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
    with serving(f"blob={DATA / 'blob'}", "--max-size", "2GiB") as server:
        server.ask("resources/list")
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
        began = time.perf_counter()
        answer = server.send("resources/read", uri="file:///blob/tide.bin")
        size = 0
        while part := answer.read(1 << 20):
            size += len(part)
        milliseconds = (time.perf_counter() - began) * 1000
        if size < data.BLOB_BYTES * 4 // 3:
            raise SystemExit(f"the blob is incomplete: {size} bytes")
        yield Figure("a blob of 1 GiB", milliseconds, None, server.resident("VmHWM") - server.ready)


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
    add_only(parser, PROBES)
    chosen = parser.parse_args().only
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
