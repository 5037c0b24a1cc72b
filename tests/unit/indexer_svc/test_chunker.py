"""Chunks end at good positions, in texts that are small enough to check by eye."""

import pytest

from hrag.text import tokens
from hrag.types import TreeSettings
from hrag.values.tree import NONE, PageSpan, ParsedText, Section, Tree
from indexer_svc.chunker import Level, build_tree
from tests.support.documents.fakes import sentences


def contents(parsed: ParsedText, tree: Tree, level: int = 0) -> list[str]:
    """Returns the texts of the chunks of a level."""
    return [parsed.text[chunk["char_start"] : chunk["char_end"]] for chunk in tree.level(level)]


def cut(text: str, *sizes: int, overlap: float = 0.0) -> list[str]:
    """Returns the texts of the leaves of a text."""
    parsed = ParsedText(text)
    return contents(parsed, build_tree(parsed, TreeSettings(sizes or (32,), overlap)))


def test_without_overlap_the_leaves_together_are_the_text():
    text = sentences(40)
    assert "".join(cut(text)) == text


def test_a_sentence_end_near_the_limit_is_better_than_a_word():
    text = "word " * 26 + "end. " + "word " * 40
    assert cut(text)[0] == "word " * 26 + "end."


def test_a_paragraph_end_is_better_than_a_later_sentence_end():
    text = "word " * 25 + "end.\n\nNew one. " + "word " * 40
    assert cut(text)[0] == "word " * 25 + "end.\n\n"


def test_a_section_start_is_better_than_a_later_paragraph_end():
    text = "word " * 25 + "\nTitle word.\n\n" + "word " * 40
    start = text.index("Title")
    parsed = ParsedText(text, (Section("Title", 1, start),))
    first = contents(parsed, build_tree(parsed, TreeSettings((32,), 0.0)))[0]
    assert first == text[:start]


def test_a_page_end_is_as_good_as_a_paragraph_end():
    text = "word " * 25 + "\nnext page. " + "word " * 40
    start = text.index("next")
    pages = (PageSpan(1, 0, start), PageSpan(2, start, len(text)))
    parsed = ParsedText(text, (), pages)
    first = contents(parsed, build_tree(parsed, TreeSettings((32,), 0.0)))[0]
    assert first == text[:start]


def test_chinese_is_cut_after_its_sentence_ends():
    text = "检索先找小块再返回更大的上下文。" * 20
    assert all(piece.endswith("。") for piece in cut(text))


def test_a_text_without_any_boundary_is_cut_at_the_limit():
    text = "ab12" * 100
    count = len(tokens.encode(text))
    assert len(cut(text)) == -(-count // 32)


@pytest.mark.parametrize("character", ["🙂", "\u0e01\u0e47", "👩‍👩‍👧‍👦", "𝔘"])
def test_code_points_of_several_tokens_stay_whole(character):
    text = character * 200
    pieces = cut(text)
    assert len(pieces) > 5
    assert "".join(pieces) == text  # A chunk that ends inside a character could not be decoded.


def test_an_overlap_begins_at_a_sentence_if_possible():
    pieces = cut("Short one here. " * 60, overlap=0.3)
    assert len(pieces) > 5
    assert all(piece.lstrip().startswith("Short one") for piece in pieces)
    assert sum(map(len, pieces)) > 60 * len("Short one here. ")


def test_a_chunk_that_lies_mostly_in_a_subsection_names_this_subsection():
    intro, body = "Intro words. ", "Body words go on. " * 20
    parsed = ParsedText(
        intro + body + "After. ",
        (
            Section("Top", 1, 0),
            Section("Body", 2, len(intro)),
            Section("After", 2, len(intro + body)),
        ),
    )
    tree = build_tree(parsed, TreeSettings((128,), 0.0))
    assert [chunk["section"] for chunk in tree.level(0)] == [1]


def test_a_chunk_over_many_sections_names_their_common_ancestor():
    parts = [f"Part {number} says little. " for number in range(6)]
    starts = [sum(map(len, parts[:number])) for number in range(6)]
    sections = [Section("Top", 1, 0), *(Section(f"S{at}", 2, at) for at in starts[1:])]
    parsed = ParsedText("".join(parts), tuple(sections))
    tree = build_tree(parsed, TreeSettings((256,), 0.0))
    assert tree.record(0, 0).section == 0


def test_text_before_the_first_heading_is_in_no_section():
    text = "Preface words. " * 30 + "Title. "
    parsed = ParsedText(text, (Section("Title", 1, text.index("Title")),))
    tree = build_tree(parsed, TreeSettings((512,), 0.0))
    assert tree.record(0, 0).section == NONE


def test_without_sections_a_chunk_names_no_section():
    tree = build_tree(ParsedText("text"), TreeSettings((32, 64)))
    assert [tree.record(level, 0).section for level in (0, 1)] == [NONE, NONE]


@pytest.mark.parametrize(
    ("size", "ratio", "level"),
    [
        (256, 0.0, Level(256, 0, 0)),
        (256, 0.1, Level(256, 26, 6)),
        (256, 0.5, Level(256, 128, 32)),
        (32, 0.01, Level(32, 0, 0)),
        (32, 0.1, Level(32, 3, 2)),
    ],
)
def test_a_level_rounds_its_overlap(size, ratio, level):
    assert Level.of(size, ratio) == level


def test_a_chunk_that_could_only_end_inside_a_code_point_ends_before_it():
    """All token boundaries near the limit of 64 tokens are inside the code points of the emoji."""
    text = "word " * 56 + "👩‍👩‍👧‍👦"
    parsed = ParsedText(text)
    tree = build_tree(parsed, TreeSettings((32, 64), 0.5))
    first = tree.record(1, 0)
    assert 60 < first.token_count < 64
    assert text[first.char_start : first.char_end] == "word " * 56 + "👩‍👩"
