"""The choice of sections is the same as that of a plain definition, for random evidence."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from hrag.engine.common.labels import label
from hrag.engine.common.records import Summarised
from hrag.engine.common.section_choice import Ranked, SectionChoice, choose_sections
from hrag.engine.find import FindRequest, Fusion
from hrag.types import FusionMethod, Retrieval, SearchMode, SummaryScope

REQUEST = FindRequest(
    None, SearchMode.SUMMARY_FIRST, 0, 10, 30, text="x", retrieval=Retrieval.HYBRID
)
# The ordinal of a document's summary document is this number minus the document's ordinal.
_MIRROR = 1000


@dataclass
class Evidence:
    """Implements `SectionEvidence`: random scores, of which some are equal.

    The first dictionaries have the scores of leaves, of summaries of sections, and of summaries of
    documents, by label. `sections` has the sections of each document, by ordinal.
    """

    leaf_scores: dict[int, float]
    summary_scores: dict[int, float]
    document_scores: dict[int, float]
    sections: dict[int, list[range]]

    def leaves(self, ordinals=None):
        near = {
            key: score
            for key, score in self.leaf_scores.items()
            if ordinals is None or key >> 20 in ordinals.tolist()
        }
        return _ranked(dict(_best(near)[: REQUEST.candidates]))

    def summaries(self, count):
        return _ranked(dict(_best(self.summary_scores)[:count]))

    def document_summaries(self, summaries):
        assert np.all(np.diff(summaries.astype(np.int64)) > 0)
        ranked = _ranked({label(n, 0): self.document_scores[n] for n in summaries.tolist()})
        return replace_lexical(ranked)

    def summarised(self, ordinals, summaries):
        numbers = {_MIRROR - ordinal for ordinal in ordinals.tolist()} | {*summaries.tolist()}
        return {
            number: Summarised.of(_MIRROR - number, self.sections[_MIRROR - number])
            for number in sorted(numbers)
            if _MIRROR - number in self.sections
        }


def replace_lexical(ranked):
    return ranked._replace(lexical=ranked.scores * np.float32(2))


def _ranked(scores):
    labels = np.array(list(scores), np.uint64)
    return Ranked(labels, np.array(list(scores.values()), np.float32), None)


def _best(scores):
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def random_evidence(seed, low=0.0, documents=14):
    random = np.random.default_rng(seed)

    def draw():
        return float(np.float32(random.integers(low * 64, 64) / 64))

    leaf_scores, summary_scores, document_scores, sections = {}, {}, {}, {}
    for ordinal in random.permutation(np.arange(1, documents + 1)).tolist():
        count = int(random.integers(1, 12))
        leaf_scores |= {label(ordinal, leaf): draw() for leaf in range(count)}
        if ordinal % 5 == 0:
            continue
        bounds = np.unique(random.integers(0, count + 1, 6)).tolist()
        pairs = pairwise(bounds)
        sections[ordinal] = [range(*pair) for number, pair in enumerate(pairs) if number % 3 != 2]
        number = _MIRROR - ordinal
        document_scores[number] = draw()
        for index in range(1, len(sections[ordinal]) + 1):
            summary_scores[label(number, index)] = draw()
    return Evidence(leaf_scores, summary_scores, document_scores, sections)


def plain_choice(request, evidence, leaf_count):
    """Returns the chosen sections, with their scores, and the scores of documents."""
    first = dict(_best(evidence.leaf_scores)[: request.candidates])
    near = list(dict.fromkeys(key >> 20 for key, _ in _best_documents(first)))[:10]
    inside = {key: score for key, score in evidence.leaf_scores.items() if key >> 20 in near}
    leaves = first | dict(_best(inside)[: request.candidates])
    ranked = dict(_best(evidence.summary_scores)[: max(request.candidates, request.top_sections)])
    wanted = {key >> 20 for key in leaves} | {_MIRROR - (key >> 20) for key in ranked}
    by_rank = request.fusion.method is FusionMethod.RECIPROCAL_RANK
    documents, sections = {}, []
    for ordinal in sorted(wanted & evidence.sections.keys()):
        parts = evidence.sections[ordinal]
        best = sorted((s for key, s in leaves.items() if key >> 20 == ordinal), reverse=True)[:3]
        mean = sum(best) / min(3, parts[-1].stop if parts else 3)
        summary = evidence.document_scores[_MIRROR - ordinal] * (1 if by_rank else 2)
        documents[ordinal] = mean + 0.25 * summary
        for number, part in enumerate(parts, 1):
            scores = [leaves[key] for leaf in part if (key := label(ordinal, leaf)) in leaves]
            key = label(_MIRROR - ordinal, number)
            score = max(scores, default=0.0) + 0.25 * documents[ordinal] + 0.1 * ranked.get(key, 0)
            sections.append((score, key, ordinal, part))
    if request.summary_scope is SummaryScope.DOCUMENTS:
        chosen = [ordinal for ordinal, _ in _best(documents)]
        scores = [documents[ordinal] for ordinal in chosen]
        chosen = chosen[: request.top_sections or _near_the_best(scores)]
        sections = [section for section in sections if section[2] in chosen]
    sections.sort(key=lambda section: (-section[0], section[1]))
    count = request.top_sections
    if not count:
        count = _near_the_best([section[0] for section in sections])
        while count > 1 and sum(len(x[3]) for x in sections[:count]) > 0.3 * leaf_count:
            count -= 1
    return sections[:count], documents


def _best_documents(leaves):
    return sorted(leaves.items(), key=lambda item: (-item[1], item[0] >> 20))


def _near_the_best(scores):
    return max(1, sum(score >= 0.75 * scores[0] for score in scores))


def chosen(choice: SectionChoice):
    return [(x.score, x.summary, x.ordinal, x.leaves) for x in choice.sections]


@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("scope", list(SummaryScope))
@pytest.mark.parametrize("top", [0, 1, 4, 1000])
@pytest.mark.parametrize("method", list(FusionMethod))
def test_the_choice_is_that_of_the_plain_definition(low, scope, top, method):
    request = replace(REQUEST, top_sections=top, summary_scope=scope, fusion=Fusion(method))
    for seed in range(8):
        evidence = random_evidence(seed, low)
        leaf_count = len(evidence.leaf_scores)
        choice = choose_sections(request, evidence, leaf_count)
        sections, documents = plain_choice(request, evidence, leaf_count)
        assert chosen(choice) == sections
        assert choice.documents.tolist() == sorted(documents)
        assert choice.document_scores.tolist() == [documents[x] for x in sorted(documents)]


def test_nothing_is_chosen_where_nothing_is_summarised():
    for documents in (0, 6):
        evidence = replace(random_evidence(1, documents=documents), sections={}, summary_scores={})
        for scope in SummaryScope:
            request = replace(REQUEST, summary_scope=scope)
            choice = choose_sections(request, evidence, len(evidence.leaf_scores))
            assert (chosen(choice), len(choice.documents)) == ([], 0)


def test_the_best_section_is_chosen_even_if_it_has_too_many_leaves_or_a_negative_score():
    for score in (0.5, -0.5):
        leaves = {label(1, leaf): score for leaf in range(10)}
        numbers = {_MIRROR - 1: -1.0}
        evidence = Evidence(leaves, {label(_MIRROR - 1, 1): -1.0}, numbers, {1: [range(10)]})
        for scope in SummaryScope:
            request = replace(REQUEST, summary_scope=scope)
            choice = choose_sections(request, evidence, len(leaves))
            assert [section.leaves for section in choice.sections] == [range(10)]


@pytest.mark.parametrize(("top", "limit", "shown"), [(0, 2, 2), (5, 2, 5), (0, 100, 9), (9, 1, 9)])
def test_the_response_lists_as_many_sections_as_were_named_or_passages_wanted(top, limit, shown):
    leaves = {label(1, leaf): 0.5 for leaf in range(100)}
    sections = {1: [range(leaf, leaf + 1) for leaf in range(9)]}
    evidence = Evidence(leaves, {}, {_MIRROR - 1: 0.5}, sections)
    request = replace(REQUEST, top_sections=top, limit=limit)
    choice = choose_sections(request, evidence, len(leaves))
    assert len(choice.sections.shown(request)) == shown
    assert choice.sections.shown(request) == list(choice.sections)[:shown]
