"""A small S3 server with one bucket, which accepts any bucket name and any credentials.

It is fast enough for many objects. moto, which the other tests use, sorts all keys for each page.
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
    """Serves `objects` as a context manager."""

    def __init__(self, objects: Mapping[str, bytes], port: int = 0) -> None:
        self.objects = dict(objects)
        self.keys = sorted(self.objects)
        outer = self

        class Handler(_Handler):
            bucket = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def on_request(self, request: str) -> None:
        """Do nothing; subclasses override this. It is called with `list`, `head` or `get` before each response."""

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
        self.bucket.on_request("head")
        self._send_object(with_body=False)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if "list-type=2" in url.query:
            self.bucket.on_request("list")
            self._send_list({name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()})
        else:
            self.bucket.on_request("get")
            self._send_object(with_body=True)

    def _send_object(self, with_body: bool) -> None:
        key = unquote(urlsplit(self.path).path).split("/", 2)[2]
        data = self.bucket.objects.get(key)
        if data is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b"", {})
            return
        etag = f'"{crc32(data):08x}"'
        if self.headers.get("If-Match", etag) != etag:
            self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        headers = {"ETag": etag, "Last-Modified": DATE, "Accept-Ranges": "bytes"}
        requested = self.headers.get("Range", "")
        if not with_body or not requested:
            self._send(200, data if with_body else b"", headers, len(data))
            return
        begin, _, last = requested.removeprefix("bytes=").partition("-")
        part = data[int(begin) : int(last or len(data)) + 1]
        self._send(206, part, {**headers, "Content-Range": f"bytes {begin}-{int(begin) + len(part) - 1}/{len(data)}"})

    def _send_list(self, parameters: dict[str, str]) -> None:
        prefix, delimiter = parameters.get("prefix", ""), parameters.get("delimiter", "")
        limit, keys = int(parameters.get("max-keys", 1000)), self.bucket.keys
        index = max(bisect_left(keys, prefix), bisect_right(keys, parameters.get("start-after", "")))
        entries: list[str] = []
        while index < len(keys) and keys[index].startswith(prefix) and len(entries) < limit:
            end = keys[index].find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                entries.append(self._entry(keys[index]))
                index += 1
            else:
                common = keys[index][: end + 1]
                entries.append(f"<CommonPrefixes><Prefix>{quote(common)}</Prefix></CommonPrefixes>")
                index = bisect_right(keys, common + "\U0010ffff", index)
        truncated = index < len(keys) and keys[index].startswith(prefix)
        document = (
            f"<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType><KeyCount>{len(entries)}</KeyCount>"
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{''.join(entries)}</ListBucketResult>"
        )
        self._send(200, document.encode(), {"Content-Type": "application/xml"})

    def _entry(self, key: str) -> str:
        data = self.bucket.objects[key]
        return (
            f"<Contents><Key>{quote(key)}</Key><LastModified>2026-07-01T12:00:00Z</LastModified>"
            f"<ETag>&quot;{crc32(data):08x}&quot;</ETag><Size>{len(data)}</Size></Contents>"
        )

    def _send(self, status: int, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
