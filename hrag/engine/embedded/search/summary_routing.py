"""Which sections of a collection's documents a search by summaries looks into.

The summaries lie in a view of their own: of each document first that of the whole, then
those of its sections. The nearest are found there, and lead to rows of the collection's
own view: its scope from then on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.deadline import Deadline
from hrag.engine import Vector
from hrag.engine.embedded.search.documents import StoredDocuments
from hrag.engine.embedded.search.eligible_rows import Hits, RowNumbers, Scope
from hrag.engine.embedded.search.filter_eval import SelectionCache, rows_that_pass
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import required
from hrag.engine.embedded.store.records import Summarised
from hrag.filters import Filter
from hrag.types import ChosenSection, SummaryScope

_LEAF_BITS = np.uint64(schema.LEAF_BITS)
_LEAF_MASK = schema.MAX_LEAVES - 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A section: leaves of the document that `ordinal` names, chosen for a summary."""

    ordinal: int
    leaves: range
    summary: int  # Its label.
    score: float


class Choosing:
    """Chooses by the summaries of one view, in one transaction."""

    def __init__(self, store: Store, txn: Txn, summaries: View, selections: SelectionCache) -> None:
        self._store = store
        self._txn = txn
        self._view = summaries
        self._selections = selections

    def choose(
        self,
        query: Vector,
        count: int,
        scope: SummaryScope,
        given: Filter | None,
        deadline: Deadline,
    ) -> list[Choice]:
        """The `count` best sections, best first, of documents that pass the filter."""
        if scope is SummaryScope.DOCUMENTS:
            best = Scope(self._view, self._rows(given, "wholes", deadline)).nearest(query, count)
            ordinals = np.sort(self._view.labels[best.rows] >> _LEAF_BITS)
            rows = self._of_sections(self._view.rows_of(ordinals))
        else:
            rows = self._rows(given, "sections", deadline)
        return list(self._choices(Scope(self._view, rows).nearest(query, count)))

    def _rows(self, given: Filter | None, which: str, deadline: Deadline) -> RowNumbers:
        """Of all summaries of whole documents, or of all of sections."""

        def select() -> RowNumbers:
            if given is None:
                rows = np.flatnonzero(self._view.alive[: self._view.count])
            else:
                rows = rows_that_pass(self._store, self._txn, self._view, given, deadline)
            is_section = self._are_sections(rows)
            return rows[is_section if which == "sections" else ~is_section].astype(np.uint32)

        return self._selections.get(self._view, f"{which} {given!r}", select)

    def _of_sections(self, rows: NDArray[np.integer[Any]]) -> RowNumbers:
        return rows[self._are_sections(rows)].astype(np.uint32)

    def _are_sections(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        sections: NDArray[np.bool_] = self._view.labels[rows] & np.uint64(_LEAF_MASK) != 0
        return sections

    def _choices(self, hits: Hits) -> Iterator[Choice]:
        order = np.lexsort((hits.rows, -hits.scores))
        labels = self._view.labels[hits.rows[order]].tolist()
        for label, score in zip(labels, hits.scores[order].tolist(), strict=True):
            entry = schema.in_collection(self._view.collection, label >> schema.LEAF_BITS)
            value = required(self._txn.get(entry, db=self._store.db["summarised"]))
            summarised = Summarised.from_bytes(value)
            section = summarised.sections[(label & _LEAF_MASK) - 1]
            yield Choice(summarised.ordinal, section, label, score)

    def shown(
        self, choices: Sequence[Choice], documents: StoredDocuments, of: View
    ) -> tuple[ChosenSection, ...]:
        """Choices as a client sees them; `of` is the view of what is summarised."""
        level = of.settings.tree.embedding_level
        found = []
        for choice in choices:
            ordinal, index = choice.summary >> schema.LEAF_BITS, choice.summary & _LEAF_MASK
            summary = documents.get(self._view.collection, ordinal).text(0, index)
            document = documents.get(of.collection, choice.ordinal)
            found.append(document.section(level, choice.leaves, summary.strip(), choice.score))
        return tuple(found)


def rows_in(view: View, choices: Sequence[Choice]) -> RowNumbers:
    """Rows of the leaves of sections, none of which shares a leaf with another."""
    bounds = sorted(
        (choice.ordinal << schema.LEAF_BITS | choice.leaves.start, len(choice.leaves))
        for choice in choices
    )
    starts, counts = np.array(bounds, np.uint64).reshape(-1, 2).T
    return view.rows_between(starts, starts + counts).astype(np.uint32)
