"""Pairs of documents with the same id in two stores.

The exports of both stores are ordered by document id. So a merge join of the two exports finds the
pairs in one pass, with only one document of each store in memory at a time. If a document is
written during the pass, and the pass has already reached a greater id, the document is not yielded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hrag.engine.engine_documents import ExportedDocument


@dataclass(frozen=True, slots=True)
class Pair:
    """The two documents with the id `document_id`: one in the source and one in the target.

    `source` is None if only the target has the document. `target` is None if only the source has
    the document.
    """

    document_id: str
    source: ExportedDocument | None
    target: ExportedDocument | None


def pairs(source: Iterator[ExportedDocument], target: Iterator[ExportedDocument]) -> Iterator[Pair]:
    """Yields a pair for each document id in the exports of two stores, in order of ids."""
    next_source, next_target = next(source, None), next(target, None)
    while next_source is not None or next_target is not None:
        document_id = min(
            document.document_id for document in (next_source, next_target) if document is not None
        )
        ours = (
            next_source
            if next_source is not None and next_source.document_id == document_id
            else None
        )
        theirs = (
            next_target
            if next_target is not None and next_target.document_id == document_id
            else None
        )
        yield Pair(document_id, ours, theirs)
        next_source = next_source if ours is None else next(source, None)
        next_target = next_target if theirs is None else next(target, None)
