"""Divides questions into kinds, and compares the systems on the questions of each kind.

A trait is a property that every question has, such as its length. The questions with the same value
of a trait are a kind. The traits come from the question file (`kind`, `language`), from the text of
the question, and from its gold. A trait that has the same value for all questions divides nothing
and is left out.

The boundary of a length is the median over the questions, so that both kinds have about half of
them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hrag.evaluation.bootstrap import Estimate, estimates
from hrag.evaluation.gold import ResolvedGold
from hrag.evaluation.questions import Question
from hrag.text.tokens import encode

# Further values of a trait become one kind, so that a file with a kind for every question stays
# readable. The most frequent values are kept.
MAX_VALUES = 8
OTHER = "other"

KIND = "kind in the file"
LANGUAGE = "language"
SCRIPT = "script"
QUESTION_WORD = "question word"
QUESTION_LENGTH = "length of the question"
CODES = "codes and numbers"
GOLD_LENGTH = "length of the gold"
GOLD_PIECES = "places of the gold"
GOLD_DOCUMENTS = "documents of the gold"

_SCRIPTS = ("LATIN", "CJK", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "HANGUL", "THAI")
_JAPANESE = ("HIRAGANA", "KATAKANA")
# The words that make a question, by the name under which reports show them: words of English,
# German, French and Spanish, and words of Chinese, which has no spaces. The first of them in a
# question decides; at the same place, the kind that is listed first.
_QUESTION_WORDS = {
    "how many, how much": (
        r"how (?:many|much|long|old|far|often)|wie ?viele?|combien|cu[aá]nt[oa]s?",
        "多少|几",
    ),
    "how": (r"how|wie|comment|c[oó]mo", "如何|怎么|怎样"),
    "why": (r"why|warum|weshalb|wieso|pourquoi|por qu[eé]", "为什么|为何"),
    "when": (r"when|what year|wann|quand|cu[aá]ndo", "何时|什么时候"),
    "where": (r"where|wo|wohin|woher|où|d[oó]nde", "哪里|何处|哪儿"),
    "who": (r"who|whom|whose|wer|wen|wem|qui|qui[eé]n(?:es)?", "谁"),
    "which": (r"which|welche[rsnm]?|quel(?:le)?s?|cu[aá]l(?:es)?", "哪"),
    "what": (r"what|was|que|quoi|qu[eé]", "什么"),
}
_WORD_PATTERN = re.compile(
    "|".join(
        rf"(?P<kind{number}>\b(?:{words})\b|{chinese})"
        for number, (words, chinese) in enumerate(_QUESTION_WORDS.values())
    ),
    re.IGNORECASE,
)
_CODE = re.compile(r"\d|\b[^\W\d_]*[A-Z]{2,}\w*\b")

Kinds = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The figures of all systems on the questions whose `trait` has the value `value`.

    `recall` contains the mean recall by system. `differences` contains, by system, the mean
    difference of its recall to the baseline's, and `judged` the net wins of its answers: (wins -
    losses) / questions. Both are without the baseline; `recall` and `differences` are empty if no
    question of the kind has gold, and `judged` if no question of the kind was judged.
    """

    trait: str
    value: str
    questions: int
    recall: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]
    judged: Mapping[str, Estimate]


def question_kinds(
    questions: Sequence[Question], golds: Mapping[str, ResolvedGold]
) -> dict[str, Kinds]:
    """Returns the kinds of each question, by question id: the value of each trait by its name.

    `golds` contains the gold of the questions that have gold, by question id.
    """
    traits = {
        KIND: [question.kind for question in questions],
        LANGUAGE: [question.language for question in questions],
        SCRIPT: [script(question.text) for question in questions],
        QUESTION_WORD: [question_word(question.text) for question in questions],
        QUESTION_LENGTH: _halves([len(encode(q.text)) for q in questions], "tokens"),
        CODES: [_codes(question.text) for question in questions],
        **_gold_traits([golds.get(question.question_id) for question in questions]),
    }
    kept = {name: _frequent(values) for name, values in traits.items() if len(set(values)) > 1}
    return {
        question.question_id: {name: values[at] for name, values in kept.items() if values[at]}
        for at, question in enumerate(questions)
    }


def _gold_traits(golds: Sequence[ResolvedGold | None]) -> dict[str, list[str]]:
    chars = [_gold_chars(gold) if gold else 0 for gold in golds]
    return {
        GOLD_LENGTH: _halves(chars, "characters"),
        GOLD_PIECES: [_one_or_more(len(gold.texts) if gold else 0, "place") for gold in golds],
        GOLD_DOCUMENTS: [_one_or_more(_documents(gold), "document") for gold in golds],
    }


def _gold_chars(gold: ResolvedGold) -> int:
    return sum(text.chars for text in gold.texts)


def _documents(gold: ResolvedGold | None) -> int:
    if gold is None:
        return 0
    if gold.documents is not None:
        return len(gold.documents)
    return len({place.document_id for text in gold.texts for place in text.places[:1]})


def _one_or_more(count: int, noun: str) -> str:
    return "" if not count else f"one {noun}" if count == 1 else f"several {noun}s"


def _halves(lengths: Sequence[int], unit: str) -> list[str]:
    """Returns for each length whether it is at most the median; "" for lengths of 0."""
    known = [length for length in lengths if length]
    boundary = int(np.median(known)) if known else 0
    short, long = f"up to {boundary:,} {unit}", f"over {boundary:,} {unit}"
    return ["" if not length else short if length <= boundary else long for length in lengths]


def script(text: str) -> str:
    """Returns the script of most letters in a text, such as "Latin"; "" if it has no letters.

    Text with kana is Japanese; the name of Chinese characters without kana is "Chinese".
    """
    names = [unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()]
    counts = Counter(name for name in names if name in (*_SCRIPTS, *_JAPANESE))
    if not counts:
        return OTHER if names else ""
    if any(counts[name] for name in _JAPANESE):
        return "Japanese"
    name = counts.most_common(1)[0][0]
    return "Chinese" if name == "CJK" else name.capitalize()


def question_word(text: str) -> str:
    """Returns the kind of the first question word in a text; OTHER if it has none."""
    match = _WORD_PATTERN.search(text)
    if match is None or match.lastgroup is None:
        return OTHER
    return list(_QUESTION_WORDS)[int(match.lastgroup.removeprefix("kind"))]


def _codes(text: str) -> str:
    return "in the question" if _CODE.search(text) else "not in the question"


def _frequent(values: Sequence[str]) -> list[str]:
    """Returns the values, of which all but the `MAX_VALUES` most frequent are replaced by OTHER."""
    counts = Counter(value for value in values if value)
    if len(counts) <= MAX_VALUES:
        return list(values)
    kept = {value for value, _ in counts.most_common(MAX_VALUES - 1)}
    return [value if value in kept or not value else OTHER for value in values]


def compare_kinds(
    kinds: Mapping[str, Kinds],
    recalls: Mapping[str, Mapping[str, float]],
    verdicts: Mapping[str, Mapping[str, int]],
    baseline: str,
    *,
    seed: int,
    resamples: int,
) -> tuple[KindFigures, ...]:
    """Returns the figures of each kind, in the order of traits and then of frequency.

    `recalls` contains the recall by question id and system, and `verdicts` by question id and
    system 1, 0 or -1: the system's answer wins, ties or loses against the baseline's.
    """
    members: dict[tuple[str, str], list[str]] = {}
    for question_id, values in kinds.items():
        for trait, value in values.items():
            members.setdefault((trait, value), []).append(question_id)
    order = list(dict.fromkeys(trait for trait, _ in members))
    by_size = sorted(members.items(), key=lambda item: (order.index(item[0][0]), -len(item[1])))
    return tuple(
        KindFigures(
            trait=trait,
            value=value,
            questions=len(names),
            recall=_means(names, recalls, seed, resamples),
            differences=_differences(names, recalls, baseline, seed, resamples),
            judged=_means(names, verdicts, seed, resamples),
        )
        for (trait, value), names in by_size
    )


def _means(
    names: Iterable[str],
    by_question: Mapping[str, Mapping[str, float]],
    seed: int,
    resamples: int,
) -> dict[str, Estimate]:
    """Returns the mean of each system over those of the named questions that have its value.

    If a call of the judge failed, a question has no value for this system.
    """
    values: dict[str, list[float]] = {}
    for name in names:
        for system, value in by_question.get(name, {}).items():
            values.setdefault(system, []).append(value)
    return {
        system: estimates(np.array([row], np.float64), seed, resamples)[0]
        for system, row in values.items()
    }


def _differences(
    names: Sequence[str],
    recalls: Mapping[str, Mapping[str, float]],
    baseline: str,
    seed: int,
    resamples: int,
) -> dict[str, Estimate]:
    differences = {
        name: {
            system: recall - recalls[name][baseline]
            for system, recall in recalls[name].items()
            if system != baseline
        }
        for name in names
        if name in recalls
    }
    return _means(names, differences, seed, resamples)
