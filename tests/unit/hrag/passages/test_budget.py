"""Passages are chosen within limits and token budgets, and are joined or cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pytest

from hrag.errors import ReplyTooLarge
from hrag.passages.budget import NO_LIMIT, PassageLimits, choose_drafts_within_limits, fill_budget
from hrag.passages.cited_place import CitedPlace
from hrag.passages.drafts import PassageDraft, passage_of
from hrag.passages.outline import Outline
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.types import MatchedChild, MatchedSentence, Span, TermSpan, TreeSettings
from hrag.values.reply_limit import ReplyLimit
from hrag.values.tree import ParsedText
from indexer_svc.chunker import build_tree
from tests.support.documents.fakes import prepared, sentences


@dataclass(frozen=True)
class Matches:
    """Fake matches: each group of matched leaves has one leaf, and group g scores 1 - g / 10."""

    leaf_of: Sequence[int]
    level: int = 0

    def score(self, group: int) -> float:
        return 1 - group / 10

    def rerank_score(self, group: int) -> float | None:
        return None

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        return [LeafMatch(self.leaf_of[group], self.score(group)) for group in sorted(groups)]


def document(name: str = "d", text: str = "") -> TreeText:
    """Returns a document of about twelve leaves, whose neighbours overlap a little.

    Each leaf has at most 32 tokens, which are about four sentences.
    """
    source = prepared(name, text or sentences(40))
    outline = Outline.of(name, source.title, source.source, source.metadata, (), ())
    return TreeText(outline, source.tree, source.parsed.text.encode())


DOCUMENT = document()
CITED_PLACE = CitedPlace((0, 9, 0, 9), [(0, 8)])


def select(
    leaves: Sequence[int], limit: int = NO_LIMIT, document: TreeText = DOCUMENT, **options: object
) -> list[PassageDraft]:
    drafts = (PassageDraft.of(document, (0, leaf), group) for group, leaf in enumerate(leaves))
    return choose_drafts_within_limits(
        drafts, PassageLimits(limit, **options), Matches(leaves)
    ).drafts


def indexes(drafts: Sequence[PassageDraft]) -> list[list[int]]:
    return [[index for _, index in draft.positions] for draft in drafts]


def test_no_more_drafts_are_read_than_the_limit():
    read = []

    def drafts():
        for group in range(5):
            read.append(group)
            yield PassageDraft.of(DOCUMENT, (0, 2 * group), group)

    chosen = choose_drafts_within_limits(drafts(), PassageLimits(2), Matches(range(0, 10, 2)))
    assert indexes(chosen.drafts) == [[0], [2]]
    assert (read, chosen.considered, chosen.left_out) == ([0, 1], 2, False)


@pytest.mark.parametrize("merge_adjacent", [False, True])
def test_no_more_drafts_are_read_than_fit_into_the_reply(merge_adjacent):
    read = []
    leaves = range(0, DOCUMENT.tree.counts[0], 2)

    def drafts():
        for group, leaf in enumerate(leaves):
            read.append(group)
            yield PassageDraft.of(DOCUMENT, (0, leaf), group)

    sizes = [draft.content_bytes for draft in drafts()][:3]
    read.clear()
    limits = PassageLimits(NO_LIMIT, merge_adjacent=merge_adjacent)
    reply = ReplyLimit(sum(sizes) + DOCUMENT.outline.encoded_bytes - 1)
    with pytest.raises(ReplyTooLarge, match=f"at least {reply.max_bytes + 1:,} bytes"):
        choose_drafts_within_limits(drafts(), limits, Matches(leaves), reply)
    assert read == [0, 1, 2]
    enough = ReplyLimit(len(DOCUMENT.text) + DOCUMENT.outline.encoded_bytes)
    chosen = choose_drafts_within_limits(drafts(), limits, Matches(leaves), enough)
    assert chosen.considered == len(leaves)


def test_a_draft_that_does_not_fit_the_budget_is_skipped():
    sizes = [DOCUMENT.tree.record(0, leaf).token_count for leaf in (0, 2, 4)]
    last = DOCUMENT.tree.counts[0] - 1
    small = DOCUMENT.tree.record(0, last).token_count
    assert small < min(sizes)
    chosen = select([0, 2, 4, last], token_budget=sizes[0] + sizes[1] + small)
    assert indexes(chosen) == [[0], [2], [last]]


def test_the_first_draft_that_does_not_fit_is_cut_and_no_draft_follows():
    size = DOCUMENT.tree.record(0, 0).token_count
    first, cut = select([0, 2, 4], token_budget=size + 20, cut_last=True)
    assert first.record == DOCUMENT.tree.record(0, 0)
    assert cut.position == (0, 2)
    assert 0 < cut.record.token_count <= 20
    assert DOCUMENT.content(cut.record) in DOCUMENT.content(DOCUMENT.tree.record(0, 2))
    assert indexes(select([0, 2, 4], token_budget=size + 1, cut_last=True)) == [[0]]


@pytest.mark.parametrize("leaves", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_neighbours_become_one_passage_at_the_rank_of_the_best(leaves):
    (whole,) = select(leaves, merge_adjacent=True)
    assert whole.position == (0, leaves[0])
    assert whole.groups[0] == 0
    assert sorted(whole.groups) == [0, 1, 2]
    assert whole.merged_positions() == [(0, 0), (0, 1), (0, 2)]
    first, last = DOCUMENT.tree.record(0, 0), DOCUMENT.tree.record(0, 2)
    assert (whole.record.byte_start, whole.record.byte_end) == (first.byte_start, last.byte_end)
    assert whole.record.token_count == last.token_start + last.token_count


def test_drafts_that_touch_a_passage_are_joined_even_at_the_limit():
    chosen = select([0, 4, 8, 1, 6], limit=2, merge_adjacent=True)
    assert indexes(chosen) == [[0], [4]]
    chosen = select([0, 4, 1, 5, 8, 3], limit=2, merge_adjacent=True)
    assert [sorted(positions) for positions in indexes(chosen)] == [[0, 1], [4, 5]]


def test_a_passage_omits_text_that_a_better_passage_contains():
    first, middle, last = (DOCUMENT.tree.record(0, leaf) for leaf in (0, 1, 2))
    assert first.token_end > middle.token_start
    records = [draft.record for draft in select([1, 0, 2])]
    assert records[0] == middle
    assert (records[1].char_start, records[1].char_end) == (0, middle.char_start)
    assert records[1].token_count == middle.token_start
    assert (records[2].byte_start, records[2].byte_end) == (middle.byte_end, last.byte_end)
    assert records[2].token_start == middle.token_end
    whole = [draft.record for draft in select([1, 0, 2], keep_overlap=True)]
    assert whole == [middle, first, last]


def test_no_text_is_repeated_if_a_chunk_overlaps_the_second_chunk_after_it():
    """Chunks overlap by half, and their cuts are moved to the ends of sentences."""
    text = "A hare. The river runs by.\n\nAnd winter came, white and still. The small. " * 4
    tree = build_tree(ParsedText(text), TreeSettings((32,), 0.5, 0))
    overlapping = TreeText(DOCUMENT.outline, tree, text.encode())
    records = [tree.record(0, leaf) for leaf in range(4)]
    assert records[2].token_start < records[0].token_end
    for order in permutations(range(4)):
        spans = [draft.record for draft in select(order, document=overlapping)]
        covered = [n for span in spans for n in range(span.token_start, span.token_end)]
        assert sorted(covered) == list(range(records[3].token_end))


def test_omitted_text_uses_no_tokens_of_the_budget():
    end = DOCUMENT.tree.record(0, 1).token_end
    assert indexes(select([0, 1], token_budget=end)) == [[0], [1]]
    assert indexes(select([0, 1], token_budget=end - 1)) == [[0]]
    assert indexes(select([0, 1], token_budget=end, keep_overlap=True)) == [[0]]


def test_a_draft_whose_matched_leaves_are_all_in_better_passages_is_skipped():
    """Leaf 1 is the only matched leaf of the first draft and of the second draft.

    The first passage contains the text of leaf 1, so the second draft has no matched leaf left.
    """
    limits, matches = PassageLimits(2), Matches([1, 1, 6])
    drafts = [
        PassageDraft.of(DOCUMENT, (0, 1), 0),
        PassageDraft.of(DOCUMENT, (1, 0), 1),
        PassageDraft.of(DOCUMENT, (0, 6), 2),
    ]
    whole = drafts[1].record
    drafts[1] = replace(drafts[1], record=whole._replace(token_start=30, char_start=150))
    chosen = choose_drafts_within_limits(drafts, limits, matches)
    assert (indexes(chosen.drafts), chosen.considered) == ([[1], [6]], 3)


def test_passages_of_different_documents_are_not_joined():
    other = document("e")
    drafts = [PassageDraft.of(DOCUMENT, (0, 0), 0), PassageDraft.of(other, (0, 1), 1)]
    limits = PassageLimits(NO_LIMIT, merge_adjacent=True)
    assert len(choose_drafts_within_limits(drafts, limits, Matches([0, 1])).drafts) == 2


def test_joining_a_draft_uses_only_the_tokens_that_it_adds():
    sizes = [DOCUMENT.tree.record(0, leaf) for leaf in (0, 1)]
    whole = sizes[1].token_start + sizes[1].token_count
    (joined,) = select([0, 1], token_budget=whole, merge_adjacent=True)
    assert joined.record.token_count == whole
    assert indexes(select([0, 1], token_budget=whole - 1, merge_adjacent=True)) == [[0]]


def test_a_document_has_at_most_max_per_document_passages():
    other = document("e")
    ranked = [(DOCUMENT, 0), (DOCUMENT, 6), (DOCUMENT, 1), (other, 0), (DOCUMENT, 4)]
    drafts = [
        PassageDraft.of(source, (0, leaf), group) for group, (source, leaf) in enumerate(ranked)
    ]
    matches = Matches([leaf for _, leaf in ranked])
    alone = choose_drafts_within_limits(drafts, PassageLimits(2, max_per_document=1), matches)
    passages = [(draft.document_id, draft.position) for draft in alone.drafts]
    assert (passages, alone.left_out) == ([("d", (0, 0)), ("e", (0, 0))], False)
    for joined in (
        choose_drafts_within_limits(
            drafts, PassageLimits(NO_LIMIT, merge_adjacent=True, max_per_document=1), matches
        ),
        fill_budget(drafts, 1000, matches, max_per_document=1),
    ):
        passages = [(draft.document_id, draft.groups) for draft in joined.drafts]
        assert passages == [("d", (0, 2)), ("e", (3,))]
        assert (joined.considered, joined.left_out) == (5, False)


def fill(leaves: Sequence[int], token_budget: int, text: TreeText = DOCUMENT) -> list[PassageDraft]:
    drafts = (PassageDraft.of(text, (0, leaf), group) for group, leaf in enumerate(leaves))
    return fill_budget(drafts, token_budget, Matches(leaves)).drafts


def test_leaves_fill_a_budget_in_order_and_neighbours_become_one_passage():
    drafts = fill([4, 0, 8, 5, 1, 9], 1000)
    assert indexes(drafts) == [[4, 5], [0, 1], [8, 9]]
    assert [draft.groups for draft in drafts] == [(0, 3), (1, 4), (2, 5)]
    assert indexes(fill([0, 4, 2, 3, 1], 1000)) == [[0, 4, 2, 3, 1]]
    assert fill([], 1000) == []


def contents(drafts: Sequence[PassageDraft]) -> list[str]:
    return [draft.document.content(draft.record) for draft in drafts]


LEAVES = [DOCUMENT.content(DOCUMENT.tree.record(0, leaf)) for leaf in range(8)]
SIZES = [DOCUMENT.tree.record(0, leaf).token_count for leaf in range(8)]


@pytest.mark.parametrize(
    ("leaves", "left_tokens", "expected"),
    [
        pytest.param(
            [0, 4],
            19,
            [LEAVES[0], " tells a short story. Sentence 0 11 tells a short story."],
            id="a separate passage",
        ),
        pytest.param(
            [4, 5], 19, [LEAVES[4] + " Sentence 0 13 tells a short story."], id="after a passage"
        ),
        pytest.param(
            [5, 4],
            19,
            [" Sentence 0 11 tells a short story. Sentence 0 12 tells a" + LEAVES[5]],
            id="before a passage",
        ),
        pytest.param(
            [4, 6, 5],
            19,
            [LEAVES[4] + " Sentence 0 13 tells a short story.", LEAVES[6]],
            id="between two passages",
        ),
        pytest.param([0, 4], 3, [LEAVES[0]], id="no sentence fits"),
    ],
)
@pytest.mark.parametrize("later_leaves", [[], [2, 0]])
def test_the_last_leaf_is_cut_at_a_sentence_and_keeps_text_next_to_a_passage(
    leaves, left_tokens, expected, later_leaves
):
    whole = sum(SIZES[leaf] for leaf in leaves[:-1])
    drafts = fill([*leaves, *later_leaves], whole + left_tokens)
    assert contents(drafts) == expected
    assert sum(draft.record.token_count for draft in drafts) <= whole + left_tokens


@pytest.mark.parametrize(
    ("text", "token_budget", "expected"),
    [
        ("", 25, ["Sentence 0 0 tells a short story. Sentence 0 1 tells a short story."]),
        ("", 6, ["Sentence 0 0 tells"]),
        ("", 1, ["Sentence"]),
        ("Pneumonoultramicroscopic", 2, ["Pne"]),
        ("两个小块。", 2, ["两个"]),
        ("🙂🙂", 1, []),
    ],
)
def test_a_first_leaf_that_does_not_fit_is_cut_to_sentences_words_or_characters(
    text, token_budget, expected
):
    assert contents(fill([0], token_budget, document("d", text))) == expected


def test_a_passage_has_the_spans_of_its_matched_leaves():
    matches = Matches([0, 1, 2])
    (whole,) = select([0, 1, 2], merge_adjacent=True)
    passage = passage_of(whole, matches, CITED_PLACE)
    assert passage.chunk.content == DOCUMENT.content(whole.record)
    assert (passage.score, passage.merged_chunk_ids) == (1.0, ("d#0.0", "d#0.1", "d#0.2"))
    assert [child.chunk_id for child in passage.matched_children] == ["d#0.0", "d#0.1", "d#0.2"]
    (alone,) = select([1])
    record = alone.record
    expected = MatchedChild(
        "d#0.1", 1.0, Span(record.byte_start, record.byte_end, record.char_start, record.char_end)
    )
    assert passage_of(alone, Matches([1]), CITED_PLACE).matched_children == (expected,)
    assert passage_of(alone, Matches([1]), CITED_PLACE).merged_chunk_ids == ()


def test_a_passage_has_the_sentence_and_the_terms_to_cite():
    (alone,) = select([1])
    passage = passage_of(alone, Matches([1]), CITED_PLACE)
    assert passage.matched_sentence == MatchedSentence(Span(0, 9, 0, 9), (), 0, 0)
    assert passage.term_spans == (TermSpan(0, 8),)
    assert passage.chunk.section_path == ()
