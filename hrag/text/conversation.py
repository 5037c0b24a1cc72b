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

# At most this many bytes of words are appended to a question: about 25 English words, or 50 Chinese
# characters. With more, the words outweigh the question.
_MAX_ADDED_BYTES = 150
_EDGES = re.compile(r"^\W+|\W+$")
_STOP_WORDS = frozenset().union(*STOP_WORDS.values())
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
    """Returns a question with the words of the questions before it, so that it can be searched for.

    The words of the last question come first. Stop words and the words of the question itself are
    left out, and so are quotes and plus signs, which would require a word. The question is
    returned unchanged if nothing can be added.
    """
    known = {word.casefold() for word in _words(question)} | _STOP_WORDS
    added: list[str] = []
    left_bytes = min(_MAX_ADDED_BYTES, MAX_QUERY_BYTES - len(question.encode()) - 1)
    for turn in reversed(history):
        for word in _words(turn.text) if turn.role is TurnRole.USER else ():
            if word.casefold() in known:
                continue
            known.add(word.casefold())
            fitting = word.encode()[: max(0, left_bytes)].decode("utf-8", "ignore")
            left_bytes -= len(fitting.encode()) + 1
            added += [fitting] if fitting else []
    return " ".join([question, *added])


def _words(text: str) -> list[str]:
    """Returns the parts of a text between white space, without punctuation at their ends.

    In scripts without spaces, a part is a whole clause or sentence.
    """
    parts = (_EDGES.sub("", part) for part in text.replace('"', " ").split())
    return [part for part in parts if part]
