"""telemetry: spans by OpenTelemetry, for stores that are told to export them.

Theory of operation. ``[tracing] exporter`` names an exporter as OpenTelemetry's packages register
it (``otlp_proto_http``, ``console``). Without a name nothing of OpenTelemetry is imported, and
`trace.NO_TRACING` stands in its place. OpenTelemetry's own environment variables say everything
else: where to export to (OTEL_EXPORTER_OTLP_ENDPOINT), how many spans to take
(OTEL_TRACES_SAMPLER), and how they are queued (OTEL_BSP_*).

There is one span per RPC, one per block of a stream that came with a traceparent, and one on the
leader's store for what another store forwarded. The parent of a span is the one that the caller
sent; whatever is logged, audited and forwarded inside names the span itself. A thread of the SDK
exports; its queue is bounded, and a span that does not fit is dropped there.

This file alone imports the SDK.

Reference: OpenTelemetry specification, trace API and SDK.
"""

from __future__ import annotations

import threading
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.config import StoreConfig
from logservice.server.version import server_version
from logservice.trace import NO_TRACING, TRACEPARENT, Call, Carried, Span, Tracing, plain_ids

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_GROUP: Final = "opentelemetry_traces_exporter"


def tracing_of(config: StoreConfig) -> Tracing:
    """The tracing that the configuration names. Raises InvalidArgument when it is not installed."""
    name = config.tracing.exporter
    if not name:
        return NO_TRACING
    found = list(entry_points(group=_GROUP, name=name))
    try:
        exporter = found[0].load() if found else None
    except ImportError:
        exporter = None
    if exporter is None:
        raise InvalidArgument(
            f"no exporter {name!r} is installed; logservice[otel] brings otlp_proto_http",
            field="tracing.exporter",
        )
    return OpenTelemetry(exporter(), config.store.cluster_id, config.store.store_id)


class OpenTelemetry:
    """`trace.Tracing` with a tracer provider of its own: nothing global is touched."""

    def __init__(self, exporter: SpanExporter, cluster: str, store: str) -> None:
        """Spans go to `exporter`, on a thread. Raises ImportError without the SDK."""
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create(
            {
                "service.name": "logservice",
                "service.namespace": cluster,
                "service.instance.id": store,
                "service.version": server_version(),
            }
        )
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("logservice")
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._error = StatusCode.ERROR
        self._nothing = Context()

    def begin(self, name: str, call: Call | None, **attributes: str | int) -> Span:
        """See `trace.Tracing`."""
        request_id, traceparent = plain_ids(call) if call is not None else ("", "")
        # The context is empty, not the task's: a parent is only ever what came with the call.
        parent = self._propagator.extract({TRACEPARENT: traceparent}, context=self._nothing)
        if request_id:
            attributes["logservice.request_id"] = request_id
        started = self._tracer.start_span(name, parent, self._kind, attributes)
        return _Recorded(started, request_id, self._error)

    def close(self) -> None:
        """Export what is left, for STOP_FLUSH_S at most. Blocks.

        The SDK's own time limits do not hold when nobody listens at the other end, so what takes
        longer is left to a thread that ends with the process.
        """
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(bounds.STOP_FLUSH_S)


class _Recorded:
    __slots__ = ("_error", "_span", "call")

    def __init__(self, span: Any, request_id: str, error: Any) -> None:
        self._span = span
        self._error = error
        found = span.get_span_context()
        self.call: Call | None = Carried(
            f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}",
            request_id,
        )

    def end(self, failure: str) -> None:
        if failure:
            self._span.set_attribute("error.type", failure)
            self._span.set_status(self._error, failure)
        self._span.end()
