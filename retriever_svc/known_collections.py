"""A cache of collections that are known to exist and to suit this service's embedders.

A collection suits the embedders if one of them made the collection's vectors, or if the collection
has no vectors. The text of a query is embedded before the query opens a snapshot, because a read
transaction must not wait for a model. If the collection does not exist or uses another embedder,
the text should not be sent to an embedding endpoint, which may cost money. So the first query of a
collection checks the collection before the text is embedded. Later queries use the cached result of
this check, and check the collection again once their snapshots are open.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.engine import Reader
from hrag.models.embedding.embedders import Embedders
from hrag.values.collections import NO_EMBEDDER
from hrag.values.current_call import CURRENT

_MAX_COLLECTIONS = 10_000  # The cache has at most this many entries, which need about 2 MB.


class KnownCollections:
    """An LRU cache of the name of each collection's embedder. Thread-safe."""

    def __init__(self, reader: Reader, embedders: Embedders) -> None:
        self._reader = reader
        self._embedders = embedders
        self._known: LRUCache[tuple[str, str], str] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def embedder_of(self, tenant_id: str, collection: str) -> str:
        """Returns the name of the collection's embedder; NO_EMBEDDER if it has no vectors.

        Raises CollectionNotFound if there is no such collection, and EmbedderMismatch if its
        vectors were made by an embedder that this service does not have. Raises
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
            if has_vectors and self._embedders.current.name != NO_EMBEDDER:
                self._embedders.of(snapshot.settings)
            name = snapshot.settings.embedder if has_vectors else NO_EMBEDDER
        with self._lock:
            self._known[key] = name
        return name

    def forget(self, tenant_id: str, collection: str) -> None:
        """Removes a collection from the cache, so that its next query checks the collection again.

        Must be called when a snapshot of the collection contradicts the cache.
        """
        with self._lock:
            self._known.pop((tenant_id, collection), None)
