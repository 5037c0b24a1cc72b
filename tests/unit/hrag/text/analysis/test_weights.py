"""The terms of a query have weights."""

import math

import pytest

from hrag.text.analysis import analyzer, term_weights

ENGLISH = analyzer("english/1")


def weights(
    text: str, frequency: int = 3, leaves: int = 100, **frequency_of_term: int
) -> dict[str, float]:
    """Returns the weight of each term of a query by its text."""
    terms = ENGLISH.query_terms(text)
    frequencies = [frequency_of_term.get(term.text, frequency) for term in terms]
    shares = term_weights(terms, frequencies, leaves)
    return dict(zip((term.text for term in terms), shares, strict=True))


def test_rare_words_weigh_more_and_all_weights_add_up_to_one():
    shares = weights("valve pressure", valv=1, pressur=50)
    assert math.isclose(sum(shares.values()), 1)
    idf = {
        name: math.log1p((100 - n + 0.5) / (n + 0.5)) for name, n in (("valv", 1), ("pressur", 50))
    }
    assert shares == pytest.approx({name: value / sum(idf.values()) for name, value in idf.items()})


def test_words_that_occur_nowhere_have_a_weight():
    assert weights("valve zyx", zyx=0)["zyx"] > 0.5


def test_joined_runs_weigh_half_and_characters_a_quarter():
    joined = weights("E-4711")
    assert joined["e-4711"] == pytest.approx(joined["4711"] / 2)
    chinese = weights("错误E4711")
    assert chinese["错"] == chinese["错误"] == pytest.approx(chinese["e4711"] / 4)


def test_pairs_and_joined_runs_that_occur_nowhere_have_no_weight():
    assert weights("a-b-c", **{"a-b-c": 0})["a-b-c"] == 0
    shares = weights("错误", 错误=0, 错=0)
    assert (shares["错误"], shares["错"], shares["误"]) == (
        0,
        pytest.approx(shares["错"]),
        shares["误"],
    )


def test_a_query_without_known_terms_has_no_weights():
    assert term_weights((), (), 10) == []
    assert term_weights(ENGLISH.query_terms("错误")[1:2], [0], 10) == [0.0]
