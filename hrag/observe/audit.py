"""The audit log: who changed what, who was refused, who administered a store.

Each entry is one structured line of the event `audit`, written whatever HRAG_LOG_LEVEL says:
to standard error like other logs, or to HRAG_AUDIT_FILE, one JSON document per line. Lines
hold names, ids, numbers and codes; never a key, a token, a text or a query. Lines written in
the thread that handles a call carry the fields of that call.

A flood of refusals must not become a flood of lines: of each second, a few are written one by
one, the others as counts. Changes are never counted instead of written.
"""

import logging
import os
from collections.abc import Mapping
from enum import StrEnum
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import structlog

from hrag.config import AuditSettings, SettingsError
from hrag.host.private_files import opener
from hrag.observe import log
from hrag.observe.refusal_limiter import Refusal, RefusalLimiter

EVENT = "audit"

_always = structlog.make_filtering_bound_logger("info")


class Kind(StrEnum):
    """What an entry records; the field `kind`."""

    CHANGE = "change"
    REFUSAL = "refusal"
    REFUSALS = "refusals"
    """A count of refusals that were too many for lines of their own."""
    ADMINISTRATION = "administration"
    READ = "read"


class _Audit:
    """Where this process writes its entries, and which."""

    logger: Any = structlog.wrap_logger(None, wrapper_class=_always)
    reads = False
    handler: logging.Handler | None = None


def configure(service: str, settings: AuditSettings) -> None:
    """Sets the file and the extent of the log; after `hrag.observe.log.configure`.

    Raises SettingsError if the file cannot be written: what leaves no record must not run.
    """
    close()
    _Audit.reads = settings.audit_reads
    if settings.audit_file is None:
        _Audit.logger = structlog.wrap_logger(None, wrapper_class=_always)
        return
    try:
        handler = _AuditFile(settings.audit_file)
    except OSError as error:
        raise SettingsError(
            f"HRAG_AUDIT_FILE is {settings.audit_file}: {error.strerror or error}; it must be a "
            "file that this process may create and append to"
        ) from None
    lines = logging.Logger(EVENT)
    lines.addHandler(handler)
    processors: list[structlog.typing.Processor] = [
        *log.common_processors(service),
        structlog.processors.JSONRenderer(),
    ]
    _Audit.logger = structlog.wrap_logger(lines, processors=processors, wrapper_class=_always)
    _Audit.handler = handler


def close() -> None:
    """Writes the counts of the last second and closes the file; later entries go to the log."""
    _LIMITER.flush()
    handler, _Audit.handler = _Audit.handler, None
    _Audit.logger = structlog.wrap_logger(None, wrapper_class=_always)
    if handler is not None:
        handler.close()


def records_reads() -> bool:
    """True if HRAG_AUDIT_READS asks for entries of calls that change nothing."""
    return _Audit.reads


def record(kind: Kind, **fields: object) -> None:
    """Writes an entry; empty fields are left out."""
    present = {name: value for name, value in fields.items() if value not in ("", None)}
    _Audit.logger.info(EVENT, kind=kind.value, **present)


def refused(reason: str, method: str, **fields: object) -> None:
    """Writes or counts a refusal of the call that this thread handles."""
    call = log.CALL.get()
    credential = "" if call is None else call().get("credential", "")
    if _LIMITER.allows(Refusal(reason, method, credential)):
        record(Kind.REFUSAL, reason=reason, method=method, **fields)


def refused_unread(reason: str, method: str) -> None:
    """Counts the refusal of a call whose credential was not looked at.

    Writes nothing itself, so it may be called where nothing may wait.
    """
    _LIMITER.count(Refusal(reason, method, ""))


def _write_counts(counts: Mapping[Refusal, int]) -> None:
    for refusal, count in counts.items():
        record(Kind.REFUSALS, **refusal._asdict(), count=count)


_LIMITER = RefusalLimiter(_write_counts)


class _AuditFile(WatchedFileHandler):
    """Appends to a file for its owner alone, and opens it anew once it was moved or removed.

    A line that cannot be written goes to standard error instead.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.fdopen(opener(self.baseFilename, flags), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        problem = f"HRAG_AUDIT_FILE cannot be written: {self.baseFilename}"
        structlog.get_logger().error("audit_write_failed", problem=problem)
        log.STDERR.write(f"{record.getMessage()}\n")
