"""Without one of its segments a collection gives the same answers, whichever it is.

The segment's leaves lie in the tail then, behind those of younger documents.
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
DOCUMENTS = 4  # In each.
LEAVES = 144
FILTERS: list[Filter | None] = [
    None,
    NoneOf((Match("document_id", ("d5",)),)),
    AllOf((Exists("seed"), NoneOf((Match("document_id", ("d2", "d9")),)))),
    Match("document_id", ("d1", "d6", "d10")),
]


@pytest.fixture
def records(engine: Engine) -> list[int]:
    """The ids of three segments of four documents each."""
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


def answers(engine: Engine) -> Iterator[list[tuple[str, int]]]:
    """The chunks that searches return, and how many leaves they looked at.

    At the leaves and above them, with some filters, and with as many passages as there are.
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
def test_answers_are_the_same(engine, records, missing):
    expected = list(answers(engine))
    assert max(map(len, expected)) > LEAVES // 2
    file = segment_files.path_of(engine.store.segments, records[missing]) / segment_files.INDEX
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    engine.restart_reader()
    assert list(answers(engine)) == expected
    assert engine.reader.status().embedded.damaged_segments == 1
    file.write_bytes(whole)
