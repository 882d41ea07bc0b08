"""otel: the trace of OpenTelemetry that a call belongs to, for `LogClient(traceparent=...)`.

Needs the package opentelemetry-api (``logservice-client[otel]``), and imports nothing else of it.
"""

from __future__ import annotations

from opentelemetry import trace


def current_traceparent() -> str:
    """The span that is current where this is called, as a W3C traceparent; "" without one."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
