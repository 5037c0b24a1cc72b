"""Tests of the cache of citations: recently used citations stay, and the others are dropped."""

from dataclasses import dataclass

from hrag.engine.embedded.search.document_reader import CitationCache

SIZE = 100


@dataclass(frozen=True)
class Cited:
    """A fake citation of the document with this ordinal."""

    ordinal: int
    size_bytes: int = SIZE


def is_current(cited: Cited) -> bool:
    return True


class CacheUser:
    """Gets citations from a cache, and records which of them the cache had to read.

    Each of the two generations of the cache has space for `half` citations.
    """

    def __init__(self, half: int) -> None:
        self.cache = CitationCache(2 * half * SIZE)
        self.ordinals_read: list[int] = []

    def get(self, *ordinals: int) -> list[int]:
        """Gets the citations of these documents; returns the ordinals that had to be read."""
        before = len(self.ordinals_read)
        for ordinal in ordinals:

            def read(ordinal: int = ordinal) -> Cited:
                self.ordinals_read.append(ordinal)
                return Cited(ordinal)

            assert self.cache.get(ordinal, is_current, read) == Cited(ordinal)
        return self.ordinals_read[before:]


def test_a_citation_is_read_once_while_the_cache_is_not_full():
    user = CacheUser(half=3)
    assert user.get(1, 2, 3) == [1, 2, 3]
    assert user.get(3, 2, 1, 1) == []


def test_a_citation_that_is_used_often_stays_cached():
    user = CacheUser(half=3)
    for other in range(10, 100):
        user.get(1, other)
    assert user.ordinals_read.count(1) == 1


def test_a_citation_that_is_not_used_again_is_dropped():
    user = CacheUser(half=3)
    user.get(*range(100))
    assert user.get(*range(94)) == list(range(94))


def test_the_citations_of_the_last_full_generation_stay_cached():
    user = CacheUser(half=3)
    user.get(*range(100))
    assert user.get(97, 98, 99) == []


def test_large_citations_are_dropped_sooner():
    cache = CitationCache(6 * SIZE)
    for ordinal in range(10):
        cache.get(ordinal, is_current, lambda ordinal=ordinal: Cited(ordinal, 3 * SIZE))
    read_again = []
    cache.get(9, is_current, lambda: read_again.append(9) or Cited(9))
    cache.get(7, is_current, lambda: read_again.append(7) or Cited(7))
    assert read_again == [7]


def test_a_citation_that_is_not_current_is_read_again_and_replaced():
    cache = CitationCache(100 * SIZE)
    cache.get(1, is_current, lambda: Cited(1))
    current = Cited(1)
    assert cache.get(1, lambda cited: cited is current, lambda: current) is current
    assert cache.get(1, is_current, lambda: Cited(1)) is current
