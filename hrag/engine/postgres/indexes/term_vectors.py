"""Encodes term vectors: the terms of one document's leaves, for the table `term_vectors`.

All numbers are little-endian. A term vector has the number of leaves, the lengths of all leaves,
the number of entries of each leaf, and the entries of all leaves in the format of
`hrag.text.analysis.LeafTerms`.
"""

from collections.abc import Sequence

import numpy as np

from hrag.text.analysis import LeafTerms

_COUNT = np.dtype("<u4")
_ENTRY = np.dtype("<u8")


def packed(terms: LeafTerms) -> bytes:
    """Encodes the terms of a document's leaves."""
    count = np.array([len(terms.lengths)], _COUNT)
    entry_counts = np.diff(terms.starts).astype(_COUNT)
    parts = (count, terms.lengths.astype(_COUNT), entry_counts, terms.entries.astype(_ENTRY))
    return b"".join(part.tobytes() for part in parts)


def unpacked(vectors: Sequence[bytes]) -> LeafTerms:
    """Decodes the term vectors of several documents; their leaves follow each other."""
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
