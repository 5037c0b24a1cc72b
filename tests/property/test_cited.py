"""A cited sentence is a part of its document and touches its leaf.

The compiled kernels return the same as their twins, which are plain implementations in Python.
"""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import hrag_fast
from hrag.passages.outline import Outline
from hrag.values.tree import ChunkRecord
from hrag_fast import Matches, matched_sentence, merged_spans
from indexer_svc.chunker import build_tree
from tests import twins
from tests.property.strategies import documents, tree_settings


def matches_of(terms: list[tuple[int, int, int]]) -> Matches:
    """Returns Matches of terms. A term has the first character, the end, and the term's index."""
    return Matches(*np.array(sorted(terms), np.uint32).reshape(-1, 3).T.copy())


weights = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0]), min_size=3, max_size=3).map(
    lambda values: np.array(values, np.float32)
)


@hypothesis_settings(max_examples=100)
@given(documents, tree_settings(), weights, st.data())
def test_a_cited_sentence_touches_its_leaf_and_equals_the_twins(parsed, settings, weights, data):
    tree, text = build_tree(parsed, settings), parsed.text
    outline = Outline.of("d", "", "", {}, parsed.sections, parsed.pages)
    level = settings.embedding_level
    leaf = tree.record(level, data.draw(st.integers(0, tree.counts[level] - 1)))
    words = [at for at in range(leaf.char_start, leaf.char_end) if text[at].isalnum()]
    starts = data.draw(st.lists(st.sampled_from(words), max_size=5)) if words else []
    terms = [(at - leaf.char_start, at - leaf.char_start + 1, at % 3) for at in starts]
    matches = data.draw(st.sampled_from([None, matches_of(terms)]))
    arguments = (text.encode(), leaf, outline.section_starts, outline.heading_end, matches, weights)
    span = matched_sentence(*arguments)
    assert span == twins.matched_sentence(*arguments)
    byte_start, byte_end, char_start, char_end = span
    sentence = text[char_start:char_end]
    assert sentence == text.encode()[byte_start:byte_end].decode()
    if words:
        assert sentence == sentence.strip() != ""
        assert char_start < leaf.char_end
        assert leaf.char_start < char_end
    assert not any(char_start < part.char_start < char_end for part in parsed.sections)


offsets = st.integers(0, 30)
ranges = st.tuples(offsets, offsets).map(lambda pair: (*sorted(pair), 0))
parts = st.lists(st.tuples(offsets, st.lists(ranges, max_size=8).map(matches_of)), max_size=4)


@given(parts, offsets, st.integers(30, 70))
def test_merged_spans_equal_their_twin(parts, first, end):
    spans = merged_spans(parts, first, end)
    assert spans == twins.merged_spans(parts, first, end)
    assert spans == sorted(spans)


section_counts = st.sampled_from([0, 1, 15, 16, 17, 30])


@given(section_counts, section_counts, st.integers(0, 39), st.sampled_from([7, 12]))
def test_only_the_first_16_sections_at_one_offset_are_asked_for_a_heading(
    first, second, titled, end
):
    """Thousands of bookmarks may point to the same page, so the kernel must not ask for all."""
    starts = [0] * first + [7] * second
    text = b"Heading Title. A sentence. Another one."
    leaf = ChunkRecord(0, len(text), 0, len(text), 0, 9, 0, 0, 0, 0xFFFF_FFFF)

    def cited(module):
        sections = []

        def heading_end(_text, start, section):
            sections.append(section)
            return end if section == titled else start

        span = module.matched_sentence(text, leaf, np.array(starts, np.uint32), heading_end)
        return span, sections

    span, sections = cited(hrag_fast)
    assert (span, sections) == cited(twins)
    expected = [n for n, start in enumerate(starts) if n - starts.index(start) < 16]
    assert sections == expected


COLUMNS = [(4000, 1, 1), (1, 4000, 1), (0, 1, 1)]


@pytest.mark.parametrize("module", [hrag_fast, twins])
@pytest.mark.parametrize("sizes", COLUMNS)
def test_matches_whose_columns_differ_in_length_are_refused(module, sizes):
    matches = Matches(*(np.zeros(size, np.uint32) for size in sizes))
    with pytest.raises(ValueError, match=r"matches have|zip\(\)"):
        module.merged_spans([(0, matches)], 0, 4)


@pytest.mark.parametrize("module", [hrag_fast, twins])
@pytest.mark.parametrize("sizes", [*COLUMNS, (1, 1, 4000), (4000, 4000, 1)])
def test_matches_with_too_few_terms_are_refused(module, sizes):
    matches = Matches(*(np.zeros(size, np.uint32) for size in sizes))
    with pytest.raises(ValueError, match=r"matches have|zip\(\)"):
        module.matched_sentence(b"text", LEAF, NO_SECTIONS, len, matches, np.ones(1, np.float32))


LEAF = ChunkRecord(0, 4, 0, 4, 0, 1, 0, 0, 0, 0xFFFF_FFFF)
NO_SECTIONS = np.empty(0, np.uint32)


@pytest.mark.parametrize(
    ("leaf", "error"),
    [
        (
            LEAF._replace(byte_end=5),
            "has bytes 0 to 5 and characters 0 to 4",
        ),
        (LEAF._replace(byte_end=0), "the leaf has bytes 0 to 0"),
        (LEAF._replace(char_end=0), "and characters 0 to 0"),
        (LEAF._replace(section=0), "the leaf has section 0; it must be below 0"),
    ],
)
def test_a_leaf_that_is_not_in_the_text_is_refused(leaf, error):
    with pytest.raises((ValueError, IndexError), match=error):
        matched_sentence(b"text", leaf, NO_SECTIONS, len)


@pytest.mark.parametrize("after", [0, 1, 60])
def test_a_leaf_at_the_largest_offset_is_cited_and_beyond_it_refused(after):
    """Offsets have 32 bits, so a damaged tree could name characters after the largest offset."""
    text = b"Dogs bark. Cats sleep." + b" x" * 30
    leaf = LEAF._replace(byte_end=22, char_start=2**32 - 23 - after, char_end=2**32 - 1 - after)
    if after == 60:
        span = (0, 10, leaf.char_start, leaf.char_start + 10)
        assert matched_sentence(text, leaf, NO_SECTIONS, len) == span
        return
    with pytest.raises(ValueError, match="the excerpt must end at 4294967295 or before"):
        matched_sentence(text, leaf, NO_SECTIONS, len)


@pytest.mark.parametrize("start", [0, 3, 2**32 - 1])
def test_a_term_that_ends_after_the_leaf_is_in_no_sentence(start):
    terms = matches_of([(start, 2**32 - 1, 0)])
    leaf = LEAF._replace(char_start=7, char_end=11)
    span = matched_sentence(b"text", leaf, NO_SECTIONS, len, terms, np.ones(1, np.float32))
    assert span == (0, 4, 7, 11)


def test_a_term_without_a_weight_is_refused():
    weight = np.ones(1, np.float32)
    assert matched_sentence(b"text", LEAF, NO_SECTIONS, len, matches_of([(0, 4, 0)]), weight)
    with pytest.raises(IndexError, match=r"which\[0\] is 1; it must be below 1"):
        matched_sentence(b"text", LEAF, NO_SECTIONS, len, matches_of([(0, 4, 1)]), weight)
    with pytest.raises(IndexError, match=r"which\[0\] is 0; it must be below 0"):
        matched_sentence(b"text", LEAF, NO_SECTIONS, len, matches_of([(0, 4, 0)]))


@pytest.mark.parametrize("section", range(16))
@pytest.mark.parametrize("length", [0, 3, 50])
def test_a_heading_that_would_end_after_the_text_ends_with_it(section, length):
    text = "Dogs bark. Cats"
    leaf = ChunkRecord(0, 15, 0, 15, 0, 0, 0, 0, 0, 0)
    sections = np.array([section], np.uint32)
    found = matched_sentence(
        text.encode(), leaf, sections, lambda _text, offset, _section: offset + length
    )
    assert max(found) <= len(text)


@pytest.mark.parametrize("alphabet", ["ab ", "aé ", "漢字", "a漢é🙂 ", "aaaaaaaaaaaaaaaaaaaaaé. "])
def test_a_sentence_that_the_edges_of_a_leaf_cut_is_the_twins(alphabet: str) -> None:
    """Characters around the leaf are counted in words of eight bytes, whatever bytes they have."""
    draw = random.Random(3)
    for _ in range(40):
        text = "".join(draw.choices(alphabet, k=draw.randint(1, 2600)))
        first, last = sorted((draw.randrange(len(text)), draw.randint(1, len(text))))
        last = max(last, first + 1)
        start, end = len(text[:first].encode()), len(text[:last].encode())
        leaf = LEAF._replace(byte_start=start, byte_end=end, char_start=first, char_end=last)
        arguments = (text.encode(), leaf, NO_SECTIONS, len)
        assert matched_sentence(*arguments) == twins.matched_sentence(*arguments)
