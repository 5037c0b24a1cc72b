"""Says in sentences what a comparison has shown: which system is better, when, and at what cost.

Every sentence about a difference has the interval of the difference. A sentence says that a system
is better only if the interval excludes zero and there are enough questions (`beyond_chance`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hrag.evaluation.bootstrap import MIN_QUESTIONS, Estimate
from hrag.evaluation.judge import CRITERIA, AnswerCost, JudgeFigures
from hrag.evaluation.question_kinds import KindFigures
from hrag.evaluation.retrieval_metrics import RECALL, at_budget
from hrag.evaluation.searches import main_budget
from hrag.evaluation.summary import RetrievalFigures, SystemFigures

NOT_MEASURED = "not measured"
_US_PER_S, _US_PER_MS = 1_000_000, 1000


@dataclass(frozen=True, slots=True)
class KindFinding:
    """How two systems differ on the questions of one kind; `difference` is never negative.

    `measure` says what was compared: the recall, or the answers.
    """

    better: str
    worse: str
    trait: str
    value: str
    measure: str
    difference: Estimate

    @property
    def text(self) -> str:
        """The kind with the difference in points, its interval and the number of questions."""
        of = f", {self.measure}" if self.measure != RECALL else ""
        return (
            f"{self.trait}: {self.value} ({points(self.difference)}, "
            f"{self.difference.questions:,} questions{of})"
        )


@dataclass(frozen=True, slots=True)
class ComparisonFindings:
    """The findings of a comparison, in sentences.

    `first` is the most important sentence. `further` are those about the other systems and about
    the judge. `kinds` are the differences that more than chance explains, by kind. `unclear` are
    the kinds with enough questions in which no system is better beyond chance, and `too_few` counts
    the comparisons of kinds with fewer questions. `costs` has one sentence for each system.
    """

    first: str
    further: tuple[str, ...]
    kinds: tuple[KindFinding, ...]
    unclear: tuple[KindFinding, ...]
    too_few: int
    costs: tuple[str, ...]


def findings(
    retrieval: RetrievalFigures | None,
    judged: JudgeFigures | None,
    kinds: Sequence[KindFigures],
) -> ComparisonFindings:
    """Returns the findings of a comparison of one system or more."""
    sentences = [*(_retrieval_sentences(retrieval) if retrieval else ())]
    sentences += _judge_sentences(judged) if judged else ()
    compared = _kind_comparisons(retrieval, judged, kinds)
    return ComparisonFindings(
        first=sentences[0] if sentences else "Nothing was compared.",
        further=tuple(sentences[1:]),
        kinds=tuple(one for one in compared if one.difference.beyond_chance),
        unclear=tuple(
            one
            for one in compared
            if one.difference.questions >= MIN_QUESTIONS and not one.difference.beyond_chance
        ),
        too_few=sum(one.difference.questions < MIN_QUESTIONS for one in compared),
        costs=tuple(_cost_sentences(retrieval, judged)),
    )


def points(estimate: Estimate, *, flipped: bool = False) -> str:
    """Returns a difference in percentage points with its interval, such as `+3.1 [1.2, 5.0]`.

    If `flipped`, the difference is the one seen from the other system.
    """
    mean, low, high = _seen(estimate, flipped=flipped)
    return f"{100 * mean:+.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def duration(time_us: float) -> str:
    """Returns a time as `1.2 s`, or as `3.4 ms` if it is shorter than a second.

    Returns NOT_MEASURED for 0.
    """
    if not time_us:
        return NOT_MEASURED
    if time_us >= _US_PER_S:
        return f"{time_us / _US_PER_S:.1f} s"
    return f"{time_us / _US_PER_MS:.1f} ms"


def _seen(estimate: Estimate, *, flipped: bool) -> tuple[float, float, float]:
    if flipped:
        return -estimate.mean, -estimate.high, -estimate.low
    return estimate.mean, estimate.low, estimate.high


def _retrieval_sentences(figures: RetrievalFigures) -> Iterable[str]:
    budget = main_budget(figures.budgets)
    gold = "expected documents" if figures.expects_documents else "gold text"
    within = f"within {budget:,} tokens"
    compared = [system for system in figures.systems if system.differences]
    if not compared:
        for system in figures.systems:
            estimate = system.estimates[at_budget(RECALL, budget)]
            yield (
                f"{system.name} finds {100 * estimate.mean:.1f} % of the {gold} "
                f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}], {within}."
            )
    for system in compared:
        difference = system.differences[at_budget(RECALL, budget)]
        yield _difference_sentence(system.name, figures.baseline, difference, gold, within)


def _difference_sentence(
    system: str, baseline: str, difference: Estimate, gold: str, within: str
) -> str:
    flipped = difference.mean < 0
    better, worse = (baseline, system) if flipped else (system, baseline)
    mean, low, high = (100 * value for value in _seen(difference, flipped=flipped))
    claim = f"{better} finds {mean:.1f} points more of the {gold} than {worse}"
    interval = f"[{low:.1f}, {high:.1f}], {within}"
    if difference.beyond_chance:
        return f"{claim} {interval}."
    if difference.low == difference.high == 0:
        return f"{system} and {baseline} find equally much of the {gold}, {within}."
    return f"No winner: {claim} {interval}, and {_chance(difference)}."


def _chance(difference: Estimate) -> str:
    """Returns why a difference is no finding."""
    if difference.questions < MIN_QUESTIONS:
        noun = "question is" if difference.questions == 1 else "questions are"
        return f"{difference.questions:,} {noun} too few to decide"
    return "chance alone can explain that"


def _judge_sentences(figures: JudgeFigures) -> Iterable[str]:
    for pair in figures.pairs:
        balance = pair.criteria[CRITERIA[0]]
        net = balance.net
        if not net.questions:
            yield (
                f"The judge {figures.usage.model} could compare no answers of {pair.system} and "
                f"{pair.baseline}: {len(pair.failures):,} comparisons failed."
            )
            continue
        flipped = net.mean < 0
        better, worse = (pair.baseline, pair.system) if flipped else (pair.system, pair.baseline)
        wins, losses = balance.wins, balance.losses
        if flipped:
            wins, losses = losses, wins
        counts = (
            f"the judge {figures.usage.model} prefers the answers of {better} to {wins:,} of "
            f"{net.questions:,} questions, and those of {worse} to {losses:,} "
            f"({points(net, flipped=flipped)} points)"
        )
        if net.beyond_chance:
            yield f"{counts[0].upper()}{counts[1:]}."
        else:
            yield f"No better answers: {counts}, and {_chance(net)}."


def _kind_comparisons(
    retrieval: RetrievalFigures | None, judged: JudgeFigures | None, kinds: Sequence[KindFigures]
) -> list[KindFinding]:
    """Returns the comparisons of all kinds, largest difference first.

    Only the first system is compared with the baseline: the one that the first sentence is about.
    """
    names = [system.name for system in retrieval.systems] if retrieval else []
    baseline = retrieval.baseline if retrieval else ""
    if judged and judged.pairs:
        names = names or [pair.system for pair in judged.pairs]
        baseline = baseline or judged.pairs[0].baseline
    system = next((name for name in names if name != baseline), "")
    compared = [
        KindFinding(
            better=system if estimate.mean > 0 else baseline,
            worse=baseline if estimate.mean > 0 else system,
            trait=kind.trait,
            value=kind.value,
            measure=measure,
            difference=_towards_better(estimate),
        )
        for kind in kinds
        for measure, estimates in ((RECALL, kind.differences), ("answers", kind.judged))
        if (estimate := estimates.get(system)) is not None
    ]
    return sorted(compared, key=lambda one: -one.difference.mean)


def _towards_better(estimate: Estimate) -> Estimate:
    mean, low, high = _seen(estimate, flipped=estimate.mean < 0)
    return Estimate(mean, low, high, estimate.questions)


def _cost_sentences(
    retrieval: RetrievalFigures | None, judged: JudgeFigures | None
) -> Iterable[str]:
    costs = {cost.system: cost for cost in judged.costs} if judged else {}
    systems = {system.name: system for system in retrieval.systems} if retrieval else {}
    for name in dict.fromkeys((*systems, *costs)):
        parts = []
        if name in systems and retrieval:
            parts.append(_search_cost(systems[name], retrieval.budgets))
        if name in costs and costs[name].answers:
            parts.append(_answer_cost_text(costs[name]))
        if parts:
            yield f"{name}: {'; '.join(parts)}."


def _search_cost(system: SystemFigures, budgets: Sequence[int]) -> str:
    tokens = f"{system.tokens[main_budget(budgets)]:,.0f} tokens of text on average"
    if not system.latency_p50_us:
        return tokens
    took = duration(system.latency_p50_us)
    return f"{tokens}, {took} for a search of {budgets[-1]:,} tokens (p50)"


def _answer_cost_text(cost: AnswerCost) -> str:
    took = f"{duration(cost.took_p50_us)} for an answer (p50)"
    if not cost.prompt_tokens:
        return f"{took}, of tokens that the endpoint does not report"
    read, written = cost.prompt_tokens, cost.completion_tokens
    return f"{took}, of {read:,.0f} tokens read and {written:,.0f} written"
