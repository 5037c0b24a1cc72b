"""Copies a whole store into a store of another engine, and proves that both are equal.

The source is only read. Nothing is embedded or summarised again. First, all documents that the
target does not have are copied. Then both stores are read and compared completely. A transfer that
was interrupted at any point can be run again and continues. Documents that differ in the target are
replaced only on request, and no document is ever deleted.

A transfer does not copy three things: sequences, which the target counts itself, from 1 for each
tenant; the number of tokens that summaries have cost; and indexes, which the target builds.
"""

from collections.abc import Iterator
from dataclasses import replace as changed
from itertools import chain, islice

from hrag.engine.protocols import Reader, Writer
from hrag.engine.transfer.comparison import problem_of
from hrag.engine.transfer.copier import CollectionCopier
from hrag.engine.transfer.pairs import Pair, pairs
from hrag.engine.transfer.transfer_catalog import (
    Difference,
    Place,
    TransferCatalog,
    conflicts,
    missing,
    tenants_of,
)
from hrag.engine.transfer.transfer_report import MAX_DIFFERENCES, TransferProgress, TransferReport
from hrag.values.collections import Collection
from hrag.values.errors import CollectionExists, DataLoss

_SHOWN_CONFLICTS = 5

Refused = dict[tuple[str, str, str], str]
"""The reasons why documents could not be stored, by tenant, collection and document id."""


def transfer(
    source: Reader,
    target: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool = False,
) -> TransferReport:
    """Copies the store of `source` into the store of `target`, and compares both.

    `existing` reads the target's store, and `target` was opened without quotas. With `replace`,
    documents that differ are replaced by those of the source. Raises CollectionExists before
    anything is written if the target has a collection or an alias with the same name but other
    settings or another meaning. Raises the errors of `Writer.put` that concern all documents, for
    example StorageFull.
    """
    before = _sequences(source)
    catalog = TransferCatalog.of(source)
    _check_conflicts(catalog, TransferCatalog.of(existing))
    refused = _copy(source, catalog, target, existing, progress, replace=replace)
    return _compare(source, existing, progress, before, refused)


def verify(source: Reader, target: Reader, progress: TransferProgress) -> TransferReport:
    """Compares two stores. Both are only read."""
    return _compare(source, target, progress, _sequences(source), {})


def _check_conflicts(source: TransferCatalog, target: TransferCatalog) -> None:
    """Raises CollectionExists if the target has names of the source with another meaning."""
    differences = list(islice(conflicts(source, target), _SHOWN_CONFLICTS))
    if differences:
        problems = "; ".join(
            f"{difference.tenant_id}/{difference.collection} {difference.problem}"
            for difference in differences
        )
        raise CollectionExists(f"nothing was written, the target has the same names: {problems}")


def _copy(
    source: Reader,
    catalog: TransferCatalog,
    writer: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool,
) -> Refused:
    """Copies collections, documents and aliases. Returns why documents were refused."""
    progress.begin("copying", catalog.documents)
    target_collections = TransferCatalog.of(existing).collections
    refused: Refused = {}
    for place, collection in catalog.collections.items():
        if place not in target_collections:
            writer.create_collection(*place, collection.settings)
        progress.collection = "/".join(place)
        copier = CollectionCopier(writer, writer.open(*place), progress, replace=replace)
        copier.copy(_pairs(source, existing, place))
        refused |= {(*place, name): reason for name, reason in copier.refused.items()}
    for (tenant_id, alias), collection_name in catalog.aliases.items():
        writer.set_alias(tenant_id, alias, collection_name)
    return refused


def _compare(
    source: Reader,
    target: Reader,
    progress: TransferProgress,
    before: dict[str, int],
    refused: Refused,
) -> TransferReport:
    """Compares two stores completely. `before` has the source's sequences at the beginning."""
    ours, theirs = TransferCatalog.of(source), TransferCatalog.of(target)
    progress.begin("comparing", ours.documents)
    all_differences = chain(
        conflicts(ours, theirs),
        missing(ours, theirs),
        *(
            _differences(source, target, progress, collection)
            for place, collection in ours.collections.items()
            if place in theirs.collections
        ),
    )
    differences: list[Difference] = []
    count = 0
    for difference in chain(all_differences, _changes(source, before)):
        count += 1
        if len(differences) < MAX_DIFFERENCES:
            place = difference.tenant_id, difference.collection, difference.document_id
            reason = refused.get(place, "")
            problem = f"{difference.problem}: {reason}" if reason else difference.problem
            differences.append(changed(difference, problem=problem))
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
    """Yields the differences between the documents of a collection in both stores."""
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
    """Returns the sequence of each tenant that has a collection."""
    collections = reader.collections()
    tenants = tenants_of(
        {(collection.tenant_id, collection.name): collection for collection in collections}
    )
    return {tenant_id: reader.sequence(tenant_id) for tenant_id in tenants}


def _changes(source: Reader, before: dict[str, int]) -> Iterator[Difference]:
    """Yields a difference for each tenant whose data in the source has changed.

    A tenant has changed if its sequence is not the one in `before`.
    """
    for tenant_id in sorted(before | _sequences(source)):
        if before.get(tenant_id) != source.sequence(tenant_id):
            problem = "the source has changed meanwhile: stop its indexer, and run this again"
            yield Difference(tenant_id, "", "", problem)
