"""Traces with OpenTelemetry: a span for each call, with a child span for each stage.

Tracing is off unless it is configured. It needs the extra `otel`. Spans contain names,
times and codes, never a text, a vector or a key. OTEL_* variables configure everything else, for
example sampling. All functions are thread-safe, except `configure` and `close`.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any

from hrag.config import CommonSettings, SettingsError
from hrag.values.installation import install_command

# At the end of the process, spans are exported for at most this time. If the collector is down,
# the SDK would retry for longer.
_CLOSE_S = 2.0
# A call that ends with one of these status codes marks its span as failed.
_ERRORS = frozenset({"DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN"})

Stage = tuple[str, float, float]
"""The name of a stage, and its start and end in seconds of `time.perf_counter`."""


class _Tracing:
    """The tracer of this process, which creates spans, and its provider, which exports them.

    Both are None while tracing is off.
    """

    provider: Any = None
    tracer: Any = None


def configure(service: str, settings: CommonSettings) -> None:
    """Turns tracing on if the settings say so.

    Raises SettingsError if the packages of the extra `otel` are missing.
    """
    if not settings.is_tracing:
        return
    try:
        # These packages are optional, and loading them takes half a second. So they are imported
        # only if tracing is on.
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError(
            "HRAG_TRACING or OTEL_EXPORTER_OTLP_ENDPOINT turns tracing on, which needs "
            f"the extra `otel`: {install_command('otel')} ({error})"
        ) from error
    # Events are turned off, because OpenTelemetry would record exceptions as events, and their
    # messages may quote user data.
    limits = SpanLimits(max_events=0)
    resource = Resource.create({"service.name": f"hrag-{service}"})
    provider = TracerProvider(resource=resource, span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _Tracing.provider = provider
    _Tracing.tracer = trace.get_tracer("hrag")


def close() -> None:
    """Exports the remaining spans; gives up after two seconds."""
    if _Tracing.provider is not None:
        ending = threading.Thread(target=_Tracing.provider.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_S)


def interceptors() -> list[Any]:
    """Returns the server interceptors for tracing; an empty list if tracing is off.

    They must wrap all interceptors that record something about a call.
    """
    if _Tracing.tracer is None:
        return []
    from opentelemetry.instrumentation.grpc import filters, server_interceptor  # noqa: PLC0415

    return [server_interceptor(filter_=filters.negate(filters.health_check()))]


def call_failed(code: str, number: int) -> None:
    """Records the status of the failed call that this thread handles, in the span of the call.

    This function is necessary because OpenTelemetry's instrumentation of gRPC does not notice the
    status. `code` is the name of the gRPC status code and `number` its value.
    """
    if _Tracing.tracer is None:
        return
    from opentelemetry import trace  # noqa: PLC0415

    span = trace.get_current_span()
    span.set_attribute("rpc.grpc.status_code", number)
    if code in _ERRORS:
        span.set_status(trace.Status(trace.StatusCode.ERROR, code))


def add(stages: Iterable[Stage]) -> None:
    """Adds finished stages as child spans of the current call's span, if tracing is on."""
    if _Tracing.tracer is None:
        return
    now_ns, now_s = time.time_ns(), time.perf_counter()
    for name, start_s, end_s in stages:
        span = _Tracing.tracer.start_span(name, start_time=now_ns - round((now_s - start_s) * 1e9))
        span.end(now_ns - round((now_s - end_s) * 1e9))
