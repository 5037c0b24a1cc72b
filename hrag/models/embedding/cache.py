"""LRU caches of query vectors, one for each tenant, so that a repeated query needs no embedding.

A tenant has cache hits only for its own earlier queries. Otherwise the duration of a query would
reveal whether another tenant had sent the same query. The total count of entries of all caches is
limited. A tenant's fair share is this limit divided by the count of tenants with entries.

If a new entry exceeds the limit, one entry is evicted. If the tenant of the new entry has more
entries than its fair share, its own least recently used entry is evicted. Otherwise the least
recently used entry of the tenant with the most entries is evicted. So a tenant that has no more
than its fair share loses no entries to other tenants.

Queries are stored as digests, so the caches need about `entries * (4 * dimension + 300)` bytes,
independent of the length of the queries.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

import numpy as np

from hrag.models.embedding import Embedder, Vectors
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected, HragError, outcome_of


class _TenantsBySize:
    """Groups the tenants by their count of cache entries. Each operation takes constant time.

    This class uses the buckets of the LFU algorithm (Shah, Mitra and Matani, 2010). The count of a
    tenant's entries changes by one at a time, so the largest count is known without a search.
    """

    def __init__(self) -> None:
        self._largest = 0
        self._tenants_of_size: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)

    @property
    def largest(self) -> str:
        """The tenant with the most entries.

        If several tenants have the most entries, this is the tenant that first had so many entries.
        """
        return next(iter(self._tenants_of_size[self._largest]))

    def move(self, tenant_id: str, before: int, after: int) -> None:
        """Records that a tenant's count of entries has changed by one, from `before` to `after`.

        Removes the tenant if `after` is 0.
        """
        if before:
            del self._tenants_of_size[before][tenant_id]
        if after:
            self._tenants_of_size[after][tenant_id] = None
        if after > self._largest or not self._tenants_of_size[self._largest]:
            self._largest = after
        if not self._tenants_of_size[before]:
            del self._tenants_of_size[before]


class CachedQueries:
    """Embeds queries through a cache. Thread-safe.

    If several threads look up the same missing query at the same time, each thread embeds the
    query. If only one thread embedded it, a slow request would delay all these threads. Failures
    are not cached.
    """

    def __init__(self, embedder: Embedder, entries: int) -> None:
        """Creates empty caches, which use `embedder`.

        `entries` is the maximum count of vectors that are cached for all tenants together. If it is
        0, nothing is cached.
        """
        self._embedder = embedder
        self._entries = entries
        # For each tenant, its vectors by the digest of the query, least recently used first.
        self._caches: dict[str, OrderedDict[bytes, Vectors]] = {}
        self._tenants = _TenantsBySize()
        self._count = 0
        self._lock = Lock()
        self._hits = 0
        self._misses = 0

    @property
    def hits(self) -> int:
        """The number of cache hits since this object was created."""
        return self._hits

    @property
    def misses(self) -> int:
        """The number of cache misses since this object was created."""
        return self._misses

    def sizes(self) -> dict[str, int]:
        """Returns the count of cached vectors by tenant id, for tenants with cached vectors."""
        with self._lock:
            return {tenant_id: len(cached) for tenant_id, cached in self._caches.items()}

    def embed_query(self, tenant_id: str, text: str, deadline: Deadline = NEVER) -> Vectors:
        """Returns the unit vector of `text`, a read-only `float32[dimension]`.

        Raises the errors that `Embedder.embed` raises.
        """
        return self.embed_queries(tenant_id, [text], deadline)[0]

    def embed_queries(
        self, tenant_id: str, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> list[Vectors]:
        """Returns the unit vector of each text, in order; embeds all misses in one request.

        Raises the errors that `Embedder.embed` raises.
        """
        keys = [blake2b(text.encode(), digest_size=32).digest() for text in texts]
        vectors: dict[bytes, Vectors] = {}
        missing: dict[bytes, str] = {}
        for key, text in dict(zip(keys, texts, strict=True)).items():
            vector = self._look_up(tenant_id, key)
            if vector is None:
                missing[key] = text
            else:
                vectors[key] = vector
        if missing:
            embedded = self._embedder.embed(list(missing.values()), deadline)
            for key, row in zip(missing, embedded, strict=True):
                # `row` is a view of the array with the vectors of all texts. A cached view would
                # keep the whole array in memory, so a copy is cached. All cache hits return this
                # copy. It is an array over `bytes`, so no caller can change it.
                vector = np.frombuffer(row.tobytes(), row.dtype)
                self._insert(tenant_id, key, vector)
                vectors[key] = vector
        return [vectors[key] for key in keys]

    def embed_each(
        self, tenant_id: str, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> Sequence[Vectors | HragError]:
        """Returns a vector or an error for each text, in order.

        If the embedder rejects all texts together, and one of them may be the cause, each text is
        embedded separately. So one rejected text does not affect the other texts.
        """
        try:
            return self.embed_queries(tenant_id, texts, deadline)
        except EmbedderRejected as error:
            if error.every_text or len(texts) == 1:
                return [error] * len(texts)
            return [outcome_of(self.embed_query, tenant_id, text, deadline) for text in texts]
        except HragError as error:
            # No text is the cause of the error, so the texts are not embedded separately.
            return [error] * len(texts)

    def _look_up(self, tenant_id: str, key: bytes) -> Vectors | None:
        with self._lock:
            cached = self._caches.get(tenant_id)
            if cached is None or key not in cached:
                self._misses += 1
                return None
            self._hits += 1
            cached.move_to_end(key)
            return cached[key]

    def _insert(self, tenant_id: str, key: bytes, vector: Vectors) -> None:
        if self._entries == 0:
            return
        with self._lock:
            cached = self._caches.setdefault(tenant_id, OrderedDict())
            if key not in cached:
                self._tenants.move(tenant_id, len(cached), len(cached) + 1)
                self._count += 1
            cached[key] = vector
            if self._count > self._entries:
                self._evict(tenant_id)

    def _evict(self, tenant_id: str) -> None:
        """Removes an entry after the tenant has inserted an entry.

        If the tenant has more entries than its fair share, removes its least recently used entry.
        Otherwise removes the least recently used entry of the tenant with the most entries.
        """
        if len(self._caches[tenant_id]) * len(self._caches) <= self._entries:
            tenant_id = self._tenants.largest
        cached = self._caches[tenant_id]
        self._tenants.move(tenant_id, len(cached), len(cached) - 1)
        cached.popitem(last=False)
        self._count -= 1
        if not cached:
            del self._caches[tenant_id]
