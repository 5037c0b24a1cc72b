"""What lies beside the listed segments: files to be removed, and reports of damage.

A file that no manifest lists is what a killed build or purge left, or a segment that has
been replaced. It is removed after a while, in which a reader that has just read the old
manifest can still open it. A reader that finds a listed segment damaged puts an empty file
beside it, for it cannot write to LMDB; the indexer reads those and answers by a new one.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import all_segments

GRACE_S = 60.0
_REPORT = ".damaged"


class Sweeper:
    """Removes files once they have been seen unlisted for `grace_s` seconds."""

    def __init__(
        self, store: Store, grace_s: float = GRACE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._grace_s = grace_s
        self._clock = clock
        self._first_seen: dict[Path, float] = {}

    def clear_unfinished(self) -> None:
        """Removes what a killed build left; only while nothing is being built."""
        for path in self._store.segments.glob(f"*{segment_files.UNFINISHED}"):
            segment_files.remove_path(path)

    def sweep(self) -> None:
        """Looks once, and removes what has been unlisted for long enough."""
        now = self._clock()
        unlisted = set(self._store.segments.iterdir()) - _listed_paths(self._store)
        self._first_seen = {path: self._first_seen.get(path, now) for path in unlisted}
        for path, seen in self._first_seen.items():
            if path.suffix != segment_files.UNFINISHED and now - seen >= self._grace_s:
                segment_files.remove_path(path)


def _listed_paths(store: Store) -> set[Path]:
    found = set()
    with store.read() as txn:
        for _, record in all_segments(store, txn):
            path = segment_files.path_of(store.segments, record.segment_id)
            found |= {path, path.with_suffix(_REPORT)}
    return found


def report_damage(folder: Path, segment_id: int) -> None:
    """Tells the indexer; what stands in the way of that is for the log of the caller."""
    segment_files.path_of(folder, segment_id).with_suffix(_REPORT).touch()


def reported_damage(folder: Path) -> set[int]:
    """Ids of the segments that readers have reported."""
    with os.scandir(folder) as entries:
        return {int(Path(each.name).stem) for each in entries if each.name.endswith(_REPORT)}


def forget_report(folder: Path, segment_id: int) -> None:
    """Takes a report back."""
    segment_files.path_of(folder, segment_id).with_suffix(_REPORT).unlink(missing_ok=True)
