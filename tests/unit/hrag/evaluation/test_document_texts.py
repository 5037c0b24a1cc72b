"""Tests of the texts that an evaluation keeps, so that it does not read a document twice."""

import pytest

from hrag.errors import DocumentNotFound
from hrag.evaluation.document_texts import DocumentTexts

TEXTS = {"a": "aaaa", "b": "bbb", "c": "ccc", "long": 11 * "x"}


class Reads:
    """The ids of the documents whose texts were read, in order."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def __call__(self, document_id: str) -> str:
        self.ids.append(document_id)
        if document_id not in TEXTS:
            raise DocumentNotFound(f"no {document_id}")
        return TEXTS[document_id]


@pytest.mark.parametrize(
    ("requested", "read"),
    [
        ("abcabc", "abc"),  # 10 characters fit.
        (["long", "a", "a", "long"], ["long", "a", "long"]),  # One text alone is too long.
        (["a", "b", "long", "c"], ["a", "b", "long", "c"]),
    ],
)
def test_each_text_is_read_once_as_long_as_it_fits(requested: list[str], read: list[str]) -> None:
    reads = Reads()
    texts = DocumentTexts(reads, max_chars=10)
    assert [texts(document_id) for document_id in requested] == [TEXTS[one] for one in requested]
    assert reads.ids == list(read)


def test_the_least_recently_used_text_is_dropped() -> None:
    reads = Reads()
    texts = DocumentTexts(reads, max_chars=9)
    for document_id in "ab" + "a" + "c" + "a" + "b":
        texts(document_id)
    assert reads.ids == ["a", "b", "c", "b"]


def test_a_document_that_cannot_be_read_is_tried_again() -> None:
    reads = Reads()
    texts = DocumentTexts(reads)
    for _ in range(2):
        with pytest.raises(DocumentNotFound):
            texts("missing")
    assert reads.ids == ["missing", "missing"]
