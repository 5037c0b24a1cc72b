"""Summaries are stored as documents of a summary collection.

A collection with summaries has a second, nameless collection. For each summarised document
that holds one with the same id, title, source and metadata, whose leaves are the
summaries. So summaries are committed, sealed, filtered and searched like everything else.
They are deleted in the transaction that deletes their document, so a search finds only
summaries of documents that exist.
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
    """Settings of the summary collection: every summary is a leaf, on one level."""
    tree = TreeSettings((MAX_CHUNK_TOKENS,), overlap_ratio=0.0)
    return replace(settings, tree=tree, return_level=None, summaries=SummaryUnit.NONE)


def summary_handle(handle: CollectionHandle, number: int) -> CollectionHandle:
    """The summary collection of a collection, by its own number."""
    settings = summary_settings(handle.settings)
    return replace(handle, collection_id=number, settings=settings)


def as_document(document: DocumentRecord, summaries: DocumentSummaries) -> PreparedDocument:
    """The document of the summary collection that holds `document`'s summaries, at least one."""
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
    )


def summaries_in(
    tree: Tree, text: Buffer, leaf_count: int, sections: Iterable[range]
) -> tuple[Summary, ...]:
    """The summaries in what `as_document` has made, of a document of `leaf_count` leaves."""
    pieces = []
    for index in range(tree.counts[0]):
        chunk = tree.record(0, index)
        pieces.append(str(text[chunk.byte_start : chunk.byte_end], "utf-8").strip())
    ranges = (range(leaf_count), *sections)
    return tuple(Summary(*each) for each in zip(pieces, ranges, strict=True))


def _level(pieces: Sequence[str]) -> NDArray[Any]:
    """One chunk for each piece: `CHUNK[len(pieces)]`."""
    chunks = np.zeros(len(pieces), CHUNK)
    counts = [len(tokens.encode(piece)) for piece in pieces]
    _set_offsets(chunks, "byte_start", "byte_end", [len(piece.encode()) for piece in pieces])
    _set_offsets(chunks, "char_start", "char_end", [len(piece) for piece in pieces])
    chunks["token_start"] = np.cumsum(counts) - counts
    chunks["token_count"] = counts
    chunks["parent"] = chunks["section"] = NONE
    return chunks


def _set_offsets(chunks: NDArray[Any], start: str, end: str, lengths: Sequence[int]) -> None:
    chunks[end] = np.cumsum(lengths)
    chunks[start] = chunks[end] - np.array(lengths, np.uint32)
