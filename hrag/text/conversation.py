"""Questions that refer to the turns before them: quoting the turns, and adding words of them.

The question "and how is it treated?" finds little, because its subject is in an earlier turn. So
the words of the last turns are appended to it. This needs no model and no analyzer, so clients can
do it too.
"""

import re
from collections.abc import Sequence

from hrag.text.plain_text import quoted_lines, without_markers
from hrag.text.stop_words import STOP_WORDS
from hrag.values.conversation import ConversationTurn, TurnRole
from hrag.values.limits import MAX_QUERY_BYTES

# At most this many bytes of words are appended to a question: about 10 English words, or 20 Chinese
# characters. With more, the words outweigh the question.
_MAX_ADDED_BYTES = 60
# A question with a name and without a pronoun stands alone if it has at least this many bytes. A
# shorter one may still leave something out ("And in Berlin?").
_MIN_STANDALONE_BYTES = 36
# A text from its first to its last letter or digit. It is found in linear time, also in a long run
# of punctuation.
_WITHOUT_EDGES = re.compile(r"\w(?:.*\w)?", re.DOTALL)
_SENTENCE_ENDS = (".", "?", "!", ":")
_STOP_WORDS = frozenset().union(*STOP_WORDS.values())
_PRONOUNS = re.compile(
    r"\b(it|its|they|them|their|he|him|his|she|her|this|that|these|those|there|one|ones)\b"
    r"|[它他她其此这那]",
    re.IGNORECASE,
)
_SPEAKERS = {TurnRole.USER: "User:", TurnRole.ASSISTANT: "Assistant:"}


def quoted_turns(turns: Sequence[ConversationTurn]) -> str:
    """Returns the turns for a prompt: who spoke, and below it the text with `> ` before each line.

    Numbers in brackets get other brackets. So no turn can look like another turn, like a passage,
    like a marker or like a line of the prompt around it.
    """
    return "\n\n".join(
        f"{_SPEAKERS[turn.role]}\n{without_markers(quoted_lines(turn.text.strip()))}"
        for turn in turns
    )


def with_last_turns(question: str, history: Sequence[ConversationTurn]) -> str:
    """Returns a question with words of the questions before it, so that it can be searched for.

    The words are the names in these questions, or all words if they have no names; those of the
    last question come first. Stop words and the words of `question` are left out, and so are quotes
    and plus signs, which would require a word. `question` is returned unchanged if nothing can be
    added, or if it has a name itself and no pronoun.
    """
    if _stands_alone(question):
        return question
    known = {word.casefold() for word in _words(question)} | _STOP_WORDS
    added: list[str] = []
    left_bytes = min(_MAX_ADDED_BYTES, MAX_QUERY_BYTES - len(_encoded(question)) - 1)
    asked = [turn.text for turn in reversed(history) if turn.role is TurnRole.USER]
    names = [name for text in asked for name in _names(text)]
    for word in names or [word for text in asked for word in _words(text)]:
        if word.casefold() in known:
            continue
        known.add(word.casefold())
        fitting = _encoded(word)[: max(0, left_bytes)].decode("utf-8", "ignore")
        left_bytes -= len(fitting.encode()) + 1
        added += [fitting] if fitting else []
    return " ".join([question, *added])


def has_pronoun(text: str) -> bool:
    """Returns True if an English or Chinese text has a pronoun that may refer to another text."""
    return _PRONOUNS.search(text) is not None


def _stands_alone(question: str) -> bool:
    is_long = len(_encoded(question)) >= _MIN_STANDALONE_BYTES
    return is_long and bool(_names(question)) and not has_pronoun(question)


def _names(text: str) -> list[str]:
    """Returns the words of a text that look like names: they have a capital letter or a digit.

    The first letter of a sentence does not count. In scripts without capital letters, all words
    look like names.
    """
    names, begins_sentence = [], True
    for part in text.replace('"', " ").split():
        word = _without_edges(part)
        if any(map(_is_of_name, word[1:] if begins_sentence else word)):
            names.append(word)
        begins_sentence = part.endswith(_SENTENCE_ENDS)
    return [name for name in names if name.casefold() not in _STOP_WORDS]


def _encoded(text: str) -> bytes:
    """Returns a text in UTF-8. A lone surrogate is no error here; the server refuses it."""
    return text.encode("utf-8", "surrogatepass")


def _is_of_name(character: str) -> bool:
    return character.isdigit() or (character.isalpha() and not character.islower())


def _words(text: str) -> list[str]:
    """Returns the parts of a text between white space, without punctuation at their ends.

    In scripts without spaces, a part is a whole clause or sentence.
    """
    parts = (_without_edges(part) for part in text.replace('"', " ").split())
    return [part for part in parts if part]


def _without_edges(part: str) -> str:
    """Returns a part of a text without the punctuation at its ends."""
    match = _WITHOUT_EDGES.search(part)
    return match[0] if match else ""
