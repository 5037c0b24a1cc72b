"""Words of a document are paired with the words that were read, also in the wrong order."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.documents.word_alignment import UNPAIRED, aligned, keys_of, words_of

WORDS = st.lists(st.sampled_from("abcde"), max_size=40)


@given(WORDS, WORDS)
def test_as_many_words_as_possible_are_paired(source: list[str], text: list[str]) -> None:
    pairs = aligned(source, text)
    paired = [(word, pair) for word, pair in zip(source, pairs, strict=True) if pair != UNPAIRED]
    assert all(text[pair] == word for word, pair in paired)
    assert len({pair for _, pair in paired}) == len(paired)
    assert len(paired) == (Counter(source) & Counter(text)).total()


@given(WORDS)
def test_equal_texts_are_paired_in_order(words: list[str]) -> None:
    assert aligned(words, words) == list(range(len(words)))


def test_columns_in_the_wrong_order_are_paired() -> None:
    left = [f"l{number}" for number in range(20)]
    right = [f"r{number}" for number in range(20)]
    assert aligned([*left, *right], [*right, *left]) == [*range(20, 40), *range(20)]


def test_a_repeated_word_is_paired_where_its_neighbours_are() -> None:
    source = keys_of("the pump and the valve of the boiler")
    assert aligned(source, ["the", "head", *source]) == list(range(2, 10))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("**Weight**, (see E-4711).", ["Weight", "see", "E-4711"]),
        ("10^6 m/s | – | [1]", ["10^6", "m/s", "1"]),
        ("ﬁlter \u2019s 第一条，ab", ["filter", "s", "第", "一", "条", "ab"]),
        ("a\\|b don’t", ["a|b", "don't"]),
    ],
)
def test_words_have_no_punctuation_at_their_ends(text: str, keys: list[str]) -> None:
    assert keys_of(text) == keys


def test_words_say_where_they_stand() -> None:
    assert [(word.start, word.end) for word in words_of("  a\n(bc)")] == [(2, 3), (4, 8)]
