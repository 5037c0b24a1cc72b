"""A search: embed, find leaves, climb, group, enough passages?, fetch.

One pipeline for every mode; what a mode changes is which chunks stand for the leaves that
matched. All of a search reads one snapshot. Candidates are leaves, limits are passages:
while too few passages come out and more leaves exist, it looks at more leaves.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from hrag import metrics, tracing
from hrag.deadline import Deadline
from hrag.embedding import Embedder
from hrag.embedding.cache import CachedQueries
from hrag.embedding.checks import check_embedder
from hrag.engine import Groups, Leaves, Reader, Snapshot, Vector
from hrag.errors import (
    EmbedderRejected,
    HragError,
    SequenceNotReached,
    outcome_of,
)
from hrag.passages import sentence_windows
from hrag.passages.sentence_context import SentenceContext
from hrag.passages.sentence_windows import Window
from hrag.tracing import Stage
from hrag.types import (
    DEFAULT_MERGE_RATIO,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
    Aggregation,
    ChosenSection,
    CollectionSettings,
    Passage,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
    SummaryScope,
    Timings,
    check_batch,
)
from hrag.wire.retriever import EncodedResult, described_document, encoded_passage
from retriever_svc.checks import check_dimension, check_query, unit

P = TypeVar("P")  # A passage, as a value or encoded.

_DEEPEN = 4  # Each round looks at so many times more leaves: few rounds, little waste.
_WAIT_S = 0.002  # Between looks at a sequence that is awaited.
_LONGEST_WAIT_S = 30.0  # A call without a deadline must not keep its thread for ever.


@dataclass(frozen=True, slots=True)
class _Took:
    """What the stages of a search took; one that comes again does so in later rounds."""

    stages: list[Stage]

    def add(self, stage: str, began: float, ended: float) -> None:
        self.stages.append((stage, began, ended))

    def seconds(self) -> dict[str, float]:
        """Of each stage that the search had."""
        seconds: dict[str, float] = {}
        for stage, began, ended in self.stages:
            seconds[stage] = seconds.get(stage, 0.0) + ended - began
        return seconds


@dataclass(frozen=True, slots=True)
class _Seen:
    """The snapshot a search looked at, and what it saw there."""

    sequence: int
    matched_at_level: int
    eligible: int
    considered: int
    exact: bool
    sections: tuple[ChosenSection, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, leaves: Leaves) -> "_Seen":
        return cls(
            sequence=snapshot.sequence,
            matched_at_level=snapshot.settings.tree.embedding_level,
            eligible=snapshot.leaf_count,
            considered=len(leaves),
            exact=leaves.exact,
            sections=snapshot.sections,
        )


@dataclass(frozen=True, slots=True)
class _Form(Generic[P]):
    """How passages are made: read by a snapshot, or of values."""

    read: Callable[[Snapshot, Groups, SearchQuery], tuple[P, ...]]
    of: Callable[[Passage], P]


def _values(snapshot: Snapshot, groups: Groups, query: SearchQuery) -> tuple[Passage, ...]:
    return snapshot.passages(
        groups,
        query.limit,
        query.token_budget,
        merge_adjacent=query.merge_adjacent,
        cut_last=query.cut_last,
    )


def _encoded(snapshot: Snapshot, groups: Groups, query: SearchQuery) -> tuple[bytes, ...]:
    return snapshot.encoded_passages(
        groups,
        query.limit,
        query.token_budget,
        described_document,
        merge_adjacent=query.merge_adjacent,
        cut_last=query.cut_last,
    )


_VALUES: _Form[Passage] = _Form(_values, lambda passage: passage)
_ENCODED: _Form[bytes] = _Form(_encoded, encoded_passage)


@dataclass(frozen=True, slots=True)
class _Found(Generic[P]):
    passages: tuple[P, ...]
    level: int
    exhausted: bool
    seen: _Seen


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
        sentences: CachedQueries,
        return_level: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._reader = reader
        self._embedder = embedder
        self._queries = queries
        self._sentences = sentences
        self._return_level = return_level
        self._clock = clock

    def __call__(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Raises InvalidArgument, CollectionNotFound, EmbedderMismatch and the embedder's."""
        result, passages = self._one(query, deadline, _VALUES)
        return replace(result, passages=passages)

    def encoded(self, query: SearchQuery, deadline: Deadline) -> EncodedResult:
        """The same, as what is sent: of what is not sent, no value is made."""
        return EncodedResult(*self._one(query, deadline, _ENCODED))

    def batch(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[EncodedResult | HragError]:
        """Each one's result or own error, in order; texts are embedded together.

        Raises InvalidArgument for no query and for too many.
        """
        check_batch(len(queries))
        began = self._clock()
        patience = deadline.within(_LONGEST_WAIT_S)  # Of all of them together.
        prepared = [
            query if isinstance(query, HragError) else outcome_of(self._prepare, query, patience)
            for query in queries
        ]
        vectors = self._vectors(prepared, deadline)
        embedded = self._clock()
        outcomes: list[EncodedResult | HragError] = []
        for query, vector in zip(prepared, vectors, strict=True):
            if isinstance(query, HragError):
                outcomes.append(query)
            elif isinstance(vector, HragError):
                outcomes.append(vector)
            else:
                found = outcome_of(self._run, query, vector, began, embedded, deadline, _ENCODED)
                outcomes.append(found if isinstance(found, HragError) else EncodedResult(*found))
        return outcomes

    def _one(
        self, query: SearchQuery, deadline: Deadline, form: _Form[P]
    ) -> tuple[SearchResult, tuple[P, ...]]:
        began = self._clock()
        self._prepare(query, deadline.within(_LONGEST_WAIT_S))
        vector = self._vector(query, deadline)
        return self._run(query, vector, began, self._clock(), deadline, form)

    def _prepare(self, query: SearchQuery, patience: Deadline) -> SearchQuery:
        """Refuses what can be refused before anything is embedded, and waits for the change."""
        check_query(query)
        self._wait_for(query.tenant_id, query.min_sequence, patience)
        if _needs_embedder(query):
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
        form: _Form[P],
    ) -> tuple[SearchResult, tuple[P, ...]]:
        """The result without its passages, and these."""
        deadline.check("embedding")
        took = _Took([("embed", began, embedded)])
        find = self._find_windows if query.mode is SearchMode.SENTENCE_WINDOW else self._find
        found = find(query, vector, took, deadline, form)
        seconds = took.seconds()
        metrics.search_finished(seconds.items())
        tracing.add(took.stages)
        result = SearchResult(
            passages=(),
            mode=query.mode,
            matched_at_level=found.seen.matched_at_level,
            returned_at_level=found.level,
            candidates_considered=found.seen.considered,
            exhausted=found.exhausted,
            sequence=found.seen.sequence,
            timings=Timings(
                embed_us=_us(seconds["embed"]),
                search_us=_us(seconds["search"]),
                climb_us=_us(seconds["climb"]),
                fetch_us=_us(seconds["fetch"]),
                total_us=_us(self._clock() - began),
                filter_us=_us(seconds.get("filter", 0.0)),
            ),
            plan=SearchPlan.SCAN if found.seen.exact else SearchPlan.INDEX,
            eligible_leaves=found.seen.eligible,
            sections=found.seen.sections,
        )
        return result, found.passages

    @contextmanager
    def _opened(
        self, query: SearchQuery, vector: Vector, took: _Took, deadline: Deadline
    ) -> Iterator[Snapshot]:
        """A snapshot of what the query may find."""
        by_summaries = query.mode is SearchMode.SUMMARY_FIRST
        with self._reader.snapshot(
            query.tenant_id, query.collection, summaries=by_summaries
        ) as whole:
            if _needs_embedder(query):
                check_embedder(whole.settings, self._embedder.name, len(vector))
            check_dimension(vector, whole.settings)
            snapshot: Snapshot = whole
            if query.filter is not None:
                began = self._clock()
                snapshot = snapshot.filtered(query.filter, deadline)
                took.add("filter", began, self._clock())
            if by_summaries:
                began = self._clock()
                count = query.top_sections or DEFAULT_TOP_SECTIONS
                scope = query.summary_scope or SummaryScope.SECTIONS
                snapshot = snapshot.summary_first(vector, count, scope)
                took.add("search", began, self._clock())
            yield snapshot

    def _wait_for(self, tenant_id: str, sequence: int, patience: Deadline) -> None:
        while sequence and (committed := self._reader.sequence(tenant_id)) < sequence:
            if patience.remaining_s <= _WAIT_S:
                raise SequenceNotReached(
                    f"min_sequence is {sequence}; the tenant's last change is {committed}",
                    field="min_sequence",
                )
            patience.check("waiting for min_sequence")
            time.sleep(_WAIT_S)

    def _vector(self, query: SearchQuery, deadline: Deadline) -> Vector:
        if isinstance(query.query, str):
            return self._queries.embed_query(query.query, deadline)
        return unit(np.asarray(query.query, np.float32))

    def _vectors(
        self, queries: Sequence[SearchQuery | HragError], deadline: Deadline
    ) -> list[Vector | HragError]:
        """Of each query its vector or what is wrong with it; all texts at once."""
        sound = [query for query in queries if isinstance(query, SearchQuery)]
        texts = list({query.query: None for query in sound if isinstance(query.query, str)})
        of_text = dict(zip(texts, self._queries.embed_each(texts, deadline), strict=True))
        vectors: list[Vector | HragError] = []
        for query in queries:
            if isinstance(query, HragError):
                vectors.append(query)
            elif isinstance(query.query, str):
                vectors.append(of_text[query.query])
            else:
                vectors.append(outcome_of(self._vector, query, deadline))
        return vectors

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
        self,
        query: SearchQuery,
        vector: Vector,
        took: _Took,
        deadline: Deadline,
        form: _Form[P],
    ) -> _Found[P]:
        count = max(query.candidates, query.limit)
        with self._opened(query, vector, took, deadline) as snapshot:
            level = self._level(query, snapshot.settings)
            while True:
                leaves, groups = self._look(snapshot, vector, count, level, query, took)
                if len(groups) >= query.limit or leaves.complete:
                    began = self._clock()
                    choice = _Choice.of(groups, leaves, query)
                    passages = form.read(snapshot, choice.groups, query)
                    took.add("fetch", began, self._clock())
                    if choice.is_final(len(passages)):
                        seen = _Seen.of(snapshot, leaves)
                        return _Found(passages, level, choice.is_all(len(passages)), seen)
                deadline.check("searching")
                count *= _DEEPEN

    def _look(
        self,
        snapshot: Snapshot,
        vector: Vector,
        count: int,
        level: int,
        query: SearchQuery,
        took: _Took,
    ) -> tuple[Leaves, Groups]:
        began = self._clock()
        leaves = snapshot.search(vector, count)
        searched = self._clock()
        groups = _climb(snapshot, leaves, level, query)
        took.add("search", began, searched)
        took.add("climb", searched, self._clock())
        return leaves, groups

    def _find_windows(
        self,
        query: SearchQuery,
        vector: Vector,
        took: _Took,
        deadline: Deadline,
        form: _Form[P],
    ) -> _Found[P]:
        """Each round reads one snapshot and closes it before sentences are embedded."""
        margin = DEFAULT_WINDOW_SENTENCES
        if query.window_sentences is not None:
            margin = query.window_sentences
        wanted = 2 * query.limit
        while True:
            with self._opened(query, vector, took, deadline) as snapshot:
                level = snapshot.settings.tree.embedding_level
                count = max(query.candidates, wanted)
                leaves, groups = self._look(snapshot, vector, count, level, query, took)
                began = self._clock()
                stretches = snapshot.stretches(groups, wanted, margin)
                took.add("fetch", began, self._clock())
                seen = _Seen.of(snapshot, leaves)
            deadline.check("searching")
            all_seen = leaves.complete and len(stretches) == len(groups)
            began = self._clock()
            found, left = self._windows(query, vector, stretches, margin, deadline)
            took.add("embed", began, self._clock())
            if len(found) == query.limit or all_seen:
                passages = sentence_windows.chosen(found, query)
                exhausted = all_seen and not left and len(passages) == len(found)
                return _Found(tuple(map(form.of, passages)), level, exhausted, seen)
            deadline.check("embedding sentences")
            wanted *= _DEEPEN

    def _windows(
        self,
        query: SearchQuery,
        vector: Vector,
        stretches: Sequence[SentenceContext],
        margin: int,
        deadline: Deadline,
    ) -> tuple[list[Window], bool]:
        """The best leaves' windows until there are `limit` of them; whether leaves are left."""
        found: list[Window] = []
        rest = list(stretches)
        while rest and len(found) < query.limit:
            some, rest = rest[: query.limit - len(found)], rest[query.limit - len(found) :]
            best = self._best(some, vector, deadline)
            for stretch, (number, score) in zip(some, best, strict=True):
                new = sentence_windows.window(stretch, number, score, margin)
                found = sentence_windows.with_another(found, new, or_touches=query.merge_adjacent)
        return found, bool(rest)

    def _best(
        self, stretches: Sequence[SentenceContext], vector: Vector, deadline: Deadline
    ) -> Iterator[tuple[int, float]]:
        """Each one's best sentence with its score; where there is one alone, with the leaf's."""
        numbers = [sentence_windows.candidates(stretch) for stretch in stretches]
        texts = [
            stretch.sentences[number].content.strip()
            for stretch, own in zip(stretches, numbers, strict=True)
            if len(own) > 1
            for number in own
        ]
        vectors = iter(self._sentences.embed_each(texts, deadline))
        for stretch, own in zip(stretches, numbers, strict=True):
            if len(own) == 1:
                yield own[0], stretch.score
            else:
                scores = [_score(next(vectors), vector) for _ in own]
                best = int(np.argmax(scores))
                yield own[best], scores[best]


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

    def is_final(self, passages: int) -> bool:
        """Whether looking deeper adds nothing: only joined groups make too few passages."""
        return (
            not self.query.merge_adjacent
            or self.query.token_budget > 0
            or passages >= self.query.limit
            or self.below
            or self.complete
        )

    def is_all(self, passages: int) -> bool:
        """Whether the collection has no passage but these, or but those of `groups`."""
        # A group below, deeper than which there are worse leaves only, is below for good.
        for_good = self.below and self.query.aggregation in (Aggregation.MAX, Aggregation.MEAN)
        all_taken = len(self.groups) <= self.query.limit or (
            passages < self.query.limit and not self.query.token_budget
        )
        return (self.complete or for_good) and all_taken


def _score(sentence: Vector | HragError, vector: Vector) -> float:
    """The cosine; of a sentence that the embedder refuses, the worst."""
    if isinstance(sentence, EmbedderRejected):
        return -1.0
    if isinstance(sentence, HragError):
        raise sentence
    return float(sentence @ vector)


def _needs_embedder(query: SearchQuery) -> bool:
    return isinstance(query.query, str) or query.mode is SearchMode.SENTENCE_WINDOW


def _climb(snapshot: Snapshot, leaves: Leaves, level: int, query: SearchQuery) -> Groups:
    if query.mode is SearchMode.AUTO_MERGE:
        ratio = DEFAULT_MERGE_RATIO if query.merge_ratio is None else query.merge_ratio
        return snapshot.auto_merge(leaves, level, ratio, query.aggregation)
    if query.mode is SearchMode.SENTENCE_WINDOW:  # Which aggregates sentences, not leaves.
        return snapshot.climb(leaves, level, Aggregation.MAX)
    return snapshot.climb(leaves, level, query.aggregation)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
