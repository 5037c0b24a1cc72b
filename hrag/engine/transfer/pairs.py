"""Pairs of documents with the same id in two stores.

Both exports are ordered by id, so one pass over both is a merge join, with one document of each
store in memory at a time. If a document with a smaller id than that of the last pair is written
meanwhile, it is not yielded.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hrag.engine.engine_documents import ExportedDocument


@dataclass(frozen=True, slots=True)
class Pair:
    """A document in source and target; None if a store does not have it. At least one has it."""

    document_id: str
    source: ExportedDocument | None
    target: ExportedDocument | None


def pairs(source: Iterator[ExportedDocument], target: Iterator[ExportedDocument]) -> Iterator[Pair]:
    """Yields every document of the two exports once, in order of ids."""
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
