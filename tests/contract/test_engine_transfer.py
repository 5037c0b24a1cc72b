"""What every storage engine promises about a transfer to it and from it.

Through an engine and back, everything is as it was; ended at any commit, it goes on.
"""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from hrag.engine.transfer import copier
from hrag.engine.transfer.transfer import transfer, verify
from hrag.engine.transfer.transfer_report import TransferProgress, TransferReport
from hrag.types import IngestOutcome
from tests.support.documents.random_stores import (
    IDS,
    SETTINGS,
    Killed,
    MortalWriter,
    contents,
    fill,
    vectors,
)
from tests.support.engines.memory_engine import MemoryEngine

TOLERANCE = 1e-3  # Of components that were stored in 16 bits.
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    """So that few documents take several commits."""
    monkeypatch.setattr(copier, "GROUP_DOCUMENTS", 3)


def transferred(source, writer, target, **options) -> TransferReport:
    """Transfers, and asserts that the report agrees with what the stores hold."""
    report = transfer(source, writer, target, TransferProgress(), **options)
    assert report.differences == ()
    there = contents(target)
    assert there == contents(source)
    assert report.documents == sum(each.document_count for each in source.collections())
    for one, other in zip(vectors(source), vectors(target), strict=True):
        assert np.allclose(one, other, atol=TOLERANCE)
    return report


def all_unchanged(reader, writer) -> bool:
    """Whether every document with a content hash is UNCHANGED when it is put again."""
    outcomes = [
        writer.put(writer.open(*place), stored.document).outcome
        for place in SETTINGS
        for stored in reader.export(*place)
        if stored.document.content_hash
    ]
    return set(outcomes) == {IngestOutcome.UNCHANGED}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_goes_through_an_engine_and_back(catalog, seed):
    origin, back = MemoryEngine(), MemoryEngine()
    fill(origin.writer(), seed)
    there = catalog.readers()
    report = transferred(origin.reader(), catalog.writer, there)
    assert (report.copied, report.present) == (report.documents, 0)
    assert all_unchanged(there, catalog.writer)
    transferred(there, back.writer(), back.reader())
    assert verify(origin.reader(), back.reader(), TransferProgress()).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_goes_to_another_engine_and_back(catalog, seed):
    fill(catalog.writer, seed)
    between, back = MemoryEngine(), catalog.another()
    transferred(catalog.readers(), between.writer(), between.reader())
    transferred(between.reader(), back.writer, back.readers())
    found = verify(catalog.readers(), back.readers(), TransferProgress())
    assert found.differences == ()


def test_a_transfer_that_is_run_again_writes_nothing(catalog):
    origin = MemoryEngine()
    fill(origin.writer(), 7)
    first = transferred(origin.reader(), catalog.writer, catalog.readers())
    tenants = {tenant_id for tenant_id, _ in SETTINGS}
    before = {tenant_id: catalog.readers().sequence(tenant_id) for tenant_id in tenants}
    again = transferred(origin.reader(), catalog.writer, catalog.readers())
    assert (again.copied, again.replaced, again.present) == (0, 0, first.copied)
    assert {each: catalog.readers().sequence(each) for each in tenants} == before


@pytest.mark.parametrize("committed", [False, True])
def test_a_transfer_that_dies_at_every_commit_loses_and_repeats_nothing(catalog, committed):
    """Each run dies at its second commit of documents, so each but the last adds one commit."""
    origin = MemoryEngine()
    fill(origin.writer(), 11)
    source, deaths, stored = origin.reader(), 0, -1
    while True:
        writer = MortalWriter(catalog.writer, 2, committed=committed)
        with suppress(Killed):
            report = transfer(source, writer, catalog.readers(), TransferProgress())
            break
        deaths += 1
        assert catalog.writer.totals().documents > stored
        stored = catalog.writer.totals().documents
    assert deaths > 3
    assert report.difference_count == 0
    assert report.present + report.copied == report.documents == origin.totals().documents
    assert contents(catalog.readers()) == contents(source)


def test_an_export_is_in_order_of_bytes(catalog):
    """Two engines' exports are merged, so both have to mean the same by order."""
    origin = MemoryEngine()
    fill(origin.writer(), 0)
    catalog.writer.create_collection("t", "c", SETTINGS["acme", "plain"])
    (one,) = list(origin.reader().export("acme", "plain"))[:1]
    for document_id in reversed(IDS):
        document = replace(one.document, document_id=document_id)
        catalog.writer.put(catalog.collection, document)
    found = [each.document_id for each in catalog.readers().export("t", "c")]
    assert found == sorted(IDS, key=str.encode)


def test_a_reader_knows_the_aliases_of_a_tenant(catalog):
    fill(catalog.writer, 1, 1)
    reader = catalog.readers()
    for tenant_id in ("acme", "acme.co", "b", "nobody"):
        assert reader.aliases(tenant_id) == catalog.writer.aliases(tenant_id)
    assert [(each.name, each.collection) for each in reader.aliases("acme")] == [
        ("live", "Handbook"),
        ("old", "Handbook"),
    ]
