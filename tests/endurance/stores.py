"""Builds large stores in little time, with the real writer and without an embedder.

All documents share one text, because building trees would take longer than the tests. The test
provides the vectors.
"""

from collections.abc import Iterator
from itertools import islice

from hrag.engine import CollectionHandle, PreparedDocument
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.models.embedding import Vectors
from hrag.types import DEFAULT_COLLECTION, CollectionSettings
from hrag.values.tree import ParsedText
from indexer_svc.chunker import build_tree
from tests.endurance import texts

LEAVES_EACH = 20
"""Each document has this many leaves."""

# Each commit has this many documents.
_BATCH = 500


def unit(vectors: Vectors) -> Vectors:
    """Scales each row to unit length in place; returns the same array."""
    vectors /= (vectors * vectors).sum(axis=1, keepdims=True) ** 0.5
    return vectors


def fill(store: Store, tenant_id: str, vectors: Vectors) -> CollectionHandle:
    """Commits documents of LEAVES_EACH leaves to the tenant's default collection, in order.

    `vectors` is `float32[leaves, dimension]` with rows of unit length. Its count of rows must be a
    multiple of LEAVES_EACH.
    """
    writer = EmbeddedWriter(store)
    dimension = vectors.shape[1]
    settings = CollectionSettings(texts.TREE, f"hash/{dimension}", dimension)
    writer.create_collection(tenant_id, DEFAULT_COLLECTION, settings)
    opened = writer.open(tenant_id, DEFAULT_COLLECTION)
    documents = _documents(vectors)
    while batch := [(opened, document) for document in islice(documents, _BATCH)]:
        writer.put_many(batch)
    return opened


def _documents(vectors: Vectors) -> Iterator[PreparedDocument]:
    parsed = ParsedText(texts.text(0, texts.WORDS_OF_LEAVES[LEAVES_EACH]))
    tree = build_tree(parsed, texts.TREE)
    assert tree.counts[0] == LEAVES_EACH
    for number, start in enumerate(range(0, len(vectors), LEAVES_EACH)):
        yield PreparedDocument(
            document_id=texts.document_id(number),
            title="",
            source="",
            mime_type="text/plain",
            metadata={},
            content_hash=f"{number:064x}",
            parsed=parsed,
            tree=tree,
            vectors=vectors[start : start + LEAVES_EACH],
        )
