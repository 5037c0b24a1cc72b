"""A token budget is filled correctly, for any documents, tree settings and rankings."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hrag.passages.budget import PassageLimits, choose_drafts_within_limits, fill_budget
from hrag.passages.drafts import PassageDraft
from hrag.passages.outline import Outline
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.text import tokens
from hrag.types import TreeSettings
from indexer_svc.chunker import build_tree
from tests.property.strategies import documents, tree_settings

fifty_examples = hypothesis_settings(max_examples=50)

Interval = tuple[str, int, int]
"""A range of tokens of a document: the document id, the first token, and the end."""


@dataclass(frozen=True)
class Ranking:
    """A ranking of leaves, best first. `ranked` has the document id and the index of each leaf."""

    texts: dict[str, TreeText]
    level: int
    ranked: Sequence[tuple[str, int]]

    def leaves(self, groups: Sequence[int]) -> list[LeafMatch]:
        return [LeafMatch(self.ranked[group][1], self.score(group)) for group in groups]

    def score(self, group: int) -> float:
        return -float(group)

    def rerank_score(self, group: int) -> float | None:
        return None

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
two_limits = st.tuples(st.integers(1, 8), st.integers(1, 8)).map(sorted)


def model(
    ranking: Ranking, budget: int, max_per_document: int
) -> tuple[list[Interval], Interval | None]:
    """Returns the passages that must result from joining leaves, and the first leaf without space.

    The passages are in order of their best leaves, and have at most `budget` tokens. The second
    value is None if all leaves fit.
    """
    passages: list[Interval] = []
    for new in map(interval, ranking.drafts()):
        name, start, end = new
        touching = [e for e in passages if e[0] == name and e[1] <= end and start <= e[2]]
        count = sum(passage[0] == name for passage in passages)
        if not touching and 0 < max_per_document <= count:
            continue
        pieces = [new, *touching]
        whole = (name, min(piece[1] for piece in pieces), max(piece[2] for piece in pieces))
        position = passages.index(touching[0]) if touching else len(passages)
        joined = [passage for passage in passages if passage not in touching]
        joined.insert(position, whole)
        if sum(end - start for _, start, end in joined) > budget:
            return passages, new
        passages = joined
    return passages, None


def inside(part: Interval, whole: Interval) -> bool:
    """Returns True if the range `part` lies inside the range `whole`."""
    return part[0] == whole[0] and whole[1] <= part[1] and part[2] <= whole[2]


@fifty_examples
@given(rankings(), budgets, per_document)
def test_leaves_fill_the_budget_in_order_and_the_last_leaf_is_cut(
    ranking, budget, max_per_document
):
    selection = fill_budget(ranking.drafts(), budget, ranking, max_per_document=max_per_document)
    drafts = selection.drafts
    _assert_measured(drafts, ranking)
    passages = [interval(draft) for draft in drafts]
    whole, cut = model(ranking, budget, max_per_document)
    assert selection.left_out == (cut is not None)
    assert sum(end - start for _, start, end in passages) <= budget
    assert [draft.groups[0] for draft in drafts] == sorted(draft.groups[0] for draft in drafts)
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


def _assert_measured(drafts: list[PassageDraft], ranking: Ranking) -> None:
    """Fails unless each span is the same in characters, bytes and tokens, and no two touch."""
    for name, document in ranking.texts.items():
        text = str(document.text, "utf-8")
        ends = tokens.byte_ends(tokens.encode(text)).astype(np.int64)
        records = sorted(draft.record for draft in drafts if draft.document_id == name)
        for record in records:
            assert document.content(record) == text[record.char_start : record.char_end]
            first = np.searchsorted(ends, record.byte_start, side="right")
            end = np.searchsorted(ends, record.byte_end, side="left") + 1
            assert (record.token_start, record.token_end) == (first, end)
        for record, following in pairwise(records):
            assert record.byte_end < following.byte_start


def _assert_more(less: list[PassageDraft], more: list[PassageDraft]) -> None:
    """Fails unless `more` has all leaves and all text of `less`.

    The leaves of `less` must also be the best leaves of `more`.
    """
    groups, more_groups = (
        sorted(chain(*(draft.groups for draft in drafts))) for drafts in (less, more)
    )
    assert more_groups[: len(groups)] == groups
    for part in less:
        assert any(inside(interval(part), interval(whole)) for whole in more)
        assert any(
            part.document_id == whole.document_id
            and whole.record.char_start <= part.record.char_start
            and part.record.char_end <= whole.record.char_end
            for whole in more
        )


@fifty_examples
@given(rankings(), st.tuples(budgets, budgets).map(sorted), per_document)
def test_a_larger_budget_returns_the_same_text_and_more(ranking, budgets, max_per_document):
    less, more = (
        fill_budget(ranking.drafts(), budget, ranking, max_per_document=max_per_document).drafts
        for budget in budgets
    )
    _assert_more(less, more)


@fifty_examples
@given(rankings(), two_limits, per_document)
def test_a_larger_limit_returns_the_same_text_and_more(ranking, limits, max_per_document):
    less, more = (
        choose_drafts_within_limits(
            ranking.drafts(),
            PassageLimits(limit, merge_adjacent=True, max_per_document=max_per_document),
            ranking,
        ).drafts
        for limit in limits
    )
    _assert_more(less, more)
    assert len(less) <= limits[0]


@dataclass(frozen=True)
class Parents:
    """The leaves of a ranking, grouped by their parents. A leaf without a parent is a group."""

    ranking: Ranking

    @property
    def level(self) -> int:
        return self.ranking.level

    def leaves(self, groups: Sequence[int]) -> list[LeafMatch]:
        members = list(self._groups().values())
        return self.ranking.leaves(sorted(chain(*(members[group] for group in groups))))

    def drafts(self) -> list[PassageDraft]:
        return [
            PassageDraft.of(self.ranking.texts[name], position, group)
            for group, (name, position) in enumerate(self._groups())
        ]

    def _groups(self) -> dict[tuple[str, tuple[int, int]], list[int]]:
        groups: dict[tuple[str, tuple[int, int]], list[int]] = {}
        for rank, (name, leaf) in enumerate(self.ranking.ranked):
            above = self.ranking.texts[name].tree.ancestors(self.level)[:2]
            position = (self.level + len(above) - 1, int(above[-1][leaf]))
            groups.setdefault((name, position), []).append(rank)
        return groups


@fifty_examples
@given(rankings().map(Parents), st.integers(1, 8), st.just(0) | budgets, st.booleans())
def test_passages_that_are_not_joined_repeat_and_lose_no_text(climbed, limit, budget, cut_last):
    limits = PassageLimits(limit, budget, cut_last=cut_last and budget > 0)
    drafts = choose_drafts_within_limits(climbed.drafts(), limits, climbed).drafts
    assert len(drafts) <= limit
    returned: dict[str, set[int]] = {name: set() for name in climbed.ranking.texts}
    for draft in drafts:
        name, start, end = interval(draft)
        tree, part = draft.document.tree, draft.record
        matches = climbed.leaves(draft.groups)
        leaves = [tree.record(climbed.level, match.leaf) for match in matches]
        assert any(leaf.within(part) for leaf in leaves)
        assert returned[name].isdisjoint(range(start, end))
        returned[name].update(range(start, end))
        whole = tree.record(*draft.position)
        tokens_of_whole = set(range(whole.token_start, whole.token_end))
        assert set(range(start, end)) <= tokens_of_whole
        if not limits.cut_last:
            assert tokens_of_whole <= returned[name]
        content = draft.document.content(whole)[part.char_start - whole.char_start :]
        assert content.startswith(draft.document.content(part))


@fifty_examples
@given(rankings().map(Parents), two_limits)
def test_a_larger_limit_returns_the_same_passages_first(climbed, limits):
    less, more = (
        choose_drafts_within_limits(climbed.drafts(), PassageLimits(limit), climbed).drafts
        for limit in limits
    )
    assert [draft.record for draft in more[: len(less)]] == [draft.record for draft in less]
