"""LRU caches of query vectors, one for each tenant: a repeated query needs no embedding.

A tenant hits only what it asked itself. Otherwise the time that a query takes would tell
whether another tenant had asked the same. All caches together are bounded by their number of
entries; whoever holds most gives way first, so no tenant can evict the fair share of another.
Queries are stored as digests, so it takes about `entries * (4 * dimension + 300)` bytes, however
long the queries are.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

from hrag.models.embedding import Embedder, Vectors
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import EmbedderRejected, HragError, outcome_of


class _TenantsBySize:
    """Tenants by their number of entries. Each operation takes constant time.

    The buckets of the LFU algorithm (Shah, Mitra and Matani, 2010): sizes change by one, so the
    largest is never searched for.
    """

    def __init__(self) -> None:
        self._largest = 0
        self._of_size: defaultdict[int, OrderedDict[str, None]] = defaultdict(OrderedDict)

    @property
    def largest(self) -> str:
        """The tenant with most entries; of several, the one that has had as many for longest."""
        return next(iter(self._of_size[self._largest]))

    def move(self, tenant_id: str, before: int, after: int) -> None:
        """Changes a tenant's number of entries by one; a tenant with none is not kept."""
        if before:
            del self._of_size[before][tenant_id]
        if after:
            self._of_size[after][tenant_id] = None
        if after > self._largest or not self._of_size[self._largest]:
            self._largest = after
        if not self._of_size[before]:
            del self._of_size[before]


class CachedQueries:
    """Embeds queries through a cache. Thread-safe.

    Threads that miss the same query at the same time embed it each: if they waited for one
    another, one slow request would delay the others. Failures are not cached.
    """

    def __init__(self, embedder: Embedder, entries: int) -> None:
        """`entries` is the capacity in vectors of all tenants; 0 turns caching off."""
        self._embedder = embedder
        self._entries = entries
        self._of_tenant: dict[str, OrderedDict[bytes, Vectors]] = {}  # Least recently used first.
        self._tenants = _TenantsBySize()
        self._count = 0
        self._lock = Lock()
        self._hits = 0
        self._misses = 0

    @property
    def hits(self) -> int:
        """Look-ups that found a vector, since the start."""
        return self._hits

    @property
    def misses(self) -> int:
        """Look-ups that found none, since the start."""
        return self._misses

    def embed_query(self, tenant_id: str, text: str, deadline: Deadline = NEVER) -> Vectors:
        """Returns the unit vector of `text`, a read-only `float32[dimension]`.

        Raises what `Embedder.embed` raises.
        """
        return self.embed_queries(tenant_id, [text], deadline)[0]

    def embed_queries(
        self, tenant_id: str, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> list[Vectors]:
        """Returns the vector of each text, in order; embeds the misses in one request.

        Raises what `Embedder.embed` raises.
        """
        keys = [blake2b(text.encode(), digest_size=32).digest() for text in texts]
        found: dict[bytes, Vectors] = {}
        missing: dict[bytes, str] = {}
        for key, text in dict(zip(keys, texts, strict=True)).items():
            vector = self._look_up(tenant_id, key)
            if vector is None:
                missing[key] = text
            else:
                found[key] = vector
        if missing:
            embedded = self._embedder.embed(list(missing.values()), deadline)
            for key, row in zip(missing, embedded, strict=True):
                vector = row.copy()  # A view would keep the whole batch in memory.
                vector.flags.writeable = False  # Later hits share it.
                self._insert(tenant_id, key, vector)
                found[key] = vector
        return [found[key] for key in keys]

    def embed_each(
        self, tenant_id: str, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> Sequence[Vectors | HragError]:
        """Returns a vector or an error for each text, in order.

        If the embedder rejects the batch, and not every text, each is embedded alone, so that
        one rejected text does not fail the others.
        """
        try:
            return self.embed_queries(tenant_id, texts, deadline)
        except EmbedderRejected as error:
            if error.every_text or len(texts) == 1:
                return [error] * len(texts)
            return [outcome_of(self.embed_query, tenant_id, text, deadline) for text in texts]
        except HragError as error:
            return [error] * len(texts)  # A failure that does not depend on the texts.

    def _look_up(self, tenant_id: str, key: bytes) -> Vectors | None:
        with self._lock:
            own = self._of_tenant.get(tenant_id)
            if own is None or key not in own:
                self._misses += 1
                return None
            self._hits += 1
            own.move_to_end(key)
            return own[key]

    def _insert(self, tenant_id: str, key: bytes, vector: Vectors) -> None:
        if self._entries == 0:
            return
        with self._lock:
            own = self._of_tenant.setdefault(tenant_id, OrderedDict())
            if key not in own:
                self._tenants.move(tenant_id, len(own), len(own) + 1)
                self._count += 1
            own[key] = vector
            if self._count > self._entries:
                self._evict(tenant_id)

    def _evict(self, tenant_id: str) -> None:
        """Removes an entry of the tenant if it has more than its share, else of the largest."""
        if len(self._of_tenant[tenant_id]) * len(self._of_tenant) <= self._entries:
            tenant_id = self._tenants.largest
        own = self._of_tenant[tenant_id]
        self._tenants.move(tenant_id, len(own), len(own) - 1)
        own.popitem(last=False)
        self._count -= 1
        if not own:
            del self._of_tenant[tenant_id]
