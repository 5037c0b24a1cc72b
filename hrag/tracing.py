"""Traces of calls by OpenTelemetry: a span for each call, and in it one for each stage.

Off unless asked for; then the extra `otel` is needed. Spans have names, times and codes;
never a text, a vector or a key. All else, such as sampling, OTEL_* variables say.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

from hrag.config import CommonSettings, SettingsError

_CLOSE_S = 2.0  # For the last spans; a collector that is down would be tried for longer.
_ERRORS = frozenset({"DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"})

Stage = tuple[str, float, float]
"""A stage's name, and by `time.perf_counter` when it began and when it ended."""


class _Tracing:
    """The process's provider and tracer, None while tracing is off."""

    provider: Any = None
    tracer: Any = None


def configure(service: str, settings: CommonSettings) -> None:
    """Has this process's calls traced, if the settings say so; raises SettingsError."""
    if not settings.is_tracing:
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415  # Extra, and half a second to load.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            "HRAG_TRACING or OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, which need "
            f"`pip install 'hrag[otel]'` ({error})"
        ) from error
    # The events of a span would be exceptions, whose messages may quote what was sent.
    limits = SpanLimits(max_events=0)
    resource = Resource.create({"service.name": f"hrag-{service}"})
    provider = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _Tracing.provider = provider
    _Tracing.tracer = trace.get_tracer("hrag")


def close() -> None:
    """Sends what has not been sent, unless that takes long."""
    if _Tracing.provider is not None:
        ending = threading.Thread(target=_Tracing.provider.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_S)


def interceptors() -> list[Any]:
    """What a server needs for it, outermost: OpenTelemetry's own instrumentation."""
    if _Tracing.tracer is None:
        return []
    from opentelemetry.instrumentation.grpc import filters, server_interceptor  # noqa: PLC0415

    return [server_interceptor(filter_=filters.negate(filters.health_check()))]


def failed(code: str, number: int) -> None:
    """The present call ends with this code; OpenTelemetry's instrumentation misses it."""
    if _Tracing.tracer is None:
        return
    from opentelemetry import trace  # noqa: PLC0415

    span = trace.get_current_span()
    span.set_attribute("rpc.grpc.status_code", number)
    if code in _ERRORS:
        span.set_status(trace.Status(trace.StatusCode.ERROR, code))


def add(stages: Iterable[Stage]) -> None:
    """Adds what the present call has done, as children of its span."""
    if _Tracing.tracer is None:
        return
    now_ns, now_s = time.time_ns(), time.perf_counter()
    for name, began_s, ended_s in stages:
        span = _Tracing.tracer.start_span(name, start_time=now_ns - round((now_s - began_s) * 1e9))
        span.end(now_ns - round((now_s - ended_s) * 1e9))
