"""Labels: the 64-bit numbers under which leaves are indexed, and their arithmetic.

A label is `ordinal << LEAF_BITS | leaf`. The ordinal identifies one version of one document, and
`leaf` is the index of a leaf in this document, from 0. So labels sort by document, and the labels
of a document's leaves are consecutive.
"""

import numpy as np
from numpy.typing import NDArray

LEAF_BITS = 20
# A document may have at most this many leaves, because the leaf's index must fit into a label.
MAX_LEAVES = 1 << LEAF_BITS
MAX_ORDINAL = (1 << (64 - LEAF_BITS)) - 1

_BITS = np.uint64(LEAF_BITS)
_LEAF_MASK = MAX_LEAVES - 1

Labels = NDArray[np.uint64]


def label(ordinal: int, leaf: int) -> int:
    """Returns the label of the leaf with the index `leaf` in the document with this ordinal."""
    return ordinal << LEAF_BITS | leaf


def split_label(label: int) -> tuple[int, int]:
    """Returns the ordinal of the document and the index of the leaf that a label consists of."""
    return label >> LEAF_BITS, label & _LEAF_MASK


def labels_of(ordinal: int, count: int) -> Labels:
    """Returns the labels of the first `count` leaves of a document, ascending: `uint64[count]`."""
    first = label(ordinal, 0)
    return np.arange(first, first + count, dtype=np.uint64)


def first_labels(ordinals: Labels) -> Labels:
    """Returns the labels of the first leaves of the documents with these ordinals: `uint64[n]`."""
    return ordinals << _BITS


def ordinals_of(labels: Labels) -> Labels:
    """Returns the document's ordinal in each label, in the order of `labels`: `uint64[n]`."""
    return labels >> _BITS


def leaves_of(labels: Labels) -> Labels:
    """Returns the index of the leaf in each label, in the order of `labels`: `uint64[n]`."""
    return labels & np.uint64(_LEAF_MASK)
