"""Memory of a process and of its descendants, from Linux' `smaps_rollup`.

Counts anonymous pages and shared memory, in proportion where several processes share them
(PSS), so that a database's buffers count once. Mapped files are not counted: the kernel can
evict them.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_COUNTED = ("Pss_Anon:", "Pss_Shmem:")
_KIB = 1024
_SHARED = "RssShmem:"
_ANONYMOUS = "RssAnon:"


def own_bytes(pids: Iterable[int]) -> int:
    """Returns the sum over all these processes."""
    return sum(map(_own_bytes, pids))


def resident_bytes(pids: Iterable[int]) -> int:
    """Returns about the same from counters that the kernel keeps, which costs these nothing.

    Shared memory counts once, as much as one of them has mapped. Processes that end meanwhile
    count nothing.
    """
    anonymous, shared = 0, 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
            fields = {name: value for name, *value in map(str.split, text.splitlines()) if value}
            anonymous += int(fields.get(_ANONYMOUS, ["0"])[0])
            shared = max(shared, int(fields.get(_SHARED, ["0"])[0]))
    return _KIB * (anonymous + shared)


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes that a process has started, directly or indirectly."""
    own = children(pid)
    return own + [each for child in own for each in descendants(child)]


def children(pid: int) -> list[int]:
    """Returns the ids of the processes that a process has started; none if it has ended."""
    try:
        lists = [
            (task / "children").read_text("ascii") for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return []
    return [int(child) for each in lists for child in each.split()]


def _own_bytes(pid: int) -> int:
    """None of a process that has ended meanwhile, such as a worker of PostgreSQL."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return _KIB * sum(int(line.split()[1]) for line in lines if line.startswith(_COUNTED))
