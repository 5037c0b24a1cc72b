"""Copies a whole store into one of another engine, and proves that both hold the same.

The source is only read. Nothing is embedded or summarised again. First all documents are
copied that the target lacks, then both stores are read and compared from beginning to end. A
transfer that was ended at any point is run again and goes on. Documents that the target has
otherwise are replaced only if that is wanted, and none is ever deleted.

Not part of a transfer: sequences, which the target counts itself, from 1 for each tenant, the
number of tokens that summaries have cost, and indexes, which the target builds.
"""

from collections.abc import Iterator
from dataclasses import replace as changed
from itertools import chain, islice

from hrag.engine.protocols import Reader, Writer
from hrag.engine.transfer.comparison import problem_of
from hrag.engine.transfer.copier import CollectionCopier
from hrag.engine.transfer.pairs import Pair, pairs
from hrag.engine.transfer.transfer_catalog import (
    Catalog,
    Difference,
    Place,
    conflicts,
    missing,
    tenants_of,
)
from hrag.engine.transfer.transfer_report import MAX_DIFFERENCES, TransferProgress, TransferReport
from hrag.values.collections import Collection
from hrag.values.errors import CollectionExists, DataLoss

_SHOWN_CONFLICTS = 5

Refused = dict[tuple[str, str, str], str]
"""Why a document could not be stored, by tenant, collection and document id."""


def transfer(
    source: Reader,
    target: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool = False,
) -> TransferReport:
    """Copies the store behind `source` into `target`, which `existing` reads, and compares both.

    `target` was opened without quotas. With `replace`, documents that differ become those of
    the source. Raises CollectionExists before anything is written if collections or aliases of
    the target have the source's names and are other ones, and what `Writer.put` raises that
    concerns all documents, such as StorageFull.
    """
    before = _sequences(source)
    catalog = Catalog.of(source)
    _check_conflicts(catalog, Catalog.of(existing))
    refused = _copy(source, catalog, target, existing, progress, replace=replace)
    return _compared(source, existing, progress, before, refused)


def verify(source: Reader, target: Reader, progress: TransferProgress) -> TransferReport:
    """Compares two stores, both only read."""
    return _compared(source, target, progress, _sequences(source), {})


def _check_conflicts(source: Catalog, target: Catalog) -> None:
    found = list(islice(conflicts(source, target), _SHOWN_CONFLICTS))
    if found:
        named = "; ".join(f"{each.tenant_id}/{each.collection} {each.problem}" for each in found)
        raise CollectionExists(f"nothing was written, the target has the same names: {named}")


def _copy(
    source: Reader,
    catalog: Catalog,
    writer: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool,
) -> Refused:
    """Copies collections, documents and aliases; returns why documents were refused."""
    progress.begin("copying", catalog.documents)
    there = Catalog.of(existing).collections
    refused: Refused = {}
    for place, collection in catalog.collections.items():
        if place not in there:
            writer.create_collection(*place, collection.settings)
        progress.collection = "/".join(place)
        copier = CollectionCopier(writer, writer.open(*place), progress, replace=replace)
        copier.copy(_pairs(source, existing, place))
        refused |= {(*place, name): reason for name, reason in copier.refused.items()}
    for (tenant_id, alias), named in catalog.aliases.items():
        writer.set_alias(tenant_id, alias, named)
    return refused


def _compared(
    source: Reader,
    target: Reader,
    progress: TransferProgress,
    before: dict[str, int],
    refused: Refused,
) -> TransferReport:
    """Compares all of two stores; `before` are the source's sequences at the beginning."""
    ours, theirs = Catalog.of(source), Catalog.of(target)
    progress.begin("comparing", ours.documents)
    found = chain(
        conflicts(ours, theirs),
        missing(ours, theirs),
        *(
            _differences(source, target, progress, each)
            for place, each in ours.collections.items()
            if place in theirs.collections
        ),
    )
    differences: list[Difference] = []
    count = 0
    for each in chain(found, _changes(source, before)):
        count += 1
        if len(differences) < MAX_DIFFERENCES:
            reason = refused.get((each.tenant_id, each.collection, each.document_id), "")
            problem = f"{each.problem}: {reason}" if reason else each.problem
            differences.append(changed(each, problem=problem))
    return TransferReport(
        collections=len(ours.collections),
        documents=progress.done,
        copied=progress.copied,
        replaced=progress.replaced,
        present=progress.present,
        difference_count=count,
        differences=tuple(differences),
    )


def _differences(
    source: Reader, target: Reader, progress: TransferProgress, collection: Collection
) -> Iterator[Difference]:
    place = collection.tenant_id, collection.name
    progress.collection = "/".join(place)
    try:
        for pair in _pairs(source, target, place):
            progress.done += pair.source is not None
            if problem := problem_of(pair):
                yield Difference(*place, pair.document_id, problem)
    except DataLoss as error:
        yield Difference(*place, "", f"cannot be read: {error.message}")


def _pairs(source: Reader, target: Reader, place: Place) -> Iterator[Pair]:
    return pairs(source.export(*place), target.export(*place))


def _sequences(reader: Reader) -> dict[str, int]:
    """The sequence of each tenant that has a collection."""
    tenants = tenants_of({(each.tenant_id, each.name): each for each in reader.collections()})
    return {tenant_id: reader.sequence(tenant_id) for tenant_id in tenants}


def _changes(source: Reader, before: dict[str, int]) -> Iterator[Difference]:
    """Yields the tenants whose source has changed since their sequences were those of `before`."""
    for tenant_id in sorted(before | _sequences(source)):
        if before.get(tenant_id) != source.sequence(tenant_id):
            problem = "the source has changed meanwhile: stop its indexer, and run this again"
            yield Difference(tenant_id, "", "", problem)
