"""Documents in several formats that are computed from their tenant, id and version.

So a test that has written thousands of them remembers only their versions, and still knows which
words each must contain.
"""

import csv
import html
import io
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b

import docx

from hrag.types import Document
from tests.support.documents.format_files import saved
from tests.support.documents.messages import mail_file
from tests.support.documents.pdfs import pdf_of
from tests.support.documents.vocabulary import WORDS

_MAX_PARAGRAPHS = 12
_WORD = re.compile(r"\w+")


def word_of(tenant_id: str, document_id: str, version: int) -> str:
    """Returns a word that only this version of this document contains."""
    key = f"{tenant_id} {document_id} {version}".encode()
    return f"w{blake2b(key, digest_size=6).hexdigest()}"


@lru_cache(maxsize=1024)
def paragraphs_of(tenant_id: str, document_id: str, version: int) -> tuple[str, ...]:
    """Returns the paragraphs of a version, each of which begins with the version's word."""
    draw = random.Random(f"{tenant_id} {document_id} {version}")
    word = word_of(tenant_id, document_id, version)
    return tuple(
        f"{word} {' '.join(draw.choices(WORDS, k=draw.randint(20, 60)))}."
        for _ in range(draw.randint(1, _MAX_PARAGRAPHS))
    )


def _markdown(paragraphs: tuple[str, ...]) -> bytes:
    parts = [f"## Part {number}\n\n{text}\n" for number, text in enumerate(paragraphs)]
    return "\n".join(["# Notes\n", *parts]).encode()


def _html(paragraphs: tuple[str, ...]) -> bytes:
    body = "".join(f"<h2>Part</h2><p>{html.escape(text)}</p>" for text in paragraphs)
    return f"<!doctype html><title>Notes</title><body><main>{body}</main>".encode()


def _word(paragraphs: tuple[str, ...]) -> bytes:
    document = docx.Document()
    for text in paragraphs:
        document.add_heading("Part", 1)
        document.add_paragraph(text)
    return saved(document)


def _pdf(paragraphs: tuple[str, ...]) -> bytes:
    def lines(text: str) -> str:
        words = text.split()
        return "\n".join(" ".join(words[at : at + 8]) for at in range(0, len(words), 8))

    return pdf_of([lines(text) for text in paragraphs], title="Notes")


def _csv(paragraphs: tuple[str, ...]) -> bytes:
    file = io.StringIO()
    rows = csv.writer(file)
    rows.writerow(("Topic", "Fact"))
    rows.writerows(("notes", text) for text in paragraphs)
    return file.getvalue().encode()


def _mail(paragraphs: tuple[str, ...]) -> bytes:
    return mail_file("\n\n".join(paragraphs), Subject="Notes")


FORMATS: Mapping[str, Callable[[tuple[str, ...]], bytes]] = {
    "md": _markdown,
    "html": _html,
    "docx": _word,
    "pdf": _pdf,
    "csv": _csv,
    "eml": _mail,
}


def document_of(tenant_id: str, document_id: str, version: int) -> Document:
    """Returns a version of a document as a client sends it; its format is in its id, `d1.pdf`."""
    name, _, suffix = document_id.rpartition(".")
    body = FORMATS[suffix](paragraphs_of(tenant_id, document_id, version))
    metadata = {"version": version, "group": len(name) % 3}
    return Document(body, document_id, source=document_id, metadata=metadata)


def has_all_words(text: str, tenant_id: str, document_id: str, version: int) -> bool:
    """Returns True if the text has all words of a version of a document, in their order."""
    words = iter(_WORD.findall(text))
    paragraphs = paragraphs_of(tenant_id, document_id, version)
    return all(word in words for word in _WORD.findall(" ".join(paragraphs)))
