"""A cache of collections that are known to exist and to suit this service's embedder.

A collection suits the embedder if this embedder made the collection's vectors, or if the collection
has no vectors. The text of a query is embedded before the query opens a snapshot, because a read
transaction must not wait for a model. If the collection does not exist or uses another embedder,
the text should not be sent to an embedding endpoint, which may cost money. So the first query of a
collection checks the collection before the text is embedded. Later queries use the cached result of
this check, and check the collection again once their snapshots are open.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.engine import Reader
from hrag.models.embedding.vector_checks import check_embedder
from hrag.values.collections import NO_EMBEDDER
from hrag.values.current_call import CURRENT

_MAX_COLLECTIONS = 10_000  # The cache has at most this many entries, which need about 2 MB.


class KnownCollections:
    """An LRU cache that stores for each collection whether it has vectors. Thread-safe."""

    def __init__(self, reader: Reader, embedder: str) -> None:
        self._reader = reader
        self._embedder = embedder
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def have_vectors(self, tenant_id: str, collection: str) -> bool:
        """Returns True if the collection has vectors.

        Raises CollectionNotFound if there is no such collection, and EmbedderMismatch if its
        vectors were made by another embedder than the embedder of this service. Raises
        DeadlineExceeded or Cancelled if the gRPC call of this thread has passed its deadline or was
        cancelled.
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
        """Removes a collection from the cache, so that its next query checks the collection again.

        Must be called when a snapshot of the collection contradicts the cache.
        """
        with self._lock:
            self._known.pop((tenant_id, collection), None)
