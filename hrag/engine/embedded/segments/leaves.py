"""Reads the leaves of many documents from LMDB into dense arrays.

Tails, segment builds and reindexing all read leaves with this module, so their rows have the same
meaning. A row has the leaf's label, the index of its ancestor at every level from the embedded
level to the top, its vector, and its terms. LMDB does not store the terms of leaves, because
analysing a text takes less time than reading its terms.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import MAX_ORDINAL, labels_of
from hrag.engine.embedded.segments.leaf_terms import NO_LEAVES, joined, without_terms
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.models.embedding import Vectors
from hrag.passages.indexed_text import IndexedLeaf, indexed_leaves
from hrag.text.analysis import LeafTerms, analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.tree import Tree


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """The data of n leaves, in order of label.

    The shapes are `uint64[n]` for `labels`, `uint32[levels, n]` for `ancestors`, and
    `float32[n, dimension]` for `vectors`. If the collection has no analyzer, the leaves have no
    terms. If it has no embedder, the dimension is 0.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    vectors: Vectors
    terms: LeafTerms


def living_ordinals(
    txn: Txn, collection: int, after: int = 0, last: int = MAX_ORDINAL
) -> Iterator[tuple[int, int]]:
    """Yields the ordinals of existing documents with their leaf counts, ascending.

    The ordinals are above `after` and at most `last`.
    """
    start = collection, after + 1
    for (_, ordinal), entry in txn.ordinals.entries(collection, start=start):
        if ordinal > last:
            return
        yield ordinal, entry.leaf_count


def covered_ordinals(txn: Txn, collection: int, record: SegmentRecord) -> Iterator[tuple[int, int]]:
    """Yields the ordinals of existing documents in a segment's range, with their leaf counts."""
    return living_ordinals(txn, collection, record.first_ordinal - 1, record.last_ordinal)


def read_leaves(
    txn: Txn,
    collection: int,
    settings: CollectionSettings,
    ordinals: Iterable[int],
) -> LeafBlock:
    """Copies the leaves of documents from LMDB, in the order of `ordinals`.

    The documents must exist in this transaction. The ordinals must ascend if the labels of the
    block have to ascend. Raises DataLoss.
    """
    level = settings.tree.embedding_level
    heights = settings.tree.top_level - level + 1
    labels = [np.empty(0, np.uint64)]
    ancestors = [np.empty((heights, 0), np.uint32)]
    vectors = [np.empty((0, settings.dimension), np.float32)]
    terms = [NO_LEAVES]
    for ordinal in ordinals:
        address = address_of(txn, collection, ordinal)
        tree = Tree(txn.contents.tree(address))
        count = tree.counts[level]
        labels.append(labels_of(ordinal, count))
        ancestors.append(tree.ancestors(level))
        vectors.append(vectors_in_place(txn, address, count, settings.dimension))
        if settings.analyzer:
            indexed = read_indexed_leaves(txn, address, tree, settings)
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
    txn: Txn, address: bytes, tree: Tree, settings: CollectionSettings
) -> list[IndexedLeaf]:
    """Returns for each leaf the texts from which its vector and its terms are computed.

    See `hrag.passages.indexed_text`. Raises DataLoss.
    """
    text = str(txn.contents.text(address), "utf-8")
    level = settings.tree.embedding_level
    if not settings.index_headings:
        return indexed_leaves(text, "", (), tree, level, headings=False)
    record = txn.documents.require(address)
    return indexed_leaves(text, record.title, record.sections, tree, level, headings=True)


def vectors_in_place(txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a document's vectors, `float32[count, dimension]`. Raises DataLoss.

    If LMDB stores them in a single value, the result points into LMDB's pages instead of being a
    copy. The result is valid until the transaction ends.
    """
    vectors = np.frombuffer(txn.contents.vectors(address), "<f4", count * dimension)
    return vectors.reshape(count, dimension)
