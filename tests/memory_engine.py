"""A storage engine in memory: plain and exact, the proof that the protocols suffice.

A collection's contents are immutable. A write replaces them under a lock, so a snapshot is
the contents that it was opened on. A search compares every eligible leaf. The signatures of
public methods are those of `hrag.engine.protocols`.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partialmethod
from itertools import chain, count, repeat
from typing import NamedTuple

import numpy as np

from hrag import errors, types
from hrag.deadline import NEVER, Deadline
from hrag.engine.deepening import FACTOR, Round
from hrag.engine.documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    StoredDocument,
    Unsummarised,
)
from hrag.engine.find import Found
from hrag.engine.reports import CheckReport
from hrag.passages.auto_merge import representatives
from hrag.passages.drafts import PassageDraft, PassageLimits, passage_of, select_drafts
from hrag.passages.outline import Outline
from hrag.passages.sentence_context import sentence_context
from hrag.passages.tree_text import TreePosition, TreeText
from hrag.quota.quotas import TenantUsage, unlimited
from hrag.tree import ChunkRecord
from hrag.types import IngestOutcome, IngestResult, SearchMode, SummaryScope, SummaryUnit
from tests.fakes import aggregated
from tests.filter_model import passes

_SHOWN_SECTIONS = 100
_NO_SUMMARIES = DocumentSummaries((), np.empty((0, 0), np.float32))


@dataclass(frozen=True, eq=False)
class _Version:
    """One version of a document; later commits have higher numbers."""

    number: int
    stored: StoredDocument
    info: types.DocumentInfo
    text: TreeText
    stored_bytes: int

    @classmethod
    def of(cls, number: int, sequence: int, stored: StoredDocument) -> "_Version":
        document, tree, parsed = stored.document, stored.document.tree, stored.document.parsed
        named = (document.document_id, document.title, document.source)
        last = tree.record(tree.top_level, tree.counts[-1] - 1)
        sizes = (tree.counts, last.token_start + last.token_count, last.byte_end)
        sizes += (len(parsed.pages), len(parsed.sections), sequence)
        info = types.DocumentInfo(*named, document.mime_type, document.metadata, *sizes)
        outline = Outline.of(*named, document.metadata, parsed.sections, parsed.pages)
        summaries = stored.summaries or _NO_SUMMARIES
        texts = (parsed.text, repr(document.metadata), *(each.text for each in summaries.summaries))
        stored_bytes = sum(len(text.encode()) for text in texts) + tree.size_bytes
        stored_bytes += document.vectors.nbytes + summaries.vectors.nbytes
        return cls(number, stored, info, TreeText(outline, tree, texts[0].encode()), stored_bytes)

    def result(self, outcome: IngestOutcome) -> IngestResult:
        info = self.info
        sizes = (info.sequence, info.chunks_per_level, info.token_count)
        return IngestResult(info.document_id, outcome, *sizes)


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
        wants = self.handle.settings.summaries is not SummaryUnit.NONE
        waiting = (each for each in self.versions.values() if each.stored.summaries is None)
        return {each.number: each for each in waiting} if wants else {}

    def version(self, document_id: str, field: str = "document_id") -> _Version:
        if document_id not in self.versions:
            problem = f"collection {self.handle.name!r} has no document {document_id!r}"
            raise errors.DocumentNotFound(problem, field=field)
        return self.versions[document_id]


class MemoryEngine:
    """See `Engine`; all but a Reader in one: Writer, Maintenance and Administration too."""

    name = "memory"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = count(1)  # Of collections and versions.
        self._quota_of = unlimited
        self.contents: Mapping[int, _Contents] = {}
        self.sequences: dict[str, int] = defaultdict(int)

    def writer(self, quota_of=unlimited):
        self._quota_of = quota_of
        return self

    def reader(self):
        return MemoryReader(self)

    def maintenance(self):
        return self

    administration = maintenance

    def start(self):
        """Nothing is done in the background."""

    def close(self):
        return True

    def check(self):
        documents = [each for own in self.contents.values() for each in own.versions.values()]
        leaves = sum(len(each.stored.document.vectors) for each in documents)
        return CheckReport(len(self.contents), len(documents), leaves, segments=0, problems=())

    def _refuse(self, command, *_):
        raise errors.NotSupported(f"the engine in memory has no {command}: it keeps nothing")

    backup = partialmethod(_refuse, "backup")
    restore = partialmethod(_refuse, "restore")
    vacuum = partialmethod(_refuse, "vacuum")
    reindex = partialmethod(_refuse, "reindex")

    # Collections

    def of_tenant(self, tenant_id: str) -> dict[str, _Contents]:
        own = (each for each in self.contents.values() if each.handle.tenant_id == tenant_id)
        return {each.handle.name: each for each in own}

    def named(self, tenant_id: str, name: str) -> _Contents:
        return self._of(self.of_tenant(tenant_id).get(name), tenant_id, name)

    def _of(self, contents, tenant_id, name):
        if contents is None:
            problem = f"tenant {tenant_id!r} has no collection {name!r}"
            raise errors.CollectionNotFound(problem, field="collection")
        return contents

    def _contents(self, handle: CollectionHandle) -> _Contents:
        return self._of(self.contents.get(handle.collection_id), handle.tenant_id, handle.name)

    def _change(self, contents: _Contents, **fields: object) -> int:
        """Commits a collection with these fields changed; returns the sequence."""
        tenant_id = contents.handle.tenant_id
        self.sequences[tenant_id] += 1
        changed = replace(contents, sequence=self.sequences[tenant_id], **fields)
        self.contents = {**self.contents, contents.handle.collection_id: changed}
        return changed.sequence

    def create_collection(self, tenant_id, name, settings):
        with self._lock:
            if name in self.of_tenant(tenant_id):
                problem = f"tenant {tenant_id!r} has a collection {name!r} already"
                raise errors.CollectionExists(problem, field="name")
            self._check_quota(tenant_id, collections=1)
            contents = _Contents(CollectionHandle(tenant_id, name, next(self._numbers), settings))
            return contents.collection, self._change(contents)

    def delete_collection(self, tenant_id, name):
        with self._lock:
            gone = self.named(tenant_id, name).handle.collection_id
            sequence = self._change(self.contents[gone])
            self.contents = {number: own for number, own in self.contents.items() if number != gone}
        return sequence

    def collection(self, tenant_id, name):
        return self.named(tenant_id, name).collection

    def collections(self, tenant_id, page_size, page_token):
        own = self.of_tenant(tenant_id).items()
        return _page({name: each.collection for name, each in own}, page_size, page_token)

    def open(self, tenant_id, name):
        return self.named(tenant_id, name).handle

    def status(self, collection):
        contents = self._contents(collection)
        infos = [version.info for version in contents.versions.values()]
        stored = [version.stored for version in contents.versions.values()]
        return types.IndexStatus(
            committed_sequence=contents.sequence,
            document_count=len(infos),
            chunk_count=sum(sum(info.chunks_per_level) for info in infos),
            leaf_count=sum(len(each.document.vectors) for each in stored),
            token_count=sum(info.token_count for info in infos),
            text_bytes=sum(info.text_bytes for info in infos),
            vector_bytes=sum(each.document.vectors.nbytes for each in stored),
            summary_count=sum(len(each.summaries.summaries) for each in stored if each.summaries),
            unsummarised_documents=len(contents.unsummarised),
            summary_tokens=contents.summary_tokens,
            tenant=self._usage(collection.tenant_id),
        )

    def totals(self):
        statuses = [self.status(own.handle) for own in self.contents.values()]
        names = ("document_count", "leaf_count", "summary_count", "unsummarised_documents")
        names = (*names, "text_bytes", "vector_bytes")
        sums = (sum(getattr(status, name) for status in statuses) for name in names)
        return types.StoreTotals(len(statuses), *sums)

    def _usage(self, tenant_id):
        own = self.of_tenant(tenant_id).values()
        sizes = [version.stored_bytes for each in own for version in each.versions.values()]
        return TenantUsage(len(own), len(sizes), sum(sizes), self._quota_of(tenant_id))

    def _check_quota(self, tenant_id, **more):
        """Raises StorageQuotaExceeded; `more` says how much which fields of usage grow."""
        used = self._usage(tenant_id)
        for name, takes in more.items():
            kind = name.removeprefix("stored_")
            limit, has = getattr(used.quota, f"max_{kind}"), getattr(used, name)
            if limit is not None and takes > 0 and has + takes > limit:
                problem = f"tenant {tenant_id!r} has {has:,} of the {limit:,} {kind} it may have"
                raise errors.StorageQuotaExceeded(problem, field=kind, tenant_id=tenant_id)

    # Documents

    def admit(self, tenant_id, collection, document_id, content_hash, stored_bytes=1):
        with self._lock:
            contents = self.named(tenant_id, collection)
            old = contents.versions.get(document_id)
            if old is not None and old.stored.document.content_hash == content_hash:
                return Admission(contents.handle, old.result(IngestOutcome.UNCHANGED))
            self._check_growth(tenant_id, old, stored_bytes)
        return Admission(contents.handle, None)

    def _check_growth(self, tenant_id, old, stored_bytes):
        grows_by = stored_bytes - (old.stored_bytes if old else 0)
        self._check_quota(tenant_id, documents=not old, stored_bytes=grows_by)

    def wait_for_capacity(self, collection, deadline):
        """Nothing is indexed, so nothing lags behind."""

    def put(self, collection, document):
        return self.put_stored(collection, StoredDocument(document))

    def put_many(self, documents):
        with self._lock:
            return [errors.outcome_of(self.put, *each) for each in documents]

    def put_stored(self, collection, stored):
        with self._lock:
            contents = self._contents(collection)
            _check_shapes(stored.document, collection.settings)
            rest = dict(contents.versions)
            old = rest.pop(stored.document.document_id, None)
            if old is not None and old.stored.document.content_hash == stored.document.content_hash:
                return old.result(IngestOutcome.UNCHANGED)
            sequence = self.sequences[collection.tenant_id] + 1
            new = _Version.of(next(self._numbers), sequence, stored)
            self._check_growth(collection.tenant_id, old, new.stored_bytes)
            self._change(contents, versions={**rest, new.info.document_id: new})
        return new.result(IngestOutcome.UPDATED if old else IngestOutcome.CREATED)

    def delete(self, collection, document_id):
        with self._lock:
            contents = self._contents(collection)
            gone = contents.version(document_id)
            rest = {name: each for name, each in contents.versions.items() if each is not gone}
            return self._change(contents, versions=rest)

    def document(self, collection, document_id):
        return self._contents(collection).version(document_id).info

    def document_with_text(self, collection, document_id):
        version = self._contents(collection).version(document_id)
        return version.info, version.stored.document.parsed.text

    def documents(self, collection, page_size, page_token):
        versions = self._contents(collection).versions.items()
        return _page({name: each.info for name, each in versions}, page_size, page_token)

    # Summaries

    def next_unsummarised(self, embedder, after=None, excluding=()):
        last = after.collection_id if after else 0
        for _, found in sorted(self.contents.items(), key=lambda own: (own[0] <= last, own[0])):
            waiting = [each for each in found.unsummarised.values() if each.number not in excluding]
            if waiting and found.handle.settings.embedder == embedder:
                document = waiting[0].stored.document
                described = (document.document_id, document.title, document.parsed, document.tree)
                versioned = (found.handle, waiting[0].number)
                return Unsummarised(*versioned, *described, found.summary_tokens)
        return None

    def put_summaries(self, document, summaries, tokens=0):
        with self._lock:
            contents = self.contents.get(document.collection.collection_id)
            if contents is None:
                return False
            tokens += contents.summary_tokens
            versions, old = dict(contents.versions), contents.unsummarised.get(document.version)
            if old is not None:
                stored = replace(old.stored, summaries=summaries)
                new = _Version.of(old.number, old.info.sequence, stored)
                versions[document.document_id] = new
            self._change(contents, versions=versions, summary_tokens=tokens)
        return old is not None


def _page(items: Mapping[str, object], size: int, token: str) -> types.Listing:
    names = sorted(name for name in items if name > token)
    more = len(names) > size
    return types.Listing(tuple(map(items.get, names[:size])), names[size - 1] if more else "")


def _check_shapes(document, settings):
    levels, wanted = len(document.tree.counts), len(settings.tree.level_sizes)
    if levels != wanted:
        problem = f"tree has {levels} levels; the collection's have {wanted}"
        raise errors.InvalidArgument(problem, field="tree")
    needed = (document.tree.counts[settings.tree.embedding_level], settings.dimension)
    if document.vectors.shape != needed:
        shape = document.vectors.shape
        problem = f"vectors have shape {shape}; the tree and the collection need {needed}"
        raise errors.InvalidArgument(problem, field="vectors")


class _Group(NamedTuple):
    """Leaves, as index and score, by the chunk that represents them; best sorts first."""

    negative_score: float
    negative_best: float
    number: int
    record: ChunkRecord
    version: _Version
    position: TreePosition
    leaves: list[tuple[int, float]]


class _Matches(NamedTuple):
    """See `hrag.passages.drafts.MatchedLeaves`."""

    level: int
    groups: Sequence[_Group]

    def score(self, group):
        return -self.groups[group].negative_score

    def leaves(self, groups):
        found = chain.from_iterable(self.groups[group].leaves for group in groups)
        return sorted(found, key=lambda leaf: -leaf[1])


class MemorySnapshot:
    """See `Snapshot`."""

    def __init__(self, contents: _Contents, sequence: int, deadline: Deadline) -> None:
        self._contents, self._deadline = contents, deadline
        self.settings, self.sequence = contents.handle.settings, sequence
        self._level = self.settings.tree.embedding_level

    def find(self, request):
        began = time.perf_counter()
        eligible, sections = self._eligible(request)
        ranked = sorted(chain.from_iterable(_scored(request.vector, *each) for each in eligible))
        wanted = max(request.candidates, request.limit)
        while True:
            self._deadline.check("searching")
            groups = self._groups(request, ranked[:wanted])
            passages, contexts, this_round = self._read(request, groups, wanted >= len(ranked))
            made = len(passages) + len(contexts)
            if this_round.has_enough_groups and this_round.is_final(made):
                break
            wanted *= FACTOR
        sizes = (min(wanted, len(ranked)), len(ranked))
        names = (*(["filter"] if request.filter else []), "search", "climb", "fetch")
        stages = [(name, began, time.perf_counter()) for name in names]
        exhausted = this_round.is_exhausted(made)
        return Found(passages, *sizes, True, exhausted, tuple(stages), contexts, sections)

    def _eligible(self, request):
        """Documents with the range of leaves that may be found, and the chosen sections."""
        versions = self._contents.versions.values()
        if request.filter is not None:
            versions = [each for each in versions if passes(request.filter, each.stored.document)]
        if request.mode is not SearchMode.SUMMARY_FIRST:
            return [(each, range(len(each.stored.document.vectors))) for each in versions], ()
        best = sorted(chain.from_iterable(_summaries(request.vector, each) for each in versions))
        if request.summary_scope is SummaryScope.DOCUMENTS:
            wholes = [version for _, _, n, version, _ in best if n == 0][: request.top_sections]
            best = [each for each in best if each[3] in wholes]
        best = [each for each in best if each[2] > 0][: request.top_sections]
        sections = (
            version.text.chosen_section(self._level, summary.leaves, summary.text, -negative)
            for negative, _, _, version, summary in best[:_SHOWN_SECTIONS]
        )
        return [(version, summary.leaves) for *_, version, summary in best], tuple(sections)

    def _groups(self, request, ranked):
        """Leaves by the chunk that represents them, best group first."""
        families, groups = defaultdict(dict), []
        for negative, _, leaf, version in ranked:
            families[version][leaf] = -negative
        for version, leaves in families.items():
            positions = self._positions(request, version.text.tree, leaves)
            for position in set(positions.values()):
                own = [(leaf, leaves[leaf]) for leaf in leaves if positions[leaf] == position]
                score = aggregated([score for _, score in own], request.aggregation)
                rank = (-float(np.float32(score)), -own[0][1], version.number)
                record = version.text.tree.record(*position)
                groups.append(_Group(*rank, record, version, position, own))
        return sorted(groups)

    def _positions(self, request, tree, leaves):
        if request.mode is SearchMode.AUTO_MERGE:
            levels = (self._level, request.level)
            return representatives(tree, leaves, *levels, request.merge_ratio)
        above = tree.ancestors(self._level)[request.level - self._level].tolist()
        return {leaf: (request.level, above[leaf]) for leaf in leaves}

    def _read(self, request, groups, complete):
        """Passages or contexts of groups, and the round that they are of."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            contexts = (
                sentence_context(
                    each.version.text, each.position, -each.negative_score, request.window_sentences
                )
                for each in groups[: request.limit]
            )
            return (), tuple(contexts), Round(request, len(groups), len(groups), complete)
        least = -np.inf if request.min_score is None else request.min_score
        matches = _Matches(self._level, [each for each in groups if -each.negative_score >= least])
        drafts = (
            PassageDraft.of(each.version.text, each.position, number)
            for number, each in enumerate(matches.groups)
        )
        how = (request.limit, request.token_budget, request.merge_adjacent, request.cut_last)
        chosen = select_drafts(drafts, PassageLimits(*how), matches)
        passages = tuple(passage_of(draft, matches) for draft in chosen)
        return passages, (), Round(request, len(groups), len(matches.groups), complete)

    def chunk(self, chunk_id):
        return self._text(chunk_id).node((chunk_id.level, chunk_id.index))

    def hierarchy(self, chunk_id, depth, *, content):
        position = (chunk_id.level, chunk_id.index)
        return self._text(chunk_id).hierarchy(position, depth, content=content)

    def _text(self, chunk_id):
        self._deadline.check("reading chunks")
        text = self._contents.version(chunk_id.document_id, "chunk_id").text
        if not text.has_chunk((chunk_id.level, chunk_id.index)):
            problem = f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}"
            raise errors.ChunkNotFound(problem, field="chunk_id")
        return text


class MemoryReader:
    """See `Reader`."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine

    @contextmanager
    def snapshot(self, tenant_id, collection, *, summaries=False, deadline=NEVER):
        contents = self._engine.named(tenant_id, collection)
        if summaries and contents.handle.settings.summaries is SummaryUnit.NONE:
            problem = f"collection {collection!r} has no summaries; see HRAG_SUMMARIES"
            raise errors.NoSummaries(problem, field="mode")
        yield MemorySnapshot(contents, self._engine.sequences[tenant_id], deadline)

    def sequence(self, tenant_id):
        return self._engine.sequences[tenant_id]

    def collections(self):
        return iter([own.collection for own in self._engine.contents.values()])

    def export(self, tenant_id, collection):
        versions = self._engine.named(tenant_id, collection).versions
        return (versions[document_id].stored for document_id in sorted(versions))

    def status(self):
        return types.ReaderStatus(lag_s=0.0)

    def preload(self):
        """Everything is in memory."""

    def close(self):
        """Keeps nothing open."""


def _scored(query, version, leaves):
    """Leaves with their scores, so that the best sorts first."""
    scores = version.stored.document.vectors[leaves.start : leaves.stop] @ query
    negative = (-scores).tolist()
    return [
        (*each, version) for each in zip(negative, repeat(version.number), leaves, strict=False)
    ]


def _summaries(query, version):
    """Summaries with their scores, the best first; number 0 is that of the whole document."""
    found = version.stored.summaries or _NO_SUMMARIES
    negative = (-(found.vectors @ query)).tolist() if found.summaries else []
    for number, (score, summary) in enumerate(zip(negative, found.summaries, strict=True)):
        yield score, version.number, number, version, summary
