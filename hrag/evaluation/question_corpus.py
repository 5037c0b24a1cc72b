"""Reads the documents to search from a file `corpus.jsonl`, with one document in each line.

A line has `_id` (or `doc_id`), `title` and `text`, as in BEIR, and optionally `lang` and
`mime_type`. If a line has no `mime_type` and its text begins with a Markdown heading, the text is
read as Markdown, so that its sections are recognised. If the text is blank, the title is used as
the text. Some documents of BEIR have neither a text nor a title.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from hrag.evaluation.json_lines import Row, json_rows, unreadable
from hrag.values.documents import Document
from hrag.values.errors import InvalidArgument
from hrag.values.formats import MARKDOWN, PLAIN_TEXT
from hrag.values.ids import MAX_DOCUMENT_ID_BYTES, check_document_id

CORPUS = "corpus.jsonl"
ID_FIELDS = ("doc_id", "_id", "document_id")

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._:-]")
_HEADING = re.compile(r"#{1,6} \S")
_HASH_DIGITS = 8


def corpus_path(path: Path) -> Path:
    """Returns the corpus file in a folder; if `path` is not a folder, returns `path` itself."""
    return path / CORPUS if path.is_dir() else path


def read_corpus(path: Path) -> Iterator[Document]:
    """Yields the documents of a corpus while the file is being read.

    Raises InvalidArgument if the file is missing or invalid; the error names file, line and
    field.
    """
    file = corpus_path(path)
    if not file.is_file():
        raise unreadable(file, "no such file; a corpus is a .jsonl file or a folder with one")
    yield from map(_document, json_rows(file))


def document_lengths(path: Path) -> dict[str, int]:
    """Returns the length of each document's text, in code points, by document id."""
    return {document.document_id: len(str(document.body)) for document in read_corpus(path)}


def document_id_of(name: str) -> str:
    """Returns the document id for an id in a corpus.

    A valid id stays the same. In an invalid id, the characters that are not allowed are replaced,
    and a hash is appended. So different ids stay different.
    """
    try:
        return check_document_id(name)
    except InvalidArgument:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
        readable = _NOT_ALLOWED.sub("_", name)[: MAX_DOCUMENT_ID_BYTES - _HASH_DIGITS - 2]
        return f"d{readable}-{digest}"


def _document(row: Row) -> Document:
    title = row.text("title", default="")
    text = row.text("text", default="")
    text = text if text.strip() else title
    mime_type = MARKDOWN if _HEADING.match(text) else PLAIN_TEXT
    language = row.text("lang", default="")
    return Document(
        body=text,
        document_id=document_id_of(row.text(*ID_FIELDS)),
        title=title,
        mime_type=row.text("mime_type", default=mime_type),
        metadata={"lang": language} if language else {},
    )
