"""A storage engine in memory: plain and exact, the proof that the protocols suffice.

Contents are immutable: a write replaces them under a lock, a snapshot keeps those that it was
opened on. A search compares every eligible leaf. See `hrag.engine.protocols` for signatures.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, count
from types import SimpleNamespace
from typing import Any

from hrag import errors, types
from hrag.deadline import NEVER, Deadline
from hrag.engine import Admission, CollectionHandle, Found, StoredDocument, Unsummarised
from hrag.engine.rounds import FACTOR, Round
from hrag.engine.validation import check_quota, check_shapes, check_summaries
from hrag.passages import auto_merge, outline, sentence_context
from hrag.passages.budget import PassageLimits, select_drafts
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.tree_text import TreeText
from hrag.quota.quotas import TenantUsage, unlimited
from hrag.types import IngestOutcome, SearchMode, SummaryScope, SummaryUnit
from tests.fakes import aggregated
from tests.filter_model import passes


@dataclass(frozen=True, eq=False)
class _Version:
    """One version of a document, numbered in order of commits; see `_sums` for its sizes."""

    number: int
    stored: StoredDocument
    info: types.DocumentInfo
    text: TreeText
    sizes: tuple[int, ...]
    unchanged: types.IngestResult

    @classmethod
    def of(cls, number: int, sequence: int, stored: StoredDocument) -> "_Version":
        document, tree, parsed = stored.document, stored.document.tree, stored.document.parsed
        text, vectors = parsed.text.encode(), document.vectors
        summaries = stored.summaries.summaries if stored.summaries else ()
        tokens = sum(tree.record(tree.top_level, tree.counts[-1] - 1)[4:6])
        named = (document.document_id, document.title, document.source)
        about = outline.Outline.of(*named, document.metadata, parsed.sections, parsed.pages)
        described = (*named, document.mime_type, document.metadata, tree.counts, tokens, len(text))
        info = types.DocumentInfo(*described, len(parsed.pages), len(parsed.sections), sequence)
        stored_bytes = len(text) + vectors.nbytes + len(repr((described, summaries)))
        sizes = (1, sum(tree.counts), len(vectors), tokens, len(text), vectors.nbytes)
        sizes += (len(summaries), stored_bytes)
        result = (document.document_id, IngestOutcome.UNCHANGED, sequence, tree.counts, tokens)
        unchanged = types.IngestResult(*result)
        return cls(number, stored, info, TreeText(about, tree, text), sizes, unchanged)


@dataclass(frozen=True)
class _Contents:
    """A collection as of one change, its documents in order of their commits."""

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
        waiting = (each for each in self.versions.values() if each.stored.summaries is None)
        wants = self.handle.settings.summaries is not SummaryUnit.NONE
        return {each.number: each for each in waiting} if wants else {}

    def version(self, document_id: str, field: str = "document_id") -> _Version:
        if document_id not in self.versions:
            problem = f"collection {self.handle.name!r} has no document {document_id!r}"
            raise errors.DocumentNotFound(problem, field=field)
        return self.versions[document_id]


def _sums(contents: Iterable[_Contents]) -> tuple[int, ...]:
    """Documents, chunks, leaves, tokens, bytes of text and vectors, summaries, bytes stored."""
    sizes = [version.sizes for each in contents for version in each.versions.values()]
    return tuple(map(sum, zip((0,) * 8, *sizes, strict=True)))


@dataclass(eq=False)
class MemoryEngine:
    """See `Engine`; all but a Reader in one: Writer, Maintenance and Administration too."""

    name: str = "memory"
    lock: Any = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: count(1))  # Of collections and versions.
    contents: Mapping[tuple[str, str], _Contents] = field(default_factory=dict)
    sequences: Counter[str] = field(default_factory=Counter)

    def writer(self, quota_of=unlimited):
        self._quota_of = quota_of
        return self

    def reader(self):
        return MemoryReader(self)

    def maintenance(self):
        return self

    administration = maintenance

    def _nothing(self, *_):
        return True  # Nothing is indexed, nothing is open, nothing is left to do.

    start = close = wait_for_capacity = _nothing

    def _refuse(self, *_):
        raise errors.NotSupported("a store in memory has nothing to check, copy or rebuild")

    check = backup = restore = vacuum = reindex = _refuse

    def named(self, tenant_id: str, name: str, number: int | None = None) -> _Contents:
        """A collection by its name, and its number if given."""
        found = self.contents.get((tenant_id, name))
        if found is None or number not in (None, found.handle.collection_id):
            problem = f"tenant {tenant_id!r} has no collection {name!r}"
            raise errors.CollectionNotFound(problem, field="collection")
        return found

    def _of(self, handle: CollectionHandle) -> _Contents:
        return self.named(handle.tenant_id, handle.name, handle.collection_id)

    def _change(self, contents: _Contents, **fields: Any) -> int:
        """Commits a collection with these fields changed; returns the sequence."""
        tenant_id, name = contents.handle.tenant_id, contents.handle.name
        self.sequences[tenant_id] += 1
        changed = replace(contents, sequence=self.sequences[tenant_id], **fields)
        self.contents = {**self.contents, (tenant_id, name): changed}
        return changed.sequence

    def create_collection(self, tenant_id, name, settings):
        with self.lock:
            if (tenant_id, name) in self.contents:
                problem = f"tenant {tenant_id!r} has a collection {name!r} already"
                raise errors.CollectionExists(problem, field="name")
            check_quota(tenant_id, self._usage(tenant_id), TenantUsage(collections=1))
            contents = _Contents(CollectionHandle(tenant_id, name, next(self.numbers), settings))
            return contents.collection, self._change(contents)

    def delete_collection(self, tenant_id, name):
        with self.lock:
            sequence, gone = self._change(self.named(tenant_id, name)), (tenant_id, name)
            self.contents = {key: own for key, own in self.contents.items() if key != gone}
        return sequence

    def collection(self, tenant_id, name):
        return self.named(tenant_id, name).collection

    def collections(self, tenant_id, page_size, page_token):
        own = {each.handle.name: each.collection for each in self._of_tenant(tenant_id)}
        return _page(own, page_size, page_token)

    def open(self, tenant_id, name):
        return self.named(tenant_id, name).handle

    def status(self, collection):
        contents = self._of(collection)
        summarising = (len(contents.unsummarised), contents.summary_tokens)
        used = self._usage(collection.tenant_id)
        return types.IndexStatus(contents.sequence, *_sums([contents])[:7], *summarising, used)

    def totals(self):
        own = self.contents.values()
        documents, _, leaves, _, *sizes, summaries, _ = _sums(own)
        waiting = sum(len(each.unsummarised) for each in own)
        return types.StoreTotals(len(own), documents, leaves, summaries, waiting, *sizes)

    def _of_tenant(self, tenant_id):
        return [own for (tenant, _), own in self.contents.items() if tenant == tenant_id]

    def _usage(self, tenant_id):
        own = self._of_tenant(tenant_id)
        documents, *_, stored_bytes = _sums(own)
        return TenantUsage(len(own), documents, stored_bytes, self._quota_of(tenant_id))

    def admit(self, tenant_id, collection, document_id, content_hash, stored_bytes=1):
        with self.lock:
            contents = self.named(tenant_id, collection)
            old = contents.versions.get(document_id)
            if old and content_hash and old.stored.document.content_hash == content_hash:
                return Admission(contents.handle, old.unchanged)
            more = TenantUsage(0, not old, stored_bytes - (old.sizes[-1] if old else 0))
            check_quota(tenant_id, self._usage(tenant_id), more)
            return Admission(contents.handle, None)

    def put(self, collection, document):
        return self.put_stored(collection, StoredDocument(document))

    def put_many(self, documents):
        with self.lock:
            return [errors.outcome_of(self.put, *each) for each in documents]

    def put_stored(self, collection, stored):
        tenant_id, document = collection.tenant_id, stored.document
        with self.lock:
            rest = dict(self._of(collection).versions)
            check_shapes(document, collection.settings)
            if stored.summaries:
                check_summaries(document, collection)
            new = _Version.of(next(self.numbers), self.sequences[tenant_id] + 1, stored)
            asked = (tenant_id, collection.name, document.document_id, document.content_hash)
            if unchanged := self.admit(*asked, new.sizes[-1]).unchanged:
                return unchanged
            old = rest.pop(document.document_id, None)
            self._change(self._of(collection), versions={**rest, document.document_id: new})
        outcome = IngestOutcome.UPDATED if old else IngestOutcome.CREATED
        return replace(new.unchanged, outcome=outcome)

    def delete(self, collection, document_id):
        with self.lock:
            contents = self._of(collection)
            gone = contents.version(document_id)
            rest = {name: each for name, each in contents.versions.items() if each is not gone}
            return self._change(contents, versions=rest)

    def document(self, collection, document_id):
        return self._of(collection).version(document_id).info

    def document_with_text(self, collection, document_id):
        version = self._of(collection).version(document_id)
        return version.info, version.stored.document.parsed.text

    def documents(self, collection, page_size, page_token):
        versions = self._of(collection).versions.items()
        return _page({name: each.info for name, each in versions}, page_size, page_token)

    def next_unsummarised(self, embedder, after=None, excluding=()):
        last = after.collection_id if after else 0
        for own in sorted(self.contents.values(), key=lambda c: c.handle.collection_id <= last):
            waiting = [each for each in own.unsummarised.values() if each.number not in excluding]
            if waiting and own.handle.settings.embedder == embedder:
                number, document = waiting[0].number, waiting[0].stored.document
                described = (document.document_id, document.title, document.parsed, document.tree)
                return Unsummarised(own.handle, number, *described, own.summary_tokens)
        return None

    def put_summaries(self, document, summaries, tokens=0):
        with suppress(errors.CollectionNotFound), self.lock:
            own = self._of(document.collection)
            versions, old = dict(own.versions), own.unsummarised.get(document.version)
            if old is not None:
                new = replace(old.stored, summaries=summaries)
                versions[document.document_id] = _Version.of(old.number, old.info.sequence, new)
            self._change(own, versions=versions, summary_tokens=own.summary_tokens + tokens)
            return old is not None
        return False


def _page(items: Mapping[str, Any], size: int, token: str) -> types.Listing[Any]:
    keys = sorted(key for key in items if key > token)
    return types.Listing(tuple(map(items.get, keys[:size])), keys[size - 1] if keys[size:] else "")


class MemorySnapshot:
    """See `Snapshot`."""

    def __init__(self, contents: _Contents, sequence: int, deadline: Deadline) -> None:
        self._contents, self._deadline = contents, deadline
        self.settings, self.sequence = contents.handle.settings, sequence
        self._level = self.settings.tree.embedding_level

    def find(self, request):
        began = time.perf_counter()
        eligible, sections = self._eligible(request)
        ranked = sorted(
            (-float(each.stored.document.vectors[leaf] @ request.vector), each.number, leaf, each)
            for each, leaves in eligible
            for leaf in leaves
        )
        wanted, least = max(request.candidates, request.limit), request.min_score
        while True:
            self._deadline.check("searching")
            groups = self._groups(request, ranked[:wanted])
            best = [group for group in groups if least is None or -group[0][0] >= least]
            this = Round(request, len(groups), len(best), wanted >= len(ranked))
            found = tuple(self._read(request, best))
            if this.has_enough_groups and this.is_final(len(found)):
                break
            wanted *= FACTOR
        names = (*(["filter"] if request.filter else []), "search", "climb", "fetch")
        stages = tuple((name, began, time.perf_counter()) for name in names)
        sizes = (min(wanted, len(ranked)), len(ranked))
        is_window = request.mode is SearchMode.SENTENCE_WINDOW
        passages, contexts = ((), found) if is_window else (found, ())
        outcome = (True, this.is_exhausted(len(found)), stages)
        return Found(passages, *sizes, *outcome, contexts, sections)

    def _eligible(self, request):
        """Documents with the leaves that may be found, and the chosen sections."""
        given, most, ranked = request.filter, request.top_sections, []
        versions = self._contents.versions.values()
        versions = [v for v in versions if given is None or passes(given, v.stored.document)]
        if request.mode is not SearchMode.SUMMARY_FIRST:
            return [(each, range(len(each.stored.document.vectors))) for each in versions], ()
        for version in [each for each in versions if each.stored.summaries]:
            summaries = version.stored.summaries
            for number, summary in enumerate(summaries.summaries):
                score = float(summaries.vectors[number] @ request.vector)
                ranked.append((-score, version.number, number, version, summary))
        ranked.sort(key=lambda each: each[:3])
        if request.summary_scope is SummaryScope.DOCUMENTS:
            chosen = [each[1] for each in ranked if each[2] == 0][:most]
            ranked = [each for each in ranked if each[1] in chosen]
        best = [each for each in ranked if each[2] > 0][:most]
        sections = (
            version.text.chosen_section(self._level, summary.leaves, summary.text, -score)
            for score, _, _, version, summary in best[:100]
        )
        return [(version, summary.leaves) for *_, version, summary in best], tuple(sections)

    def _groups(self, request, ranked):
        """Leaves by the chunk that represents them: rank, text, position, leaves; best first."""
        families, groups = defaultdict(dict), []
        for score, _, leaf, version in ranked:
            families[version][leaf] = -score
        for version, leaves in families.items():
            tree, levels = version.text.tree, (self._level, request.level)
            if request.mode is SearchMode.AUTO_MERGE:
                positions = auto_merge.representatives(tree, leaves, *levels, request.merge_ratio)
            else:
                above = tree.ancestors(self._level)[request.level - self._level].tolist()
                positions = {leaf: (request.level, above[leaf]) for leaf in leaves}
            for position in set(positions.values()):
                own = [(leaf, leaves[leaf]) for leaf in leaves if positions[leaf] == position]
                score = aggregated([score for _, score in own], request.aggregation)
                rank = (-score, -own[0][1], version.number, tree.record(*position))
                groups.append((rank, version.text, position, own))
        return sorted(groups, key=lambda group: group[0])

    def _read(self, request, groups):
        """Yields passages, or in SENTENCE_WINDOW contexts."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            for rank, *chunk, _ in groups[: request.limit]:
                yield sentence_context.sentence_context(*chunk, -rank[0], request.window_sentences)
            return
        matches = SimpleNamespace(
            level=self._level,
            score=lambda number: -groups[number][0][0],
            leaves=lambda ns: sorted(chain(*(groups[n][3] for n in ns)), key=lambda leaf: -leaf[1]),
        )
        drafts = [PassageDraft.of(*group[1:3], number) for number, group in enumerate(groups)]
        limits = (request.limit, request.token_budget, request.merge_adjacent, request.cut_last)
        for draft in select_drafts(drafts, PassageLimits(*limits), matches):
            yield passage_of(draft, matches)

    def chunk(self, chunk_id):
        return self.hierarchy(chunk_id, 0, content=False).node

    def hierarchy(self, chunk_id, depth, *, content):
        text = self._contents.version(chunk_id.document_id, "chunk_id").text
        position = (chunk_id.level, chunk_id.index)
        if not text.has_chunk(position):
            problem = f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}"
            raise errors.ChunkNotFound(problem, field="chunk_id")
        return text.hierarchy(position, depth, content=content)


@dataclass(frozen=True)
class MemoryReader:
    """See `Reader`."""

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
        return iter([own.collection for own in self.engine.contents.values()])

    def export(self, tenant_id, collection):
        versions = self.engine.named(tenant_id, collection).versions
        return (versions[document_id].stored for document_id in sorted(versions))

    def status(self):
        return types.ReaderStatus(lag_s=0.0)

    preload = close = MemoryEngine._nothing
