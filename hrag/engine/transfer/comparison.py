"""Whether two stored documents are the same: values in, names of fields out.

All is compared exactly, except vectors: an engine may store them in 16 bits. So vectors are
equal if their cosine is LOWEST_COSINE at least; rounding to 16 bits leaves it above 0.99999.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.engine_documents import StoredDocument
from hrag.engine.transfer.pairs import Pair
from hrag.models.embedding import Vectors

LOWEST_COSINE = 0.9999


def problem_of(pair: Pair) -> str:
    """Returns what is wrong with a document of source and target; "" if both have the same."""
    source, target = pair.source, pair.target
    if source is None:
        return "is in the target alone"
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
    # Canonical bytes: to Python 1, 1.0 and True are equal.
    if ours.metadata_json != theirs.metadata_json:
        yield "metadata"
    for field in ("text", "sections", "pages"):
        if getattr(ours.parsed, field) != getattr(theirs.parsed, field):
            yield field
    if ours.tree.to_bytes() != theirs.tree.to_bytes():
        yield "tree"
    if not are_alike(ours.vectors, theirs.vectors):
        yield "vectors"
    if not _same_summaries(source, target):
        yield "summaries"


def _same_summaries(source: StoredDocument, target: StoredDocument) -> bool:
    ours, theirs = source.summaries, target.summaries
    if ours is None or theirs is None:
        return ours is theirs
    # Without the blanks around: engines may store a summary with or without them.
    texts = [[(each.text.strip(), each.leaves) for each in own.summaries] for own in (ours, theirs)]
    return texts[0] == texts[1] and are_alike(ours.vectors, theirs.vectors)


def are_alike(ours: Vectors, theirs: Vectors) -> bool:
    """Whether two arrays `float32[n, dimension]` hold the same vectors, but for rounding."""
    if ours.shape != theirs.shape:
        return False
    if np.array_equal(ours, theirs):
        return True
    dots = np.einsum("nd,nd->n", ours, theirs)
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return bool(np.all(dots >= LOWEST_COSINE * norms) and np.all(norms > 0))
