"""Tests of lexical search in ten thousand leaves.

The scores must equal those of the package bm25s, and the passages those of the memory engine. This
must hold for any division of the leaves into segments and tail, and after deletions.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import log1p
from string import ascii_lowercase

import numpy as np
import pytest

from hrag.engine import PreparedDocument
from hrag.engine.find import FindResult
from hrag.types import Passage, Retrieval, SearchMode, TreeSettings
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, find, prepared
from tests.support.engines.memory_engine import MemoryEngine

LEAVES = 10_000
# The candidates that each search requests: more than a search has by default.
CANDIDATES = 300
# The documents are stored in this many parts, so that a segment can be built after each part.
PARTS = 5
SETTINGS = replace(
    collection_settings(TreeSettings((64,), 0.0), dimension=0, analyzer="simple/1"),
    index_headings=False,
)
DRAW = random.Random(1)
VOCABULARY = ["".join(DRAW.choices(ascii_lowercase, k=DRAW.randint(2, 9))) for _ in range(5000)]
SHARES = [*accumulate(1 / rank for rank in range(1, len(VOCABULARY) + 1))]
# The ranks of the words in each query: a rare word, common words, and words of all frequencies.
QUERIES = [[4000], [0, 1, 2], [300, 12], [5, 40, 80, 700, 2000, 3500, 4900]]


@pytest.fixture(scope="module")
def documents() -> Sequence[PreparedDocument]:
    """Documents of one to twenty leaves, in which the frequencies of words follow Zipf's law."""
    found: list[PreparedDocument] = []
    leaves = 0
    while leaves < LEAVES:
        words = DRAW.choices(VOCABULARY, cum_weights=SHARES, k=DRAW.randint(1, 500))
        found.append(prepared(f"d{len(found)}", " ".join(words), SETTINGS, len(found)))
        leaves += len(found[-1].vectors)
    return found


def fill(
    engine: Engine, documents: Sequence[PreparedDocument], sealed: Sequence[int], *, deletes: bool
) -> MemoryEngine:
    """Stores the documents, part by part, in `engine` and in a memory engine, which it returns.

    `sealed` are the indexes of the parts after which `engine` seals its tail. With `deletes`, one
    document of five is deleted afterwards, and half of the deleted documents are stored again.
    """
    memory_engine = MemoryEngine()
    writers = (engine.writer, memory_engine.writer())
    for writer in writers:
        writer.create_collection("t", "c", SETTINGS)
    for part in range(PARTS):
        for writer in writers:
            opened = writer.open("t", "c")
            writer.put_many([(opened, document) for document in documents[part::PARTS]])
        if part in sealed:
            engine.seal()
    for writer in writers:
        opened = writer.open("t", "c")
        for document in documents[::5] if deletes else ():
            writer.delete(opened, document.document_id)
        for document in documents[::10] if deletes else ():
            writer.put(opened, document)
    return memory_engine


def found_by(engine: Engine | MemoryEngine, ranks: Sequence[int]) -> FindResult[Passage]:
    """Searches for the words of these ranks, and for a word that no leaf has."""
    reader = engine.reader if isinstance(engine, Engine) else engine.reader()
    with reader.snapshot("t", "c") as snapshot:
        return find(
            snapshot,
            None,
            CANDIDATES,
            text=" ".join([*(VOCABULARY[rank] for rank in ranks), "nonesuch"]),
            mode=SearchMode.STANDARD,
            retrieval=Retrieval.LEXICAL,
        )


def test_leaves_deleted_since_the_last_search_do_not_affect_scores(engine, documents):
    memory_engine = fill(engine, documents[:60], (0, 1), deletes=False)
    # Documents 0 and 1 are in two segments, and document 4 is in the tail.
    for deleted in (None, documents[0], documents[1], documents[4]):
        if deleted:
            for writer in (engine.writer, memory_engine.writer()):
                writer.delete(writer.open("t", "c"), deleted.document_id)
        for ranks in QUERIES:
            assert found_by(engine, ranks).passages == found_by(memory_engine, ranks).passages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sealed", "deletes", "merges"),
    [
        ((), False, False),
        ((4,), False, False),
        ((0, 1, 2), False, False),
        ((0, 1, 2), True, False),
        ((0, 1, 2), True, True),
    ],
    ids=["tail", "one segment", "segments and tail", "deletions", "merged"],
)
def test_scores_equal_those_of_bm25s(engine, documents, sealed, deletes, merges):
    import bm25s

    memory_engine = fill(engine, documents, sealed, deletes=deletes)
    if merges:
        engine.run_maintenance(1)
        engine.restart_reader()
    index = engine.writer.status(engine.open()).embedded
    assert len(index.segments) == (1 if merges else len(sealed))
    texts = {}
    for number, document in enumerate(documents):
        if not deletes or number % 5 or number % 10 == 0:
            text, leaves = document.parsed.text, document.tree.level(0)
            for n, (start, end) in enumerate(leaves[["char_start", "char_end"]].tolist()):
                texts[document.document_id, n] = text[start:end].split()
    oracle = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    oracle.index(list(texts.values()), show_progress=False)
    for ranks in QUERIES:
        words = [VOCABULARY[rank] for rank in ranks]
        scores = oracle.get_scores(words)
        expected = dict(zip(texts, scores.tolist(), strict=True))
        idf = 0.0
        for word in [*words, "nonesuch"]:
            leaves = sum(word in each for each in texts.values())
            idf += log1p((len(texts) - leaves + 0.5) / (leaves + 0.5))
        found = found_by(engine, ranks)
        assert found.eligible_leaves == len(texts)
        names = [(each.chunk.document_id, each.chunk.index) for each in found.passages]
        actual = [idf * each.lexical_score for each in found.passages]
        assert actual == pytest.approx([expected[name] for name in names], abs=1e-4)
        best = np.sort(scores[scores > 0])[::-1][:CANDIDATES]
        assert actual == pytest.approx(best.tolist(), abs=1e-4)
        assert found.passages == found_by(memory_engine, ranks).passages
