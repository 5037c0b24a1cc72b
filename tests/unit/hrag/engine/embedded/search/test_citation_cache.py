"""Citations that were asked for lately are not read again, and the others go."""

from dataclasses import dataclass

from hrag.engine.embedded.search.document_reader import CitationCache

SIZE = 100


@dataclass(frozen=True)
class Cited:
    ordinal: int
    size_bytes: int = SIZE


def is_current(cited: Cited) -> bool:
    return True


class Reads:
    """Asks the cache for documents and notes which it has read."""

    def __init__(self, half: int) -> None:
        self.cache = CitationCache(2 * half * SIZE)
        self.done: list[int] = []

    def ask(self, *ordinals: int) -> list[int]:
        """What was read for these."""
        before = len(self.done)
        for ordinal in ordinals:

            def read(ordinal: int = ordinal) -> Cited:
                self.done.append(ordinal)
                return Cited(ordinal)

            assert self.cache.get(ordinal, is_current, read) == Cited(ordinal)
        return self.done[before:]


def test_each_is_read_once_while_there_is_room():
    reads = Reads(half=3)
    assert reads.ask(1, 2, 3) == [1, 2, 3]
    assert reads.ask(3, 2, 1, 1) == []


def test_what_is_asked_for_again_stays():
    reads = Reads(half=3)
    for other in range(10, 100):
        reads.ask(1, other)
    assert reads.done.count(1) == 1


def test_what_was_not_asked_for_goes():
    reads = Reads(half=3)
    reads.ask(*range(100))
    assert reads.ask(*range(94)) == list(range(94))


def test_as_many_as_allowed_stay():
    reads = Reads(half=3)
    reads.ask(*range(100))
    assert reads.ask(97, 98, 99) == []


def test_large_ones_make_room_sooner():
    cache = CitationCache(6 * SIZE)
    for ordinal in range(10):
        cache.get(ordinal, is_current, lambda ordinal=ordinal: Cited(ordinal, 3 * SIZE))
    again = []
    cache.get(9, is_current, lambda: again.append(9) or Cited(9))
    cache.get(7, is_current, lambda: again.append(7) or Cited(7))
    assert again == [7]


def test_what_is_not_current_is_read_again_and_replaced():
    cache = CitationCache(100 * SIZE)
    cache.get(1, is_current, lambda: Cited(1))
    current = Cited(1)
    assert cache.get(1, lambda cited: cited is current, lambda: current) is current
    assert cache.get(1, is_current, lambda: Cited(1)) is current
