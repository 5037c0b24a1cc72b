"""Sealing is invisible: the same passages before, while and after a tail becomes a segment."""

import time
from pathlib import Path

import pytest

from hrag.client import Client
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, IndexStatus, SearchMode, SearchResult
from tests.support.servers.processes import FAST, Running, running

SEALS = {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}
QUERIES = [f"query {number}" for number in range(20)]
_TOLERANCE = 1e-5

pytestmark = pytest.mark.embedded_only("other engines have no segments")


def _text(number: int, sentences: int = 200) -> str:
    return "".join(f"Document {number} says sentence {each}. " for each in range(sentences))


def _ingest(client: Client, numbers: range) -> None:
    for number in numbers:
        client.ingest("t", Document(_text(number), f"d{number}"))


def _sealed(client: Client) -> IndexStatus:
    """The status once there is a segment and nothing to seal."""
    until = time.monotonic() + 15
    while True:
        status = client.index_status("t")
        if status.embedded.segments and status.embedded.tail_leaf_count < 64:
            return status
        assert time.monotonic() < until, status
        time.sleep(0.05)


def _answers(client: Client) -> list[SearchResult]:
    return [
        client.search("t", query, limit=20, return_level=level)
        for query in QUERIES
        for level in (0, 2, 3)
    ]


def _assert_same(before: list[SearchResult], after: list[SearchResult]) -> None:
    for one, other in zip(before, after, strict=True):
        assert [passage.chunk for passage in one.passages] == [
            passage.chunk for passage in other.passages
        ]
        assert [passage.score for passage in other.passages] == pytest.approx(
            [passage.score for passage in one.passages], abs=_TOLERANCE
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
        _new_documents_are_found_at_once(services)
        _dead_documents_are_not_found_any_more(services)


def _new_documents_are_found_at_once(services: Running) -> None:
    """Beside a segment, and while the next one is built."""
    client = services.client
    for number in range(40, 60):
        client.ingest("t", Document(_text(number), f"d{number}"))
        leaf = client.get_chunk("t", f"d{number}#0.1").chunk
        found = client.search("t", leaf.content, mode=SearchMode.STANDARD, limit=1)
        assert found.passages[0].chunk == leaf
        assert found.passages[0].dense_score == pytest.approx(1, abs=_TOLERANCE)
        assert (found.passages[0].lexical_score or 0) > 0
    _sealed(client)


def _dead_documents_are_not_found_any_more(services: Running) -> None:
    """Though a segment still holds their vectors."""
    client = services.client
    gone, changed = (client.get_chunk("t", f"d{number}#0.1").chunk for number in (0, 1))
    client.delete_document("t", "d0")
    client.ingest("t", Document("Something else.", "d1"))
    for leaf in (gone, changed):
        vector = HashEmbedder(64).embed([leaf.content])[0].tolist()
        for level in range(4):
            found = client.search("t", vector, limit=100, return_level=level)
            assert all(passage.score < 0.99 for passage in found.passages)
            assert "d0" not in {passage.chunk.document_id for passage in found.passages}


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
    """Thousands of equal vectors ruin the recall of a graph that holds each of them."""
    with running(data_dir, SEALS) as services:
        client = services.client
        same = [Document("The same words.", f"same{number}") for number in range(150)]
        list(client.ingest_many("t", [*same, Document("Other words.", "other")]))
        _sealed(client)
        found = client.search("t", "The same words.", limit=100)
        assert min(passage.dense_score or 0 for passage in found.passages) > 1 - _TOLERANCE
        assert len({passage.chunk.document_id for passage in found.passages}) == 100
