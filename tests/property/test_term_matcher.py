"""An encoded passage has the sentence and the term spans that the plain twins find in it."""

import random

import numpy as np
import pytest
from hypothesis import given

import hrag_fast
from hrag.v1 import retriever_pb2
from hrag.values.tree import CHUNK, NONE, ChunkRecord, Tree
from hrag_fast import CitedDocument, Groups, PassageDocument, PassageEncoder, TermMatcher, term_id
from tests import twins
from tests.property.texts import ARGUMENTS, TEXTS, examples
from tests.twins.analysis import in_utf8

PAIRS = [
    (hrag_fast.TermExtractor(stem, **options), twins.TermExtractor(stem, **options))
    for stem, options in ARGUMENTS
]
NO_SECTIONS = np.empty(0, np.uint32)


def no_heading(_text, offset, _section):
    return offset


def record(text, char_start, char_end):
    """Returns the record of a chunk from one character of a text to another."""
    start, end = (len(text[:char].encode()) for char in (char_start, char_end))
    return ChunkRecord(start, end, char_start, char_end, 0, 0, 0, 0, 0, NONE)


def encoded(text, leaves, passage, matcher):
    """Returns the passage as the encoder encodes it. The first of `leaves` is the best one."""
    tree = Tree.from_levels(
        [np.array([*map(tuple, level)], CHUNK) for level in (leaves, [passage])]
    )
    groups = Groups(
        np.zeros(1, np.uint64),
        np.ones(1, np.float32),
        np.array([0, len(leaves)], np.uint32),
        np.arange(len(leaves), dtype=np.uint32),
        np.ones(len(leaves), np.float32),
    )
    labels = (7 << 20 | np.arange(len(leaves))).astype(np.uint64)
    cited = CitedDocument(
        b"", b"d", lambda _section: (), section_starts=NO_SECTIONS, heading_end=no_heading
    )
    document = PassageDocument(cited, tree.to_bytes(), text.encode())
    encoder = PassageEncoder(labels, groups, 0, terms=matcher, spans=True)
    message = encoder.passage(document, 1, 0, 0)
    (only,) = retriever_pb2.SearchResponse.FromString(message).passages
    return only


@examples
@given(TEXTS)
def test_a_passage_cites_and_marks_what_the_twins_find(text):
    text = text.encode(errors="replace").decode()
    if not text:
        return
    draw = random.Random(text)
    spans = [sorted(draw.choices(range(len(text) + 1), k=2)) for _ in range(3)]
    leaves = [record(text, start, end) for start, end in spans if start < end]
    leaves = leaves or [record(text, 0, len(text))]
    passage = record(text, 0, len(text))
    for kernel, twin in PAIRS:
        ids = np.unique(twin.terms(text))[:: draw.choice((1, 2))].copy()
        weights = np.resize(np.array([0.3, 0.1, 0.0, 0.7], np.float32), len(ids))
        found = [
            (leaf.char_start, twin.matches(text[leaf.char_start : leaf.char_end], ids))
            for leaf in leaves
        ]
        only = encoded(text, leaves, passage, TermMatcher(kernel, ids, weights))
        marked = [(span.char_start, span.char_end) for span in only.term_spans]
        assert marked == twins.merged_spans(found, 0, len(text))
        cited = only.matched_sentence.span
        expected = twins.matched_sentence(
            text.encode(), leaves[0], NO_SECTIONS, no_heading, found[0][1], weights
        )
        assert (cited.byte_start, cited.byte_end, cited.char_start, cited.char_end) == expected


def test_one_matcher_finds_the_terms_of_texts_of_every_kind_in_turn():
    """Its memory is reused: after a text with accents, an ASCII text keeps its own places."""
    ids = np.array(sorted(map(term_id, ("cat", "é"))), np.uint64)
    matcher = TermMatcher(hrag_fast.TermExtractor(None), ids, np.ones(2, np.float32))
    for text in ("a cat", "é" * 9 + " e\u0301 cat", "ﬁ cat", "", "cat", "数据 cat é"):
        whole = record(text + ".", 0, len(text) + 1)
        only = encoded(text + ".", [whole], whole, matcher)
        marked = [text[span.char_start : span.char_end] for span in only.term_spans]
        assert marked == [word for word in text.split() if word in ("cat", "é", "e\u0301")]
        assert [*map(len, matcher.matches(text))] == [len(marked)] * 3


def test_a_stemmer_that_searches_itself_gets_other_memory():
    """A stemmer in Python may also let another thread use the same matcher."""

    @in_utf8
    def stem(word):
        if word == "cats":
            assert marked_in("one cat") == [(4, 7)]
        return word.rstrip("s")

    def marked_in(text):
        whole = record(text, 0, len(text))
        only = encoded(text, [whole], whole, matcher)
        return [(span.char_start, span.char_end) for span in only.term_spans]

    extractor = hrag_fast.TermExtractor(stem)
    ids = np.array([term_id("cat")], np.uint64)
    matcher = TermMatcher(extractor, ids, np.ones(1, np.float32))
    assert marked_in("two cats and a cat") == [(4, 8), (15, 18)]


@pytest.mark.parametrize(
    ("ids", "weights", "message"),
    [
        ([2, 1], [1, 1], r"ids must ascend; ids\[1\] is 1, after 2"),
        ([1, 2], [1], "there are 2 ids and 1 weights; the numbers must be equal"),
    ],
)
def test_ids_must_ascend_and_have_one_weight_each(ids, weights, message):
    extractor = hrag_fast.TermExtractor(None)
    with pytest.raises(ValueError, match=message):
        TermMatcher(extractor, np.array(ids, np.uint64), np.array(weights, np.float32))


def test_bytes_that_are_not_utf8_are_refused():
    whole = ChunkRecord(0, 2, 0, 2, 0, 0, 0, 0, 0, NONE)
    tree = Tree.from_levels([np.array([tuple(whole)], CHUNK)]).to_bytes()
    matcher = TermMatcher(
        hrag_fast.TermExtractor(None), np.ones(1, np.uint64), np.ones(1, np.float32)
    )
    groups = Groups(
        np.zeros(1, np.uint64),
        np.ones(1, np.float32),
        np.array([0, 1], np.uint32),
        np.zeros(1, np.uint32),
        np.ones(1, np.float32),
    )
    cited = CitedDocument(b"", b"d", lambda _section: (), heading_end=no_heading)
    document = PassageDocument(cited, tree, b"\xff\xfe")
    encoder = PassageEncoder(np.array([7 << 20], np.uint64), groups, 0, terms=matcher)
    with pytest.raises(UnicodeDecodeError):
        encoder.passage(document, 0, 0, 0)
