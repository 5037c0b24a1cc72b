"""Looks up gold in the texts of a collection: the text of spans, and the places of quotes.

A quote that no compared system returned is either somewhere in the collection, and all systems
missed it, or nowhere, and the question file or the reading of a document is at fault. The report
must name the second kind, because no system can find such a quote.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from hrag.client import Client
from hrag.evaluation.questions import GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieved import RetrievalResult, quote_pattern
from hrag.evaluation.searches import SearchTarget, retried
from hrag.values.errors import DocumentNotFound
from hrag.values.search import SearchMode

# A quote without a document id is looked up in the documents of the leaves that match its words
# best: in this many documents, of this many leaves. A leaf that contains the quote matches best.
_DOCUMENTS = 5
_LEAVES = 20
# A quote is searched for by its first words, because the length of a query is limited.
_QUERY_WORDS = 200
_QUERY_CHARS = 2000
# Spans of gold are read from at most this many documents, so that a report on a large collection
# does not read all of it. A span that is not read is shown by its place alone.
MAX_GOLD_DOCUMENTS = 1000

QuotePlaces = Mapping[GoldQuote, tuple[TextSpan, ...]]


@dataclass(frozen=True, slots=True)
class CollectionTexts:
    """The texts of the documents in one or more collections of a tenant."""

    client: Client
    tenant_id: str
    collections: tuple[str, ...]

    def quote_places(self, quote: GoldQuote) -> tuple[TextSpan, ...]:
        """Returns the places of a quote in the collections; none if it is nowhere.

        Raises the errors of `Client.search` and `Client.get_text`.
        """
        pattern = quote_pattern(quote.text)
        for collection in self.collections:
            for document_id in self._candidates(quote, collection):
                text = self._text(document_id, collection)
                places = tuple(
                    TextSpan(document_id, match.start(), match.end())
                    for match in pattern.finditer(text)
                )
                if places:
                    return places
        return ()

    def _candidates(self, quote: GoldQuote, collection: str) -> tuple[str, ...]:
        """Returns the ids of the documents that may contain the quote, the most probable first."""
        if quote.document_id:
            return (quote.document_id,)
        words = " ".join(quote.text.split()[:_QUERY_WORDS])[:_QUERY_CHARS]
        result = retried(
            lambda: self.client.search(
                self.tenant_id,
                words,
                collection=collection,
                mode=SearchMode.STANDARD,
                limit=_LEAVES,
            )
        )
        names = dict.fromkeys(passage.chunk.document_id for passage in result.passages)
        return tuple(islice(names, _DOCUMENTS))

    def _text(self, document_id: str, collection: str) -> str:
        """Returns the text of a document; an empty text if the collection does not have it."""
        try:
            return retried(
                lambda: self.client.get_text(self.tenant_id, document_id, collection=collection)
            )
        except DocumentNotFound:
            return ""

    def span_texts(self, spans: Iterable[TextSpan]) -> dict[TextSpan, str]:
        """Returns the texts of spans of at most MAX_GOLD_DOCUMENTS documents.

        Spans of documents that the collections do not have, or that do not reach so far, are left
        out. Raises the errors of `Client.get_text`.
        """
        by_document: dict[str, list[TextSpan]] = {}
        for span in spans:
            by_document.setdefault(span.document_id, []).append(span)
        texts: dict[TextSpan, str] = {}
        for document_id, wanted in islice(by_document.items(), MAX_GOLD_DOCUMENTS):
            content = next(filter(None, self._versions(document_id)), "")
            texts |= {span: content[span.char_start : span.char_end] for span in wanted}
        return {span: text for span, text in texts.items() if text}

    def _versions(self, document_id: str) -> Iterator[str]:
        """Yields the text of a document in each of the collections."""
        return (self._text(document_id, collection) for collection in self.collections)


def texts_of(client: Client, where: SearchTarget, collections: Sequence[str]) -> CollectionTexts:
    """Returns the texts of the collections that are compared."""
    return CollectionTexts(client, where.tenant_id, tuple(collections))


def missed_quotes(
    questions: Sequence[Question], rows: Iterable[Sequence[RetrievalResult]]
) -> dict[GoldQuote, None]:
    """Returns the quotes that no system returned. `rows` are the systems' results by question."""
    missed: dict[GoldQuote, None] = {}
    for question, results in zip(questions, rows, strict=True):
        for index, gold in enumerate(question.gold):
            if isinstance(gold, GoldQuote) and not any(row.quotes[index] for row in results):
                missed[gold] = None
    return missed


def gold_spans(questions: Iterable[Question]) -> list[TextSpan]:
    """Returns the expected spans of all questions."""
    return [
        gold.span for question in questions for gold in question.gold if isinstance(gold, GoldSpan)
    ]
