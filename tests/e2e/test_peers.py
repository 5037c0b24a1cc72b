"""hrag runs in the benchmark that compares it with its peers, both directly and by the driver."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.load import h2load
from benchmarks.peers.corpora import Corpus, Question, evaluation
from benchmarks.peers.driver import Plan, Run
from benchmarks.peers.hrag_itself import Context, Hybrid, InProcess, OverGrpc
from benchmarks.peers.peer import FillsBudget, Query, Text
from benchmarks.peers.scale.limits import Limits
from benchmarks.peers.servers import comparison as servers
from benchmarks.peers.session import PeerFailed, Session
from benchmarks.peers.vectors import DIMENSION, UnknownText, Vectors, key_of
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text import tokens

pytestmark = pytest.mark.slow

LINES = [f"Line {number} describes the number {number}, and of no other." for number in range(200)]
DOCUMENTS = [Text("first", "\n".join(LINES[:100])), Text("second", "\n".join(LINES[100:]))]


def vectors_of(texts):
    return Vectors(list(map(key_of, texts)), HashEmbedder(DIMENSION).embed(texts))


def test_hrag_finds_the_same_passages_in_process_and_over_grpc(tmp_path):
    (tmp_path / "services").mkdir()
    peers = [InProcess(tmp_path / "store"), OverGrpc(tmp_path / "services")]
    try:
        leaves = peers[0].leaf_texts(DOCUMENTS)
        vectors = vectors_of(leaves)
        row = vectors.rows_of([leaves[-1]])[0]
        query = Query("", row, row.tolist())
        results = []
        for peer in peers:
            assert peer.leaf_texts(DOCUMENTS) == leaves
            indexed = peer.index(DOCUMENTS, vectors)
            assert indexed.leaves == len(leaves)
            assert peer.stored_bytes() > len(leaves) * DIMENSION * 4
            assert peer.processes()
            results.append(peer.search(query, candidates=10, limit=1))
    finally:
        for peer in peers:
            peer.close()
    assert results[0] == results[1]
    (passage,) = results[0]
    assert passage.document_id == "second"
    assert leaves[-1] in passage.text
    assert DOCUMENTS[1].text.startswith(passage.text, passage.start)


def test_hybrid_search_finds_by_words_and_fills_a_budget(tmp_path):
    peers = [Hybrid(tmp_path / "hybrid"), Context(tmp_path / "context")]
    try:
        vectors = vectors_of(peers[0].leaf_texts(DOCUMENTS))
        other = vectors.rows_of(peers[0].leaf_texts(DOCUMENTS[:1])[:1])[0]
        query = Query("the number 187", other, other.tolist())
        for peer in peers:
            peer.index(DOCUMENTS, vectors)
        assert LINES[187] in peers[0].search(query, candidates=10, limit=1)[0].text
        passages = peers[1].filled(query, candidates=10, budget=300)
        assert 250 < sum(len(tokens.encode(passage.text)) for passage in passages) <= 300
    finally:
        for peer in peers:
            peer.close()
    assert [isinstance(peer, FillsBudget) for peer in peers] == [False, True]


def test_a_leaf_without_a_vector_stops_the_run(tmp_path):
    peer = InProcess(tmp_path / "store")
    with pytest.raises(UnknownText):
        peer.index(DOCUMENTS, Vectors([], np.empty((0, DIMENSION), np.float32)))
    peer.close()


def test_a_run_measures_installed_peers_and_reports_missing_peers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.peers.registry.PEERS_PYTHON", tmp_path / "nowhere")
    timed = Corpus("timed", False, DOCUMENTS, [Question(line, {}) for line in LINES[:5]])
    gold = {"second": [(0, len(LINES[100]))]}
    scored = Corpus("scored", False, DOCUMENTS, [Question(LINES[100], gold)])
    plan = Plan(["hrag", "langchain"], index_rounds=1, search_rounds=2, block=3)
    results = Run(plan, timed, [scored], tmp_path / "vectors.npz")()
    assert "not installed" in results.skipped["langchain"]
    assert "SKIPPED" in capsys.readouterr().out
    assert list(results.indexed) == ["hrag"]
    assert {limit: len(took) for limit, took in results.searched["hrag"].items()} == {10: 6, 50: 6}
    scores = results.recall["hrag"]["scored"]
    assert len(scores) == 4
    assert {score["lost"] for score in scores} == {0}
    assert scores[0]["recall"] == 1.0


def test_hrag_is_measured_as_a_server_and_missing_servers_are_reported(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("benchmarks.peers.registry.PEERS_PYTHON", tmp_path / "nowhere")
    plan = servers.Plan(["hrag", "redis"], leaves=300, rounds=1, seconds=1, limits=Limits(60, 4e9))
    results = servers.Comparison(plan)()
    assert "not installed" in results.servers["redis"].failed
    assert "SKIPPED Redis Stack" in capsys.readouterr().out
    if h2load.is_installed():
        (measured,) = results.servers["hrag"].rounds
        assert measured["calls"] > 0
        assert measured["server_ms"] > 0
        assert results.servers["hrag"].costs["recall"] > 0.95
    else:
        assert h2load.MISSING in results.servers["hrag"].failed


def test_a_worker_that_ends_reports_why(tmp_path):
    worker = "benchmarks.peers.worker"
    with Session(Path(sys.executable), worker, "hrag", tmp_path / "worker") as session:
        with pytest.raises(PeerFailed, match="FileNotFoundError"):
            session.call("index", corpus=str(tmp_path / "none.json"), vectors="none.npz")
        with pytest.raises(PeerFailed):
            session.call("versions")


def test_evaluation_data_is_read_with_the_expected_spans(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"doc_id": "d", "lang": "zh", "text": "六七"}\n')
    spans = '[{"doc_id": "d", "start": 0, "end": 1}, {"doc_id": "d", "start": 1, "end": 2}]'
    (tmp_path / "queries.jsonl").write_text(f'{{"query": "几", "gold": {spans}}}\n')
    read = evaluation(tmp_path)
    assert read.chinese
    assert read.documents == [Text("d", "六七")]
    assert read.questions == [Question("几", {"d": [(0, 1), (1, 2)]})]
    read.save(tmp_path / "saved.json")
    assert Corpus.load(tmp_path / "saved.json").text_bytes == 6
