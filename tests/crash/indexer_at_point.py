"""The indexer, which ends itself by SIGKILL at a named crash point.

`CRASH_POINT` names the point, empty for none; `CRASH_AT` says at which reach of it. The
reaches count while the file `CRASH_ARMED` exists, so that a test may look around first.
Segments that have been replaced are removed after a grace period that fits so short a life.
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
    """Ends this process at the `at`-th reach of `point` while `armed` exists."""
    reaches = count(1)  # Its next() is atomic: points are reached in several threads.

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
