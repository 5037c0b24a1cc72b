"""Copies a whole store into a store of another engine, and proves that both are equal.

The source is only read. Nothing is embedded or summarised again. First, all documents that the
target does not have are copied. Then both stores are read and compared completely. If a transfer is
interrupted at any point, running it again continues it. Documents that differ in the target are
replaced only on request, and no document is ever deleted.

A transfer does not copy three things:

* Sequence numbers. The target numbers the changes of each tenant itself, from 1.
* The count of tokens that summaries have cost.
* Indexes. The target builds its own indexes.
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

# The message of CollectionExists lists at most this many collections and aliases that cannot be
# copied.
_SHOWN_CONFLICTS = 5

Refused = dict[tuple[str, str, str], str]
"""The documents that the target refused.

A key is the tenant, the collection and the id of a document; the value is the reason.
"""


def transfer(
    source: Reader,
    target: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool = False,
) -> TransferReport:
    """Copies the store of `source` into the store of `target`, and compares the two stores.

    `existing` reads the same store that `target` writes. `target` must have been opened without
    quotas. If `replace` is True, documents of the target that differ are replaced by the source's
    documents.

    Raises CollectionExists, before anything is written, if the target uses a name of the source in
    another way: for a collection with different settings, for an alias of another collection, for
    an alias in place of a collection, or for a collection in place of an alias. If the target can
    store no further document, raises the error of the target, for example StorageFull.
    """
    before = _sequences(source)
    catalog = TransferCatalog.of(source)
    _check_conflicts(catalog, TransferCatalog.of(existing))
    refused = _copy(source, catalog, target, existing, progress, replace=replace)
    return _compare(source, existing, progress, before, refused)


def verify(source: Reader, target: Reader, progress: TransferProgress) -> TransferReport:
    """Compares two stores completely and returns a report. Writes to neither of them."""
    return _compare(source, target, progress, _sequences(source), {})


def _check_conflicts(source: TransferCatalog, target: TransferCatalog) -> None:
    """Raises CollectionExists if a name has different meanings in the source and in the target.

    The name may be a collection in one store and an alias in the other store. Or it is a collection
    in both stores, but with different settings. Or it is an alias in both stores, but of different
    collections.
    """
    differences = list(islice(conflicts(source, target), _SHOWN_CONFLICTS))
    if differences:
        problems = "; ".join(
            f"{difference.tenant_id}/{difference.collection} {difference.problem}"
            for difference in differences
        )
        raise CollectionExists(
            "nothing was written, because the target uses the same names in another way: "
            f"{problems}"
        )


def _copy(
    source: Reader,
    catalog: TransferCatalog,
    writer: Writer,
    existing: Reader,
    progress: TransferProgress,
    *,
    replace: bool,
) -> Refused:
    """Copies collections, documents and aliases from the source into the target.

    Returns the documents that the target refused, with the reasons.
    """
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
    """Compares two stores completely and returns the report.

    `before` has the sequence number of each tenant in the source at the beginning of the transfer.
    `refused` has the documents that the target refused, with the reasons. The report contains these
    reasons.
    """
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
    """Yields the differences between the documents of a collection in the two stores."""
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
    """Returns a dictionary from tenant id to sequence number, for tenants that have a collection.

    The sequence number is the number of the tenant's last change.
    """
    collections = reader.collections()
    tenants = tenants_of(
        {(collection.tenant_id, collection.name): collection for collection in collections}
    )
    return {tenant_id: reader.sequence(tenant_id) for tenant_id in tenants}


def _changes(source: Reader, before: dict[str, int]) -> Iterator[Difference]:
    """Yields a difference for each tenant whose data in the source has changed.

    `before` has the sequence number of each tenant at the beginning of the transfer. The data of a
    tenant has changed if the tenant's sequence number is different now.
    """
    for tenant_id in sorted(before | _sequences(source)):
        if before.get(tenant_id) != source.sequence(tenant_id):
            problem = (
                "the source has changed meanwhile: stop its indexer, and run the command again"
            )
            yield Difference(tenant_id, "", "", problem)
