"""Content hashes of documents, and the ids derived from them."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from hrag.types import Document, Page
from indexer_svc.ingest_pipeline import derived_id, hash_document

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
def test_documents_have_one_hash_exactly_if_they_are_equal(one: Document, other: Document) -> None:
    same_bytes = _as_bytes(one) == _as_bytes(other)
    assert (hash_document(one) == hash_document(other)) == same_bytes


def _as_bytes(document: Document) -> Document:
    """A text and a file of the same bytes say the same."""
    if isinstance(document.body, str):
        return dataclasses.replace(document, body=document.body.encode("utf-8", "surrogatepass"))
    return document


def test_the_order_of_metadata_does_not_count() -> None:
    one = Document("x", metadata={"a": 1, "b": 2})
    other = Document("x", metadata={"b": 2, "a": 1})
    assert hash_document(one) == hash_document(other)


def test_a_derived_id_is_the_same_everywhere() -> None:
    assert derived_id(Document("Cats sleep.")) == "b2-c5137819a0ca83617bddead4d204c35e"
    assert derived_id(Document("\ud800")).startswith("b2-")


def test_a_file_and_a_text_that_looks_like_one_are_not_the_same() -> None:
    text = "%PDF-1.7 is how such a file begins."
    assert hash_document(Document(text)) != hash_document(Document(text.encode()))
