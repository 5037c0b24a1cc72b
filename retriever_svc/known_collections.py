"""Collections that the service's embedder is known to have embedded.

A query's text is embedded before its snapshot is opened, because a read transaction must
not wait for a model. So a collection's first query looks at the collection before it
embeds: a query of a collection that does not exist, or that another embedder has made, must
not cost a request to an endpoint. All later queries are checked by their snapshot alone.
"""

from threading import Lock

from cachetools import LRUCache

from hrag.embedding.checks import check_embedder
from hrag.engine import Reader

_MAX_COLLECTIONS = 10_000  # Some 2 MB.


class KnownCollections:
    """The most recently queried ones, by tenant and name; safe to use from several threads."""

    def __init__(self, reader: Reader, embedder: str) -> None:
        self._reader = reader
        self._embedder = embedder
        self._known: LRUCache[tuple[str, str], bool] = LRUCache(_MAX_COLLECTIONS)
        self._lock = Lock()

    def check(self, tenant_id: str, collection: str) -> None:
        """Raises CollectionNotFound or EmbedderMismatch, unless the collection is known."""
        key = (tenant_id, collection)
        with self._lock:
            if self._known.get(key):
                return
        with self._reader.snapshot(tenant_id, collection) as snapshot:
            check_embedder(snapshot.settings, self._embedder)
        with self._lock:
            self._known[key] = True

    def forget(self, tenant_id: str, collection: str) -> None:
        """Has the collection's next query look again: its name is gone, or another's now."""
        with self._lock:
            self._known.pop((tenant_id, collection), None)
