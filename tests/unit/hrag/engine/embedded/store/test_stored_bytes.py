"""Test that a quota counts about as many bytes as LMDB's file grows by, for all documents."""

import random
import string
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.types import MAX_METADATA_VALUES
from tests.support.documents.fakes import collection_settings, prepared, sentences

_RANDOM = random.Random(5)
Metadata = Callable[[int], Mapping[str, Any]]


def random_word(length: int) -> str:
    return "".join(_RANDOM.choices(string.ascii_letters, k=length))


def random_numbers(below: int) -> list[int]:
    return [_RANDOM.randrange(below) for _ in range(MAX_METADATA_VALUES)]


def no_metadata(_: int) -> Mapping[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("documents", "count_sentences", "dimension", "metadata"),
    [
        pytest.param(500, 1, 16, no_metadata, id="tiny"),
        pytest.param(
            500, 1, 16, lambda i: {"a": i % 3, "b": "x", "c": [i % 7]}, id="shared values"
        ),
        pytest.param(
            *(150, 2, 16, lambda _: {"n": random_numbers(10**9)}),
            marks=pytest.mark.slow,
            id="many numbers",
        ),
        pytest.param(60, 2, 16, lambda _: {"n": random_numbers(10**4)}, id="many shared numbers"),
        pytest.param(
            40, 2, 16, lambda _: {"n": [random_word(190) for _ in range(300)]}, id="long values"
        ),
        pytest.param(
            40, 2, 16, lambda _: {"n": [random_word(300) for _ in range(200)]}, id="hashed values"
        ),
        pytest.param(
            40,
            2,
            16,
            lambda _: {random_word(30): 1 for _ in range(1000)},
            id="many fields",
            marks=pytest.mark.slow,
        ),
        pytest.param(40, 2, 16, lambda _: {"n": random_word(60_000)}, id="one long value"),
        pytest.param(100, 20, 384, no_metadata, id="ordinary"),
        pytest.param(200, 2, 384, no_metadata, id="short"),
        pytest.param(2, 4000, 16, no_metadata, id="large"),
        pytest.param(20, 300, 0, no_metadata, id="without vectors"),
    ],
)
def test_the_bytes_counted_are_at_most_twice_or_half_the_growth_of_the_file(
    store, documents: int, count_sentences: int, dimension: int, metadata: Metadata
) -> None:
    settings = collection_settings(dimension=dimension)
    writer = EmbeddedWriter(store)
    writer.create_collection("t", "c", settings)
    collection = writer.open("t", "c")
    before = store.used_bytes
    for number in range(documents):
        text = sentences(count_sentences, number)
        document = prepared(f"d{number}", text, settings, number, metadata=metadata(number))
        writer.put(collection, document)
    grown, counted = store.used_bytes - before, writer.status(collection).tenant.stored_bytes
    assert 0.5 <= counted / grown <= 2, f"{counted:,} bytes counted, grown by {grown:,}"
    for number in range(documents):
        writer.delete(collection, f"d{number}")
    assert writer.status(collection).tenant.stored_bytes == 0
