"""The number of CPU cores that this process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path

# The file in which Linux's control groups, version 2, show the CPU quota of the container.
_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota_file: Path = _QUOTA_FILE) -> int:
    """Returns the number of cores that this process may use; at least 1.

    Two things limit this number. The first is the process's CPU affinity, because a worker process
    may be bound to some of the cores. The second is the CPU quota of the container. For example,
    `docker run --cpus 2` lets a container run on all cores of the machine, but with no more
    processor time than two cores have. `quota_file` contains the quota, which is a processor time,
    and the period to which the quota applies, both in microseconds.
    """
    cores = len(os.sched_getaffinity(0))
    # Without a quota, the file contains the word `max` instead of a number. Then `int` raises
    # ValueError, and the quota is ignored.
    with suppress(OSError, ValueError):
        quota, period = map(int, quota_file.read_text("ascii").split())
        cores = min(cores, max(1, math.ceil(quota / period)))
    return cores
