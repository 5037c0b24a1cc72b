"""What a framework's document carries so that its passage can be cited."""

from typing import Any

from hrag.client.context import by_section_and_page
from hrag.values.search import Passage


def citation(passage: Passage) -> dict[str, Any]:
    """Returns the citation of a passage, over the metadata of its document.

    `heading` is the text to cite it by, such as `[Guide - Keys, page 3]`; `section_path` a list
    of headings; pages are 0 if the document has none; `char_start` and `char_end` count
    characters of the document's text. A key of the document's own metadata with one of these
    names is left out, so that no document can pose as another.
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
