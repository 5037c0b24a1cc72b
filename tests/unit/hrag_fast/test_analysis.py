"""The term extractor finds the right terms, also in several threads, and checks its arguments."""

import sys
import threading
import time
import unicodedata

import numpy as np
import pytest

import hrag_fast
from hrag_fast import MAX_CLUSTER, TermExtractor, term_id
from hrag_fast._characters import CJK, SPACE, WORD, character_class, may_combine
from tests import twins
from tests.twins.analysis import clusters, in_utf8


@in_utf8
def first_three_letters(word):
    return word[:3]


@pytest.fixture(params=[hrag_fast, twins], ids=["kernel", "twin"])
def extractor(request):
    return request.param.TermExtractor(first_three_letters)


def ids_of(terms):
    return [term_id(term) for term in terms]


@pytest.mark.parametrize(
    "last_character", ["", "é", "€", "😀"], ids=["ascii", "1 byte", "2 bytes", "4 bytes"]
)
def test_terms_do_not_depend_on_how_python_stores_a_text(extractor, last_character):
    text = f"A.b C++ {last_character}"
    assert extractor.terms(text)[:5].tolist() == ids_of(["a", "b", "a.b", "c", "c++"])


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 64, 65, 300])
@pytest.mark.parametrize("letter", ["x", "ж", "𐐨"])
def test_words_of_every_length_have_the_same_stem_with_and_without_the_cache(
    extractor, size, letter
):
    words = [letter * size, letter * (size - 1) + "y", "y" + letter * (size - 1)]
    stems = [word if size > 64 else word[:3] for word in words]
    for _ in range(2):
        assert extractor.terms(" ".join(words)).tolist() == ids_of(stems)


def test_stems_are_right_for_more_words_than_the_cache_can_store():
    """The stemmer is called again for a word that was evicted, and not for a cached word."""
    stemmed = []
    kernel = TermExtractor(lambda word: stemmed.append(word) or word[:-1])
    words = [f"{i:05}x" for i in range(80_000)] + [f"{i:030}x" for i in range(10_000)]
    for _ in range(2):
        assert kernel.terms(" ".join(words)).tolist() == ids_of([word[:-1] for word in words])
    assert len(stemmed) > len(words)
    stemmed.clear()
    kernel.terms(f"{words[-1]} " * 5)
    assert stemmed == []


def test_a_word_with_an_empty_stem_is_its_own_term():
    for kernels in (hrag_fast, twins):
        extractor = kernels.TermExtractor(lambda word: b"")
        assert extractor.terms("word").tolist() == [term_id("word")]
        assert extractor.term(extractor.tokens("word")[0]) == "word"


def test_an_error_of_the_stemmer_is_raised():
    def failing(word):
        raise KeyError(word)

    kernel = TermExtractor(failing)
    with pytest.raises(KeyError, match="word"):
        kernel.leaf_terms(["数据", "word"])


def test_a_leaf_that_repeats_few_terms_has_sorted_entries(extractor):
    """All entries of one term are in one bucket of the sort. It is too large for insertion sort."""
    text = "aa bb cc " * 200 + " ".join(str(i) for i in range(100, 400))
    entries = extractor.leaf_terms([text]).entries.tolist()
    frequencies = {entry >> 8: entry & 0xFF for entry in entries}
    assert entries == sorted(entries)
    assert len(frequencies) == 303
    assert [frequencies[term_id(term)] for term in ("aa", "bb", "cc", "107")] == [200] * 3 + [1]


def test_several_threads_may_use_one_extractor():
    """The stemmer releases the GIL, so other threads run while a call is not finished."""

    @in_utf8
    def slow(word):
        time.sleep(0)
        return word[:3]

    kernel = TermExtractor(slow)
    texts = [
        " ".join(f"{(i * 7919) % 1500}é数{i % 97}" for i in range(n, n + 300)) for n in range(8)
    ]
    expected = [
        TermExtractor(first_three_letters).leaf_terms([text, text]).entries for text in texts
    ]
    results = {}

    def work(i):
        results[i] = kernel.leaf_terms([texts[i], texts[i]]).entries

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for i, entries in enumerate(expected):
        assert results[i].tolist() == entries.tolist()


@pytest.mark.parametrize("argument", [None, b"bytes", 1])
def test_texts_must_be_str(argument):
    kernel = TermExtractor(None)
    for method in (kernel.terms, kernel.word_ids, kernel.tokens, hrag_fast.fold, term_id):
        with pytest.raises(TypeError):
            method(argument)
    with pytest.raises(TypeError):
        kernel.leaf_terms(["text", argument])


def test_one_text_in_place_of_a_sequence_of_texts_is_refused(extractor):
    with pytest.raises(TypeError, match="not one str"):
        extractor.leaf_terms("text")


def test_ids_must_be_ascending_uint64():
    kernel = TermExtractor(None)
    with pytest.raises(ValueError, match=r"ids must ascend; ids\[1\] is 1, after 2"):
        kernel.matches("text", np.array([2, 1], np.uint64))
    with pytest.raises(ValueError, match="mismatch"):
        kernel.matches("text", np.array([1], np.int64))
    with pytest.raises(TypeError):
        kernel.matches("text", None)
    assert kernel.matches("text", np.array([], np.uint64)).starts.tolist() == []
    read_only = np.array([term_id("text")], np.uint64)
    read_only.flags.writeable = False
    assert kernel.matches("text", read_only).ends.tolist() == [4]


@pytest.mark.parametrize("kernels", [hrag_fast, twins], ids=["kernel", "twin"])
def test_folding_unifies_case_compatible_characters_and_white_space(kernels):
    assert kernels.fold("Ｓtraße e\u0301 ﬁ \udc00") == "strasse é fi \ufffd"
    assert kernels.fold(" A\n\t B\u3000 ", single_spaces=True) == "a b"
    assert kernels.fold("数\u2028 库\u00a0", single_spaces=True) == "数 库"
    assert kernels.fold(" \n", single_spaces=True) == kernels.fold("") == ""


def test_a_long_run_of_combining_marks_is_folded_in_clusters_of_limited_size():
    text = "a" + "\u0316\u0301" * 500
    sizes = [end - start for start, end in clusters(text)]
    assert sizes == [MAX_CLUSTER] * 31 + [9]
    assert hrag_fast.fold(text) == twins.fold(text)


def test_no_characters_of_two_clusters_compose():
    """A character that Unicode composes with the preceding character is in the same cluster."""
    decompositions = [unicodedata.decomposition(chr(code)).split() for code in range(0x20000)]
    canonical = [pair for pair in decompositions if len(pair) == 2 and pair[0][0] != "<"]
    seconds = {chr(int(second, 16)) for _, second in canonical}
    assert len(seconds) > 50
    assert all(may_combine(second) for second in seconds | {"\u1161", "\u11a8"})


@pytest.mark.parametrize(
    ("characters", "expected"),
    [("az09é٣ßжа𐐨ᄀ²", WORD), ("数々〇ぁー한ไั๎ກၐក", CJK), (" \n\t\u2028", SPACE)],
)
def test_each_character_has_its_class(characters, expected):
    assert {character_class(c) for c in characters} == {expected}
