"""How many cores there are for this process."""

import os


def usable_cores() -> int:
    """Returns how many cores it may run on: a worker has a share, a container may have a set."""
    return len(os.sched_getaffinity(0))
