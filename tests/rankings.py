"""A snapshot that is a plain ranking, for tests of the pipeline above it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hrag import errors
from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.embedding.cache import CachedQueries
from hrag.embedding.hashing import HashEmbedder
from hrag.engine import Describe
from hrag.filters import Filter
from hrag.types import (
    Aggregation,
    CollectionSettings,
    SearchQuery,
    SummaryScope,
    TreeSettings,
)
from retriever_svc.pipeline import Search

DIMENSION = 4
TREE = TreeSettings((32, 64, 128, 256), 0.0)
SETTINGS = CollectionSettings(TREE, f"hash/{DIMENSION}", DIMENSION)
QUERY = SearchQuery("t", "what do cats do?")
SEQUENCE = 7


@dataclass(frozen=True)
class FakeLeaves:
    """Leaves as the names of the ancestors they lie in."""

    ancestors: Sequence[str]
    complete: bool
    exact: bool = True

    def __len__(self) -> int:
        return len(self.ancestors)


class FakeGroups(list[str]):
    """Names of ancestors, best first; the score of one is minus its place."""

    def reaching(self, score: float) -> "FakeGroups":
        return FakeGroups(name for place, name in enumerate(self) if -place >= score)


@dataclass
class FakeSnapshot:
    """Its ranking names, best leaf first, the ancestor of every leaf. Remembers its calls."""

    ranking: Sequence[str]
    settings: CollectionSettings = SETTINGS
    sequence: int = SEQUENCE
    is_open: bool = False
    vectors: list[Vectors] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    climbs: list[tuple[int, Aggregation]] = field(default_factory=list)
    merges: list[tuple[int, float, Aggregation]] = field(default_factory=list)
    budgets: list[int] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    summaries: list[tuple[int, SummaryScope]] = field(default_factory=list)
    sections: tuple[str, ...] = ()

    @property
    def leaf_count(self) -> int:
        return len(self.ranking)

    def filtered(self, filter: Filter, deadline: Deadline = NEVER) -> "FakeSnapshot":
        """Every other leaf passes, whatever the filter says."""
        assert self.is_open
        self.filters.append(filter)
        return replace(self, ranking=self.ranking[::2])

    def summary_first(self, query: Vectors, count: int, scope: SummaryScope) -> "FakeSnapshot":
        """Each ancestor is a section; the first of them are chosen."""
        assert self.is_open
        self.summaries.append((count, scope))
        sections = tuple(dict.fromkeys(self.ranking))[:count]
        ranking = [name for name in self.ranking if name in sections]
        return replace(self, ranking=ranking, sections=sections)

    def search(self, query: Vectors, wanted: int) -> FakeLeaves:
        assert self.is_open
        self.vectors.append(query)
        self.counts.append(wanted)
        return FakeLeaves(self.ranking[:wanted], wanted >= len(self.ranking))

    def climb(self, leaves: FakeLeaves, level: int, aggregation: Aggregation) -> FakeGroups:
        self.climbs.append((level, aggregation))
        return FakeGroups(dict.fromkeys(leaves.ancestors))

    def auto_merge(
        self, leaves: FakeLeaves, level: int, ratio: float, aggregation: Aggregation
    ) -> FakeGroups:
        self.merges.append((level, ratio, aggregation))
        return FakeGroups(dict.fromkeys(leaves.ancestors))

    def passages(
        self,
        groups: FakeGroups,
        limit: int,
        token_budget: int,
        *,
        merge_adjacent: bool,
        cut_last: bool,
    ) -> tuple[str, ...]:
        """Neighbours are those with the same first letter."""
        assert self.is_open
        self.budgets.append(token_budget)
        if merge_adjacent:
            return tuple(dict.fromkeys(name[0] for name in groups))[:limit]
        return tuple(groups[:limit])

    def encoded_passages(
        self,
        groups: FakeGroups,
        limit: int,
        token_budget: int,
        describe: Describe,
        **options: bool,
    ) -> tuple[bytes, ...]:
        return tuple(
            each.encode() for each in self.passages(groups, limit, token_budget, **options)
        )


class FakeReader:
    """A store with one collection; `sequences` are what it has come to, look by look."""

    def __init__(self, snapshot: FakeSnapshot, sequences: Iterator[int] | None = None) -> None:
        self._snapshot = snapshot
        self._sequences = sequences or count(SEQUENCE)
        self.snapshots = 0

    @contextmanager
    def snapshot(
        self, tenant_id: str, collection: str, *, summaries: bool
    ) -> Iterator[FakeSnapshot]:
        self.snapshots += 1
        assert summaries or not self._snapshot.summaries
        self._snapshot.is_open = True
        yield self._snapshot
        self._snapshot.is_open = False

    def settings(self, tenant_id: str, collection: str) -> CollectionSettings:
        return self._snapshot.settings

    def sequence(self, tenant_id: str) -> int:
        return next(self._sequences)


class Embedder(HashEmbedder):
    """Counts texts; must not be asked while a snapshot is open, which is to be short."""

    def __init__(self, snapshot: FakeSnapshot, dimension: int = DIMENSION, name: str = "") -> None:
        super().__init__(dimension)
        self.name = name or self.name
        self.batches: list[list[str]] = []
        self.failure: errors.HragError | None = None
        self.refused = ""
        self._snapshot = snapshot

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        assert not self._snapshot.is_open
        self.batches.append(list(texts))
        if self.failure is not None:
            raise self.failure
        if self.refused and self.refused in texts:
            raise errors.EmbedderRejected("no")
        return super().embed(texts, deadline)


def search_of(
    snapshot: FakeSnapshot, return_level: int = 2, embedder: Any = None, reader: Any = None
) -> Search:
    embedder = embedder or Embedder(snapshot)
    reader = reader or FakeReader(snapshot)
    queries, sentences = CachedQueries(embedder, 10), CachedQueries(embedder, 10)
    return Search(reader, embedder, queries, sentences, return_level)
