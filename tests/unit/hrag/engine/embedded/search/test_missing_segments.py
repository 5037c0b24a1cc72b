"""Test that searches find the same if any one segment of a collection cannot be read.

The leaves of that segment are then in the tail, after the leaves of newer documents.
"""

from collections.abc import Iterator
from itertools import product

import pytest

from hrag.engine.embedded.segments import segment_files
from hrag.filters import AllOf, Exists, Filter, Match, NoneOf
from hrag.types import Retrieval, SearchMode
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings as settings
from tests.support.documents.fakes import find, prepared, query_vector, sentences

SEGMENTS = 3
# The count of documents in each segment.
DOCUMENTS = 4
# The count of leaves in all segments together.
LEAVES = 144
FILTERS: list[Filter | None] = [
    None,
    NoneOf((Match("document_id", ("d5",)),)),
    AllOf((Exists("seed"), NoneOf((Match("document_id", ("d2", "d9")),)))),
    Match("document_id", ("d1", "d6", "d10")),
]


@pytest.fixture
def segment_ids(engine: Engine) -> list[int]:
    """The ids of the collection's three segments, of four documents each."""
    engine.writer.create_collection("t", "c", settings())
    found = []
    for segment in range(SEGMENTS):
        for number in range(segment * DOCUMENTS, (segment + 1) * DOCUMENTS):
            document = prepared(f"d{number}", sentences(30, number), seed=number)
            engine.writer.put(engine.open(), document)
        record = engine.seal()
        assert record is not None
        found.append(record.segment_id)
    return found


def search_results(engine: Engine) -> Iterator[list[tuple[str, int]]]:
    """Yields the result of each of many searches: chunk ids, and the count of leaves considered.

    The searches return leaves or ancestors, use some filters, and find 20 passages or all.
    """
    modes = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG, SearchMode.AUTO_MERGE)
    for mode, chosen, count in product(modes, FILTERS, (20, LEAVES)):
        with engine.reader.snapshot("t", "c") as snapshot:
            level = 0 if mode is SearchMode.STANDARD else snapshot.settings.tree.top_level
            found = find(
                snapshot,
                query_vector(1),
                20,
                level,
                mode,
                limit=count,
                filter=chosen,
                retrieval=Retrieval.DENSE,
            )
            yield [(passage.chunk.chunk_id, found.considered) for passage in found.passages]


@pytest.mark.parametrize("missing", range(SEGMENTS))
def test_searches_find_the_same_without_a_segment(engine, segment_ids, missing):
    expected = list(search_results(engine))
    assert max(map(len, expected)) > LEAVES // 2
    file = segment_files.path_of(engine.store.segments, segment_ids[missing]) / segment_files.INDEX
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    engine.restart_reader()
    assert list(search_results(engine)) == expected
    assert engine.reader.status().embedded.damaged_segments == 1
    file.write_bytes(whole)
