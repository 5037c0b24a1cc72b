"""Writes the report as one HTML file: figures, plots and failures, readable without a network.

The file contains everything: style, charts and data. The page's content security policy forbids the
browser to load anything. Text from questions and documents is escaped.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources

from hrag.evaluation.bootstrap import MIN_QUESTIONS, Estimate
from hrag.evaluation.charts import Bar, Series, bar_chart, interval_chart, line_chart
from hrag.evaluation.judge import CRITERIA, JudgeFigures, PairFigures
from hrag.evaluation.report_files import Report
from hrag.evaluation.retrieval_metrics import HIT, IOU, MRR, NDCG, PRECISION, RECALL, at_budget
from hrag.evaluation.summary import FailedCall, RetrievalFigures, ScoredQuestion, SystemFigures

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_QUESTIONS_SHOWN = 30
_FAILURES_SHOWN = 50
# Small estimates are shown with two digits after the decimal point instead of one digit. An
# estimate is small if the upper end of its interval is below this value, which means 10 %.
_SMALL = 0.1
_METRICS = (
    (RECALL, "Recall", "Share of the gold that the returned text contains, in %."),
    (PRECISION, "Precision", "Share of the returned text that is gold, in %."),
    (
        IOU,
        "Intersection over union",
        "Gold in the returned text, divided by gold and text together, in %.",
    ),
    (
        HIT,
        "Hit rate",
        "Questions for which a returned passage matches an expected text or document, in %.",
    ),
)


def html_report(report: Report) -> str:
    """Returns the report as an HTML page."""
    style = resources.files("hrag.evaluation").joinpath("report.css").read_text("utf-8")
    title = f"Retrieval quality: {report.about.get('collection', '')}"
    return "".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_about(report),
            *(_retrieval(report.retrieval) if report.retrieval else ()),
            *(_judged(report.judged) if report.judged else ()),
            *_failures(report),
            "</body></html>\n",
        )
    )


def _about(report: Report) -> Iterator[str]:
    yield "<dl>"
    for name, value in report.about.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        yield f"<dt>{escape(name)}</dt><dd>{escape(shown)}</dd>"
    yield "</dl>"
    failed = report.failed_calls
    if failed:
        yield _paragraph(f"{failed:,} calls failed; see the end of the page.", "warning")
    yield from (_paragraph(warning, "warning") for warning in report.all_warnings)


def _retrieval(figures: RetrievalFigures) -> Iterator[str]:
    budgets = [f"{budget:,}" for budget in figures.budgets]
    yield "<h2>Recall at equal token budgets</h2>"
    series = [
        Series(system.name, [system.estimates[at_budget(RECALL, b)] for b in figures.budgets])
        for system in figures.systems
    ]
    yield _figure(
        line_chart("Recall by token budget", budgets, series),
        "Recall in % when the passages fill the token budget, with 95 % intervals.",
    )
    yield from _differences(figures)
    for metric, title, caption in _METRICS:
        yield f"<h2>{escape(title)}</h2>"
        yield _paragraph(caption, "note")
        yield _table(
            ["system", *(f"{budget} tokens" for budget in budgets)],
            (
                [_cell(system.name, "text")]
                + [_estimate(system, at_budget(metric, budget)) for budget in figures.budgets]
                for system in figures.systems
            ),
        )
    yield from _ranks_and_cost(figures)
    yield from _questions(figures)


def _differences(figures: RetrievalFigures) -> Iterator[str]:
    compared = [system for system in figures.systems if system.differences]
    if not compared:
        return
    budget = figures.budgets[len(figures.budgets) // 2]
    rows = [(system.name, system.differences[at_budget(RECALL, budget)]) for system in compared]
    yield f"<h2>Compared with {escape(figures.baseline)}</h2>"
    yield _figure(
        interval_chart("Difference in recall", rows, [_points(row.mean) for _, row in rows]),
        f"Difference in recall at {budget:,} tokens, in percentage points, with 95 % bootstrap "
        "intervals that are paired by question. A blue interval means a difference beyond chance: "
        f"it excludes zero, and there are {MIN_QUESTIONS} questions or more. "
        f"{figures.resamples:,} resamples, seed {figures.seed}.",
    )
    names = [*(at_budget(RECALL, size) for size in figures.budgets), MRR, NDCG]
    yield _table(
        ["difference in percentage points", *names],
        (
            [_cell(system.name, "text"), *(_difference(system.differences[name]) for name in names)]
            for system in compared
        ),
    )


def _ranks_and_cost(figures: RetrievalFigures) -> Iterator[str]:
    budget = figures.budgets[-1]
    yield "<h2>Ranks, latency and tokens</h2>"
    yield _paragraph(
        "MRR and nDCG@10 of the ranking, in %. Latency is measured by the client, for one search "
        f"at a time that fills {budget:,} tokens, without the time for embedding the question. "
        "Tokens are the average count of returned tokens.",
        "note",
    )
    yield _table(
        ["system", "MRR", "nDCG@10", "p50", "p95", "tokens", "fallbacks", "failed"],
        (
            [
                _cell(system.name, "text"),
                _estimate(system, MRR),
                _estimate(system, NDCG),
                _cell(f"{system.latency_p50_us / 1000:.1f} ms"),
                _cell(f"{system.latency_p95_us / 1000:.1f} ms"),
                _cell(f"{system.tokens[budget]:,.0f}"),
                _cell(f"{sum(system.fallbacks.values()):,}"),
                _cell(f"{len(system.failures):,} of {system.searches:,}"),
            ]
            for system in figures.systems
        ),
    )
    bars = [
        Bar(system.name, [system.latency_p50_us], f"{system.latency_p50_us / 1000:.1f} ms")
        for system in figures.systems
    ]
    yield _figure(bar_chart("Latency", bars, ["amount"]), "Latency, p50.")


def _questions(figures: RetrievalFigures) -> Iterator[str]:
    """Yields the HTML of two tables of questions, with the recall of each system.

    The first table has the questions on which the recall of the systems differs most. The second
    table has the questions for which the recall of every system is 0.
    """
    name = at_budget(RECALL, figures.budgets[-1])

    def spread(question: ScoredQuestion) -> float:
        recalls = [scores[name] for scores in question.scores.values()]
        return max(recalls) - min(recalls)

    def best(question: ScoredQuestion) -> float:
        return max(scores[name] for scores in question.scores.values())

    by_spread = sorted(figures.questions, key=spread, reverse=True)[:_QUESTIONS_SHOWN]
    missed = [question for question in figures.questions if not best(question)]
    for title, shown in (
        ("Questions on which the systems differ most", [q for q in by_spread if spread(q)]),
        (f"Questions that every system misses: {len(missed):,}", missed[:_QUESTIONS_SHOWN]),
    ):
        if shown:
            yield f"<details><summary>{escape(title)}</summary>"
            yield _paragraph(f"Recall in % at {figures.budgets[-1]:,} tokens.", "note")
            yield _table(
                ["question", *(system.name for system in figures.systems)],
                (
                    [_cell(f"{q.text} ({q.question_id})", "text")]
                    + [_cell(f"{100 * q.scores[s.name][name]:.0f}") for s in figures.systems]
                    for q in shown
                ),
            )
            yield "</details>"


def _judged(judged: JudgeFigures) -> Iterator[str]:
    usage = judged.usage
    tokens = f"{usage.prompt_tokens:,} tokens read and {usage.completion_tokens:,} written"
    yield "<h2>Answers compared by a chat model</h2>"
    yield _paragraph(
        f"{judged.questions:,} questions ({judged.with_reference:,} with a reference answer), "
        f"answered by {usage.model} from passages of {judged.passage_tokens:,} tokens. The same "
        "model compares two answers in both orders. An answer wins if it is preferred in both "
        "orders; if the preference changes with the order, the result is a tie. "
        f"{usage.calls:,} calls"
        + (f", {usage.failed:,} failed" if usage.failed else "")
        + (f"; {tokens}." if usage.prompt_tokens else "; the endpoint reports no tokens."),
        "note",
    )
    for pair in judged.pairs:
        yield from _pair(pair)


def _pair(pair: PairFigures) -> Iterator[str]:
    bars = [
        Bar(
            "as a whole" if name == CRITERIA[0] else name,
            (balance.wins, balance.ties, balance.losses),
            f"{balance.wins} : {balance.ties} : {balance.losses}",
        )
        for name, balance in pair.criteria.items()
    ]
    net = pair.criteria[CRITERIA[0]].net
    yield f"<h3>{escape(pair.system)} against {escape(pair.baseline)}</h3>"
    yield _figure(
        bar_chart(f"{pair.system} against {pair.baseline}", bars, ("win", "tie", "loss")),
        f"Wins : ties : losses of {pair.system}. As a whole, wins minus losses are "
        f"{_points(net.mean)} % of the questions ({_points(net.low)} to {_points(net.high)}). "
        f"{_agreement(pair)} {pair.identical:,} answers are identical, "
        f"{len(pair.failures):,} comparisons failed.",
    )


def _agreement(pair: PairFigures) -> str:
    """Returns a sentence that says how often the judge prefers the same answer in both orders."""
    if pair.consistent is None:
        return "No comparison was judged."
    return (
        f"Both orders agree in {100 * pair.consistent:.0f} %; the answer shown first is "
        f"preferred in {100 * pair.first_preferred:.0f} % (50 % without a bias)."
    )


def _failures(report: Report) -> Iterator[str]:
    lists: list[tuple[str, Sequence[FailedCall]]] = []
    if report.retrieval:
        lists += [
            (f"searches of {system.name}", system.failures) for system in report.retrieval.systems
        ]
    if report.judged:
        lists += [(f"comparisons of {pair.system}", pair.failures) for pair in report.judged.pairs]
    if any(failures for _, failures in lists):
        yield "<h2>Failed calls</h2>"
    for calls, failures in lists:
        if failures:
            yield f"<h3>{len(failures):,} {escape(calls)}</h3>"
            yield _table(
                ["question", "error", "message"],
                (
                    [_cell(failure.subject, "text"), _cell(failure.error, "text"),
                     _cell(failure.message, "text")]
                    for failure in failures[:_FAILURES_SHOWN]
                ),
            )  # fmt: skip


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str, style: str = "") -> str:
    return f'<td class="{style}">{escape(text)}</td>' if style else f"<td>{escape(text)}</td>"


def _estimate(system: SystemFigures, name: str) -> str:
    estimate = system.estimates[name]
    digits = 2 if 0 < estimate.high < _SMALL else 1
    interval = f"{100 * estimate.low:.{digits}f} to {100 * estimate.high:.{digits}f}"
    return f"<td>{100 * estimate.mean:.{digits}f} <small>{interval}</small></td>"


def _difference(estimate: Estimate) -> str:
    style = ("better" if estimate.mean > 0 else "worse") if estimate.beyond_chance else ""
    interval = f"{_points(estimate.low)} to {_points(estimate.high)}"
    return f'<td class="{style}">{_points(estimate.mean)} <small>{interval}</small></td>'


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _figure(chart: str, caption: str) -> str:
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def _paragraph(text: str, style: str) -> str:
    return f'<p class="{style}">{escape(text)}</p>'
