"""The leaves of a corpus, each with its parent's text, for peers that store them together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import trees
from benchmarks.peers.peer import FoundPassage
from benchmarks.peers.scale.corpus import SeededCorpus


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf: its row, its vector, and its parent, which has a number in the corpus."""

    row: int
    vector: NDArray[np.float32]
    parent: int
    passage: FoundPassage
    """The parent with its text. Leaves of one parent share this object."""


def leaves_with_parents(corpus: SeededCorpus) -> Iterator[Leaf]:
    """Yields all leaves in the order of their rows."""
    first_parent = 0
    for document in corpus:
        parents = [
            FoundPassage(document.document_id, document.text[piece.start : piece.end], piece.start)
            for piece in trees.pieces(document.tree, trees.PARENT_LEVEL)
        ]
        leaves = trees.pieces(document.tree, trees.TREE.embedding_level)
        for number, (leaf, vector) in enumerate(zip(leaves, document.vectors, strict=True)):
            yield Leaf(
                document.first_row + number,
                vector,
                first_parent + leaf.parent,
                parents[leaf.parent],
            )
        first_parent += len(parents)
