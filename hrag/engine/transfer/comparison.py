"""Compares a document in two stores, and finds the names of the fields that differ.

Everything is compared exactly, except vectors, because an engine may round them to 16 bits. Two
vectors are regarded as equal if their cosine is at least LOWEST_COSINE. The cosine of a vector and
the same vector rounded to 16 bits is above 0.99999.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.engine_documents import StoredDocument
from hrag.engine.transfer.pairs import Pair
from hrag.models.embedding import Vectors

LOWEST_COSINE = 0.9999


def problem_of(pair: Pair) -> str:
    """Returns a text that says how a document differs between source and target.

    Returns "" if the document is equal in both.
    """
    source, target = pair.source, pair.target
    if source is None:
        return "exists only in the target"
    if not isinstance(source, StoredDocument):
        return f"cannot be read from the source: {source.problem}"
    if target is None:
        return "is missing in the target"
    if not isinstance(target, StoredDocument):
        return f"cannot be read from the target: {target.problem}"
    fields = ", ".join(differing_fields(source, target))
    return f"differs: {fields}" if fields else ""


def differing_fields(source: StoredDocument, target: StoredDocument) -> Iterator[str]:
    """Yields the names of the fields in which two documents differ."""
    ours, theirs = source.document, target.document
    for field in ("document_id", "title", "source", "mime_type", "content_hash"):
        if getattr(ours, field) != getattr(theirs, field):
            yield field
    # The metadata are compared as canonical JSON. As Python values, 1, 1.0 and True would be equal.
    if ours.metadata_json != theirs.metadata_json:
        yield "metadata"
    for field in ("text", "sections", "pages"):
        if getattr(ours.parsed, field) != getattr(theirs.parsed, field):
            yield field
    if ours.tree.to_bytes() != theirs.tree.to_bytes():
        yield "tree"
    if not are_alike(ours.vectors, theirs.vectors):
        yield "vectors"
    if ours.original != theirs.original:
        yield "original"
    if not _have_same_summaries(source, target):
        yield "summaries"


def _have_same_summaries(source: StoredDocument, target: StoredDocument) -> bool:
    """Returns True if both documents have the same summaries, or if neither has summaries."""
    ours, theirs = source.summaries, target.summaries
    if ours is None or theirs is None:
        return ours is theirs
    # The texts of summaries are compared without white space at their beginning and end, because an
    # engine may remove this white space.
    texts = [
        [(summary.text.strip(), summary.leaves) for summary in stored.summaries]
        for stored in (ours, theirs)
    ]
    return texts[0] == texts[1] and are_alike(ours.vectors, theirs.vectors)


def are_alike(ours: Vectors, theirs: Vectors) -> bool:
    """Returns True if two arrays contain the same vectors in the same order, apart from rounding.

    The arrays are `float32[n, dimension]`. Two vectors are regarded as the same if their cosine is
    at least LOWEST_COSINE.
    """
    if ours.shape != theirs.shape:
        return False
    if np.array_equal(ours, theirs):
        return True
    dots = np.einsum("nd,nd->n", ours, theirs)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return bool(np.all(dots >= LOWEST_COSINE * norms) and np.all(norms > 0))
