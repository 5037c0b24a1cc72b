"""Questions are divided into kinds by what they say, by their gold, and by the user's words."""

import pytest

from hrag.evaluation.gold import GoldText, ResolvedGold
from hrag.evaluation.question_kinds import (
    CODES,
    GOLD_DOCUMENTS,
    GOLD_LENGTH,
    GOLD_PIECES,
    KIND,
    LANGUAGE,
    MAX_VALUES,
    OTHER,
    QUESTION_LENGTH,
    SCRIPT,
    compare_kinds,
    question_kinds,
    question_word,
    script,
)
from hrag.evaluation.questions import Question, TextSpan


def kinds_of(*texts: str) -> list[dict[str, str]]:
    questions = [Question(f"q{n}", text) for n, text in enumerate(texts)]
    return [dict(kinds) for kinds in question_kinds(questions, {}).values()]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("What is IFITM?", "what"),
        ("In which year was it?", "which"),
        ("how many cysteines are there?", "how many, how much"),
        ("How does it work?", "how"),
        ("Somehow, who knows?", "who"),
        ("Wie viele Pumpen hat die Anlage?", "how many, how much"),
        ("Warum steht sie?", "why"),
        ("Où est la pompe ?", "where"),
        ("¿Cuándo empieza?", "when"),
        ("劳动者可以如何解除合同？", "how"),
        ("试用期最长多少个月？", "how many, how much"),
        ("谁负责？", "who"),
        ("pump pressure", OTHER),
        ("whatever", OTHER),
        ("", OTHER),
    ],
)
def test_the_first_question_word_decides(text: str, word: str) -> None:
    assert question_word(text) == word


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What?", "Latin"),
        ("劳动合同 E-4711", "Chinese"),
        ("東京はどこですか", "Japanese"),
        ("Где насос?", "Cyrillic"),
        ("4711?", ""),
        ("ქართული", OTHER),
    ],
)
def test_the_script_is_that_of_most_letters(text: str, name: str) -> None:
    assert script(text) == name


def test_only_traits_that_divide_the_questions_are_kept() -> None:
    assert kinds_of("What is it?", "What is it?") == [{}, {}]
    first, second = kinds_of("What does E-4711 mean?", "What does it mean?")
    assert (first[CODES], second[CODES]) == ("in the question", "not in the question")
    assert SCRIPT not in first
    assert first[QUESTION_LENGTH].startswith("over ")
    assert second[QUESTION_LENGTH].startswith("up to ")


@pytest.mark.parametrize("code", ["E-4711", "24V", "MERS patients", "§ 3"])
def test_codes_and_numbers_are_recognised(code: str) -> None:
    with_code, without = kinds_of(f"What about {code}?", "What about Anna?")
    assert with_code[CODES] == "in the question"
    assert without[CODES] == "not in the question"


def test_the_words_of_the_file_are_kinds_and_rare_ones_are_joined() -> None:
    questions = [
        Question(f"q{n}", "What?", kind=f"kind {min(n // 2, MAX_VALUES)}", language="de")
        for n in range(2 * MAX_VALUES + 1)
    ]
    kinds = question_kinds(questions, {})
    values = [one[KIND] for one in kinds.values()]
    assert values[0] == "kind 0"
    assert values[-1] == OTHER
    assert len(set(values)) == MAX_VALUES
    assert LANGUAGE not in kinds["q0"]


def test_the_gold_has_traits() -> None:
    places = [TextSpan("a", 0, 10), TextSpan("b", 0, 30)]
    one = ResolvedGold((GoldText((places[0],), 10),))
    two = ResolvedGold(tuple(GoldText((place,), place.char_end) for place in places))
    documents = ResolvedGold(documents={"a": 1})
    questions = [Question(name, "What?") for name in ("one", "two", "documents", "none")]
    kinds = question_kinds(questions, {"one": one, "two": two, "documents": documents})
    assert [kinds[q.question_id].get(GOLD_PIECES) for q in questions] == [
        *("one place", "several places", None, None)
    ]
    assert [kinds[q.question_id].get(GOLD_DOCUMENTS) for q in questions] == [
        *("one document", "several documents", "one document", None)
    ]
    assert kinds["one"][GOLD_LENGTH] == "up to 25 characters"
    assert kinds["two"][GOLD_LENGTH] == "over 25 characters"


def test_kinds_are_compared_over_the_questions_that_have_values() -> None:
    kinds = {"a": {KIND: "x"}, "b": {KIND: "x"}, "c": {KIND: "y"}}
    recalls = {"a": {"context": 1.0, "standard": 0.5}, "c": {"context": 0.0, "standard": 0.0}}
    verdicts: dict[str, dict[str, int]] = {"b": {"context": 1}, "c": {}}
    x, y = compare_kinds(kinds, recalls, verdicts, "standard", seed=0, resamples=10)
    assert (x.value, x.questions, y.questions) == ("x", 2, 1)
    assert (x.differences["context"].mean, x.differences["context"].questions) == (0.5, 1)
    assert "standard" not in x.differences
    assert (x.judged["context"].mean, x.recall["standard"].mean) == (1, 0.5)
    assert y.judged == {}
