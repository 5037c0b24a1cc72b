"""Computes and encodes term vectors: the terms of one document's leaves.

A term vector is in the table `term_vectors` until maintenance has built postings from it.

A term vector consists of the count of leaves, the length of each leaf, the count of entries of
each leaf, and the entries of all leaves. An entry is an integer with a term id and the frequency of
this term in a leaf, as in `hrag.text.analysis.LeafTerms`. All integers are little-endian.
"""

from collections.abc import Sequence

import numpy as np

from hrag.engine.common.records import DocumentRecord
from hrag.passages.indexed_text import indexed_leaves, indexed_name
from hrag.text.analysis import LeafTerms, analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.tree import Tree

_COUNT = np.dtype("<u4")
_ENTRY = np.dtype("<u8")


def leaf_terms_of(
    record: DocumentRecord, text: str, tree: Tree, settings: CollectionSettings
) -> LeafTerms:
    """Returns the terms of a document's leaves in a collection that has an analyzer."""
    leaves = indexed_leaves(
        text,
        record.title,
        record.sections,
        tree,
        settings.tree.embedding_level,
        headings=settings.index_headings,
        name=indexed_name(settings, record.title, record.name_source, record.document_id),
    )
    return analyzer(settings.analyzer).leaf_terms([leaf.lexical for leaf in leaves])


def packed(terms: LeafTerms) -> bytes:
    """Encodes the terms of a document's leaves as a term vector."""
    count = np.array([len(terms.lengths)], _COUNT)
    entry_counts = np.diff(terms.starts).astype(_COUNT)
    parts = (count, terms.lengths.astype(_COUNT), entry_counts, terms.entries.astype(_ENTRY))
    return b"".join(part.tobytes() for part in parts)


def unpacked(vectors: Sequence[bytes]) -> LeafTerms:
    """Decodes term vectors; returns the terms of all their leaves, in the order of `vectors`."""
    lengths, counts, entries = [np.empty(0, _COUNT)], [np.empty(0, _COUNT)], [np.empty(0, _ENTRY)]
    for vector in vectors:
        (leaves,) = np.frombuffer(vector, _COUNT, 1)
        leaves = int(leaves)
        lengths_and_counts = np.frombuffer(vector, _COUNT, 2 * leaves, _COUNT.itemsize)
        lengths.append(lengths_and_counts[:leaves])
        counts.append(lengths_and_counts[leaves:])
        entries.append(np.frombuffer(vector, _ENTRY, offset=_COUNT.itemsize * (1 + 2 * leaves)))
    starts = np.concatenate(([0], np.cumsum(np.concatenate(counts), dtype=np.int64)))
    return LeafTerms(
        starts.astype(np.int64),
        np.concatenate(entries).astype(np.uint64),
        np.concatenate(lengths).astype(np.uint32),
    )
