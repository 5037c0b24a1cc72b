"""What lies beside the listed segments: files to be removed.

A file that no manifest lists is what a killed build or purge left, or a segment that has
been replaced. It is removed after a while, in which a reader that has just read the old
manifest can still open it.
"""

import time
from collections.abc import Callable
from pathlib import Path

from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import all_segments

GRACE_S = 60.0


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
            found |= {path, path.with_suffix(damage.MARKER)}
    return found
