"""Writes the report as one HTML file: findings, questions, figures and failures.

The first screen says which system is better, by how much, for which questions not, and at what
cost. The table of all questions follows, then every figure.

The table of all questions is shown by modules of the explorer, which shows the same table. The file
contains everything: style, script, charts and data. The page's content security policy
forbids the browser to load anything, and names the hashes of the only style and the only script
that may be used. Text from questions and documents is escaped.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources

from hrag.evaluation.bootstrap import MIN_QUESTIONS, Estimate
from hrag.evaluation.charts import Bar, Series, bar_chart, interval_chart, line_chart
from hrag.evaluation.findings import ComparisonFindings, KindFinding, duration, points
from hrag.evaluation.html_questions import question_section
from hrag.evaluation.judge import CRITERIA, AnswerCost, JudgeFigures, PairFigures
from hrag.evaluation.question_kinds import KindFigures
from hrag.evaluation.report_files import Report
from hrag.evaluation.retrieval_metrics import HIT, IOU, MRR, NDCG, PRECISION, RECALL, at_budget
from hrag.evaluation.searches import main_budget
from hrag.evaluation.summary import FailedCall, RetrievalFigures, SystemFigures
from hrag.evaluation.systems import describe
from hrag.text.noun_counts import counted

_STYLES = ("evaluation/report.css", "gateway/explorer/question_table.css")
# These modules import nothing, so that together they are one module.
_SCRIPTS = (
    "gateway/explorer/text_format.js",
    "gateway/explorer/question_texts.js",
    "gateway/explorer/question_table.js",
    "evaluation/report.js",
)
_SYSTEM = "system"
_SEARCH_HEADS = ["tokens", "search, p50"]
_ANSWER_HEADS = ["tokens for an answer", "answer, p50"]
# A list of the first screen has at most this many findings; the table of kinds has all.
_FINDINGS_SHOWN = 5
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
    style, script = _joined(_STYLES), _joined(_SCRIPTS)
    title = f"Retrieval quality: {report.about.get('collection', '')}"
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    findings = report.findings
    return "".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body>",
            *_head(report, title, findings),
            *_kinds(report, findings),
            *question_section(report),
            *(_retrieval(report.retrieval) if report.retrieval else ()),
            *(_judged(report.judged) if report.judged else ()),
            *_failures(report),
            *_about(report),
            f'<script type="module">{script}</script>' if report.questions else "",
            "</body></html>\n",
        )
    )


def _joined(paths: Iterable[str]) -> str:
    """Returns the contents of files of hrag, one after the other."""
    files = resources.files("hrag")
    return "\n".join(files.joinpath(path).read_text("utf-8") for path in paths)


def _hash(content: str) -> str:
    """Returns the source expression by which a policy allows this style or script alone."""
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _head(report: Report, title: str, findings: ComparisonFindings) -> Iterator[str]:
    """Yields the first screen: what won, the figures of each system, and what to beware of."""
    date = str(report.about.get("date", ""))[:10]
    yield f'<p class="kicker">{escape(" · ".join(filter(None, (title, date))))}</p>'
    yield f"<h1>{escape(findings.first)}</h1>"
    yield from (_paragraph(sentence, "lead") for sentence in findings.further)
    yield from _scoreboard(report)
    failed = report.failed_calls
    if failed:
        yield _paragraph(f"{counted(failed, 'call')} failed; see the end of the page.", "warning")
    yield from (_paragraph(warning, "warning") for warning in report.all_warnings)


def _scoreboard(report: Report) -> Iterator[str]:
    """Yields a table of the systems: what each is, what it finds, and what it costs."""
    figures = report.retrieval
    budget = main_budget(figures.budgets) if figures else 0
    names = [system.name for system in figures.systems] if figures else []
    names = names or [cost.system for cost in report.judged.costs] if report.judged else names
    by_name = {system.name: system for system in figures.systems} if figures else {}
    costs = {cost.system: cost for cost in report.judged.costs} if report.judged else {}
    words = {system.name: describe(system) for system in report.systems}
    heads = [_SYSTEM, *((f"found in {budget:,} tokens, %", *_SEARCH_HEADS) if figures else ())]
    heads += _ANSWER_HEADS if costs else []
    rows = []
    for name in names:
        about = f"<small>{escape(words[name])}</small>" if name in words else ""
        row = [f'<td class="text"><b>{escape(name)}</b>{about}</td>']
        if name in by_name:
            row += _search_cells(by_name[name], budget)
        if name in costs:
            row += _answer_cells(costs[name])
        rows.append(row)
    if rows:
        yield f'<div class="scoreboard">{_table(heads, rows)}</div>'


def _search_cells(system: SystemFigures, budget: int) -> Iterator[str]:
    yield _bar_cell(system.estimates[at_budget(RECALL, budget)])
    values = (f"{system.tokens[budget]:,.0f}", duration(system.latency_p50_us))
    yield from map(_labelled_cell, values, _SEARCH_HEADS)


def _answer_cells(cost: AnswerCost) -> Iterator[str]:
    tokens = f"{cost.prompt_tokens + cost.completion_tokens:,.0f}"
    values = (tokens if cost.prompt_tokens else "not reported", duration(cost.took_p50_us))
    yield from map(_labelled_cell, values, _ANSWER_HEADS)


def _labelled_cell(text: str, label: str) -> str:
    """Returns a cell that names its column, for narrow screens, which hide the head of a table."""
    return f'<td data-label="{escape(label)}">{escape(text)}</td>'


def _bar_cell(estimate: Estimate) -> str:
    """Returns a cell with a share as a bar and a number, with its interval."""
    mean, low, high = (100 * value for value in (estimate.mean, estimate.low, estimate.high))
    return (
        '<td class="found"><svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" '
        'aria-hidden="true">'
        f'<rect class="rest" width="100" height="8"/><rect class="amount" width="{mean:.1f}" '
        f'height="8"/><rect class="reach" x="{low:.1f}" y="3" width="{high - low:.1f}" height="2"/>'
        f"</svg>{mean:.1f} <small>{low:.1f} to {high:.1f}</small></td>"
    )


def _kinds(report: Report, findings: ComparisonFindings) -> Iterator[str]:
    """Yields for which kinds of questions which system is better, then the figures of each kind."""
    if not report.kinds:
        return
    yield "<h2>Which is better for which questions?</h2>"
    compared = (*findings.kinds, *findings.unclear)
    yield '<div class="kinds">'
    for name in dict.fromkeys(name for one in compared for name in (one.better, one.worse)):
        better = [finding for finding in findings.kinds if finding.better == name]
        yield from _kind_list(f"{name} is better", better, "beyond chance, for no kind of question")
    yield from _kind_list(
        "No difference beyond chance", findings.unclear, "for no kind of question"
    )
    yield "</div>"
    too_few = (
        f"{findings.too_few:,} comparisons by kind have fewer than {MIN_QUESTIONS} questions and "
        "decide nothing. "
    )
    yield _paragraph(
        f"{too_few if findings.too_few else ''}Each interval has 95 %, so of 20 kinds without any "
        "difference, one seems to have one.",
        "note",
    )
    yield "<details><summary>The figures of each kind</summary>"
    yield _kind_table(report.kinds)
    yield "</details>"


def _kind_list(title: str, kinds: Sequence[KindFinding], none: str) -> Iterator[str]:
    yield f"<div><h3>{escape(title)}</h3>"
    if not kinds:
        yield _paragraph(none, "note")
    else:
        items = (f"<li>{escape(finding.text)}</li>" for finding in kinds[:_FINDINGS_SHOWN])
        yield f"<ul>{''.join(items)}</ul>"
        if len(kinds) > _FINDINGS_SHOWN:
            yield _paragraph(f"and {len(kinds) - _FINDINGS_SHOWN:,} more kinds", "note")
    yield "</div>"


def _kind_table(kinds: Sequence[KindFigures]) -> str:
    systems = dict.fromkeys(name for kind in kinds for name in kind.recall)
    compared = dict.fromkeys(name for kind in kinds for name in (*kind.differences, *kind.judged))
    heads = ["kind", "questions", *(f"{name}, % found" for name in systems)]
    for name in compared:
        heads += [f"{name}: difference", f"{name}: answers"]
    rows = []
    for kind in kinds:
        row = [_cell(f"{kind.trait}: {kind.value}", "text"), _cell(f"{kind.questions:,}")]
        row += [
            _cell(f"{100 * kind.recall[name].mean:.1f}" if name in kind.recall else "–")
            for name in systems
        ]
        for name in compared:
            row += [
                _kind_difference(figures.get(name)) for figures in (kind.differences, kind.judged)
            ]
        rows.append(row)
    return _table(heads, rows)


def _kind_difference(estimate: Estimate | None) -> str:
    if estimate is None:
        return _cell("–")
    style = ("better" if estimate.mean > 0 else "worse") if estimate.beyond_chance else ""
    return _cell(points(estimate), style)


def _about(report: Report) -> Iterator[str]:
    """Yields when, where and with which models the figures were measured."""
    if not report.about:
        return
    yield "<h2>How this was measured</h2><dl>"
    for name, value in report.about.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        yield f"<dt>{escape(name)}</dt><dd>{escape(shown)}</dd>"
    yield "</dl>"


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
                _cell(duration(system.latency_p50_us)),
                _cell(duration(system.latency_p95_us)),
                _cell(f"{system.tokens[budget]:,.0f}"),
                _cell(f"{sum(system.fallbacks.values()):,}"),
                _cell(f"{len(system.failures):,} of {system.searches:,}"),
            ]
            for system in figures.systems
        ),
    )
    bars = [
        Bar(system.name, [system.latency_p50_us], duration(system.latency_p50_us))
        for system in figures.systems
    ]
    yield _figure(bar_chart("Latency", bars, ["amount"]), "Latency, p50.")


def _judged(judged: JudgeFigures) -> Iterator[str]:
    usage = judged.usage
    tokens = f"{usage.prompt_tokens:,} tokens read and {usage.completion_tokens:,} written"
    yield "<h2>Answers compared by a chat model</h2>"
    yield _paragraph(
        f"{counted(judged.questions, 'question')} ({judged.with_reference:,} with a reference "
        f"answer), answered by {usage.model} from passages of {judged.passage_tokens:,} tokens. "
        "The same model compares two answers in both orders. An answer wins if it is preferred in "
        "both orders; if the preference changes with the order, the result is a tie. "
        f"{counted(usage.calls, 'call')}"
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
        f"{_agreement(pair)} Identical answers: {pair.identical:,}. Failed comparisons: "
        f"{len(pair.failures):,}.",
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
    lists: list[tuple[str, str, Sequence[FailedCall]]] = []
    if report.retrieval:
        lists += [("searches", system.name, system.failures) for system in report.retrieval.systems]
    if report.judged:
        lists += [("comparisons", pair.system, pair.failures) for pair in report.judged.pairs]
    if any(failures for *_, failures in lists):
        yield "<h2>Failed calls</h2>"
    for calls, system, failures in lists:
        if failures:
            yield f"<h3>{escape(system)}, {calls}: {len(failures):,}</h3>"
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
