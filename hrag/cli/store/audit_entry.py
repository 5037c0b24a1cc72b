"""Writes the audit entry of a command that administers a store or its keys."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.cli.terminal.console import Failure
from hrag.config import AuditSettings, SettingsError, load
from hrag.observe import audit, log


@contextmanager
def audited(command: str, **fields: object) -> Iterator[dict[str, object]]:
    """Runs the block and records it in the audit log, with its outcome, `OK` or `FAILED`.

    The block may add fields to the yielded dictionary. Raises Failure before the block runs if
    the audit log cannot be written.
    """
    try:
        settings = load(AuditSettings)
        log.configure("hrag", settings.log_format, "warning")
        audit.configure("hrag", settings)
    except SettingsError as error:
        raise Failure(str(error)) from None
    outcome = "FAILED"
    try:
        yield fields
        outcome = "OK"
    finally:
        common = {"method": command, "outcome": outcome, "uid": os.getuid()}
        audit.record(audit.Kind.ADMINISTRATION, **common, **fields)
        audit.close()
