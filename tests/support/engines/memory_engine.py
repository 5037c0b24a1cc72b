"""A plain and exact storage engine in memory.

It shows that the protocols of `hrag.engine.protocols` are all that hrag needs of an engine. Methods
without docstrings implement the methods of these protocols with the same names.

The contents of a collection are immutable. A write replaces them under a lock, and a snapshot
reads the contents of the moment at which it was opened. A search computes the lexical score and the
cosine of every eligible leaf.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from hrag import errors, types
from hrag.engine import (
    CollectionHandle,
    DocumentSummaries,
    FindRequest,
    FindResult,
    IngestDecision,
    PassageForm,
    RankedChunk,
    RankedChunks,
)
from hrag.engine.common.labels import label
from hrag.engine.common.records import CollectionRecord, Summarised
from hrag.engine.common.rounds import FACTOR, Round, RoundOutcome, choose_drafts
from hrag.engine.common.section_choice import Ranked, choose_sections
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
    info_bytes,
    original_range,
    read_part,
    size_of,
)
from hrag.passages import outline
from hrag.passages.auto_merge import MERGED_LEAVES, representatives
from hrag.passages.cited_place import CitedPlace, TermLocator
from hrag.passages.drafts import PassageDraft, SentenceWindow, passage_of
from hrag.passages.indexed_text import (
    MAX_HEADING_CHARS,
    IndexedLeaf,
    IndexedName,
    indexed_leaves,
    indexed_name,
)
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.text.analysis import MAX_FREQUENCY, analyzer, folding_of
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.text.bm25 import term_weights
from hrag.types import FusionMethod, IngestOutcome, Retrieval, SearchMode, SummaryUnit
from hrag.values.deadline import NEVER, Deadline
from hrag.values.quotas import TenantUsage, unlimited
from hrag.values.reply_limit import UNLIMITED, field_bytes
from tests.support.documents.fakes import aggregated
from tests.support.engines.filter_model import passes

_K1, _B, _RRF_K = 1.2, 0.75, 60
# The share of its document's score that a leaf gets in a search by summaries.
_DOCUMENT_WEIGHT = 0.25
# Scores are float32, as in the other engines. So scores that are equal in one engine are equal in
# every engine.
F32 = np.float32


@dataclass(frozen=True, eq=False)
class _Leaf:
    """An item that a search scores: a leaf or a summary of a document, with its terms.

    `index` is its index among the leaves or among the summaries. Items of equal scores are returned
    in the order of `order`.
    """

    version: "_Version"
    index: int
    order: tuple[int, int]
    vector: Any
    text: IndexedLeaf
    terms: Counter[int]
    length: int

    @property
    def summary(self) -> Any:
        return self.version.stored.summaries.summaries[self.index]


@dataclass(frozen=True, eq=False)
class _Version:
    """One version of a document.

    A version with a new text has a larger `number` than all earlier versions. A change of metadata
    or summaries keeps the number.

    `sizes` has what this document adds to each sum of `_sums`, in the same order.
    """

    number: int
    settings: types.CollectionSettings
    stored: StoredDocument
    info: types.DocumentInfo
    text: TreeText
    sizes: tuple[int, ...]
    unchanged: types.IngestResult

    @classmethod
    def of(cls, number: int, sequence: int, settings: Any, stored: StoredDocument) -> "_Version":
        document, tree, parsed = stored.document, stored.document.tree, stored.document.parsed
        text, vectors = parsed.text.encode(), document.vectors
        summaries = stored.summaries.summaries if stored.summaries else ()
        tokens = sum(tree.record(tree.top_level, tree.counts[-1] - 1)[4:6])
        named = (document.document_id, document.title, document.source)
        described = (parsed.sections, parsed.pages, parsed.page_unit)
        about = outline.Outline.of(*named, document.metadata, *described)
        described = (*named, document.mime_type, document.metadata, tree.counts, tokens, len(text))
        counts = (len(parsed.pages), len(parsed.sections), sequence)
        recognised = sum(page.is_recognised for page in parsed.pages)
        original_bytes = len(document.original or b"")
        info = types.DocumentInfo(*described, *counts, parsed.page_unit, recognised, original_bytes)
        stored_bytes = len(text) + vectors.nbytes + len(repr((described, summaries)))
        stored_bytes += original_bytes
        sizes = (1, sum(tree.counts), len(vectors), tokens, len(text), vectors.nbytes)
        sizes += (len(summaries), stored_bytes)
        result = (document.document_id, IngestOutcome.UNCHANGED, sequence, tree.counts, tokens)
        unchanged = types.IngestResult(*result)
        return cls(number, settings, stored, info, TreeText(about, tree, text), sizes, unchanged)

    @cached_property
    def leaves(self) -> list[_Leaf]:
        document, level = self.stored.document, self.settings.tree.embedding_level
        parsed, headings = document.parsed, self.settings.index_headings
        about = (parsed.text, document.title, parsed.sections, document.tree, level)
        leaves = indexed_leaves(*about, headings=headings, name=self._name)
        return self._leaves(document.vectors, leaves)

    @cached_property
    def summaries(self) -> list[_Leaf]:
        """The summary of the whole document, and then those of its sections."""
        title = self.stored.document.title if self.settings.index_headings else ""
        heading = f"{title[:MAX_HEADING_CHARS]}\n" if title else ""
        document_summaries = self.stored.summaries or DocumentSummaries((), ())
        texts = [
            IndexedLeaf(heading, summary.text.strip(), self._name)
            for summary in document_summaries.summaries
        ]
        return self._leaves(document_summaries.vectors, texts)

    @property
    def _name(self) -> IndexedName:
        document = self.stored.document
        source = document.source if document.indexed_source is None else document.indexed_source
        return indexed_name(self.settings, document.title, source, document.document_id)

    def _leaves(self, vectors: Any, texts: Sequence[IndexedLeaf]) -> list[_Leaf]:
        name = self.settings.analyzer
        lexical = [text.lexical if name else "" for text in texts]
        analysis = analyzer(name or "simple/1")
        counts = (Counter(analysis.terms(text).tolist()) for text in lexical)
        lengths = analysis.leaf_terms(lexical).lengths.tolist()
        numbered = enumerate(zip(vectors, texts, counts, lengths, strict=True))
        return [_Leaf(self, n, (self.number, n), *arguments) for n, arguments in numbered]


@dataclass(frozen=True)
class _Contents:
    """The contents of a collection between two changes; documents are in order of commits."""

    handle: CollectionHandle
    sequence: int = 0
    versions: Mapping[str, _Version] = field(default_factory=dict)
    summary_tokens: int = 0

    @property
    def collection(self) -> types.Collection:
        handle = self.handle
        return types.Collection(handle.tenant_id, handle.name, handle.settings, len(self.versions))

    @property
    def unsummarised(self) -> dict[int, _Version]:
        waiting = (
            version for version in self.versions.values() if version.stored.summaries is None
        )
        wants = self.handle.settings.summaries is not SummaryUnit.NONE
        return {version.number: version for version in waiting} if wants else {}

    def version(self, document_id: str, field: str = "document_id") -> _Version:
        if document_id not in self.versions:
            problem = f"collection {self.handle.name!r} has no document {document_id!r}"
            raise errors.DocumentNotFound(problem, field=field)
        return self.versions[document_id]


def _sums(contents: Iterable[_Contents]) -> tuple[int, ...]:
    """Returns eight sums over the documents of the collections.

    They are the counts of documents, chunks, leaves and tokens, the bytes of texts and of vectors,
    the count of summaries, and the stored bytes.
    """
    sizes = [version.sizes for collection in contents for version in collection.versions.values()]
    return tuple(map(sum, zip((0,) * 8, *sizes, strict=True)))


@dataclass(eq=False)
class MemoryEngine:
    """Implements `Engine`. The same object is also its Writer, Maintenance and Administration."""

    name: str = "memory"
    location: str = "memory"
    lock: Any = field(default_factory=threading.RLock)
    # One counter yields the ids of collections and the numbers of versions.
    new_ids: Any = field(default_factory=lambda: count(1))
    contents: Mapping[tuple[str, str], _Contents] = field(default_factory=dict)
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

    def named(self, tenant_id: str, name: str, collection_id: int | None = None) -> _Contents:
        """Returns the contents of a collection, which is found by its name or alias.

        Raises CollectionNotFound if there is none, or if its id is not `collection_id`.
        """
        contents = self.contents.get((tenant_id, self.alias_targets.get((tenant_id, name), name)))
        if contents is None or collection_id not in (None, contents.handle.collection_id):
            problem = f"tenant {tenant_id!r} has no collection {name!r}"
            raise errors.CollectionNotFound(problem, field="collection")
        return contents

    def _contents_of(self, handle: CollectionHandle) -> _Contents:
        return self.named(handle.tenant_id, handle.name, handle.collection_id)

    def _change(self, contents: _Contents, **fields: Any) -> int:
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
            contents = _Contents(CollectionHandle(tenant_id, name, next(self.new_ids), settings))
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
                more = TenantUsage(1, len(source.versions), _sums([source])[-1])
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
        return types.IndexStatus(contents.sequence, *_sums([contents])[:7], *summarising, used)

    def tenants(self, page_size, page_token, deadline=NEVER):
        deadline.check("listing tenants")
        by_id = {}
        for tenant_id, _ in self.contents:
            leaves = _sums(self._of_tenant(tenant_id))[2]
            usage, sequence = self._usage(tenant_id), self.sequences[tenant_id]
            by_id[tenant_id] = types.Tenant(tenant_id, usage, leaves, sequence)
        return _page(by_id, page_size, page_token)

    def totals(self):
        contents = self.contents.values()
        documents, _, leaves, _, *sizes, summaries, _ = _sums(contents)
        waiting = sum(len(collection.unsummarised) for collection in contents)
        return types.StoreTotals(len(contents), documents, leaves, summaries, waiting, *sizes)

    def _of_tenant(self, tenant_id):
        return [contents for (tenant, _), contents in self.contents.items() if tenant == tenant_id]

    def _usage(self, tenant_id):
        contents = self._of_tenant(tenant_id)
        documents, *_, stored_bytes = _sums(contents)
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
            new = _Version.of(*numbers, collection.settings, stored)
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
            new = _Version.of(*numbers, collection.settings, stored)
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
        return _with_text(self._contents_of(collection).version(document_id), part, reply)

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
                versions[document.document_id] = _Version.of(*numbers, old.settings, new)
            self._change(
                contents, versions=versions, summary_tokens=contents.summary_tokens + tokens
            )
            return old is not None
        return False


def _page(items: Mapping[str, Any], size: int, token: str) -> types.Listing[Any]:
    keys = sorted(key for key in items if key > token)
    return types.Listing(tuple(map(items.get, keys[:size])), keys[size - 1] if keys[size:] else "")


@dataclass(frozen=True)
class _Scored:
    """A leaf with its fused score, its lexical score and its cosine.

    The lexical score or the cosine is None if the request does not search by it.
    """

    leaf: _Leaf
    score: Any
    lexical: float | None
    dense: float | None

    @property
    def match(self) -> LeafMatch:
        return LeafMatch(self.leaf.index, float(self.score), self.lexical, self.dense)

    def section(self, level: int) -> types.ChosenSection:
        summary, text = self.leaf.summary, self.leaf.version.text
        return text.chosen_section(level, summary.leaves, summary.text, float(self.score))


class _Ranking:
    """Ranks leaves for a request. The document frequencies of its terms count all `leaves`."""

    def __init__(self, request: FindRequest, analyzer_name: str, leaves: Sequence[_Leaf]) -> None:
        self._request = request
        self.document_scores = None
        self._analyzer = analyzer(analyzer_name) if analyzer_name else None
        analysis = self._analyzer
        terms = sorted(analysis.query_terms(request.text, request.preferred)) if analysis else []
        self._ids = [term.id for term in terms]
        document_counts = [sum(term in leaf.terms for leaf in leaves) for term in self._ids]
        self._weights = list(map(F32, term_weights(terms, document_counts, len(leaves))))
        mean_length = sum(leaf.length for leaf in leaves) / max(len(leaves), 1)
        self._a, self._b = F32(_K1 * (1 - _B)), F32(_K1 * _B / max(mean_length, 1.0))

    @property
    def locator(self) -> TermLocator:
        is_dense = self._request.retrieval is Retrieval.DENSE
        weights = [1.0] * len(self._ids) if is_dense else self._weights
        return TermLocator(self._analyzer, np.array(self._ids, np.uint64), np.array(weights, F32))

    def best(self, eligible: Sequence[_Leaf], count: int) -> tuple[list[_Scored], bool]:
        """Returns the union of the `count` best leaves by terms and by vector, best first.

        The second value is True if no eligible leaf was left out.
        """
        retrieval = self._request.retrieval
        has_terms, has_vector = retrieval is not Retrieval.DENSE, retrieval is not Retrieval.LEXICAL
        lexical = {leaf: self._bm25(leaf) for leaf in eligible * has_terms}
        lexical = {leaf: score for leaf, score in lexical.items() if score > 0}
        dense = {leaf: F32(leaf.vector @ self._request.vector) for leaf in eligible * has_vector}
        tops = [
            {x: scores_of_source[x] for x in _best_first(scores_of_source)[:count]}
            for scores_of_source in (lexical, dense)
        ]
        is_hybrid = has_terms and has_vector
        fused = self._fused(tops, lexical, dense) if is_hybrid else tops[0] | tops[1]
        if self.document_scores is not None:
            share = F32(_DOCUMENT_WEIGHT)
            fused = {
                leaf: score + F32(self.document_scores.get(leaf.version, 0.0)) * share
                for leaf, score in fused.items()
            }
        scores = self._with_bonus(fused)

        def scored(leaf: _Leaf) -> _Scored:
            by_terms = float(lexical.get(leaf, 0.0)) if has_terms else None
            cosine = float(dense[leaf]) if has_vector else None
            return _Scored(leaf, scores[leaf], by_terms, cosine)

        scored_leaves = [scored(leaf) for leaf in _best_first(scores)]
        return scored_leaves, len(dense if has_vector else lexical) <= count

    def _bm25(self, leaf: _Leaf) -> Any:
        score, norm = F32(0), self._a + self._b * F32(leaf.length)
        for term, weight in zip(self._ids, self._weights, strict=True):
            if term in leaf.terms:
                frequency = F32(min(leaf.terms[term], MAX_FREQUENCY))
                score += weight * frequency / (frequency + norm)
        return score

    def _fused(self, tops: Sequence[Any], lexical: Any, dense: Any) -> Any:
        fusion = self._request.fusion
        low, scale = F32(fusion.lowest_cosine), F32(1 - fusion.lowest_cosine)
        scaled = {leaf: max(score - low, F32(0)) / scale for leaf, score in dense.items()}
        by_source = (lexical, scaled)
        if fusion.method is FusionMethod.RECIPROCAL_RANK:
            by_source = [
                {leaf: F32(1) / F32(_RRF_K + rank) for rank, leaf in enumerate(top, 1)}
                for top in tops
            ]
        zero, weight = F32(0), F32(fusion.lexical_weight)
        pairs = {
            leaf: [source.get(leaf, zero) for source in by_source] for leaf in tops[0] | tops[1]
        }
        return {
            leaf: weight * lexical_score + (1 - weight) * dense_score
            for leaf, (lexical_score, dense_score) in pairs.items()
        }

    def _with_bonus(self, scores: Mapping[_Leaf, Any]) -> Mapping[_Leaf, Any]:
        bonus, best = F32(self._request.neighbour_bonus), defaultdict(lambda: F32(-math.inf))
        for leaf, step in product(scores, (-1, 0, 1)):
            near = (leaf.version.number, leaf.index + step)
            best[near] = max(best[near], scores[leaf])
        return {leaf: score + bonus * best[leaf.order] for leaf, score in scores.items()}


def _best_first(scores: Mapping[_Leaf, Any]) -> list[_Leaf]:
    return sorted(scores, key=lambda leaf: (-scores[leaf], leaf.order))


@dataclass(frozen=True, eq=False)
class _Group:
    """A chunk and the leaves that it represents, best first."""

    version: _Version
    position: TreePosition
    score: Any
    leaves: list[_Scored]

    @property
    def rank(self) -> Any:
        record = self.version.text.tree.record(*self.position)
        return -self.score, -self.leaves[0].score, self.version.number, record

    @property
    def key(self) -> int:
        level, index = self.position
        return (self.version.number << 8 | level) << 20 | index

    def has(self, leaf: _Leaf, request: FindRequest) -> bool:
        """Returns True if the leaf is one of the chunk's leaves.

        In the mode AUTO_MERGE, a chunk has all leaves whose text is inside the chunk. In other
        modes, a chunk has the leaves that descend from it.
        """
        if leaf.version is not self.version:
            return False
        tree, (level, index) = self.version.text.tree, self.position
        bottom = self.version.settings.tree.embedding_level
        if request.mode is not SearchMode.AUTO_MERGE:
            return tree.ancestors(bottom)[level - bottom][leaf.index] == index
        whole, part = tree.record(level, index), tree.record(bottom, leaf.index)
        return whole.byte_start <= part.byte_start and part.byte_end <= whole.byte_end


def _with_text(version, part, reply):
    remaining = reply.after(field_bytes(info_bytes(version.info)))
    return version.info, *read_part(version.stored.document.parsed.text.encode(), part, remaining)


class _Evidence:
    """Implements `SectionEvidence`. The ordinal of a document is the order of its leaves."""

    def __init__(self, request, versions, leaves: _Ranking, summaries: _Ranking) -> None:
        self._request, self._leaves, self._summaries = request, leaves, summaries
        self.versions = {version.leaves[0].order[0]: version for version in versions}

    def leaves(self, ordinals=None):
        near = self.versions if ordinals is None else ordinals.tolist()
        items = [leaf for ordinal in near for leaf in self.versions[ordinal].leaves]
        return self._ranked(self._leaves, items, self._request.candidates)

    def summaries(self, count):
        items = [x for version in self.versions.values() for x in version.summaries[1:]]
        return self._ranked(self._summaries, items, count)

    def document_summaries(self, summaries):
        items = [self.versions[ordinal].summaries[0] for ordinal in summaries.tolist()]
        return self._ranked(self._summaries, items, len(items))

    def summarised(self, ordinals, summaries):
        return {
            ordinal: Summarised.of(ordinal, [x.summary.leaves for x in version.summaries[1:]])
            for ordinal in sorted({*ordinals.tolist(), *summaries.tolist()})
            if (version := self.versions[ordinal]).summaries
        }

    def _ranked(self, ranking: _Ranking, items, count) -> Ranked:
        scored = ranking.best(items, count)[0]
        ordinals = {version: ordinal for ordinal, version in self.versions.items()}
        labels = [label(ordinals[x.leaf.version], x.leaf.index) for x in scored]
        lexical = None
        if self._request.retrieval is not Retrieval.DENSE:
            lexical = np.array([x.lexical for x in scored], F32)
        scores = np.array([x.score for x in scored], F32)
        return Ranked(np.array(labels, np.uint64), scores, lexical)


class MemorySnapshot:
    """Implements `Snapshot`: one state of one collection, which later writes do not change."""

    def __init__(self, contents: _Contents, sequence: int, deadline: Deadline) -> None:
        self._contents, self._deadline = contents, deadline
        self.settings, self.sequence = contents.handle.settings, sequence
        self.name = contents.handle.name
        self._level = self.settings.tree.embedding_level

    def find(self, request, form):
        began = time.perf_counter()
        ranking = self._ranking(request, "leaves")
        eligible, sections = self._eligible(request, ranking)
        count, considered, groups = request.candidates, set(), []
        order = {key: rank for rank, key in enumerate(request.rerank_scores)}
        while True:
            self._deadline.check("searching")
            scored, complete = ranking.best(eligible, count)
            scored = [scored_leaf for scored_leaf in scored if scored_leaf.leaf not in considered]
            first = None if groups or request.mode is not SearchMode.AUTO_MERGE else MERGED_LEAVES
            for part in (scored[:first], scored[len(scored[:first]) :]):
                groups += self._groups(request, part, groups)
            considered.update(scored_leaf.leaf for scored_leaf in scored)
            least = -math.inf if request.min_score is None else request.min_score
            best = [group for group in groups if group.score >= least]
            best.sort(key=lambda group: order.get(group.key, len(order)))
            current = Round(request, len(considered), len(groups), len(best), complete)
            passages, selection = self._read(request, form, best, ranking.locator)
            if current.has_enough_groups and current.is_final(selection):
                break
            count *= FACTOR
        names = ["filter"] * bool(request.filter or request.required) + ["search", "climb", "fetch"]
        stages = tuple((name, began, time.perf_counter()) for name in names)
        outcome = (len(considered), len(eligible), True, current.is_exhausted(selection))
        return FindResult(passages, *outcome, stages, sections)

    def original(self, document_id, part, reply=UNLIMITED):
        version = self._contents.version(document_id)
        document = version.stored.document
        if document.original is None:
            raise no_original(document_id)
        start, end = original_range(version.info, part, reply)
        original = types.Original(len(document.original), document.original_sha256)
        named = (document_id, document.source, document.mime_type)
        return types.OriginalPart(*named, original, start, document.original[start:end])

    def _ranking(self, request: FindRequest, kind: str) -> _Ranking:
        leaves = (getattr(version, kind) for version in self._contents.versions.values())
        return _Ranking(request, self.settings.analyzer, list(chain(*leaves)))

    def _eligible(self, request, ranking):
        """Returns the leaves that a search may return, and the chosen sections."""
        filter, sections = request.filter, ()
        versions = self._contents.versions.values()
        versions = [v for v in versions if filter is None or passes(filter, v.stored.document)]
        leaves = [leaf for version in versions for leaf in version.leaves]
        if request.mode is SearchMode.SUMMARY_FIRST:
            best = self._best_summaries(request, versions, ranking)
            leaves = [x.leaf.version.leaves[n] for x in best for n in x.leaf.summary.leaves]
            shown = min(request.top_sections or request.limit, 100)
            sections = tuple(summary.section(self._level) for summary in best[:shown])
        required = RequiredParts(request.required, folding_of(self.settings.analyzer))
        return [leaf for leaf in leaves if required.are_in(leaf.text.searched_texts())], sections

    def _best_summaries(self, request, versions, ranking) -> list[_Scored]:
        """Returns the chosen sections, and gives `ranking` the scores of all documents."""
        plain = replace(request, neighbour_bonus=0.0)
        leaves, summaries = self._ranking(plain, "leaves"), self._ranking(plain, "summaries")
        evidence = _Evidence(plain, versions, leaves, summaries)
        count = sum(len(version.leaves) for version in self._contents.versions.values())
        choice = choose_sections(request, evidence, count)
        document_scores = zip(choice.documents.tolist(), choice.document_scores, strict=True)
        ranking.document_scores = {
            evidence.versions[ordinal]: score for ordinal, score in document_scores
        }
        return [
            _Scored(
                evidence.versions[x.ordinal].summaries[x.summary & 0xFFFFF], x.score, None, None
            )
            for x in choice.sections
        ]

    def _groups(self, request, scored: list[_Scored], before: list[_Group]) -> list[_Group]:
        """Groups leaves by the chunk that represents them; returns the groups, best first.

        Leaves that are already in a group of `before` are skipped.
        """
        by_version, groups = defaultdict(list), []
        for scored_leaf in scored:
            if not any(group.has(scored_leaf.leaf, request) for group in before):
                by_version[scored_leaf.leaf.version].append(scored_leaf)
        for version, leaves_of_version in by_version.items():
            tree = version.text.tree
            indexes = [scored_leaf.leaf.index for scored_leaf in leaves_of_version]
            if request.mode is not SearchMode.AUTO_MERGE:
                above = tree.ancestors(self._level)[request.level - self._level].tolist()
                positions = {leaf: (request.level, above[leaf]) for leaf in indexes}
            elif before:
                positions = {leaf: (self._level, leaf) for leaf in indexes}
            else:
                levels, ratio = (self._level, request.level), request.merge_ratio
                positions = representatives(tree, indexes, *levels, ratio)
            for position in set(positions.values()):
                members = [
                    scored_leaf
                    for scored_leaf in leaves_of_version
                    if positions[scored_leaf.leaf.index] == position
                ]
                score = F32(
                    aggregated([scored_leaf.score for scored_leaf in members], request.aggregation)
                )
                groups.append(_Group(version, position, score, members))
        return sorted(groups, key=lambda group: group.rank)

    def _read(self, request, form: Any, groups: list[_Group], locator: TermLocator):
        """Returns passages in the requested form, and the outcome of this round of the search."""
        chunks = [(group.version.text, group.position) for group in groups]
        scores = [float(group.score) for group in groups]
        rerank_scores = [request.rerank_scores.get(group.key) for group in groups]
        reranked = sum(score is not None for score in rerank_scores)

        def leaves(numbers: Sequence[int]) -> list[LeafMatch]:
            ranked = [
                (min(number, reranked), -leaf.score, leaf)
                for number in numbers
                for leaf in groups[number].leaves
            ]
            return [leaf.match for *_, leaf in sorted(ranked, key=lambda entry: entry[:2])]

        def place(draft: PassageDraft, *, spans: bool) -> CitedPlace:
            arguments = (draft.document, self._level, leaves(draft.groups), draft.record)
            return locator.cited_place(*arguments, spans=spans)

        def window(draft: PassageDraft) -> PassageDraft:
            cited = place(draft, spans=True)
            if not cited.term_spans:
                return draft
            return replace(draft, window=SentenceWindow(*cited.sentence, request.window_sentences))

        def passage(draft: PassageDraft) -> types.Passage:
            spans = request.retrieval is not Retrieval.DENSE
            return passage_of(draft, matches, place(draft, spans=spans))

        matches = SimpleNamespace(
            level=self._level,
            score=scores.__getitem__,
            rerank_score=rerank_scores.__getitem__,
            leaves=leaves,
        )
        drafts = [PassageDraft.of(*chunk, number) for number, chunk in enumerate(chunks)]
        if request.mode is SearchMode.SENTENCE_WINDOW:
            drafts = [window(draft) for draft in drafts]
        result = choose_drafts(request, drafts, matches)
        selection = RoundOutcome.of_drafts(result, len(groups), request)
        if isinstance(form, RankedChunks):
            keyed = [(groups[draft.groups[0]].key, passage(draft)) for draft in result.drafts]
            return tuple(RankedChunk(*pair) for pair in keyed), selection
        assert isinstance(form, PassageForm)
        return tuple(form.from_value(passage(draft)) for draft in result.drafts), selection

    def document(self, document_id, filter=None):
        version = self._contents.version(document_id)
        if filter is not None and not passes(filter, version.stored.document):
            raise errors.DocumentNotFound("the filter excludes it", field="document_id")
        return version.info

    def document_with_text(self, document_id, part=None, reply=UNLIMITED):
        return _with_text(self._contents.version(document_id), part, reply)

    def chunk(self, chunk_id, reply=UNLIMITED):
        return self._document(chunk_id).node((chunk_id.level, chunk_id.index), reply=reply)

    def hierarchy(self, chunk_id, depth, *, content, reply=UNLIMITED):
        position = (chunk_id.level, chunk_id.index)
        return self._document(chunk_id).hierarchy(position, depth, content=content, reply=reply)

    def _document(self, chunk_id):
        text = self._contents.version(chunk_id.document_id, "chunk_id").text
        position = (chunk_id.level, chunk_id.index)
        if not text.has_chunk(position):
            problem = f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}"
            raise errors.ChunkNotFound(problem, field="chunk_id")
        return text


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
