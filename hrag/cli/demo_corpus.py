"""What the demonstration stores and asks.

Without files of the user's it takes the help topics that ship with Python, because every
machine that runs hrag has them, they are real prose of some length, and the right topic
for a question about Python is known. Several topics repeat each other's text; each of
those is right.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest

from hrag.cli.console import Failure
from hrag.cli.files import Source, headings
from hrag.types import Document

_MIN_QUESTION_CHARS = 8
_MAX_QUESTION_CHARS = 120
_SENTENCE = re.compile(r"[^.!?。！？]+[.!?。！？]?")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the documents that answer it; none where that is not known."""

    text: str
    right: tuple[str, ...] = ()


QUESTIONS = (
    Question("How do I catch more than one kind of exception?", ("try", "compound")),
    Question("When are default parameter values evaluated?", ("function", "compound")),
    Question("What is the difference between is and ==?", ("comparisons",)),
    Question("How do I format a number with thousands separators?", ("formatstrings",)),
    Question("How do I define a class with a metaclass?", ("specialnames", "class")),
    Question("How does Python find a module when I import it?", ("import",)),
    Question("How do I set a breakpoint in the debugger?", ("debugger",)),
    Question("Which values are considered false?", ("booleans", "truth")),
)


def topics() -> list[Source]:
    """Python's help topics, in order of name."""
    try:
        from pydoc_data.topics import topics as texts  # noqa: PLC0415 - half a megabyte
    except ImportError:
        raise Failure(
            "this Python comes without its help topics (pydoc_data); "
            "name files to use instead: hrag demo PATH..."
        ) from None
    return [Source(key, partial(_topic, key, texts[key])) for key in sorted(texts)]


def _topic(key: str, text: str) -> Document:
    title = next(filter(None, map(str.strip, text.splitlines())), key)
    return Document(body=text, document_id=key, title=title, source=f"pydoc:{key}")


def questions_from(texts: Sequence[tuple[str, str]], count: int) -> list[Question]:
    """At most `count` questions that (document id, text) pairs answer, from them in turn.

    A document's own headings, below its first, ask best; then its sentences do.
    """
    each = [[Question(asked, (name,)) for asked in _asked_by(text)] for name, text in texts]
    in_turn = filter(None, chain.from_iterable(zip_longest(*each)))
    different = {question.text: question for question in reversed(list(in_turn))}
    return list(reversed(different.values()))[:count]


_PER_DOCUMENT = 12  # Enough for one document alone to fill a demonstration.


def _asked_by(text: str) -> list[str]:
    found = chain(list(headings(text))[1:], _first_sentences(text), headings(text))
    usable = (" ".join(each.split()) for each in found)
    fitting = [each for each in usable if _MIN_QUESTION_CHARS <= len(each) <= _MAX_QUESTION_CHARS]
    return list(dict.fromkeys(fitting))[:_PER_DOCUMENT]


def _first_sentences(text: str) -> Iterator[str]:
    """How each paragraph begins, headings left out."""
    for paragraph in re.split(r"\n\s*\n", text):
        if (found := _SENTENCE.search(paragraph)) and not paragraph.lstrip().startswith("#"):
            yield found[0].strip()
