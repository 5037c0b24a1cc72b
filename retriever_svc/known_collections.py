"""A cache of collections that are known to exist and to suit this service's embedder.

A collection suits the embedder if this embedder made its vectors, or if it has no vectors. A
query's text is embedded before its snapshot is opened, because a read transaction must not wait
for a model. But a query must not cost a request to an endpoint if its collection does not exist
or uses another embedder. So the first query of a collection checks the collection before it
embeds. Later queries are checked only against their snapshots.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.engine import Reader
from hrag.models.embedding.vector_checks import check_embedder
from hrag.values.collections import NO_EMBEDDER
from hrag.values.current_call import CURRENT

_MAX_COLLECTIONS = 10_000  # So many entries need about 2 MB.


class KnownCollections:
    """An LRU cache that stores for each collection whether it has vectors. Thread-safe."""

    def __init__(self, reader: Reader, embedder: str) -> None:
        self._reader = reader
        self._embedder = embedder
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def have_vectors(self, tenant_id: str, collection: str) -> bool:
        """Returns True if the collection has vectors.

        Raises CollectionNotFound. Raises EmbedderMismatch if another embedder made the vectors.
        Raises DeadlineExceeded or Cancelled when the call that this thread works for has ended.
        """
        key = (tenant_id, collection)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        with self._reader.snapshot(
            tenant_id, collection, deadline=CURRENT.get().deadline
        ) as snapshot:
            has_vectors = snapshot.settings.dimension > 0
            if has_vectors and self._embedder != NO_EMBEDDER:
                check_embedder(snapshot.settings, self._embedder)
        with self._lock:
            self._known[key] = has_vectors
        return has_vectors

    def forget(self, tenant_id: str, collection: str) -> None:
        """Removes a collection, so that its next query checks it again.

        Must be called when a snapshot of the collection contradicts the cache.
        """
        with self._lock:
            self._known.pop((tenant_id, collection), None)
