"""The comparison of two stored documents names the fields that differ.

Vectors may differ by the rounding to half precision.
"""

from dataclasses import replace

import numpy as np
import pytest

from hrag.engine.engine_documents import (
    DamagedDocument,
    DocumentSummaries,
    StoredDocument,
    Summary,
)
from hrag.engine.transfer.comparison import LOWEST_COSINE, are_alike, differing_fields, problem_of
from hrag.engine.transfer.pairs import Pair
from hrag.values.tree import PageSpan, ParsedText, Section
from tests.support.documents.fakes import as_half_precision, prepared, sentences, unit_vectors

DOCUMENT = prepared("d", ParsedText(sentences(20), (Section("One", 1, 0),)), metadata={"n": 1})
SUMMARIES = DocumentSummaries(
    (Summary("All.", range(5)), Summary("Some.", range(2))), unit_vectors(2, 0)
)
STORED = StoredDocument(DOCUMENT, SUMMARIES)


def changed(**fields) -> StoredDocument:
    return StoredDocument(replace(DOCUMENT, **fields), SUMMARIES)


def parsed(**fields) -> StoredDocument:
    return changed(parsed=replace(DOCUMENT.parsed, **fields))


def with_metadata(metadata) -> StoredDocument:
    return changed(metadata=metadata, metadata_json=b"")


@pytest.mark.parametrize(
    ("other", "field"),
    [
        *((changed(**{name: "x"}), name) for name in ("title", "source", "mime_type")),
        (changed(content_hash=""), "content_hash"),
        (with_metadata({}), "metadata"),
        (with_metadata({"n": 1.0}), "metadata"),
        (with_metadata({"n": True}), "metadata"),
        (with_metadata({"n": "1"}), "metadata"),
        (parsed(text=DOCUMENT.parsed.text + "."), "text"),
        (parsed(sections=(Section("One", 2, 0),)), "sections"),
        (parsed(pages=(PageSpan(1, 0, 9),)), "pages"),
        (changed(tree=prepared("d", sentences(21)).tree), "tree"),
        (changed(vectors=DOCUMENT.vectors[::-1]), "vectors"),
        (changed(vectors=DOCUMENT.vectors[1:]), "vectors"),
        (StoredDocument(DOCUMENT), "summaries"),
        (StoredDocument(DOCUMENT, DocumentSummaries((), unit_vectors(0, 0))), "summaries"),
        (StoredDocument(DOCUMENT, replace(SUMMARIES, vectors=unit_vectors(2, 1))), "summaries"),
        (
            StoredDocument(
                DOCUMENT, replace(SUMMARIES, summaries=(Summary("All.", range(4)),) * 2)
            ),
            "summaries",
        ),
    ],
)
def test_a_field_that_differs_is_named(other, field):
    assert list(differing_fields(STORED, other)) == [field]
    assert list(differing_fields(other, STORED)) == [field]


def test_equal_documents_differ_in_no_field():
    rounded = replace(SUMMARIES, vectors=SUMMARIES.vectors.astype(np.float16).astype(np.float32))
    blank = tuple(replace(summary, text=f" {summary.text}\n") for summary in SUMMARIES.summaries)
    for other in (STORED, StoredDocument(DOCUMENT, rounded)):
        assert list(differing_fields(STORED, other)) == []
    other = StoredDocument(DOCUMENT, replace(SUMMARIES, summaries=blank))
    assert list(differing_fields(STORED, other)) == []
    assert list(differing_fields(StoredDocument(DOCUMENT), StoredDocument(DOCUMENT))) == []


@pytest.mark.parametrize("dimension", [1, 3, 384, 4000, 16_384])
def test_vectors_are_alike_after_rounding_to_sixteen_bits(dimension):
    drawn = np.random.default_rng(5).normal(size=(20, dimension))
    vectors = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    rounded = as_half_precision(vectors)
    assert are_alike(vectors, rounded)
    lowest = np.einsum("nd,nd->n", vectors, rounded) / np.linalg.norm(rounded, axis=1)
    assert lowest.min() > 0.99999  # The docstring of the module `comparison` states this bound.


def test_vectors_that_differ_by_more_than_rounding_are_not_alike():
    vector = np.array([[1.0, 0.0]], np.float32)
    for cosine, alike in ((LOWEST_COSINE + 1e-5, True), (LOWEST_COSINE - 1e-5, False)):
        other = np.array([[cosine, np.sqrt(1 - cosine**2)]], np.float32)
        assert are_alike(vector, other) is alike
        assert are_alike(vector, other * np.float32(0.99)) is alike
    for wrong in (0.0, np.nan, -1.0):
        assert not are_alike(vector, vector * np.float32(wrong))
    assert not are_alike(np.repeat(vector, 2, 0), np.array([[1, 0], [0, 1]], np.float32))
    assert are_alike(unit_vectors(0, 0, 3), unit_vectors(0, 0, 3))
    assert not are_alike(unit_vectors(0, 0, 3), unit_vectors(0, 0, 4))
    assert are_alike(np.empty((4, 0), np.float32), np.empty((4, 0), np.float32))


def test_the_problem_of_a_pair_is_described():
    damaged = DamagedDocument("d", "a bit flipped")
    for source, target, problem in (
        (STORED, STORED, ""),
        (STORED, None, "is missing in the target"),
        (None, STORED, "exists only in the target"),
        (None, damaged, "exists only in the target"),
        (damaged, STORED, "cannot be read from the source: a bit flipped"),
        (damaged, None, "cannot be read from the source: a bit flipped"),
        (STORED, damaged, "cannot be read from the target: a bit flipped"),
        (STORED, changed(title="x", source="y"), "differs: title, source"),
    ):
        assert problem_of(Pair("d", source, target)) == problem
