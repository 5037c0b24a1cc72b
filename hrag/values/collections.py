"""Collections and their settings."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Generic, TypeVar

from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_CHUNK_TOKENS, MAX_LEVELS, MAX_OVERLAP_RATIO, MIN_CHUNK_TOKENS

NO_EMBEDDER = "none"


class SummaryUnit(StrEnum):
    """The parts of a document that get a summary, in addition to the whole document.

    With NONE, the whole document gets no summary either.
    """

    NONE = "none"
    CHUNK = "chunk"
    PAGE = "page"
    SECTION = "section"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The settings for cutting a document into a tree of chunks.

    Equal settings and equal texts result in equal trees.

    Raises InvalidArgument for values out of range.
    """

    level_sizes: tuple[int, ...] = (256, 512, 1024, 2048)
    overlap_ratio: float = 0.1
    embedding_level: int = 0

    def __post_init__(self) -> None:
        _check_level_sizes(self.level_sizes)
        if not 0.0 <= self.overlap_ratio <= MAX_OVERLAP_RATIO:
            raise InvalidArgument(
                f"overlap_ratio is {self.overlap_ratio}; "
                f"it must be from 0.0 to {MAX_OVERLAP_RATIO}",
                field="overlap_ratio",
            )
        if not 0 <= self.embedding_level <= self.top_level:
            raise InvalidArgument(
                f"embedding_level is {self.embedding_level}; "
                f"it must be from 0 to {self.top_level}, the top level",
                field="embedding_level",
            )

    @property
    def top_level(self) -> int:
        """The number of the highest level. The lowest level is 0."""
        return len(self.level_sizes) - 1

    @property
    def leaf_tokens(self) -> int:
        """The maximum number of tokens in a leaf."""
        return self.level_sizes[self.embedding_level]

    def check_return_level(self, level: int) -> None:
        """Raises InvalidArgument if a search cannot return chunks of `level`.

        A search returns leaves or their ancestors, so chunks below the leaves cannot be returned.
        """
        if not self.embedding_level <= level <= self.top_level:
            raise InvalidArgument(
                f"return_level is {level}; it must be from {self.embedding_level}, "
                f"the embedded level, to {self.top_level}, the top level",
                field="return_level",
            )


def _check_level_sizes(sizes: tuple[int, ...]) -> None:
    shown = ",".join(map(str, sizes))
    if not 1 <= len(sizes) <= MAX_LEVELS:
        raise InvalidArgument(
            f"level_sizes is '{shown}' ({len(sizes)} levels); it must have 1 to {MAX_LEVELS} "
            "levels",
            field="level_sizes",
        )
    if any(not MIN_CHUNK_TOKENS <= size <= MAX_CHUNK_TOKENS for size in sizes):
        raise InvalidArgument(
            f"level_sizes is '{shown}'; each size must be from "
            f"{MIN_CHUNK_TOKENS} to {MAX_CHUNK_TOKENS} tokens",
            field="level_sizes",
        )
    if any(small >= big for small, big in pairwise(sizes)):
        raise InvalidArgument(
            f"level_sizes is '{shown}'; sizes must be strictly increasing", field="level_sizes"
        )


@dataclass(frozen=True, slots=True)
class CollectionSettings:
    """Settings that are fixed when a collection is created.

    If the embedder is NO_EMBEDDER, the collection has no vectors and its dimension is 0. `analyzer`
    is the name and version of the analyzer of the lexical index. An empty `analyzer` means that the
    collection has no lexical index, because the collection is older than lexical indexes.
    Reindexing sets `analyzer` to the newest version. With `index_headings`, the indexed text of a
    leaf begins with the document's title and the leaf's section path. Since version 2 of the
    analyzers, the words of the document's name that the title lacks follow in the lexical index.
    With `keep_originals`, the file from which a document was read is stored with the document.
    """

    tree: TreeSettings
    embedder: str
    dimension: int
    return_level: int | None = None
    summaries: SummaryUnit = SummaryUnit.NONE
    analyzer: str = ""
    index_headings: bool = False
    keep_originals: bool = False

    def __post_init__(self) -> None:
        if self.return_level is not None:
            self.tree.check_return_level(self.return_level)


@dataclass(frozen=True, slots=True)
class SettingsRequest:
    """The settings that a client requests for a new collection; None means the indexer's default.

    `embedder` may be NO_EMBEDDER. `analyzer` is the name of a language, for example `english`.
    """

    level_sizes: tuple[int, ...] | None = None
    overlap_ratio: float | None = None
    embedding_level: int | None = None
    return_level: int | None = None
    summaries: SummaryUnit | None = None
    embedder: str | None = None
    analyzer: str | None = None
    index_headings: bool | None = None
    keep_originals: bool | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name of a collection; every call accepts it in place of the collection's name."""

    name: str
    collection: str


@dataclass(frozen=True, slots=True)
class AliasChange:
    """A change of an alias. `alias` is the alias after the change.

    `previous_collection` is the collection that the alias named before the change; empty for a new
    alias. `sequence` is the sequence number of the change among the changes of the tenant.
    """

    alias: Alias
    previous_collection: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of one tenant's documents."""

    tenant_id: str
    name: str
    settings: CollectionSettings
    document_count: int = 0


@dataclass(frozen=True, slots=True)
class ReembedProgress:
    """How far a collection is that is being embedded again.

    `collection` is the collection as it is now. `embedded_documents` is the count of documents that
    the call has embedded, and `remaining_documents` that of the documents that are not embedded
    yet. If `is_finished` is True, the collection has the new embedder. `sequence` is then the
    sequence number of the change that finished it; 0 if an earlier call finished it.
    """

    collection: Collection
    embedded_documents: int
    remaining_documents: int
    sequence: int
    is_finished: bool


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item]):
    """One page of a list of items, which are in `items`.

    `next_page_token` is the `page_token` of the call that returns the next page. It is empty on the
    last page.
    """

    items: tuple[Item, ...]
    next_page_token: str
