"""The HTML report is complete, loads nothing from outside, and escapes hostile questions."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from hrag.cli.evaluation_tables import show_report
from hrag.errors import ChatUnavailable
from hrag.evaluation.bootstrap import Estimate
from hrag.evaluation.charts import Bar, Series, bar_chart, interval_chart, line_chart
from hrag.evaluation.chat_calls import ChatUsage
from hrag.evaluation.context_budget import BudgetedText
from hrag.evaluation.html_report import html_report
from hrag.evaluation.judge import CRITERIA, Balance, JudgeFigures, PairFigures
from hrag.evaluation.questions import GoldSpan, Question, TextSpan
from hrag.evaluation.report_files import Report, report_json
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import Outcome, SearchTarget
from hrag.evaluation.summary import FailedCall, RetrievalFigures, summarise
from hrag.evaluation.systems import parse_systems

HOSTILE = "<script>alert('x')</script> & http://evil.example"
HALF = Estimate(0.5, 0.25, 0.75, 20)
FEW = "with fewer than 20 the intervals are too narrow"


def figures(repeated: int = 1) -> RetrievalFigures:
    """Returns the figures of two systems for two questions.

    The system `standard` fails on the second question. The two questions occur `repeated` times.
    """
    span = TextSpan("a", 0, 10)
    pair = [Question("q1", HOSTILE, (GoldSpan(span),)), Question("q2", "?", (GoldSpan(span),))]
    questions = pair * repeated
    systems = parse_systems("context,standard")
    retrieved = RetrievalResult((span,), {1000: BudgetedText((span,), 5)}, ((),), 1500, 1, 1)
    outcomes: dict[str, list[Outcome]] = {
        "context": [retrieved, retrieved] * repeated,
        "standard": [retrieved, ChatUnavailable(f"down: {HOSTILE}")] * repeated,
    }
    where = SearchTarget("acme", budgets=(1000,))
    return summarise(questions, systems, outcomes, where, baseline="standard", seed=0, resamples=50)


def judged() -> JudgeFigures:
    """Returns the figures of a judge who compared `context` with `standard`."""
    pair = PairFigures(
        system="context",
        baseline="standard",
        criteria=dict.fromkeys(CRITERIA, Balance(3, 2, 1, HALF)),
        consistent=0.8,
        first_preferred=0.6,
        identical=1,
        failures=(FailedCall("q2", "ChatRejected", "no verdict"),),
    )
    return JudgeFigures(ChatUsage("scripted", 9, 1, 500, 50), 4000, 6, 2, (pair,), ("judge less",))


def report() -> Report:
    return Report(
        {"collection": HOSTILE, "questions": 1234}, figures(), judged(), None, ("beware",)
    )


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_a_page_loads_nothing_and_runs_no_script() -> None:
    page = html_report(report())
    parsed = _Tags()
    parsed.feed(page)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(parsed.tags)
    names = {name for name, _ in parsed.attributes}
    assert not {"src", "href", "xlink:href", "style", "onload"} & names
    outside = re.sub(re.escape("http://evil.example"), "", page)
    assert "//" not in outside
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def test_a_page_shows_figures_failures_and_warnings() -> None:
    page = html_report(report())
    assert "alert(&#x27;x&#x27;)" in page
    for shown in (
        "1,234",
        "2 calls failed",
        "beware",
        f"only 2 questions with gold: {FEW}",
        "judge less",
        "100.0",
        "+50.0",
        "ChatUnavailable",
        "3 : 2 : 1",
        "500 tokens read and 50 written",
        "first is preferred in 60 %",
    ):
        assert shown in page, shown
    assert page.count('<svg role="img"') == 4


def test_with_few_questions_no_difference_is_marked() -> None:
    """The difference of the means is 50 points, for 2 questions and for 20."""
    few, enough = figures(), figures(repeated=10)
    assert FEW in few.warnings[-1]
    assert enough.warnings == ()
    pages = [html_report(Report({}, retrieval)) for retrieval in (few, enough)]
    assert ['<td class="better">+50.0' in page for page in pages] == [False, True]
    assert ['class="point beyond"' in page for page in pages] == [False, True]


@pytest.mark.parametrize("beyond", [False, True])
def test_a_table_marks_only_differences_beyond_chance_with_a_star(beyond: bool) -> None:
    file = StringIO()
    console = Console(file=file, width=200)
    show_report(Report({}, figures(repeated=10 if beyond else 1), judged()), console)
    shown = file.getvalue()
    assert (" *" in shown.partition("answers of context against")[0]) is beyond
    assert ("warning: only 2 questions with gold" in shown) is not beyond
    assert "warning: judge less" in shown


def test_without_judged_comparisons_no_agreement_is_shown() -> None:
    pair = replace(judged().pairs[0], consistent=None, identical=6)
    report = Report({}, judged=replace(judged(), pairs=(pair,)))
    file = StringIO()
    console = Console(file=file, width=200)
    show_report(report, console)
    assert "no comparison was judged; 6 identical, 1 failed" in file.getvalue()
    page = html_report(report)
    assert "No comparison was judged. Identical answers: 6. Failed comparisons: 1." in page
    assert "Both orders agree" not in page
    assert report_json(report)["judged"]["pairs"][0]["consistent"] is None


def test_parts_that_were_not_measured_are_left_out() -> None:
    empty = html_report(Report({"collection": "docs"}))
    assert "<svg" not in empty
    unreported = replace(judged(), usage=ChatUsage("scripted", 9), pairs=())
    assert "the endpoint reports no tokens" in html_report(Report({}, judged=unreported))


def test_the_json_report_has_the_same_figures() -> None:
    document = report_json(report())
    assert document["version"] == 1
    context, standard = document["retrieval"]["systems"]
    assert context["estimates"]["recall@1000"] == {
        "mean": 1,
        "low": 1,
        "high": 1,
        "questions": 2,
    }
    assert context["differences"]["recall@1000"]["mean"] == 0.5
    assert standard["failures"][0]["error"] == "ChatUnavailable"
    assert document["judged"]["pairs"][0]["criteria"]["logic"]["wins"] == 3
    assert document["retrieval"]["questions"][0]["scores"]["standard"]["mrr"] == 1


@pytest.mark.parametrize(
    "chart",
    [
        line_chart("t <", ["1", "2"], [Series(f"s{n}", [HALF, HALF]) for n in range(11)]),
        interval_chart(
            "t", [("a & b", HALF), ("c", Estimate(-0.5, -0.6, -0.4, 20))], ["+1", "-50"]
        ),
        interval_chart("t", [("a", Estimate(0, 0, 0, 20))], ["0"]),
        bar_chart("t", [Bar("x" * 99, [1, 2], "1:2"), Bar("none", [0, 0], "0")], ["win", "loss"]),
        bar_chart("t", [], ["win"]),
    ],
)
def test_charts_are_well_formed_and_stay_in_their_frame(chart: str) -> None:
    drawing = ElementTree.fromstring(chart)
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    for element in drawing.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.attrib.get(name, 0)) <= width
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.attrib.get(name, 0)) <= height
