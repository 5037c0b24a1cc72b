"""Structured logs on standard error, as text or as JSON lines.

Log lines contain names, numbers and durations; never a text, a vector or a key. Lines that are
logged in the thread that handles a call have the fields of that call.
"""

import logging
import os
import sys
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

import structlog

from hrag.values.current_call import CURRENT


def configure(service: str, log_format: Literal["console", "json"], level: str) -> None:
    """Configures the logs of this process.

    Every line has the name of the service and the process id.
    """
    shared = common_processors(service)
    renderers = _json() if log_format == "json" else _console()
    structlog.configure(
        processors=[*shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", STDERR)),
        cache_logger_on_first_use=True,
    )
    _route_standard_logs(shared, renderers)


class _Stderr:
    """A stream that writes to standard error and ignores the errors of writing.

    Standard error may be a file on a full disk, and a call must not fail because it cannot be
    logged.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


STDERR = _Stderr()


def common_processors(service: str) -> list[structlog.typing.Processor]:
    """Returns the processors that add the fields which every line has.

    The fields are service, process id, the fields of the call, level and time.
    """
    return [
        _service_fields(service),
        call_fields,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _service_fields(service: str) -> structlog.typing.Processor:
    """Returns a processor that adds the service and the process id.

    A processor adds the fields, because context variables are not enough: a new thread has an empty
    context, so the lines of the thread would lack the fields.
    """
    pid = os.getpid()

    def add(
        _logger: Any, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {"service": service, "pid": pid, **event}

    return add


def call_fields(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Adds the fields of the current call to a log line. It is a structlog processor.

    A field that the line already has keeps its value. For example, a line about one document of a
    stream names the tenant of the document.
    """
    fields = CURRENT.get().log_fields()
    return {**event, **fields, **event} if fields else event


def _json() -> list[structlog.typing.Processor]:
    # Tracebacks contain no local variables, because local variables may be texts and keys.
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(tracebacks),
        structlog.processors.JSONRenderer(),
    ]


def _console() -> list[structlog.typing.Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _route_standard_logs(
    shared: list[structlog.typing.Processor], renderers: list[structlog.typing.Processor]
) -> None:
    """Writes what libraries log with Python's `logging`, in the format of hrag's own log lines.

    Only warnings and errors are written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
