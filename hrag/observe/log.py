"""Structured logs on standard error, as text or as JSON lines.

Log lines hold names, numbers and durations; never a text, a vector or a key. Lines logged in
the thread that handles a call carry the fields of that call.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Literal, TextIO, cast

import structlog

CALL: ContextVar[Callable[[], Mapping[str, str]] | None] = ContextVar("call", default=None)
"""Returns the log fields of the call that this thread handles; called when a line is written."""


def configure(service: str, log_format: Literal["console", "json"], level: str) -> None:
    """Configures the logs of this process; every line has the service's name and the process id."""
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
    """Standard error, ignoring errors.

    It may be a file on a full disk; a call must not fail because it cannot be logged.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


STDERR = _Stderr()


def common_processors(service: str) -> list[structlog.typing.Processor]:
    """Returns what adds the fields of every line: service, process, call, level and time."""
    return [
        _service_fields(service),
        call_fields,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _service_fields(service: str) -> structlog.typing.Processor:
    """Adds service and pid. Not bound as context variables: new threads have an empty context."""
    pid = os.getpid()

    def add(
        _logger: Any, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {"service": service, "pid": pid, **event}

    return add


def call_fields(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Adds the fields of the current call that the line itself has not; a structlog processor.

    A line about one document of a stream names that document's tenant.
    """
    call = CALL.get()
    return event if call is None else {**event, **call(), **event}


def _json() -> list[structlog.typing.Processor]:
    # Without locals: they would put texts and keys into the log.
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
    """Sends the warnings of libraries through the same renderers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
