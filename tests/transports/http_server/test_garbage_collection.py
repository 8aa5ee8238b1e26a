"""The runner keeps pauses of the garbage collector short, and restores its settings."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.transports.http_support import RawClient, ServerThread
from wharfinger import Server
from wharfinger.transports.http_server.asgi_response import EventStream
from wharfinger.transports.http_server.garbage_collection import FREEZE_STEP, THRESHOLDS, Collector
from wharfinger.transports.http_server.http_connection import Exchange, HttpConnection
from wharfinger.transports.http_server.open_calls import HttpCall
from wharfinger.transports.http_server.runner import HttpServer

FOUND = (701, 11, 12)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Set up a collector with settings of the application, and check that they are restored."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(*FOUND)
    try:
        yield
        assert gc.get_threshold() == FOUND
        assert gc.get_freeze_count() == 0
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)


class Ring:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def test_objects_that_exist_at_the_start_are_frozen_until_the_end() -> None:
    with Collector():
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == THRESHOLDS


def test_the_last_of_two_runners_restores_the_collector() -> None:
    first, second = Collector(), Collector()
    with first:
        with second:
            pass
        assert gc.get_threshold() == THRESHOLDS
        first.grew(FREEZE_STEP)
        assert gc.get_freeze_count()


def test_a_failure_restores_the_collector() -> None:
    with pytest.raises(RuntimeError), Collector():
        raise RuntimeError


def test_a_disabled_collector_is_not_changed() -> None:
    gc.disable()
    with Collector() as entered:
        entered.grew(10 * FREEZE_STEP)
        entered.tick(0)
        assert gc.get_threshold() == FOUND
        assert gc.get_freeze_count() == 0
    gc.enable()


def test_objects_frozen_by_the_application_stay_frozen() -> None:
    ring = Ring()
    gc.freeze()
    try:
        with Collector():
            assert gc.get_threshold() == FOUND
        assert not _is_looked_at(ring)
    finally:
        gc.unfreeze()


def test_objects_are_frozen_again_after_growth_by_a_step() -> None:
    with Collector() as entered:
        entered.grew(FREEZE_STEP - 1)
        young = Ring()
        assert _is_looked_at(young)
        entered.grew(FREEZE_STEP)
        assert not _is_looked_at(young)
        later = Ring()
        entered.grew(2 * FREEZE_STEP - 1)
        assert _is_looked_at(later)
        entered.tick(2 * FREEZE_STEP)
        assert not _is_looked_at(later)


def _is_looked_at(thing: object) -> bool:
    return any(other is thing for other in gc.get_objects())


def test_garbage_is_collected_before_it_would_be_frozen() -> None:
    with Collector() as entered:
        garbage = weakref.ref(Ring())
        assert garbage() is not None
        entered.grew(FREEZE_STEP)
        assert garbage() is None


def test_frozen_garbage_is_collected_after_half_of_the_objects_are_gone() -> None:
    with Collector() as entered:
        ring = Ring()
        garbage = weakref.ref(ring)
        entered.grew(2 * FREEZE_STEP)
        del ring
        gc.collect()
        entered.tick(2 * FREEZE_STEP)
        entered.tick(FREEZE_STEP + 1)
        entered.tick(FREEZE_STEP + 1)
        assert garbage() is not None
        entered.tick(FREEZE_STEP)  # objects are still being freed, so nothing is collected
        assert garbage() is not None
        entered.tick(FREEZE_STEP)
        assert garbage() is None
        assert gc.get_freeze_count()


@pytest.mark.parametrize("sessions", [False, True])
def test_the_runner_freezes_connections_and_sessions(monkeypatch: pytest.MonkeyPatch, sessions: bool) -> None:
    monkeypatch.setattr("wharfinger.transports.http_server.garbage_collection.FREEZE_STEP", 5)
    with ServerThread() as server:
        wires = [server.wire() for _ in range(1 if sessions else 7)]
        for wire in wires:
            if sessions:
                for _ in range(7):
                    wire.initialize()
            else:
                assert wire.read("a").status == 200
        with server.wire() as last:
            assert last.read("a").status == 200
            assert not any(isinstance(thing, HttpServer) for thing in gc.get_objects())
            if not sessions:
                assert sum(isinstance(thing, HttpConnection) for thing in gc.get_objects()) < 5
        for wire in wires:
            wire.close()


def test_an_application_in_another_server_does_not_change_the_collector() -> None:
    app = Server("notes").asgi()

    async def call() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            assert gc.get_threshold() == FOUND

        scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [(b"host", b"127.0.0.1")]}
        await app(scope, receive, send)

    asyncio.run(call())
    assert gc.get_freeze_count() == 0


def _listen(server: ServerThread) -> RawClient:
    wire = server.wire()
    wire.listen("test://a")
    server.call(server.service.notify, "test://a")
    wire.event()
    return wire


def _own_stream(server: ServerThread) -> RawClient:
    wire = server.wire()
    wire.open_stream(wire.initialize())
    return wire


def _answered(server: ServerThread) -> RawClient:
    wire = server.wire()
    for name in ("a", "missing", "progress", "big"):
        wire.read(name)
    return wire


def _waiting(server: ServerThread) -> RawClient:
    wire = server.wire()
    wire.stateless("resources/read", {"uri": "test://wait"})
    assert server.service.arrived.acquire(timeout=10)
    return wire


def _refused(server: ServerThread) -> RawClient:
    wire = server.wire()
    wire.write(b"nonsense\r\n\r\n")
    wire.reply()
    return wire


@pytest.mark.parametrize("begin", [_listen, _own_stream, _answered, _waiting, _refused])
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_ends_is_freed_without_the_collector(
    begin: Callable[[ServerThread], RawClient], reset: bool
) -> None:
    """A collection of ten thousand connections delays every request by hundreds of milliseconds."""
    import socket
    import struct

    kinds = (HttpConnection, Exchange, HttpCall, EventStream)
    with ServerThread() as server:
        gc.disable()
        try:
            before = {id(thing) for thing in gc.get_objects() if isinstance(thing, kinds)}
            wires = [begin(server) for _ in range(3)]
            for wire in wires:
                if reset:
                    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                wire.close()
            deadline = time.monotonic() + 10
            while left := [
                type(thing).__name__
                for thing in gc.get_objects()
                if isinstance(thing, kinds) and id(thing) not in before
            ]:
                assert time.monotonic() < deadline, left
                time.sleep(0.005)
        finally:
            gc.enable()


def test_many_closed_connections_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.transports.http_server.http_connection.CONNECTIONS_PER_TURN", 2)
    with ServerThread() as server:
        wires = [server.wire() for _ in range(9)]
        for wire in wires:
            wire.listen("test://a")
        for wire in wires:
            wire.close()
        for _ in wires:
            assert server.service.left.acquire(timeout=10)
        assert not server.service.listeners
