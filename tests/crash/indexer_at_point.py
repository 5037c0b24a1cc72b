"""The indexer, which kills itself by SIGKILL at a named crash point.

`CRASH_POINT` names the point; empty means none. If `CRASH_AT` is n, the process ends when the point
is reached for the n-th time. Only reaches while the file `CRASH_ARMED` exists count, so that a test
can verify the store first. Replaced segments are removed after a short grace period, because the
process runs only for a short time.
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
    """Ends this process when `point` is reached for the `at`-th time while `armed` exists."""
    # Several threads reach points; next() of a counter is atomic.
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
