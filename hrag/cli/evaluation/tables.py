"""The result of `hrag eval` on a terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hrag.cli.terminal.render import counted, duration
from hrag.evaluation.bootstrap import Estimate
from hrag.evaluation.chat_calls import ChatUsage
from hrag.evaluation.generator import Generated
from hrag.evaluation.judge import CRITERIA, Balance, JudgeFigures, PairFigures
from hrag.evaluation.report_files import Report
from hrag.evaluation.retrieval_metrics import HIT, IOU, MRR, NDCG, PRECISION, RECALL, at_budget
from hrag.evaluation.summary import FailedCall, RetrievalFigures, SystemFigures
from hrag.text.plain_text import printable

Row = list[str | Text]

_ANY_WIDTH = 1000
_FAILURES_SHOWN = 5
_TITLES = {
    RECALL: "recall of the gold, % [95 % interval]",
    PRECISION: "precision, %: how much of the text is gold",
    IOU: "intersection over union, %",
    HIT: "hit rate, %: questions whose text finds any of the gold",
}


def show_report(report: Report, console: Console) -> None:
    """Prints all tables, then what failed."""
    if report.retrieval is not None:
        _show_retrieval(report.retrieval, console)
    if report.judged is not None:
        _show_judged(report.judged, console)
    for warning in report.all_warnings:
        console.print(Text(printable(f"warning: {warning}"), style="yellow"), soft_wrap=True)


def show_generated(generated: Generated, path: Path, console: Console) -> None:
    """Prints how many questions were written, why replies were rejected, and the cost."""
    line = f"{generated.added:,} questions written to {path}, which has {generated.questions:,}"
    console.print(printable(line), markup=False, soft_wrap=True)
    for reason, count in sorted(generated.rejected.items()):
        console.print(f"  {count:,} times: {reason}", markup=False, soft_wrap=True)
    console.print(_cost(generated.usage), markup=False, soft_wrap=True)


def _show_retrieval(figures: RetrievalFigures, console: Console) -> None:
    heads = ["at tokens", *(f"{each:,}" for each in figures.budgets)]
    for metric, title in _TITLES.items():
        names = [at_budget(metric, each) for each in figures.budgets]
        rows = (_metric_row(each, names, metric) for each in figures.systems)
        _print_table(console, title, heads, rows)
        if metric == RECALL:
            _show_differences(figures, heads, names, console)
    _print_table(
        console,
        f"ranks, and what a search for {figures.budgets[-1]:,} tokens costs (without embedding)",
        ["", "MRR", "nDCG@10", "p50", "p95", "tokens", "fallbacks", "failed"],
        (_rank_row(each, figures.budgets[-1]) for each in figures.systems),
    )
    console.print(f"{counted(len(figures.questions), 'question')}", markup=False)
    for each in figures.systems:
        _show_failures(f"searches of {each.name}", each.failures, console)


def _show_differences(
    figures: RetrievalFigures, heads: Sequence[str], names: Sequence[str], console: Console
) -> None:
    others = [each for each in figures.systems if each.differences]
    if others:
        title = f"recall compared with {figures.baseline}, points [paired 95 % interval]"
        _print_table(console, title, heads, (_difference_row(each, names) for each in others))


def _metric_row(system: SystemFigures, names: Sequence[str], metric: str) -> Row:
    return [system.name, *(_cell(system, name, metric) for name in names)]


def _difference_row(system: SystemFigures, names: Sequence[str]) -> Row:
    return [system.name, *(_difference(system.differences[name]) for name in names)]


def _rank_row(each: SystemFigures, budget: int) -> Row:
    return [
        each.name,
        f"{100 * each.estimates[MRR].mean:.1f}",
        f"{100 * each.estimates[NDCG].mean:.1f}",
        duration(each.latency_p50_us),
        duration(each.latency_p95_us),
        f"{each.tokens[budget]:,.0f}",
        f"{sum(each.fallbacks.values()):,}",
        f"{len(each.failures):,}/{each.searches:,}",
    ]


def _cell(system: SystemFigures, name: str, metric: str) -> str:
    """The mean, with its interval for recall."""
    each = system.estimates[name]
    if metric in (PRECISION, IOU):
        return f"{100 * each.mean:.2f}"
    if metric == HIT:
        return f"{100 * each.mean:.1f}"
    return f"{100 * each.mean:.1f} [{100 * each.low:.0f}, {100 * each.high:.0f}]"


def _difference(each: Estimate) -> Text:
    """A difference beyond chance is coloured and has a star."""
    text = f"{_points(each.mean)} [{_points(each.low)}, {_points(each.high)}]"
    if not each.beyond_chance:
        return Text(f"{text}  ")
    return Text(f"{text} *", style="green" if each.mean > 0 else "red")


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _show_judged(judged: JudgeFigures, console: Console) -> None:
    for pair in judged.pairs:
        title = f"answers of {pair.system} against {pair.baseline}, wins in both orders"
        rows = (_balance_row(name, each) for name, each in pair.criteria.items())
        heads = ["", "wins", "ties", "losses", "net % [95 % interval]"]
        _print_table(console, title, heads, rows)
        counts = f"{pair.identical:,} identical, {len(pair.failures):,} failed"
        console.print(f"{_agreement(pair)}; {counts}", markup=False, soft_wrap=True)
        _show_failures(f"comparisons of {pair.system}", pair.failures, console)
    asked = f"{counted(judged.questions, 'question')}, {judged.with_reference:,} with a reference"
    console.print(f"{asked}; {_cost(judged.usage)}", markup=False, soft_wrap=True)


def _agreement(pair: PairFigures) -> str:
    if pair.consistent is None:
        return "no comparison was judged"
    return (
        f"both orders agree in {100 * pair.consistent:.0f} %; the first answer is preferred "
        f"in {100 * pair.first_preferred:.0f} %"
    )


def _balance_row(criterion: str, each: Balance) -> Row:
    name = "as a whole" if criterion == CRITERIA[0] else criterion
    return [name, f"{each.wins:,}", f"{each.ties:,}", f"{each.losses:,}", _difference(each.net)]


def _cost(usage: ChatUsage) -> str:
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    reported = tokens if usage.prompt_tokens else "tokens not reported by the endpoint"
    return f"{usage.model}: {usage.calls:,} calls, {usage.failed:,} failed, {reported}"


def _show_failures(what: str, failures: Sequence[FailedCall], console: Console) -> None:
    if not failures:
        return
    console.print(Text(f"{len(failures):,} {what} failed:", style="red"))
    for each in failures[:_FAILURES_SHOWN]:
        line = " ".join(printable(f"  {each.subject}: {each.message}").splitlines())
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
        table.add_row(*(each if isinstance(each, Text) else Text(each) for each in row))
    _print_whole(table, len(title), console)
    console.print()


def _print_whole(table: Table, title_chars: int, console: Console) -> None:
    """Prints a table as wide as it is; cut off, figures would be worthless."""
    unbounded = console.options.update(width=_ANY_WIDTH)
    needed = max(title_chars, Measurement.get(console, unbounded, table).maximum)
    present = console.width
    console.width = max(present, needed)
    console.print(table, soft_wrap=True)
    console.width = present
