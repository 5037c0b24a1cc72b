"""Searches the contents of a MemoryEngine: computes the scores of every eligible leaf.

Methods without docstrings implement the methods of `Snapshot` and `SectionEvidence` with the same
names.
"""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from hrag import errors, types
from hrag.engine import FindRequest, FindResult, PassageForm, RankedChunk, RankedChunks
from hrag.engine.common.labels import label
from hrag.engine.common.records import Summarised
from hrag.engine.common.rounds import FACTOR, Round, RoundOutcome, choose_drafts
from hrag.engine.common.section_choice import Ranked, choose_sections
from hrag.engine.common.validation import no_original
from hrag.engine.engine_documents import original_range
from hrag.passages.auto_merge import MERGED_LEAVES, representatives
from hrag.passages.cited_place import CitedPlace, TermLocator
from hrag.passages.drafts import PassageDraft, SentenceWindow, passage_of
from hrag.passages.tree_text import LeafMatch, TreePosition
from hrag.text.analysis import MAX_FREQUENCY, analyzer, folding_of
from hrag.text.analysis.query_syntax import RequiredParts
from hrag.text.bm25 import term_weights
from hrag.types import FusionMethod, Retrieval, SearchMode
from hrag.values.deadline import Deadline
from hrag.values.reply_limit import UNLIMITED
from tests.support.documents.fakes import aggregated
from tests.support.engines.filter_model import passes
from tests.support.engines.memory_contents import Contents, Leaf, Version, with_text

_K1, _B, _RRF_K = 1.2, 0.75, 60
# The share of its document's score that a leaf gets in a search by summaries.
_DOCUMENT_WEIGHT = 0.25
# Scores are float32, as in the other engines. So scores that are equal in one engine are equal in
# every engine.
F32 = np.float32


@dataclass(frozen=True)
class _Scored:
    """A leaf with its fused score, its lexical score and its cosine.

    The lexical score or the cosine is None if the request does not search by it.
    """

    leaf: Leaf
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

    def __init__(self, request: FindRequest, analyzer_name: str, leaves: Sequence[Leaf]) -> None:
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

    def best(self, eligible: Sequence[Leaf], count: int) -> tuple[list[_Scored], bool]:
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

        def scored(leaf: Leaf) -> _Scored:
            by_terms = float(lexical.get(leaf, 0.0)) if has_terms else None
            cosine = float(dense[leaf]) if has_vector else None
            return _Scored(leaf, scores[leaf], by_terms, cosine)

        scored_leaves = [scored(leaf) for leaf in _best_first(scores)]
        return scored_leaves, len(dense if has_vector else lexical) <= count

    def _bm25(self, leaf: Leaf) -> Any:
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

    def _with_bonus(self, scores: Mapping[Leaf, Any]) -> Mapping[Leaf, Any]:
        bonus, best = F32(self._request.neighbour_bonus), defaultdict(lambda: F32(-math.inf))
        for leaf, step in product(scores, (-1, 0, 1)):
            near = (leaf.version.number, leaf.index + step)
            best[near] = max(best[near], scores[leaf])
        return {leaf: score + bonus * best[leaf.order] for leaf, score in scores.items()}


def _best_first(scores: Mapping[Leaf, Any]) -> list[Leaf]:
    return sorted(scores, key=lambda leaf: (-scores[leaf], leaf.order))


@dataclass(frozen=True, eq=False)
class _Group:
    """A chunk and the leaves that it represents, best first."""

    version: Version
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

    def has(self, leaf: Leaf, request: FindRequest) -> bool:
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

    def __init__(self, contents: Contents, sequence: int, deadline: Deadline) -> None:
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
        return with_text(self._contents.version(document_id), part, reply)

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
