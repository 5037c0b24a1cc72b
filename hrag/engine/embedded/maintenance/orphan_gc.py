"""Orphan garbage collection: removes files that no manifest lists.

An orphan is a folder or a file in the store's folder of segments that belongs to no segment in a
manifest. There are two kinds of orphans: the folders of segments that have been replaced, and the
files that remain if the process is killed while it builds or erases a segment.

An orphan is removed only after a grace period. During this period, a reader that has read the old
manifest can still open the files of a replaced segment. If the record of any segment is damaged, it
is not known which files belong to this segment, so no orphan is removed.
"""

import time
from collections.abc import Callable
from pathlib import Path

from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import all_segments

# An orphan, a file that belongs to no segment in a manifest, is removed this many seconds after it
# was first seen.
GRACE_S = 60.0


class OrphanCollector:
    """Removes orphans: files that belong to no segment in a manifest.

    An orphan is removed `grace_s` seconds after it was first seen. `clock` returns seconds.
    """

    def __init__(
        self, store: Store, grace_s: float = GRACE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._grace_s = grace_s
        self._clock = clock
        self._first_seen: dict[Path, float] = {}

    def remove_unfinished(self) -> None:
        """Removes the temporary files that remain from segment builds of killed processes.

        This method must not be called while a segment is built.
        """
        for path in self._store.segments.glob(f"*{segment_files.UNFINISHED}"):
            segment_files.remove_path(path)

    def collect(self) -> None:
        """Removes the orphans that were first seen at least `grace_s` seconds ago.

        An orphan is a file in the folder of segments that belongs to no segment in a manifest. For
        an orphan that is seen for the first time, stores the current time.
        """
        now = self._clock()
        present, listed = set(self._store.segments.iterdir()), _listed_paths(self._store)
        orphans = set() if listed is None else present - listed
        self._first_seen = {path: self._first_seen.get(path, now) for path in orphans}
        for path, first_seen in self._first_seen.items():
            if path.suffix != segment_files.UNFINISHED and now - first_seen >= self._grace_s:
                segment_files.remove_path(path)


def _listed_paths(store: Store) -> set[Path] | None:
    """Returns the paths of all segments in the manifests and of their `.damaged` markers.

    Returns None if the record of any segment is damaged.
    """
    with store.read() as txn:
        records = [record for _, record in all_segments(txn)]
        if len(records) != txn.segments.size:
            return None
    paths = [segment_files.path_of(store.segments, record.segment_id) for record in records]
    return {*paths, *(path.with_suffix(damage.MARKER) for path in paths)}
