"""The seam to storage: a writer that commits whole documents, a reader that searches.

The embedded engine (LMDB, hnswlib, `hrag_fast`) implements both. The seam lies where a
database with vectors could do the work too: a document with its tree and vectors passes
it one way; leaves, groups and passages the other. Methods raise `hrag.errors` only.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from hrag.deadline import NEVER, Deadline
from hrag.engine.documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    PreparedDocument,
    StoredDocument,
    Summary,
    Unsummarised,
)
from hrag.engine.find import Describe, Vector
from hrag.engine.protocols import Writer
from hrag.filters import Filter
from hrag.ids import ChunkId
from hrag.passages.sentence_context import SentenceContext
from hrag.types import (
    Aggregation,
    ChosenSection,
    ChunkNode,
    CollectionSettings,
    Hierarchy,
    Passage,
    ReaderStatus,
    SummaryScope,
)

__all__ = [
    "Admission",
    "CollectionHandle",
    "Describe",
    "DocumentSummaries",
    "Groups",
    "Leaves",
    "PreparedDocument",
    "Reader",
    "Snapshot",
    "StoredDocument",
    "Summary",
    "Unsummarised",
    "Vector",
    "Writer",
]


class Leaves(Protocol):
    """Leaves that a search found, with their scores; opaque to the caller."""

    @property
    def complete(self) -> bool:
        """Whether every leaf of the snapshot is among them."""

    @property
    def exact(self) -> bool:
        """Whether no other leaf of the snapshot is nearer for certain."""

    def __len__(self) -> int:
        """How many they are."""


class Groups(Protocol):
    """Leaves grouped by the chunk that stands for them, best first; opaque to the caller."""

    def __len__(self) -> int: ...

    def reaching(self, score: float) -> "Groups":
        """Those that have this score or a better one."""


class Snapshot(Protocol):
    """One collection as it stood at one change, for the length of one call."""

    @property
    def settings(self) -> CollectionSettings: ...

    @property
    def sequence(self) -> int: ...

    @property
    def leaf_count(self) -> int:
        """How many leaves a search can find."""

    def filtered(self, filter: Filter, deadline: Deadline = NEVER) -> "Snapshot":
        """The same snapshot, in which a search finds only leaves of documents that pass.

        The filter has been checked. Raises DeadlineExceeded.
        """

    def summary_first(self, query: Vector, count: int, scope: SummaryScope) -> "Snapshot":
        """The same snapshot, in which a search finds only leaves of some sections.

        Of those whose summaries are nearest to the query, `count` at most. With
        SummaryScope.DOCUMENTS they are sections of the `count` documents whose summaries
        are nearest. The reader was asked for summaries.
        """

    @property
    def sections(self) -> tuple[ChosenSection, ...]:
        """Those that `summary_first` has chosen, best first."""

    def search(self, query: Vector, count: int) -> Leaves:
        """The `count` leaves nearest to `query`, `float32[dimension]` of unit length."""

    def climb(self, leaves: Leaves, level: int, aggregation: Aggregation) -> Groups:
        """Groups leaves by their ancestor at `level`, scored and ordered."""

    def auto_merge(
        self, leaves: Leaves, level: int, ratio: float, aggregation: Aggregation
    ) -> Groups:
        """Groups leaves by the chunk, at `level` at most, of which enough matched.

        A chunk takes its children's place where at least `ratio` of them stand for
        leaves, and two at least unless it has but one; none of the chunks lies inside
        another.
        """

    def passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[Passage, ...]:
        """Reads the best groups; a budget of 0 tokens is none.

        `merge_adjacent` joins those of one document that overlap or touch, until one more
        would be apart from `limit` others. `cut_last` ends with the first that does not
        fit, of which it takes the sentences that do.
        """

    def encoded_passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        describe: Describe,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[bytes, ...]:
        """The same passages, each as a message hrag.v1.SearchResponse that holds it alone.

        `describe` gives those fields of hrag.v1.Chunk that are the document's own; what it
        gives may be kept for the document's other chunks.
        """

    def stretches(self, groups: Groups, limit: int, margin: int) -> tuple[SentenceContext, ...]:
        """The best groups' chunks with `margin` sentences on either side."""

    def chunk(self, chunk_id: ChunkId) -> ChunkNode: ...

    def hierarchy(self, chunk_id: ChunkId, depth: int, *, content: bool) -> Hierarchy: ...


class Reader(Protocol):
    """Opens snapshots that hold every change acknowledged before."""

    def snapshot(
        self, tenant_id: str, collection: str, *, summaries: bool = False
    ) -> AbstractContextManager[Snapshot]:
        """Raises CollectionNotFound and, with `summaries`, NoSummaries."""

    def settings(self, tenant_id: str, collection: str) -> CollectionSettings: ...

    def sequence(self, tenant_id: str) -> int:
        """The tenant's last change, 0 before the first."""

    def status(self) -> ReaderStatus: ...

    def close(self) -> None: ...
