"""Seals tails and reclaims deleted collections, in one background thread.

Writers tell it which collections changed; it looks at those alone. Losing it loses
nothing: tails stay searchable and the next start looks at every collection.
"""

import threading

import structlog

from hrag.engine.embedded import sealing
from hrag.engine.embedded.purging import purge_some
from hrag.engine.embedded.store import Store
from hrag.errors import StorageFull

_log = structlog.get_logger()

_RETRY_S = 10.0  # After a failure, such as a full disk.
_THREADS = 1  # Of two cores, one stays with those who wait for an answer.


class Sealer:
    """Runs until closed. A tail is sealed once it has `threshold` leaves."""

    def __init__(self, store: Store, threshold: int) -> None:
        self._store = store
        self._threshold = threshold
        self._lock = threading.Lock()
        self._changed: set[int] = set()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="sealer")

    def start(self) -> None:
        """Begins with what an earlier process left unfinished."""
        sealing.remove_unlisted(self._store)
        with self._lock:
            self._changed |= sealing.all_collections(self._store)
        self._wake.set()
        self._thread.start()

    def changed(self, collection: int) -> None:
        """Tells that a collection has had a commit."""
        with self._lock:
            self._changed.add(collection)
        self._wake.set()

    def close(self) -> None:
        """Waits for the segment being built, if one is, and stops."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                changed, self._changed = self._changed, set()
            self._work(changed)

    def _work(self, changed: set[int]) -> None:
        try:
            while not self._closing and purge_some(self._store):
                pass
            for collection in changed:
                if self._closing:
                    return
                if sealing.tail_leaves(self._store, collection) >= self._threshold:
                    sealing.seal(self._store, collection, _THREADS)
        except (StorageFull, OSError) as error:
            _log.error("cannot_seal", problem=str(error), retry_s=_RETRY_S)
            self._retry_later(changed)
        except Exception:
            _log.exception("cannot_seal", retry_s=_RETRY_S)
            self._retry_later(changed)

    def _retry_later(self, changed: set[int]) -> None:
        with self._lock:
            self._changed |= changed
        timer = threading.Timer(_RETRY_S, self._wake.set)
        timer.daemon = True
        timer.start()
