"""A plain and exact storage engine in memory.

It shows that the protocols of `hrag.engine.protocols` are all that hrag needs of an engine. Methods
without docstrings implement the methods of these protocols with the same names.

The contents of a collection are immutable. A write replaces them under a lock, and a snapshot
reads the contents of the moment at which it was opened. A search computes the lexical score and the
cosine of every eligible leaf.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hrag import errors, types
from hrag.engine import CollectionHandle, IngestDecision
from hrag.engine.common.records import CollectionRecord
from hrag.engine.common.validation import (
    check_alias_count,
    check_is_no_copy,
    check_no_aliases,
    check_quota,
    check_same_copy,
    check_shapes,
    check_summaries,
    document_changed,
    name_taken_error,
    no_alias,
    no_copy,
    no_original,
)
from hrag.engine.engine_documents import (
    StoredDocument,
    UncopiedDocument,
    Unsummarised,
    fitting,
    size_of,
)
from hrag.types import IngestOutcome, SummaryUnit
from hrag.values.deadline import NEVER
from hrag.values.quotas import TenantUsage, unlimited
from hrag.values.reply_limit import UNLIMITED
from tests.support.engines.filter_model import passes
from tests.support.engines.memory_contents import Contents, Version, sums, with_text
from tests.support.engines.memory_search import MemorySnapshot


@dataclass(eq=False)
class MemoryEngine:
    """Implements `Engine`. The same object is also its Writer, Maintenance and Administration."""

    name: str = "memory"
    location: str = "memory"
    lock: Any = field(default_factory=threading.RLock)
    # One counter yields the ids of collections and the numbers of versions.
    new_ids: Any = field(default_factory=lambda: count(1))
    contents: Mapping[tuple[str, str], Contents] = field(default_factory=dict)
    sequences: Counter[str] = field(default_factory=Counter)
    # The keys are pairs of tenant and alias; the values are names of collections.
    alias_targets: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # For the id of each collection with a copy, the tenant and the name of the copy.
    copies: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def writer(self, quota_of=unlimited):
        self._quota_of = quota_of
        return self

    def reader(self):
        return MemoryReader(self)

    def require_store(self):
        """Does nothing, because the store is in memory and cannot be missing."""

    def maintenance(self):
        return self

    administration = maintenance

    def _nothing(self, *_):
        # The engine builds no index and opens no file, so there is nothing to wait for.
        return True

    start = close = wait_for_capacity = _nothing

    def _refuse(self, *_):
        raise errors.NotSupported("a store in memory has nothing to check, copy or rebuild")

    check = backup = restore = vacuum = migrate = reindex = _refuse

    def named(self, tenant_id: str, name: str, collection_id: int | None = None) -> Contents:
        """Returns the contents of a collection, which is found by its name or alias.

        Raises CollectionNotFound if there is none, or if its id is not `collection_id`.
        """
        contents = self.contents.get((tenant_id, self.alias_targets.get((tenant_id, name), name)))
        if contents is None or collection_id not in (None, contents.handle.collection_id):
            problem = f"tenant {tenant_id!r} has no collection {name!r}"
            raise errors.CollectionNotFound(problem, field="collection")
        return contents

    def _contents_of(self, handle: CollectionHandle) -> Contents:
        return self.named(handle.tenant_id, handle.name, handle.collection_id)

    def _change(self, contents: Contents, **fields: Any) -> int:
        """Commits a change of some fields of `contents`; returns the new sequence number."""
        tenant_id, name = contents.handle.tenant_id, contents.handle.name
        self.sequences[tenant_id] += 1
        changed = replace(contents, sequence=self.sequences[tenant_id], **fields)
        self.contents = {**self.contents, (tenant_id, name): changed}
        return changed.sequence

    def create_collection(self, tenant_id, name, settings):
        with self.lock:
            is_alias = (tenant_id, name) in self.alias_targets
            if is_alias or (tenant_id, name) in self.contents:
                raise name_taken_error(tenant_id, name, "name", is_alias=is_alias)
            check_quota(tenant_id, self._usage(tenant_id), TenantUsage(collections=1))
            contents = Contents(CollectionHandle(tenant_id, name, next(self.new_ids), settings))
            return contents.collection, self._change(contents)

    def delete_collection(self, tenant_id, name):
        with self.lock:
            contents = self.named(tenant_id, name)
            collection = contents.handle.name
            named = [
                alias.name for alias in self.aliases(tenant_id) if alias.collection == collection
            ]
            check_no_aliases(tenant_id, collection, named)
            sequence = self._change(contents)
            gone = {(tenant_id, name), self.copies.get(contents.handle.collection_id)}
            self.contents = {
                key: contents for key, contents in self.contents.items() if key not in gone
            }
            self.copies = {
                number: key for number, key in self.copies.items() if key in self.contents
            }
        return sequence

    def begin_copy(self, tenant_id, name, copy_name, settings):
        with self.lock:
            source = self.named(tenant_id, name)
            self._check_is_no_copy(source.handle)
            number = source.handle.collection_id
            if number in self.copies:
                copy = self.contents[self.copies[number]].handle
                record = CollectionRecord(tenant_id, copy.name, copy.settings)
                check_same_copy(record, copy_name, settings)
            else:
                more = TenantUsage(1, len(source.versions), sums([source])[-1])
                check_quota(tenant_id, self._usage(tenant_id), more)
                self.create_collection(tenant_id, copy_name, settings)
                self.copies = {**self.copies, number: (tenant_id, copy_name)}
            return source.handle, self.contents[self.copies[number]].handle

    def _check_is_no_copy(self, handle):
        copy_of = (handle.tenant_id, handle.name) in self.copies.values()
        record = CollectionRecord(handle.tenant_id, handle.name, handle.settings, copy_of=copy_of)
        check_is_no_copy(record)

    def _require_copy(self, source):
        self._contents_of(source)
        if source.collection_id not in self.copies:
            raise no_copy(source)
        return self.contents[self.copies[source.collection_id]]

    def _forget_copy(self, handle, document_id):
        copy = self.contents.get(self.copies.get(handle.collection_id))
        if copy is not None and document_id in copy.versions:
            self.delete(copy.handle, document_id)

    def uncopied(self, source, after, max_documents, max_bytes):
        with self.lock:
            copy, versions = self._require_copy(source), self._contents_of(source).versions
        documents = []
        for name in sorted(name for name in versions.keys() - copy.versions.keys() if name > after):
            if len(documents) == max_documents or max_bytes <= 0:
                break
            documents.append(UncopiedDocument(versions[name].stored, versions[name].info.sequence))
            max_bytes -= size_of(versions[name].stored.document)
        return documents

    def put_copies(self, source, documents):
        with self.lock:
            copy, before = self._require_copy(source), self.contents
            current = self._contents_of(source).versions
            stored = 0
            try:
                for document in documents:
                    version = current.get(document.stored.document_id)
                    ours = (document.sequence, document.stored.summaries is None)
                    if (
                        version
                        and (version.info.sequence, version.stored.summaries is None) == ours
                    ):
                        self._store(copy.handle, document.stored)
                        stored += 1
            except errors.HragError:
                self.contents = before
                raise
        return stored

    def finish_copy(self, source):
        with self.lock:
            tenant_id, copy = source.tenant_id, self._require_copy(source)
            contents = self._contents_of(source)
            if len(copy.versions) != len(contents.versions):
                return None
            changed = {(tenant_id, source.name), (tenant_id, copy.handle.name)}
            kept = {key: c for key, c in self.contents.items() if key not in changed}
            spent = contents.summary_tokens + copy.summary_tokens
            handle = replace(copy.handle, name=source.name)
            moved = replace(copy, handle=handle, summary_tokens=spent)
            self.contents = {**kept, (tenant_id, source.name): moved}
            gone = source.collection_id
            self.copies = {number: key for number, key in self.copies.items() if number != gone}
            self.sequences[tenant_id] += 1
            return self.sequences[tenant_id]

    def set_alias(self, tenant_id, alias, collection):
        with self.lock:
            handle = self.named(tenant_id, collection).handle
            self._check_is_no_copy(handle)
            now = types.Alias(alias, handle.name)
            previous = self.alias_targets.get((tenant_id, alias), "")
            if (tenant_id, alias) in self.contents:
                raise name_taken_error(tenant_id, alias, "alias", is_alias=False)
            if not previous:
                check_alias_count(tenant_id, len(self.aliases(tenant_id)))
            self.sequences[tenant_id] += previous != now.collection
            self.alias_targets = {**self.alias_targets, (tenant_id, alias): now.collection}
            return types.AliasChange(now, previous, self.sequences[tenant_id])

    def delete_alias(self, tenant_id, alias):
        with self.lock:
            if (tenant_id, alias) not in self.alias_targets:
                raise no_alias(tenant_id, alias)
            gone = (tenant_id, alias)
            self.alias_targets = {
                key: target for key, target in self.alias_targets.items() if key != gone
            }
            self.sequences[tenant_id] += 1
            return self.sequences[tenant_id]

    def aliases(self, tenant_id):
        pairs = sorted(
            (name, collection)
            for (tenant, name), collection in self.alias_targets.items()
            if tenant == tenant_id
        )
        return tuple(types.Alias(*pair) for pair in pairs)

    def collection(self, tenant_id, name):
        return self.named(tenant_id, name).collection

    def collections(self, tenant_id, page_size, page_token):
        by_name = {
            contents.handle.name: contents.collection for contents in self._of_tenant(tenant_id)
        }
        return _page(by_name, page_size, page_token)

    def open(self, tenant_id, name):
        return self.named(tenant_id, name).handle

    def status(self, collection):
        contents = self._contents_of(collection)
        summarising = (len(contents.unsummarised), contents.summary_tokens)
        used = self._usage(collection.tenant_id)
        return types.IndexStatus(contents.sequence, *sums([contents])[:7], *summarising, used)

    def tenants(self, page_size, page_token, deadline=NEVER):
        deadline.check("listing tenants")
        by_id = {}
        for tenant_id, _ in self.contents:
            leaves = sums(self._of_tenant(tenant_id))[2]
            usage, sequence = self._usage(tenant_id), self.sequences[tenant_id]
            by_id[tenant_id] = types.Tenant(tenant_id, usage, leaves, sequence)
        return _page(by_id, page_size, page_token)

    def totals(self):
        contents = self.contents.values()
        documents, _, leaves, _, *sizes, summaries, _ = sums(contents)
        waiting = sum(len(collection.unsummarised) for collection in contents)
        return types.StoreTotals(len(contents), documents, leaves, summaries, waiting, *sizes)

    def _of_tenant(self, tenant_id):
        return [contents for (tenant, _), contents in self.contents.items() if tenant == tenant_id]

    def _usage(self, tenant_id):
        contents = self._of_tenant(tenant_id)
        documents, *_, stored_bytes = sums(contents)
        return TenantUsage(len(contents), documents, stored_bytes, self._quota_of(tenant_id))

    def admit(self, tenant_id, collection, document_id, content_hash, stored_bytes=1):
        with self.lock:
            contents = self.named(tenant_id, collection)
            old = contents.versions.get(document_id)
            if old and content_hash and old.stored.document.content_hash == content_hash:
                return IngestDecision(contents.handle, old.unchanged)
            more = TenantUsage(0, not old, stored_bytes - (old.sizes[-1] if old else 0))
            check_quota(tenant_id, self._usage(tenant_id), more)
            return IngestDecision(contents.handle, None)

    def put(self, collection, document):
        return self.put_stored(collection, StoredDocument(document))

    def put_many(self, documents):
        with self.lock:
            return [errors.outcome_of(self.put, *document) for document in documents]

    def put_stored(self, collection, stored):
        with self.lock:
            self._check_is_no_copy(collection)
            return self._store(collection, stored)

    def _store(self, collection, stored):
        tenant_id, document = collection.tenant_id, stored.document
        with self.lock:
            versions = dict(self._contents_of(collection).versions)
            check_shapes(document, collection.settings)
            if stored.summaries:
                check_summaries(document, collection)
            numbers = (next(self.new_ids), self.sequences[tenant_id] + 1)
            new = Version.of(*numbers, collection.settings, stored)
            request = (tenant_id, collection.name, document.document_id, document.content_hash)
            if unchanged := self.admit(*request, new.sizes[-1]).unchanged:
                return unchanged
            self._forget_copy(collection, document.document_id)
            old = versions.pop(document.document_id, None)
            self._change(
                self._contents_of(collection), versions={**versions, document.document_id: new}
            )
        outcome = IngestOutcome.UPDATED if old else IngestOutcome.CREATED
        return replace(new.unchanged, outcome=outcome)

    def put_metadata(self, collection, document_id, sequence, metadata, source):
        with self.lock:
            self._check_is_no_copy(collection)
            change = (metadata, source)
            info = self._put_metadata(collection, document_id, sequence, *change)
            copy = self.contents.get(self.copies.get(collection.collection_id))
            if copy is not None and document_id in copy.versions:
                copied = copy.version(document_id).info.sequence
                self._put_metadata(copy.handle, document_id, copied, *change)
        return info

    def _put_metadata(self, collection, document_id, sequence, metadata, source):
        with self.lock:
            contents = self._contents_of(collection)
            old = contents.version(document_id)
            if old.info.sequence != sequence:
                raise document_changed(document_id, sequence, old.info.sequence)
            document = old.stored.document
            kept = document.source if document.indexed_source is None else document.indexed_source
            indexed_source = None if kept == source else kept
            fields = {"metadata": metadata, "source": source, "metadata_json": b""}
            document = replace(document, **fields, content_hash="", indexed_source=indexed_source)
            numbers = (old.number, self.sequences[collection.tenant_id] + 1)
            stored = replace(old.stored, document=document)
            new = Version.of(*numbers, collection.settings, stored)
            more = TenantUsage(stored_bytes=new.sizes[-1] - old.sizes[-1])
            check_quota(collection.tenant_id, self._usage(collection.tenant_id), more)
            self._change(contents, versions={**contents.versions, document_id: new})
        return new.info

    def delete(self, collection, document_id):
        with self.lock:
            contents = self._contents_of(collection)
            gone = contents.version(document_id)
            self._forget_copy(collection, document_id)
            versions = {
                name: version for name, version in contents.versions.items() if version is not gone
            }
            return self._change(contents, versions=versions)

    def delete_matching(self, collection, filter, deadline=NEVER):
        deadline.check("filtering")
        passing, sequence = self._passing(collection, filter), self.sequences[collection.tenant_id]
        if not passing:
            yield types.DocumentDeletion(0, sequence)
        for version in passing:
            deadline.check("deleting documents")
            with self.lock:
                versions, name = self._contents_of(collection).versions, version.info.document_id
                is_same = versions.get(name) is version
                sequence = self.delete(collection, name) if is_same else sequence
            yield types.DocumentDeletion(is_same, sequence)

    def document(self, collection, document_id):
        return self._contents_of(collection).version(document_id).info

    def document_with_text(self, collection, document_id, part=None, reply=UNLIMITED):
        return with_text(self._contents_of(collection).version(document_id), part, reply)

    def document_with_original(self, collection, document_id):
        version = self._contents_of(collection).version(document_id)
        document = version.stored.document
        if document.original is None:
            raise no_original(document_id)
        return version.info, document.parsed, document.original

    def documents(
        self, collection, page_size, page_token, reply=UNLIMITED, *, filter=None, deadline=NEVER
    ):
        deadline.check("filtering")
        passing = {
            version.info.document_id: version.info for version in self._passing(collection, filter)
        }
        page = _page(passing, page_size, page_token)
        items = tuple(fitting(page.items, reply))
        cut = len(items) < len(page.items)
        return types.Listing(items, items[-1].document_id if cut else page.next_page_token)

    def count(self, collection, filter, deadline=NEVER):
        deadline.check("filtering")
        passing, total = self._passing(collection, filter), self._passing(collection, None)
        return types.DocumentCount(len(passing), len(total), self.sequences[collection.tenant_id])

    def _passing(self, collection, filter):
        versions = self._contents_of(collection).versions.values()
        return [v for v in versions if filter is None or passes(filter, v.stored.document)]

    def next_unsummarised(self, embedder, after=None, excluding=()):
        last = after.collection_id if after else 0
        contents_of = {k: c for k, c in self.contents.items() if k not in self.copies.values()}
        for contents in sorted(contents_of.values(), key=lambda c: c.handle.collection_id <= last):
            waiting = [
                version
                for version in contents.unsummarised.values()
                if version.number not in excluding
            ]
            if waiting and contents.handle.settings.embedder == embedder:
                number, document = waiting[0].number, waiting[0].stored.document
                described = (document.document_id, document.title, document.parsed, document.tree)
                return Unsummarised(contents.handle, number, *described, contents.summary_tokens)
        return None

    def put_summaries(self, document, summaries, tokens=0):
        with suppress(errors.CollectionNotFound), self.lock:
            contents = self._contents_of(document.collection)
            versions, old = dict(contents.versions), contents.unsummarised.get(document.version)
            if old is not None:
                self._forget_copy(document.collection, document.document_id)
                new = replace(old.stored, summaries=summaries)
                numbers = (old.number, old.info.sequence)
                versions[document.document_id] = Version.of(*numbers, old.settings, new)
            self._change(
                contents, versions=versions, summary_tokens=contents.summary_tokens + tokens
            )
            return old is not None
        return False


def _page(items: Mapping[str, Any], size: int, token: str) -> types.Listing[Any]:
    keys = sorted(key for key in items if key > token)
    return types.Listing(tuple(map(items.get, keys[:size])), keys[size - 1] if keys[size:] else "")


@dataclass(frozen=True)
class MemoryReader:
    """Implements `Reader`: opens snapshots of the collections of a MemoryEngine."""

    engine: MemoryEngine

    @contextmanager
    def snapshot(self, tenant_id, collection, *, summaries=False, deadline=NEVER):
        with self.engine.lock:
            contents = self.engine.named(tenant_id, collection)
            sequence = self.engine.sequences[tenant_id]
        if summaries and contents.handle.settings.summaries is SummaryUnit.NONE:
            problem = f"collection {collection!r} has no summaries; see HRAG_SUMMARIES"
            raise errors.NoSummaries(problem, field="mode")
        yield MemorySnapshot(contents, sequence, deadline)

    def sequence(self, tenant_id):
        return self.engine.sequences[tenant_id]

    def collections(self):
        contents = self.engine.contents
        return iter([contents[key].collection for key in sorted(contents)])

    def aliases(self, tenant_id):
        return self.engine.aliases(tenant_id)

    def export(self, tenant_id, collection):
        versions = self.engine.named(tenant_id, collection).versions
        return (versions[document_id].stored for document_id in sorted(versions))

    def status(self):
        return types.ReaderStatus(lag_s=0.0)

    preload = close = MemoryEngine._nothing
