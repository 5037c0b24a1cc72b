"""Extracts from a search result what metrics and reports need, small enough to be stored in a file.

Of each passage, the span in its document is kept. The contents of the best passages are kept too,
for readers of the report. Before the other contents are dropped, they are searched for the expected
quotes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hrag.evaluation.context_budget import BudgetedText, cut_passages, span_of
from hrag.evaluation.questions import GoldQuote, Question, TextSpan
from hrag.text import citations
from hrag.values.search import Passage, SearchResult

# The contents of the first passages are kept, up to this count of tokens for each search. So 2,000
# questions in two systems need at most 64 MB.
MAX_KEPT_TOKENS = 4000


@dataclass(frozen=True, slots=True)
class KeptPassage:
    """A passage as reports show it. `heading` is its citation: title, sections and pages.

    `text` begins at the code point `char_start` of the document. The end of the last passage is cut
    off if the passages together would exceed a token budget.
    """

    chunk_id: str
    heading: str
    document_id: str
    char_start: int
    text: str

    @property
    def span(self) -> TextSpan:
        """The position of the text in its document."""
        return TextSpan(self.document_id, self.char_start, self.char_start + len(self.text))


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The result of searching for one question with one system.

    `ranking` contains the spans of the whole passages, best first. `texts` contains, for each token
    budget, the text that fits the budget. `quotes` contains, for each entry of the question's gold,
    the places at which the passages contain the entry. There are no places for an entry that is not
    a quote.

    `passages` are the best passages, as reports show them (`kept_passages`).

    The times are of one search, for the largest budget: `embed_us` is the service's time for
    embedding the question, and `latency_us` is the time that the client measured, minus `embed_us`.
    `sequence` is the sequence number of the snapshot that was searched. The times and the sequence
    are 0 if the passages are those of another tool. `fallback` is the reason if
    the search could not use words, vectors or the reranker as requested, and else empty.
    `eligible_leaves` is the number of leaves that the search could return, 0 if it is not known.
    """

    ranking: tuple[TextSpan, ...]
    texts: Mapping[int, BudgetedText]
    quotes: tuple[tuple[TextSpan, ...], ...]
    latency_us: int
    embed_us: int
    sequence: int
    fallback: str = ""
    passages: tuple[KeptPassage, ...] = ()
    eligible_leaves: int = 0


def retrieved(
    question: Question,
    result: SearchResult,
    texts: Mapping[int, BudgetedText],
    round_trip_us: int,
    shown: Iterable[Passage],
    shown_tokens: int,
) -> RetrievalResult:
    """Returns the part of a search result that the metrics need.

    `result` is the result of a search for `question`. `texts` contains, for each token budget, the
    text of the passages, cut to this budget. `round_trip_us` is the time from request to reply that
    the client measured. Of the passages `shown`, the first `shown_tokens` tokens are kept.
    """
    embed_us = result.timings.embed_us
    return RetrievalResult(
        ranking=tuple(map(span_of, result.passages)),
        texts=texts,
        quotes=find_quotes(question, result.passages),
        latency_us=max(0, round_trip_us - embed_us),
        embed_us=embed_us,
        sequence=result.sequence,
        fallback="; ".join(filter(None, (result.fallback, result.rerank_failure))),
        passages=kept_passages(shown, shown_tokens),
        eligible_leaves=result.eligible_leaves,
    )


def kept_passages(passages: Iterable[Passage], budget: int) -> tuple[KeptPassage, ...]:
    """Returns the first passages, up to `budget` tokens and at most MAX_KEPT_TOKENS tokens."""
    return tuple(
        KeptPassage(
            chunk_id=passage.chunk.chunk_id,
            heading=", ".join(
                filter(None, (citations.heading(passage.chunk), citations.pages(passage.chunk)))
            ),
            document_id=passage.chunk.document_id,
            char_start=passage.chunk.span.char_start,
            text=passage.chunk.content,
        )
        for passage in cut_passages(passages, min(budget, MAX_KEPT_TOKENS))
    )


def find_quotes(
    question: Question, passages: Sequence[Passage]
) -> tuple[tuple[TextSpan, ...], ...]:
    """Returns, for each entry of the question's gold, where the passages contain the quote."""
    return tuple(
        find_quote(gold, passages) if isinstance(gold, GoldQuote) else () for gold in question.gold
    )


def find_quote(quote: GoldQuote, passages: Sequence[Passage]) -> tuple[TextSpan, ...]:
    """Returns the places where passages contain the quote, without duplicates.

    Any white space in the quote matches any white space in a passage.
    """
    pattern = quote_pattern(quote.text)
    places: dict[TextSpan, None] = {}
    for passage in passages:
        document_id, start, _ = span_of(passage)
        if quote.document_id in ("", document_id):
            for match in pattern.finditer(passage.chunk.content):
                places[TextSpan(document_id, start + match.start(), start + match.end())] = None
    return tuple(places)


def quote_pattern(text: str) -> re.Pattern[str]:
    """Returns a pattern that finds `text` with any white space between its words."""
    return re.compile(r"\s+".join(map(re.escape, text.split())))
