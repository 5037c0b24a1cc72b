"""Reads the passages that another tool has retrieved, so that they can be compared with searches.

The file has one JSON object in each line, for one question: `qid` and `passages`, best first. A
passage is a part of a document's text in hrag. It has `doc_id` with `start` and `end`, in code
points, or `doc_id` with `text`. A text is looked up in the document; white space may differ. If it
is there several times, its first place counts.

The tool must have read the same documents. A passage that is not in the text of its document cannot
be compared, so its question counts as failed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hrag.evaluation.json_lines import Row, json_rows
from hrag.evaluation.question_corpus import ID_FIELDS, document_id_of
from hrag.evaluation.questions import TextSpan
from hrag.evaluation.retrieved import quote_pattern
from hrag.text.tokens import encode
from hrag.values.chunks import Chunk, Span
from hrag.values.errors import ChunkNotFound, InvalidArgument
from hrag.values.ids import quoted
from hrag.values.search import Passage

_SHOWN_CHARS = 40


class QuotedPassage(NamedTuple):
    """A passage that is given by its text."""

    document_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievedLine:
    """The passages that a tool has retrieved for one question, best first.

    `place` is the file and the line, as they are written in error messages.
    """

    place: str
    passages: tuple[TextSpan | QuotedPassage, ...]


@cache
def read_retrieved(path: Path) -> Mapping[str, RetrievedLine]:
    """Returns the lines of a file by the id of their question. Reads each file only once.

    Raises InvalidArgument, which names the line and the field, if the file cannot be read or used.
    """
    lines: dict[str, RetrievedLine] = {}
    for row in json_rows(path):
        question_id = row.text("qid", "_id")
        if question_id in lines:
            row.refuse("qid", question_id, f"different from the id in {lines[question_id].place}")
        if "passages" not in row.fields:
            row.refuse("passages", "missing", "a list of objects")
        passages = tuple(map(_passage, row.rows("passages")))
        lines[question_id] = RetrievedLine(row.place, passages)
    return lines


def _passage(row: Row) -> TextSpan | QuotedPassage:
    document_id = document_id_of(row.text(*ID_FIELDS))
    if "text" in row.fields:
        return QuotedPassage(document_id, row.text("text"))
    start = row.number("start", at_least=0)
    return TextSpan(document_id, start, row.number("end", at_least=start + 1))


def retrieved_passages(
    path: Path, question_id: str, text_of: Callable[[str], str]
) -> tuple[Passage, ...]:
    """Returns the passages that the file has for a question, best first.

    `text_of` returns the text of the document with an id. Raises InvalidArgument if the file has no
    line for the question, ChunkNotFound if a passage is not in the text of its document, and the
    errors of `text_of`.
    """
    line = read_retrieved(path).get(question_id)
    if line is None:
        raise InvalidArgument(f"{path} has no line for the question {quoted(question_id)}")
    return tuple(_located(passage, text_of(passage.document_id), line) for passage in line.passages)


def _located(passage: TextSpan | QuotedPassage, text: str, line: RetrievedLine) -> Passage:
    document_id = passage.document_id
    if isinstance(passage, QuotedPassage):
        match = quote_pattern(passage.text).search(text)
        if match is None:
            shown = quoted(passage.text[:_SHOWN_CHARS])
            raise ChunkNotFound(
                f"{line.place}: the document {document_id!r} does not contain the text that begins "
                f"with {shown}"
            )
        passage = TextSpan(document_id, *match.span())
    if passage.char_end > len(text):
        raise ChunkNotFound(
            f"{line.place}: end is {passage.char_end:,}; the document {document_id!r} has "
            f"{len(text):,} characters"
        )
    return _as_passage(passage, text)


def _as_passage(span: TextSpan, text: str) -> Passage:
    """Returns a passage with the text of `span`. It is no chunk of hrag, so it has no chunk id."""
    document_id, start, end = span
    content = text[start:end]
    byte_start = len(text[:start].encode())
    byte_end = byte_start + len(content.encode())
    chunk = Chunk(
        chunk_id="",
        document_id=document_id,
        level=0,
        index=0,
        content=content,
        token_count=len(encode(content)),
        span=Span(byte_start, byte_end, start, end),
        section_path=(),
        first_page=0,
        last_page=0,
        title=document_id,
        source="",
        metadata={},
    )
    return Passage(chunk, 0.0, ())
