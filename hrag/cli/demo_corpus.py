"""The documents and questions of `hrag demo`.

Without files from the user, the corpus is the help topics that ship with Python. Every machine
that runs hrag has them, they are real prose, and the right topic for a question about Python is
known. Some topics repeat the text of other topics, so a question may have several right topics.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest

from hrag.cli.input_documents import InputDocument
from hrag.cli.terminal import Failure
from hrag.values.documents import Document

_MIN_QUESTION_CHARS = 8
_MAX_QUESTION_CHARS = 120
# A heading with fewer words, for example "2. Layout", cannot serve as a question.
_MIN_HEADING_WORDS = 3
# The maximum number of questions from one document. This number is enough for a demo with a single
# document.
_QUESTIONS_PER_DOCUMENT = 12
# A paragraph that begins with one of these characters is not prose, for example a table or a list.
_NO_PROSE = ("#", "|", "-", "*", ">", "`", "=", "~")
_NUMBER = re.compile(r"^[\d.]+\s+")
_SENTENCE = re.compile(r"[^.!?。！？]+[.!?。！？]?")


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question of the demo.

    `right` contains the ids of the documents that answer the question. It is empty if they are not
    known.
    """

    text: str
    right: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredText:
    """A stored document's text and the headings that the indexer found in it."""

    headings: tuple[str, ...]
    text: str


QUESTIONS = (
    DemoQuestion("How do I raise an exception from another one?", ("raise",)),
    DemoQuestion("What does a generator's yield expression return?", ("yield",)),
    DemoQuestion("What is the difference between is and ==?", ("comparisons",)),
    DemoQuestion("How do I split a string into words?", ("string-methods",)),
    DemoQuestion("How do I define a class with a metaclass?", ("specialnames", "class")),
    DemoQuestion("How does Python find a module when I import it?", ("import",)),
    DemoQuestion("How do I set a breakpoint in the debugger?", ("debugger",)),
    DemoQuestion("Which values are considered false?", ("booleans", "truth")),
)


def topics() -> list[InputDocument]:
    """Returns Python's help topics, sorted by name. Raises Failure if Python lacks them."""
    try:
        # The imported module has half a megabyte, so it is loaded only when the topics are needed.
        from pydoc_data.topics import topics as texts  # noqa: PLC0415
    except ImportError:
        raise Failure(
            "this Python installation lacks its help topics (pydoc_data); "
            "give files to use instead: hrag demo PATH..."
        ) from None
    return [InputDocument(key, partial(_topic, key, texts[key])) for key in sorted(texts)]


def _topic(key: str, text: str) -> Document:
    title = next(filter(None, map(str.strip, text.splitlines())), key)
    return Document(text, key, title=title, source=f"pydoc:{key}")


def questions_from(documents: Sequence[StoredText], count: int) -> list[DemoQuestion]:
    """Returns at most `count` different questions; their texts are from the documents.

    First comes the first question from each document, then the second question from each document,
    and so on. The questions from a document are its headings, then the first sentences of its
    paragraphs.
    """
    in_turn = filter(None, chain.from_iterable(zip_longest(*map(_candidates, documents))))
    return [DemoQuestion(text) for text in dict.fromkeys(in_turn)][:count]


def _candidates(document: StoredText) -> list[str]:
    """Returns those headings and sentences of a document that can serve as questions.

    The result has no duplicates.
    """
    unnumbered = (_NUMBER.sub("", heading) for heading in document.headings)
    headings = (heading for heading in unnumbered if len(heading.split()) >= _MIN_HEADING_WORDS)
    texts = (" ".join(text.split()) for text in chain(headings, _first_sentences(document.text)))
    fitting = [text for text in texts if _MIN_QUESTION_CHARS <= len(text) <= _MAX_QUESTION_CHARS]
    return list(dict.fromkeys(fitting))[:_QUESTIONS_PER_DOCUMENT]


def _first_sentences(text: str) -> Iterator[str]:
    """Yields the first sentence of every paragraph that is prose, not a table, list or heading."""
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip().startswith(_NO_PROSE) and (match := _SENTENCE.search(paragraph)):
            yield match[0].strip()
