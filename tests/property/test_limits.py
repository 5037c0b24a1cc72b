"""The first passages of a search do not depend on its limit, in any collection."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.types import Passage, Retrieval, SearchMode, SummaryUnit
from tests.conftest import Engine, engine_at
from tests.contract.test_engine_twins import drawn
from tests.support.documents.fakes import (
    ModelCollection,
    collection_settings,
    matched_leaves,
    read_passages,
)
from tests.support.documents.vocabulary import wordy
from tests.support.engines.summary_model import ModelSummaries, summarise

SETTINGS = collection_settings(summaries=SummaryUnit.CHUNK)
REQUESTS = 5
MAX_LIMIT = 40

five_examples = hypothesis_settings(max_examples=5)
sizes = st.lists(st.integers(1, 40), min_size=1, max_size=8)
randoms = st.integers(0, 10**6).map(random.Random)


@contextmanager
def collection(sizes: Sequence[int], draw: random.Random) -> Iterator[Engine]:
    """Yields an engine with a collection; `sizes` has the count of sentences of each document.

    Some of the documents are sealed, and a quarter of them are deleted.
    """
    with TemporaryDirectory() as folder, engine_at(Path(folder) / "store") as engine:
        engine.writer.create_collection("t", "c", SETTINGS)
        for number, size in enumerate(sizes):
            metadata = {"n": number % 3}
            document = wordy(f"d{number}", draw.randrange(99), SETTINGS, size, metadata=metadata)
            engine.writer.put(engine.open(), document)
            if draw.random() < 0.3:
                engine.seal()
        for number in draw.sample(range(len(sizes)), len(sizes) // 4):
            engine.writer.delete(engine.open(), f"d{number}")
        summarise(engine.writer, ModelSummaries(ModelCollection(SETTINGS)))
        yield engine


def containers(less: Sequence[Passage], more: Sequence[Passage]) -> list[int]:
    """Returns, for each passage of `less`, the index of the passage of `more` that contains it."""
    return [
        next(index for index, other in enumerate(more) if _contains(other, passage))
        for passage in less
    ]


def _contains(passage: Passage, other: Passage) -> bool:
    return (
        passage.chunk.document_id == other.chunk.document_id
        and other.chunk.content in passage.chunk.content
        and passage.chunk.span.char_start <= other.chunk.span.char_start
        and other.chunk.span.char_end <= passage.chunk.span.char_end
    )


@five_examples
@given(sizes, randoms)
def test_a_smaller_limit_returns_the_first_passages(sizes, draw):
    """If passages are joined, a larger limit keeps their order and only adds text to them."""
    with (
        collection(sizes, draw) as engine,
        engine.reader.snapshot("t", "c", summaries=True) as snapshot,
    ):
        for mode, retrieval in product(SearchMode, Retrieval):
            request = drawn(draw, mode, retrieval)
            low, high = sorted(draw.choices(range(1, MAX_LIMIT), k=2))
            smaller, larger = replace(request, limit=low), replace(request, limit=high)
            if mode is SearchMode.CONTEXT:
                smaller = replace(smaller, token_budget=draw.randint(1, request.token_budget))
            less, more = (read_passages(snapshot, request) for request in (smaller, larger))
            leaves = matched_leaves(less.passages)
            assert leaves.items() <= matched_leaves(more.passages).items(), (smaller, larger)
            if request.merge_adjacent:
                indexes = dict.fromkeys(containers(less.passages, more.passages))
                assert [*indexes] == [*range(len(indexes))], (smaller, larger)
            else:
                first = more.passages[: len(less.passages)]
                assert less.passages == first, (smaller, larger)
                assert request.token_budget or len(first) == min(low, len(more.passages))
