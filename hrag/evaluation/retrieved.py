"""What a search gave: all that the metrics need, small enough to be kept in a file.

Texts are kept as spans, and the quotes that are expected are looked for in the passages before
their contents are dropped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hrag.evaluation.context_budget import BudgetedText, span_of
from hrag.evaluation.questions import GoldQuote, Question, TextSpan
from hrag.values.search import Passage, SearchResult


@dataclass(frozen=True, slots=True)
class Retrieved:
    """One question's result in one system.

    `ranking` are the whole passages, best first; `texts` what fits each budget. `quotes` says
    for each entry of the question's gold where it was found, empty for what is no quote.
    Times are of one search for the largest budget: `latency_us` is the client's, less
    `embed_us`, which is the service's for embedding the question. `fallback` is why a source or
    the reranker was left out; empty if nothing was.
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
) -> Retrieved:
    """Returns what is kept of a result; `texts` are its passages cut to the budgets."""
    embed_us = result.timings.embed_us
    return Retrieved(
        ranking=tuple(map(span_of, result.passages)),
        texts=texts,
        quotes=tuple(
            find_quote(each, result.passages) if isinstance(each, GoldQuote) else ()
            for each in question.gold
        ),
        latency_us=max(0, round_trip_us - embed_us),
        embed_us=embed_us,
        sequence=result.sequence,
        fallback="; ".join(filter(None, (result.fallback, result.rerank_failure))),
    )


def find_quote(quote: GoldQuote, passages: Sequence[Passage]) -> tuple[TextSpan, ...]:
    """Returns where passages contain the quote, each place once.

    A run of white space matches any other.
    """
    pattern = quote_pattern(quote.text)
    found: dict[TextSpan, None] = {}
    for passage in passages:
        document_id, start, _ = span_of(passage)
        if quote.document_id in ("", document_id):
            for match in pattern.finditer(passage.chunk.content):
                found[TextSpan(document_id, start + match.start(), start + match.end())] = None
    return tuple(found)


def quote_pattern(text: str) -> re.Pattern[str]:
    r"""Returns a pattern that finds `text` with any white space in place of its own."""
    return re.compile(r"\s+".join(map(re.escape, text.split())))
