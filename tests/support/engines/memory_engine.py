"""A storage engine in memory: plain and exact, the proof that the protocols suffice.

Contents are immutable: a write replaces them under a lock, a snapshot keeps those that it was
opened on. A search scores every leaf by words and by vector, one after the other. See
`hrag.engine.protocols` for signatures.
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
    Admission,
    CollectionHandle,
    DocumentSummaries,
    FindRequest,
    FindResult,
    PassageForm,
    SurroundedLeaves,
)
from hrag.engine.common.rounds import FACTOR, Round, Selection, select
from hrag.engine.common.validation import (
    check_alias_count,
    check_no_aliases,
    check_quota,
    check_shapes,
    check_summaries,
    document_changed,
    name_taken,
    no_alias,
)
from hrag.engine.engine_documents import (
    StoredDocument,
    Unsummarised,
    fitting,
    info_bytes,
    read_part,
)
from hrag.passages import outline
from hrag.passages.auto_merge import MERGED_LEAVES, representatives
from hrag.passages.cited_place import TermLocator
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.indexed_text import MAX_HEADING_CHARS, IndexedLeaf, indexed_leaves
from hrag.passages.surrounded_leaf import surrounded_leaf
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.text.analysis import MAX_FREQUENCY, analyzer, term_weights
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.types import FusionMethod, IngestOutcome, Retrieval, SearchMode, SummaryScope, SummaryUnit
from hrag.values.deadline import NEVER, Deadline
from hrag.values.quotas import TenantUsage, unlimited
from hrag.values.reply_limit import UNLIMITED, field_bytes
from tests.support.documents.fakes import aggregated
from tests.support.engines.filter_model import passes

_K1, _B, _RRF_K = 1.2, 0.75, 60
F32 = np.float32  # Scores have as many bits as those of other engines, so that ties are ties.


@dataclass(frozen=True, eq=False)
class _Leaf:
    """What a source scores: a leaf of a document, or one of its summaries, with its terms."""

    version: "_Version"
    number: int
    order: tuple[int, int]
    vector: Any
    text: IndexedLeaf
    terms: Counter[int]

    @property
    def summary(self) -> Any:
        return self.version.stored.summaries.summaries[self.number]


@dataclass(frozen=True, eq=False)
class _Version:
    """One version of a document, numbered in order of commits; see `_sums` for its sizes."""

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
        about = outline.Outline.of(*named, document.metadata, parsed.sections, parsed.pages)
        described = (*named, document.mime_type, document.metadata, tree.counts, tokens, len(text))
        info = types.DocumentInfo(*described, len(parsed.pages), len(parsed.sections), sequence)
        stored_bytes = len(text) + vectors.nbytes + len(repr((described, summaries)))
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
        return self._leaves(document.vectors, indexed_leaves(*about, headings=headings))

    @cached_property
    def summaries(self) -> list[_Leaf]:
        """That of the whole document, then those of its sections."""
        title = self.stored.document.title if self.settings.index_headings else ""
        heading = f"{title[:MAX_HEADING_CHARS]}\n" if title else ""
        own = self.stored.summaries or DocumentSummaries((), ())
        texts = [IndexedLeaf(heading, each.text.strip()) for each in own.summaries]
        return self._leaves(own.vectors, texts)

    def _leaves(self, vectors: Any, texts: Sequence[IndexedLeaf]) -> list[_Leaf]:
        name = self.settings.analyzer
        ids = (analyzer(name).terms(each.lexical).tolist() if name else () for each in texts)
        numbered = enumerate(zip(vectors, texts, map(Counter, ids), strict=True))
        return [_Leaf(self, n, (self.number, n), *each) for n, each in numbered]


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
    location: str = "memory"
    lock: Any = field(default_factory=threading.RLock)
    numbers: Any = field(default_factory=lambda: count(1))  # Of collections and versions.
    contents: Mapping[tuple[str, str], _Contents] = field(default_factory=dict)
    sequences: Counter[str] = field(default_factory=Counter)
    names: Mapping[tuple[str, str], str] = field(default_factory=dict)  # Of aliases.

    def writer(self, quota_of=unlimited):
        self._quota_of = quota_of
        return self

    def reader(self):
        return MemoryReader(self)

    def require_store(self):
        """The store is in memory."""

    def maintenance(self):
        return self

    administration = maintenance

    def _nothing(self, *_):
        return True  # Nothing is indexed, nothing is open, nothing is left to do.

    start = close = wait_for_capacity = _nothing

    def _refuse(self, *_):
        raise errors.NotSupported("a store in memory has nothing to check, copy or rebuild")

    check = backup = restore = vacuum = migrate = reindex = _refuse

    def named(self, tenant_id: str, name: str, number: int | None = None) -> _Contents:
        """A collection by its name or alias, and its number if given."""
        found = self.contents.get((tenant_id, self.names.get((tenant_id, name), name)))
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
            is_alias = (tenant_id, name) in self.names
            if is_alias or (tenant_id, name) in self.contents:
                raise name_taken(tenant_id, name, "name", is_alias=is_alias)
            check_quota(tenant_id, self._usage(tenant_id), TenantUsage(collections=1))
            contents = _Contents(CollectionHandle(tenant_id, name, next(self.numbers), settings))
            return contents.collection, self._change(contents)

    def delete_collection(self, tenant_id, name):
        with self.lock:
            contents = self.named(tenant_id, name)
            own = contents.handle.name
            named = [each.name for each in self.aliases(tenant_id) if each.collection == own]
            check_no_aliases(tenant_id, own, named)
            sequence, gone = self._change(contents), (tenant_id, name)
            self.contents = {key: own for key, own in self.contents.items() if key != gone}
        return sequence

    def set_alias(self, tenant_id, alias, collection):
        with self.lock:
            now = types.Alias(alias, self.named(tenant_id, collection).handle.name)
            previous = self.names.get((tenant_id, alias), "")
            if (tenant_id, alias) in self.contents:
                raise name_taken(tenant_id, alias, "alias", is_alias=False)
            if not previous:
                check_alias_count(tenant_id, len(self.aliases(tenant_id)))
            self.sequences[tenant_id] += previous != now.collection
            self.names = {**self.names, (tenant_id, alias): now.collection}
            return types.AliasChange(now, previous, self.sequences[tenant_id])

    def delete_alias(self, tenant_id, alias):
        with self.lock:
            if (tenant_id, alias) not in self.names:
                raise no_alias(tenant_id, alias)
            gone = (tenant_id, alias)
            self.names = {key: own for key, own in self.names.items() if key != gone}
            self.sequences[tenant_id] += 1
            return self.sequences[tenant_id]

    def aliases(self, tenant_id):
        own = sorted((name, of) for (tenant, name), of in self.names.items() if tenant == tenant_id)
        return tuple(types.Alias(*each) for each in own)

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
            numbers = (next(self.numbers), self.sequences[tenant_id] + 1)
            new = _Version.of(*numbers, collection.settings, stored)
            asked = (tenant_id, collection.name, document.document_id, document.content_hash)
            if unchanged := self.admit(*asked, new.sizes[-1]).unchanged:
                return unchanged
            old = rest.pop(document.document_id, None)
            self._change(self._of(collection), versions={**rest, document.document_id: new})
        outcome = IngestOutcome.UPDATED if old else IngestOutcome.CREATED
        return replace(new.unchanged, outcome=outcome)

    def put_metadata(self, collection, document_id, sequence, metadata, source):
        with self.lock:
            contents = self._of(collection)
            old = contents.version(document_id)
            if old.info.sequence != sequence:
                raise document_changed(document_id, sequence, old.info.sequence)
            fields = {"metadata": metadata, "source": source, "metadata_json": b""}
            document = replace(old.stored.document, **fields, content_hash="")
            numbers = (old.number, self.sequences[collection.tenant_id] + 1)
            stored = replace(old.stored, document=document)
            new = _Version.of(*numbers, collection.settings, stored)
            more = TenantUsage(stored_bytes=new.sizes[-1] - old.sizes[-1])
            check_quota(collection.tenant_id, self._usage(collection.tenant_id), more)
            self._change(contents, versions={**contents.versions, document_id: new})
        return new.info

    def delete(self, collection, document_id):
        with self.lock:
            contents = self._of(collection)
            gone = contents.version(document_id)
            rest = {name: each for name, each in contents.versions.items() if each is not gone}
            return self._change(contents, versions=rest)

    def delete_matching(self, collection, filter, deadline=NEVER):
        deadline.check("filtering")
        passing, sequence = self._passing(collection, filter), self.sequences[collection.tenant_id]
        if not passing:
            yield types.DocumentDeletion(0, sequence)
        for version in passing:
            deadline.check("deleting documents")
            with self.lock:
                own, name = self._of(collection).versions, version.info.document_id
                is_same = own.get(name) is version
                sequence = self.delete(collection, name) if is_same else sequence
            yield types.DocumentDeletion(is_same, sequence)

    def document(self, collection, document_id):
        return self._of(collection).version(document_id).info

    def document_with_text(self, collection, document_id, part=None, reply=UNLIMITED):
        version = self._of(collection).version(document_id)
        left = reply.after(field_bytes(info_bytes(version.info)))
        return version.info, *read_part(version.stored.document.parsed.text.encode(), part, left)

    def documents(
        self, collection, page_size, page_token, reply=UNLIMITED, *, filter=None, deadline=NEVER
    ):
        deadline.check("filtering")
        passing = {each.info.document_id: each.info for each in self._passing(collection, filter)}
        found = _page(passing, page_size, page_token)
        items = tuple(fitting(found.items, reply))
        cut = len(items) < len(found.items)
        return types.Listing(items, items[-1].document_id if cut else found.next_page_token)

    def count(self, collection, filter, deadline=NEVER):
        deadline.check("filtering")
        found, total = self._passing(collection, filter), self._passing(collection, None)
        return types.DocumentCount(len(found), len(total), self.sequences[collection.tenant_id])

    def _passing(self, collection, given):
        versions = self._of(collection).versions.values()
        return [v for v in versions if given is None or passes(given, v.stored.document)]

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
                numbers = (old.number, old.info.sequence)
                versions[document.document_id] = _Version.of(*numbers, old.settings, new)
            self._change(own, versions=versions, summary_tokens=own.summary_tokens + tokens)
            return old is not None
        return False


def _page(items: Mapping[str, Any], size: int, token: str) -> types.Listing[Any]:
    keys = sorted(key for key in items if key > token)
    return types.Listing(tuple(map(items.get, keys[:size])), keys[size - 1] if keys[size:] else "")


@dataclass(frozen=True)
class _Scored:
    """A leaf with its score and each source's, None of one that was not searched."""

    leaf: _Leaf
    score: Any
    lexical: float | None
    dense: float | None

    @property
    def match(self) -> LeafMatch:
        return LeafMatch(self.leaf.number, float(self.score), self.lexical, self.dense)

    def section(self, level: int) -> types.ChosenSection:
        own, text = self.leaf.summary, self.leaf.version.text
        return text.chosen_section(level, own.leaves, own.text, float(self.score))


class _Ranking:
    """A request's candidates; the statistics of its terms are those of all `leaves`."""

    def __init__(self, request: FindRequest, analyzer_name: str, leaves: Sequence[_Leaf]) -> None:
        self._request = request
        self._analyzer = analyzer(analyzer_name) if analyzer_name else None
        terms = sorted(self._analyzer.query_terms(request.text)) if self._analyzer else []
        self._ids = [term.id for term in terms]
        found = [sum(term in leaf.terms for leaf in leaves) for term in self._ids]
        self._weights = list(map(F32, term_weights(terms, found, len(leaves))))
        mean_length = sum(leaf.terms.total() for leaf in leaves) / max(len(leaves), 1)
        self._a, self._b = F32(_K1 * (1 - _B)), F32(_K1 * _B / max(mean_length, 1.0))

    @property
    def locator(self) -> TermLocator:
        is_dense = self._request.retrieval is Retrieval.DENSE
        weights = [1.0] * len(self._ids) if is_dense else self._weights
        return TermLocator(self._analyzer, np.array(self._ids, np.uint64), np.array(weights, F32))

    def best(self, eligible: Sequence[_Leaf], count: int) -> tuple[list[_Scored], bool]:
        """The `count` best leaves of each source, best first, and whether there are no others."""
        retrieval = self._request.retrieval
        of_terms, of_vector = retrieval is not Retrieval.DENSE, retrieval is not Retrieval.LEXICAL
        lexical = {leaf: self._bm25(leaf) for leaf in eligible * of_terms}
        lexical = {leaf: score for leaf, score in lexical.items() if score > 0}
        dense = {leaf: F32(leaf.vector @ self._request.vector) for leaf in eligible * of_vector}
        tops = [{x: each[x] for x in _best_first(each)[:count]} for each in (lexical, dense)]
        is_hybrid = of_terms and of_vector
        fused = self._fused(tops, lexical, dense) if is_hybrid else tops[0] | tops[1]
        scores = self._with_bonus(fused)

        def scored(leaf: _Leaf) -> _Scored:
            by_terms = float(lexical.get(leaf, 0.0)) if of_terms else None
            return _Scored(leaf, scores[leaf], by_terms, float(dense[leaf]) if of_vector else None)

        found = [scored(leaf) for leaf in _best_first(scores)]
        return found, len(dense if of_vector else lexical) <= count

    def _bm25(self, leaf: _Leaf) -> Any:
        score, norm = F32(0), self._a + self._b * F32(leaf.terms.total())
        for term, weight in zip(self._ids, self._weights, strict=True):
            if term in leaf.terms:
                frequency = F32(min(leaf.terms[term], MAX_FREQUENCY))
                score += weight * frequency / (frequency + norm)
        return score

    def _fused(self, tops: Sequence[Any], lexical: Any, dense: Any) -> Any:
        fusion = self._request.fusion
        low, scale = F32(fusion.lowest_cosine), F32(1 - fusion.lowest_cosine)
        parts = (lexical, {leaf: max(score - low, F32(0)) / scale for leaf, score in dense.items()})
        if fusion.method is FusionMethod.RECIPROCAL_RANK:
            parts = [{x: F32(1) / F32(_RRF_K + n) for n, x in enumerate(top, 1)} for top in tops]
        zero, weight = F32(0), F32(fusion.lexical_weight)
        both = {leaf: [part.get(leaf, zero) for part in parts] for leaf in tops[0] | tops[1]}
        return {leaf: weight * one + (1 - weight) * other for leaf, (one, other) in both.items()}

    def _with_bonus(self, scores: Mapping[_Leaf, Any]) -> Mapping[_Leaf, Any]:
        bonus, best = F32(self._request.neighbour_bonus), defaultdict(lambda: F32(-math.inf))
        for leaf, step in product(scores, (-1, 0, 1)):
            near = (leaf.version.number, leaf.number + step)
            best[near] = max(best[near], scores[leaf])
        return {leaf: score + bonus * best[leaf.order] for leaf, score in scores.items()}


def _best_first(scores: Mapping[_Leaf, Any]) -> list[_Leaf]:
    return sorted(scores, key=lambda leaf: (-scores[leaf], leaf.order))


@dataclass(frozen=True, eq=False)
class _Group:
    """A chunk, and the leaves that it represents, best first."""

    version: _Version
    position: TreePosition
    score: Any
    leaves: list[_Scored]

    @property
    def rank(self) -> Any:
        record = self.version.text.tree.record(*self.position)
        return -self.score, -self.leaves[0].score, self.version.number, record

    def has(self, leaf: _Leaf, request: FindRequest) -> bool:
        """Whether the leaf is the chunk's: in AUTO_MERGE any inside it, else a descendant."""
        if leaf.version is not self.version:
            return False
        tree, (level, index) = self.version.text.tree, self.position
        bottom = self.version.settings.tree.embedding_level
        if request.mode is not SearchMode.AUTO_MERGE:
            return tree.ancestors(bottom)[level - bottom][leaf.number] == index
        whole, part = tree.record(level, index), tree.record(bottom, leaf.number)
        return whole.byte_start <= part.byte_start and part.byte_end <= whole.byte_end


class MemorySnapshot:
    """See `Snapshot`."""

    def __init__(self, contents: _Contents, sequence: int, deadline: Deadline) -> None:
        self._contents, self._deadline = contents, deadline
        self.settings, self.sequence = contents.handle.settings, sequence
        self.name = contents.handle.name
        self._level = self.settings.tree.embedding_level

    def find(self, request, form):
        began = time.perf_counter()
        eligible, sections = self._eligible(request)
        ranking = self._ranking(request, "leaves")
        wanted, considered, groups = request.candidates, set(), []
        while True:
            self._deadline.check("searching")
            scored, complete = ranking.best(eligible, wanted)
            scored = [each for each in scored if each.leaf not in considered]
            first = None if groups or request.mode is not SearchMode.AUTO_MERGE else MERGED_LEAVES
            for part in (scored[:first], scored[len(scored[:first]) :]):
                groups += self._groups(request, part, groups)
            considered.update(each.leaf for each in scored)
            least = -math.inf if request.min_score is None else request.min_score
            best = [group for group in groups if group.score >= least]
            this = Round(request, len(groups), len(best), complete)
            found, selection = self._read(request, form, best, ranking.locator)
            if this.has_enough_groups and this.is_final(selection):
                break
            wanted *= FACTOR
        names = ["filter"] * bool(request.filter or request.required) + ["search", "climb", "fetch"]
        stages = tuple((name, began, time.perf_counter()) for name in names)
        outcome = (len(considered), len(eligible), True, this.is_exhausted(selection))
        return FindResult(found, *outcome, stages, sections)

    def _ranking(self, request: FindRequest, kind: str) -> _Ranking:
        leaves = (getattr(version, kind) for version in self._contents.versions.values())
        return _Ranking(request, self.settings.analyzer, list(chain(*leaves)))

    def _eligible(self, request):
        """The leaves that may be found, and the chosen sections."""
        given, sections = request.filter, ()
        versions = self._contents.versions.values()
        versions = [v for v in versions if given is None or passes(given, v.stored.document)]
        leaves = [leaf for each in versions for leaf in each.leaves]
        if request.mode is SearchMode.SUMMARY_FIRST:
            best = self._best_summaries(request, versions)
            leaves = [x.leaf.version.leaves[n] for x in best for n in x.leaf.summary.leaves]
            sections = tuple(each.section(self._level) for each in best[:100])
        required = RequiredParts(request.required)
        return [leaf for leaf in leaves if required.are_in(leaf.text)], sections

    def _best_summaries(self, request, versions) -> list[_Scored]:
        ranking = self._ranking(replace(request, neighbour_bonus=0.0), "summaries")
        eligible, most = list(chain(*(each.summaries for each in versions))), request.top_sections
        candidates = max(request.candidates, most)
        if request.summary_scope is SummaryScope.DOCUMENTS:
            of_documents = [leaf for leaf in eligible if leaf.number == 0]
            best = ranking.best(of_documents, candidates)[0][:most]
            chosen = [each.leaf.version for each in best]
            eligible = [leaf for leaf in eligible if leaf.version in chosen]
        return ranking.best([leaf for leaf in eligible if leaf.number > 0], candidates)[0][:most]

    def _groups(self, request, found: list[_Scored], before: list[_Group]) -> list[_Group]:
        """Leaves by the chunk that represents them, best first; none that `before` has."""
        families, groups = defaultdict(list), []
        for each in found:
            if not any(group.has(each.leaf, request) for group in before):
                families[each.leaf.version].append(each)
        for version, own in families.items():
            tree, numbers = version.text.tree, [each.leaf.number for each in own]
            if request.mode is not SearchMode.AUTO_MERGE:
                above = tree.ancestors(self._level)[request.level - self._level].tolist()
                positions = {leaf: (request.level, above[leaf]) for leaf in numbers}
            elif before:
                positions = {leaf: (self._level, leaf) for leaf in numbers}
            else:
                levels, ratio = (self._level, request.level), request.merge_ratio
                positions = representatives(tree, numbers, *levels, ratio)
            for position in set(positions.values()):
                family = [each for each in own if positions[each.leaf.number] == position]
                score = F32(aggregated([each.score for each in family], request.aggregation))
                groups.append(_Group(version, position, score, family))
        return sorted(groups, key=lambda group: group.rank)

    def _read(self, request, form: Any, groups: list[_Group], locator: TermLocator):
        """Returns passages in the form that is asked for, and how they were selected."""
        chunks = [(group.version.text, group.position) for group in groups]
        scores = [float(group.score) for group in groups]
        if isinstance(form, SurroundedLeaves):
            scored = zip(chunks[: request.limit], scores, strict=False)
            surrounded = [surrounded_leaf(*chunk, score, form.chars) for chunk, score in scored]
            return tuple(surrounded), Selection.of_groups(len(groups), request.limit)
        assert isinstance(form, PassageForm)

        def leaves(numbers: Sequence[int]) -> list[LeafMatch]:
            own = chain.from_iterable(groups[number].leaves for number in numbers)
            return [each.match for each in sorted(own, key=lambda each: -each.score)]

        def passage(draft: PassageDraft) -> types.Passage:
            own = (draft.document, self._level, leaves(draft.groups), draft.record)
            spans = request.retrieval is not Retrieval.DENSE
            return passage_of(draft, matches, locator.cited_place(*own, spans=spans))

        matches = SimpleNamespace(level=self._level, score=scores.__getitem__, leaves=leaves)
        drafts = [PassageDraft.of(*chunk, number) for number, chunk in enumerate(chunks)]
        selected = select(request, drafts, matches)
        selection = Selection.of_drafts(selected, len(groups), request)
        passages = tuple(form.from_value(passage(draft)) for draft in selected.drafts)
        return passages, selection

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
        own = self.engine.contents
        return iter([own[place].collection for place in sorted(own)])

    def aliases(self, tenant_id):
        return self.engine.aliases(tenant_id)

    def export(self, tenant_id, collection):
        versions = self.engine.named(tenant_id, collection).versions
        return (versions[document_id].stored for document_id in sorted(versions))

    def status(self):
        return types.ReaderStatus(lag_s=0.0)

    preload = close = MemoryEngine._nothing
