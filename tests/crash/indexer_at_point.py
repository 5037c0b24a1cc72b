"""Runs the indexer, which kills itself with SIGKILL at a crash point.

Environment variables determine the kill. `CRASH_POINT` is the name of the point; if it is empty,
there is no kill. If `CRASH_AT` is n, the process kills itself when it reaches the point for the
n-th time. The process begins to count when the file `CRASH_ARMED` exists, so that a test can verify
the store before. The process runs only for a short time, so the grace period after which replaced
segments are removed is also short.
"""

import os
import runpy
import signal
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import patch

from hrag.engine.embedded import engine
from hrag.engine.embedded.maintenance.worker import MaintenanceWorker
from hrag.engine.embedded.store import failpoints

_GRACE_S = 1.5


def install(point: str, at: int, armed: Path) -> None:
    """Makes this process kill itself when it reaches `point` for the `at`-th time.

    Only the times while the file `armed` exists are counted.
    """
    # Several threads may reach the point at once; next() of a counter is atomic.
    reaches = count(1)

    def reached(name: str) -> None:
        if name == point and armed.exists() and next(reaches) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoints.install(reached)


def main() -> None:
    environ = os.environ
    install(environ["CRASH_POINT"], int(environ["CRASH_AT"]), Path(environ["CRASH_ARMED"]))
    with patch.object(engine, "MaintenanceWorker", partial(MaintenanceWorker, grace_s=_GRACE_S)):
        runpy.run_module("indexer_svc", run_name="__main__")


if __name__ == "__main__":
    main()
