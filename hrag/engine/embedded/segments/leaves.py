"""Reads the leaves of many documents from LMDB into dense arrays.

The tail of a view, a segment build and a reindexing all read leaves with this module, so a row has
the same meaning in all three. Each row describes one leaf: its label, its vector, its terms, and
the index of its ancestor at every level from the leaves' level to the top level. At the leaves'
level, this is the index of the leaf itself. The terms are computed from the text, because LMDB does
not store them: analysing a text takes less time than reading its terms.
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
from hrag.passages.indexed_text import IndexedLeaf, indexed_leaves, indexed_name
from hrag.text.analysis import LeafTerms, analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """The labels, ancestors, vectors and terms of n leaves, in the same order in each array.

    `labels` is `uint64[n]`. `ancestors` is `uint32[levels, n]`: the index of each leaf's ancestor
    at each level, from the leaves' level up. `vectors` is `float32[n, dimension]`; the dimension is
    0 if the collection has no embedder. If the collection has no analyzer, the leaves have no
    terms.
    """

    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    vectors: Vectors
    terms: LeafTerms


def living_ordinals(
    txn: Txn, collection: int, after: int = 0, last: int = MAX_ORDINAL
) -> Iterator[tuple[int, int]]:
    """Yields the ordinal and the leaf count of each existing document in a range of ordinals.

    The ordinals are above `after` and at most `last`, and ascend.
    """
    start = collection, after + 1
    for (_, ordinal), entry in txn.ordinals.entries(collection, start=start):
        if ordinal > last:
            return
        yield ordinal, entry.leaf_count


def covered_ordinals(txn: Txn, collection: int, record: SegmentRecord) -> Iterator[tuple[int, int]]:
    """Yields the ordinal and the leaf count of each existing document that a segment covers."""
    return living_ordinals(txn, collection, record.first_ordinal - 1, record.last_ordinal)


def read_leaves(
    txn: Txn,
    collection: int,
    settings: CollectionSettings,
    ordinals: Iterable[int],
) -> LeafBlock:
    """Copies the leaves of documents from LMDB, in the order of `ordinals`.

    The documents must exist in this transaction. `ordinals` may be in any order; the labels of the
    block ascend if the ordinals ascend. Raises DataLoss if stored data of a document is missing or
    damaged.
    """
    level = settings.tree.embedding_level
    level_count = settings.tree.top_level - level + 1
    labels = [np.empty(0, np.uint64)]
    ancestors = [np.empty((level_count, 0), np.uint32)]
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
    """Returns the indexed text of each leaf of a document, in order.

    Each result has the text from which the leaf's vector is computed, and the text from which the
    leaf's terms are computed. Raises DataLoss if the document's text or record is missing or
    damaged.
    """
    text = str(txn.contents.text(address), "utf-8")
    level = settings.tree.embedding_level
    if not settings.index_headings:
        return indexed_leaves(text, "", (), tree, level, headings=False)
    record = txn.documents.require(address)
    name = indexed_name(settings, record.title, record.name_source, record.document_id)
    sections = record.sections
    return indexed_leaves(text, record.title, sections, tree, level, headings=True, name=name)


def vectors_in_place(txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a document's vectors, `float32[count, dimension]`.

    If LMDB stores the document's tree, text and vectors in a single value, the result is not a
    copy, but points into LMDB's pages. So do not use the result after the transaction has ended.
    With dimension 0, nothing is read. Raises DataLoss if the vectors are missing or damaged, or if
    they have another size.
    """
    if not dimension:
        return np.empty((count, 0), np.float32)
    stored = txn.contents.vectors(address)
    if len(stored) != count * dimension * _FLOAT_BYTES:
        raise DataLoss(
            f"the store is damaged: it has {len(stored):,} bytes of vectors for {count:,} leaves "
            f"of dimension {dimension:,}; `hrag check` names the document"
        )
    return np.frombuffer(stored, "<f4").reshape(count, dimension)
