"""Summaries are the documents of a collection of their own.

Beside a collection that wants summaries lies another, without a name. It has, for each
document that is summarised, one under the same id with the same title, source and
metadata, whose leaves are the summaries. So they are committed, sealed, followed,
filtered and searched as everything is. A document's summaries go in the transaction in
which it goes: those that are found are of documents that live.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag import tokens
from hrag.embedding import Vectors
from hrag.engine import PreparedDocument, Summary
from hrag.engine.embedded.store.records import DocumentHead
from hrag.tree import CHUNK, NONE, ParsedText, Tree
from hrag.types import MAX_CHUNK_TOKENS, CollectionSettings, SummaryUnit, TreeSettings


def settings_beside(settings: CollectionSettings) -> CollectionSettings:
    """Of the collection that holds another's summaries: each is a leaf, on one level."""
    tree = TreeSettings((MAX_CHUNK_TOKENS,), overlap_ratio=0.0)
    return replace(settings, tree=tree, return_level=None, summaries=SummaryUnit.NONE)


def as_document(
    head: DocumentHead, summaries: Sequence[Summary], vectors: Vectors
) -> PreparedDocument:
    """The summaries, one at least, of the document that `head` is of."""
    pieces = [f"{summary.text.strip()}\n" for summary in summaries]
    return PreparedDocument(
        document_id=head.document_id,
        title=head.title,
        source=head.source,
        mime_type="",
        metadata=head.metadata,
        content_hash=head.content_hash,
        parsed=ParsedText("".join(pieces)),
        tree=Tree.from_levels([_level(pieces)]),
        vectors=vectors,
    )


def _level(pieces: Sequence[str]) -> NDArray[Any]:
    """A chunk for each piece."""
    chunks = np.zeros(len(pieces), CHUNK)
    counts = [len(tokens.encode(piece)) for piece in pieces]
    _place(chunks, "byte_start", "byte_end", [len(piece.encode()) for piece in pieces])
    _place(chunks, "char_start", "char_end", [len(piece) for piece in pieces])
    chunks["token_start"] = np.cumsum(counts) - counts
    chunks["token_count"] = counts
    chunks["parent"] = chunks["section"] = NONE
    return chunks


def _place(chunks: NDArray[Any], start: str, end: str, lengths: Sequence[int]) -> None:
    chunks[end] = np.cumsum(lengths)
    chunks[start] = chunks[end] - np.array(lengths, np.uint32)
