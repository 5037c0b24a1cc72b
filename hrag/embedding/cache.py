"""An LRU cache of query vectors: a repeated query needs no embedding.

Bounded by its number of entries. Queries are stored as digests, so it takes about
`entries * (4 * dimension + 300)` bytes, however long the queries are.
"""

from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

from cachetools import LRUCache

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Embedder, Vectors
from hrag.errors import EmbedderRejected, HragError, outcome_of


class CachedQueries:
    """Embeds queries through a cache. Thread-safe.

    Threads that miss the same query at the same time embed it each: if they waited for one
    another, one slow request would delay the others. Failures are not cached.
    """

    def __init__(self, embedder: Embedder, entries: int) -> None:
        """`entries` is the capacity in vectors; 0 turns caching off."""
        self._embedder = embedder
        self._entries = entries
        self._vectors: LRUCache[bytes, Vectors] = LRUCache(maxsize=entries)
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

    def embed_query(self, text: str, deadline: Deadline = NEVER) -> Vectors:
        """Returns the unit vector of `text`, a read-only `float32[dimension]`.

        Raises what `Embedder.embed` raises.
        """
        return self.embed_queries([text], deadline)[0]

    def embed_queries(self, texts: Sequence[str], deadline: Deadline = NEVER) -> list[Vectors]:
        """Returns the vector of each text, in order; embeds the misses in one request.

        Raises what `Embedder.embed` raises.
        """
        keys = [blake2b(text.encode(), digest_size=32).digest() for text in texts]
        found: dict[bytes, Vectors] = {}
        missing: dict[bytes, str] = {}
        for key, text in dict(zip(keys, texts, strict=True)).items():
            vector = self._look_up(key)
            if vector is None:
                missing[key] = text
            else:
                found[key] = vector
        if missing:
            embedded = self._embedder.embed(list(missing.values()), deadline)
            for key, row in zip(missing, embedded, strict=True):
                vector = row.copy()  # A view would keep the whole batch in memory.
                vector.flags.writeable = False  # Later hits share it.
                self._insert(key, vector)
                found[key] = vector
        return [found[key] for key in keys]

    def embed_each(
        self, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> Sequence[Vectors | HragError]:
        """Returns a vector or an error for each text, in order.

        If the embedder rejects the batch, each text is embedded alone, so that one rejected
        text does not fail the others.
        """
        try:
            return self.embed_queries(texts, deadline)
        except EmbedderRejected as error:
            if len(texts) == 1:
                return [error]
            return [outcome_of(self.embed_query, text, deadline) for text in texts]
        except HragError as error:
            return [error] * len(texts)  # A failure that does not depend on the texts.

    def _look_up(self, key: bytes) -> Vectors | None:
        with self._lock:
            vector = self._vectors.get(key)
            if vector is None:
                self._misses += 1
            else:
                self._hits += 1
            return vector

    def _insert(self, key: bytes, vector: Vectors) -> None:
        if self._entries == 0:
            return
        with self._lock:
            self._vectors[key] = vector
