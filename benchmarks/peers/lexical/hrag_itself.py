"""hrag's lexical source, called as the retriever calls it; and the corpus for all engines.

The corpus comes from a store of hrag without vectors. Its leaves are in the order of the segment's
rows.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from benchmarks import corpus as store
from benchmarks.peers.lexical.engine import LIMIT, RankedLeaves
from benchmarks.peers.lexical.terms import Leaves, Query, save_queries
from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.lexical_source import LexicalSource, lexical_query
from hrag.engine.embedded.segments.leaves import covered_ordinals, read_leaves
from hrag.engine.embedded.store import environment
from hrag.engine.embedded.store.queries import (
    find_collection,
    listed_segments,
)
from hrag.text.analysis import LeafTerms, QueryTerm, analyzer
from hrag.text.bm25 import inverse_document_frequency

SEED = 103
QUERIES = 500
_LEAVES_EACH = 100
_STORE = "store"
# Version 3 adds variants of words, which have weights of their own. Other engines know no such
# weights, so all engines get the terms of version 2.
_ANALYZER = "english/2"


def make_corpus(folder: Path, leaf_count: int) -> Leaves:
    """Writes a store, and the files of leaves and queries; returns the leaves."""
    _fill(folder / _STORE, leaf_count)
    terms = _leaf_terms(folder / _STORE)
    ids, numbers = np.unique(terms.entries >> np.uint64(8), return_inverse=True)
    frequencies = (terms.entries & np.uint64(255)).astype(np.uint8)
    leaves = Leaves(terms.starts, numbers.astype(np.uint32), frequencies)
    leaves.save(folder)
    leaf_counts = dict(zip(ids.tolist(), np.bincount(numbers).tolist(), strict=True))
    number_of = {term_id: number for number, term_id in enumerate(ids.tolist())}
    english = analyzer(_ANALYZER)
    queries = []
    for text in store.questions(leaf_count, _LEAVES_EACH, SEED, QUERIES):
        term_ids = [term.id for term in english.query_terms(text)]
        known = [number_of[term_id] for term_id in term_ids if term_id in number_of]
        idf = sum(
            inverse_document_frequency(leaf_counts.get(term_id, 0), len(leaves))
            for term_id in term_ids
        )
        queries.append(Query(text, known, idf))
    save_queries(queries, folder)
    return leaves


def _fill(folder: Path, leaf_count: int) -> None:
    """Creates a store with one segment. `reindex` would give it the newest analyzer."""
    sizes = leaf_count, _LEAVES_EACH, 0, SEED
    store.fill(folder, *sizes, sealed=False, varied=True, analyzer=_ANALYZER)
    with store.engine(folder, segment_min_leaves=1) as opened:
        writer = opened.writer()
        collection = writer.open(store.TENANT, store.COLLECTION)
        opened.maintenance().start()
        while (status := writer.status(collection).embedded) and status.tail_leaf_count:
            time.sleep(0.05)


def _leaf_terms(folder: Path) -> LeafTerms:
    with closing(environment.open_for_reading(folder)) as opened, opened.read() as txn:
        number = find_collection(txn, store.TENANT, store.COLLECTION)
        settings = txn.collections.require(number).settings
        (record,) = listed_segments(txn, number)
        ordinals = [ordinal for ordinal, _ in covered_ordinals(txn, number, record)]
        return read_leaves(txn, number, settings, ordinals).terms


class Hrag:
    """Searches with hrag's lexical source. Implements `Engine`.

    The time of a search includes weighing the terms.
    """

    def __init__(self, _folder: Path) -> None:
        """Creates the engine. The folder stays empty: the index is in the corpus's store."""
        self._source = LexicalSource()
        self._analyzer = analyzer(_ANALYZER)
        self._open = ExitStack()

    def index(self, corpus: Path) -> int:
        self._view = self._open.enter_context(store.view(corpus / _STORE))
        self._eligible = EligibleRows(self._view)
        return store.lexical_bytes(corpus / _STORE, self._view.count)

    def prepared(self, query: Query) -> Sequence[QueryTerm]:
        return self._analyzer.query_terms(query.text)

    def search(self, prepared: Sequence[QueryTerm]) -> Candidates:
        query = lexical_query(prepared, self._view)
        return self._source.candidates(query, self._eligible, LIMIT)

    def ranked_leaves(self, query: Query) -> RankedLeaves:
        """Returns the leaves with BM25 scores.

        hrag divides scores by the largest possible score. This method multiplies them by it again.
        """
        candidates = self.search(self.prepared(query))
        scores = candidates.scores.astype(np.float64) * query.idf
        return list(zip(candidates.rows.tolist(), scores.tolist(), strict=True))

    def close(self) -> None:
        self._open.close()
