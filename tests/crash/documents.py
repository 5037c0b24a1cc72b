"""Documents that are computed from their tenant, id and version.

So a test that has written a hundred thousand documents remembers only their versions. From the
metadata of any passage, it computes the text that the passage must be a part of.
"""

import random
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hrag.engine import PreparedDocument
from hrag.models.embedding.hashing import HashEmbedder
from hrag.passages.indexed_text import indexed_leaves
from hrag.types import (
    ChosenSection,
    CollectionSettings,
    Document,
    Passage,
    SearchMode,
    SummaryUnit,
    TreeSettings,
)
from indexer_svc.extractive import extract
from tests.support.documents.fakes import ANALYZER, SCORE_TOLERANCE, prepared
from tests.support.documents.vocabulary import sentence

EMBEDDER = HashEmbedder(32)
TREE = TreeSettings((32, 64, 128))
SETTINGS = CollectionSettings(
    TREE,
    EMBEDDER.name,
    EMBEDDER.dimension,
    summaries=SummaryUnit.CHUNK,
    analyzer=ANALYZER,
    index_headings=True,
    keep_originals=True,
)
VARIABLES = {
    "HRAG_EMBEDDER": f"hash:{EMBEDDER.dimension}",
    "HIERARCHICAL_CHUNK_LEVELS": "32,64,128",
    "HRAG_SEGMENT_MIN_LEAVES": "64",
    "HRAG_SUMMARIES": SETTINGS.summaries.value,
    "HRAG_SUMMARY_MIN_CHARS": "1",
    "HRAG_KEEP_ORIGINALS": "true",
}
SMALL = "small"
"""The tenant whose documents are so short that none is ever sealed."""
_MAX_SENTENCES = 50
_MAX_SMALL_SENTENCES = 6

Vector = list[float]
Query = Vector | str
"""What a search is for: a vector, or a text."""


def title_of(tenant_id: str, document_id: str, version: int) -> str:
    """Returns the title of a version of a document.

    The title is indexed with each leaf. The id of the document is only in the title.
    """
    return f"{document_id} of {tenant_id}, version {version}"


@lru_cache(maxsize=4096)
def text_of(tenant_id: str, document_id: str, version: int) -> str:
    """Returns the text of a version of a document: numbered sentences of about a dozen tokens."""
    max_sentences = _MAX_SMALL_SENTENCES if tenant_id == SMALL else _MAX_SENTENCES
    draw = random.Random(f"{tenant_id} {document_id} {version}")
    return "".join(
        f"{number}: {sentence(draw)}" for number in range(draw.randint(1, max_sentences))
    )


def file_of(tenant_id: str, document_id: str, version: int) -> bytes | None:
    """Returns the file as which a version of a document is sent; None if it is sent as a text."""
    return text_of(tenant_id, document_id, version).encode() if version % 2 else None


def document_of(tenant_id: str, document_id: str, version: int) -> Document:
    """Returns a version of a document as a client sends it."""
    key = (tenant_id, document_id, version)
    body = file_of(*key) or text_of(*key)
    return Document(body, document_id, title_of(*key), metadata={"version": version})


@lru_cache(maxsize=4096)
def prepared_of(tenant_id: str, document_id: str, version: int) -> PreparedDocument:
    """Returns a version of a document with the tree and the vectors that must be stored."""
    key = (tenant_id, document_id, version)
    text, title = text_of(*key), title_of(*key)
    document = prepared(document_id, text, SETTINGS)
    document = replace(document, title=title, source="", original=file_of(*key))
    leaves = indexed_leaves(text, title, (), document.tree, TREE.embedding_level, headings=True)
    return replace(document, vectors=EMBEDDER.embed([leaf.embedded for leaf in leaves]))


def check_passage(tenant_id: str, passage: Passage, query: Query, mode: SearchMode) -> int:
    """Returns the version of the document that a passage is from.

    Fails if the passage has another text than this version. In the mode STANDARD, it also fails if
    a search by vector returned a wrong score.
    """
    chunk = passage.chunk
    version = int(chunk.metadata["version"])
    text = text_of(tenant_id, chunk.document_id, version)
    assert chunk.content == text[chunk.span.char_start : chunk.span.char_end], passage
    if mode is SearchMode.STANDARD and not isinstance(query, str):
        title = title_of(tenant_id, chunk.document_id, version)
        indexed = f"{title}\n{chunk.content}"
        score = float(EMBEDDER.embed([indexed])[0].astype(np.float64) @ query)
        assert abs(passage.score - score) < SCORE_TOLERANCE, (passage, score)
    return version


def check_section(tenant_id: str, section: ChosenSection, version: int) -> None:
    """Fails unless the section's summary is the one of its text in this version of the document."""
    span, text = section.span, text_of(tenant_id, section.document_id, version)
    content = text[span.char_start : span.char_end].strip()
    assert section.summary == extract(content, EMBEDDER), section


def random_query(source: random.Random) -> Vector:
    """Returns a random unit vector."""
    drawn = np.array([source.gauss(0, 1) for _ in range(EMBEDDER.dimension)], np.float32)
    return [float(component) for component in drawn / np.linalg.norm(drawn)]
