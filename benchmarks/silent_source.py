"""Measures how much a silent S3 endpoint slows down a server that also publishes a folder, and how soon a server
notices a change among many objects.

    python benchmarks/silent_source.py
    python benchmarks/silent_source.py --only silent --source /path/of/another/checkout/src

`silent` starts `wharfinger serve FOLDER` over stdio, once with only the folder, and once with a bucket whose endpoint
accepts connections and never answers. It prints the seconds of `initialize` and of the lists, searches and reads after
it, and the ratio of both servers. `watch` publishes a bucket of 2,500 objects on a local S3 server (moto) in another
process, and prints the seconds from a new object to the notification that the list has changed. The exit status is 1 if
the silent bucket made `initialize` or the first list 3 s slower or any later request 1 s slower, or if a notification
took 4 s. Linux and macOS.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

OBJECTS, CHANGES = 2_500, 5
START_SECONDS, CALL_SECONDS, NOTIFICATION_SECONDS = 3.0, 1.0, 4.0
"""How much a silent source may add to `initialize` and to a later call, and how long a notification may take."""
AWS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class StdioServer:
    """A `wharfinger serve` process, and requests to it in the handshake era."""

    def __init__(self, words: list[str], source: str, endpoint: str = "") -> None:
        environment = {**os.environ, **AWS, "PYTHONPATH": source} if source else {**os.environ, **AWS}
        if endpoint:
            environment["AWS_ENDPOINT_URL"] = endpoint
        command = [sys.executable, "-m", "wharfinger", "serve", "--stdio", "--no-search", *words]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.number = 0
        self.initialize_seconds = self.request(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
            self.began,
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("The server ended.")
        message: dict[str, Any] = json.loads(line)
        return message

    def request(self, method: str, params: dict[str, Any], began: float | None = None) -> float:
        """Send a request, and return the seconds until its answer, which may be an error."""
        began = time.perf_counter() if began is None else began
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while self.receive().get("id") != self.number:
            pass
        return time.perf_counter() - began

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def silent_endpoint() -> Generator[str]:
    """Run a server that accepts connections and never answers. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        connections: list[socket.socket] = []  # keeps them open

        def accept() -> None:
            while True:
                try:
                    connections.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def figures(words: list[str], source: str, endpoint: str) -> dict[str, float]:
    """Return the seconds of each step."""
    server = StdioServer(words, source, endpoint)
    search = {"name": "search", "arguments": {"query": "lantern"}}
    try:
        seconds = {"initialize": server.initialize_seconds, "first list": server.request("resources/list", {})}
        for number in (1, 2, 3):
            time.sleep(2.5)  # longer than the first delays between probes of the silent source
            seconds[f"list {number}"] = server.request("resources/list", {})
            seconds[f"search {number}"] = server.request("tools/call", search)
        seconds["read a file"] = server.request("resources/read", {"uri": "file:///docs/harbour.md"})
        if endpoint:
            seconds["read an object"] = server.request("resources/read", {"uri": "s3://charts/a.txt"})
    finally:
        server.close()
    return seconds


def measure_silent(source: str) -> bool:
    """Print a table of seconds. Returns whether all steps were within their bounds."""
    with tempfile.TemporaryDirectory() as folder, silent_endpoint() as endpoint:
        docs = Path(folder) / "docs"
        docs.mkdir()
        (docs / "harbour.md").write_text("The lantern is lit.\n")
        alone = figures([f"docs={docs}"], source, "")
        beside = figures([f"docs={docs}", "s3://charts"], source, endpoint)
    print(f"{'seconds':16} {'only folder':>13} {'silent bucket':>15} {'ratio':>9}")
    good = True
    for step, seconds in beside.items():
        before = alone.get(step)
        ratio = f"{seconds / before:8.1f}x" if before else ""
        print(f"{step:16} {'' if before is None else f'{before:.3f}':>13} {seconds:15.3f} {ratio:>9}")
        bound = START_SECONDS if step in ("initialize", "first list") else CALL_SECONDS
        good = good and seconds - (before or 0.0) < bound
    return good


MOTO = """
import logging, time
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
time.sleep(3600)
"""


def measure_watch(source: str) -> bool:
    """Print the seconds from a new object to its notification. Returns whether all were within the bound."""
    import boto3  # pyright: ignore[reportMissingTypeStubs]

    moto = subprocess.Popen([sys.executable, "-c", MOTO], stdout=subprocess.PIPE, text=True)
    try:
        assert moto.stdout is not None
        endpoint = moto.stdout.readline().strip()
        client: Any = boto3.client(  # type: ignore[call-overload]
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=AWS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=AWS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket="charts")
        for number in range(OBJECTS):
            client.put_object(Bucket="charts", Key=f"{number:05}.txt", Body=b"x")
        server = StdioServer(["s3://charts"], source, endpoint)
        seconds: list[float] = []
        notifications: SimpleQueue[float] = SimpleQueue()
        """The times at which they arrived."""

        def read() -> None:
            while True:
                try:
                    if server.receive().get("method") == "notifications/resources/list_changed":
                        notifications.put(time.perf_counter())
                except SystemExit:
                    return

        try:
            server.request("resources/list", {})
            threading.Thread(target=read, daemon=True).start()
            for change in range(CHANGES):
                time.sleep(5 + change / 7)
                while not notifications.empty():  # of other changes, such as a bucket that can be reached now
                    notifications.get()
                client.put_object(Bucket="charts", Key=f"new{change}.txt", Body=b"x")
                began = time.perf_counter()
                try:
                    seconds.append(notifications.get(timeout=60) - began)
                except Empty:
                    seconds.append(float("inf"))
        finally:
            server.close()
    finally:
        moto.kill()
        moto.wait()
    summary = f"median {statistics.median(seconds):.1f} s, maximum {max(seconds):.1f} s"
    print(f"notification of a new object among {OBJECTS:,}: {summary}")
    return max(seconds) < NOTIFICATION_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("silent", "watch"))
    parser.add_argument("--source", default="", help="the src folder of another version, to compare with")
    options = parser.parse_args()
    good = options.only == "watch" or measure_silent(options.source)
    return 0 if (options.only == "silent" or measure_watch(options.source)) and good else 1


if __name__ == "__main__":
    sys.exit(main())
