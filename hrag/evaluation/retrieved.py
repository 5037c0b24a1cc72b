"""Extracts from a search result what the metrics need, small enough to be stored in a file.

Of each passage, the span in its document is kept, but not the content. Before the contents are
dropped, they are searched for the expected quotes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hrag.evaluation.context_budget import BudgetedText, span_of
from hrag.evaluation.questions import GoldQuote, Question, TextSpan
from hrag.values.search import Passage, SearchResult


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """The result of searching for one question with one system.

    `ranking` contains the spans of the whole passages, best first. `texts` contains, for each token
    budget, the text that fits the budget. `quotes` contains, for each entry of the question's gold,
    the places at which the passages contain the entry. There are no places for an entry that is not
    a quote.

    The times are of one search, for the largest budget: `embed_us` is the service's time for
    embedding the question, and `latency_us` is the time that the client measured, minus `embed_us`.
    `sequence` is the sequence number of the snapshot that was searched. `fallback` is the reason if
    the search could not use words, vectors or the reranker as requested, and else empty.
    """

    ranking: tuple[TextSpan, ...]
    texts: Mapping[int, BudgetedText]
    quotes: tuple[tuple[TextSpan, ...], ...]
    latency_us: int
    embed_us: int
    sequence: int
    fallback: str = ""


def retrieved(
    question: Question,
    result: SearchResult,
    texts: Mapping[int, BudgetedText],
    round_trip_us: int,
) -> RetrievalResult:
    """Returns the part of a search result that the metrics need.

    `result` is the result of a search for `question`. `texts` contains, for each token budget, the
    text of the passages, cut to this budget. `round_trip_us` is the time from request to reply that
    the client measured.
    """
    embed_us = result.timings.embed_us
    return RetrievalResult(
        ranking=tuple(map(span_of, result.passages)),
        texts=texts,
        quotes=tuple(
            find_quote(gold, result.passages) if isinstance(gold, GoldQuote) else ()
            for gold in question.gold
        ),
        latency_us=max(0, round_trip_us - embed_us),
        embed_us=embed_us,
        sequence=result.sequence,
        fallback="; ".join(filter(None, (result.fallback, result.rerank_failure))),
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
