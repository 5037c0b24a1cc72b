"""The scrubber: finds segments with damaged files.

When a process has started, its scrubber verifies every segment once, because the disk may have lost
or changed data while no process was running. For this, the segments wait in a queue. Each call of
`scrub` does the following:

* It verifies one segment from the queue.
* It verifies the segments that readers have reported as damaged.
* It checks the file sizes of a few segments, and verifies the segments that have a missing file or
  a file with a wrong size.
"""

from collections import deque

import structlog

from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import all_segments, is_listed

# Each call of `scrub` checks the file sizes of this many segments, which takes about a millisecond.
_SIZES = 64

_log = structlog.get_logger()


class Scrubber:
    """Verifies the files of segments, and collects the ids of damaged segments.

    `damaged` contains the ids of all segments that were found damaged so far. Ids are never reused,
    so an id may stay in `damaged` after its segment was replaced.
    """

    def __init__(self, store: Store, sizes_per_call: int = _SIZES) -> None:
        """Creates a scrubber.

        Each call of `scrub` checks the file sizes of at most `sizes_per_call` segments.
        """
        self._store = store
        self._sizes_per_call = sizes_per_call
        self._unverified: deque[tuple[int, SegmentRecord]] = deque()
        self._sizes_due: deque[tuple[int, SegmentRecord]] = deque()
        self.damaged: frozenset[int] = frozenset()

    def begin(self) -> None:
        """Queues all segments of all collections for verification."""
        self._unverified.extend(self._listed())

    def scrub(self) -> set[int]:
        """Verifies some segments; returns the ids of the collections with damaged segments.

        Verifies the segments that readers have reported as damaged, the segments whose files have
        wrong sizes, and one segment of the queue that `begin` has filled.
        """
        reported = damage.reported_damage(self._store.segments) - self.damaged
        due = (
            [entry for entry in self._listed() if entry[1].segment_id in reported]
            if reported
            else []
        )
        if self._unverified:
            due.append(self._unverified.popleft())
        due += self._with_wrong_sizes()
        return {
            collection
            for collection, record in due
            if self._is_listed(collection, record) and self._is_damaged(collection, record)
        }

    def _with_wrong_sizes(self) -> list[tuple[int, SegmentRecord]]:
        """Checks the file sizes of the next `sizes_per_call` segments.

        Returns the segments that have a missing file or a file with a wrong size. Such a segment is
        not always damaged: its files are also missing if it was replaced and removed meanwhile.
        """
        if not self._sizes_due:
            self._sizes_due.extend(self._listed())
        count = min(self._sizes_per_call, len(self._sizes_due))
        entries = [self._sizes_due.popleft() for _ in range(count)]
        return [
            entry
            for entry in entries
            if entry[1].segment_id not in self.damaged
            and not segment_files.has_its_sizes(self._store.segments, entry[1])
        ]

    def _is_listed(self, collection: int, record: SegmentRecord) -> bool:
        with self._store.read() as txn:
            return is_listed(txn, collection, record)

    def _listed(self) -> list[tuple[int, SegmentRecord]]:
        with self._store.read() as txn:
            return list(all_segments(txn))

    def _is_damaged(self, collection: int, record: SegmentRecord) -> bool:
        """Verifies the files of a segment. Returns True if the segment is damaged.

        Adds the id of a damaged segment to `damaged`. If the segment is intact, deletes its
        `.damaged` marker. A reader may have created this marker to report the segment as damaged.
        """
        try:
            segment_files.verify(self._store.segments, record)
        except segment_files.DamagedSegment as error:
            # A segment that no manifest lists any more is not damaged: its files were removed.
            if not self._is_listed(collection, record):
                return False
            _log.error("segment_damaged", segment=record.segment_id, problem=str(error))
            self.damaged |= {record.segment_id}
            return True
        damage.forget_damage(self._store.segments, record.segment_id)
        return False
