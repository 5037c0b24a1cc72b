"""Builders of test documents, and a plain model of a collection.

The model stores whole documents in dictionaries and compares every vector with every query,
so it defines which leaves an engine must return.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.engine import PreparedDocument, Vector
from hrag.engine.common.labels import MAX_ORDINAL
from hrag.engine.embedded.maintenance import build_plan, segment_build
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.find import VALUES, Encoded, FindRequest, FindResult
from hrag.engine.protocols import Snapshot
from hrag.filters import Filter
from hrag.models.embedding import Vectors
from hrag.text.analysis import DEFAULT_LANGUAGE, analyzer_name
from hrag.types import (
    DEFAULT_CONTEXT_TOKENS,
    NO_EMBEDDER,
    Aggregation,
    CollectionSettings,
    Passage,
    SearchMode,
    SummaryUnit,
    TreeSettings,
)
from hrag.v1 import retriever_pb2
from hrag.values.ids import parse_chunk_id
from hrag.values.tree import ParsedText
from hrag.wire.passages import PASSAGE_FIELDS, encoded_passage
from indexer_svc.chunker import build_tree
from tests.support.engines.filter_model import passes

DIMENSION = 16
ANALYZER = analyzer_name(DEFAULT_LANGUAGE)
SMALL_TREE = TreeSettings((32, 64, 128), 0.1)
# Engines sum float32 products in different orders, so scores of a leaf may differ by this much.
SCORE_TOLERANCE = 1e-5
ENCODED = Encoded(PASSAGE_FIELDS, encoded_passage)

Leaf = tuple[str, int]
"""A leaf: the id of its document, and its index among the leaves of the document."""


def collection_settings(
    tree: TreeSettings = SMALL_TREE,
    dimension: int = DIMENSION,
    summaries: SummaryUnit = SummaryUnit.NONE,
    analyzer: str = ANALYZER,
) -> CollectionSettings:
    """Returns settings of a collection with the embedder `fake`, or `none` if `dimension` is 0."""
    return CollectionSettings(
        tree,
        "fake" if dimension else NO_EMBEDDER,
        dimension,
        summaries=summaries,
        analyzer=analyzer,
        index_headings=True,
    )


def unit_vectors(count: int, seed: int, dimension: int = DIMENSION) -> Vectors:
    """Returns random unit vectors, `float32[count, dimension]`, that are exact in float16."""
    drawn = np.random.default_rng(seed).normal(size=(count, dimension))
    return as_half_precision(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def as_half_precision(vectors: NDArray[Any]) -> Vectors:
    """Returns the vectors rounded to half precision, so every engine stores them unchanged."""
    return vectors.astype(np.float16).astype(np.float32)


def sentences(count: int, seed: int = 0) -> str:
    """Returns a text of `count` sentences, about eight tokens each."""
    return "".join(f"Sentence {seed} {number} tells a short story. " for number in range(count))


def prepared(
    document_id: str,
    text: str | ParsedText,
    settings: CollectionSettings | None = None,
    seed: int = 0,
    vectors: Vectors | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> PreparedDocument:
    """Returns a document with its tree, and with `vectors` or, if they are None, random vectors.

    The content hash covers text, vectors and metadata.
    """
    settings = settings or collection_settings()
    parsed = ParsedText(text) if isinstance(text, str) else text
    tree = build_tree(parsed, settings.tree)
    if vectors is None:
        leaves = tree.counts[settings.tree.embedding_level]
        vectors = unit_vectors(leaves, seed, settings.dimension)
    metadata = {"seed": seed, "tags": ["a", "ü"]} if metadata is None else metadata
    content = parsed.text.encode() + vectors.tobytes()
    return PreparedDocument(
        document_id=document_id,
        title=f"Title of {document_id}",
        source=f"https://example.org/{document_id}",
        mime_type="text/plain",
        metadata=metadata,
        content_hash=hashlib.sha256(repr(metadata).encode() + content).hexdigest(),
        parsed=parsed,
        tree=tree,
        vectors=vectors,
    )


def seal(store: Store, collection: int) -> SegmentRecord | None:
    """Builds a segment of a collection's whole tail, however short it is.

    Returns None if the tail is empty.
    """
    plan = build_plan.seal_plan(store, collection, 1, busy_ordinal=MAX_ORDINAL)
    return segment_build.build(store, plan) if plan else None


def run_maintenance(
    store: Store, collection: int, threshold: int, damaged: frozenset[int] = frozenset()
) -> int:
    """Builds and merges segments until none is due; returns the count of segments built."""
    steps = 0
    while plan := build_plan.seal_plan(
        store, collection, threshold, damaged
    ) or build_plan.merge_plan(store, collection, damaged):
        segment_build.build(store, plan)
        steps += 1
    return steps


@dataclass
class ModelGroup:
    """The score of a chunk, and its matched leaves with their scores."""

    score: float
    leaves: dict[Leaf, float]


@dataclass
class ModelCollection:
    """A collection that is searched by comparing every vector with the query."""

    settings: CollectionSettings = field(default_factory=collection_settings)
    documents: dict[str, PreparedDocument] = field(default_factory=dict)

    @property
    def leaf_count(self) -> int:
        return sum(len(document.vectors) for document in self.documents.values())

    def put(self, document: PreparedDocument) -> None:
        self.documents[document.document_id] = document

    def filtered(self, filter: Filter) -> "ModelCollection":
        """Returns the model of the documents that pass the filter."""
        passing = {
            document_id: document
            for document_id, document in self.documents.items()
            if passes(filter, document)
        }
        return ModelCollection(self.settings, passing)

    def scores(self, query: Vector) -> dict[Leaf, float]:
        """Returns the cosine of every leaf's vector with `query`, which is a unit vector."""
        leaves = [
            (document_id, leaf)
            for document_id, document in self.documents.items()
            for leaf in range(len(document.vectors))
        ]
        none = np.empty((0, len(query)))
        vectors = [none, *(document.vectors for document in self.documents.values())]
        return dict(zip(leaves, (np.concatenate(vectors) @ query).tolist(), strict=True))

    def groups(
        self, leaves: dict[Leaf, float], level: int, aggregation: Aggregation
    ) -> dict[str, ModelGroup]:
        """Returns the leaves grouped by the chunk id of their ancestor at `level`."""
        leaves_by_chunk: dict[str, dict[Leaf, float]] = defaultdict(dict)
        for (document_id, leaf), score in leaves.items():
            rows = self.documents[document_id].tree.ancestors(self.settings.tree.embedding_level)
            ancestor = int(rows[level - self.settings.tree.embedding_level, leaf])
            leaves_by_chunk[f"{document_id}#{level}.{ancestor}"][document_id, leaf] = score
        return {
            chunk_id: ModelGroup(aggregated(list(scores.values()), aggregation), scores)
            for chunk_id, scores in leaves_by_chunk.items()
        }


def aggregated(scores: Sequence[float], aggregation: Aggregation) -> float:
    """Returns a passage's score from the scores of its matched leaves."""
    match aggregation:
        case Aggregation.MAX:
            return max(scores)
        case Aggregation.SUM:
            return sum(scores)
        case Aggregation.MEAN:
            return sum(scores) / len(scores)
        case Aggregation.COUNT:
            return float(len(scores))


def matched_leaves(passages: Iterable[Passage]) -> dict[Leaf, float]:
    """Returns the matched leaves of passages with their scores; fails if a leaf occurs twice."""
    leaves: dict[Leaf, float] = {}
    for passage in passages:
        for child in passage.matched_children:
            chunk_id = parse_chunk_id(child.chunk_id)
            leaf = (chunk_id.document_id, chunk_id.index)
            assert leaf not in leaves
            leaves[leaf] = child.score
    return leaves


def find(
    snapshot: Snapshot,
    query: Vector | None,
    count: int,
    level: int | None = None,
    mode: SearchMode = SearchMode.SMALL_TO_BIG,
    **options: Any,
) -> FindResult[Any]:
    """Searches for `count` passages with `count` candidates.

    `level` is the level of the passages, by default the level of the leaves. `options` are further
    fields of FindRequest. The mode CONTEXT gets its default token budget.
    """
    level = snapshot.settings.tree.embedding_level if level is None else level
    fields: dict[str, Any] = {"limit": count, "candidates": count}
    if mode is SearchMode.CONTEXT:
        fields |= {"token_budget": DEFAULT_CONTEXT_TOKENS, "merge_adjacent": True, "cut_last": True}
    return read_passages(snapshot, FindRequest(query, mode, level, **fields | options))


def read_passages(snapshot: Snapshot, request: FindRequest) -> FindResult[Any]:
    """Searches twice, for passages as values and as encoded bytes; fails if they differ.

    Returns the values.
    """
    result, encoded = snapshot.find(request, VALUES), snapshot.find(request, ENCODED)
    sent = [retriever_pb2.SearchResponse.FromString(passage) for passage in encoded.passages]
    expected = [
        retriever_pb2.SearchResponse.FromString(encoded_passage(passage))
        for passage in result.passages
    ]
    assert sent == expected
    assert replace(encoded, passages=(), stages=()) == replace(result, passages=(), stages=())
    return result


def search_passages(
    snapshot: Snapshot,
    query: Vector,
    count: int,
    level: int,
    aggregation: Aggregation = Aggregation.MAX,
    **options: Any,
) -> tuple[Passage, ...]:
    """Returns the best `count` passages at `level`."""
    return find(snapshot, query, count, level, aggregation=aggregation, **options).passages


def search_leaves(
    snapshot: Snapshot, query: Vector, count: int, **options: Any
) -> dict[Leaf, float]:
    """Returns the `count` nearest leaves with scores; `options` are fields of FindRequest."""
    return matched_leaves(find(snapshot, query, count, **options).passages)


def recall(leaves: dict[Leaf, float], model: ModelCollection, query: Vector, count: int) -> float:
    """Returns the recall of `leaves` among the best `count`; fails if a score is wrong.

    The recall is computed from scores, because leaves with equal scores are interchangeable.
    """
    expected = model.scores(query)
    for leaf, score in leaves.items():
        # Rounding may make a vector longer than 1. Some engines limit cosines to 1.
        assert abs(min(score, 1.0) - min(expected[leaf], 1.0)) < SCORE_TOLERANCE
    best = np.sort(list(expected.values()))[::-1][:count]
    assert len(leaves) == len(best)
    if not len(best):
        return 1.0
    reached = np.array(list(leaves.values())) >= best[-1] - SCORE_TOLERANCE
    return float(reached.mean())


def query_vector(seed: int, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """Returns a random unit vector, `float32[dimension]`."""
    return unit_vectors(1, seed + 1_000_000, dimension)[0]
