"""Follow-up questions, made from the questions of development sets.

The subject of a question is the longest name (in Chinese: the longest run of characters that begins
a clause) that the question shares with another question about the same document. In the follow-up,
a pronoun stands in place of the subject, or the subject is left out. The other question, with its
answer, is the turn before. So the follow-up has the gold of the full question, and only the history
names the subject.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from benchmarks.quality.sets import QualitySet
from hrag.evaluation.questions import GoldSpan, Question
from hrag.text.stop_words import STOP_WORDS
from hrag.types import ConversationTurn, TurnRole

SEED = 0
COUNT = 200

# An answer of the history is cut to this many characters: a few sentences.
_ANSWER_CHARS = 300
_WORD = re.compile(r"[\w'’-]+")
_CHINESE = re.compile(r"[\u4e00-\u9fff]+")
_POSSESSIVE = re.compile(r"['’]s?$")
# Words before a subject that go with it: a determiner always, a preposition if it is left out.
_DETERMINERS = frozenset(("the", "a", "an"))
_PREPOSITIONS = frozenset(
    ("of", "for", "in", "by", "to", "from", "with", "on", "at", "about", "during")
)
_COMMON = STOP_WORDS["english"]
# Chinese characters that may end a shared run without being part of a subject. No subject begins
# with one of them.
_FUNCTION_CHARACTERS = (
    "的了是在和与或及等吗呢吧啊被把对将由从到为以于中有无什么哪谁怎样如何多少几个能可要应否不会后前"
)
_MIN_CHINESE = 3


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up question, the full question it was made from, and the turns before it."""

    full: Question
    text: str
    history: tuple[ConversationTurn, ...]


def follow_ups(sets: Iterable[QualitySet], count: int = COUNT) -> dict[str, list[FollowUp]]:
    """Returns `count` follow-ups by the name of their set, as many of each set as possible.

    The same sets always give the same follow-ups. Returns fewer if the sets do not have enough.
    """
    made = {quality_set.name: list(_of_set(quality_set)) for quality_set in sets}
    rounds = zip_longest(
        *([(name, made_of) for made_of in of_set] for name, of_set in made.items())
    )
    chosen = [entry for entries in rounds for entry in entries if entry is not None][:count]
    result = defaultdict(list)
    for name, follow_up in chosen:
        result[name].append(follow_up)
    return dict(result)


def _of_set(quality_set: QualitySet) -> Iterator[FollowUp]:
    """Yields at most one follow-up for each question of a set, in random order."""
    draw = random.Random(f"{SEED} {quality_set.name}")
    texts = {document.document_id: str(document.body) for document in quality_set.documents()}
    questions = draw.sample(quality_set.questions, len(quality_set.questions))
    for question in questions:
        others = [
            other
            for other in questions
            if other.text != question.text and other.document_ids == question.document_ids
        ]
        pairs = ((len(_shared(question.text, other.text)), other) for other in others)
        size, before = max(pairs, key=lambda pair: pair[0], default=(0, question))
        text = _without_subject(question.text, before.text, draw) if size else ""
        if text:
            turns = [ConversationTurn(TurnRole.USER, before.text)]
            turns.append(ConversationTurn(TurnRole.ASSISTANT, _answer(before, texts)))
            yield FollowUp(question, text, tuple(turns))


def _answer(question: Question, texts: dict[str, str]) -> str:
    """Returns the start of the first text that answers a question."""
    gold = question.gold[0]
    assert isinstance(gold, GoldSpan)
    document_id, start, end = gold.span
    return texts[document_id][start:end].strip()[:_ANSWER_CHARS]


def _without_subject(text: str, other: str, draw: random.Random) -> str:
    """Returns a question without the subject that it shares with another; "" if nothing is left."""
    leaves_out = draw.random() < 0.5
    subject = _shared(text, other)
    if _CHINESE.search(text):
        rest = text.replace(subject, "" if leaves_out else "它", 1)
        remaining = len("".join(_CHINESE.findall(rest))) - rest.count("它")
        return rest if remaining >= _MIN_CHINESE else ""
    start = text.index(subject)
    before = _WORD.findall(text[:start])
    is_possessive = _POSSESSIVE.search(subject) is not None
    if before and before[-1].lower() in _DETERMINERS:
        start = text.rindex(before.pop(), 0, start)
    leaves_out = leaves_out and not is_possessive
    if leaves_out and before and before[-1].lower() in _PREPOSITIONS:
        start = text.rindex(before.pop(), 0, start)
        pronoun = ""
    else:
        pronoun = "its" if is_possessive else "it"
    rest = f"{text[:start]}{pronoun}{text[text.index(subject) + len(subject) :]}"
    rest = re.sub(r"\s+(?=[?.,])|(?<=\s)\s+", "", rest)
    has_content = any(word.lower() not in _COMMON for word in _WORD.findall(rest))
    return rest if has_content else ""


def _shared(text: str, other: str) -> str:
    """Returns the subject that two questions share, as it is written in `text`; "" if none."""
    return _shared_chinese(text, other) if _CHINESE.search(text) else _shared_words(text, other)


def _shared_words(text: str, other: str) -> str:
    words = list(_WORD.finditer(text))
    keys, other_keys = _keys(text), _keys(other)
    runs = SequenceMatcher(None, keys, other_keys, autojunk=False).get_matching_blocks()
    subjects = (_subject(text, words[run.a : run.a + run.size], keys[run.a :]) for run in runs)
    return max(subjects, key=len)


def _keys(text: str) -> list[str]:
    return [_POSSESSIVE.sub("", word).lower() for word in _WORD.findall(text)]


def _subject(text: str, words: Sequence[re.Match[str]], keys: Sequence[str]) -> str:
    """Returns the part of a run of words that is a name; "" if there is none.

    A name is what stands between the first and the last word with a capital letter or a digit. The
    first word of a question has a capital letter anyway.
    """
    names = [
        index
        for index, word in enumerate(words)
        if word.start() > 0 and re.search(r"[\dA-Z]", word[0]) and keys[index] not in _COMMON
    ]
    return text[words[names[0]].start() : words[names[-1]].end()] if names else ""


def _shared_chinese(text: str, other: str) -> str:
    """Returns the longest shared run that begins a clause of one of the questions."""
    subjects = [""]
    for run in SequenceMatcher(None, text, other, autojunk=False).get_matching_blocks():
        begins = _begins_clause(text, run.a) or _begins_clause(other, run.b)
        characters = _CHINESE.match(text[run.a : run.a + run.size])
        if begins and characters:
            subject = characters[0].rstrip(_FUNCTION_CHARACTERS)
            is_subject = len(subject) >= _MIN_CHINESE and subject[0] not in _FUNCTION_CHARACTERS
            subjects.append(subject if is_subject else "")
    return max(subjects, key=len)


def _begins_clause(text: str, start: int) -> bool:
    return start == 0 or text[start - 1] in "，。？！；：,?! "
