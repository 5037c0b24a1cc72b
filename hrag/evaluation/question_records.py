"""Puts together what is known of each question: its gold, and what every system made of it.

A record has the passages of every system, their recall and cost, and if a judge compared answers,
the answers with their citations, the verdicts and their reasons. The report lists the records; JSON
and CSV contain the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hrag.evaluation.gold import ResolvedGold, coverage
from hrag.evaluation.judge import JudgedAnswer, JudgedPair, JudgedQuestion
from hrag.evaluation.question_kinds import Kinds
from hrag.evaluation.questions import GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieval_metrics import recall
from hrag.evaluation.retrieved import KeptPassage, RetrievalResult
from hrag.evaluation.searches import Outcome
from hrag.values.errors import HragError


@dataclass(frozen=True, slots=True)
class GoldRecord:
    """A piece of gold as reports show it: its text, and the document and place if they are known.

    `text` is empty for a whole document, and for a span that was not read. `places` are the spans
    that count as this text. `is_nowhere` is True for a quote that the collection does not contain.
    """

    document_id: str
    text: str
    places: tuple[TextSpan, ...]
    is_nowhere: bool = False


@dataclass(frozen=True, slots=True)
class SystemRecord:
    """The result of one system for one question.

    `recall` is the share of the gold in the text that fills the main budget, None for a question
    without gold. `tokens` is the count of tokens of this text, and `latency_us` the time of the
    search for the largest budget. `passages` are the passages that the answer was made from or,
    without an answer, those that fill the main budget. `answer` is None if no answer was asked for.
    `error` is the message of a search that failed.
    """

    passages: tuple[KeptPassage, ...]
    recall: float | None
    tokens: int
    latency_us: int
    answer: JudgedAnswer | None
    error: str = ""
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """A question, its gold, its kinds, the records by system and the verdicts by system.

    `reference` is the reference answer. `verdicts` is empty if no answers were compared.
    """

    question_id: str
    text: str
    reference: str
    kinds: Kinds
    gold: tuple[GoldRecord, ...]
    systems: Mapping[str, SystemRecord]
    verdicts: Mapping[str, JudgedPair]

    @property
    def nowhere(self) -> tuple[str, ...]:
        """The quotes of the gold that are nowhere in the collection."""
        return tuple(piece.text for piece in self.gold if piece.is_nowhere)


def gold_records(
    question: Question,
    gold: ResolvedGold,
    span_texts: Mapping[TextSpan, str],
    *,
    is_located: bool,
) -> tuple[GoldRecord, ...]:
    """Returns the pieces of a question's gold. `span_texts` has the texts of spans that were read.

    Quotes without a place are nowhere in the collection if `is_located`. The quotes come in the
    order of the question's gold, after the spans.
    """
    if gold.documents is not None:
        return tuple(GoldRecord(name, "", ()) for name in gold.documents)
    spans = [piece.span for piece in question.gold if isinstance(piece, GoldSpan)]
    quotes = [piece for piece in question.gold if isinstance(piece, GoldQuote)]
    quote_texts = gold.texts[len(gold.texts) - len(quotes) :]
    return (
        *(GoldRecord(span.document_id, span_texts.get(span, ""), (span,)) for span in spans),
        *(
            GoldRecord(
                quote.document_id,
                quote.text,
                text.places,
                is_nowhere=is_located and not text.places,
            )
            for quote, text in zip(quotes, quote_texts, strict=True)
        ),
    )


def question_record(
    question: Question,
    gold: ResolvedGold | None,
    kinds: Kinds,
    outcomes: Mapping[str, Outcome],
    judged: JudgedQuestion | None,
    budget: int,
    span_texts: Mapping[TextSpan, str],
    *,
    is_located: bool,
) -> QuestionRecord:
    """Returns the record of one question.

    `gold` is None if the question has no gold; then `outcomes`, the outcomes of the searches by
    system, is empty. `judged` is None if the question was not judged.
    """
    answers = judged.answers if judged else {}
    systems = tuple(dict.fromkeys((*outcomes, *answers)))
    return QuestionRecord(
        question_id=question.question_id,
        text=question.text,
        reference=question.answer,
        kinds=kinds,
        gold=gold_records(question, gold, span_texts, is_located=is_located) if gold else (),
        systems={
            name: _system_record(gold, outcomes.get(name), answers.get(name), budget)
            for name in systems
        },
        verdicts=judged.verdicts if judged else {},
    )


def _system_record(
    gold: ResolvedGold | None, outcome: Outcome | None, answer: JudgedAnswer | None, budget: int
) -> SystemRecord:
    answered = answer.passages if answer else ()
    if isinstance(outcome, RetrievalResult):
        text = outcome.texts[budget]
        return SystemRecord(
            passages=answered or outcome.passages,
            recall=recall(coverage(gold, text.spans)) if gold else None,
            tokens=text.tokens,
            latency_us=outcome.latency_us,
            answer=answer,
            fallback=outcome.fallback,
        )
    failed = isinstance(outcome, HragError)
    return SystemRecord(
        passages=answered,
        recall=0.0 if failed else None,
        tokens=0,
        latency_us=0,
        answer=answer,
        error=outcome.message if isinstance(outcome, HragError) else "",
    )
