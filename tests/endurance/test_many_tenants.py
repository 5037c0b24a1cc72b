"""One retriever serves thousands of small tenants quickly and in little memory.

A retriever whose memory is smaller than the vectors evicts the least recently used tenants and
loads them again on demand.
"""

import random
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from hrag.client import Client
from hrag.client.calls import ingest_many_request
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import DEFAULT_COLLECTION, Document, IngestResult, SearchMode
from hrag.wire import indexer
from tests.endurance import texts
from tests.endurance.processes import MB, MemorySampler, memory_of
from tests.endurance.report import Report
from tests.endurance.searches import Window
from tests.support.servers.processes import Running, fresh, running

pytestmark = pytest.mark.timeout(600)

LEAVES = 20
SEED = 71
# The p99 of latencies is computed for each group of this many consecutive searches.
SPLIT = 500
_TOLERANCE = 1e-5


@pytest.mark.parametrize(
    ("tenants", "dimension", "memory_bytes", "most_ms"),
    [
        pytest.param(10_000, 64, 0, 10, marks=pytest.mark.endurance, id="all-fit"),
        pytest.param(10_000, 384, 200 << 20, 10, marks=pytest.mark.endurance, id="they-do-not-fit"),
        # Other tests run at the same time as this case, so its target is ten times as high.
        pytest.param(1_000, 384, 20 << 20, 100, marks=pytest.mark.slow, id="fewer-that-do-not-fit"),
    ],
)
def test_many_tenants_share_a_retriever(
    data_dir: Path, report: Report, tenants: int, dimension: int, memory_bytes: int, most_ms: int
) -> None:
    settings = {
        **texts.SMALL_LEVELS,
        **({"HRAG_MEMORY_BYTES": str(memory_bytes)} if memory_bytes else {}),
        "HRAG_EMBEDDER": f"hash:{dimension}",
        "HRAG_LOG_LEVEL": "info",
    }
    with running(data_dir, settings, fresh) as services:
        leaves = _ingest(services, HashEmbedder(dimension), tenants)
        vector_bytes = sum(vectors.nbytes for vectors in leaves)
        if memory_bytes:
            assert vector_bytes > 1.2 * memory_bytes, "the vectors fit into memory"
        with MemorySampler(services.retriever) as retriever:
            cold, warm = _ask_each(services.client, leaves, range(tenants), times=2)
            shuffled = random.Random(SEED).sample(range(tenants), tenants)
            (again,) = _ask_each(services.client, leaves, shuffled)
        now = memory_of(services.retriever)
    title = f"{tenants:,} tenants of {LEAVES} x {dimension}, {vector_bytes / MB:.0f} MB of vectors"
    report.at_most(500, retriever.peak_bytes / MB, f"retriever with {title}; now {now}", "MB")
    report.record("first search of a tenant", str(cold))
    report.record("the same once more, at once", str(warm))
    report.record("a search of it later, in another order", str(again))
    title = "p99 of a tenant's first search beyond that of its next, median of splits"
    report.at_most(most_ms, _usual_p99_ms(cold) - _usual_p99_ms(warm), title, "ms")
    assert report.missed == []


def _ingest(services: Running, embedder: HashEmbedder, tenants: int) -> list[Vectors]:
    """Ingests a document for each tenant over one stream; returns the vectors of its leaves."""
    bodies = [texts.text(number, texts.WORDS_OF_LEAVES[LEAVES]) for number in range(tenants)]
    responses = services.raw_indexer.IngestDocuments(_requests(bodies))
    leaves = [texts.leaf_vectors(body, embedder) for body in bodies]
    outcomes = chain.from_iterable(response.outcomes for response in responses)
    for number, outcome in enumerate(outcomes):
        result = indexer.outcome_from(outcome)
        assert isinstance(result, IngestResult), result
        assert result.chunks_per_level[0] == len(leaves[number])
    assert number == tenants - 1
    assert abs(np.mean([len(vectors) for vectors in leaves]) - LEAVES) < 1
    return leaves


def _requests(bodies: list[str]) -> Iterator[object]:
    for number, body in enumerate(bodies):
        document = Document(body, texts.document_id(number))
        yield ingest_many_request(_tenant(number), document, DEFAULT_COLLECTION)


def _tenant(number: int) -> str:
    return f"tenant-{number}"


def _usual_p99_ms(window: Window) -> float:
    """Returns the median of the p99 of consecutive groups of SPLIT searches.

    A pause of the machine affects only few groups, so it hardly changes the median.
    """
    splits = np.split(window.took_ms, len(window.took_ms) // SPLIT)
    return float(np.median([np.percentile(split, 99) for split in splits]))


def _ask_each(
    client: Client, leaves: list[Vectors], order: range | list[int], times: int = 1
) -> list[Window]:
    """Searches each tenant for one of its leaves, `times` times in a row.

    Fails unless the leaf is found. Returns `times` windows: the durations of the first search of
    every tenant, then of the second search of every tenant, and so on. First and second searches
    alternate, so other work of the machine slows all windows equally.
    """
    took = np.empty((times, len(leaves)))
    for position, number in enumerate(order):
        index = number % len(leaves[number])
        query = leaves[number][index].tolist()
        for repetition in range(times):
            began = time.perf_counter()
            result = client.search(
                _tenant(number), query, mode=SearchMode.STANDARD, neighbour_bonus=0.0
            )
            took[repetition, position] = time.perf_counter() - began
            assert {passage.chunk.document_id for passage in result.passages} == {
                texts.document_id(number)
            }
            best = result.passages[0]
            assert best.chunk.index == index
            assert best.score == pytest.approx(1, abs=_TOLERANCE)
    return [Window(durations * 1e3) for durations in took]
