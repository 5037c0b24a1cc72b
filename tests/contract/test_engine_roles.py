"""Every storage engine keeps these promises about maintenance and administration."""

import pytest

from hrag.engine.reports import CheckReport
from hrag.errors import NotSupported
from hrag.values.deadline import Deadline
from hrag.values.ids import ChunkId
from tests.support.documents.fakes import prepared, sentences
from tests.support.engines.memory_engine import MemoryEngine


def test_an_engine_has_a_name(catalog, request):
    assert f"[{catalog.engine.name}]" in request.node.name


def test_writing_does_not_wait_while_indexing_keeps_up(catalog):
    catalog.create()
    catalog.fill(prepared("d", sentences(9)))
    catalog.writer.wait_for_capacity(catalog.collection, Deadline.after(5.0))


def test_maintenance_runs_during_reads_and_writes_and_stops(filled):
    maintenance = filled.engine.maintenance()
    maintenance.start()
    filled.writer.put(filled.collection, prepared("new", sentences(9)))
    with filled.snapshot() as snapshot:
        assert snapshot.chunk(_first_leaf("new")).chunk.document_id == "new"
    assert maintenance.close()


def _first_leaf(document_id):
    return ChunkId(document_id, 0, 0)


def test_a_check_reports_what_it_has_checked_if_the_engine_supports_it(filled):
    administration = filled.engine.administration()
    try:
        report = administration.check()
    except NotSupported:
        return
    assert isinstance(report, CheckReport)
    assert (report.collections, report.documents, report.problems) == (1, 10, ())
    assert report.leaves == filled.model.leaf_count


def test_the_memory_engine_does_not_support_administration():
    administration = MemoryEngine().administration()
    for call in (administration.check, administration.vacuum, administration.reindex):
        with pytest.raises(NotSupported, match="in memory"):
            call()
