"""A search: embed, find leaves, climb, group, enough passages?, fetch.

One pipeline for every mode; what a mode changes is the level it returns. All of a search
reads one snapshot. Candidates are leaves, limits are passages: while too few passages
come out and more leaves exist, it looks at more leaves.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hrag import ids
from hrag.deadline import Deadline
from hrag.embedding import Embedder
from hrag.embedding.cache import CachedQueries
from hrag.embedding.checks import check_embedder
from hrag.engine import Groups, Leaves, Reader, Snapshot, Vector
from hrag.errors import InvalidArgument, SequenceNotReached, TooLarge
from hrag.types import (
    MAX_CANDIDATES,
    MAX_LIMIT,
    MAX_QUERY_BYTES,
    CollectionSettings,
    SearchMode,
    SearchQuery,
    SearchResult,
    Timings,
)

_DEEPEN = 4  # Each round looks at so many times more leaves: few rounds, little waste.
_WAIT_S = 0.002  # Between looks at a sequence that is awaited.
_LONGEST_WAIT_S = 30.0  # A call without a deadline must not keep its thread for ever.


@dataclass(frozen=True, slots=True)
class _Found:
    leaves: Leaves
    groups: Groups
    search_s: float
    climb_s: float


class Search:
    """Answers queries; safe to call from several threads.

    `return_level` is what SMALL_TO_BIG returns where neither the query nor the
    collection says.
    """

    def __init__(
        self,
        reader: Reader,
        embedder: Embedder,
        queries: CachedQueries,
        return_level: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._reader = reader
        self._embedder = embedder
        self._queries = queries
        self._return_level = return_level
        self._clock = clock

    def __call__(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Raises InvalidArgument, CollectionNotFound, EmbedderMismatch and the embedder's."""
        began = self._clock()
        _check(query)
        self._wait_for(query.min_sequence, deadline)
        vector = self._vector(query)
        embedded = self._clock()
        deadline.check("embedding")
        with self._reader.snapshot(query.tenant_id, query.collection) as snapshot:
            _check_dimension(vector, snapshot.settings)
            level = self._level(query, snapshot.settings)
            found = self._find(snapshot, vector, level, query, deadline)
            fetching = self._clock()
            passages = snapshot.passages(found.groups, query.limit, query.token_budget)
            done = self._clock()
            return SearchResult(
                passages=passages,
                mode=query.mode,
                matched_at_level=snapshot.settings.tree.embedding_level,
                returned_at_level=level,
                candidates_considered=len(found.leaves),
                exhausted=found.leaves.complete and len(found.groups) <= query.limit,
                sequence=snapshot.sequence,
                timings=Timings(
                    embed_us=_us(embedded - began),
                    search_us=_us(found.search_s),
                    climb_us=_us(found.climb_s),
                    fetch_us=_us(done - fetching),
                    total_us=_us(done - began),
                ),
            )

    def _wait_for(self, sequence: int, deadline: Deadline) -> None:
        patience = Deadline(min(deadline.at_s, Deadline.after(_LONGEST_WAIT_S).at_s))
        while sequence and (committed := self._reader.sequence()) < sequence:
            if patience.remaining_s <= _WAIT_S:
                raise SequenceNotReached(
                    f"min_sequence is {sequence}; the store has come to {committed}",
                    field="min_sequence",
                )
            time.sleep(_WAIT_S)

    def _vector(self, query: SearchQuery) -> Vector:
        if not isinstance(query.query, str):
            return _unit(np.asarray(query.query, np.float32))
        settings = self._reader.settings(query.tenant_id, query.collection)
        check_embedder(settings, self._embedder.name)
        vector = self._queries.embed_query(query.query)
        check_embedder(settings, self._embedder.name, len(vector))
        return vector

    def _level(self, query: SearchQuery, settings: CollectionSettings) -> int:
        tree = settings.tree
        if query.mode is SearchMode.STANDARD:
            return tree.embedding_level
        if query.return_level is not None:
            tree.check_return_level(query.return_level)
            return query.return_level
        if settings.return_level is not None:
            return settings.return_level
        return max(tree.embedding_level, min(self._return_level, tree.top_level))

    def _find(
        self, snapshot: Snapshot, vector: Vector, level: int, query: SearchQuery, deadline: Deadline
    ) -> _Found:
        count = max(query.candidates, query.limit)
        search_s = climb_s = 0.0
        while True:
            began = self._clock()
            leaves = snapshot.search(vector, count)
            searched = self._clock()
            groups = snapshot.climb(leaves, level, query.aggregation)
            climbed = self._clock()
            search_s += searched - began
            climb_s += climbed - searched
            if len(groups) >= query.limit or leaves.complete:
                return _Found(leaves, groups, search_s, climb_s)
            deadline.check("searching")
            count *= _DEEPEN


def _check(query: SearchQuery) -> None:
    ids.check_tenant_id(query.tenant_id)
    ids.check_collection_name(query.collection)
    _check_range("limit", query.limit, MAX_LIMIT)
    _check_range("candidates", query.candidates, MAX_CANDIDATES)
    if isinstance(query.query, str):
        _check_text(query.query)
    if query.mode is SearchMode.STANDARD and query.return_level is not None:
        raise InvalidArgument(
            f"return_level is {query.return_level}; STANDARD returns the embedded level, "
            "so leave it unset",
            field="return_level",
        )


def _check_range(field: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidArgument(f"{field} is {value}; it must be from 1 to {most}", field=field)


def _check_text(text: str) -> None:
    size = len(text.encode())
    if size > MAX_QUERY_BYTES:
        raise TooLarge(
            f"text has {size} bytes; at most {MAX_QUERY_BYTES} are allowed", field="text"
        )
    if not text.strip():
        raise InvalidArgument("text is blank; a query must say something", field="text")


def _unit(vector: Vector) -> Vector:
    """The vector at unit length, or InvalidArgument."""
    if not np.isfinite(vector).all():
        raise InvalidArgument(
            "vector holds NaN or infinity; numbers must be finite", field="vector"
        )
    norm = np.linalg.norm(vector.astype(np.float64))
    if norm == 0:
        raise InvalidArgument(
            f"vector has no direction: its {len(vector)} numbers are all zero", field="vector"
        )
    return (vector / norm).astype(np.float32)


def _check_dimension(vector: Vector, settings: CollectionSettings) -> None:
    if len(vector) != settings.dimension:
        raise InvalidArgument(
            f"vector has {len(vector)} numbers; the collection's have {settings.dimension}",
            field="vector",
        )


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
