"""Creates, deletes, replaces and lists collections and their aliases.

All collection names and aliases of a tenant are stored in one LMDB database. So no name is used
twice, and a single look-up finds a collection by its name or by an alias.
"""

from dataclasses import replace
from itertools import islice

from hrag.engine.common.records import CollectionRecord, Usage
from hrag.engine.common.summary_documents import summary_settings
from hrag.engine.common.validation import (
    check_alias_count,
    check_is_no_copy,
    check_no_aliases,
    check_quota,
    check_same_copy,
    name_taken_error,
    no_alias,
    no_copy,
)
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import note_commit
from hrag.engine.embedded.store.codecs import CollectionName
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.queries import (
    aliases_of,
    collection_ids,
    describe_aliases,
    describe_collection,
    find_collection,
    handle_of,
)
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.commits import WriterPart
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.engine_documents import CollectionHandle
from hrag.values.collections import (
    Alias,
    AliasChange,
    Collection,
    CollectionSettings,
    Listing,
    SummaryUnit,
)


class CollectionWriter(WriterPart):
    """Implements the methods of `hrag.engine.Writer` for collections and aliases."""

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        with self.commits.store.growing_write(0) as txn:
            record = CollectionRecord(tenant_id, name, settings)
            self._create(txn, record, Usage(collections=1))
            sequence = read_usage(txn, tenant_id).sequence
        return Collection(tenant_id, name, settings), sequence

    def _create(self, txn: Txn, record: CollectionRecord, needed: Usage) -> int:
        """Creates a collection and its name; returns its id.

        `needed` is what the collection will add to the usage of its tenant. Raises CollectionExists
        or StorageQuotaExceeded.
        """
        tenant_id, name = record.tenant_id, record.name
        existing = txn.collection_names.get((tenant_id, name))
        if existing is not None:
            raise name_taken_error(tenant_id, name, "name", is_alias=existing.is_alias)
        used = read_usage(txn, tenant_id)
        check_quota(tenant_id, used.info(self.commits.quota_of(tenant_id)), needed.info())
        used = used.plus(Usage(collections=1, sequence=1))
        txn.tenants.put(tenant_id, used)
        number = txn.next_number(schema.LAST_COLLECTION)
        txn.collection_names.put((tenant_id, name), CollectionName(number))
        self._add_collection(txn, number, record, used)
        return number

    def _add_collection(self, txn: Txn, number: int, record: CollectionRecord, used: Usage) -> None:
        """Stores a new collection, and its summary collection if its settings request summaries.

        `number` is the id of the new collection. `used` is the tenant's usage, in which the new
        collection is counted already.
        """
        tenant_id, name, settings = record.tenant_id, record.name, record.settings
        if settings.summaries is not SummaryUnit.NONE:
            summary_number = txn.next_number(schema.LAST_COLLECTION)
            summaries = CollectionRecord(
                tenant_id, name, summary_settings(settings), summarises=number
            )
            self._add_collection(txn, summary_number, summaries, used)
            record = replace(record, summaries=summary_number)
        sequence = used.sequence
        counters = Counters(sequence=sequence, sealed_sequence=sequence, log_start=sequence)
        txn.collections.put(number, record)
        txn.counters.put(number, counters)
        note_commit(txn, number)

    def delete_collection(self, tenant_id: str, name: str) -> int:
        with self.commits.store.write() as txn:
            number = find_collection(txn, tenant_id, name)
            record = txn.collections.require(number)
            tenant_aliases = aliases_of(txn, tenant_id)
            aliases = [alias for alias, target in tenant_aliases if target == number]
            check_no_aliases(tenant_id, record.name, aliases)
            used, numbers = read_usage(txn, tenant_id).plus(Usage(sequence=1)), [number]
            if record.copied_to:
                numbers.append(record.copied_to)
            if record.copy_of:
                source = txn.collections.require(record.copy_of)
                txn.collections.put(record.copy_of, replace(source, copied_to=0))
            for deleted in numbers:
                txn.collection_names.delete((tenant_id, txn.collections.require(deleted).name))
                used = used.plus(_drop(txn, deleted))
            txn.tenants.put(tenant_id, used)
        self.commits.notify_maintenance(*numbers)
        return used.sequence

    def begin_copy(
        self, tenant_id: str, name: str, copy_name: str, settings: CollectionSettings
    ) -> tuple[CollectionHandle, CollectionHandle]:
        with self.commits.store.growing_write(0) as txn:
            number = find_collection(txn, tenant_id, name)
            record = txn.collections.require(number)
            check_is_no_copy(record)
            copy = record.copied_to
            if copy:
                check_same_copy(txn.collections.require(copy), copy_name, settings)
            else:
                counters = txn.counters.require(number)
                more_bytes = 4 * (settings.dimension - record.settings.dimension) * counters.leaves
                needed = Usage(1, counters.documents, counters.stored_bytes + more_bytes)
                copied = CollectionRecord(tenant_id, copy_name, settings, copy_of=number)
                copy = self._create(txn, copied, needed)
                txn.collections.put(number, replace(record, copied_to=copy))
            return handle_of(txn, number), handle_of(txn, copy)

    def finish_copy(self, source: CollectionHandle) -> int | None:
        tenant_id, number = source.tenant_id, source.collection_id
        with self.commits.store.growing_write(0) as txn:
            copy = existing_collection(txn, source).copied_to
            if not copy:
                raise no_copy(source)
            if txn.counters.require(copy).documents != txn.counters.require(number).documents:
                return None
            used = read_usage(txn, tenant_id).plus(Usage(sequence=1))
            for alias, target in list(aliases_of(txn, tenant_id)):
                if target == number:
                    new_name = CollectionName(copy, is_alias=True)
                    txn.collection_names.put((tenant_id, alias), new_name)
            used = used.plus(_take_place(txn, copy, number))
            txn.tenants.put(tenant_id, used)
            note_commit(txn, copy)
        self.commits.notify_maintenance(number, copy)
        return used.sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self.commits.store.read() as txn:
            number = find_collection(txn, tenant_id, name)
            return describe_collection(txn, number)

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        with self.commits.store.read() as txn:
            all_ids = collection_ids(txn, tenant_id, page_token)
            numbers = list(islice(all_ids, page_size + 1))
            page = [describe_collection(txn, number) for number in numbers[:page_size]]
        return Listing(tuple(page), page[-1].name if len(numbers) > page_size else "")

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        with self.commits.store.read() as txn:
            number = find_collection(txn, tenant_id, name)
            return handle_of(txn, number)

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        with self.commits.store.growing_write(0) as txn:
            number = find_collection(txn, tenant_id, collection)
            check_is_no_copy(txn.collections.require(number))
            used, previous = read_usage(txn, tenant_id), ""
            existing = txn.collection_names.get((tenant_id, alias))
            if existing is None:
                check_alias_count(tenant_id, sum(1 for _ in aliases_of(txn, tenant_id)))
            else:
                if not existing.is_alias:
                    raise name_taken_error(tenant_id, alias, "alias", is_alias=False)
                previous = txn.collections.require(existing.collection).name
            new_alias = Alias(alias, txn.collections.require(number).name)
            if previous != new_alias.collection:
                used = used.plus(Usage(sequence=1))
                txn.tenants.put(tenant_id, used)
                new_name = CollectionName(number, is_alias=True)
                txn.collection_names.put((tenant_id, alias), new_name)
                note_commit(txn, number)
        return AliasChange(new_alias, previous, used.sequence)

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        with self.commits.store.write() as txn:
            existing = txn.collection_names.get((tenant_id, alias))
            if existing is None or not existing.is_alias:
                raise no_alias(tenant_id, alias)
            used = read_usage(txn, tenant_id).plus(Usage(sequence=1))
            txn.tenants.put(tenant_id, used)
            txn.collection_names.delete((tenant_id, alias))
            note_commit(txn, existing.collection)
        return used.sequence

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        with self.commits.store.read() as txn:
            return describe_aliases(txn, tenant_id)


def _drop(txn: Txn, number: int) -> Usage:
    """Deletes a collection and its summary collection, but not its name.

    Returns the change of its tenant's usage.
    """
    record = txn.collections.require(number)
    numbers = [number, record.summaries] if record.summaries else [number]
    counters = [txn.counters.require(counted) for counted in numbers]
    for deleted in numbers:
        txn.collections.delete(deleted)
        txn.counters.delete(deleted)
        txn.deleted_collections.add(deleted)
        note_commit(txn, deleted)
    return Usage(-1, -counters[0].documents, -sum(counter.stored_bytes for counter in counters))


def _take_place(txn: Txn, copy: int, number: int) -> Usage:
    """Gives the name of a collection to its copy, and deletes the collection.

    `copy` and `number` are the ids of the copy and of the collection. Returns the change of the
    tenant's usage.
    """
    record, copied = txn.collections.require(number), txn.collections.require(copy)
    txn.collection_names.delete((copied.tenant_id, copied.name))
    txn.collection_names.put((record.tenant_id, record.name), CollectionName(copy))
    txn.collections.put(copy, replace(copied, name=record.name, copy_of=0))
    if copied.summaries:
        summaries = txn.collections.require(copied.summaries)
        txn.collections.put(copied.summaries, replace(summaries, name=record.name))
    spent = txn.counters.require(number).summary_tokens
    counters = txn.counters.require(copy)
    txn.counters.put(copy, counters._replace(summary_tokens=counters.summary_tokens + spent))
    return _drop(txn, number)
