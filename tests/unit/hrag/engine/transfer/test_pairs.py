"""Two exports are joined by document id.

Each document occurs once, in the order of ids, with its versions in both stores.
"""

import random

from hrag.engine.engine_documents import DamagedDocument
from hrag.engine.transfer.pairs import pairs
from tests.support.documents.random_stores import IDS


def exports(drawn: random.Random, problem: str) -> dict[str, DamagedDocument]:
    """Returns documents with random ids, by id."""
    ids = sorted(drawn.sample(IDS, drawn.randrange(len(IDS) + 1)))
    return {document_id: DamagedDocument(document_id, problem) for document_id in ids}


def test_pairs_equal_a_join_of_two_dictionaries():
    drawn = random.Random(5)
    for _ in range(300):
        source, target = exports(drawn, "source"), exports(drawn, "target")
        joined = list(pairs(iter(source.values()), iter(target.values())))
        assert [pair.document_id for pair in joined] == sorted(source | target)
        for pair in joined:
            assert pair.source is source.get(pair.document_id)
            assert pair.target is target.get(pair.document_id)
