"""The metadata with which a framework's document cites its passage."""

from typing import Any

from hrag.client.context import by_section_and_page
from hrag.values.search import Passage


def citation(passage: Passage) -> dict[str, Any]:
    """Returns the metadata of the passage's document and, over it, the citation of the passage.

    `heading` is the text to cite the passage by, for example `[Guide - Keys, page 3]`.
    `section_path` is a list of headings. The pages are 0 if the document has no pages.
    `char_start` and `char_end` are offsets in characters of the document's text. If the
    document's metadata has a key with one of these names, the citation's value replaces it, so
    that no document can pretend to be another.
    """
    chunk = passage.chunk
    return {
        **chunk.metadata,
        "heading": by_section_and_page(passage),
        "document_id": chunk.document_id,
        "chunk_id": chunk.chunk_id,
        "title": chunk.title,
        "source": chunk.source,
        "section_path": list(chunk.section_path),
        "first_page": chunk.first_page,
        "last_page": chunk.last_page,
        "char_start": chunk.span.char_start,
        "char_end": chunk.span.char_end,
        "score": passage.score,
    }
