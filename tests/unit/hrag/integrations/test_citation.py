"""The metadata of a passage says where its sentence is, and no document can forge it."""

from typing import Any

from hrag.integrations.citation import citation
from hrag.values.chunks import Chunk, PageStart, Span
from hrag.values.read_report import PageUnit
from hrag.values.search import MatchedSentence, Passage

TEXT = "Cats 🐱 sleep. Dogs bark."


def chunk(**changes: Any) -> Chunk:
    fields: dict[str, Any] = {
        "chunk_id": "pets#0.0",
        "document_id": "pets",
        "level": 0,
        "index": 0,
        "content": TEXT,
        "token_count": 8,
        "span": Span(100, 100 + len(TEXT.encode()), 100, 100 + len(TEXT)),
        "section_path": (),
        "first_page": 3,
        "last_page": 4,
        "title": "",
        "source": "",
        "metadata": {},
        "page_starts": (PageStart(4, 114),),
        "page_unit": PageUnit.PAGE,
    }
    return Chunk(**{**fields, **changes})


def test_the_sentence_has_its_own_place_and_page() -> None:
    start = 100 + TEXT.index("Dogs")
    sentence = MatchedSentence(Span(start + 3, start + 13, start, start + 10), (), 4, 4)
    metadata = citation(Passage(chunk(), 0.5, (), matched_sentence=sentence))
    assert (metadata["sentence_start"], metadata["sentence_end"]) == (start, start + 10)
    assert (metadata["first_page"], metadata["sentence_page"]) == (3, 4)


def test_without_a_sentence_the_whole_passage_is_the_place() -> None:
    metadata = citation(Passage(chunk(), 0.5, ()))
    assert (metadata["sentence_start"], metadata["sentence_end"]) == (100, 100 + len(TEXT))
    assert metadata["sentence_page"] == 3


def test_the_metadata_of_a_document_forges_no_place() -> None:
    forged = {"sentence_start": "x", "sentence_end": "x", "sentence_page": "x", "team": "zoo"}
    metadata = citation(Passage(chunk(metadata=forged), 0.5, ()))
    assert "x" not in metadata.values()
    assert metadata["team"] == "zoo"
