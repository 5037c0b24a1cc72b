"""Checks a store in a child process, which damaged pages may end.

LMDB follows the page numbers that it reads, so a flipped bit in one can end a process with
SIGSEGV or SIGBUS. `check_apart` starts this module as a program of its own, which writes each
problem as a line of JSON as it finds it:

    python -m hrag.engine.embedded.admin.check_process DIRECTORY [--alone]
"""

import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.store import child_process, location
from hrag.engine.embedded.store.environment import open_alone, open_for_reading
from hrag.engine.reports import CheckReport
from hrag.values.errors import DataLoss, HragError, StorageFull, StoreUnavailable

_MODULE = "hrag.engine.embedded.admin.check_process"
_ALONE = "--alone"
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)  # What damaged pages lead to.
_SHOWN_CHARS = 2000  # Of what a child that failed wrote last.


def check_apart(directory: Path, *, alone: bool = False) -> CheckReport:
    """Returns the report on the store in `directory`. Raises StorageFull or StoreUnavailable.

    With `alone`, no other process may change the store, and no file is created there.
    """
    location.require_data(directory)
    child = child_process.run_module(_MODULE, str(directory.absolute()), *[_ALONE] * alone)
    problems: list[str] = []
    for line in child.stdout.splitlines():
        written = _decoded(line)
        if "report" in written:
            return CheckReport(**written["report"], problems=tuple(problems))
        if "unavailable" in written:
            raise StoreUnavailable(written["unavailable"])
        if "full" in written:
            raise StorageFull(written["full"])
        if "problem" in written:
            problems.append(written["problem"])
    return CheckReport(0, 0, 0, 0, (*problems, _end_of(child)))


def _decoded(line: str) -> dict[str, Any]:
    """One line of the child; a process that is killed may have written a part of it."""
    try:
        written = json.loads(line)
    except ValueError:
        return {}
    return written if isinstance(written, dict) else {}


def _end_of(child: "subprocess.CompletedProcess[str]") -> str:
    if child.returncode >= 0:
        cause = f"failed: {child.stderr[-_SHOWN_CHARS:].strip()}"
    elif -child.returncode in _CRASHES:
        cause = f"ended the process by {signal.Signals(-child.returncode).name}"
    else:  # Somebody has ended it, or the kernel, which does so where memory is short.
        return (
            f"signal {-child.returncode} ended the check, and what follows was not checked; check "
            "again, with enough memory for the largest document"
        )
    return (
        f"reading {location.DATA} {cause}: LMDB's own pages are damaged, and what follows was not "
        "checked; restore a backup"
    )


def main(directory: Path, *, alone: bool) -> None:
    """Writes the problems, then the report, to standard output."""
    try:
        with closing(open_alone(directory) if alone else open_for_reading(directory)) as store:
            report = asdict(check(store, lambda problem: _write(problem=problem)))
    except DataLoss as error:
        _write(problem=error.message)
        report = asdict(CheckReport(0, 0, 0, 0, ()))
    except StorageFull as error:
        _write(full=error.message)
        return
    except HragError as error:
        _write(unavailable=error.message)
        return
    del report["problems"]
    _write(report=report)


def _write(**written: Any) -> None:
    sys.stdout.write(f"{json.dumps(written)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), alone=_ALONE in sys.argv[2:])
