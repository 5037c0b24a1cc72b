"""Summaries are stored as documents of a summary collection.

A collection with summaries has a summary collection, which cannot be opened by name. For each
summarised document, the summary collection has one summary document with the same id, title, source
and metadata. The leaves of the summary document are the summaries. So summaries are committed,
sealed, filtered and searched like other documents. A summary document is deleted in the same
transaction as the document that it summarises. So a search never finds a summary of a deleted
document.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.records import Buffer, DocumentRecord
from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    PreparedDocument,
    Summary,
)
from hrag.text import tokens
from hrag.values.collections import CollectionSettings, SummaryUnit, TreeSettings
from hrag.values.limits import MAX_CHUNK_TOKENS
from hrag.values.tree import CHUNK, NONE, ParsedText, Tree


def summary_settings(settings: CollectionSettings) -> CollectionSettings:
    """Returns the settings of the summary collection that belongs to a collection.

    `settings` are the settings of the collection. The summary collection has one level, and each
    summary is a leaf.
    """
    tree = TreeSettings((MAX_CHUNK_TOKENS,), overlap_ratio=0.0)
    return replace(settings, tree=tree, return_level=None, summaries=SummaryUnit.NONE)


def summary_handle(handle: CollectionHandle, number: int) -> CollectionHandle:
    """Returns the handle (tenant, name, id and settings) of a collection's summary collection.

    `handle` is the handle of the collection, and `number` is the id of its summary collection.
    """
    settings = summary_settings(handle.settings)
    return replace(handle, collection_id=number, settings=settings)


def as_document(document: DocumentRecord, summaries: DocumentSummaries) -> PreparedDocument:
    """Returns the summary document to store for `document`.

    The text of the summary document consists of the texts in `summaries`. There must be at least
    one summary.
    """
    pieces = [f"{summary.text.strip()}\n" for summary in summaries.summaries]
    return PreparedDocument(
        document_id=document.document_id,
        title=document.title,
        source=document.source,
        mime_type="",
        metadata=document.metadata,
        content_hash=document.content_hash,
        parsed=ParsedText("".join(pieces)),
        tree=Tree.from_levels([_level(pieces)]),
        vectors=summaries.vectors,
        indexed_source=document.indexed_source,
    )


def sections_of(summaries: DocumentSummaries) -> tuple[range, ...]:
    """Returns, for each summary of a section, the range of the document's leaves in the section.

    The first summary is left out, because it summarises the whole document.
    """
    return tuple(summary.leaves for summary in summaries.summaries[1:])


def summaries_in(
    tree: Tree, text: Buffer, leaf_count: int, sections: Iterable[range]
) -> tuple[Summary, ...]:
    """Returns the summaries that a summary document contains.

    `tree` and `text` are the tree and the text of the summary document; `as_document` has created
    them. `leaf_count` is the count of leaves of the summarised document. `sections` has one range
    for each summarised section: the indexes of the section's leaves in the summarised document.
    """
    pieces = []
    for index in range(tree.counts[0]):
        chunk = tree.record(0, index)
        pieces.append(str(text[chunk.byte_start : chunk.byte_end], "utf-8").strip())
    ranges = (range(leaf_count), *sections)
    return tuple(Summary(*fields) for fields in zip(pieces, ranges, strict=True))


def _level(pieces: Sequence[str]) -> NDArray[Any]:
    """Returns the chunks of a summary document: one for each summary, in order.

    The result is an array of the dtype CHUNK: the only level of the summary document's tree.
    `pieces` are the texts of the summaries.
    """
    chunks = np.zeros(len(pieces), CHUNK)
    counts = [len(tokens.encode(piece)) for piece in pieces]
    _set_offsets(chunks, "byte_start", "byte_end", [len(piece.encode()) for piece in pieces])
    _set_offsets(chunks, "char_start", "char_end", [len(piece) for piece in pieces])
    chunks["token_start"] = np.cumsum(counts) - counts
    chunks["token_count"] = counts
    chunks["parent"] = chunks["section"] = NONE
    return chunks


def _set_offsets(chunks: NDArray[Any], start: str, end: str, lengths: Sequence[int]) -> None:
    """Sets two fields of consecutive chunks: the offsets at which each chunk begins and ends.

    `start` and `end` are the names of the two fields. `lengths` has the length of each chunk.
    """
    chunks[end] = np.cumsum(lengths)
    chunks[start] = chunks[end] - np.array(lengths, np.uint32)
