"""The memory in which vectors of segments are kept.

A search reads the vectors of a few hundred leaves. In memory, they cost less time than in a file,
but most of the memory. So vectors are kept in memory up to a budget, and the vectors of all other
segments stay in their files. Results do not depend on it.
"""

import threading
from collections.abc import Collection


class VectorMemory:
    """The segments whose vectors are in memory, with the sizes of these vectors.

    Together they take at most `budget_bytes`. Segments that are being replaced do not count. Safe
    to use from several threads.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._used_bytes = 0
        # The sizes of the vectors of each segment, by its owner and its id.
        self._sizes: dict[object, dict[int, int]] = {}

    def admit(self, owner: object, segment_id: int, size_bytes: int) -> bool:
        """Returns True if the vectors of a segment may be read into memory; counts them then.

        `owner` stands for one loaded collection. If a collection is evicted and loaded again, two
        owners may have the same segment for a moment. A segment of an owner is counted once.
        """
        with self._lock:
            if segment_id in self._sizes.get(owner, ()):
                return True
            if self._used_bytes + size_bytes > self._budget_bytes:
                return False
            self._sizes.setdefault(owner, {})[segment_id] = size_bytes
            self._used_bytes += size_bytes
            return True

    def retain(self, owner: object, segment_ids: Collection[int]) -> None:
        """Stops counting the segments of an owner whose ids are not in `segment_ids`."""
        with self._lock:
            sizes = self._sizes.pop(owner, {})
            retained = {number: sizes[number] for number in sizes.keys() & set(segment_ids)}
            if retained:
                self._sizes[owner] = retained
            self._used_bytes += sum(retained.values()) - sum(sizes.values())
