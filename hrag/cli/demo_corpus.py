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
_MIN_HEADING_WORDS = 3  # "2. Layout" asks nothing.
_PER_DOCUMENT = 12  # Enough for one document alone to fill a demonstration.
_NO_PROSE = ("#", "|", "-", "*", ">", "`", "=", "~")
_NUMBER = re.compile(r"^[\d.]+\s+")
_SENTENCE = re.compile(r"[^.!?。！？]+[.!?。！？]?")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the documents that answer it; none where that is not known."""

    text: str
    right: tuple[str, ...] = ()


QUESTIONS = (
    Question("How do I raise an exception from another one?", ("raise",)),
    Question("What does a generator's yield expression return?", ("yield",)),
    Question("What is the difference between is and ==?", ("comparisons",)),
    Question("How do I split a string into words?", ("string-methods",)),
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


def questions_from(texts: Sequence[str], count: int) -> list[Question]:
    """At most `count` questions that the texts answer, from them in turn.

    A document's own headings ask best; then the beginnings of its paragraphs do.
    """
    in_turn = filter(None, chain.from_iterable(zip_longest(*map(_asked_by, texts))))
    return [Question(text) for text in dict.fromkeys(in_turn)][:count]


def _asked_by(text: str) -> list[str]:
    """Headings that say something, then how paragraphs begin."""
    named = (_NUMBER.sub("", heading) for heading in headings(text))
    telling = (name for name in named if len(name.split()) >= _MIN_HEADING_WORDS)
    found = (" ".join(each.split()) for each in chain(telling, _first_sentences(text)))
    fitting = [each for each in found if _MIN_QUESTION_CHARS <= len(each) <= _MAX_QUESTION_CHARS]
    return list(dict.fromkeys(fitting))[:_PER_DOCUMENT]


def _first_sentences(text: str) -> Iterator[str]:
    """How each paragraph of prose begins."""
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(_NO_PROSE) and (found := _SENTENCE.search(paragraph)):
            yield found[0].strip()
