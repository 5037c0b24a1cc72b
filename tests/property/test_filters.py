"""Filters select the same documents as a plain loop over all documents."""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine import PreparedDocument
from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.filters import AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range, filter_digest
from tests.support.documents.fakes import (
    ModelCollection,
    find,
    matched_leaves,
    prepared,
    query_vector,
    recall,
    seal,
    search_leaves,
)
from tests.support.engines import filter_model

metadata_of_all = st.lists(filter_model.METADATA, min_size=1, max_size=12)


@given(metadata_of_all, st.lists(filter_model.FILTERS, min_size=1, max_size=5), st.booleans())
def test_a_filter_selects_the_same_documents_as_a_plain_loop(metadata_of_all, filters, sealed):
    with tempfile.TemporaryDirectory() as folder:
        store = open_for_writing(Path(folder))
        writer, model = EmbeddedWriter(store), ModelCollection()
        writer.create_collection("t", "c", model.settings)
        collection = writer.open("t", "c")
        for number, metadata in enumerate(metadata_of_all):
            document = prepared(f"d{number}", "text", seed=number, metadata=metadata)
            writer.put(collection, document)
            model.put(document)
        if sealed:
            seal(store, collection.collection_id)
        reader = EmbeddedReader(store, vector_budget_bytes=0)
        query = query_vector(1)
        with reader.snapshot("t", "c") as snapshot:
            # Each filter is evaluated twice. The second time, its result is in the cache.
            for filter in [*filters, *filters]:
                result = find(snapshot, query, 100, filter=filter)
                expected = model.filtered(filter)
                leaves = matched_leaves(result.passages)
                assert {document_id for document_id, _ in leaves} == set(expected.documents)
                assert result.eligible_leaves == expected.leaf_count
        reader.close()
        assert check(store).problems == ()
        store.close()


# Tests of the digests of filters.

SIMILAR_VALUES = [
    0,
    1,
    0.0,
    -0.0,
    1.0,
    True,
    False,
    "0",
    "1",
    "1.0",
    "True",
    "",
    "a",
    "b",
    "ab",
    "0x1.0p+0",
]
SIMILAR_VALUES += [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00"]
similar_filters = st.builds(
    Match,
    st.sampled_from(["metadata.a", "metadata.ab", "metadata."]),
    st.lists(st.sampled_from(SIMILAR_VALUES), min_size=1, max_size=4).map(tuple),
) | st.builds(
    lambda name, value: Range("metadata.a", **{name: value}),
    st.sampled_from(["at_least", "above", "at_most", "below"]),
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, datetime(2026, 1, 1)]),
)
nested_filters = st.recursive(
    similar_filters | st.just(Exists("metadata.a")),
    lambda inner: st.builds(
        lambda kind, filters: kind(tuple(filters)),
        st.sampled_from([AllOf, AnyOf, NoneOf]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=4,
)


@given(*[filter_model.FILTERS | nested_filters] * 2)
def test_two_filters_have_the_same_digest_only_if_they_are_equal(first, second):
    assert (filter_digest(first) == filter_digest(second)) == (repr(first) == repr(second))


def test_similar_filters_have_different_digests():
    filters = [Match("metadata.a", (value,)) for value in SIMILAR_VALUES]
    filters += [Match("metadata.a", ("ab", "")), Match("metadata.a", ("a", "b"))]
    filters += [kind((filter,)) for kind in (AllOf, AnyOf) for filter in filters]
    filters += [AllOf((filters[0], AllOf((filters[1],)))), AllOf((AllOf(tuple(filters[:2])),))]
    a, b, c = filters[:3]
    filters += [AnyOf((a, AllOf((b,)), c)), AnyOf((a, AllOf((b, c))))]
    assert len({filter_digest(filter) for filter in filters}) == len(filters)


# Tests of filters that select few or many of ten thousand documents.

DOCUMENTS = 10_000
MIN_RECALL = 0.99
QUERIES = 10

# Filters of each kind, by the count of documents that they select: one, 1 %, half, and all of them.
SELECTIONS: dict[str, dict[int, Filter]] = {
    "a number's range": {
        1: Range("metadata.number", at_least=70, at_most=70),
        100: Range("metadata.number", at_least=5000, below=5100),
        5000: Range("metadata.number", above=4999),
        DOCUMENTS: Range("metadata.number", at_least=0),
    },
    "a timestamp's range": {
        1: Range("metadata.day", at_least=datetime(2001, 2, 3), below=datetime(2001, 2, 4)),
        100: Range("metadata.day", below=datetime(2000, 4, 10, tzinfo=UTC)),
        5000: Range("metadata.day", below=datetime(2013, 9, 9, tzinfo=UTC)),
        DOCUMENTS: Range("metadata.day", above=datetime(1999, 1, 1)),
    },
    "a value": {
        1: Match("metadata.number", (4321,)),
        100: Match("metadata.hundredth", ("h7",)),
        5000: Match("metadata.odd", (True,)),
        DOCUMENTS: Match("metadata.all", ("same",)),
    },
    "values": {
        1: Match("document_id", ("d17", "nobody")),
        100: Match("document_id", tuple(f"d{number}" for number in range(0, DOCUMENTS, 100))),
        5000: Match("metadata.hundredth", tuple(f"h{number}" for number in range(50))),
        DOCUMENTS: Match("metadata.hundredth", tuple(f"h{number}" for number in range(100))),
    },
    "fields that exist": {
        1: Exists("metadata.only"),
        100: Exists("metadata.o.few"),
        5000: Exists("metadata.half"),
        DOCUMENTS: Exists("source"),
    },
    "all, any and none": {
        1: AllOf((Match("metadata.odd", (True,)), Range("metadata.number", at_least=9, below=11))),
        100: AllOf(
            (
                Match("metadata.all", ("same",)),
                AnyOf((Match("metadata.hundredth", ("h3",)), Match("metadata.hundredth", ("x",)))),
            )
        ),
        5000: NoneOf((Match("metadata.odd", (True,)), Match("metadata.all", ("other",)))),
        DOCUMENTS: NoneOf((Exists("metadata.nothing"),)),
    },
}


def _document(number: int) -> PreparedDocument:
    day = np.datetime64("2000-01-01") + number
    metadata = {
        "number": number,
        "day": str(day),
        "hundredth": f"h{number % 100}",
        "odd": number % 2 == 1,
        "all": ["same", number],
        "half": "x" if number < DOCUMENTS // 2 else None,
        "o": {"few": number} if number % 100 == 42 else {},
        **({"only": 1} if number == 777 else {}),
    }
    return prepared(f"d{number}", "text", seed=number, metadata=metadata)


@pytest.fixture(scope="module")
def large() -> Iterator[tuple[EmbeddedReader, ModelCollection]]:
    """A reader of a store with DOCUMENTS documents, and the model of its collection.

    Nine tenths of the documents are in a segment, and the others are in the tail. One document of
    twenty has been replaced.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = open_for_writing(Path(folder))
        writer, model = EmbeddedWriter(store), ModelCollection()
        writer.create_collection("t", "c", model.settings)
        collection = writer.open("t", "c")
        documents = [_document(number) for number in range(DOCUMENTS)]
        for document in documents:
            model.put(document)
        sealed = DOCUMENTS * 9 // 10
        replaced = [prepared(f"d{number}", "old") for number in range(0, DOCUMENTS, 20)]
        for batch in (replaced, documents[:sealed]):
            writer.put_many([(collection, document) for document in batch])
        seal(store, collection.collection_id)
        writer.put_many([(collection, document) for document in documents[sealed:]])
        reader = EmbeddedReader(store, vector_budget_bytes=0)
        yield reader, model
        reader.close()
        assert check(store).problems == ()
        store.close()


# The selections that the slow group searches with; the endurance group has the others.
_SLOW_KINDS = ("a number's range", "values", "all, any and none")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind in _SLOW_KINDS else pytest.mark.endurance)
        for kind in SELECTIONS
    ],
)
def test_searches_with_filters_of_any_selectivity_find_the_nearest_leaves_that_pass(large, kind):
    reader, whole = large
    queries = [query_vector(seed) for seed in range(QUERIES)]
    with reader.snapshot("t", "c") as snapshot:
        for document_count, filter in SELECTIONS[kind].items():
            model = whole.filtered(filter)
            assert len(model.documents) == document_count
            for count in (1, 10):
                results = [find(snapshot, query, count, filter=filter) for query in queries]
                assert {result.eligible_leaves for result in results} == {document_count}
                assert {result.exhausted for result in results} == {count >= document_count}
                assert {result.exact for result in results} == {document_count < 1000}
                shares = [
                    recall(matched_leaves(result.passages), model, query, count)
                    for result, query in zip(results, queries, strict=True)
                ]
                assert np.mean(shares) >= (1.0 if document_count < 1000 else MIN_RECALL)
            everything = search_leaves(snapshot, queries[0], DOCUMENTS + 1, filter=filter)
            assert recall(everything, model, queries[0], document_count) == 1.0
