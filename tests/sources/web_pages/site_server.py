"""A web site for tests, in a separate process. It serves the files of a folder with ETags.

`PATH.meta` beside a file changes its response. It is JSON with `status`, `headers`, `delay`, `gzip` (a number of bytes
to compress), `endless` or `no_etag`. Each request is appended to the file `requests` in the parent folder, as a line
of JSON, with the number of `others` for the same path that are not yet answered.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import mimetypes
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web


class SiteServer:
    """A site that a test can change, stop and start again on its port."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "site"
        self.root.mkdir(parents=True)
        self.log = folder / "requests"
        self.port = 0  # the first process chooses one
        self.process: subprocess.Popen[str] | None = None
        self.start()
        self.origin = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process, and wait until it listens."""
        command = [sys.executable, __file__, str(self.root), str(self.log), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def stop(self) -> None:
        """Kill the process, so that connections to the port are refused."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def put(self, path: str, content: str | bytes, **meta: Any) -> str:
        """Write a file, and return its URL."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.new")
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        if meta:
            file.with_name(f"{file.name}.meta").write_text(json.dumps(meta))
        os.replace(temporary, file)
        return f"{self.origin}/{path}"

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def requests(self, path: str | None = None) -> list[dict[str, Any]]:
        """Return the requests so far, for one path or for all."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [each for each in found if path is None or each["path"] == path]


def read_meta(file: Path) -> Mapping[str, Any]:
    meta = file.with_name(f"{file.name}.meta")
    found: Mapping[str, Any] = json.loads(meta.read_text()) if meta.exists() else {}
    return found


async def handle(request: web.Request) -> web.StreamResponse:
    running: Counter[str] = request.app["running"]
    running[request.path_qs] += 1
    try:
        return await respond(request, running[request.path_qs] - 1)
    finally:
        running[request.path_qs] -= 1


async def respond(request: web.Request, others: int) -> web.StreamResponse:
    root, log = request.app["root"], request.app["log"]
    headers = {name.lower(): text for name, text in request.headers.items()}
    line = {"path": request.path_qs, "headers": headers, "others": others}
    with open(log, "a") as file:
        file.write(json.dumps(line) + "\n")
    path = root / (request.path.lstrip("/") + ("index.html" if request.path.endswith("/") else ""))
    meta = read_meta(path)
    await asyncio.sleep(meta.get("delay", 0))
    headers = dict(meta.get("headers", {}))
    if "gzip" in meta:
        compressed = gzip.compress(bytes(meta["gzip"]))
        return web.Response(
            body=compressed, headers={"Content-Encoding": "gzip", "Content-Type": "text/html", **headers}
        )
    if meta.get("endless"):
        stream = web.StreamResponse(headers=headers)
        await stream.prepare(request)
        while True:
            await stream.write(b"x" * 65_536)
    if not path.is_file():
        return web.Response(status=404, text="<html>Not here.</html>", content_type="text/html")
    body = path.read_bytes()
    headers.setdefault("Content-Type", mimetypes.guess_type(path.name)[0] or "text/html")
    if not meta.get("no_etag"):
        headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        if "status" not in meta and request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
    return web.Response(status=meta.get("status", 200), body=body, headers=headers)


def main() -> None:
    root, log, port = sys.argv[1:]
    app = web.Application()
    app["root"], app["log"], app["running"] = Path(root), Path(log), Counter[str]()
    app.router.add_get("/{path:.*}", handle)
    listener = socket.create_server(("127.0.0.1", int(port)))

    def print_port(_: str) -> None:
        print(listener.getsockname()[1], flush=True)

    web.run_app(app, sock=listener, print=print_port, access_log=None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
