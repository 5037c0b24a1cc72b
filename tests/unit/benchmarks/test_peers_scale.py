"""The comparison of peers by corpus size: its corpus, callers, limits, choice of ef and table."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from benchmarks.peers import trees
from benchmarks.peers.memory import descendants, resident_bytes
from benchmarks.peers.scale.callers import Callers
from benchmarks.peers.scale.comparison import Figures, Searched, Size, groups
from benchmarks.peers.scale.corpus import SeededCorpus
from benchmarks.peers.scale.corpus_writer import vector_parts, write_corpus
from benchmarks.peers.scale.effort import least_ef, recall_at_10
from benchmarks.peers.scale.hnswlib_itself import HnswlibLeaves
from benchmarks.peers.scale.leaves import leaves_with_parents
from benchmarks.peers.scale.limits import Limits, Watch
from benchmarks.peers.scale.peer import CANDIDATES, LIMIT
from benchmarks.peers.scale.tables import table
from benchmarks.peers.vectors import DIMENSION
from tests.support.until import until

# This program starts a child process and waits for it.
WAITING = "import subprocess, sys; subprocess.run(['sleep', '60'])"


@pytest.mark.slow
def test_a_written_corpus_is_read_unchanged(tmp_path):
    count = write_corpus(tmp_path, 500)
    corpus = SeededCorpus(tmp_path)
    documents = list(corpus)
    assert len(corpus) == count >= 500
    assert [document.first_row for document in documents] == corpus.first_rows
    vectors = np.concatenate([document.vectors for document in documents])
    assert len(vectors) == count
    leaves = trees.pieces(documents[1].tree, trees.TREE.embedding_level)
    assert len(leaves) == len(documents[1].vectors)
    assert max(leaf.end for leaf in leaves) == len(documents[1].text)
    for query, nearest in zip(corpus.queries, corpus.nearest, strict=True):
        assert set(nearest) == set(np.argsort(vectors @ query.vector)[-10:])
    row = corpus.query_vectors().rows_of([corpus.queries[3].text])[0]
    assert np.array_equal(row, corpus.queries[3].vector)
    assert corpus.dimension == DIMENSION


@pytest.mark.slow
def test_an_index_alone_returns_the_text_of_the_nearest_leaves_parents(tmp_path):
    write_corpus(tmp_path, 300)
    corpus = SeededCorpus(tmp_path)
    leaves = list(leaves_with_parents(corpus))
    assert [leaf.row for leaf in leaves] == list(range(len(corpus)))
    stored = tmp_path / "stored"
    stored.mkdir()
    peer = HnswlibLeaves(stored)
    assert peer.index_leaves(corpus) > 0
    peer.set_ef(50)
    query = corpus.queries[0]
    nearest = peer.nearest(query)
    assert len(set(nearest) & set(corpus.nearest[0])) >= 9
    first, *others = peer.search(query, CANDIDATES, LIMIT)
    assert first == leaves[nearest[0]].passage
    assert first not in others
    assert len(others) == LIMIT - 1
    peer.save()
    assert peer.stored_bytes() > len(corpus) * DIMENSION * 4


def test_each_part_of_the_vectors_has_different_vectors():
    first, second = vector_parts(30, 20)
    assert (first.shape, second.shape) == ((20, DIMENSION), (10, DIMENSION))
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    assert not np.allclose(first[:10], second)
    assert [part.shape for part in vector_parts(30, 20, dimension=8)] == [(20, 8), (10, 8)]


def test_callers_begin_together_at_different_queries():
    searched = [[], []]
    barrier = threading.Barrier(2)

    def search(queries):
        def searching(query):
            if not queries:
                barrier.wait(timeout=20)
            queries.append(query)
            time.sleep(0.01)

        return searching

    load = Callers(list(map(search, searched)), list(range(10)), seconds=0.5)()
    assert [queries[:2] for queries in searched] == [[0, 1], [5, 6]]
    assert len(load.took_s) == sum(map(len, searched))
    assert 0.5 <= load.elapsed_s < 20


def test_an_error_of_a_search_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        Callers([lambda query: 1 / query], [0], seconds=5)()


def test_recall_is_the_mean_over_queries():
    exact = [list(range(10)), list(range(10))]
    assert recall_at_10([[*range(5), 77], list(range(10))], exact) == 0.75


@pytest.mark.parametrize(
    ("recalls", "chosen"),
    [({10: 0.94, 20: 0.95, 40: 1.0}, (20, 0.95)), ({10: 0.1, 20: 0.2, 40: 0.3}, (40, 0.3))],
    ids=["enough", "never enough"],
)
def test_the_least_ef_with_enough_recall_is_chosen(recalls, chosen):
    assert least_ef(list(recalls), recalls.__getitem__) == chosen


@pytest.mark.parametrize(
    ("seconds", "memory_bytes", "reason"),
    [
        (10, 1e9, None),
        (10.1, 1e9, "more than 10 s"),
        (3, 2.6e9, "more than 2.5 GB of memory after 3 s"),
    ],
)
def test_the_reason_names_the_limit_that_was_exceeded(seconds, memory_bytes, reason):
    assert Limits(10, 2.5e9).exceeded(seconds, memory_bytes) == reason


@pytest.mark.parametrize("limits", [Limits(0.1, 1e12), Limits(60, 1000)], ids=["time", "memory"])
def test_a_worker_beyond_a_limit_is_killed_with_its_children(limits):
    worker = subprocess.Popen([sys.executable, "-c", WAITING])
    try:
        while not (children := descendants(worker.pid)):
            time.sleep(0.01)
        with Watch(worker.pid, limits) as watch:
            worker.wait(timeout=30)
    finally:
        worker.kill()
        worker.wait()
    assert watch.exceeded
    assert watch.peak_bytes > 0
    # The kernel frees the memory of a process a moment after it was killed.
    until(lambda: not resident_bytes(children))


def test_resident_memory_ignores_processes_that_have_ended():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    before = resident_bytes([os.getpid()])
    assert resident_bytes([os.getpid(), ended.pid]) == pytest.approx(before, rel=0.1)


def test_large_corpora_are_measured_one_peer_at_a_time():
    assert groups(["hrag", "pgvector"], 100_000) == [["hrag", "pgvector"]]
    assert groups(["hrag", "pgvector"], 1_000_000) == [["hrag"], ["pgvector"]]


def test_the_table_has_the_reason_why_a_peer_did_not_reach_a_size():
    costs = {
        "index_s": 123.4,
        "save_s": 0.00001,
        "stored_bytes": 5e6,
        "memory_bytes": 2e8,
        "peak_bytes": 3e9,
        "ef": 800,
        "recall": 0.9,
    }
    searched = {1: Searched([0.001] * 100, 0.5), 8: Searched([0.004] * 1000, 0.5)}
    size = Size(100_000, {"langchain": Figures(costs, searched)})
    size.peers["llama-index"] = Figures({"peak_bytes": 12e9}, failed="indexing took more than 9 s")
    _, _, done, failed, reason = table(size)
    cells = [cell.strip() for cell in done.strip("|").split("|")]
    assert cells[1:6] == ["123 s", "none", "5 MB", "200 MB", "3,000 MB"]
    assert cells[6:8] == ["800", "0.900 (too low)"]
    assert cells[8:] == ["1.00, 1.00 ms", "200", "4.00, 4.00 ms", "2,000"]
    assert failed.count("none") == 10
    assert reason == (
        "\nLlamaIndex + FAISS HNSW did not reach this size: indexing took more than 9 s"
    )
