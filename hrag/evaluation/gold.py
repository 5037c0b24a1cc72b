"""Computes how much of the gold was returned, and at which rank each piece of gold is found.

The gold of a question is the expected texts (spans or quotes that answer the question), or the
expected documents (which contain the answer). A piece of gold is one of these texts or documents.
The returned text means the returned passages, cut to a token budget.

An evaluation usually compares several systems (a system is one way to search). A quote may occur at
several places in the documents. Each place at which at least one of the compared systems found the
quote is accepted. If the returned text contains parts of several accepted places, only one place
counts: the place with the most characters in the returned text. If none of the systems found a
quote, the quote counts as missed by all of them, also if it is nowhere in the collection.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieved import RetrievalResult

# A passage finds an expected text if the passage contains this share of the text, or if this share
# of the passage lies in the text.
FOUND_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class GoldText:
    """An expected text of `chars` characters. It is expected at one of `places`.

    The places of a quote are the places at which at least one of the compared systems found the
    quote or, if none of them found it, its places in the collection. So `places` is empty if the
    quote is nowhere in the collection.
    """

    places: tuple[TextSpan, ...]
    chars: int


@dataclass(frozen=True, slots=True)
class ResolvedGold:
    """The gold of one question: expected texts, or expected documents.

    `documents` contains the relevance of each expected document by document id. It is None if texts
    are expected.
    """

    texts: tuple[GoldText, ...] = ()
    documents: Mapping[str, int] | None = None

    @property
    def unlocated(self) -> int:
        """The number of quotes that are nowhere in the collection."""
        return sum(not text.places for text in self.texts)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much gold a question has, and how much of the gold the returned text contains.

    `gold` is the amount of gold, and `found` the amount of gold that the returned text contains.
    `gold` and `found` count characters, or documents if whole documents are expected. The other
    fields always count characters: `text` is the length of the returned text, `relevant` the length
    of its part that is gold, and `union` the length of returned text and gold together. If whole
    documents are expected, `relevant` is the length of the returned text that comes from these
    documents, and `union` is the length of the returned text alone, because the length of the
    documents is not known.
    """

    gold: int
    found: int
    text: int
    relevant: int
    union: int


def resolve(
    question: Question,
    results: Iterable[RetrievalResult],
    located: Mapping[GoldQuote, tuple[TextSpan, ...]] | None = None,
) -> ResolvedGold:
    """Returns the question's gold, with the places at which the compared systems found its quotes.

    `results` are the successful results of all compared systems for this question. `located`
    contains the places in the collection of quotes that no system found.
    """
    if question.expects_documents:
        documents: dict[str, int] = {}
        for gold in question.gold:
            assert isinstance(gold, GoldDocument)
            documents[gold.document_id] = max(gold.relevance, documents.get(gold.document_id, 0))
        return ResolvedGold(documents=documents)
    spans = _merge_spans(gold.span for gold in question.gold if isinstance(gold, GoldSpan))
    texts = [GoldText((span,), span.char_end - span.char_start) for span in spans]
    all_results = list(results)
    for index, gold in enumerate(question.gold):
        if isinstance(gold, GoldQuote):
            places = dict.fromkeys(p for result in all_results for p in result.quotes[index])
            texts.append(_gold_text(tuple(places) or (located or {}).get(gold, ()), gold))
    return ResolvedGold(tuple(texts))


def _gold_text(places: tuple[TextSpan, ...], quote: GoldQuote) -> GoldText:
    chars = max((end - start for _, start, end in places), default=len(quote.text))
    return GoldText(places, chars)


def coverage(gold: ResolvedGold, spans: Sequence[TextSpan]) -> Coverage:
    """Compares the returned text, given by `spans`, with the gold.

    Counts how much of the gold the returned text contains. If two spans overlap, `Coverage.text`
    counts each character of their common text twice.
    """
    text = sum(end - start for _, start, end in spans)
    if gold.documents is not None:
        found = {document_id for document_id, _, _ in spans} & gold.documents.keys()
        relevant = sum(end - start for name, start, end in spans if name in gold.documents)
        return Coverage(len(gold.documents), len(found), text, relevant, union=text)
    merged = _by_document(_merge_spans(spans))
    gold_chars = sum(piece.chars for piece in gold.texts)
    found_chars = sum(_found_chars(piece, merged) for piece in gold.texts)
    # If two quotes overlap, a character that both quotes contain adds 2 to `found_chars`. So
    # `found_chars` may be larger than `text`, the count of characters of the returned text.
    relevant = min(found_chars, text)
    return Coverage(gold_chars, found_chars, text, relevant, text + gold_chars - relevant)


def _found_chars(text: GoldText, merged: Mapping[str, Sequence[TextSpan]]) -> int:
    """Counts the characters of the expected `text` that the spans contain.

    This text may be expected at several places. Only one place counts: the place with the most
    characters in the spans. `merged` contains the spans by document id, without overlaps.
    """
    return max((_covered_chars(place, merged) for place in text.places), default=0)


def _covered_chars(place: TextSpan, merged: Mapping[str, Sequence[TextSpan]]) -> int:
    return sum(overlap(place, span) for span in merged.get(place.document_id, ()))


def found_gains(gold: ResolvedGold, ranking: Sequence[TextSpan]) -> list[int]:
    """Returns the gain at each rank of `ranking`, which contains the spans of passages, best first.

    If texts are expected, each text gives the gain 1 once: at the first passage that finds it. A
    passage that finds several new texts occupies one rank for each of these texts. A passage that
    finds no new text occupies one rank, with gain 0.

    If whole documents are expected, each returned document occupies one rank, in the order of the
    documents' best passages. The gain is the relevance of the document, as in BEIR.
    """
    gains: list[int] = []
    if gold.documents is not None:
        names = dict.fromkeys(document_id for document_id, _, _ in ranking)
        return [gold.documents.get(name, 0) for name in names]
    missing = list(gold.texts)
    for span in ranking:
        still_missing = [
            piece for piece in missing if not any(finds(span, place) for place in piece.places)
        ]
        gains += [1] * (len(missing) - len(still_missing)) or [0]
        missing = still_missing
    return gains


def ideal_gains(gold: ResolvedGold) -> list[int]:
    """Returns the gains of a ranking that finds all of the gold at the first ranks, best first."""
    if gold.documents is not None:
        return sorted(gold.documents.values(), reverse=True)
    return [1] * len(gold.texts)


def finds(span: TextSpan, gold: TextSpan) -> bool:
    """Returns True if the passage at `span` finds the expected text at `gold`.

    This is so if the two spans have at least half of the characters of the shorter span in common
    (an overlap coefficient of at least 0.5).
    """
    shorter = min(span.char_end - span.char_start, gold.char_end - gold.char_start)
    return shorter > 0 and overlap(span, gold) >= FOUND_SHARE * shorter


def any_found(gold: ResolvedGold, spans: Sequence[TextSpan]) -> bool:
    """Returns True if a passage finds at least one of the expected texts or documents.

    `spans` are the spans of the passages.
    """
    return any(found_gains(gold, spans))


def overlap(first: TextSpan, second: TextSpan) -> int:
    """Returns the number of characters that both spans contain."""
    if first.document_id != second.document_id:
        return 0
    return max(0, min(first.char_end, second.char_end) - max(first.char_start, second.char_start))


def _merge_spans(spans: Iterable[TextSpan]) -> list[TextSpan]:
    """Returns the spans in order; spans that overlap or touch are joined."""
    merged: list[TextSpan] = []
    for span in sorted(spans):
        last = merged[-1] if merged else None
        if last and last.document_id == span.document_id and span.char_start <= last.char_end:
            end = max(last.char_end, span.char_end)
            merged[-1] = TextSpan(last.document_id, last.char_start, end)
        else:
            merged.append(span)
    return merged


def _by_document(spans: Iterable[TextSpan]) -> dict[str, list[TextSpan]]:
    grouped: dict[str, list[TextSpan]] = {}
    for span in spans:
        grouped.setdefault(span.document_id, []).append(span)
    return grouped
