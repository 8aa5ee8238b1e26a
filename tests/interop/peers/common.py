"""The shared part of the Python peers' programs: the features of a peer's server, and the changes that a client makes.

The argument of a client program is a JSON object (see `Tree.visit` in test_their_clients.py). The program
prints a JSON object with its results. The arguments of a server program are `stdio` or `http PORT`.
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


def transport_and_port():
    """Return `("stdio", 0)` or `("http", port)`."""
    return ("http", int(sys.argv[2])) if sys.argv[1] == "http" else ("stdio", 0)


def read_input():
    return json.loads(sys.argv[1])


async def apply_change(change, call_tool):
    """Append to a file, create a file, or call a tool of the server."""
    if "append" in change:
        with open(change["append"], "a") as out:
            out.write("more\n")
    elif "create" in change:
        with open(change["create"], "x") as out:
            out.write("new\n")
    else:
        await call_tool(change["call"], change.get("arguments", {}))


def report(seen):
    print(json.dumps(seen))
