"""Files of twelve formats are searched and cited. The command line's reader finds the files."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from hrag.cli.ingest_files import find
from hrag.client import Client
from hrag.errors import UnreadableDocument
from hrag.types import Document, IngestResult, Passage, Retrieval
from tests.support.documents.format_files import (
    DANCE,
    HONEY,
    TITLE,
    docx_file,
    epub_file,
    html_page,
    pptx_file,
    xlsx_file,
)
from tests.support.documents.pdfs import Bookmark, pdf_of
from tests.support.servers.processes import Running

CODE = f'class Honey:\n    def ripen(self):\n        """{HONEY}"""\n# Dance\n'
LINES = [{"_id": "bee-1", "text": DANCE}, {"text": HONEY, "title": TITLE, "year": 2026}]
FILES: Mapping[str, bytes] = {
    "a.txt": HONEY.encode(),
    "b.md": f"# {TITLE}\n\n## Honey\n\n{HONEY}".encode(),
    "c.pdf": pdf_of([DANCE, f"Honey\n{HONEY}"], [Bookmark("Honey", 1, 1)], title=TITLE),
    "d.html": html_page(),
    "e.docx": docx_file(),
    "f.pptx": pptx_file(),
    "g.xlsx": xlsx_file(),
    "h.epub": epub_file(),
    "i.csv": f"Topic;Fact\nHoney;{HONEY}\n".encode(),
    "j.rst": f"{TITLE}\n======\n\nHoney\n-----\n\n{HONEY}\n".encode(),
    "k.py": CODE.encode(),
    "l.jsonl": "\n".join(map(json.dumps, LINES)).encode(),
}
# The citation that each document must get: its title, and the section path, the first and last page
# and the text of the sentence that matches.
EXPECTED = {
    "a.txt": ("", (), (0, 0), HONEY),
    "b.md": (TITLE, (TITLE, "Honey"), (0, 0), HONEY),
    "c.pdf": (TITLE, ("Honey",), (2, 2), HONEY),
    "d.html": (TITLE, ("Dance", "Honey"), (0, 0), HONEY),
    "e.docx": (TITLE, ("Dance", "Honey"), (0, 0), HONEY),
    "f.pptx": (TITLE, ("Slide 3",), (3, 3), HONEY),
    "h.epub": (TITLE, ("Honey",), (0, 0), HONEY),
    "i.csv": ("", (), (2, 2), HONEY),
    "j.rst": (TITLE, (TITLE, "Honey"), (0, 0), HONEY),
    "k.py": ("", ("class Honey", "def ripen"), (0, 0), HONEY),
    "l.jsonl:2": (TITLE, (), (0, 0), HONEY),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def _cited(passage: Passage) -> tuple[str, tuple[str, ...], tuple[int, int], str]:
    chunk, sentence = passage.chunk, passage.matched_sentence
    sentence_text = chunk.content[
        sentence.span.char_start - chunk.span.char_start : sentence.span.char_end
        - chunk.span.char_start
    ]
    return (
        chunk.title,
        sentence.section_path,
        (sentence.first_page, sentence.last_page),
        sentence_text,
    )


def test_twelve_formats_are_cited_by_title_section_and_page(
    services: Running, tenant: str, folder: Path
) -> None:
    client: Client = services.client
    results = list(
        client.ingest_many(tenant, (file.read().document for file in find([folder]).documents))
    )
    assert all(isinstance(result, IngestResult) for result in results), results
    assert len(results) == len(FILES) + 1

    passages = client.search(tenant, "ripens", limit=100, retrieval=Retrieval.LEXICAL).passages
    cited = {passage.chunk.document_id: _cited(passage) for passage in passages}
    assert cited.keys() == EXPECTED.keys()
    for name, (title, path, pages, answer) in EXPECTED.items():
        assert cited[name][:3] == (title, path, pages), name
        assert answer in " ".join(cited[name][3].split()), name

    (sheet,) = client.search(tenant, "share sold", limit=1, retrieval=Retrieval.LEXICAL).passages
    assert (sheet.chunk.document_id, sheet.matched_sentence.section_path) == ("g.xlsx", ("Honey",))
    line = client.get_document(tenant, "l.jsonl:2")
    assert (line.metadata, line.title) == ({"year": 2026}, TITLE)
    assert client.get_document(tenant, "e.docx").metadata == {}
    assert client.get_document(tenant, "f.pptx").page_count == 3
    for hidden in ("secret", "template", "script", "unseen", "jsmith"):
        assert not client.search(tenant, hidden, retrieval=Retrieval.LEXICAL).passages


def test_a_file_of_the_wrong_type_fails_only_its_document(services: Running, tenant: str) -> None:
    documents = [
        Document(docx_file(), "a.xlsx", mime_type="application/vnd.ms-works"),
        Document(docx_file(), "b", mime_type="application/epub+zip"),
        Document(docx_file()[:9000], "c"),
        Document(docx_file(), "d"),
    ]
    unknown, other, half, whole = services.client.ingest_many(tenant, documents)
    assert "'application/vnd.ms-works'" in unknown.message
    assert "an archive without META-INF/container.xml" in other.message
    assert isinstance(half, UnreadableDocument)
    assert whole.document_id == "d"
