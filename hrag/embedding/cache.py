"""Query vectors, remembered: a query asked again costs no embedding.

Bounded by entries, least recently used out first. Queries are kept as digests, so the
memory is `entries * (4 * dimension + some 300)` bytes however long the queries are.
"""

from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

from cachetools import LRUCache

from hrag.deadline import NEVER, Deadline
from hrag.embedding import Embedder, Vectors
from hrag.errors import EmbedderRejected, HragError, outcome_of


class CachedQueries:
    """Embeds queries through a cache. Safe to call from several threads.

    Threads that miss the same query at once each have it embedded: waiting for one another would
    let one slow request hold up the rest. A failure is never remembered.
    """

    def __init__(self, embedder: Embedder, entries: int) -> None:
        """`entries` is the most vectors to keep; 0 keeps none."""
        self._embedder = embedder
        self._entries = entries
        self._vectors: LRUCache[bytes, Vectors] = LRUCache(maxsize=entries)
        self._lock = Lock()
        self._hits = 0
        self._misses = 0

    @property
    def hits(self) -> int:
        """Queries answered from the cache so far."""
        return self._hits

    @property
    def misses(self) -> int:
        """Queries that were given to the embedder so far, failed ones too."""
        return self._misses

    def embed_query(self, text: str, deadline: Deadline = NEVER) -> Vectors:
        """Returns the unit vector of `text`, a read-only `float32[dimension]`.

        Raises as the embedder does.
        """
        return self.embed_queries([text], deadline)[0]

    def embed_queries(self, texts: Sequence[str], deadline: Deadline = NEVER) -> list[Vectors]:
        """The same for each of several; those not remembered are embedded together."""
        keys = [blake2b(text.encode(), digest_size=32).digest() for text in texts]
        found: dict[bytes, Vectors] = {}
        missing: dict[bytes, str] = {}
        for key, text in dict(zip(keys, texts, strict=True)).items():
            vector = self._remembered(key)
            if vector is None:
                missing[key] = text
            else:
                found[key] = vector
        if missing:
            embedded = self._embedder.embed(list(missing.values()), deadline)
            for key, row in zip(missing, embedded, strict=True):
                vector = row.copy()  # A view would keep all the others.
                vector.flags.writeable = False  # Everyone who asks again shares it.
                self._remember(key, vector)
                found[key] = vector
        return [found[key] for key in keys]

    def embed_each(
        self, texts: Sequence[str], deadline: Deadline = NEVER
    ) -> Sequence[Vectors | HragError]:
        """The same, where one text that the embedder refuses must not spoil the others."""
        try:
            return self.embed_queries(texts, deadline)
        except EmbedderRejected:
            return [outcome_of(self.embed_query, text, deadline) for text in texts]
        except HragError as error:
            return [error] * len(texts)  # Each alone would fare no better.

    def _remembered(self, key: bytes) -> Vectors | None:
        with self._lock:
            vector = self._vectors.get(key)
            if vector is None:
                self._misses += 1
            else:
                self._hits += 1
            return vector

    def _remember(self, key: bytes, vector: Vectors) -> None:
        if self._entries == 0:
            return
        with self._lock:
            self._vectors[key] = vector
