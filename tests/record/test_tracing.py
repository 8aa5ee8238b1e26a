"""Spans and durations of a real server, as the OpenTelemetry SDK exports them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from wharfinger import Client, Context, Server
from wharfinger.transports.stream_server import StreamServer

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from wharfinger.record.tracing import Tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class DurationCount(NamedTuple):
    """The number of durations that a metric has for these attributes."""

    metric: str
    attributes: dict[str, Any]
    durations: int


class TracedServer:
    """A server and its exported spans and metrics."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.server = server = Server("harbour")
        server.observers.add(Tracing(tracers, meters))

        @server.resource("notes://today")
        async def today() -> str:
            with tracers.get_tracer("author").start_as_current_span("look outside"):
                return "calm"

        @server.tool
        async def repeat(ctx: Context) -> str:
            return (await ctx.read_resource("notes://today")).contents[0].text or ""

        @server.tool
        async def broken() -> str:
            raise RuntimeError("no")

    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def duration_counts(self) -> list[DurationCount]:
        data = self.reader.get_metrics_data()
        return [
            DurationCount(metric.name, dict(point.attributes), point.count)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        ]


async def send(server: Server, method: str, meta: dict[str, Any], **params: Any) -> None:
    await server.start()
    stream = StreamServer(server)
    required_meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": {**required_meta, **meta}}}
    stream.data_received(json.dumps(message).encode() + b"\n")
    stream.eof_received()
    await stream.ended
    await server.close()


def test_a_read_is_a_child_span_of_the_context_of_its_client() -> None:
    traced = TracedServer()
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"}
    asyncio.run(send(traced.server, "resources/read", meta, uri="notes://today"))
    span, inner = traced.spans()["resources/read"], traced.spans()["look outside"]
    assert trace.format_trace_id(span.context.trace_id) == TRACE
    assert trace.format_span_id(span.parent.span_id) == PARENT
    assert span.context.trace_state.get("rojo") == "1"
    assert span.kind is trace.SpanKind.SERVER
    assert inner.parent.span_id == span.context.span_id
    expected = {
        "mcp.method.name": "resources/read",
        "mcp.protocol.version": "2026-07-28",
        "mcp.resource.uri": "notes://today",
        "jsonrpc.request.id": "7",
        "network.transport": "pipe",
        "wharfinger.outcome": "allowed",
    }
    assert expected.items() <= dict(span.attributes).items()
    assert span.attributes["wharfinger.answer.size"] > 20
    assert span.status.status_code is trace.StatusCode.UNSET


@pytest.mark.parametrize("meta", [{}, {"traceparent": "nonsense"}, {"traceparent": f"00-{'0' * 32}-{PARENT}-01"}])
def test_without_a_valid_context_a_trace_begins(meta: dict[str, str]) -> None:
    traced = TracedServer()
    asyncio.run(send(traced.server, "resources/read", meta, uri="notes://today"))
    assert traced.spans()["resources/read"].parent is None


def test_a_tool_call_is_a_span_with_the_reads_of_the_tool_as_children() -> None:
    traced = TracedServer()

    async def run() -> None:
        async with Client(traced.server) as client:
            await client.call_tool("repeat", {})
            assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(run())
    call, read = traced.spans()["tools/call repeat"], traced.spans()["resources/read"]
    assert call.attributes["gen_ai.tool.name"] == "repeat"
    assert call.attributes["gen_ai.operation.name"] == "execute_tool"
    assert read.parent.span_id == call.context.span_id
    assert read.kind is trace.SpanKind.INTERNAL


def test_errors_have_their_type_and_an_error_status() -> None:
    traced = TracedServer()

    async def run() -> None:
        async with Client(traced.server) as client:
            for name in ("broken", "none"):
                with contextlib.suppress(Exception):
                    await client.call_tool(name, {})
            with contextlib.suppress(Exception):
                await client.read_resource("notes://none")

    asyncio.run(run())
    spans = traced.spans()
    assert spans["resources/read"].attributes["error.type"] == "-32602"
    assert spans["resources/read"].attributes["rpc.response.status_code"] == "-32602"
    assert not any(spans[name].status.is_ok for name in ("tools/call broken", "tools/call none", "resources/read"))
    assert all("error.type" in spans[name].attributes for name in ("tools/call broken", "tools/call none"))


def test_durations_are_measured_without_uris_ids_or_unknown_names() -> None:
    traced = TracedServer()

    async def run() -> None:
        async with Client(traced.server) as client:
            for _ in range(3):
                await client.read_resource("notes://today")
            await client.call_tool("repeat", {})
            with contextlib.suppress(Exception):
                await client.call_tool("made-up", {})

    asyncio.run(run())
    counts = [row for row in traced.duration_counts() if row.metric == "mcp.server.operation.duration"]
    (reads,) = [row for row in counts if row.attributes["mcp.method.name"] == "resources/read"]
    assert reads.durations == 3
    assert "made-up" not in str(counts)
    assert "notes://" not in str(counts)
    assert [row.attributes["gen_ai.tool.name"] for row in counts if "gen_ai.tool.name" in row.attributes] == ["repeat"]


@pytest.mark.parametrize("provider", [True, False])
def test_a_server_is_traced_if_and_only_if_the_application_has_set_a_provider(provider: bool) -> None:
    program = f"""
import asyncio, json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
if {provider}: trace.set_tracer_provider(TracerProvider())
from wharfinger import Server
async def run():
    server = Server("s")
    await server.start()
    print(len(server.observers))
    await server.close()
    await server.start()
    print(len(server.observers))
    await server.close()
asyncio.run(run())
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split() == (["1", "1"] if provider else ["0", "0"])


def test_a_server_alone_imports_nothing_of_opentelemetry() -> None:
    program = (
        "import asyncio, sys; from wharfinger import Server; server = Server('s'); asyncio.run(server.start());"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
