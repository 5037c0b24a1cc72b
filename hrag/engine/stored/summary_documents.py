"""Summaries are stored as documents of a summary collection.

A collection with summaries has a second, nameless collection. For each summarised document
that holds one with the same id, title, source and metadata, whose leaves are the
summaries. So summaries are committed, sealed, filtered and searched like everything else.
They are deleted in the transaction that deletes their document, so a search finds only
summaries of documents that exist.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag import tokens
from hrag.engine.documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.engine.stored.records import CollectionRecord, DocumentRecord
from hrag.tree import CHUNK, NONE, ParsedText, Tree
from hrag.types import MAX_CHUNK_TOKENS, CollectionSettings, SummaryUnit, TreeSettings


def summary_settings(settings: CollectionSettings) -> CollectionSettings:
    """Settings of the summary collection: every summary is a leaf, on one level."""
    tree = TreeSettings((MAX_CHUNK_TOKENS,), overlap_ratio=0.0)
    return replace(settings, tree=tree, return_level=None, summaries=SummaryUnit.NONE)


def summary_handle(handle: CollectionHandle, record: CollectionRecord) -> CollectionHandle:
    """The summary collection of the collection whose `record` names one."""
    settings = summary_settings(handle.settings)
    return replace(handle, collection_id=record.summaries, settings=settings)


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
