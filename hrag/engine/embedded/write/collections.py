"""Creates, deletes and lists collections and their aliases.

All collection names and aliases of a tenant are stored in one LMDB database. So no name is used
twice, and a single look-up finds a collection by its name or by an alias.
"""

from itertools import islice

from hrag.engine.common.records import CollectionRecord, Usage
from hrag.engine.common.summary_documents import summary_settings
from hrag.engine.common.validation import (
    check_alias_count,
    check_no_aliases,
    check_quota,
    name_taken_error,
    no_alias,
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
            existing = txn.collection_names.get((tenant_id, name))
            if existing is not None:
                raise name_taken_error(tenant_id, name, "name", is_alias=existing.is_alias)
            used, added = read_usage(txn, tenant_id), Usage(collections=1, sequence=1)
            check_quota(tenant_id, used.info(self.commits.quota_of(tenant_id)), added.info())
            used = used.plus(added)
            txn.tenants.put(tenant_id, used)
            number = txn.next_number(schema.LAST_COLLECTION)
            txn.collection_names.put((tenant_id, name), CollectionName(number))
            self._add_collection(txn, number, CollectionRecord(tenant_id, name, settings), used)
        return Collection(tenant_id, name, settings), used.sequence

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
            record = CollectionRecord(tenant_id, name, settings, summaries=summary_number)
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
            numbers = [number, record.summaries] if record.summaries else [number]
            counters = [txn.counters.require(counted) for counted in numbers]
            freed_bytes = sum(counter.stored_bytes for counter in counters)
            freed = Usage(-1, -counters[0].documents, -freed_bytes)
            used = read_usage(txn, tenant_id).plus(freed).plus(Usage(sequence=1))
            txn.tenants.put(tenant_id, used)
            txn.collection_names.delete((tenant_id, name))
            for deleted in numbers:
                txn.collections.delete(deleted)
                txn.counters.delete(deleted)
                txn.deleted_collections.add(deleted)
                note_commit(txn, deleted)
        self.commits.notify_maintenance(*numbers)
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
