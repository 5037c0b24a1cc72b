"""The metadata that a passage gets as a document of LangChain, LlamaIndex or Haystack.

With the metadata, an application can cite the passage.
"""

from typing import Any

from hrag.client.context import by_section_and_page
from hrag.values.search import Passage


def citation(passage: Passage) -> dict[str, Any]:
    """Returns the metadata of the passage's document, and the data to cite the passage.

    `heading` is a text by which the passage can be cited, for example `[Guide - Keys, page 3]`.
    `section_path` is a list of headings. `first_page` and `last_page` are 0 if the document has no
    pages. `page_unit` says what these numbers mean: `page`, `row` or `second`. `is_recognised` is
    True if text of the passage was recognised in a picture, so that it may have errors.
    `char_start` and `char_end` are offsets in characters of the document's text.
    `sentence_start` and `sentence_end` are those of the sentence that matches best, and
    `sentence_page` is its first page, or 0. They show the sentence on an image of its page; see
    `Client.get_page_image`. If the document's metadata has a key with one of these names, the value
    of the citation replaces the value of the metadata. So no document can pretend to be another
    document.
    """
    chunk, sentence = passage.chunk, passage.matched_sentence
    span = sentence.span if sentence else chunk.span
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
        "page_unit": chunk.page_unit.value,
        "is_recognised": bool(chunk.recognised_pages),
        "char_start": chunk.span.char_start,
        "char_end": chunk.span.char_end,
        "sentence_start": span.char_start,
        "sentence_end": span.char_end,
        "sentence_page": sentence.first_page if sentence else chunk.first_page,
        "score": passage.score,
    }
