"""Metrics of a server for Prometheus, on an address of their own.

No label has unbounded values, such as URIs, names and callers: these belong in the audit log. Unknown methods are
counted as `other`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from wharfinger.errors import MissingExtra, WharfingerError
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.observing import Observation, Refusal, outcome_of_error
from wharfinger.protocol.request import Request

__all__ = ["CannotServeMetrics", "Metrics"]

BUCKET_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The bounds of the histogram of durations."""
GAUGES = {
    "streams": "Streams that are open over HTTP.",
    "sessions": "Sessions of the handshake era over HTTP.",
    "watchers": "Sessions and requests that watch a resource or a list.",
    "tasks": "Tasks that run.",
    "source_outages": "Sources that cannot be reached.",
}


class CannotServeMetrics(WharfingerError):
    """The address for metrics cannot be used."""

    exit_code = 2


class Metrics:
    """Counts the requests of a server. `server.observers.add(Metrics(server.gauges))`.

    `gauges` are functions that return current numbers, by name; `notices` returns how many notices were sent.
    `address` is HOST:PORT, where `/metrics` is served in a thread while the server runs. Without it, read `registry`.

    Raises:
        MissingExtra: prometheus-client is not installed.
        ValueError: the address is not HOST:PORT.
    """

    def __init__(
        self,
        gauges: Mapping[str, Sequence[Callable[[], int]]],
        address: str | None = None,
        *,
        notices: Callable[[], int] = lambda: 0,
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Histogram
        except ImportError:
            raise MissingExtra("metrics", "Serving metrics") from None
        self.registry = registry = CollectorRegistry()
        self.address = None if address is None else _host_and_port(address)
        self.port = 0
        """The port of `/metrics`; 0 before the server starts."""
        labels = ("method", "outcome")
        self._requests = Counter("wharfinger_requests", "Requests that ended.", labels, registry=registry)
        self._seconds = Histogram(
            "wharfinger_request_seconds",
            "Durations of requests.",
            ("method",),
            buckets=BUCKET_SECONDS,
            registry=registry,
        )
        self._bytes = Counter("wharfinger_answer_bytes", "Bytes of answers.", ("method",), registry=registry)
        self._refusals = Counter(
            "wharfinger_refusals", "Messages that were refused before they became requests.", ("status",),
            registry=registry,
        )  # fmt: skip
        self._searches = Counter(
            "wharfinger_searches", "Searches, by whether they found anything.", ("found",), registry=registry
        )
        self._gauges = gauges
        self._notices = notices
        registry.register(self)
        self._counters: dict[tuple[str, str], tuple[Any, Any, Any]] = {}
        """The metrics of each method and outcome, with their labels."""
        self._stop: Callable[[], None] | None = None

    # -- events

    def began(self, seen: Observation) -> None:
        """Do nothing."""

    def ended(self, seen: Observation) -> None:
        """Count a request of a client. The requests that its handler makes are not counted."""
        if seen.outer_method:
            return
        key = seen.request.method, seen.outcome
        counters = self._counters.get(key)
        if counters is None:
            method = key[0] if key[0] in METHODS else "other"
            counters = self._counters[key] = (
                self._requests.labels(method, key[1]), self._seconds.labels(method), self._bytes.labels(method),
            )  # fmt: skip
        requests, seconds, size = counters
        requests.inc()
        size.inc(seen.size)
        if seen.request.row is None or not seen.request.row.long:  # a watch lasts as long as its client wants
            seconds.observe(seen.seconds)

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Count a search by whether it found anything."""
        self._searches.labels("yes" if hits else "no").inc()

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Do nothing: watchers are a gauge."""

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Do nothing."""

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal."""
        method = refusal.method if refusal.method in METHODS else "other"
        self._requests.labels(method, outcome_of_error(refusal.error)).inc()
        self._refusals.labels(str(refusal.error.http_status)).inc()

    def collect(self) -> Iterable[Any]:
        """Yield the current numbers, when Prometheus reads them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text in GAUGES.items():
            value = sum(read() for read in tuple(self._gauges.get(name, ())))
            yield GaugeMetricFamily(f"wharfinger_{name}", text, value=value)
        yield CounterMetricFamily("wharfinger_notices", "Notices sent to watchers.", value=self._notices())

    # -- beginning and end

    async def start(self) -> None:
        """Listen on the address.

        Raises:
            CannotServeMetrics: it is in use, or does not belong to this machine.
        """
        if self.address is None or self._stop is not None:
            return
        from prometheus_client import start_http_server

        host, port = self.address
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise CannotServeMetrics(f"Metrics cannot be served at {host}:{port}: {error.strerror}.") from None
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            server.server_close()

        self._stop = stop

    async def close(self) -> None:
        """Stop listening."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            await asyncio.to_thread(stop)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{address!r} is not HOST:PORT: write 127.0.0.1:9464.")
    return host.strip("[]"), int(port)
