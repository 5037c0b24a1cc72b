"""The audit log: who changed what, who was refused, who administered a store.

Each entry is one structured line with the event `audit`. It is written at every HRAG_LOG_LEVEL,
either to standard error like other logs, or to HRAG_AUDIT_FILE as one JSON document per line.
Lines contain names, ids, numbers and codes; never a key, a token, a text or a query. Lines that
are written in the thread that handles a call have the fields of that call.

Every change has a line. But not every refusal has a line, because anybody can cause many refusals,
and their lines could fill the disk. In each second, only the first few refusals have a line each.
The other refusals of the second are counted by reason, method and credential, and each count has a
line.
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
from hrag.values.current_call import CURRENT

EVENT = "audit"

# The class of the logger that writes audit entries. All entries have the level info. This class
# writes them whatever HRAG_LOG_LEVEL is.
_EntryLogger = structlog.make_filtering_bound_logger("info")


class Kind(StrEnum):
    """The kinds of entries, which are the values of the field `kind`."""

    CHANGE = "change"
    REFUSAL = "refusal"
    REFUSALS = "refusals"
    """A count of refusals that have no separate lines."""
    ADMINISTRATION = "administration"
    READ = "read"


class _Audit:
    """The state of the audit log of this process.

    `logger` writes entries. `reads` is True if calls that change nothing are recorded too.
    `handler` is the handler of HRAG_AUDIT_FILE, if it is set.
    """

    logger: Any = structlog.wrap_logger(None, wrapper_class=_EntryLogger)
    reads = False
    handler: logging.Handler | None = None


def configure(service: str, settings: AuditSettings) -> None:
    """Sets the file of the audit log and which calls it records.

    Must be called after `hrag.observe.log.configure`. Raises SettingsError if the file cannot be
    written, because a process that cannot record its changes must not run.
    """
    close()
    _Audit.reads = settings.audit_reads
    if settings.audit_file is None:
        _Audit.logger = structlog.wrap_logger(None, wrapper_class=_EntryLogger)
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
    _Audit.logger = structlog.wrap_logger(lines, processors=processors, wrapper_class=_EntryLogger)
    _Audit.handler = handler


def close() -> None:
    """Writes the counts of refusals that are not written yet, and closes HRAG_AUDIT_FILE.

    Later entries are written to standard error, like other logs.
    """
    _LIMITER.flush()
    handler, _Audit.handler = _Audit.handler, None
    _Audit.logger = structlog.wrap_logger(None, wrapper_class=_EntryLogger)
    if handler is not None:
        handler.close()


def records_reads() -> bool:
    """Returns True if HRAG_AUDIT_READS requires entries for calls that change nothing."""
    return _Audit.reads


def record(kind: Kind, **fields: object) -> None:
    """Writes an audit entry of this kind, with the fields that are neither None nor empty texts."""
    present = {name: value for name, value in fields.items() if value not in ("", None)}
    _Audit.logger.info(EVENT, kind=kind.value, **present)


def refused(reason: str, method: str, **fields: object) -> None:
    """Records that the call which this thread handles was refused.

    Writes an audit entry. If there were many refusals in this second, only counts the refusal.
    """
    credential = CURRENT.get().log_fields().get("credential", "")
    if _LIMITER.allows(Refusal(reason, method, credential)):
        record(Kind.REFUSAL, reason=reason, method=method, **fields)


def refused_unread(reason: str, method: str) -> None:
    """Counts a call that was refused before its credential was verified.

    Another thread writes the count later. This function never waits for a file, so gRPC's event
    thread may call it.
    """
    _LIMITER.count(Refusal(reason, method, ""))


def _write_counts(counts: Mapping[Refusal, int]) -> None:
    for refusal, count in counts.items():
        record(Kind.REFUSALS, **refusal._asdict(), count=count)


_LIMITER = RefusalLimiter(_write_counts)


class _AuditFile(WatchedFileHandler):
    """Appends lines to a file that only its owner can access.

    If the file is moved or removed, a new file is created. A line that cannot be written to the
    file goes to standard error instead.
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
