"""The scrubber: which segments have damaged files?

At the start it verifies every segment, one at a time, for a disk may have lost or changed
something while no process ran; after that, it verifies those that a reader reports, and
those whose files do not have their sizes, at which it looks in turn.
"""

from collections import deque

import structlog

from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import all_segments, is_listed

_SIZES = 64  # Segments whose sizes are looked at in one turn; that takes about a millisecond.

_log = structlog.get_logger()


class Scrubber:
    """`damaged` are ids of segments found damaged so far; ids are never used twice."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[int, SegmentRecord]] = deque()
        self._turn: deque[tuple[int, SegmentRecord]] = deque()
        self.damaged: frozenset[int] = frozenset()

    def begin(self) -> None:
        """Puts every listed segment into the queue."""
        self._waiting.extend(self._listed())

    def scrub(self) -> set[int]:
        """Verifies suspect segments and one of the queue; returns damaged collections."""
        reported = damage.reported_damage(self._store.segments) - self.damaged
        due = (
            [each for each in self._listed() if each[1].segment_id in reported] if reported else []
        )
        if self._waiting:
            due.append(self._waiting.popleft())
        due += self._without_their_sizes()
        return {
            collection
            for collection, record in due
            if self._is_listed(collection, record) and self._is_damaged(collection, record)
        }

    def _without_their_sizes(self) -> list[tuple[int, SegmentRecord]]:
        """Looks at the next segments; some of them may have been replaced meanwhile."""
        if not self._turn:
            self._turn.extend(self._listed())
        looked_at = [self._turn.popleft() for _ in range(min(_SIZES, len(self._turn)))]
        return [
            each
            for each in looked_at
            if each[1].segment_id not in self.damaged
            and not segment_files.has_its_sizes(self._store.segments, each[1])
        ]

    def _is_listed(self, collection: int, record: SegmentRecord) -> bool:
        with self._store.read() as txn:
            return is_listed(self._store, txn, collection, record)

    def _listed(self) -> list[tuple[int, SegmentRecord]]:
        with self._store.read() as txn:
            return list(all_segments(self._store, txn))

    def _is_damaged(self, collection: int, record: SegmentRecord) -> bool:
        try:
            segment_files.verify(self._store.segments, record)
        except segment_files.DamagedSegment as error:
            if not self._is_listed(collection, record):  # Its files were removed meanwhile.
                return False
            _log.error("segment_damaged", segment=record.segment_id, problem=str(error))
            self.damaged |= {record.segment_id}
            return True
        damage.forget_damage(self._store.segments, record.segment_id)
        return False
