"""A fake snapshot that returns a fixed ranking, for tests of the retriever's pipeline."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hrag import errors
from hrag.engine import (
    Encoded,
    FindRequest,
    FindResult,
    PassageForm,
    RankedChunk,
    RankedChunks,
)
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import CollectionSettings, SearchMode, SearchQuery, TreeSettings
from hrag.values.deadline import NEVER, Deadline
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from retriever_svc.rerank_stage import RerankSetup
from retriever_svc.search_pipeline import Search

DIMENSION = 4
TREE = TreeSettings((32, 64, 128, 256), 0.0)
SETTINGS = CollectionSettings(TREE, f"hash/{DIMENSION}", DIMENSION)
QUERY = SearchQuery("t", "what do cats do?")
SEQUENCE = 7


STAGES = (("search", 0.0, 0.002), ("climb", 0.002, 0.005), ("fetch", 0.005, 0.009))
FILTERED = ("filter", 0.0, 0.005)


@dataclass
class PlainSnapshot:
    """A snapshot with a fixed ranking. It records its requests.

    `ranking` has the name of each leaf's passage, best leaf first.
    """

    ranking: Sequence[str]
    settings: CollectionSettings = SETTINGS
    sequence: int = SEQUENCE
    is_open: bool = False
    name: str = "c"
    requests: list[FindRequest] = field(default_factory=list)

    def find(self, request: FindRequest, form: Any) -> FindResult[Any]:
        """Returns the best passages. The key of a chunk is the index of its name in `ranking`.

        If there is a filter, the first leaf of the ranking and every second leaf after it pass. In
        the mode SUMMARY_FIRST, each passage is also a section; scores that decide choose three.
        """
        assert self.is_open
        self.requests.append(request)
        ranking = self.ranking[:: 1 if request.filter is None else 2]
        sections: tuple[Any, ...] = ()
        if request.mode is SearchMode.SUMMARY_FIRST:
            sections = tuple(dict.fromkeys(ranking))[: request.top_sections or 3]
            ranking = [name for name in ranking if name in sections]
        reranked = [self.ranking[key] for key in request.rerank_scores]
        names = tuple(dict.fromkeys([*reranked, *ranking]))
        scores = dict(zip(reranked, request.rerank_scores.values(), strict=True))
        return FindResult(
            passages=self._read(names[: request.limit], form, scores),
            considered=len(ranking),
            eligible_leaves=len(ranking),
            exact=True,
            exhausted=len(names) <= request.limit,
            stages=STAGES if request.filter is None else (FILTERED, *STAGES),
            sections=sections,
        )

    def passage(self, name: str) -> Any:
        """Returns the name itself, which stands for a passage."""
        return name

    def _read(
        self, names: Sequence[str], form: Any, rerank_scores: Mapping[str, float]
    ) -> tuple[Any, ...]:
        if isinstance(form, RankedChunks):
            index = self.ranking.index
            return tuple(RankedChunk(index(name), self.passage(name)) for name in names)
        if rerank_scores:
            passages = (
                replace(self.passage(name), rerank_score=rerank_scores.get(name)) for name in names
            )
            return tuple(map(form.from_value, passages))
        return tuple(self.in_form(name, form) for name in names)

    def in_form(self, name: str, form: PassageForm[Any]) -> Any:
        """Returns a passage in the requested form."""
        return form.from_value(self.passage(name))


class FakeSnapshot(PlainSnapshot):
    """A snapshot that encodes passages as their names."""

    def in_form(self, name: str, form: PassageForm[Any]) -> Any:
        return name.encode() if isinstance(form, Encoded) else super().in_form(name, form)


class FakeReader:
    """A store with one collection. Each call of `sequence` returns the next of `sequences`."""

    def __init__(self, snapshot: PlainSnapshot, sequences: Iterator[int] | None = None) -> None:
        self._snapshot = snapshot
        self._sequences = sequences or count(SEQUENCE)
        # Each entry is the tenant and the collection of an opened snapshot.
        self.opened: list[tuple[str, str]] = []
        self.tenants: list[str] = []

    @property
    def snapshots(self) -> int:
        """The count of snapshots that have been opened."""
        return len(self.opened)

    @contextmanager
    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> Iterator[PlainSnapshot]:
        self.opened.append((tenant_id, collection))
        self._snapshot.is_open = True
        try:
            yield self._snapshot
        finally:
            self._snapshot.is_open = False
        last_mode = self._snapshot.requests[-1:] and self._snapshot.requests[-1].mode
        assert summaries == (last_mode is SearchMode.SUMMARY_FIRST)

    def sequence(self, tenant_id: str) -> int:
        self.tenants.append(tenant_id)
        return next(self._sequences)


class Embedder(HashEmbedder):
    """An embedder that records its batches.

    It asserts that no snapshot is open while it embeds, because a snapshot must be closed soon.
    It raises `failure` if that is set, and rejects a batch that contains the text `refused`.
    """

    def __init__(self, snapshot: PlainSnapshot, dimension: int = DIMENSION, name: str = "") -> None:
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
    snapshot: PlainSnapshot,
    return_level: int = 2,
    embedder: Any = None,
    reader: Any = None,
    reranking: RerankSetup | None = None,
    reply: ReplyLimit = UNLIMITED,
) -> Search:
    embedder = embedder or Embedder(snapshot)
    reader = reader or FakeReader(snapshot)
    queries = CachedQueries(embedder, 10)
    return Search(reader, embedder, queries, return_level, reranking=reranking, reply=reply)
