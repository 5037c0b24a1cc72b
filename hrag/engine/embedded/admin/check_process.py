"""Checks a store in a child process, because reading damaged pages may kill the reading process.

LMDB follows the page numbers that it reads. So a flipped bit in a page number can kill a process
by SIGSEGV or SIGBUS. `check_apart` runs this module as a separate program:

    python -m hrag.engine.embedded.admin.check_process DIRECTORY [--alone]

As soon as the program finds a problem, it writes the problem to standard output as a line of JSON.
At the end it writes the report as another line.
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
# The signals that can kill a process when it reads damaged pages.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
# If the child process fails, the report quotes the end of its standard error, at most this many
# characters.
_SHOWN_CHARS = 2000


def check_apart(directory: Path, *, alone: bool = False) -> CheckReport:
    """Checks the store in `directory` in a child process. Returns the report.

    With `alone`, the check creates no file in the store's folder, and the caller must ensure that
    no other process changes the store during the check. If the child process ends early, the report
    has the problems found so far, and a last problem that says why the child ended. Raises
    StoreMissing, StorageFull or StoreUnavailable.
    """
    location.require_data(directory)
    child = child_process.run_module(_MODULE, str(directory.absolute()), *[_ALONE] * alone)
    problems: list[str] = []
    for line in child.stdout.splitlines():
        message = _decode(line)
        if "report" in message:
            return CheckReport(**message["report"], problems=tuple(problems))
        if "unavailable" in message:
            raise StoreUnavailable(message["unavailable"])
        if "full" in message:
            raise StorageFull(message["full"])
        if "problem" in message:
            problems.append(message["problem"])
    return CheckReport(0, 0, 0, 0, (*problems, _describe_end(child)))


def _decode(line: str) -> dict[str, Any]:
    """Decodes a line of JSON that the child process has written.

    Returns an empty dictionary if the line is incomplete because the child was killed.
    """
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _describe_end(child: "subprocess.CompletedProcess[str]") -> str:
    if child.returncode >= 0:
        cause = f"failed: {child.stderr[-_SHOWN_CHARS:].strip()}"
    elif -child.returncode in _CRASHES:
        cause = f"ended the process by {signal.Signals(-child.returncode).name}"
    else:  # A person killed the child, or the kernel killed it because memory was short.
        return (
            f"signal {-child.returncode} ended the check early, and what follows was not checked; "
            "check again, with enough memory for the largest document"
        )
    return (
        f"reading {location.DATA} {cause}: LMDB's own pages are damaged, and what follows was not "
        "checked; restore a backup"
    )


def main(directory: Path, *, alone: bool) -> None:
    """Checks the store. Writes the problems, then the report, to standard output as JSON lines.

    If `alone` is True, creates no file in the store's folder.
    """
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


def _write(**message: Any) -> None:
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), alone=_ALONE in sys.argv[2:])
