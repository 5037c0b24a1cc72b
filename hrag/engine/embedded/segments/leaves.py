"""Reads the leaves of many documents from LMDB into dense arrays.

Tails, segment builds and reindexing all read leaves with this module, so a row means the same for
each of them. A row consists of the leaf's label, the index of its ancestor at every level from
the embedded one up, its vector, and its terms. LMDB does not store terms, because analysing a text
costs less than reading its terms.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import MAX_ORDINAL, labels_of
from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.segments.leaf_terms import NO_LEAVES, joined, without_terms
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import address_of, required
from hrag.models.embedding import Vectors
from hrag.passages.indexed_text import IndexedLeaf, indexed_leaves
from hrag.text.analysis import LeafTerms, analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.tree import Tree


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """Leaves in order of label.

    The shapes are `uint64[n]` for `labels`, `uint32[levels, n]` for `ancestors`, and
    `float32[n, dimension]` for `vectors`. Without an analyzer, the collection's leaves have no
    terms. Without an embedder, the dimension is 0.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    vectors: Vectors
    terms: LeafTerms


def living_ordinals(
    store: Store, txn: Txn, collection: int, after: int = 0, last: int = MAX_ORDINAL
) -> Iterator[tuple[int, int]]:
    """Yields the living ordinals in `(after, last]`, ascending, with their leaf counts."""
    start = schema.in_collection(collection, after + 1)
    for key, value in store.scan(txn, "ordinals", schema.u32(collection), start):
        ordinal = schema.read_in_collection(key)[1]
        if ordinal > last:
            return
        yield ordinal, schema.read_document_entry(value)[0]


def covered_ordinals(
    store: Store, txn: Txn, collection: int, record: SegmentRecord
) -> Iterator[tuple[int, int]]:
    """Yields the living ordinals in a segment's range, with their leaf counts."""
    return living_ordinals(store, txn, collection, record.first_ordinal - 1, record.last_ordinal)


def read_leaves(
    store: Store,
    txn: Txn,
    collection: int,
    settings: CollectionSettings,
    ordinals: Iterable[int],
) -> LeafBlock:
    """Copies the leaves of documents that exist in this transaction, in the order of `ordinals`.

    The labels ascend if the ordinals do. Raises DataLoss.
    """
    level = settings.tree.embedding_level
    heights = settings.tree.top_level - level + 1
    labels = [np.empty(0, np.uint64)]
    ancestors = [np.empty((heights, 0), np.uint32)]
    vectors = [np.empty((0, settings.dimension), np.float32)]
    terms = [NO_LEAVES]
    for ordinal in ordinals:
        address = address_of(store, txn, collection, ordinal)
        tree = Tree(required(txn.get(address, db=store.db["trees"])))
        count = tree.counts[level]
        labels.append(labels_of(ordinal, count))
        ancestors.append(tree.ancestors(level))
        vectors.append(vectors_in_place(store, txn, address, count, settings.dimension))
        if settings.analyzer:
            indexed = read_indexed_leaves(store, txn, address, tree, settings)
            texts = [leaf.lexical for leaf in indexed]
            terms.append(analyzer(settings.analyzer).leaf_terms(texts))
        else:
            terms.append(without_terms(count))
    return LeafBlock(
        np.concatenate(labels),
        np.concatenate(ancestors, axis=1),
        np.concatenate(vectors),
        joined(terms),
    )


def read_indexed_leaves(
    store: Store, txn: Txn, address: bytes, tree: Tree, settings: CollectionSettings
) -> list[IndexedLeaf]:
    """Returns the texts of each leaf that are indexed; see `hrag.passages.indexed_text`."""
    text = str(required(txn.get(address, db=store.db["texts"])), "utf-8")
    level = settings.tree.embedding_level
    if not settings.index_headings:
        return indexed_leaves(text, "", (), tree, level, headings=False)
    record = DocumentRecord.from_bytes(required(txn.get(address, db=store.db["documents"])))
    return indexed_leaves(text, record.title, record.sections, tree, level, headings=True)


def vectors_in_place(store: Store, txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a document's vectors, `float32[count, dimension]`.

    They are not copied if LMDB stores them in a single value. They are valid until the transaction
    ends.
    """
    value = required(txn.get(address, db=store.db["vectors"]))
    return np.frombuffer(value, "<f4", count * dimension).reshape(count, dimension)
