"""Memory of a process and of its descendants, from Linux' `smaps_rollup`.

Counts anonymous pages and shared memory, in proportion where several processes share them
(PSS), so that a database's buffers count once. Mapped files are not counted: the kernel can
evict them.
"""

from collections.abc import Iterable
from pathlib import Path

_COUNTED = ("Pss_Anon:", "Pss_Shmem:")
_KIB = 1024


def own_bytes(pids: Iterable[int]) -> int:
    """Returns the sum over all these processes."""
    return sum(map(_own_bytes, pids))


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes that a process has started, directly or indirectly."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text("ascii").split()
    ]
    return children + [each for child in children for each in descendants(child)]


def _own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return _KIB * sum(int(line.split()[1]) for line in lines if line.startswith(_COUNTED))
