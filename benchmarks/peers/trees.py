"""hrag's chunk tree, for hrag and for peers without a splitter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.peer import Text
from hrag.types import TreeSettings
from hrag.values.tree import ParsedText, Tree
from indexer_svc.chunker import build_tree

# Leaves have up to 256 tokens; the chunks of the levels above have up to 512, 1,024 and 2,048.
TREE = TreeSettings()
PARENT_LEVEL = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk, with the index of its ancestor at a higher level."""

    start: int
    end: int
    parent: int


def cut(text: str) -> Tree:
    """Returns the tree of a plain text."""
    return build_tree(ParsedText(text), TREE)


def pieces(tree: Tree, level: int, above: int = PARENT_LEVEL) -> list[Piece]:
    """Returns the chunks of one level in order. `parent` is their ancestor at the level `above`."""
    chunks = tree.level(level)
    parents = tree.ancestors(level)[above - level]
    fields = (chunks["char_start"], chunks["char_end"], parents)
    return [Piece(*row) for row in np.stack(fields, axis=1).tolist()]


def leaf_texts(documents: Sequence[Text]) -> list[str]:
    """Returns the texts of all leaves of the documents."""
    return [
        document.text[leaf.start : leaf.end]
        for document in documents
        for leaf in pieces(cut(document.text), TREE.embedding_level)
    ]
