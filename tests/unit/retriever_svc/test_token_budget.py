"""Budgets filled with finished passages: the same as where the engine fills them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from hrag.passages.drafts import PassageDraft, PassageLimits, passage_of, select_drafts
from hrag.passages.outline import Outline
from hrag.passages.tree_text import TreeText
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import Passage
from retriever_svc.token_budget import within_budget
from tests.fakes import prepared, sentences

_TEXT = sentences(30) + "猫睡觉。它们喜欢鱼。" * 20 + sentences(30, 1)
_PAGES = tuple(
    PageSpan(number, start, min(start + 300, len(_TEXT)))
    for number, start in enumerate(range(0, len(_TEXT), 300), 1)
)
_SECTIONS = (Section("Alpha", 1, 0), Section("Beta", 1, 900))


def _document() -> TreeText:
    given = prepared("d", ParsedText(_TEXT, _SECTIONS, _PAGES))
    outline = Outline.of("d", given.title, given.source, {}, _SECTIONS, _PAGES)
    return TreeText(outline, given.tree, given.parsed.text.encode())


DOCUMENT = _document()
LEVEL = 2  # Passages of 128 tokens over leaves of 32.
PASSAGE_OF = DOCUMENT.tree.ancestors(0)[LEVEL].tolist()


@dataclass(frozen=True)
class Matches:
    """Every other leaf of each passage matched, the last of them best."""

    level: int = 0

    def score(self, group: int) -> float:
        return 1 - group / 10

    def leaves(self, groups: Sequence[int]) -> Sequence[tuple[int, float]]:
        inside = [leaf for leaf, passage in enumerate(PASSAGE_OF) if passage in groups]
        return [(leaf, leaf / 100) for leaf in reversed(inside[::2])]


def _passages(limits: PassageLimits) -> tuple[Passage, ...]:
    """What an engine returns."""
    count = DOCUMENT.tree.counts[LEVEL]
    drafts = (PassageDraft.of(DOCUMENT, (LEVEL, index), index) for index in range(count))
    chosen = select_drafts(drafts, limits, Matches())
    return tuple(passage_of(draft, Matches()) for draft in chosen)


@pytest.mark.parametrize("cut_last", [False, True])
def test_a_budget_takes_the_passages_that_an_engine_takes(cut_last: bool) -> None:
    whole = _passages(PassageLimits(100))
    assert len(whole) > 3
    for budget in range(0, sum(each.chunk.token_count for each in whole) + 20, 7):
        limits = PassageLimits(100, budget, cut_last=cut_last)
        assert within_budget(whole, budget, cut_last=cut_last) == _passages(limits)


def test_pages_and_matched_leaves_are_cut_with_the_text() -> None:
    whole = _passages(PassageLimits(1))
    (part,) = within_budget(whole, 60, cut_last=True)
    assert part.chunk.token_count <= 60
    assert part.chunk.content == _TEXT[part.chunk.span.char_start : part.chunk.span.char_end]
    assert part.chunk.last_page <= whole[0].chunk.last_page
    assert 0 < len(part.matched_children) <= len(whole[0].matched_children)
