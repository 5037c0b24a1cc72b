"""Collections that are known to exist and to use this service's embedder.

A query's text is embedded before its snapshot is opened, because a read transaction must
not wait for a model. A query of a collection that does not exist, or that uses another
embedder, must not cost a request to an endpoint. So the first query of a collection looks
at the collection before it embeds. Later queries are checked by their snapshot alone.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.embedding.checks import check_embedder
from hrag.engine import Reader

_MAX_COLLECTIONS = 10_000  # Some 2 MB.


class KnownCollections:
    """An LRU set of tenant and collection name. Thread-safe."""

    def __init__(self, reader: Reader, embedder: str) -> None:
        self._reader = reader
        self._embedder = embedder
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def check(self, tenant_id: str, collection: str) -> None:
        """Raises CollectionNotFound or EmbedderMismatch if the collection cannot be queried."""
        key = (tenant_id, collection)
        with self._lock:
            if self._known.get(key):
                return
        with self._reader.snapshot(tenant_id, collection) as snapshot:
            check_embedder(snapshot.settings, self._embedder)
        with self._lock:
            self._known[key] = True

    def forget(self, tenant_id: str, collection: str) -> None:
        """Makes the collection's next query look again, after a snapshot did not match."""
        with self._lock:
            self._known.pop((tenant_id, collection), None)
