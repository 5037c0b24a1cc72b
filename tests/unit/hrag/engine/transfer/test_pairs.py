"""Two exports are joined by id: each document once, in order, with what either store has."""

import random

from hrag.engine.engine_documents import UnreadableDocument
from hrag.engine.transfer.pairs import pairs
from tests.support.documents.random_stores import IDS


def exports(drawn: random.Random, which: str) -> dict[str, UnreadableDocument]:
    ids = sorted(drawn.sample(IDS, drawn.randrange(len(IDS) + 1)))
    return {each: UnreadableDocument(each, which) for each in ids}


def test_pairs_are_those_of_two_dictionaries():
    drawn = random.Random(5)
    for _ in range(300):
        source, target = exports(drawn, "source"), exports(drawn, "target")
        found = list(pairs(iter(source.values()), iter(target.values())))
        assert [each.document_id for each in found] == sorted(source | target)
        for each in found:
            assert each.source is source.get(each.document_id)
            assert each.target is target.get(each.document_id)
