"""Generates short documents. A document's number and version determine its text.

All texts differ, so no two leaves have the same vector of the hash embedder.
"""

import random
from collections.abc import Iterable, Iterator

from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, TreeSettings
from hrag.values.tree import ParsedText
from indexer_svc.chunker import build_tree

TREE = TreeSettings((32, 64, 128), 0.1)
SMALL_LEVELS = {
    "HIERARCHICAL_CHUNK_LEVELS": ",".join(map(str, TREE.level_sizes)),
    "HIERARCHICAL_OVERLAP_RATIO": str(TREE.overlap_ratio),
}
WORDS_OF_LEAVES = {1: 18, 2: 42, 3: 66, 20: 545}
"""How many words a text needs to have 1, 2, 3 or 20 leaves in TREE. A word is about a token."""

_SENTENCE = (
    "the harbour opens before sunrise and ships from every coast unload grain timber salt "
    "books letters while clerks count barrels under yellow lamps until evening brings rain"
)
_WORDS = _SENTENCE.split()


def text(number: int, words: int, version: int = 0) -> str:
    """Returns a sentence that begins with number and version, followed by `words` words."""
    drawn = random.Random(number << 20 | version).choices(_WORDS, k=words)
    return f"{number} {version} {' '.join(drawn)}."


def documents(
    numbers: Iterable[int], leaves: tuple[int, ...], version: int = 0
) -> Iterator[Document]:
    """Yields a document for each number. How many leaves it has cycles through `leaves`."""
    for number in numbers:
        words = WORDS_OF_LEAVES[leaves[number % len(leaves)]]
        yield Document(text(number, words, version), document_id(number))


def document_id(number: int) -> str:
    return f"document-{number:07d}"


def leaf_vectors(body: str, embedder: HashEmbedder) -> Vectors:
    """Returns the vectors of a body's leaves, `float32[leaves, dimension]`."""
    parsed = ParsedText(body)
    leaves = build_tree(parsed, TREE).level(TREE.embedding_level)
    bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
    return embedder.embed([body[start:end] for start, end in bounds])
