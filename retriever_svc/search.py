"""A search: embed, find leaves, climb, group, enough passages?, fetch.

One pipeline for every mode; what a mode changes is which chunks stand for the leaves that
matched. All of a search reads one snapshot. Candidates are leaves, limits are passages:
while too few passages come out and more leaves exist, it looks at more leaves.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hrag import ids
from hrag.deadline import Deadline
from hrag.embedding import Embedder
from hrag.embedding.cache import CachedQueries
from hrag.embedding.checks import check_embedder
from hrag.engine import Groups, Leaves, Reader, Snapshot, Vector
from hrag.errors import (
    EmbedderUnavailable,
    HragError,
    InvalidArgument,
    SequenceNotReached,
    TooLarge,
    outcome_of,
)
from hrag.filters import check_filter
from hrag.types import (
    DEFAULT_MERGE_RATIO,
    MAX_BATCH_SEARCHES,
    MAX_CANDIDATES,
    MAX_LIMIT,
    MAX_QUERY_BYTES,
    Aggregation,
    CollectionSettings,
    Passage,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
    Timings,
)

_DEEPEN = 4  # Each round looks at so many times more leaves: few rounds, little waste.
_WAIT_S = 0.002  # Between looks at a sequence that is awaited.
_LONGEST_WAIT_S = 30.0  # A call without a deadline must not keep its thread for ever.


@dataclass(frozen=True, slots=True)
class _Found:
    passages: tuple[Passage, ...]
    leaves: Leaves
    exhausted: bool
    search_s: float
    climb_s: float
    fetch_s: float


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
        self._prepare(query, deadline)
        vector = self._vector(query)
        return self._run(query, vector, began, self._clock(), deadline)

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[SearchResult | HragError]:
        """Each one's result or own error, in order; texts are embedded together.

        Raises InvalidArgument for no query and for too many.
        """
        if not 1 <= len(queries) <= MAX_BATCH_SEARCHES:
            raise InvalidArgument(
                f"searches has {len(queries)} entries; it must have 1 to {MAX_BATCH_SEARCHES}",
                field="searches",
            )
        began = self._clock()
        prepared = [
            query if isinstance(query, HragError) else outcome_of(self._prepare, query, deadline)
            for query in queries
        ]
        vectors = self._vectors(prepared)
        embedded = self._clock()
        outcomes: list[SearchResult | HragError] = []
        for query, vector in zip(prepared, vectors, strict=True):
            if isinstance(query, HragError):
                outcomes.append(query)
            elif isinstance(vector, HragError):
                outcomes.append(vector)
            else:
                outcomes.append(outcome_of(self._run, query, vector, began, embedded, deadline))
        return outcomes

    def _prepare(self, query: SearchQuery, deadline: Deadline) -> SearchQuery:
        """Refuses what can be refused before anything is embedded, and waits for the change."""
        _check(query)
        self._wait_for(query.min_sequence, deadline)
        if isinstance(query.query, str):
            settings = self._reader.settings(query.tenant_id, query.collection)
            check_embedder(settings, self._embedder.name)
        return query

    def _run(
        self,
        query: SearchQuery,
        vector: Vector,
        began: float,
        embedded: float,
        deadline: Deadline,
    ) -> SearchResult:
        deadline.check("embedding")
        with self._reader.snapshot(query.tenant_id, query.collection) as snapshot:
            if isinstance(query.query, str):
                check_embedder(snapshot.settings, self._embedder.name, len(vector))
            _check_dimension(vector, snapshot.settings)
            level = self._level(query, snapshot.settings)
            eligible, filter_s = self._filtered(snapshot, query)
            found = self._find(eligible, vector, level, query, deadline)
            return SearchResult(
                passages=found.passages,
                mode=query.mode,
                matched_at_level=snapshot.settings.tree.embedding_level,
                returned_at_level=level,
                candidates_considered=len(found.leaves),
                exhausted=found.exhausted,
                sequence=snapshot.sequence,
                timings=Timings(
                    embed_us=_us(embedded - began),
                    search_us=_us(found.search_s),
                    climb_us=_us(found.climb_s),
                    fetch_us=_us(found.fetch_s),
                    total_us=_us(self._clock() - began),
                    filter_us=_us(filter_s),
                ),
                plan=SearchPlan.SCAN if found.leaves.exact else SearchPlan.INDEX,
                eligible_leaves=eligible.leaf_count,
            )

    def _filtered(self, snapshot: Snapshot, query: SearchQuery) -> tuple[Snapshot, float]:
        """The snapshot with what passes the filter, and the seconds that took."""
        if query.filter is None:
            return snapshot, 0.0
        began = self._clock()
        return snapshot.filtered(query.filter), self._clock() - began

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
        if isinstance(query.query, str):
            return self._queries.embed_query(query.query)
        return _unit(np.asarray(query.query, np.float32))

    def _vectors(self, queries: Sequence[SearchQuery | HragError]) -> list[Vector | HragError]:
        """Of each query its vector or what is wrong with it; all texts at once."""
        sound = [query for query in queries if isinstance(query, SearchQuery)]
        texts = list({query.query: None for query in sound if isinstance(query.query, str)})
        of_text = dict(zip(texts, self._embedded(texts), strict=True))
        vectors: list[Vector | HragError] = []
        for query in queries:
            if isinstance(query, HragError):
                vectors.append(query)
            elif isinstance(query.query, str):
                vectors.append(of_text[query.query])
            else:
                vectors.append(outcome_of(self._vector, query))
        return vectors

    def _embedded(self, texts: list[str]) -> Sequence[Vector | HragError]:
        """Together; each alone where one of them spoils it for the others."""
        try:
            return self._queries.embed_queries(texts)
        except EmbedderUnavailable as error:
            return [error] * len(texts)  # It has been tried again for seconds already.
        except HragError:
            return [outcome_of(self._queries.embed_query, text) for text in texts]

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
        search_s = climb_s = fetch_s = 0.0
        while True:
            began = self._clock()
            leaves = snapshot.search(vector, count)
            searched = self._clock()
            groups = _climb(snapshot, leaves, level, query)
            climbed = self._clock()
            search_s += searched - began
            climb_s += climbed - searched
            if len(groups) >= query.limit or leaves.complete:
                choice = _Choice.of(groups, leaves, query)
                passages = choice.passages(snapshot)
                fetch_s += self._clock() - climbed
                if choice.is_final(passages):
                    exhausted = choice.is_all(passages)
                    return _Found(passages, leaves, exhausted, search_s, climb_s, fetch_s)
            deadline.check("searching")
            count *= _DEEPEN


@dataclass(frozen=True, slots=True)
class _Choice:
    """The groups that passages are made of"""

    query: SearchQuery
    groups: Groups
    below: bool  # Whether some were left out for their score.
    complete: bool  # Whether every leaf has been looked at.

    @classmethod
    def of(cls, groups: Groups, leaves: Leaves, query: SearchQuery) -> "_Choice":
        chosen = groups if query.min_score is None else groups.reaching(query.min_score)
        return cls(query, chosen, len(chosen) < len(groups), leaves.complete)

    def passages(self, snapshot: Snapshot) -> tuple[Passage, ...]:
        query = self.query
        return snapshot.passages(
            self.groups, query.limit, query.token_budget, merge_adjacent=query.merge_adjacent
        )

    def is_final(self, passages: Sequence[Passage]) -> bool:
        """Whether looking deeper adds nothing: only joined groups make too few passages."""
        return (
            not self.query.merge_adjacent
            or self.query.token_budget > 0
            or len(passages) >= self.query.limit
            or self.below
            or self.complete
        )

    def is_all(self, passages: Sequence[Passage]) -> bool:
        """Whether the collection has no passage but these, or but those of `groups`."""
        # A group below, deeper than which there are worse leaves only, is below for good.
        for_good = self.below and self.query.aggregation in (Aggregation.MAX, Aggregation.MEAN)
        all_taken = len(self.groups) <= self.query.limit or (
            len(passages) < self.query.limit and not self.query.token_budget
        )
        return (self.complete or for_good) and all_taken


def _climb(snapshot: Snapshot, leaves: Leaves, level: int, query: SearchQuery) -> Groups:
    if query.mode is SearchMode.AUTO_MERGE:
        ratio = DEFAULT_MERGE_RATIO if query.merge_ratio is None else query.merge_ratio
        return snapshot.auto_merge(leaves, level, ratio, query.aggregation)
    return snapshot.climb(leaves, level, query.aggregation)


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
    if query.merge_ratio is not None:
        _check_merge_ratio(query.merge_ratio, query.mode)
    if query.filter is not None:
        check_filter(query.filter)
    if query.min_score is not None and not math.isfinite(query.min_score):
        raise InvalidArgument(
            f"min_score is {query.min_score}; it must be a finite number", field="min_score"
        )


def _check_merge_ratio(ratio: float, mode: SearchMode) -> None:
    if mode is not SearchMode.AUTO_MERGE:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; only AUTO_MERGE has one, so leave it unset in {mode.name}",
            field="merge_ratio",
        )
    if not 0 < ratio <= 1:
        raise InvalidArgument(
            f"merge_ratio is {ratio:g}; it must be over 0 and up to 1", field="merge_ratio"
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
