"""The runner keeps pauses of the garbage collector short, and restores its settings."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.transports.http_support import RawClient, ServerThread
from tests.waiting import wait_until
from wharfinger import Server
from wharfinger.transports.http_server.asgi_response import EventStream
from wharfinger.transports.http_server.garbage_collection import FREEZE_STEP, THRESHOLDS, Collector
from wharfinger.transports.http_server.http_connection import Exchange, HttpConnection
from wharfinger.transports.http_server.open_calls import HttpCall
from wharfinger.transports.http_server.runner import HttpServer

APPLICATION_THRESHOLDS = (701, 11, 12)


@pytest.fixture(autouse=True)
def application_settings() -> Iterator[None]:
    """Configure the collector as an application might, and check that the test restores the settings."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(*APPLICATION_THRESHOLDS)
    try:
        yield
        assert gc.get_threshold() == APPLICATION_THRESHOLDS
        assert gc.get_freeze_count() == 0
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


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
    with Collector() as collector:
        collector.grew(10 * FREEZE_STEP)
        collector.tick(0)
        assert gc.get_threshold() == APPLICATION_THRESHOLDS
        assert gc.get_freeze_count() == 0
    gc.enable()


def test_objects_frozen_by_the_application_stay_frozen() -> None:
    cycle = Cycle()
    gc.freeze()
    try:
        with Collector():
            assert gc.get_threshold() == APPLICATION_THRESHOLDS
        assert not _is_examined(cycle)
    finally:
        gc.unfreeze()


def test_objects_are_frozen_again_after_each_step_of_growth() -> None:
    with Collector() as collector:
        collector.grew(FREEZE_STEP - 1)
        young = Cycle()
        assert _is_examined(young)
        collector.grew(FREEZE_STEP)
        assert not _is_examined(young)
        later = Cycle()
        collector.grew(2 * FREEZE_STEP - 1)
        assert _is_examined(later)
        collector.tick(2 * FREEZE_STEP)
        assert not _is_examined(later)


def _is_examined(thing: object) -> bool:
    """Return whether collections examine the object. They skip frozen objects, which are not listed."""
    return any(other is thing for other in gc.get_objects())


def test_garbage_is_collected_before_it_would_be_frozen() -> None:
    with Collector() as collector:
        garbage = weakref.ref(Cycle())
        assert garbage() is not None
        collector.grew(FREEZE_STEP)
        assert garbage() is None


def test_frozen_garbage_is_collected_after_half_of_the_objects_are_gone() -> None:
    with Collector() as collector:
        cycle = Cycle()
        garbage = weakref.ref(cycle)
        collector.grew(2 * FREEZE_STEP)
        del cycle
        gc.collect()
        collector.tick(2 * FREEZE_STEP)
        collector.tick(FREEZE_STEP + 1)
        collector.tick(FREEZE_STEP + 1)
        assert garbage() is not None
        collector.tick(FREEZE_STEP)  # objects are still being freed, so nothing is collected
        assert garbage() is not None
        collector.tick(FREEZE_STEP)
        assert garbage() is None
        assert gc.get_freeze_count()


@pytest.mark.parametrize("sessions", [False, True])
def test_the_runner_freezes_connections_and_sessions(monkeypatch: pytest.MonkeyPatch, sessions: bool) -> None:
    monkeypatch.setattr("wharfinger.transports.http_server.garbage_collection.FREEZE_STEP", 5)
    with ServerThread() as server:
        clients = [server.connect() for _ in range(1 if sessions else 7)]
        for client in clients:
            if sessions:
                for _ in range(7):
                    client.initialize()
            else:
                assert client.read("a").status == 200
        with server.connect() as last:
            assert last.read("a").status == 200
            assert not any(isinstance(thing, HttpServer) for thing in gc.get_objects())
            if not sessions:
                assert sum(isinstance(thing, HttpConnection) for thing in gc.get_objects()) < 5
        for client in clients:
            client.close()


def test_an_application_in_another_server_does_not_change_the_collector() -> None:
    app = Server("notes").asgi()

    async def call() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            assert gc.get_threshold() == APPLICATION_THRESHOLDS

        scope = {"type": "http", "method": "GET", "path": "/healthz", "headers": [(b"host", b"127.0.0.1")]}
        await app(scope, receive, send)

    asyncio.run(call())
    assert gc.get_freeze_count() == 0


def _listen(server: ServerThread) -> RawClient:
    client = server.connect()
    client.listen("test://a")
    server.call(server.service.notify, "test://a")
    client.event()
    return client


def _open_session_stream(server: ServerThread) -> RawClient:
    client = server.connect()
    client.open_stream(client.initialize())
    return client


def _read(server: ServerThread) -> RawClient:
    client = server.connect()
    for name in ("a", "missing", "progress", "big"):
        client.read(name)
    return client


def _start_waiting(server: ServerThread) -> RawClient:
    client = server.connect()
    client.send_stateless("resources/read", {"uri": "test://wait"})
    assert server.service.arrived.acquire(timeout=40)
    return client


def _send_nonsense(server: ServerThread) -> RawClient:
    client = server.connect()
    client.write(b"nonsense\r\n\r\n")
    client.reply()
    return client


@pytest.mark.parametrize("start", [_listen, _open_session_stream, _read, _start_waiting, _send_nonsense])
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_ends_is_freed_without_the_collector(
    start: Callable[[ServerThread], RawClient], reset: bool
) -> None:
    """Collecting ten thousand connections delays every request by hundreds of milliseconds."""
    kinds = (HttpConnection, Exchange, HttpCall, EventStream)
    with ServerThread() as server:
        gc.disable()
        try:
            before = {id(thing) for thing in gc.get_objects() if isinstance(thing, kinds)}
            clients = [start(server) for _ in range(3)]
            for client in clients:
                if reset:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

            def remaining() -> list[str]:
                return [
                    type(thing).__name__
                    for thing in gc.get_objects()
                    if isinstance(thing, kinds) and id(thing) not in before
                ]

            wait_until(lambda: not remaining(), "everything is freed", details=remaining)
        finally:
            gc.enable()


def test_more_closed_connections_than_one_turn_handles_are_all_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.transports.http_server.http_connection.CONNECTIONS_PER_TURN", 2)
    with ServerThread() as server:
        clients = [server.connect() for _ in range(9)]
        for client in clients:
            client.listen("test://a")
        for client in clients:
            client.close()
        for _ in clients:
            assert server.service.ended.acquire(timeout=40)
        assert not server.service.listeners
