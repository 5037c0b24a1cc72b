"""The cache stores the vectors of queries, separately for each tenant."""

import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import Cancelled, EmbedderUnavailable
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.values.deadline import NEVER, Deadline

TENANT = "tenant"


class CountingEmbedder(HashEmbedder):
    """Records its calls. Raises EmbedderUnavailable while `is_broken` is set."""

    def __init__(self) -> None:
        super().__init__(16)
        self.requests: list[list[str]] = []
        self.is_broken = False

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.requests.append(list(texts))
        if self.is_broken:
            raise EmbedderUnavailable("down")
        return super().embed(texts, deadline)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


def test_a_repeated_query_is_embedded_once(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 10)
    first, second = cached.embed_query(TENANT, "q"), cached.embed_query(TENANT, "q")
    assert embedder.requests == [["q"]]
    assert np.array_equal(first, second)
    assert (cached.hits, cached.misses) == (1, 1)


def test_the_cache_returns_the_vector_of_the_embedder(embedder: CountingEmbedder) -> None:
    vector = CachedQueries(embedder, 10).embed_query(TENANT, "查询")
    assert vector.dtype == np.float32
    assert vector.shape == (16,)
    assert vector.flags.c_contiguous
    assert np.array_equal(vector, HashEmbedder(16).embed(["查询"])[0])


def test_all_misses_of_a_batch_are_embedded_in_one_request(
    embedder: CountingEmbedder,
) -> None:
    cached = CachedQueries(embedder, 10)
    cached.embed_query(TENANT, "b")
    vectors = cached.embed_queries(TENANT, ["a", "b", "c", "a"])
    assert embedder.requests == [["b"], ["a", "c"]]
    assert np.array_equal(vectors, HashEmbedder(16).embed(["a", "b", "c", "a"]))
    assert not any(vector.flags.writeable for vector in vectors)
    cached.embed_queries(TENANT, ["a", "c"])
    assert len(embedder.requests) == 2
    assert cached.embed_queries(TENANT, []) == []


@pytest.mark.parametrize("entries", [0, 10])
def test_vectors_are_read_only(embedder: CountingEmbedder, entries: int) -> None:
    """A caller cannot change the vector that the next caller receives."""
    cached = CachedQueries(embedder, entries)
    for _ in ("miss", "hit"):
        with pytest.raises(ValueError, match="read-only"):
            cached.embed_query(TENANT, "q")[0] = 1.0


def test_different_queries_have_different_entries(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 10)
    texts = ["a", "A", "a ", "á"]
    for text in texts * 2:
        assert np.array_equal(cached.embed_query(TENANT, text), HashEmbedder(16).embed([text])[0])
    assert (cached.hits, cached.misses) == (4, 4)


def test_the_least_recently_used_query_is_evicted_first(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 2)
    for text in ["a", "b", "a", "c", "a", "b"]:
        cached.embed_query(TENANT, text)
    assert embedder.requests == [["a"], ["b"], ["c"], ["b"]]


def test_a_cache_with_capacity_zero_caches_nothing(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 0)
    cached.embed_query(TENANT, "q")
    cached.embed_query(TENANT, "q")
    assert embedder.requests == [["q"], ["q"]]
    assert (cached.hits, cached.misses) == (0, 2)


def test_a_failure_is_not_cached(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 10)
    embedder.is_broken = True
    with pytest.raises(EmbedderUnavailable):
        cached.embed_query(TENANT, "q")
    embedder.is_broken = False
    assert np.array_equal(cached.embed_query(TENANT, "q"), HashEmbedder(16).embed(["q"])[0])
    assert (cached.hits, cached.misses) == (0, 2)


def test_each_thread_gets_the_vector_of_its_query(embedder: CountingEmbedder) -> None:
    """The cache is so small that it evicts constantly. Every lookup is counted once."""
    cached = CachedQueries(embedder, 8)
    texts = [str(number % 12) for number in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        vectors = np.stack(list(pool.map(partial(cached.embed_query, TENANT), texts)))
    assert np.array_equal(vectors, HashEmbedder(16).embed(texts))
    assert cached.hits + cached.misses == len(texts)
    assert cached.misses == len(embedder.requests)


def test_a_slow_miss_does_not_delay_others() -> None:
    """Both misses are in the embedder at the same time; otherwise the barrier breaks."""
    meeting = Barrier(2, timeout=60)

    class Meeting(HashEmbedder):
        def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
            meeting.wait()
            return super().embed(texts, deadline)

    cached = CachedQueries(Meeting(8), 10)
    with ThreadPoolExecutor(2) as pool:
        vectors = list(pool.map(partial(cached.embed_query, TENANT), ["a", "b"]))
    assert np.array_equal(vectors, HashEmbedder(8).embed(["a", "b"]))


def test_a_cancelled_batch_is_not_embedded_one_by_one(embedder: CountingEmbedder) -> None:
    cached = CachedQueries(embedder, 10)
    outcomes = cached.embed_each(TENANT, ["a", "b"], Deadline(is_waiting=lambda: False))
    assert [type(outcome) for outcome in outcomes] == [Cancelled] * 2
    assert embedder.requests == [["a", "b"]]


def test_a_query_of_another_tenant_is_embedded_again(embedder: CountingEmbedder) -> None:
    """A faster reply would reveal that another tenant has sent the same query."""
    cached = CachedQueries(embedder, 10)
    for tenant in ("a", "b", "a", "b"):
        cached.embed_query(tenant, "q")
    assert embedder.requests == [["q"], ["q"]]


def test_a_tenant_cannot_evict_entries_within_the_share_of_another_tenant(
    embedder: CountingEmbedder,
) -> None:
    cached = CachedQueries(embedder, 10)
    for number in range(5):
        cached.embed_query("small", f"own {number}")
    for number in range(100):
        cached.embed_query("large", f"flood {number}")
    embedder.requests.clear()
    for number in range(5):
        cached.embed_query("small", f"own {number}")
    assert not embedder.requests
    assert sum(cached.sizes().values()) == 10


def test_a_tenant_without_entries_is_removed_from_the_cache(embedder: CountingEmbedder) -> None:
    """A tenant without entries would use memory and reduce the share of each other tenant."""
    cached = CachedQueries(embedder, 2)
    for number in range(100):
        cached.embed_query(f"tenant {number}", "q")
    assert len(cached.sizes()) == 2


def test_a_vector_does_not_keep_its_batch_in_memory(embedder: CountingEmbedder) -> None:
    vectors = CachedQueries(embedder, 10).embed_queries(TENANT, ["a", "b"])
    assert [vector.base for vector in vectors] == [vector.tobytes() for vector in vectors]


@given(entries=st.integers(1, 12), inserting=st.lists(st.sampled_from("abcdef"), max_size=60))
def test_the_tenant_with_the_most_entries_loses_one_first(
    entries: int, inserting: list[str]
) -> None:
    """If the inserting tenant has more than its share, the inserting tenant loses an entry."""
    cached = CachedQueries(HashEmbedder(4), entries)
    sizes: Counter[str] = Counter()
    for number, tenant in enumerate(inserting):
        cached.embed_query(tenant, str(number))
        sizes[tenant] += 1
        sizes_after = Counter(cached.sizes())
        evicted = sizes - sizes_after
        assert evicted.total() == max(0, sizes.total() - entries)
        if evicted and sizes[tenant] * len(sizes) > entries:
            assert evicted == Counter([tenant])
        elif evicted:
            (loser,) = evicted
            assert sizes[loser] == max(sizes.values())
        sizes = sizes_after


def test_an_eviction_costs_the_same_for_any_number_of_tenants() -> None:
    """An eviction must be short, because it locks the caches of all tenants."""
    calls = {tenants: _calls_of_an_eviction(tenants) for tenants in (10, 1000)}
    # The counts may differ, because the garbage collector may run during the measurement.
    assert calls[1000] < 2 * calls[10]


def _calls_of_an_eviction(tenants: int) -> int:
    """Returns how many functions are called during an insertion that evicts an entry.

    Before the insertion, the cache is full and each of `tenants` tenants has two entries.
    """
    cached = CachedQueries(HashEmbedder(4), 2 * tenants)
    for number in range(2 * tenants):
        cached.embed_query(str(number % tenants), str(number))
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        cached.embed_query("new", "q")
    finally:
        sys.setprofile(None)
    assert sum(cached.sizes().values()) == 2 * tenants
    assert cached.sizes()["new"] == 1
    return calls
