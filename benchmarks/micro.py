"""Measures operations of the core in one process, in ns each. Run it before and after a change.

python benchmarks/micro.py [--seconds S] [NAME…]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.harness import wire
from wharfinger import Server
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import decode
from wharfinger.protocol.request import Request, open_request, seal_result
from wharfinger.protocol.server_peer import ServerPeer
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.protocol.uri.template_index import TemplateIndex

Operation = Callable[[], object]
TEXT = ("The quick brown fox jumps over the lazy dog. " * 40)[:1024]
REPEATS = 7
"""The shortest of this many runs is printed: other processes can only make a run longer."""


def server() -> Server:
    """Return a server with 1,000 resources in one page, and a template."""
    app = Server("micro", page_size=1000)

    async def static() -> str:
        return TEXT

    async def item(id: str) -> str:
        return TEXT

    for n in range(1000):
        app.resource(f"bench://entry/{n}", name=f"entry {n}", mime_type="text/plain")(static)
    app.resource("bench://item/{id}", mime_type="text/plain")(item)
    return app


def line(method: str, params: dict[str, Any], era: str) -> bytes:
    before, after = wire.request(method, params, era)
    return before + b"%d" % wire.FIRST_ID + after


def peer_of(app: Server) -> ServerPeer:
    """Return a peer whose handshake is complete."""
    peer = ServerPeer(Session(), app.result_meta, app.limits)
    request = peer.receive(line("initialize", wire.INITIALIZE, wire.HANDSHAKE))
    assert isinstance(request, Request)
    peer.respond(request, run(app.handlers["initialize"](request)))
    peer.receive(wire.notification("notifications/initialized"))
    return peer


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits. It runs without a loop, so that only the core is timed."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waited")


def operations() -> dict[str, Operation]:
    """Return the operations by name. Each can be called many times."""
    app = server()
    peer = peer_of(app)
    static, item = {"uri": "bench://entry/500"}, {"uri": "bench://item/7"}
    lines = {era: line("resources/read", static, era) for era in (wire.HANDSHAKE, wire.STATELESS)}
    messages = {era: decode(data, app.limits) for era, data in lines.items()}
    requests = {era: open_request(message, peer.session) for era, message in messages.items()}
    result = run(app.handlers["resources/read"](requests[wire.HANDSHAKE]))
    index: TemplateIndex[int] = TemplateIndex()
    for n in range(1000):
        index.add(UriTemplate(f"bench://kind-{n}/{{id}}/part"), n)

    def through(data: bytes) -> Operation:
        def operation() -> object:
            request = peer.receive(data)
            assert type(request) is Request
            return peer.respond(request, run(app.handlers[request.method](request)))

        return operation

    handshake, stateless = wire.HANDSHAKE, wire.STATELESS
    return {
        "decode": lambda: decode(lines[handshake], app.limits),
        "decode, stateless": lambda: decode(lines[stateless], app.limits),
        "open_request": lambda: open_request(messages[handshake], peer.session),
        "open_request, stateless": lambda: open_request(messages[stateless], None),
        "handler of a read": lambda: run(app.handlers["resources/read"](requests[handshake])),
        "seal_result": lambda: seal_result(requests[handshake], result, app.result_meta),
        "seal_result, stateless": lambda: seal_result(requests[stateless], result, app.result_meta),
        "read through a peer": through(lines[handshake]),
        "read through a peer, stateless": through(lines[stateless]),
        "template read through a peer": through(line("resources/read", item, handshake)),
        "list of 1,000 through a peer": through(line("resources/list", {}, handshake)),
        "find among 1,000 templates": lambda: index.find("bench://kind-500/42/part"),
    }


def nanoseconds(operation: Operation, seconds: float) -> float:
    """Return the shortest mean time of `REPEATS` runs, which take about `seconds` in total."""
    count, share = 1, seconds * 1e9 / REPEATS
    while (elapsed := _time(operation, count)) < share / 2:
        count = max(count * 2, int(count * share / max(elapsed, 1)))
    return min(_time(operation, count) for _ in range(REPEATS)) / count


def _time(operation: Operation, count: int) -> int:
    start = time.process_time_ns()
    for _ in range(count):
        operation()
    return time.process_time_ns() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only operations whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S", help="time for one operation (default: 0.5)")
    chosen = parser.parse_args()
    for name, operation in operations().items():
        if not chosen.names or any(part in name for part in chosen.names):
            print(f"{name:32} {nanoseconds(operation, chosen.seconds):>10,.0f} ns", flush=True)


if __name__ == "__main__":
    main()
