"""The resources and the tool of every server under test, and its command line; `spec.mjs` is the same for Node.

    bench://static      text, 1 KiB
    bench://item/{id}   a template, small JSON text
    bench://blob/1      1 MiB, encoded in base64 at every read
    bench://blob/50     50 MiB, encoded in the same way
    add                 a tool: the sum of two integers, with an output schema if the peer makes one by default
    bench://entry/{n}   fills resources/list up to 1,000 (the template is not in it)

All functions are `async def`: some peers run a plain `def` in a thread pool, and that would be measured too. If a peer
has a class for fixed content, it is used, since that is the fastest way. Logging is at WARNING and access logs are off,
since the floors log nothing.
"""

import json
import sys
from functools import cache

NAME, VERSION = "bench", "1.0"
STATIC_URI, ITEM_TEMPLATE = "bench://static", "bench://item/{id}"
BLOB_URI, BIG_BLOB_URI = "bench://blob/1", "bench://blob/50"
TEXT, JSON, BINARY = "text/plain", "application/json", "application/octet-stream"
STATIC_TEXT = ("The quick brown fox jumps over the lazy dog. " * 40)[:1024]
BLOB = bytes(range(256)) * 4096
ENTRIES = [(f"bench://entry/{n}", f"entry {n}") for n in range(997)]


@cache
def big_blob() -> bytes:
    """Return 50 MiB. They are made at the first read, so that they do not count as idle memory."""
    return BLOB * 50


def item_text(id: str) -> str:
    return json.dumps({"id": id, "name": f"item {id}", "price": 12.5, "tags": ["a", "b"], "stock": 3})


def arguments() -> tuple[int | None, str]:
    """Return the port, or None for stdio, and the era, from `FILE stdio` or `FILE http PORT session|stateless`."""
    return (int(sys.argv[2]), sys.argv[3]) if sys.argv[1:2] == ["http"] else (None, "session")
