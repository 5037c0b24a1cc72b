"""A storage engine in memory: plain and exact, the proof that the protocols suffice.

Contents are immutable: a write replaces them under a lock, a snapshot keeps those that it was
opened on. A search scores every leaf by words and by vector, one after the other. See
`hrag.engine.protocols` for signatures.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from types import SimpleNamespace
from typing import Any

import numpy as np

from hrag import errors, types
from hrag.analysis import MAX_FREQUENCY, analyzer
from hrag.analysis.query_syntax import contains
from hrag.deadline import NEVER, Deadline
from hrag.engine import (
    Admission,
    CollectionHandle,
    FindRequest,
    Found,
    StoredDocument,
    Unsummarised,
)
from hrag.engine.rounds import FACTOR, Round, Selection
from hrag.engine.validation import check_quota, check_shapes, check_summaries
from hrag.passages import auto_merge, outline, sentence_context
from hrag.passages.budget import PassageLimits, fill_budget, select_drafts
from hrag.passages.cited_place import TermLocator
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.indexed_text import MAX_HEADING_CHARS, indexed_texts
from hrag.passages.tree_text import LeafMatch, TreePosition, TreeText
from hrag.quota.quotas import TenantUsage, unlimited
from hrag.types import FusionMethod, IngestOutcome, Retrieval, SearchMode, SummaryScope, SummaryUnit
from tests.fakes import aggregated
from tests.filter_model import passes

_K1, _B = 1.2, 0.75
_RRF_K = 60
F32 = np.float32  # Scores have as many bits as those of other engines, so that ties are ties.


@dataclass(frozen=True, eq=False)
class _Leaf:
    """What a source scores: a leaf of a document, or one of its summaries, with its terms."""

    version: "_Version"
    number: int
    vector: Any
    text: str
    terms: Counter[int]

    @property
    def order(self) -> tuple[int, int]:
        return self.version.number, self.number


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
    def of(
        cls, number: int, sequence: int, settings: types.CollectionSettings, stored: StoredDocument
    ) -> "_Version":
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
        return self._leaves(document.vectors, indexed_texts(*about, headings=headings))

    @cached_property
    def summaries(self) -> list[_Leaf]:
        """That of the whole document, then those of its sections."""
        summaries, title = self.stored.summaries, self.stored.document.title
        if summaries is None:
            return []
        has_heading = bool(title and self.settings.index_headings)
        heading = f"{title[:MAX_HEADING_CHARS]}\n" if has_heading else ""
        texts = [heading + each.text.strip() for each in summaries.summaries]
        return self._leaves(summaries.vectors, texts)

    def _leaves(self, vectors: Any, texts: Sequence[str]) -> list[_Leaf]:
        name = self.settings.analyzer
        ids = (analyzer(name).terms(text).tolist() if name else () for text in texts)
        numbered = enumerate(zip(vectors, texts, map(Counter, ids), strict=True))
        return [_Leaf(self, number, *each) for number, each in numbered]


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
            numbers = (next(self.numbers), self.sequences[tenant_id] + 1)
            new = _Version.of(*numbers, collection.settings, stored)
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
    lexical: Any = None
    dense: Any = None

    @property
    def rank(self) -> Any:
        return -self.score, self.leaf.order

    @property
    def match(self) -> LeafMatch:
        given = (None if each is None else float(each) for each in (self.lexical, self.dense))
        return LeafMatch(self.leaf.number, float(self.score), *given)


class _Ranking:
    """A request's candidates; the statistics of its terms are those of all `leaves`."""

    def __init__(self, request: FindRequest, analyzer_name: str, leaves: Sequence[_Leaf]) -> None:
        self._request = request
        self._analyzer = analyzer(analyzer_name) if analyzer_name else None
        terms = self._analyzer.query_terms(request.text) if self._analyzer else ()
        self._ids = sorted(term.id for term in terms)
        found = [sum(term in leaf.terms for leaf in leaves) for term in self._ids]
        idf = [math.log1p((len(leaves) - n + 0.5) / (n + 0.5)) for n in found]
        self._weights = [F32(each / sum(idf)) for each in idf]
        mean_length = sum(leaf.terms.total() for leaf in leaves) / max(len(leaves), 1)
        self._a, self._b = F32(_K1 * (1 - _B)), F32(_K1 * _B / max(mean_length, 1.0))

    @property
    def locator(self) -> TermLocator:
        is_dense = self._request.retrieval is Retrieval.DENSE
        weights = [1.0] * len(self._ids) if is_dense else self._weights
        return TermLocator(self._analyzer, np.array(self._ids, np.uint64), np.array(weights, F32))

    def best(self, eligible: Sequence[_Leaf], count: int) -> tuple[list[_Scored], bool]:
        """The `count` best leaves of each source, and whether there are no others."""
        request, fusion = self._request, self._request.fusion
        if request.retrieval is Retrieval.DENSE:
            by_vector = self._by_vector(eligible)
            found = [replace(each, dense=each.score) for each in by_vector[:count]]
            return self._with_bonus(found), len(by_vector) <= count
        by_terms = self._by_terms(eligible)
        if request.retrieval is Retrieval.LEXICAL:
            found = [replace(each, lexical=each.score) for each in by_terms[:count]]
            return self._with_bonus(found), len(by_terms) <= count
        by_vector = self._by_vector(eligible)
        ranked = (by_terms[:count], by_vector[:count])
        leaves = {each.leaf for each in chain(*ranked)}
        lexical = dict.fromkeys(leaves, F32(0)) | {each.leaf: each.score for each in by_terms}
        dense = {each.leaf: each.score for each in by_vector}
        if fusion.method is FusionMethod.CONVEX:
            low, scale = F32(fusion.lowest_cosine), F32(1 - fusion.lowest_cosine)
            parts = (lexical, {leaf: (dense[leaf] - low) / scale for leaf in leaves})
        else:
            parts = tuple(
                dict.fromkeys(leaves, F32(0))
                | {own.leaf: F32(1) / F32(_RRF_K + place) for place, own in enumerate(each, 1)}
                for each in ranked
            )
        weight = F32(fusion.lexical_weight)
        fused = {leaf: weight * parts[0][leaf] + (1 - weight) * parts[1][leaf] for leaf in leaves}
        found = [_Scored(leaf, fused[leaf], lexical[leaf], dense[leaf]) for leaf in leaves]
        return self._with_bonus(found), len(by_vector) <= count

    def _by_terms(self, leaves: Sequence[_Leaf]) -> list[_Scored]:
        scored = (_Scored(leaf, self._bm25(leaf)) for leaf in leaves)
        return sorted((each for each in scored if each.score > 0), key=lambda each: each.rank)

    def _bm25(self, leaf: _Leaf) -> Any:
        score, norm = F32(0), self._a + self._b * F32(leaf.terms.total())
        for term, weight in zip(self._ids, self._weights, strict=True):
            if term in leaf.terms:
                frequency = F32(min(leaf.terms[term], MAX_FREQUENCY))
                score += weight * frequency / (frequency + norm)
        return score

    def _by_vector(self, leaves: Sequence[_Leaf]) -> list[_Scored]:
        scored = (_Scored(leaf, F32(leaf.vector @ self._request.vector)) for leaf in leaves)
        return sorted(scored, key=lambda each: each.rank)

    def _with_bonus(self, found: list[_Scored]) -> list[_Scored]:
        """Each with the neighbours' bonus, best first."""
        bonus, scores = F32(self._request.neighbour_bonus), {e.leaf.order: e.score for e in found}
        for number, each in enumerate(found):
            version, leaf = each.leaf.order
            near = [scores[own] for step in (-1, 0, 1) if (own := (version, leaf + step)) in scores]
            found[number] = replace(each, score=each.score + bonus * max(near))
        return sorted(found, key=lambda each: each.rank)


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

    def has(self, leaf: _Leaf, level: int) -> bool:
        """Whether the leaf, at `level`, lies inside the chunk."""
        tree = self.version.text.tree
        whole, part = tree.record(*self.position), tree.record(level, leaf.number)
        is_inside = whole.byte_start <= part.byte_start and part.byte_end <= whole.byte_end
        return leaf.version is self.version and is_inside


class MemorySnapshot:
    """See `Snapshot`."""

    def __init__(self, contents: _Contents, sequence: int, deadline: Deadline) -> None:
        self._contents, self._deadline = contents, deadline
        self.settings, self.sequence = contents.handle.settings, sequence
        self._level = self.settings.tree.embedding_level

    def find(self, request):
        began = time.perf_counter()
        eligible, sections = self._eligible(request)
        ranking = self._ranking(request, [leaf for each in self._versions for leaf in each.leaves])
        wanted, considered, groups = request.candidates, set(), []
        joins = request.merge_adjacent or request.token_budget
        while True:
            self._deadline.check("searching")
            scored, complete = ranking.best(eligible, wanted)
            new = [each for each in scored if each.leaf not in considered]
            groups += self._groups(request, new, groups)
            considered.update(each.leaf for each in new)
            kept = groups if joins else list(_most_of_each(groups, request.max_per_document))
            least = -math.inf if request.min_score is None else request.min_score
            best = [group for group in kept if group.score >= least]
            this = Round(request, len(kept), len(best), complete)
            if this.has_enough_groups:
                found, selection = self._read(request, best, ranking.locator)
                if this.is_final(selection):
                    break
            wanted *= FACTOR
        filters = ["filter"] if request.filter or request.required else []
        stages = [(n, began, time.perf_counter()) for n in (*filters, "search", "climb", "fetch")]
        is_window = request.mode is SearchMode.SENTENCE_WINDOW
        passages, contexts = ((), found) if is_window else (found, ())
        outcome = (len(considered), len(eligible), True, this.is_exhausted(selection))
        return Found(passages, *outcome, tuple(stages), contexts, sections)

    @property
    def _versions(self) -> list[_Version]:
        return list(self._contents.versions.values())

    def _ranking(self, request: FindRequest, leaves: Sequence[_Leaf]) -> _Ranking:
        return _Ranking(request, self.settings.analyzer, leaves)

    def _eligible(self, request):
        """The leaves that may be found, and the chosen sections."""
        given, sections = request.filter, ()
        versions = [v for v in self._versions if given is None or passes(given, v.stored.document)]
        leaves = [leaf for each in versions for leaf in each.leaves]
        if request.mode is SearchMode.SUMMARY_FIRST:
            best = self._best_summaries(request, versions)
            chosen = [(each, _summary_of(each.leaf)) for each in best]
            leaves = [each.leaf.version.leaves[n] for each, own in chosen for n in own.leaves]
            sections = tuple(
                each.leaf.version.text.chosen_section(
                    self._level, own.leaves, own.text, float(each.score)
                )
                for each, own in chosen[:100]
            )
        return [leaf for leaf in leaves if contains(leaf.text, request.required)], sections

    def _best_summaries(self, request, versions) -> list[_Scored]:
        """The best summaries of sections."""
        summaries = [leaf for each in self._versions for leaf in each.summaries]
        ranking = self._ranking(replace(request, neighbour_bonus=0.0), summaries)
        eligible, most = (
            [leaf for each in versions for leaf in each.summaries],
            request.top_sections,
        )
        if request.summary_scope is SummaryScope.DOCUMENTS:
            of_documents = [leaf for leaf in eligible if leaf.number == 0]
            chosen = [each.leaf.version for each in ranking.best(of_documents, most)[0][:most]]
            eligible = [leaf for leaf in eligible if leaf.version in chosen]
        return ranking.best([leaf for leaf in eligible if leaf.number > 0], most)[0][:most]

    def _groups(self, request, found: list[_Scored], before: list[_Group]) -> list[_Group]:
        """Leaves by the chunk that represents them, best first; none that `before` has."""
        families, groups = defaultdict(list), []
        is_merged = request.mode is SearchMode.AUTO_MERGE
        for each in found:
            families[each.leaf.version].append(each)
        for version, own in families.items():
            tree, numbers = version.text.tree, [each.leaf.number for each in own]
            if not is_merged:
                above = tree.ancestors(self._level)[request.level - self._level].tolist()
                positions = {leaf: (request.level, above[leaf]) for leaf in numbers}
            elif before:
                positions = {leaf: (self._level, leaf) for leaf in numbers}
            else:
                levels = (self._level, request.level)
                positions = auto_merge.representatives(tree, numbers, *levels, request.merge_ratio)
            taken = [group for group in before if group.version is version]
            for position in set(positions.values()):
                family = [each for each in own if positions[each.leaf.number] == position]
                if is_merged and any(group.has(family[0].leaf, self._level) for group in taken):
                    continue
                if not any(group.position == position for group in taken):
                    score = F32(aggregated([each.score for each in family], request.aggregation))
                    groups.append(_Group(version, position, score, family))
        return sorted(groups, key=lambda group: group.rank)

    def _read(self, request, groups: list[_Group], locator: TermLocator):
        """Returns passages, or in SENTENCE_WINDOW contexts."""
        best = groups[: request.limit]
        if request.mode is SearchMode.SENTENCE_WINDOW:
            chunks = ((each.version.text, each.position, float(each.score)) for each in best)
            margin = request.window_sentences
            contexts = (sentence_context.sentence_context(*chunk, margin) for chunk in chunks)
            return tuple(contexts), Selection.of_groups(len(groups), request.limit)
        matches = SimpleNamespace(
            level=self._level,
            score=lambda number: float(groups[number].score),
            leaves=lambda ns: [
                each.match
                for each in sorted(chain(*(groups[n].leaves for n in ns)), key=lambda e: -e.score)
            ],
        )
        drafts, selection = self._drafts(request, groups, matches)
        return tuple(self._passages(request, drafts, matches, locator)), selection

    def _drafts(self, request, groups: list[_Group], matches):
        drafts = [
            PassageDraft.of(group.version.text, group.position, number)
            for number, group in enumerate(groups)
        ]
        limit, most = request.limit, request.max_per_document
        if request.mode is SearchMode.CONTEXT:
            limits = {"limit": limit, "max_per_document": most}
            selected = fill_budget(drafts, request.token_budget, matches, **limits)
        elif request.token_budget or request.merge_adjacent:
            options = (request.token_budget, request.merge_adjacent, request.cut_last, most)
            selected = select_drafts(drafts, PassageLimits(limit, *options), matches)
        else:
            return drafts[:limit], Selection.of_groups(len(groups), limit)
        return selected.drafts, Selection.of_drafts(selected, len(groups), request)

    def _passages(self, request, drafts, matches, locator: TermLocator) -> Iterator[types.Passage]:
        spans = request.retrieval is not Retrieval.DENSE
        for draft in drafts:
            own = (draft.document, self._level, matches.leaves(draft.groups), draft.record)
            yield passage_of(draft, matches, locator.cited_place(*own, spans=spans))

    def chunk(self, chunk_id):
        return self.hierarchy(chunk_id, 0, content=False).node

    def hierarchy(self, chunk_id, depth, *, content):
        text = self._contents.version(chunk_id.document_id, "chunk_id").text
        position = (chunk_id.level, chunk_id.index)
        if not text.has_chunk(position):
            problem = f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}"
            raise errors.ChunkNotFound(problem, field="chunk_id")
        return text.hierarchy(position, depth, content=content)


def _most_of_each(groups: Sequence[_Group], most: int) -> Iterator[_Group]:
    """The groups without those after the best `most` of their document; 0 is no limit."""
    counts: Counter[_Version] = Counter()
    for group in groups:
        counts[group.version] += 1
        if not most or counts[group.version] <= most:
            yield group


def _summary_of(leaf: _Leaf) -> Any:
    return leaf.version.stored.summaries.summaries[leaf.number]


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
