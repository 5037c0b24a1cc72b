"""The number of CPU cores that this process may use."""

import math
import os
from contextlib import suppress
from pathlib import Path

# The file with the CPU quota of the container, in version 2 of Linux's control groups.
_QUOTA_FILE = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota_file: Path = _QUOTA_FILE) -> int:
    """Returns the number of cores that this process may use; at least 1.

    A worker process may have a share of the machine's cores. A container may have a set of cores or
    a quota of their time: with `--cpus 2`, it can use all cores, but only for the time of two
    cores. `quota_file` contains the quota and its period, both in microseconds.
    """
    cores = len(os.sched_getaffinity(0))
    # Without a quota, the file contains `max` instead of a number.
    with suppress(OSError, ValueError):
        quota, period = map(int, quota_file.read_text("ascii").split())
        cores = min(cores, max(1, math.ceil(quota / period)))
    return cores
