"""Collections that are known to exist and to use this service's embedder, or none.

A query's text is embedded before its snapshot is opened, because a read transaction must
not wait for a model. A query of a collection that does not exist, or that uses another
embedder, must not cost a request to an endpoint. So the first query of a collection looks
at the collection before it embeds. Later queries are checked by their snapshot alone.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.engine import Reader
from hrag.models.embedding.vector_checks import check_embedder
from hrag.values.collections import NO_EMBEDDER
from hrag.values.deadline import OF_CALL

_MAX_COLLECTIONS = 10_000  # Some 2 MB.


class KnownCollections:
    """An LRU map from tenant and collection name to whether it has vectors. Thread-safe."""

    def __init__(self, reader: Reader, embedder: str) -> None:
        self._reader = reader
        self._embedder = embedder
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def have_vectors(self, tenant_id: str, collection: str) -> bool:
        """Returns whether the collection has vectors.

        Raises CollectionNotFound, EmbedderMismatch if they are another embedder's, and
        DeadlineExceeded or Cancelled at the end of the call that this thread works for.
        """
        key = (tenant_id, collection)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        with self._reader.snapshot(tenant_id, collection, deadline=OF_CALL.get()) as snapshot:
            has_vectors = snapshot.settings.dimension > 0
            if has_vectors and self._embedder != NO_EMBEDDER:
                check_embedder(snapshot.settings, self._embedder)
        with self._lock:
            self._known[key] = has_vectors
        return has_vectors

    def forget(self, tenant_id: str, collection: str) -> None:
        """Makes the collection's next query look again, after a snapshot did not match."""
        with self._lock:
            self._known.pop((tenant_id, collection), None)
