"""The time of a restart after SIGKILL grows with the tail, not with the collection.

The collection has a million sealed leaves. Loading their segment files is measured separately.
The rest of a start must be short for a collection of any size.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hrag.cli.processes import INDEXER, RETRIEVER, Service
from hrag.client import Client
from hrag.engine import Vector
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.models.embedding import Vectors
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import IngestResult, SearchMode
from tests.endurance import stores, texts
from tests.endurance.load import loading_seconds
from tests.endurance.processes import memory_of, wait_until_idle
from tests.endurance.report import Report
from tests.endurance.settled import wait_until_sealed
from tests.support.servers.processes import Process, fresh, started
from tests.support.servers.stores import check_store

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(3600)]

TENANT = "restart"
LEAVES = 1_000_000
SMALL_TAIL = 1000
LARGE_TAIL = 30_000
# This is more than the leaves of the large tail, so that the tail is not sealed.
SEGMENT_MIN_LEAVES = 65_536
DIMENSION = 16
SEED = 81
SEAL_S = 1200.0
LEAST_RECALL = 0.99
# The most seconds that a start may take in addition to loading the segment files.
BEYOND_LOADING_S = 3.0
SETTINGS = {
    **texts.SMALL_LEVELS,
    "HRAG_EMBEDDER": f"hash:{DIMENSION}",
    "HRAG_SEGMENT_MIN_LEAVES": str(SEGMENT_MIN_LEAVES),
    "HRAG_LOG_LEVEL": "info",
}


def test_a_restart_with_a_million_leaves_is_quick(data_dir: Path, report: Report) -> None:
    vectors = _filled(data_dir)
    with started(INDEXER, data_dir, SETTINGS, start=fresh) as indexer:
        indexer.wait_until_serving()
        with Client(indexer.address) as client:
            status = wait_until_sealed(client, TENANT, 1, SEAL_S)
        wait_until_idle(indexer, SEAL_S)
    assert status.leaf_count == LEAVES
    number = LEAVES // stores.LEAVES_EACH
    for tail in (SMALL_TAIL, LARGE_TAIL):
        number = _grow(data_dir, tail, number)
        _measure(report, data_dir, tail, vectors, number - 1)
    check_store(data_dir)
    assert report.missed == []


def _filled(data_dir: Path) -> Vectors:
    """Commits all leaves without sealing them; returns their vectors in order."""
    random = np.random.default_rng(SEED)
    vectors = stores.unit(random.standard_normal((LEAVES, DIMENSION), np.float32))
    store = open_for_writing(data_dir)
    try:
        stores.fill(store, TENANT, vectors)
    finally:
        store.close()
    return vectors


def _grow(data_dir: Path, tail: int, number: int) -> int:
    """Ingests documents until the tail has `tail` leaves, then kills the indexer.

    The documents are numbered from `number`. Returns the next free number.
    """
    with (
        started(INDEXER, data_dir, SETTINGS, start=fresh) as indexer,
        Client(indexer.address) as client,
    ):
        indexer.wait_until_serving()
        missing = tail - client.index_status(TENANT).embedded.tail_leaf_count
        numbers = range(number, number + -(-missing // stores.LEAVES_EACH))
        for result in client.ingest_many(TENANT, texts.documents(numbers, (stores.LEAVES_EACH,))):
            assert isinstance(result, IngestResult), result
        assert client.index_status(TENANT).embedded.tail_leaf_count >= tail
        indexer.kill()
    return numbers.stop


def _measure(report: Report, data_dir: Path, tail: int, vectors: Vectors, last: int) -> None:
    """Measures a start of each service after a kill, and checks that searches find the leaves.

    `last` is the number of the last document of the tail.
    """
    with ExitStack() as stack:
        _serving(stack, RETRIEVER, data_dir)[0].kill()
        indexer, indexer_s = _serving(stack, INDEXER, data_dir)
        wait_until_idle(indexer, SEAL_S)
        retriever, retriever_s = _serving(stack, RETRIEVER, data_dir)
        _assert_leaves_are_found(indexer, retriever, vectors, last)
        memory = memory_of(retriever)
        indexer.kill()
        retriever.kill()
    loading_s = loading_seconds(data_dir)
    title = f"{LEAVES:,} leaves sealed, {tail:,} in the tail"
    report.record(f"{title}: loading the segment files alone", f"{loading_s:.2f} s")
    report.record(f"{title}: retriever serves after", f"{retriever_s:.2f} s, with {memory}")
    report.at_most(BEYOND_LOADING_S, indexer_s, f"{title}: indexer serves after", "s")
    beyond_s = retriever_s - loading_s
    report.at_most(BEYOND_LOADING_S, beyond_s, f"{title}: retriever, beyond loading", "s")


def _serving(stack: ExitStack, service: Service, data_dir: Path) -> tuple[Process, float]:
    """Starts a service; returns its process and the seconds until it served."""
    began = time.perf_counter()
    process = stack.enter_context(started(service, data_dir, SETTINGS, start=fresh))
    process.wait_until_serving()
    return process, time.perf_counter() - began


def _assert_leaves_are_found(
    indexer: Process, retriever: Process, vectors: Vectors, last: int
) -> None:
    """Fails unless searches find leaves of segments and the last document of the tail.

    Of the leaves of segments, HNSW may miss one in a hundred.
    """
    with Client(indexer.address, retriever.address) as client:
        chosen = range(0, LEAVES, LEAVES // 100)
        are_found = [_is_found(client, vectors[leaf], *_number_and_index(leaf)) for leaf in chosen]
        assert np.mean(are_found) >= LEAST_RECALL
        body = texts.text(last, texts.WORDS_OF_LEAVES[stores.LEAVES_EACH])
        assert client.get_text(TENANT, texts.document_id(last)) == body
        for index, vector in enumerate(texts.leaf_vectors(body, HashEmbedder(DIMENSION))):
            assert _is_found(client, vector, last, index)


def _number_and_index(leaf: int) -> tuple[int, int]:
    return divmod(leaf, stores.LEAVES_EACH)


def _is_found(client: Client, vector: Vector, number: int, index: int) -> bool:
    """Returns True if a search for the leaf's vector returns the leaf first."""
    plain = {"mode": SearchMode.STANDARD, "limit": 1, "neighbour_bonus": 0.0}
    best = client.search(TENANT, vector.tolist(), **plain).passages[0]
    if best.chunk.chunk_id != f"{texts.document_id(number)}#0.{index}":
        return False
    assert best.score == pytest.approx(1, abs=1e-5)
    return True
