"""The compiled term extractor returns the same as its twin in Python, for any Unicode text.

A twin is a plain implementation in Python of a compiled kernel; see `tests.twins`.
"""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hrag_fast
from hrag.text.analysis import MAX_QUERY_TERMS, Analyzer, analyzer
from hrag.text.analysis.query_syntax import RequiredParts, parse
from hrag_fast import MAX_CLUSTER, Folding
from tests import twins
from tests.property.texts import ARGUMENTS, INVISIBLE, TEXTS, examples
from tests.twins.analysis import clusters

PAIRS = [
    (hrag_fast.TermExtractor(stem, **options), twins.TermExtractor(stem, **options))
    for stem, options in ARGUMENTS
]
ANALYZERS = [analyzer(name) for name in ("english/1", "english/3", "turkish/3")]


def visible(text):
    """Returns a text without the invisible characters that `fold` deletes."""
    deleted = {*INVISIBLE, *map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0xE0100, 0xE01F0))}
    return "".join(character for character in text if character not in deleted)


def assert_same(arrays, expected):
    for array, other in zip(arrays, expected, strict=True):
        assert array.dtype == other.dtype
        assert array.tolist() == other.tolist()


@examples
@given(TEXTS)
def test_the_term_extractor_equals_its_twin(text):
    for kernel, twin in PAIRS:
        assert_same_terms(kernel, twin, text)


@pytest.mark.slow
@settings(max_examples=1000)
@given(TEXTS)
def test_the_term_extractor_equals_its_twin_on_many_texts(text):
    for kernel, twin in PAIRS:
        assert_same_terms(kernel, twin, text)


def assert_same_terms(kernel, twin, text):
    terms = twin.terms(text)
    assert_same([kernel.terms(text), kernel.word_ids(text)], [terms, twin.word_ids(text)])
    leaves = [text, "", text[::-1]]
    assert_same(kernel.leaf_terms(leaves), twin.leaf_terms(leaves))
    ids = np.unique(terms)[::2].copy()
    assert_same(kernel.matches(text, ids), twin.matches(text, ids))
    tokens = twin.tokens(text)
    assert kernel.tokens(text) == tokens
    assert [kernel.term(token) for token in tokens] == [twin.term(token) for token in tokens]


@examples
@given(TEXTS)
def test_folding_equals_its_twin_and_case_folding_of_unicode(text):
    for folding in Folding:
        other = twins.fold(text, folding)
        assert hrag_fast.fold(text, folding) == other
        assert hrag_fast.fold(text, folding, single_spaces=True) == " ".join(other.split())
    folded = twins.fold(text)
    if all(end - start < MAX_CLUSTER for start, end in clusters(text)):
        whole = unicodedata.normalize("NFKC", visible(text)).casefold()
        assert folded == unicodedata.normalize("NFKC", whole)


@given(TEXTS)
def test_invisible_characters_change_no_term_and_no_matched_word(text):
    plain = visible(text)
    if all(end - start < MAX_CLUSTER for start, end in clusters(text)):
        english = analyzer("english/1")
        terms = english.terms(plain)
        assert english.terms(text).tolist() == terms.tolist()
        ids = np.unique(terms)
        in_text, in_plain = english.matches(text, ids), english.matches(plain, ids)
        words = [visible(word) for word in matched_words(text, in_text)]
        assert words == matched_words(plain, in_plain)


def matched_words(text, matches):
    return [text[start:end] for start, end in zip(matches.starts, matches.ends, strict=True)]


@examples
@given(TEXTS)
def test_every_occurrence_of_a_term_is_a_match(text):
    english = analyzer("english/1")
    terms = english.terms(text)
    ids = np.unique(terms)
    matches = english.matches(text, ids)
    assert sorted(ids[matches.which].tolist()) == sorted(terms.tolist())
    assert (matches.starts < matches.ends).all()
    assert (matches.ends <= len(text)).all()
    rows = list(zip(*(array.tolist() for array in matches), strict=True))
    assert rows == sorted(rows)


@given(TEXTS, st.data())
def test_a_text_with_a_phrase_has_all_words_of_the_phrase(text, data):
    """So an index of words can find all texts that may contain the phrase."""
    start = data.draw(st.integers(0, len(text)))
    phrase = text[start : data.draw(st.integers(start, len(text)))]
    for analysis in ANALYZERS:
        if phrase.strip() and RequiredParts([phrase], analysis.folding).are_in([text]):
            assert set(analysis.word_ids(phrase).tolist()) <= set(analysis.word_ids(text).tolist())


@examples
@given(TEXTS)
def test_a_query_has_the_terms_that_a_leaf_with_the_same_text_has(text):
    for analysis in ANALYZERS:
        without_stop_words = Analyzer(
            "x",
            analysis._extractor,
            folding=analysis.folding,
            variants=analysis._variants,
        )
        terms = without_stop_words.query_terms(text)
        if len(terms) < MAX_QUERY_TERMS:
            assert {term.id for term in terms} == set(analysis.terms(text).tolist())


def plain_query_terms(analysis, text, preferred):
    """Returns the same as `query_terms`, without a shorter way for words without variants."""
    extractor = analysis._extractor
    tokens = [pair for token in extractor.tokens(text) for pair in analysis._weighted(token)]
    content = [
        pair for pair in tokens if not (pair[0].is_word and pair[0].text in analysis._stop_words)
    ]
    factors = {}
    for token, factor in content or tokens:
        term = extractor.term(token)
        factors[term] = max(factor, factors.get(term, 0.0))
    preferred_terms = {extractor.term(x) for part in preferred for x in extractor.tokens(part)}
    return tuple(
        (hrag_fast.term_id(term), term, factor * 2 if term in preferred_terms else factor)
        for term, factor in factors.items()
    )[:MAX_QUERY_TERMS]


@examples
@given(TEXTS)
def test_query_terms_equal_their_plain_definition(text):
    sentence = f"what does {text} the cats 42 mean"
    for analysis in (*ANALYZERS, analyzer("german/3"), analyzer("simple/3")):
        for query, preferred in ((text, ()), (sentence, ("the cats", text)), ("to be", ())):
            assert analysis.query_terms(query, preferred) == plain_query_terms(
                analysis, query, preferred
            )


@given(TEXTS)
def test_a_text_contains_each_of_its_words(text):
    if all(end - start < MAX_CLUSTER for start, end in clusters(text)):
        for token in hrag_fast.TermExtractor(None).tokens(text):
            assert RequiredParts([token.text], Folding.UNICODE).are_in([text]), token


@given(st.text(alphabet='ab1 +"“”+,?', max_size=30))
def test_required_parts_are_in_the_text_of_the_query(query):
    parsed = parse(query)
    marked = parsed.required + parsed.preferred
    assert all(len(parts) == len(set(parts)) for parts in (parsed.required, parsed.preferred))
    for part in marked:
        assert part == " ".join(part.split()) != ""
        assert part in parsed.text
    assert marked or parsed.text == query
