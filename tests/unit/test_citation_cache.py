"""Citations that were asked for lately are not read again, and the others go."""

from hrag.engine.embedded.documents import CitationCache


class Reads:
    """Asks the cache for documents and notes which it has read."""

    def __init__(self, entries: int) -> None:
        self.cache = CitationCache(entries)
        self.done: list[int] = []

    def ask(self, *ordinals: int) -> list[int]:
        """What was read for these."""
        before = len(self.done)
        for ordinal in ordinals:

            def read(ordinal: int = ordinal) -> str:
                self.done.append(ordinal)
                return f"citation {ordinal}"

            assert self.cache.get(ordinal, read) == f"citation {ordinal}"
        return self.done[before:]


def test_each_is_read_once_while_there_is_room():
    reads = Reads(entries=3)
    assert reads.ask(1, 2, 3) == [1, 2, 3]
    assert reads.ask(3, 2, 1, 1) == []


def test_what_is_asked_for_again_stays():
    reads = Reads(entries=3)
    for other in range(10, 100):
        reads.ask(1, other)
    assert reads.done.count(1) == 1


def test_what_was_not_asked_for_goes():
    reads = Reads(entries=3)
    reads.ask(*range(100))
    assert reads.ask(*range(94)) == list(range(94))


def test_as_many_as_allowed_stay():
    reads = Reads(entries=3)
    reads.ask(*range(100))
    assert reads.ask(97, 98, 99) == []
