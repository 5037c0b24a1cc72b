"""Every storage engine keeps these promises about transfers to it and from it.

A transfer to an engine and back changes nothing. If a transfer is interrupted at any commit, the
next one continues it.
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

# The components of vectors are stored in 16 bits.
TOLERANCE = 1e-3
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch):
    """Makes a transfer commit three documents at once, so that few documents take many commits."""
    monkeypatch.setattr(copier, "GROUP_DOCUMENTS", 3)


def transferred(source, writer, target, **options) -> TransferReport:
    """Transfers a store; returns the report.

    Fails unless both stores then have the same contents, and the report says so.
    """
    report = transfer(source, writer, target, TransferProgress(), **options)
    assert report.differences == ()
    assert contents(target) == contents(source)
    counts = [collection.document_count for collection in source.collections()]
    assert report.documents == sum(counts)
    for vector, copy in zip(vectors(source), vectors(target), strict=True):
        assert np.allclose(vector, copy, atol=TOLERANCE)
    return report


def all_unchanged(reader, writer) -> bool:
    """Puts the documents of `reader` with a content hash; returns True if all are UNCHANGED."""
    outcomes = [
        writer.put(writer.open(tenant_id, name), stored.document).outcome
        for tenant_id, name in SETTINGS
        for stored in reader.export(tenant_id, name)
        if stored.document.content_hash
    ]
    return set(outcomes) == {IngestOutcome.UNCHANGED}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_memory_store_is_transferred_to_an_engine_and_back(catalog, seed):
    origin, back = MemoryEngine(), MemoryEngine()
    fill(origin.writer(), seed)
    reader = catalog.readers()
    report = transferred(origin.reader(), catalog.writer, reader)
    assert (report.copied, report.present) == (report.documents, 0)
    assert all_unchanged(reader, catalog.writer)
    transferred(reader, back.writer(), back.reader())
    assert verify(origin.reader(), back.reader(), TransferProgress()).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_is_transferred_to_the_memory_engine_and_back(catalog, seed):
    fill(catalog.writer, seed)
    between, back = MemoryEngine(), catalog.another_store()
    transferred(catalog.readers(), between.writer(), between.reader())
    transferred(between.reader(), back.writer, back.readers())
    report = verify(catalog.readers(), back.readers(), TransferProgress())
    assert report.differences == ()


def test_a_transfer_that_is_run_again_writes_nothing(catalog):
    origin = MemoryEngine()
    fill(origin.writer(), 7)
    first = transferred(origin.reader(), catalog.writer, catalog.readers())
    tenants = {tenant_id for tenant_id, _ in SETTINGS}
    before = {tenant_id: catalog.readers().sequence(tenant_id) for tenant_id in tenants}
    again = transferred(origin.reader(), catalog.writer, catalog.readers())
    assert (again.copied, again.replaced, again.present) == (0, 0, first.copied)
    assert {tenant: catalog.readers().sequence(tenant) for tenant in tenants} == before


@pytest.mark.parametrize("committed", [False, True])
def test_a_transfer_that_ends_at_every_commit_loses_and_repeats_nothing(catalog, committed):
    """Each run is interrupted at its second commit of documents, so it adds documents.

    The last run has no second commit and completes the transfer.
    """
    origin = MemoryEngine()
    fill(origin.writer(), 11)
    source, interrupted_runs, stored = origin.reader(), 0, -1
    while True:
        writer = MortalWriter(catalog.writer, 2, committed=committed)
        with suppress(Killed):
            report = transfer(source, writer, catalog.readers(), TransferProgress())
            break
        interrupted_runs += 1
        assert catalog.writer.totals().documents > stored
        stored = catalog.writer.totals().documents
    assert interrupted_runs > 3
    assert report.difference_count == 0
    assert report.present + report.copied == report.documents == origin.totals().documents
    assert contents(catalog.readers()) == contents(source)


def test_an_export_is_in_the_order_of_the_bytes_of_ids(catalog):
    """A transfer merges the sorted exports of two engines, so both must be in the same order."""
    origin = MemoryEngine()
    fill(origin.writer(), 0)
    catalog.writer.create_collection("t", "c", SETTINGS["acme", "plain"])
    stored = next(iter(origin.reader().export("acme", "plain")))
    for document_id in reversed(IDS):
        document = replace(stored.document, document_id=document_id)
        catalog.writer.put(catalog.collection, document)
    exported = [document.document_id for document in catalog.readers().export("t", "c")]
    assert exported == sorted(IDS, key=str.encode)


def test_a_reader_lists_the_aliases_of_a_tenant(catalog):
    fill(catalog.writer, 1, 1)
    reader = catalog.readers()
    for tenant_id in ("acme", "acme.co", "b", "nobody"):
        assert reader.aliases(tenant_id) == catalog.writer.aliases(tenant_id)
    assert [(alias.name, alias.collection) for alias in reader.aliases("acme")] == [
        ("live", "Handbook"),
        ("old", "Handbook"),
    ]
