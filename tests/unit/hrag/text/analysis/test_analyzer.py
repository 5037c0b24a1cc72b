"""Analyzers extract terms from texts and queries, with a compiled or a plain Python extractor."""

import unicodedata

import numpy as np
import pytest
import Stemmer

import hrag_fast
from hrag.errors import InvalidArgument
from hrag.text.analysis import (
    LANGUAGES,
    MAX_FREQUENCY,
    MAX_QUERY_TERMS,
    Analyzer,
    analyzer,
    analyzer_name,
    term_id,
    upgraded,
)
from hrag.text.stop_words import STOP_WORDS
from tests import twins

STEMMER = Stemmer.Stemmer("english", 0)


@pytest.fixture(scope="module", params=[hrag_fast, twins], ids=["kernel", "twin"])
def extractor(request):
    """Returns an extractor of English terms: the compiled one, then its plain Python twin."""
    return request.param.TermExtractor(STEMMER.stemWord, ascii_only=True)


@pytest.fixture(scope="module")
def english(extractor) -> Analyzer:
    """Returns the analyzer `english/1` with the extractor of this run."""
    return Analyzer("english/1", extractor, STOP_WORDS["english"])


def texts_of(terms):
    return [term.text for term in terms]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" !? ", []),
        ("Cats are running", ["cat", "are", "run"]),
        ("C++", ["c", "c++"]),
        ("c#", ["c", "c#"]),
        ("C++, or C.", ["c", "c++", "or", "c"]),
        ("3.11.7", ["3", "11", "7", "3.11.7"]),
        ("E-4711", ["e", "4711", "e-4711"]),
        ("user@example.org", ["user", "exampl", "org", "user@example.org"]),
        ("/usr/local/bin/", ["usr", "local", "bin", "usr/local/bin"]),
        ("snake_case", ["snake", "case", "snake_case"]),
        ("_private", ["privat"]),
        ("well-known facts", ["well", "known", "well-known", "fact"]),
        ("a--b -c", ["a", "b", "a--b", "c"]),
        ("c++.+x c++.", ["c", "x", "c++.+x", "c", "c++"]),
        ("e.g.", ["e", "g", "e.g"]),
        ("AT&T", ["at", "t"]),
        ("don't", ["don", "t"]),
        ("型号AB-123的", ["型", "型号", "号", "ab", "123", "ab-123", "的"]),
        ("数据库", ["数", "数据", "据", "据库", "库"]),
        ("数", ["数"]),
        ("人々〇", ["人", "人々", "々", "々〇", "〇"]),
        ("カード", ["カ", "カー", "ー", "ード", "ド"]),
        ("ﾊﾝｶﾞｸ", ["ハ", "ハン", "ン", "ンガ", "ガ", "ガク", "ク"]),
        ("데이터", ["데", "데이", "이", "이터", "터"]),
        (unicodedata.normalize("NFD", "데이"), ["데", "데이", "이"]),
        ("ไทย", ["ไ", "ไท", "ท", "ทย", "ย"]),
        ("𠀀𠀁", ["𠀀", "𠀀𠀁", "𠀁"]),
        ("naïve", ["naïve"]),
        (unicodedata.normalize("NFD", "naïve"), ["naïve"]),
        ("STRASSE Straße", ["strass", "strass"]),
        ("ﬁles", ["file"]),
        ("Ｆｕｌｌ－Ｗｉｄｔｈ", ["full", "width", "full-width"]),
        ("½ ㎏", ["1", "2", "kg"]),
        ("x…y", ["x", "y", "x...y"]),
        ("हिन्दी", ["हिन्दी"]),
        ("\u0301a 🇩🇪👩‍👩‍👧!", ["a"]),
        ("\ud800a", ["a"]),
        ("\ufeffco\u00adop\u00ader\u2060ate", ["cooper"]),
        ("می\u200cخواهم 葛\U000e0100城\ufe00", ["میخواهم", "葛", "葛城", "城"]),
        ("e\u034f\u00ad\u0301 well\u2060-\u200dknown", ["é", "well", "known", "well-known"]),
        ("zero\u200bwidth", ["zero", "width"]),
    ],
)
def test_a_text_has_these_terms_in_this_order(extractor, english, text, terms):
    assert english.terms(text).tolist() == [term_id(term) for term in terms]
    without_stop_words = Analyzer("x", extractor)
    assert texts_of(without_stop_words.query_terms(text)) == list(dict.fromkeys(terms))


def test_the_term_ids_of_an_analyzer_version_never_change():
    """Stores contain the ids of terms. If this test fails, give the changed rules a new version."""
    assert analyzer("english/1").terms("Running C++ 数 naïve").tolist() == [
        0x13DF1AAE72A7E7,
        0x77093774D2DA81,
        0x9A0A156246BCD9,
        0x334DC254740760,
        0x1B21A798C5AB1D,
    ]


def test_words_of_more_than_64_characters_are_not_stemmed(english):
    short_word, long_word = "x" * 58 + "ability", "y" * 58 + "ability"
    assert english.terms(short_word[1:]).tolist() == [term_id(STEMMER.stemWord(short_word[1:]))]
    assert STEMMER.stemWord(long_word) != long_word
    assert english.terms(long_word).tolist() == [term_id(long_word)]


@pytest.mark.parametrize(
    ("name", "text", "terms"),
    [
        ("german/1", "Häuser", ["haus"]),
        ("russian/1", "Книгами", ["книг"]),
        ("russian/1", "достопримечательностями", ["достопримечательн"]),
        ("english/1", "Häuser", ["häuser"]),
        ("simple/1", "running Häuser", ["running", "häuser"]),
    ],
)
def test_words_are_stemmed_by_the_rules_of_their_language(name, text, terms):
    assert analyzer(name).terms(text).tolist() == [term_id(term) for term in terms]


def test_leaf_terms_are_counted_and_sorted(english):
    terms = english.leaf_terms(["the cat, the cats", "", "a " * 300 + "b"])
    assert [array.dtype for array in terms] == [np.int64, np.uint64, np.uint32]
    assert terms.starts.tolist() == [0, 2, 2, 4]
    assert terms.lengths.tolist() == [4, 0, 301]
    the, cat, a, b = (term_id(term) for term in ("the", "cat", "a", "b"))
    assert terms.entries[:2].tolist() == sorted([the << 8 | 2, cat << 8 | 2])
    assert terms.entries[2:].tolist() == sorted([a << 8 | MAX_FREQUENCY, b << 8 | 1])


def test_without_leaves_there_are_no_terms(english):
    terms = english.leaf_terms([])
    assert terms.starts.tolist() == [0]
    assert terms.entries.tolist() == terms.lengths.tolist() == []


@pytest.mark.parametrize(
    ("text", "term", "spans"),
    [
        ("The cats. A cat", "cat", ["cats", "cat"]),
        ("Use E-4711, not 4711", "4711", ["4711", "4711"]),
        ("Use E-4711, not 4711", "e-4711", ["E-4711"]),
        ("大数据库，数据", "数据", ["数据", "数据"]),
        ("ＦＵＬＬ ﬁle ße", "file", ["ﬁle"]),
        ("ＦＵＬＬ ﬁle ße", "full", ["ＦＵＬＬ"]),
        ("ßß, ßa", "ssa", ["ßa"]),
        ("ße\u0301x, e\u0301", "é", ["e\u0301"]),
        ("ﾊﾝｶﾞｸ", "ガク", ["ｶﾞｸ"]),
        ("㎏㍿x", "株式", ["㍿"]),
        ("½…½", "2...1", ["½…½"]),
        ("\ufeffCo\u00adop, co\u200dop\u00ad.", "coop", ["Co\u00adop", "co\u200dop\u00ad"]),
        ("\u00ad葛\U000e0100城 x", "葛城", ["葛\U000e0100城"]),
        (unicodedata.normalize("NFD", "이데"), "데", [unicodedata.normalize("NFD", "데")]),
    ],
)
def test_matches_are_spans_of_the_text_before_normalization(english, text, term, spans):
    matches = english.matches(text, np.array([term_id(term)], np.uint64))
    assert [text[a:b] for a, b in zip(matches.starts, matches.ends, strict=True)] == spans


def test_matches_may_overlap_and_are_in_the_order_of_the_text(english):
    terms = {term_id(term): term for term in ("b", "a.b", "数", "数据")}
    ids = np.array(sorted(terms), np.uint64)
    matches = english.matches("a.b 数据", ids)
    assert [array.dtype for array in matches] == [np.uint32] * 3
    rows = [(a, b, terms[int(ids[i])]) for a, b, i in zip(*matches, strict=True)]
    assert rows == [(0, 3, "a.b"), (2, 3, "b"), (4, 5, "数"), (4, 6, "数据")]


def test_word_ids_are_distinct_and_exclude_terms_with_punctuation(english):
    ids = english.word_ids("a.b 数 b running").tolist()
    assert ids == sorted(term_id(term) for term in ("a", "b", "数", "run"))


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What does error E-4711 mean?", ["error", "e", "4711", "e-4711", "mean"]),
        ("the The cats cat", ["cat"]),
        ("To be, or not to be", ["to", "be", "or", "not"]),
        ("does a doe", ["doe"]),  # The stop word `does` also has the stem `doe`.
        ("in-house", ["hous", "in-house"]),
    ],
)
def test_stop_words_are_removed_from_a_query_if_other_words_remain(english, query, terms):
    assert texts_of(english.query_terms(query)) == terms


def test_stop_words_are_terms_of_a_text(english):
    assert english.terms("the").tolist() == [term_id("the")]


def test_query_terms_have_the_ids_of_their_texts(english):
    terms = english.query_terms("cats 数据")
    assert [term.id for term in terms] == [term_id(term.text) for term in terms]


def test_terms_of_a_query_beyond_the_limit_are_ignored(english):
    terms = english.query_terms(" ".join(f"w{i}" for i in range(MAX_QUERY_TERMS + 5)))
    assert texts_of(terms) == [f"w{i}" for i in range(MAX_QUERY_TERMS)]


def test_english_has_69_stop_words_and_simple_has_none():
    assert len(STOP_WORDS["english"]) == 69
    assert set(STOP_WORDS) <= set(LANGUAGES)
    assert texts_of(analyzer("simple/1").query_terms("the cat")) == ["the", "cat"]


def test_the_newest_analyzer_of_a_language_is_found():
    assert analyzer_name("english") == "english/3"
    assert analyzer("english/1").name == "english/1"
    assert repr(analyzer("german/1")) == "Analyzer('german/1')"
    assert {"simple", "english", "german", "russian"} <= set(LANGUAGES)


@pytest.mark.parametrize("name", ["", "english", "english/0", "english/4", "klingon/1", "/1"])
def test_unknown_analyzers_are_refused(name):
    with pytest.raises(InvalidArgument, match="must be") as caught:
        analyzer(name)
    assert caught.value.field == "analyzer"


def test_versions_1_and_2_find_the_same_terms():
    old, new = analyzer("english/1"), analyzer("english/2")
    assert (old.indexes_names, new.indexes_names) == (False, True)
    for text in ("Running C++ 数 naïve", "E-4711", ""):
        assert old.terms(text).tolist() == new.terms(text).tolist()
        assert old.query_terms(text) == new.query_terms(text)


def test_the_newest_version_has_the_same_language():
    names = ("", "english/1", "english/2", "german/1", "simple/1")
    newest = ["english/3", "english/3", "english/3", "german/3", "simple/3"]
    assert [upgraded(name) for name in names] == newest


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("Running shoes", "I ran", "Running shoes"),
        ("Running shoes", "The runs", "shoes"),
        ("a  b\tc", "", "a b c"),
        ("a b c", "c b a", ""),
        ("state-of-the-art pumps", "The art", "state-of- - pumps"),
        ("state-of-the-art pumps", "Pumps", "state-of-the-art"),
        ("ﬁne ﬁlter", "FINE", "ﬁlter"),
        ("大水泵压力", "水泵", "大水泵压力"),
        ("水泵 压力", "大水泵", "压力"),
        ("...", "a", ""),
        ("", "a", ""),
    ],
)
def test_words_of_another_text_are_left_out(text, other, expected):
    english = analyzer("english/3")
    assert english.without_words_of(text, other) == expected
    missing = set(english.word_ids(text).tolist()) - set(english.word_ids(other).tolist())
    assert missing <= set(english.word_ids(expected).tolist())


def test_unknown_languages_are_refused():
    with pytest.raises(InvalidArgument, match="'klingon'; it must be one of"):
        analyzer_name("klingon")


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        # Words without their accents.
        ("english", "The café in Zürich serves jalapeño.", "cafe zurich jalapenos"),
        ("english", "cafe", "Cafés"),
        ("french", "L'hôtel des élèves est fermé cet été.", "hotel eleve ete"),
        ("french", "Les œufs", "oeuf"),
        ("portuguese", "A informação não chegou.", "informacao nao informações"),
        ("spanish", "¿Dónde está el niño?", "donde esta nino"),
        ("danish", "Smørrebrød", "smorrebrod"),
        ("simple", "Łódź", "lodz"),
        ("russian", "Ёлка", "елка"),
        ("simple", "מִסְפָּר مُحَمَّد", "מספר محمد"),
        ("simple", "Việt Nam", "viet"),
        # Codes without their hyphen, and units without their space.
        ("english", "Error E-4711", "E4711"),
        ("english", "Error E4711", "E-4711"),
        ("english", "Error E\u20114711", "E-4711 E4711"),
        ("english", "E-47-11", "E4711"),
        ("english", "Certified to ISO-9001", "ISO9001"),
        ("english", "Send an e-mail", "emails"),
        ("english", "Send emails", "e-mail"),
        ("english", "Supply 24 V", "24V"),
        ("english", "Supply 5 kV", "5kV"),
        ("english", "ISBN 978-3-16-148410-0", "9783161484100"),
        ("english", "snake_case", "snakecase"),
        ("english", "In the U.S.A", "USA"),
        ("english", "node.js", "NodeJS"),
        # Digits of any script.
        ("simple", "٢٤ ۴۵ ๑๒ ३", "24 45 12 3"),
        # The Turkish i.
        ("turkish", "Toplantı İSTANBUL", "istanbul"),
        ("turkish", "İzmir ISPARTA Iğdır", "izmir ısparta ığdır"),
        ("turkish", "diyarbakır", "DİYARBAKIR"),
        ("turkish", "ısparta", "isparta"),
        ("turkish", "i\u0307zmir", "izmir"),
        ("english", "İstanbul", "istanbul"),
    ],
)
def test_a_text_is_found_by_another_spelling(language, text, query):
    analysis = analyzer(analyzer_name(language))
    terms = set(analysis.terms(text).tolist())
    for word in query.split():
        assert terms & {term.id for term in analysis.query_terms(word)}, word


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("english", "Pages 10-20", "1020"),
        ("english", "3.5 mm", "35"),
        ("english", "a/b", "ab"),
        ("english", "me@example", "meexample"),
        ("english", "5d41402abc4b2a76", "41402"),
        ("english", "a-b-c-d-e-f", "abcdef"),
        ("simple", "हिन्दी", "हिनदी"),
        ("simple", "が", "か"),
        ("english", "ISPARTA", "ısparta"),
    ],
)
def test_a_text_is_not_found_by_the_spelling_of_another_word(language, text, query):
    analysis = analyzer(analyzer_name(language))
    whole = analysis.query_terms(query)[0]
    assert whole.id not in analysis.terms(text).tolist()


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("Café", {"café": 0.5, "cafe": 0.5}),
        ("E4711", {"e4711": 1.0, "4711": 0.1}),
        ("e-mail", {"e": 1.0, "mail": 1.0, "e-mail": 0.5, "email": 0.1}),
        ("24kV 24", {"24kv": 1.0, "24": 1.0, "kv": 0.1}),
        ("5V", {"5v": 1.0, "5": 0.1}),
        ("à Paris", {"à": 0.5, "pari": 1.0}),  # `a` is a stop word.
        ("cafe", {"cafe": 1.0}),
    ],
)
def test_variants_of_a_query_weigh_less_than_words(query, terms):
    assert {t.text: t.factor for t in analyzer("english/3").query_terms(query)} == terms


def test_variants_do_not_make_a_leaf_longer():
    text = "24V, cafés, e-mails"
    old, new = (analyzer(name).leaf_terms([text]) for name in ("english/2", "english/3"))
    assert old.lengths.tolist() == new.lengths.tolist()
    assert len(new.entries) > len(old.entries)


def test_a_match_of_a_variant_is_the_text_that_it_varies():
    english = analyzer("english/3")
    text = "24kV, cafés, e-mails"
    for term, span in (("24", "24"), ("kv", "kV"), ("cafe", "cafés"), ("email", "e-mails")):
        matches = english.matches(text, np.array([term_id(term)], np.uint64))
        found = [text[a:b] for a, b in zip(matches.starts, matches.ends, strict=True)]
        assert found == [span]


def test_words_of_a_preferred_phrase_count_twice():
    terms = analyzer("english/3").query_terms(
        "What does slow start of E4711 mean", ("slow starts",)
    )
    factors = {term.text: term.factor for term in terms}
    assert factors == {"slow": 2, "start": 2, "e4711": 1, "4711": 0.1, "mean": 1}
