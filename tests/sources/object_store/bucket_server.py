"""A small server that lists and reads one bucket as S3 does, quickly, whatever its name; it checks no credentials.

It stands in for a store of many objects: the one that the other tests use sorts all keys for each page.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from zlib import crc32

DATE = "Wed, 01 Jul 2026 12:00:00 GMT"


class BucketServer:
    """Serves `objects` from `start` to `stop`."""

    def __init__(self, objects: Mapping[str, bytes], port: int = 0) -> None:
        self.objects = dict(objects)
        self.keys = sorted(self.objects)
        server = self

        class Handler(_Handler):
            bucket = server

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def seen(self, request: str) -> None:
        """Called with `list`, `head` or `get` before a request is answered."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: BucketServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.bucket.seen("head")
        self._object(False)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if "list-type=2" in url.query:
            self.bucket.seen("list")
            self._list({name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()})
        else:
            self.bucket.seen("get")
            self._object(True)

    def _object(self, body: bool) -> None:
        key = unquote(urlsplit(self.path).path).split("/", 2)[2]
        data = self.bucket.objects.get(key)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if body else b"", {})
            return
        tag = f'"{crc32(data):08x}"'
        if self.headers.get("If-Match", tag) != tag:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        head = {"ETag": tag, "Last-Modified": DATE, "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "")
        if not body or not asked:
            self._answer(200, data if body else b"", head, len(data))
            return
        begin, _, last = asked.removeprefix("bytes=").partition("-")
        part = data[int(begin) : int(last or len(data)) + 1]
        self._answer(206, part, {**head, "Content-Range": f"bytes {begin}-{int(begin) + len(part) - 1}/{len(data)}"})

    def _list(self, asked: dict[str, str]) -> None:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        limit, keys = int(asked.get("max-keys", 1000)), self.bucket.keys
        at = max(bisect_left(keys, prefix), bisect_right(keys, asked.get("start-after", "")))
        shown: list[str] = []
        while at < len(keys) and keys[at].startswith(prefix) and len(shown) < limit:
            end = keys[at].find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                shown.append(self._entry(keys[at]))
                at += 1
            else:
                common = keys[at][: end + 1]
                shown.append(f"<CommonPrefixes><Prefix>{quote(common)}</Prefix></CommonPrefixes>")
                at = bisect_right(keys, common + "\U0010ffff", at)
        more = at < len(keys) and keys[at].startswith(prefix)
        text = (
            f"<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType><KeyCount>{len(shown)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{''.join(shown)}</ListBucketResult>"
        )
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _entry(self, key: str) -> str:
        data = self.bucket.objects[key]
        return (
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-07-01T12:00:00Z</LastModified>"
            f"<ETag>&quot;{crc32(data):08x}&quot;</ETag><Size>{len(data)}</Size></Contents>"
        )

    def _answer(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
