"""Filling a token budget, for documents, settings and rankings of every shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.passages.budget import PassageLimits, fill_budget, select_drafts
from hrag.passages.drafts import PassageDraft
from hrag.passages.outline import Outline
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.text import tokens
from hrag.types import TreeSettings
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings

some = hypothesis_settings(max_examples=50)

Interval = tuple[str, int, int]
"""A document, and the first token and the end of a part of it."""


@dataclass(frozen=True)
class Ranking:
    """Leaves of some documents, best first, each by its document and index."""

    texts: dict[str, TreeText]
    level: int
    ranked: Sequence[tuple[str, int]]

    def leaves(self, groups: Sequence[int]) -> list[LeafMatch]:
        return [LeafMatch(self.ranked[group][1], self.score(group)) for group in groups]

    def score(self, group: int) -> float:
        return -float(group)

    def drafts(self) -> list[PassageDraft]:
        return [
            PassageDraft.of(self.texts[name], (self.level, index), group)
            for group, (name, index) in enumerate(self.ranked)
        ]


def interval(draft: PassageDraft) -> Interval:
    return draft.document_id, draft.record.token_start, draft.record.token_end


@st.composite
def rankings(draw: st.DrawFn) -> Ranking:
    settings: TreeSettings = draw(tree_settings())
    texts = {}
    for name in draw(st.sampled_from(["d", "de"])):
        parsed = draw(documents)
        outline = Outline.of(name, "", "", {}, parsed.sections, parsed.pages)
        texts[name] = TreeText(outline, build_tree(parsed, settings), parsed.text.encode())
    level = settings.embedding_level
    leaves = [(name, n) for name, text in texts.items() for n in range(text.tree.counts[level])]
    ranked = draw(st.permutations(leaves))
    return Ranking(texts, level, ranked[: draw(st.integers(1, len(ranked)))])


per_document = st.integers(0, 3)
budgets = st.integers(1, 40) | st.integers(1, 3000)


def model(ranking: Ranking, budget: int, most: int) -> tuple[list[Interval], Interval | None]:
    """The passages of the leaves that fit whole, in order; and the first leaf that does not."""
    found: list[Interval] = []
    for new in map(interval, ranking.drafts()):
        name, start, end = new
        touching = [e for e in found if e[0] == name and e[1] <= end and start <= e[2]]
        if not touching and 0 < most <= sum(each[0] == name for each in found):
            continue
        joined = [new, *touching]
        whole = (name, min(each[1] for each in joined), max(each[2] for each in joined))
        place = found.index(touching[0]) if touching else len(found)
        after = [each for each in found if each not in touching]
        after.insert(place, whole)
        if sum(end - start for _, start, end in after) > budget:
            return found, new
        found = after
    return found, None


def inside(part: Interval, whole: Interval) -> bool:
    return part[0] == whole[0] and whole[1] <= part[1] and part[2] <= whole[2]


@some
@given(rankings(), budgets, per_document)
def test_leaves_fill_the_budget_in_order_and_the_last_is_cut(ranking, budget, most):
    selected = fill_budget(ranking.drafts(), budget, ranking, max_per_document=most)
    found = selected.drafts
    _assert_measured(found, ranking)
    passages = [interval(each) for each in found]
    whole, cut = model(ranking, budget, most)
    assert selected.left_out == (cut is not None)
    assert sum(end - start for _, start, end in passages) <= budget
    assert [each.groups[0] for each in found] == sorted(each.groups[0] for each in found)
    if cut is None:
        assert passages == whole
        return
    touches = any(e[0] == cut[0] and e[1] <= cut[2] and cut[1] <= e[2] for e in whole)
    assert 0 <= len(passages) - len(whole) <= (not touches)
    for old, new in zip(whole, passages, strict=False):
        assert inside(old, new)
    grown = [old for old, new in zip([*whole, cut], passages, strict=False) if old != new]
    assert len(grown) <= 1
    for old, new in zip([*whole, cut], passages, strict=False):
        assert new == old or inside(new, (new[0], min(old[1], cut[1]), max(old[2], cut[2])))


def _assert_measured(found: list[PassageDraft], ranking: Ranking) -> None:
    """Spans agree in characters, bytes and the document's tokens, and lie apart."""
    for name, document in ranking.texts.items():
        text = str(document.text, "utf-8")
        ends = tokens.byte_ends(tokens.encode(text)).astype(np.int64)
        own = sorted(each.record for each in found if each.document_id == name)
        for record in own:
            assert document.content(record) == text[record.char_start : record.char_end]
            first = np.searchsorted(ends, record.byte_start, side="right")
            behind = np.searchsorted(ends, record.byte_end, side="left") + 1
            assert (record.token_start, record.token_end) == (first, behind)
        for one, other in pairwise(own):
            assert one.byte_end < other.byte_start


def _assert_more(less: list[PassageDraft], more: list[PassageDraft]) -> None:
    """The same leaves come first, and around their text is only more text."""
    first, all_ = (sorted(chain(*(each.groups for each in some))) for some in (less, more))
    assert all_[: len(first)] == first
    for part in less:
        assert any(inside(interval(part), interval(whole)) for whole in more)
        assert any(
            part.document_id == whole.document_id
            and whole.record.char_start <= part.record.char_start
            and part.record.char_end <= whole.record.char_end
            for whole in more
        )


@some
@given(rankings(), budgets, budgets, per_document)
def test_a_larger_budget_gives_the_same_and_more(ranking, one, other, most):
    less, more = (
        fill_budget(ranking.drafts(), budget, ranking, max_per_document=most).drafts
        for budget in sorted((one, other))
    )
    _assert_more(less, more)


@some
@given(rankings(), st.integers(1, 8), st.integers(1, 8), per_document)
def test_a_larger_limit_gives_the_same_and_more(ranking, one, other, most):
    less, more = (
        select_drafts(
            ranking.drafts(),
            PassageLimits(limit, merge_adjacent=True, max_per_document=most),
            ranking,
        ).drafts
        for limit in sorted((one, other))
    )
    _assert_more(less, more)
    assert len(less) <= min(one, other)


@dataclass(frozen=True)
class Parents:
    """A ranking's leaves by their ancestors one level above, if there is one."""

    ranking: Ranking

    @property
    def level(self) -> int:
        return self.ranking.level

    def leaves(self, groups: Sequence[int]) -> list[LeafMatch]:
        found = list(self._groups().values())
        return self.ranking.leaves(sorted(chain(*(found[group] for group in groups))))

    def drafts(self) -> list[PassageDraft]:
        return [
            PassageDraft.of(self.ranking.texts[name], position, group)
            for group, (name, position) in enumerate(self._groups())
        ]

    def _groups(self) -> dict[tuple[str, tuple[int, int]], list[int]]:
        groups: dict[tuple[str, tuple[int, int]], list[int]] = {}
        for number, (name, leaf) in enumerate(self.ranking.ranked):
            above = self.ranking.texts[name].tree.ancestors(self.level)[:2]
            position = (self.level + len(above) - 1, int(above[-1][leaf]))
            groups.setdefault((name, position), []).append(number)
        return groups


@some
@given(rankings().map(Parents), st.integers(1, 8), st.just(0) | budgets, st.booleans())
def test_passages_side_by_side_have_no_text_twice_and_lose_none(climbed, limit, budget, cut_last):
    limits = PassageLimits(limit, budget, cut_last=cut_last and budget > 0)
    drafts = select_drafts(climbed.drafts(), limits, climbed).drafts
    assert len(drafts) <= limit
    seen: dict[str, set[int]] = {name: set() for name in climbed.ranking.texts}
    for draft in drafts:
        name, *own = interval(draft)
        tree, part = draft.document.tree, draft.record
        leaves = [tree.record(climbed.level, each.leaf) for each in climbed.leaves(draft.groups)]
        assert any(leaf.within(part) for leaf in leaves)
        assert seen[name].isdisjoint(range(*own))
        seen[name].update(range(*own))
        whole = tree.record(*draft.position)
        tokens_of_whole = set(range(whole.token_start, whole.token_end))
        assert set(range(*own)) <= tokens_of_whole
        if not limits.cut_last:
            assert tokens_of_whole <= seen[name]
        content = draft.document.content(whole)[part.char_start - whole.char_start :]
        assert content.startswith(draft.document.content(part))


@some
@given(rankings().map(Parents), st.integers(1, 8), st.integers(1, 8))
def test_a_larger_limit_gives_the_same_passages_first(climbed, one, other):
    less, more = (
        select_drafts(climbed.drafts(), PassageLimits(limit), climbed).drafts
        for limit in sorted((one, other))
    )
    assert [each.record for each in more[: len(less)]] == [each.record for each in less]
