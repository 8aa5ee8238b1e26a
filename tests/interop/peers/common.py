"""What the Python peers' programs share: the surface that a peer's server offers, and how a client makes changes.

A client program is given one JSON object (see `Visit` in test_their_clients.py) and prints one: what it saw.
A server program is given `stdio` or `http PORT`, and offers what stands here.
"""

import json
import sys

TEXT_URI = "peer://text"
TEXT = "one, two; ünïcödé ✓\n"
BLOB_URI = "peer://blob"
BLOB = bytes(range(256)) * 4
ITEM_TEMPLATE = "peer://item/{id}"
ITEMS = ["amber", "anchor", "beacon"]
GROWN_URI = "peer://grown"


def item(name):
    return json.dumps({"id": name})


def address():
    """`("stdio", 0)` or `("http", port)`."""
    return ("http", int(sys.argv[2])) if sys.argv[1] == "http" else ("stdio", 0)


def visit():
    return json.loads(sys.argv[1])


async def change(how, call_tool):
    """Make a change: append to a file, create one, or call a tool of the server."""
    if "append" in how:
        with open(how["append"], "a") as out:
            out.write("more\n")
    elif "create" in how:
        with open(how["create"], "x") as out:
            out.write("new\n")
    else:
        await call_tool(how["call"], how.get("arguments", {}))


def report(seen):
    print(json.dumps(seen))
