"""Equal documents have equal content hashes, and ids are derived from the hashes."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from hrag.types import Document, Page
from indexer_svc.content_hash import derived_id, hash_document

texts = st.text(max_size=5)
bodies = texts | st.binary(max_size=5) | st.lists(st.builds(Page, texts), max_size=3).map(tuple)
documents = st.builds(
    Document,
    body=bodies,
    title=texts,
    source=texts,
    mime_type=st.sampled_from(["text/plain", "text/markdown"]),
    metadata=st.dictionaries(texts, st.integers() | texts, max_size=2),
)


@given(documents, documents)
def test_two_documents_have_the_same_hash_exactly_if_they_are_equal(
    document: Document, other: Document
) -> None:
    same_bytes = _as_bytes(document) == _as_bytes(other)
    assert (hash_document(document) == hash_document(other)) == same_bytes


def _as_bytes(document: Document) -> Document:
    """Returns the document with its text as bytes, because both forms have the same hash."""
    if isinstance(document.body, str):
        return dataclasses.replace(document, body=document.body.encode("utf-8", "surrogatepass"))
    return document


def test_the_order_of_metadata_does_not_affect_the_hash() -> None:
    document = Document("x", metadata={"a": 1, "b": 2})
    other = Document("x", metadata={"b": 2, "a": 1})
    assert hash_document(document) == hash_document(other)


def test_a_derived_id_never_changes() -> None:
    assert derived_id(Document("Cats sleep.")) == "b2-c5137819a0ca83617bddead4d204c35e"
    assert derived_id(Document("\ud800")).startswith("b2-")


def test_a_pdf_file_and_a_text_that_begins_like_one_have_different_hashes() -> None:
    text = "%PDF-1.7 is how such a file begins."
    assert hash_document(Document(text)) != hash_document(Document(text.encode()))
