"""How many cores there are for this process."""

import math
import os
from contextlib import suppress
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # Of the container, by Linux's control groups, version 2.


def usable_cores() -> int:
    """Returns how many cores it may use, one at least.

    A worker has a share of the machine's, a container may have a set of them or a quota of their
    time: `--cpus 2` leaves it all cores for two cores' time.
    """
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # No quota says `max`.
        quota, period = map(int, _QUOTA.read_text("ascii").split())
        cores = min(cores, max(1, math.ceil(quota / period)))
    return cores
