"""Every storage engine evaluates filters with many ranges, and reads no value once per range."""

from itertools import pairwise
from typing import Any

import pytest

from hrag.engine.common.range_reader import RangeReader, ReadTerms
from hrag.filters import MAX_FILTER_RANGES, AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range
from tests.support.documents.fakes import prepared
from tests.support.engines.filter_model import passes

COUNT = 40


def wide(number: int, field: str = "metadata.n") -> Range:
    return Range(field, at_least=float(number), below=float(COUNT - number % 7))


def ranges(count: int = MAX_FILTER_RANGES, field: str = "metadata.n") -> tuple[Range, ...]:
    return tuple(wide(number // 2, field) for number in range(count))


THREE = Match("metadata.few", (3.0,))
FILTERS: dict[str, Filter] = {
    "all": AllOf(ranges()),
    "five": AllOf(ranges(5)),
    "four": AllOf(ranges(4)),
    "any": AnyOf(ranges()),
    "none": NoneOf(ranges(9)),
    "all of none": AllOf(tuple(NoneOf((Range("metadata.n", above=30.0 + n),)) for n in range(9))),
    "lists": AllOf(ranges(field="metadata.list")),
    "two fields": AllOf((*ranges(8), *ranges(8, "metadata.list"), Exists("metadata.few"))),
    "with values": AllOf((*ranges(9), THREE)),
    "empty": AllOf((*ranges(9), Match("title", ("nothing",)))),
    "all of any": AllOf(tuple(AnyOf((condition, THREE)) for condition in ranges(9))),
    "any of all": AnyOf((AllOf(ranges(9)), AllOf((*ranges(3, "metadata.list"), THREE)))),
    "nested": AllOf((AnyOf((AllOf((*ranges(7), THREE)), wide(20))), NoneOf((wide(30),)))),
    "with ids": AnyOf((AllOf(ranges(9)), Match("document_id", ("d1", "d39")))),
}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """The ranges of terms that any RangeReader has read from the store."""
    read_ranges: list[tuple[bytes, bytes]] = []
    create = RangeReader.__init__

    def recording(self: RangeReader, asked: Any, read: ReadTerms, *more: Any) -> None:
        def recorded(start: bytes, end: bytes) -> Any:
            read_ranges.append((start, end))
            return read(start, end)

        create(self, asked, recorded, *more)

    monkeypatch.setattr(RangeReader, "__init__", recording)
    return read_ranges


def test_filters_with_many_ranges_select_the_documents_that_pass(catalog, reads):
    catalog.create()
    values = [{"n": n, "few": n % 5, "list": [n, COUNT - n, "x"]} for n in range(COUNT)]
    documents = [prepared(f"d{n}", "One leaf.", metadata=value) for n, value in enumerate(values)]
    catalog.writer.put_many([(catalog.collection, document) for document in documents])
    for name, filter in FILTERS.items():
        reads.clear()
        listed = catalog.writer.documents(catalog.collection, COUNT, "", filter=filter).items
        expected = {document.document_id for document in documents if passes(filter, document)}
        assert {info.document_id for info in listed} == expected, name
        assert catalog.writer.count(catalog.collection, filter).documents == len(expected), name
        # Listing and counting have read each term at most once each.
        for half in halves(reads):
            for (_, end), (start, _) in pairwise(sorted(half)):
                assert end <= start, name


def halves(reads: list[Any]) -> tuple[list[Any], list[Any]]:
    middle = len(reads) // 2
    return reads[:middle], reads[middle:]
