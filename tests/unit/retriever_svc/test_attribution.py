"""A citation names the sentence of a passage that supports a statement best."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import EmbedderRejected, EmbedderUnavailable, HragError
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import MAX_EMBEDDED_BYTES, Chunk, PageStart, Passage, Span
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.attribution import Embed, citations
from retriever_svc.markers import CitedStatement
from retriever_svc.work_limit import TEXT_BYTES

BEFORE = "前面。"  # The text before the passage in its document.
CONTENT = "狗会叫。 Dogs dig holes.\n\n...\n\nCats sleep all day. "


class FailingEmbedder(HashEmbedder):
    """An embedder that raises an error for texts that contain a word."""

    def __init__(self, word: str, error: HragError) -> None:
        super().__init__(16)
        self._word = word
        self._error = error

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if any(self._word in text for text in texts):
            raise self._error
        return super().embed(texts, deadline)


def _passage(content: str = CONTENT, first_page: int = 3, last_page: int = 4) -> Passage:
    byte, char = len(BEFORE.encode()), len(BEFORE)
    span = Span(byte, byte + len(content.encode()), char, char + len(content))
    chunk = Chunk("d#2.0", "d", 2, 0, content, 1, span, (), first_page, last_page, "", "", {})
    starts = (PageStart(last_page, char + content.find("Cats")),) if "Cats" in content else ()
    return Passage(replace(chunk, page_starts=starts), 0.5, ())


WHOLE = _passage().chunk.span


def _text_of(span: Span) -> str:
    """Returns the text of a span. Its offsets in characters and in bytes must agree."""
    document = BEFORE + CONTENT
    quoted = document[span.char_start : span.char_end]
    assert document.encode()[span.byte_start : span.byte_end].decode() == quoted
    return quoted


def _embed(cache: CachedQueries, deadline: Deadline) -> Embed:
    """Returns a function that embeds texts of one tenant through the cache."""
    return partial(cache.embed_each, "tenant", deadline=deadline)


def _cache(embedder: HashEmbedder | None = None) -> CachedQueries:
    return CachedQueries(embedder or HashEmbedder(16), 100)


@pytest.mark.parametrize(
    ("sentence", "page"), [("狗会叫。", 3), ("Dogs dig holes.", 3), ("Cats sleep all day.", 4)]
)
def test_a_citation_has_the_span_of_the_sentence_nearest_to_the_statement(
    sentence: str, page: int
) -> None:
    text = f"Intro. {sentence} [1]"
    start = text.index(sentence)
    cited = citations(
        text,
        [CitedStatement(start, start + len(sentence), 1)],
        [_passage()],
        _embed(_cache(), NEVER),
    )
    (citation,) = cited
    assert _text_of(citation.span) == sentence
    assert citation.score == pytest.approx(1, abs=1e-5)
    assert (citation.marker, citation.document_id, citation.chunk_id) == (1, "d", "d#2.0")
    assert (citation.statement_start, citation.statement_end) == (start, start + len(sentence))
    assert (citation.first_page, citation.last_page) == (page, page)


def test_each_statement_cites_a_sentence_of_the_passage_that_its_marker_names() -> None:
    other = _passage("Fish swim. Birds fly.")
    text = "Birds fly. Cats sleep all day."
    cited = citations(
        text,
        [CitedStatement(0, 10, 2), CitedStatement(11, 30, 1)],
        [_passage(), other],
        _embed(_cache(), NEVER),
    )
    assert [citation.marker for citation in cited] == [2, 1]
    assert all(citation.score == pytest.approx(1, abs=1e-5) for citation in cited)


DOWN = EmbedderUnavailable("down")


@pytest.mark.parametrize(
    ("embedder", "deadline", "statement"),
    [
        pytest.param(FailingEmbedder("", DOWN), NEVER, CitedStatement(0, 4, 1), id="embedder down"),
        pytest.param(
            FailingEmbedder("", EmbedderRejected("no")),
            NEVER,
            CitedStatement(0, 4, 1),
            id="all texts refused",
        ),
        pytest.param(
            FailingEmbedder("said", EmbedderRejected("no")),
            NEVER,
            CitedStatement(0, 4, 1),
            id="statement refused",
        ),
        pytest.param(None, NEVER, CitedStatement(4, 4, 1), id="empty statement"),
        pytest.param(None, Deadline.after(-1), CitedStatement(0, 4, 1), id="deadline passed"),
    ],
)
def test_the_whole_passage_is_cited_if_the_statement_cannot_be_compared(
    embedder: HashEmbedder | None, deadline: Deadline, statement: CitedStatement
) -> None:
    (citation,) = citations("said", [statement], [_passage()], _embed(_cache(embedder), deadline))
    assert (citation.span, citation.score) == (WHOLE, None)
    assert (citation.first_page, citation.last_page) == (3, 4)


def test_a_sentence_that_the_embedder_refuses_does_not_exclude_other_sentences() -> None:
    embedder = FailingEmbedder("Cats", EmbedderRejected("no"))
    (citation,) = citations(
        "said", [CitedStatement(0, 4, 1)], [_passage()], _embed(_cache(embedder), NEVER)
    )
    assert citation.score is not None
    assert _text_of(citation.span) in ("狗会叫。", "Dogs dig holes.")


def test_a_passage_without_words_is_cited_whole() -> None:
    passage = _passage("... --- ...")
    (citation,) = citations("said", [CitedStatement(0, 4, 1)], [passage], _embed(_cache(), NEVER))
    assert (citation.span, citation.score) == (passage.chunk.span, None)


@given(st.text("a。. \n字🐕", max_size=40))
def test_a_span_always_lies_in_its_passage(content: str) -> None:
    passage = _passage(content)
    (citation,) = citations("said", [CitedStatement(0, 4, 1)], [passage], _embed(_cache(), NEVER))
    span, whole = citation.span, passage.chunk.span
    assert whole.char_start <= span.char_start <= span.char_end <= whole.char_end
    quoted = (BEFORE + content)[span.char_start : span.char_end]
    assert (BEFORE + content).encode()[span.byte_start : span.byte_end].decode() == quoted


def test_many_citations_of_a_long_passage_cut_its_sentences_once() -> None:
    """The time for 32 times as many citations is less than 8 times as long."""
    passage = _passage("A dog barks at night. " * 3_000)

    def processor_s(count: int) -> float:
        cited = [CitedStatement(0, 4, 1)] * count
        began = time.process_time()
        assert len(citations("Dogs bark.", cited, [passage], _embed(_cache(), NEVER))) == count
        return time.process_time() - began

    few, many = (min(processor_s(count) for _ in range(3)) for count in (8, 256))
    assert many < 8 * few


def test_only_as_many_sentences_are_cut_out_as_can_be_embedded() -> None:
    embedded: list[str] = []

    def embed(texts: Sequence[str]) -> Sequence[HragError]:
        embedded.extend(texts)
        return [DOWN] * len(texts)

    passage = _passage(" ".join(f"Dog {number} barks." for number in range(10_000)))
    (citation,) = citations("Dogs", [CitedStatement(0, 4, 1)], [passage], embed)
    assert citation.score is None
    assert 500 < len(embedded) <= MAX_EMBEDDED_BYTES // TEXT_BYTES
