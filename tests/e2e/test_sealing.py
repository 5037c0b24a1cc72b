"""Searches return the same passages before, while and after a tail becomes a segment."""

from pathlib import Path

import pytest

from hrag.client import Client
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, IndexStatus, SearchMode, SearchResult
from tests.support.parameters import slow
from tests.support.servers.processes import FAST, Running, running
from tests.support.until import until

SEALS = {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64", "HRAG_VECTOR_MEMORY_BYTES": "0"}
QUERIES = [f"query {number}" for number in range(20)]
_TOLERANCE = 1e-5

pytestmark = pytest.mark.embedded_only("other engines have no segments")


def _text(number: int, sentences: int = 200) -> str:
    return "".join(f"Document {number} says sentence {sentence}. " for sentence in range(sentences))


def _ingest(client: Client, numbers: range) -> None:
    for number in numbers:
        client.ingest("t", Document(_text(number), f"d{number}"))


def _sealed(client: Client) -> IndexStatus:
    """Waits until there is a segment and the tail is too short to seal; returns the status."""
    statuses: list[IndexStatus] = []

    def is_sealed() -> bool:
        statuses[:] = [client.index_status("t")]
        embedded = statuses[0].embedded
        return bool(embedded.segments) and embedded.tail_leaf_count < 64

    until(is_sealed)
    return statuses[0]


def _answers(client: Client) -> list[SearchResult]:
    return [
        client.search("t", query, limit=20, return_level=level)
        for query in QUERIES
        for level in (0, 2, 3)
    ]


def _assert_same(before: list[SearchResult], after: list[SearchResult]) -> None:
    for expected, actual in zip(before, after, strict=True):
        assert [passage.chunk for passage in expected.passages] == [
            passage.chunk for passage in actual.passages
        ]
        assert [passage.score for passage in actual.passages] == pytest.approx(
            [passage.score for passage in expected.passages], abs=_TOLERANCE
        )


def test_a_sealed_collection_answers_as_its_tail_did(data_dir: Path) -> None:
    with running(data_dir, FAST) as services:
        _ingest(services.client, range(40))
        in_tail = services.client.index_status("t")
        before = _answers(services.client)
    assert in_tail.embedded.segments == ()
    assert in_tail.embedded.tail_leaf_count == in_tail.leaf_count
    with running(data_dir, SEALS) as services:
        status = _sealed(services.client)
        (segment,) = status.embedded.segments
        assert status.embedded.tail_leaf_count == 0
        assert segment.leaf_count == status.leaf_count == in_tail.leaf_count
        assert segment.size_bytes > 0
        assert (
            status.embedded.sealed_sequence
            == segment.covered_sequence
            == in_tail.committed_sequence
        )
        _assert_same(before, _answers(services.client))
        _assert_new_documents_are_found_at_once(services)
        _assert_deleted_documents_are_not_found(services)


def _assert_new_documents_are_found_at_once(services: Running) -> None:
    """Fails unless each new document is found at once, also while the next segment is built."""
    client = services.client
    for number in range(40, 60):
        client.ingest("t", Document(_text(number), f"d{number}"))
        leaf = client.get_chunk("t", f"d{number}#0.1").chunk
        result = client.search("t", leaf.content, mode=SearchMode.STANDARD, limit=1)
        assert result.passages[0].chunk == leaf
        assert result.passages[0].dense_score == pytest.approx(1, abs=_TOLERANCE)
        assert (result.passages[0].lexical_score or 0) > 0
    _sealed(client)


def _assert_deleted_documents_are_not_found(services: Running) -> None:
    """Fails if a search returns deleted documents, whose vectors a segment still contains."""
    client = services.client
    gone, changed = (client.get_chunk("t", f"d{number}#0.1").chunk for number in (0, 1))
    client.delete_document("t", "d0")
    client.ingest("t", Document("Something else.", "d1"))
    for leaf in (gone, changed):
        vector = HashEmbedder(64).embed([leaf.content])[0].tolist()
        for level in range(4):
            result = client.search("t", vector, limit=100, return_level=level)
            assert all(passage.score < 0.99 for passage in result.passages)
            assert "d0" not in {passage.chunk.document_id for passage in result.passages}


@pytest.mark.parametrize("damage", [*slow("truncated"), "overwritten"])
def test_a_segment_that_is_damaged_while_it_is_used_changes_no_answer(
    data_dir: Path, damage: str
) -> None:
    """Its vectors stay in the file. What cannot be read comes from LMDB until it is rebuilt."""
    with running(data_dir, SEALS) as services:
        _ingest(services.client, range(10))
        (segment,) = _sealed(services.client).embedded.segments
        before = _answers(services.client)
        (index,) = data_dir.glob("segments/*/index.hnsw")
        size = index.stat().st_size
        with index.open("r+b") as file:
            file.write(b"\xff" * size)
            file.truncate(size if damage == "overwritten" else 0)
        _assert_same(before, _answers(services.client))
        until(lambda: _sealed(services.client).embedded.segments[0] != segment)
        _assert_same(before, _answers(services.client))
    assert "vectors cannot be used" in services.retriever.log


@pytest.mark.slow
def test_a_restart_finds_segments_and_tail_again(data_dir: Path) -> None:
    with running(data_dir, SEALS) as services:
        _ingest(services.client, range(30))
        _sealed(services.client)
        services.client.ingest("t", Document("In the tail.", "last"))
        before = _answers(services.client)
    with running(data_dir, SEALS) as services:
        _assert_same(before, _answers(services.client))
        assert services.client.search("t", "In the tail.").passages[0].chunk.document_id == "last"


def test_equal_texts_are_all_found_in_a_segment(data_dir: Path) -> None:
    """Equal vectors share one node of the HNSW graph.

    A graph with thousands of nodes for equal vectors would have a low recall.
    """
    with running(data_dir, SEALS) as services:
        client = services.client
        same = [Document("The same words.", f"same{number}") for number in range(150)]
        list(client.ingest_many("t", [*same, Document("Other words.", "other")]))
        _sealed(client)
        result = client.search("t", "The same words.", limit=100)
        assert min(passage.dense_score or 0 for passage in result.passages) > 1 - _TOLERANCE
        assert len({passage.chunk.document_id for passage in result.passages}) == 100
