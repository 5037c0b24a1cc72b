"""The memory of a process and of its descendants, read from Linux' `smaps_rollup`.

Counts anonymous pages and shared memory. Memory that several processes share counts in proportion
for each of them (PSS), so that a database's buffers count once. Mapped files are not counted,
because the kernel can evict them.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_COUNTED = ("Pss_Anon:", "Pss_Shmem:")
_KIB = 1024
_SHARED = "RssShmem:"
_ANONYMOUS = "RssAnon:"


def pss_bytes(pids: Iterable[int]) -> int:
    """Returns the sum of the memory of these processes in bytes."""
    return sum(map(_pss_bytes, pids))


def resident_bytes(pids: Iterable[int]) -> int:
    """Returns about the same result as `pss_bytes`, from counters that the kernel maintains.

    Reading them costs the processes nothing. Shared memory counts once: the largest amount that one
    of the processes has mapped. A process that ends meanwhile counts as 0.
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
    started = children(pid)
    return started + [descendant for child in started for descendant in descendants(child)]


def children(pid: int) -> list[int]:
    """Returns the ids of the processes that a process has started; none if it has ended."""
    try:
        lists = [
            (task / "children").read_text("ascii") for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def _pss_bytes(pid: int) -> int:
    """Returns the memory of a process; 0 if it has ended meanwhile, as workers of PostgreSQL do."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return _KIB * sum(int(line.split()[1]) for line in lines if line.startswith(_COUNTED))
