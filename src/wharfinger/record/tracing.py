"""Spans and a histogram of durations for OpenTelemetry, named as in its semantic conventions for MCP.

The parent of a request's span is the context that the client sent in `_meta`: `traceparent`, `tracestate`, `baggage`,
as in MCP 2026-07-28 and the conventions' section on context propagation. Spans that the request's handler makes, and
those of the resources that it reads, are children of the request's span. A resource's URI is an attribute, not part of
the name, because there are too many.

OpenTelemetry is not a dependency, and is imported here only if the application has imported it. A server is traced if a
provider of traces or metrics is set when it starts, as `opentelemetry-instrument` does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from wharfinger.protocol.observing import Observation, Refusal
from wharfinger.protocol.request import Request
from wharfinger.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Tracing", "is_traced"]

NAME_ATTRIBUTES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute for the name of a tool or prompt. The span's name contains it too, because there are few such names."""
UNMEASURED = frozenset({"mcp.resource.uri", "jsonrpc.request.id"})
"""Attributes with too many values for a metric."""
BUCKET_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The bounds of the histogram that the conventions give."""
CONTEXT_FIELDS = ("traceparent", "tracestate", "baggage")
"""The fields of `_meta` with the context of the client."""


def is_traced() -> bool:
    """Return whether the application has set a provider of OpenTelemetry."""
    if "opentelemetry.sdk" not in sys.modules and "opentelemetry.trace" not in sys.modules:
        return False
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.trace import get_tracer_provider

    # The API has a proxy until a provider is set.
    return not all(
        type(get()).__name__.lstrip("_").startswith("Proxy") for get in (get_tracer_provider, get_meter_provider)
    )


class Tracing:
    """Creates a span for each request, with the global providers unless others are given."""

    def __init__(self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
        from opentelemetry import metrics, propagate, trace
        from opentelemetry.context import attach, detach

        self._tracer = trace.get_tracer("wharfinger", __version__, tracers)
        meter = metrics.get_meter("wharfinger", __version__, meters)
        self._duration = meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="Duration of the requests of clients.",
            explicit_bucket_boundaries_advisory=BUCKET_SECONDS,
        )
        self._trace, self._extract, self._attach, self._detach = trace, propagate.extract, attach, detach

    # -- events

    def began(self, seen: Observation) -> None:
        """Begin a span, which is the current one until the request ends."""
        request, trace = seen.request, self._trace
        attributes = self._attributes(seen)
        name = seen.target if request.method in NAME_ATTRIBUTES else ""
        parent, links = None, []
        if not seen.outer_method:  # otherwise a handler made it, and the handler's span, the current one, is the parent
            parent = self._parent(request)
            ambient = trace.get_current_span().get_span_context()
            # A span has one parent: the client's, if it sent one. The conventions then require a link to the current
            # span, such as that of the HTTP request.
            if parent is not None and ambient.is_valid:
                links = [trace.Link(ambient)]
        span = self._tracer.start_span(
            f"{request.method} {name[:128]}" if name else request.method,
            context=parent,
            kind=trace.SpanKind.INTERNAL if seen.outer_method else trace.SpanKind.SERVER,
            attributes=attributes,
            links=links,
        )
        context = span.get_span_context()
        if context.is_valid:
            seen.trace = trace.format_trace_id(context.trace_id)
        seen.notes[self] = span, self._attach(trace.set_span_in_context(span, parent)), attributes

    def ended(self, seen: Observation) -> None:
        """End the span with the outcome. For a request of a client, also record its duration."""
        if self not in seen.notes:  # another observer refused the request first
            return
        span, token, attributes = seen.notes.pop(self)
        outcome, code = seen.outcome, seen.code
        error_type = ""
        if outcome == "cancelled":
            error_type = "cancelled"
        elif code is not None:
            error_type = str(code)
            attributes = {**attributes, "rpc.response.status_code": error_type}
        elif outcome == "failed":
            error_type = "tool_error" if seen.error is None else type(seen.error).__name__
        if error_type:
            attributes = {**attributes, "error.type": error_type}
            span.set_status(self._trace.StatusCode.ERROR)
        if span.is_recording():
            span.set_attributes({**attributes, "wharfinger.outcome": outcome, "wharfinger.answer.size": seen.size})
        span.end()
        self._detach(token)
        if not seen.outer_method:
            # After an error, the name may be one that the caller made up.
            excluded = UNMEASURED if code is None else UNMEASURED.union(NAME_ATTRIBUTES.values())
            labels = {name: value for name, value in attributes.items() if name not in excluded}
            self._duration.record(seen.seconds, labels)

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Do nothing."""

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Do nothing."""

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Do nothing."""

    def refused(self, refusal: Refusal) -> None:
        """Do nothing: there is no context, and network scanners would create spans."""

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    # -- parts of a span

    def _attributes(self, seen: Observation) -> dict[str, Any]:
        request = seen.request
        attributes: dict[str, Any] = {
            "mcp.method.name": request.method,
            "mcp.protocol.version": request.caller.rules.name,
            "jsonrpc.request.id": str(request.id)[:128],
            "network.transport": "pipe" if request.headers is None else "tcp",
        }
        if request.headers is not None:
            attributes["network.protocol.name"] = "http"
        if (name := NAME_ATTRIBUTES.get(request.method)) is not None:
            attributes[name] = seen.target[:128]
            if request.method == "tools/call":
                attributes["gen_ai.operation.name"] = "execute_tool"
        elif isinstance(getattr(seen.params, "uri", None), str):
            attributes["mcp.resource.uri"] = seen.target[:2048]
        return attributes

    def _parent(self, request: Request) -> Any:
        """Return the context that the client sent; None if it sent none."""
        meta = getattr(request.params, "meta", UNSET)
        if meta is UNSET or meta.traceparent is UNSET:
            return None
        carrier = {name: value for name in CONTEXT_FIELDS if (value := getattr(meta, name)) is not UNSET}
        return self._extract(carrier)
