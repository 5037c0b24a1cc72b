"""What a quota counts is about what LMDB's file grows by, whatever the documents are like."""

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


def word(length: int) -> str:
    return "".join(_RANDOM.choices(string.ascii_letters, k=length))


def numbers(below: int) -> list[int]:
    return [_RANDOM.randrange(below) for _ in range(MAX_METADATA_VALUES)]


def none(_: int) -> Mapping[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("documents", "count_sentences", "dimension", "metadata"),
    [
        pytest.param(500, 1, 16, none, id="tiny"),
        pytest.param(
            500, 1, 16, lambda i: {"a": i % 3, "b": "x", "c": [i % 7]}, id="shared values"
        ),
        pytest.param(
            *(150, 2, 16, lambda _: {"n": numbers(10**9)}),
            marks=pytest.mark.slow,
            id="many numbers",
        ),
        pytest.param(60, 2, 16, lambda _: {"n": numbers(10**4)}, id="many shared numbers"),
        pytest.param(40, 2, 16, lambda _: {"n": [word(190) for _ in range(300)]}, id="long values"),
        pytest.param(
            40, 2, 16, lambda _: {"n": [word(300) for _ in range(200)]}, id="hashed values"
        ),
        pytest.param(
            40,
            2,
            16,
            lambda _: {word(30): 1 for _ in range(1000)},
            id="many fields",
            marks=pytest.mark.slow,
        ),
        pytest.param(40, 2, 16, lambda _: {"n": word(60_000)}, id="one long value"),
        pytest.param(100, 20, 384, none, id="ordinary"),
        pytest.param(200, 2, 384, none, id="short"),
        pytest.param(2, 4000, 16, none, id="large"),
        pytest.param(20, 300, 0, none, id="without vectors"),
    ],
)
def test_what_is_counted_is_what_the_file_grows_by(
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
