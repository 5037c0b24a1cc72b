"""Tests of the dense source: graph search and exact scan find the same eligible leaves."""

import numpy as np
import pytest

from hrag.engine.common.candidates import Candidates
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.sources.vector_source import VectorSource
from hrag.engine.embedded.search.view import View, load_view
from hrag.engine.embedded.segments.segment_files import load
from hrag.engine.find import VALUES, FindRequest
from hrag.types import SearchMode
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, query_vector, sentences

SETTINGS = collection_settings()


@pytest.fixture
def view(engine: Engine) -> View:
    """A view with 180 leaves in a segment and 36 in the tail. Some leaves of both are deleted."""
    engine.writer.create_collection("t", "c", SETTINGS)
    for number in range(5):
        document = prepared(f"d{number}", sentences(80 + 5 * number, number), seed=number)
        engine.writer.put(engine.open(), document)
    segment = load(engine.store.segments, engine.seal())
    engine.writer.put(engine.open(), prepared("d3", sentences(9, 9), seed=9))
    for number in (6, 7):
        document = prepared(f"d{number}", sentences(40, number), seed=number)
        engine.writer.put(engine.open(), document)
    engine.writer.delete(engine.open(), "d6")
    with engine.store.read() as txn:
        by_id = {segment.record.segment_id: segment}
        return load_view(txn, SETTINGS, 1, by_id)


def nearest(seed: int, eligible: EligibleRows, count: int) -> Candidates:
    return VectorSource(eligible.view, query_vector(seed)).candidates(eligible, count)


def living(view: View) -> np.ndarray:
    """Returns the rows of the leaves that are not deleted."""
    return np.flatnonzero(view.alive[: view.count]).astype(np.uint32)


@pytest.mark.parametrize("share", [1, 2, 5, 1000])
def test_graph_search_and_scan_find_the_same(view, share):
    rows = None if share == 1 else living(view)[::share].copy()
    eligible = EligibleRows(view, rows)
    expected = living(view)[::share]
    assert eligible.count == len(expected)
    for seed in range(5):
        everything = nearest(seed, eligible, 10_000)
        assert (everything.complete, everything.exact) == (True, True)
        assert sorted(everything.rows) == expected.tolist()
        best = everything.rows[np.argsort(-everything.scores)]
        for count in (1, 2, len(expected) // 2 + 1):
            near = nearest(seed, eligible, count)
            assert near.complete == (count >= len(expected))
            assert set(near.rows) == set(best[:count])
            assert np.allclose(np.sort(near.scores), np.sort(everything.scores)[-count:], atol=1e-5)


def test_a_search_for_few_of_many_leaves_uses_the_graph(view):
    assert not nearest(0, EligibleRows(view), 1).exact
    assert nearest(0, EligibleRows(view), view.living // 20 + 1).exact


def test_each_segment_is_searched_in_the_way_that_costs_less(engine, view):
    """The tail becomes a small segment, which is scanned. The large segment's graph is searched."""
    opened = engine.open().collection_id
    segments = {segment.record.segment_id: segment for segment in view.segments}
    small = load(engine.store.segments, engine.seal())
    with engine.store.read() as txn:
        both = load_view(txn, SETTINGS, opened, {**segments, small.record.segment_id: small})
    rows, second = living(both), both.bases[1]
    assert not nearest(0, EligibleRows(both, rows[rows < second]), 1).exact
    assert nearest(0, EligibleRows(both, rows[rows >= second]), 1).exact
    found = nearest(0, EligibleRows(both), 1)
    assert found.rows == nearest(0, EligibleRows(both, exact=True), 1).rows


def test_few_eligible_rows_are_scanned(view):
    assert nearest(0, EligibleRows(view, living(view)[::10].copy()), 1).exact


def test_a_search_that_must_be_exact_scans_the_rows(view):
    assert nearest(0, EligibleRows(view, living(view), exact=True), 1).exact


def test_a_tail_alone_is_scanned(engine):
    engine.writer.create_collection("t", "c", SETTINGS)
    engine.writer.put(engine.open(), prepared("d", sentences(500)))
    request = FindRequest(query_vector(0), SearchMode.STANDARD, 0, 1, 1)
    with engine.reader.snapshot("t", "c") as snapshot:
        found = snapshot.find(request, VALUES)
    assert (found.exact, found.considered, found.exhausted) == (True, 1, False)


def test_without_eligible_rows_nothing_is_found(view):
    found = nearest(5, EligibleRows(view, np.empty(0, np.uint32)), 5)
    assert (len(found), found.complete, found.exact) == (0, True, True)


def test_equal_vectors_have_equal_scores_in_a_segment_and_in_the_tail(engine: Engine) -> None:
    """The order of two copies in a result therefore does not depend on which of them is sealed."""
    settings = collection_settings(dimension=384)
    engine.writer.create_collection("t", "c", settings)
    copies = [prepared(name, sentences(80), settings, seed=1) for name in ("first", "second")]
    engine.writer.put(engine.open(), copies[0])
    segment = load(engine.store.segments, engine.seal())
    engine.writer.put(engine.open(), copies[1])
    with engine.store.read() as txn:
        view = load_view(txn, settings, 1, {segment.record.segment_id: segment})
    rows = np.arange(view.count, dtype=np.uint32)
    for seed in range(20):
        source = VectorSource(view, query_vector(seed, 384))
        nearest = source.candidates(EligibleRows(view, rows), len(rows))
        nearest_scores = nearest.scores[np.argsort(nearest.rows)]
        for scores in (source.cosines(rows), nearest_scores):
            assert scores[: view.tail_base].tobytes() == scores[view.tail_base :].tobytes()
