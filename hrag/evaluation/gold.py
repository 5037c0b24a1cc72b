"""How much of the gold a text holds, and at which rank each piece of it is found.

A quote may stand at several places; each place where any system found it counts, and the best
one is taken. One that no system found counts as missed by all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieved import Retrieved

# A passage finds a piece of gold if it holds half of it, or half of the passage is gold.
FOUND_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class GoldText:
    """A piece of text that is expected: at one of `places`, which may be none; its length."""

    places: tuple[TextSpan, ...]
    chars: int


@dataclass(frozen=True, slots=True)
class ResolvedGold:
    """The gold of one question: texts, or documents with their relevance."""

    texts: tuple[GoldText, ...] = ()
    documents: Mapping[str, int] | None = None

    @property
    def unlocated(self) -> int:
        """Number of quotes that no system found."""
        return sum(not each.places for each in self.texts)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much gold there is and how much of it a text holds, in characters or documents.

    `text` is the length of the text, `relevant` of that which is gold, and `union` that of text
    and gold together, in characters. How long whole documents are is not known: `union` is then
    the text alone.
    """

    gold: int
    found: int
    text: int
    relevant: int
    union: int


def resolve(question: Question, results: Iterable[Retrieved]) -> ResolvedGold:
    """Returns the question's gold, its quotes at the places where systems found them."""
    if question.expects_documents:
        documents: dict[str, int] = {}
        for each in question.gold:
            assert isinstance(each, GoldDocument)
            documents[each.document_id] = max(each.relevance, documents.get(each.document_id, 0))
        return ResolvedGold(documents=documents)
    spans = _united(each.span for each in question.gold if isinstance(each, GoldSpan))
    texts = [GoldText((span,), span.char_end - span.char_start) for span in spans]
    kept = list(results)
    for index, each in enumerate(question.gold):
        if isinstance(each, GoldQuote):
            places = dict.fromkeys(place for result in kept for place in result.quotes[index])
            texts.append(_quoted(tuple(places), each))
    return ResolvedGold(tuple(texts))


def _quoted(places: tuple[TextSpan, ...], quote: GoldQuote) -> GoldText:
    chars = max((end - start for _, start, end in places), default=len(quote.text))
    return GoldText(places, chars)


def coverage(gold: ResolvedGold, spans: Sequence[TextSpan]) -> Coverage:
    """Returns how much of the gold the spans hold. Text that is there twice counts twice."""
    text = sum(end - start for _, start, end in spans)
    if gold.documents is not None:
        found = {document_id for document_id, _, _ in spans} & gold.documents.keys()
        relevant = sum(end - start for name, start, end in spans if name in gold.documents)
        return Coverage(len(gold.documents), len(found), text, relevant, union=text)
    united = _by_document(_united(spans))
    gold_chars = sum(each.chars for each in gold.texts)
    found_chars = sum(_found_chars(each, united) for each in gold.texts)
    relevant = min(found_chars, text)  # Two quotes may lie in one another.
    return Coverage(gold_chars, found_chars, text, relevant, text + gold_chars - relevant)


def _found_chars(text: GoldText, united: Mapping[str, Sequence[TextSpan]]) -> int:
    """Characters of the gold that are covered, at the place where most are."""
    return max((_covered_chars(place, united) for place in text.places), default=0)


def _covered_chars(place: TextSpan, united: Mapping[str, Sequence[TextSpan]]) -> int:
    return sum(overlap(place, each) for each in united.get(place.document_id, ()))


def found_gains(gold: ResolvedGold, ranking: Sequence[TextSpan]) -> list[int]:
    """Returns the gain at each rank: what the ranking finds first there.

    Every piece of gold counts once. A passage that finds several of them takes as many ranks;
    one that finds nothing new takes one, with gain 0. Whole documents are ranked by their first
    passage, later ones are left out, as in BEIR.
    """
    gains: list[int] = []
    if gold.documents is not None:
        names = dict.fromkeys(document_id for document_id, _, _ in ranking)
        return [gold.documents.get(name, 0) for name in names]
    left = list(gold.texts)
    for span in ranking:
        kept = [each for each in left if not any(finds(span, place) for place in each.places)]
        gains += [1] * (len(left) - len(kept)) or [0]
        left = kept
    return gains


def ideal_gains(gold: ResolvedGold) -> list[int]:
    """Returns the gains of the best ranking there can be."""
    if gold.documents is not None:
        return sorted(gold.documents.values(), reverse=True)
    return [1] * len(gold.texts)


def finds(span: TextSpan, gold: TextSpan) -> bool:
    """Whether the text counts as finding the gold: the overlap coefficient is at least 0.5."""
    shorter = min(span.char_end - span.char_start, gold.char_end - gold.char_start)
    return shorter > 0 and overlap(span, gold) >= FOUND_SHARE * shorter


def any_found(gold: ResolvedGold, spans: Sequence[TextSpan]) -> bool:
    """Whether the spans find any piece of the gold."""
    return any(found_gains(gold, spans))


def overlap(one: TextSpan, other: TextSpan) -> int:
    """Returns the number of characters that both have."""
    if one.document_id != other.document_id:
        return 0
    return max(0, min(one.char_end, other.char_end) - max(one.char_start, other.char_start))


def _united(spans: Iterable[TextSpan]) -> list[TextSpan]:
    """The spans sorted, those that overlap or touch joined."""
    united: list[TextSpan] = []
    for span in sorted(spans):
        last = united[-1] if united else None
        if last and last.document_id == span.document_id and span.char_start <= last.char_end:
            end = max(last.char_end, span.char_end)
            united[-1] = TextSpan(last.document_id, last.char_start, end)
        else:
            united.append(span)
    return united


def _by_document(spans: Iterable[TextSpan]) -> dict[str, list[TextSpan]]:
    found: dict[str, list[TextSpan]] = {}
    for span in spans:
        found.setdefault(span.document_id, []).append(span)
    return found
