"""Memory of a process's own, and of the processes it has started.

Anonymous and shared pages count, in parts where several processes share them, so that a
database's buffers count once. Mapped files do not: they are the kernel's to take back.
"""

from collections.abc import Iterable
from pathlib import Path

_COUNTED = ("Pss_Anon:", "Pss_Shmem:")
_KIB = 1024


def own_bytes(pids: Iterable[int]) -> int:
    """Of all these processes together."""
    return sum(map(_own_bytes, pids))


def descendants(pid: int) -> list[int]:
    """What a process has started, and what those have, and so on."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text("ascii").split()
    ]
    return children + [each for child in children for each in descendants(child)]


def _own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return _KIB * sum(int(line.split()[1]) for line in lines if line.startswith(_COUNTED))
