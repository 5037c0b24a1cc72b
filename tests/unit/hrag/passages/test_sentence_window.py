"""A window is a sentence with the sentences before and after it, whatever the text is."""

from dataclasses import replace
from itertools import pairwise

import pytest

from hrag.passages.budget import PassageLimits, choose_drafts_within_limits
from hrag.passages.drafts import PassageDraft, SentenceWindow
from hrag.passages.outline import Outline
from hrag.passages.sentence_window import widened
from hrag.passages.tree_text import LeafMatch, TreeText
from hrag.text import tokens
from hrag.text.sentences import MAX_SENTENCE_CHARS, sentence_ends
from hrag.types import TreeSettings
from hrag.values.tree import ChunkRecord, ParsedText
from indexer_svc.chunker import build_tree

ENGLISH = " ".join(
    f"Sentence {number} tells of {'many ' * (number % 7)}ships." for number in range(40)
)
CHINESE = "".join(
    f"这是第{number}句话，它说了{'很' * (number % 9)}多的事。" for number in range(40)
)
TABLE = "".join(
    f"| row {number} | {number * 37} | {'x' * (number % 11)} |\n" for number in range(90)
)
CODE = "".join(
    f"def f{number}(x):\n    return x + {number}  # 'a. b'\n\n\n" for number in range(40)
)
MIXED = (
    f"# Title\n\n{ENGLISH[:400]}\n\n{CHINESE[:200]} 😀👍🏽.\n\n{TABLE[:500]}\n{CODE[:500]}"
    "\r\n\r\nEnd."
)
SPACES = "One." + " " * 900 + "Two.\n" + "\n" * 900 + "Three. " + "no end " * 900 + "Four."
TEXTS = {
    "english": ENGLISH,
    "chinese": CHINESE,
    "table": TABLE,
    "code": CODE,
    "mixed": MIXED,
    "spaces": SPACES,
    "one": "One sentence only",
}


def document(text: str) -> TreeText:
    tree = build_tree(ParsedText(text), TreeSettings((32, 64), 0.1))
    return TreeText(Outline.of("d", "", "", {}, (), ()), tree, text.encode())


def span_of(text: str, start: int, end: int) -> tuple[int, int, int, int]:
    """Returns a range of characters in bytes, then in characters, without the space around it."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    end = start + len(text[start:end].rstrip())
    return len(text[:start].encode()), len(text[:end].encode()), start, end


def leaf_at(source: TreeText, char: int) -> tuple[int, ChunkRecord]:
    """Returns the index and the record of the first leaf that contains a character."""
    records = (source.tree.record(0, index) for index in range(source.tree.counts[0]))
    return next((index, leaf) for index, leaf in enumerate(records) if char < leaf.char_end)


def draft_of(
    source: TreeText, leaf: int, sentence: tuple[int, int, int, int], margin: int, group: int = 0
) -> PassageDraft:
    draft = PassageDraft.of(source, (0, leaf), group)
    return replace(draft, window=SentenceWindow(*sentence, margin))


def window(source: TreeText, sentence: tuple[int, int, int, int], margin: int) -> PassageDraft:
    index, _ = leaf_at(source, sentence[2])
    return widened(draft_of(source, index, sentence, margin))


@pytest.mark.parametrize("margin", [0, 1, 3, 20])
@pytest.mark.parametrize("text", [ENGLISH, CHINESE, TABLE, CODE, MIXED], ids=list(TEXTS)[:5])
def test_a_window_has_the_sentence_and_as_many_sentences_on_each_side(text, margin):
    source, borders = document(text), [0, *sentence_ends(text)]
    for index, (start, end) in enumerate(pairwise(borders)):
        record = window(source, span_of(text, start, end), margin).record
        expected = text[
            borders[max(index - margin, 0)] : borders[min(index + margin, len(borders) - 2) + 1]
        ]
        assert source.content(record).strip() == expected.strip()


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_window_counts_the_tokens_of_its_document(text):
    source, borders = document(text), [0, *sentence_ends(text)]
    ends = tokens.byte_ends(tokens.encode(text)).tolist()
    for start, end in pairwise(borders):
        sentence = span_of(text, start, end)
        record = window(source, sentence, 1).record
        assert record.byte_start <= sentence[0]
        assert sentence[1] <= record.byte_end
        assert text[record.char_start : record.char_end] == source.content(record)
        assert record.token_start == sum(token <= record.byte_start for token in ends)
        begun = [first for first, _ in pairwise([0, *ends]) if first < record.byte_end]
        assert record.token_end == len(begun)


def test_windows_of_neighbouring_sentences_touch_and_do_not_overlap():
    source, borders = document(ENGLISH), [0, *sentence_ends(ENGLISH)]
    records = [window(source, span_of(ENGLISH, *pair), 0).record for pair in pairwise(borders)]
    for record, following in pairwise(records):
        assert record.token_end == following.token_start
        assert record.byte_end == following.byte_start


def test_a_sentence_that_the_edge_of_a_leaf_cuts_is_whole():
    text = "The ship " + "sails on and on " * 12 + "home. Then it rests. And it rusts."
    source = document(text)
    assert source.tree.record(0, 0).char_end < text.index("home")
    sentence = span_of(text, 0, text.index(" Then"))
    for index in range(2):
        record = widened(draft_of(source, index, sentence, 1)).record
        assert source.content(record) == text[: text.index(" And")]


def test_long_sentences_bound_the_text_of_a_window():
    text = "word " * 9000
    source = document(text)
    sentence = span_of(text, 20_000, 20_900)
    record = window(source, sentence, 2).record
    reach = 3 * MAX_SENTENCE_CHARS
    assert 20_000 - reach <= record.char_start < 20_000
    assert 20_900 < record.char_end <= 20_900 + reach


class Matches:
    """Fake matches: each group has one leaf, with this index."""

    level = 0

    def __init__(self, *leaves: int) -> None:
        self._leaves = leaves

    def score(self, group: int) -> float:
        return 1.0

    def rerank_score(self, group: int) -> float | None:
        return None

    def leaves(self, groups):
        return [LeafMatch(self._leaves[group], 1.0) for group in groups]


@pytest.mark.parametrize("budget", [16, 20, 30])
def test_a_window_that_is_cut_keeps_its_sentence(budget):
    source, borders = document(ENGLISH), [0, *sentence_ends(ENGLISH)]
    start, end = borders[20:22]
    index, _ = leaf_at(source, start)
    draft = draft_of(source, index, span_of(ENGLISH, start, end), 3)
    limits = PassageLimits(1, budget, merge_adjacent=True, cut_last=True)
    (chosen,) = choose_drafts_within_limits([draft], limits, Matches(index)).drafts
    assert ENGLISH[start:end].strip() in source.content(chosen.record)
    assert chosen.record.token_count <= budget < widened(draft).record.token_count


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        ((2, 9), [(0, 5), (7, 12)]),
        ((2, 7), [(0, 5), (5, 10)]),
        ((2, 6), [(0, 5), (5, 9)]),
        ((0, 3), [(0, 3), (3, 6)]),
        ((4, 1), [(2, 7), (0, 2)]),
        ((2, 4), [(0, 5)]),
        ((1, 2), [(0, 4)]),
        ((2, 1), [(0, 5)]),
        ((2, 10, 6), [(0, 5), (8, 13), (5, 8)]),
    ],
)
def test_a_window_leaves_out_text_of_better_windows(sentences, expected):
    """A window whose sentence is in a better window is left out whole."""
    source, borders = document(ENGLISH), [0, *sentence_ends(ENGLISH)]
    spans = [span_of(ENGLISH, *borders[number : number + 2]) for number in sentences]
    leaves = [leaf_at(source, span[2])[0] for span in spans]
    drafts = [
        draft_of(source, leaf, span, 2, group)
        for group, (leaf, span) in enumerate(zip(leaves, spans, strict=True))
    ]
    chosen = choose_drafts_within_limits(drafts, PassageLimits(9), Matches(*leaves))
    texts = [source.content(draft.record).strip() for draft in chosen.drafts]
    assert texts == [ENGLISH[borders[first] : borders[end]].strip() for first, end in expected]
    assert not chosen.left_out


@pytest.mark.parametrize("margin", [3, 6, 20])
def test_a_window_around_a_better_leaf_keeps_the_text_of_its_sentence(margin):
    """The window begins before the leaf, and its sentence comes after the leaf."""
    source, borders = document(ENGLISH), [0, *sentence_ends(ENGLISH)]
    leaf = source.tree.record(0, 2)
    number = next(n for n, start in enumerate(borders) if start >= leaf.char_end)
    span = span_of(ENGLISH, *borders[number : number + 2])
    index = leaf_at(source, span[2])[0]
    drafts = [PassageDraft.of(source, (0, 2), 0), draft_of(source, index, span, margin, 1)]
    chosen = choose_drafts_within_limits(drafts, PassageLimits(9), Matches(2, index))
    whole, trimmed = chosen.drafts
    assert whole.record == leaf
    assert trimmed.record.byte_start == leaf.byte_end
    assert ENGLISH[span[2] : span[3]] in source.content(trimmed.record)
