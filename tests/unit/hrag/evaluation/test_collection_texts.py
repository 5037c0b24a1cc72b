"""Gold that no search returned is looked up in the collection, to tell a miss from a mistake."""

from dataclasses import replace
from typing import Any, cast

from hrag.client import Client
from hrag.errors import DocumentNotFound
from hrag.evaluation.collection_texts import CollectionTexts, gold_spans, missed_quotes
from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.types import SearchResult
from tests.support.documents.evaluation_fakes import (
    ScriptedClient,
    passage,
    result,
    retrieval,
)

TEXTS = {"a": "One two.\nThree  four five.", "b": "Six."}


class Texts(ScriptedClient):
    """A client of a collection with the documents TEXTS. Searches return leaves of both."""

    def __init__(self) -> None:
        super().__init__(self._leaves)
        self.read: list[str] = []

    def _leaves(self, query: str, **_: Any) -> SearchResult:
        return result(passage("b", 0, "Six."), passage("a", 0, "One two."), passage("a", 9, "x"))

    def get_text(self, tenant_id: str, document_id: str, *, collection: str) -> str:
        self.read.append(document_id)
        if document_id not in TEXTS or collection != "docs":
            raise DocumentNotFound(f"no {document_id} in {tenant_id}")
        return TEXTS[document_id]


def texts() -> CollectionTexts:
    return CollectionTexts(cast("Client", Texts()), "acme", ("other", "docs"))


def test_a_quote_is_found_across_leaves_in_any_white_space() -> None:
    """The leaves of the search do not contain the quote; their document does."""
    assert texts().quote_places(GoldQuote("two. Three four")) == (TextSpan("a", 4, 20),)
    assert texts().quote_places(GoldQuote("two. Three four", "a")) == (TextSpan("a", 4, 20),)


def test_a_quote_that_is_nowhere_has_no_places() -> None:
    assert texts().quote_places(GoldQuote("seven")) == ()
    assert texts().quote_places(GoldQuote("Six.", "a")) == ()
    assert texts().quote_places(GoldQuote("Six.", "missing")) == ()


def test_the_texts_of_spans_are_read_once_for_each_document() -> None:
    client = Texts()
    reader = CollectionTexts(cast("Client", client), "acme", ("docs",))
    spans = [TextSpan("a", 0, 3), TextSpan("a", 4, 7), TextSpan("missing", 0, 1)]
    assert reader.span_texts(spans) == {spans[0]: "One", spans[1]: "two"}
    assert client.read == ["a", "missing"]


def test_only_quotes_that_every_system_misses_are_looked_up() -> None:
    found, missed = GoldQuote("found"), GoldQuote("missed")
    span = GoldSpan(TextSpan("a", 0, 3))
    questions = [Question("q", "?", (found, missed, span)), Question("r", "?", (missed,))]
    hit = replace(retrieval(quotes=3), quotes=((TextSpan("a", 0, 5),), (), ()))
    rows = [[retrieval(quotes=3), hit], [retrieval(quotes=1)]]
    assert list(missed_quotes(questions, rows)) == [missed]
    assert gold_spans([*questions, Question("d", "?", (GoldDocument("a"),))]) == [span.span]
