"""Restricts a search to the rows whose text contains every required part of the query.

A required part is a phrase in quotes or a word after `+` in the query. The text must contain it
exactly as it is written in the query. A row is the position of one leaf in the view.

If the collection has a lexical index, the index first finds the rows that contain all words of all
parts, in any order and inflection. Then the parts are searched in the text of each of these rows.
Without a lexical index, the parts are searched in the text of every eligible row.
"""

import numpy as np

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.labels import split_label
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.lexical_source import rows_with_all
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.leaves import read_indexed_leaves
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.passages.indexed_text import IndexedLeaf
from hrag.text.analysis import analyzer, folding_of
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.values.deadline import Deadline
from hrag.values.tree import Tree


def rows_with_required_parts(
    txn: Txn, eligible: EligibleRows, required: tuple[str, ...], deadline: Deadline
) -> EligibleRows:
    """Returns the eligible rows whose heading, text or name contain every part of `required`.

    A part is a word or a phrase that must occur exactly as it is written. Checks the deadline
    before each row. Raises DeadlineExceeded or Cancelled.
    """
    view = eligible.view
    parts = RequiredParts(required, folding_of(view.settings.analyzer))
    leaves: dict[int, list[IndexedLeaf]] = {}
    matches = []
    for row in _candidate_rows(eligible, required).tolist():
        deadline.check("comparing texts")
        ordinal, leaf = split_label(int(view.labels[row]))
        if ordinal not in leaves:
            # Only one document's leaves are kept in memory. The rows of a document follow each
            # other, so the leaves of the previous document are not needed again.
            leaves.clear()
            leaves[ordinal] = _read_leaves(txn, view, ordinal)
        if parts.are_in(leaves[ordinal][leaf].searched_texts()):
            matches.append(row)
    return EligibleRows(view, np.array(matches, np.uint32), exact=eligible.exact)


def _read_leaves(txn: Txn, view: View, ordinal: int) -> list[IndexedLeaf]:
    address = address_of(txn, view.collection, ordinal)
    tree = Tree(txn.contents.tree(address))
    return read_indexed_leaves(txn, address, tree, view.settings)


def _candidate_rows(eligible: EligibleRows, required: tuple[str, ...]) -> RowNumbers:
    """Returns the eligible rows that may contain all words and phrases of `required`, ascending.

    With a lexical index, returns the eligible rows that contain every single word of `required`, in
    any order and inflection. The caller must still compare the phrases with the texts of these
    rows. If the collection has no lexical index, or if `required` contains no word but only
    symbols, returns all eligible rows.
    """
    view = eligible.view
    words = np.empty(0, np.uint64)
    if view.settings.analyzer:
        analysis = analyzer(view.settings.analyzer)
        words = np.concatenate([words, *(analysis.word_ids(part) for part in required)])
    if len(words):
        rows = rows_with_all(view, words)
        return rows if eligible.rows is None else rows[is_in(rows, eligible.rows)]
    if eligible.rows is not None:
        return eligible.rows
    return np.flatnonzero(view.alive[: view.count]).astype(np.uint32)
