"""The metrics of a real server, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import urllib.request
from typing import Any

import pytest

from wharfinger import Client, Context, Server

prometheus = pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from wharfinger.record.metrics import CannotServeMetrics, Metrics  # noqa: E402


def server_with_metrics() -> tuple[Server, Metrics]:
    server = Server("harbour")

    @server.resource("notes://today")
    async def today() -> str:
        return "calm"

    @server.tool
    async def repeat(ctx: Context) -> str:
        return (await ctx.read_resource("notes://today")).contents[0].text or ""

    @server.tool
    async def find(words: str, ctx: Context) -> int:
        return len(await ctx.search(words))

    metrics = Metrics(server.gauges, "127.0.0.1:0", notices=lambda: server.watching.sent_count)
    server.observers.add(metrics)
    return server, metrics


def scrape(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Return every sample by its name and the values of its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=40) as answer:
        text = answer.read().decode()
    samples_by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples_by_name.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples_by_name


def test_requests_are_counted_by_method_and_outcome_and_never_by_name() -> None:
    server, metrics = server_with_metrics()
    samples_by_name: dict[str, Any] = {}

    async def run() -> None:
        async with Client(server) as client:
            for _ in range(3):
                await client.read_resource("notes://today")
            with contextlib.suppress(Exception):
                await client.read_resource("notes://secret-name")
            await client.call_tool("repeat", {})
            await client.call_tool("find", {"words": "tulip"})
            with contextlib.suppress(Exception):
                await client.call_tool("secret-tool", {})
            async with client.watch("notes://today") as changes:
                server.resource_updated("notes://today")
                await anext(aiter(changes))
                samples_by_name.update(await asyncio.to_thread(scrape, metrics.port))

    asyncio.run(run())
    requests = samples_by_name["wharfinger_requests_total"]
    assert requests["resources/read", "allowed"] == 3  # the read by `repeat` is part of its call
    assert requests["resources/read", "failed"] == 1
    assert requests["tools/call", "allowed"] == 2
    assert samples_by_name["wharfinger_request_seconds_count"]["resources/read",] == 4
    assert samples_by_name["wharfinger_answer_bytes_total"]["resources/read",] > 100
    assert samples_by_name["wharfinger_searches_total"]["no",] == 1
    assert samples_by_name["wharfinger_watchers"][()] == 1
    assert samples_by_name["wharfinger_notices_total"][()] == 1
    assert samples_by_name["wharfinger_sessions"][()] == samples_by_name["wharfinger_source_outages"][()] == 0
    labels = {value for samples in samples_by_name.values() for key in samples for value in key}
    assert not any("secret" in label or "notes:" in label for label in labels)


def test_unknown_methods_do_not_add_series() -> None:
    from wharfinger.errors import Overloaded
    from wharfinger.protocol.observing import Refusal

    _, metrics = server_with_metrics()

    def series() -> int:
        return sum(len(family.samples) for family in metrics.registry.collect())

    metrics.refused(Refusal(Overloaded(), "resources/read"))
    metrics.refused(Refusal(Overloaded(), "made/up"))
    before = series()
    for number in range(100):
        metrics.refused(Refusal(Overloaded(), f"made/up{number}"))
    assert series() == before


def test_the_address_is_free_again_after_the_server_closes() -> None:
    server, metrics = server_with_metrics()

    async def run() -> int:
        await server.start()
        port = metrics.port
        await asyncio.to_thread(scrape, port)
        await server.close()
        return port

    port = asyncio.run(run())
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=40)


def test_an_address_in_use_is_an_error_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server("taken")
        server.observers.add(Metrics(server.gauges, f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(CannotServeMetrics, match="in use"):
            asyncio.run(server.start())


@pytest.mark.parametrize("address", ["9464", "localhost", "localhost:70000", ":9464", "a:b"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"write 127\.0\.0\.1:9464"):
        Metrics({}, address)
