"""Prints the result of `hrag eval` on a terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hrag.cli.render import duration
from hrag.evaluation.bootstrap import Estimate
from hrag.evaluation.chat_calls import ChatUsage
from hrag.evaluation.findings import NOT_MEASURED, ComparisonFindings
from hrag.evaluation.generator import GenerationResult
from hrag.evaluation.judge import CRITERIA, Balance, JudgeFigures, PairFigures
from hrag.evaluation.report_files import Report
from hrag.evaluation.retrieval_metrics import HIT, IOU, MRR, NDCG, PRECISION, RECALL, at_budget
from hrag.evaluation.summary import FailedCall, RetrievalFigures, SystemFigures
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable

Row = list[str | Text]
_ANY_WIDTH = 1000
_FAILURES_SHOWN = 5
_KINDS_SHOWN = 5
_TITLES = {
    RECALL: "recall of the gold (the expected text), % [95 % interval]",
    PRECISION: "precision, %: how much of the text of the passages is gold",
    IOU: "intersection over union, %",
    HIT: "hit rate, %: questions for which the passages contain some of the gold",
}


def show_report(report: Report, console: Console) -> None:
    """Prints the findings, the tables, each with the calls that failed, then the warnings."""
    show_findings(report.findings, console)
    if report.retrieval is not None:
        _show_retrieval(report.retrieval, console)
    if report.judged is not None:
        _show_judged(report.judged, console)
    for warning in report.all_warnings:
        console.print(Text(printable(f"warning: {warning}"), style="yellow"), soft_wrap=True)


def show_findings(findings: ComparisonFindings, console: Console) -> None:
    """Prints which system is better, for which questions, and at what cost."""
    console.print(Text(printable(findings.first), style="bold"), soft_wrap=True)
    lines = [*findings.further, *findings.costs]
    lines += [f"{kind.better} is better: {kind.text}" for kind in findings.kinds[:_KINDS_SHOWN]]
    if len(findings.kinds) > _KINDS_SHOWN:
        lines.append(f"{len(findings.kinds) - _KINDS_SHOWN:,} more kinds differ: see --html")
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
    console.print()


def show_generated(generated: GenerationResult, path: Path, console: Console) -> None:
    """Prints how many questions the chat model wrote to `path`, and how many tokens it used.

    Also prints why replies of the model were rejected.
    """
    line = f"{generated.added:,} questions written to {path}, which has {generated.questions:,}"
    console.print(printable(line), markup=False, soft_wrap=True)
    for reason, count in sorted(generated.rejected.items()):
        console.print(f"  {count:,} times: {reason}", markup=False, soft_wrap=True)
    console.print(_cost(generated.usage), markup=False, soft_wrap=True)


def _show_retrieval(figures: RetrievalFigures, console: Console) -> None:
    heads = ["at tokens", *(f"{budget:,}" for budget in figures.budgets)]
    for metric, title in _TITLES.items():
        names = [at_budget(metric, budget) for budget in figures.budgets]
        rows = (_metric_row(system, names, metric) for system in figures.systems)
        _print_table(console, title, heads, rows)
        if metric == RECALL:
            _show_differences(figures, heads, names, console)
    _print_table(
        console,
        f"ranks, and what a search for {figures.budgets[-1]:,} tokens costs (without embedding)",
        ["", "MRR", "nDCG@10", "p50", "p95", "tokens", "fallbacks", "failed"],
        (_rank_row(system, figures.budgets[-1]) for system in figures.systems),
    )
    console.print(f"{counted(len(figures.questions), 'question')}", markup=False)
    for system in figures.systems:
        _show_failures("search", "searches", system.name, system.failures, console)


def _show_differences(
    figures: RetrievalFigures, heads: Sequence[str], names: Sequence[str], console: Console
) -> None:
    compared = [system for system in figures.systems if system.differences]
    if compared:
        title = f"recall compared with {figures.baseline}, points [paired 95 % interval]"
        _print_table(console, title, heads, (_difference_row(s, names) for s in compared))


def _metric_row(system: SystemFigures, names: Sequence[str], metric: str) -> Row:
    return [system.name, *(_cell(system, name, metric) for name in names)]


def _difference_row(system: SystemFigures, names: Sequence[str]) -> Row:
    return [system.name, *(_difference(system.differences[name]) for name in names)]


def _rank_row(system: SystemFigures, budget: int) -> Row:
    return [
        system.name,
        f"{100 * system.estimates[MRR].mean:.1f}",
        f"{100 * system.estimates[NDCG].mean:.1f}",
        _latency(system.latency_p50_us),
        _latency(system.latency_p95_us),
        f"{system.tokens[budget]:,.0f}",
        f"{sum(system.fallbacks.values()):,}",
        f"{len(system.failures):,}/{system.searches:,}",
    ]


def _latency(time_us: float) -> str:
    return duration(time_us) if time_us else NOT_MEASURED


def _cell(system: SystemFigures, name: str, metric: str) -> str:
    """Returns the text of a table cell: the mean of the metric `name` in %.

    If `metric` is recall, the 95 % interval of the mean follows.
    """
    estimate = system.estimates[name]
    if metric in (PRECISION, IOU):
        return f"{100 * estimate.mean:.2f}"
    if metric == HIT:
        return f"{100 * estimate.mean:.1f}"
    interval = f"[{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
    return f"{100 * estimate.mean:.1f} {interval}"


def _difference(estimate: Estimate) -> Text:
    """Returns the text for the difference of two systems in percentage points.

    The interval of the difference follows in brackets.

    If the difference is statistically significant, the text is coloured and ends with a star. It is
    significant if there are enough questions and the interval does not contain 0.
    """
    text = f"{_points(estimate.mean)} [{_points(estimate.low)}, {_points(estimate.high)}]"
    if not estimate.beyond_chance:
        return Text(f"{text}  ")
    return Text(f"{text} *", style="green" if estimate.mean > 0 else "red")


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _show_judged(judged: JudgeFigures, console: Console) -> None:
    for pair in judged.pairs:
        title = f"answers of {pair.system} against {pair.baseline}, wins in both orders"
        rows = (_balance_row(name, balance) for name, balance in pair.criteria.items())
        heads = ["", "wins", "ties", "losses", "net % [95 % interval]"]
        _print_table(console, title, heads, rows)
        counts = f"{pair.identical:,} identical, {len(pair.failures):,} failed"
        console.print(f"{_agreement(pair)}; {counts}", markup=False, soft_wrap=True)
        _show_failures("comparison", "comparisons", pair.system, pair.failures, console)
    total = f"{counted(judged.questions, 'question')}, {judged.with_reference:,} with a reference"
    console.print(f"{total}; {_cost(judged.usage)}", markup=False, soft_wrap=True)


def _agreement(pair: PairFigures) -> str:
    if pair.consistent is None:
        return "no comparison was judged"
    return (
        f"both orders agree in {100 * pair.consistent:.0f} %; the first answer is preferred "
        f"in {100 * pair.first_preferred:.0f} %"
    )


def _balance_row(criterion: str, balance: Balance) -> Row:
    name = "as a whole" if criterion == CRITERIA[0] else criterion
    counts = (f"{count:,}" for count in (balance.wins, balance.ties, balance.losses))
    return [name, *counts, _difference(balance.net)]


def _cost(usage: ChatUsage) -> str:
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    reported = tokens if usage.prompt_tokens else "tokens not reported by the endpoint"
    return f"{usage.model}: {counted(usage.calls, 'call')}, {usage.failed:,} failed, {reported}"


def _show_failures(
    call: str, calls: str, system: str, failures: Sequence[FailedCall], console: Console
) -> None:
    """Prints how many calls of a system failed, and the first `_FAILURES_SHOWN` messages.

    `call` and `calls` are the word for one of these calls and for several of them.
    """
    if not failures:
        return
    heading = f"{counted(len(failures), call, calls)} of {system} failed:"
    console.print(Text(heading, style="red"))
    for failure in failures[:_FAILURES_SHOWN]:
        line = " ".join(printable(f"  {failure.subject}: {failure.message}").splitlines())
        console.print(Text(line, style="red"), soft_wrap=True)
    if len(failures) > _FAILURES_SHOWN:
        console.print(f"  and {len(failures) - _FAILURES_SHOWN:,} more: see --json")


def _print_table(
    console: Console,
    title: str,
    heads: Sequence[str],
    rows: Iterable[Row],
) -> None:
    table = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    _print_whole(table, len(title), console)
    console.print()


def _print_whole(table: Table, title_chars: int, console: Console) -> None:
    """Prints a table at its full width, even if the terminal is narrower.

    If the table had the terminal's width, figures could be cut off and be worthless.
    """
    unbounded = console.options.update(width=_ANY_WIDTH)
    required = max(title_chars, Measurement.get(console, unbounded, table).maximum)
    previous = console.width
    console.width = max(previous, required)
    console.print(table, soft_wrap=True)
    console.width = previous
