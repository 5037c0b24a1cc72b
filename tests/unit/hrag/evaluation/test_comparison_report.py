"""A comparison's report says which system is better, and shows every question with its gold."""

import csv
import json
import re
from dataclasses import replace
from importlib.resources import files
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from hrag.cli.evaluation_tables import show_report
from hrag.errors import ChatUnavailable
from hrag.evaluation import html_questions
from hrag.evaluation.bootstrap import Estimate
from hrag.evaluation.csv_report import csv_report
from hrag.evaluation.findings import points
from hrag.evaluation.html_questions import json_block, page_data
from hrag.evaluation.html_report import html_report
from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.report_files import Report, report_json
from hrag.evaluation.systems import option_types
from hrag.types import Aggregation, FusionMethod, Retrieval, SummaryScope
from tests.support.documents.evaluation_fakes import comparison, judgement, kept, retrieval

HOSTILE = "</script><script>window.attacked=1</script>"
GOLD = GoldSpan(TextSpan("a", 6, 11))
RIGHT = kept("a", 0, "It is forty, they say.")
WRONG = kept("b", 0, "Nobody knows.")


def asked(count: int, **fields: Any) -> list[Question]:
    """Returns questions with the same gold."""
    return [Question(f"q{n}", f"How many in {n}?", (GOLD,), **fields) for n in range(count)]


def compared(better: int, worse: int, equal: int = 0, **options: Any) -> Report:
    """Returns a report in which `context` finds more for `better` questions, less for `worse`."""
    right, wrong = retrieval(RIGHT, quotes=1), retrieval(WRONG, quotes=1)
    context = [right] * better + [wrong] * worse + [right] * equal
    standard = [wrong] * better + [right] * worse + [right] * equal
    questions = asked(len(context))
    return comparison(questions, {"context": context, "standard": standard}, **options)


@pytest.mark.parametrize(
    ("better", "worse", "equal", "says"),
    [
        (15, 0, 15, r"context finds 50\.0 points more of the gold text than standard \[3.+\], wi"),
        (0, 15, 15, r"standard finds 50\.0 points more of the gold text than context \[3.+\], wi"),
        (11, 10, 9, r"No winner: context finds 3\.3 points more .+, and chance alone can explain"),
        (10, 11, 9, r"No winner: standard finds 3\.3 points more .+, and chance alone can explain"),
        (10, 0, 0, r"No winner: context finds 100\.0 .+, and 10 questions are too few to decide"),
        (0, 0, 30, r"context and standard find equally much of the gold text, within 1,000"),
    ],
)
def test_the_first_sentence_claims_nothing_that_chance_explains(
    better: int, worse: int, equal: int, says: str
) -> None:
    report = compared(better, worse, equal)
    assert re.match(says, report.findings.first), report.findings.first
    page = html_report(report)
    first_heading = page.partition("<h1>")[2].partition("</h1>")[0]
    assert first_heading == report.findings.first
    shown = StringIO()
    show_report(report, Console(file=shown, width=80))
    assert shown.getvalue().startswith(report.findings.first)
    assert report_json(report)["findings"]["first"] == report.findings.first


def test_one_system_is_described_alone_and_documents_are_named() -> None:
    questions = [Question("q", "?", (GoldDocument("a"),))]
    alone = comparison(questions, {"standard": [retrieval(RIGHT, quotes=1)]})
    assert alone.findings.first.startswith("standard finds 100.0 % of the expected documents [100")
    assert "<th>Difference" not in html_report(alone)


def test_an_interval_is_seen_from_the_better_system() -> None:
    difference = Estimate(-0.031, -0.05, -0.012, 40)
    assert points(difference) == "-3.1 [-5.0, -1.2]"
    assert points(difference, flipped=True) == "+3.1 [1.2, 5.0]"


def test_only_kinds_beyond_chance_are_claimed() -> None:
    """`context` is better for codes, `standard` for names; 5 questions decide nothing."""
    kinds = ["codes"] * 30 + ["names"] * 30 + ["rest"] * 5 + ["mixed"] * 24
    right, wrong = retrieval(RIGHT, quotes=1), retrieval(WRONG, quotes=1)
    questions = [Question(f"q{n}", "What?", (GOLD,), kind=kind) for n, kind in enumerate(kinds)]
    context = [right] * 30 + [wrong] * 30 + [right] * 5 + [right, wrong] * 12
    standard = [wrong] * 30 + [right] * 30 + [wrong] * 5 + [wrong, right] * 12
    report = comparison(questions, {"context": context, "standard": standard})
    found = report.findings
    assert "<h3>No difference beyond chance</h3>" in html_report(report)
    claims = {(one.better, one.value) for one in found.kinds}
    assert claims == {("context", "codes"), ("standard", "names")}
    assert [one.value for one in found.unclear] == ["mixed"]
    assert found.too_few == 1
    assert found.kinds[0].text.endswith("(+100.0 [100.0, 100.0], 30 questions)")


def test_the_judge_and_the_cost_have_sentences() -> None:
    report = compared(15, 0, 15, judged=judgement(asked(30), -1, "B is right."))
    (sentence,) = report.findings.further
    assert sentence == (
        "The judge scripted prefers the answers of standard to 30 of 30 questions, and those of "
        "context to 0 (+100.0 [100.0, 100.0] points)."
    )
    assert report.findings.costs[0] == (
        "context: 9 tokens of text on average, 1.5 ms for a search of 1,000 tokens (p50); 5.0 ms "
        "for an answer (p50), of 100 tokens read and 10 written."
    )
    assert any(one.measure == "answers" for one in report.findings.kinds) is False


def test_answers_are_compared_without_gold() -> None:
    questions = [Question(f"q{n}", "?") for n in range(20)]
    report = comparison(questions, {"context": [], "standard": []}, judgement(questions, 1))
    report = replace(report, retrieval=None)
    assert report.findings.first.startswith("The judge scripted prefers the answers of context")
    assert page_data(report)["questions"][0]["systems"]["context"]["recall"] is None
    assert "tokens for an answer" in html_report(report)


def test_a_question_opens_to_both_results_with_the_gold_marked() -> None:
    report = compared(1, 0, judged=judgement(asked(1), 1, "A is right."))
    (question,) = page_data(report)["questions"]
    context, standard = question["systems"]["context"], question["systems"]["standard"]
    assert (context["recall"], standard["recall"]) == (1, 0)
    assert context["answer"]["citations"] == [1]
    # The answer's own passages are shown, because its citations refer to them.
    assert context["isAnswered"]
    assert context["passages"][0]["parts"] == ["It is ", "forty", "."]
    assert question["verdicts"]["context"]["outcomes"]["logic"] == 1
    assert question["verdicts"]["context"]["reasons"] == ["A is right."] * 2


@pytest.mark.parametrize(
    ("text", "places", "parts"),
    [
        ("abc", [], ["abc"]),
        ("abc", [(0, 3)], ["", "abc", ""]),
        ("a😀bc", [(1, 2)], ["a", "😀", "bc"]),
        ("abcdef", [(4, 5), (1, 2)], ["a", "b", "cd", "e", "f"]),
        ("abcdef", [(1, 4), (2, 5)], ["a", "bcd", "", "e", "f"]),
        ("abc", [(2, 9)], ["ab", "c", ""]),
    ],
)
def test_gold_is_marked_as_text_in_parts(
    text: str, places: list[tuple[int, int]], parts: list[str]
) -> None:
    """Parts are texts, because JavaScript counts some characters twice."""
    gold = tuple(GoldSpan(TextSpan("a", *place)) for place in places)
    elsewhere = (GoldSpan(TextSpan("b", 0, 1)),)
    questions = [Question("q", "?", gold + elsewhere)]
    outcome = retrieval(kept("a", 0, text), quotes=len(gold) + 1)
    report = comparison(questions, {"standard": [outcome]})
    (question,) = page_data(report)["questions"]
    assert question["systems"]["standard"]["passages"][0]["parts"] == parts


def test_texts_of_documents_cannot_end_the_data_or_run() -> None:
    questions = [Question("q", HOSTILE, (GoldQuote(HOSTILE),), answer=HOSTILE)]
    outcomes = {"context": [retrieval(kept("a", 0, HOSTILE), quotes=1)]}
    page = html_report(comparison(questions, outcomes, located={GoldQuote(HOSTILE): ()}))
    assert "<script>window" not in page
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["questions"][0]["text"] == HOSTILE
    assert json.loads(json_block("<!--<script>")) == "<!--<script>"


def test_the_policy_allows_only_the_own_script_and_style() -> None:
    page = html_report(compared(1, 0))
    policy = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]+='; script-src 'sha256-[\w+/]+='", policy
    )
    assert "http" not in page.partition('<script type="module">')[2]


def test_a_large_set_stays_small_and_says_what_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    long = kept("a", 0, "x" * 5000 + "forty" + "y" * 5000)
    gold = GoldSpan(TextSpan("a", 5000, 5005))
    questions = [Question(f"q{n}", "?", (gold,)) for n in range(20)]
    outcomes = {name: [retrieval(long, quotes=1)] * 20 for name in ("context", "standard")}
    whole = html_report(comparison(questions, outcomes))
    assert "are cut to" not in whole
    monkeypatch.setattr(html_questions, "MAX_PASSAGE_CHARS", 40 * 1000)
    report = comparison(questions, outcomes)
    page = html_report(report)
    assert "Passages are cut to 1,000 characters for each question and system" in page
    assert len(page) < len(whole) / 4
    passage = page_data(report)["questions"][0]["systems"]["context"]["passages"][0]
    assert (passage["parts"][1], passage["cutStart"], passage["cutEnd"]) == ("forty", True, True)
    assert sum(map(len, passage["parts"])) == 1000
    assert len(report_json(report)["questions"][0]["systems"]["context"]["passages"][0]["text"])
    monkeypatch.setattr(html_questions, "MAX_PASSAGE_CHARS", 1000)
    monkeypatch.setattr(html_questions, "MAX_ROWS", 7)
    page = html_report(comparison(questions, outcomes))
    assert "lists the first 7 questions" in page
    assert "leaves out the passages" in page


def test_quotes_that_are_nowhere_are_named() -> None:
    quotes = [GoldQuote(f"never {n}") for n in range(12)]
    questions = [Question(f"q{n}", "?", (quote,)) for n, quote in enumerate(quotes)]
    outcome = [retrieval(RIGHT, quotes=1)] * 12
    located = {quotes[0]: (TextSpan("c", 0, 7),)}
    report = comparison(questions, {"standard": outcome}, located=located)
    (warning, _) = report.all_warnings
    assert warning.startswith("the collection does not have 11 expected quotes of 11 questions")
    assert warning.endswith("by every system: q1, q2, q3, q4, q5, q6, q7, q8, q9, q10 and 1 more")
    nowhere = [question["gold"][0]["nowhere"] for question in page_data(report)["questions"]]
    assert nowhere == [False] + [True] * 11
    assert [bool(one.nowhere) for one in report.questions] == nowhere
    unknown = comparison(questions, {"standard": outcome}, located=None)
    assert unknown.all_warnings[0].startswith("no passage of any system has 12 expected quotes")
    assert not any(one.nowhere for one in unknown.questions)


def test_links_open_the_explorer_at_the_chunk_and_at_the_search() -> None:
    assert page_data(compared(1, 0))["explorer"] is None
    report = compared(1, 0, explorer="http://localhost:8080")
    explorer = page_data(report)["explorer"]
    assert explorer["address"] == "http://localhost:8080"
    assert explorer["collections"] == {"context": "docs", "standard": "docs"}
    assert explorer["searches"]["context"] == {"mode": "CONTEXT", "tokenBudget": "1000"}


def test_the_options_of_a_system_are_those_of_the_explorer() -> None:
    name = "auto_merge:dense:merge_ratio=0.7:aggregation=max:rerank=false:collection=flat"
    outcomes = {name: [retrieval(RIGHT, quotes=1)]}
    report = comparison(asked(1), outcomes, explorer="http://localhost:8080")
    explorer = page_data(report)["explorer"]
    assert explorer["collections"] == {name: "flat"}
    options = {"mode": "AUTO_MERGE", "retrieval": "DENSE", "mergeRatio": "0.7"}
    options |= {"aggregation": "MAX", "rerank": "false"}
    assert explorer["searches"][name] == options


def test_the_explorer_has_every_option_that_a_system_may_have() -> None:
    samples = {bool: "true", int: "1", float: "0.5", Retrieval: "dense", FusionMethod: "convex"}
    samples |= {Aggregation: "sum", SummaryScope: "documents", str: "flat"}
    parts = [f"{name}={samples[kind]}" for name, kind in option_types().items()]
    name = ":".join(["auto_merge", *parts])
    outcomes = {name: [retrieval(RIGHT, quotes=1)]}
    report = comparison(asked(1), outcomes, explorer="http://localhost:8080")
    fields = page_data(report)["explorer"]["searches"][name]
    source = (files("hrag.gateway") / "explorer" / "search_options.js").read_text("utf-8")
    known = set(re.findall(r'name: "(\w+)"', source))
    assert len(fields) == len(option_types())  # The mode is added, and the collection is left out.
    assert set(fields) <= known
    assert all(isinstance(value, str) for value in fields.values())


def rows(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(csv_report(report).removeprefix("\ufeff"))))


def test_the_table_has_one_row_for_each_question() -> None:
    report = compared(2, 0, judged=judgement(asked(2), 1, "A is right."))
    first, _ = rows(report)
    assert first["question_id"] == "q0"
    assert (first["context: recall"], first["standard: recall"]) == ("1.0", "0.0")
    assert first["context: passages"] == "[1] a#0.0\nIt is forty."
    assert (first["context: answer"], first["context: citations"]) == ("Forty [1].", "1")
    assert (first["context: better"], first["context: reason_shown_first"]) == (
        "wins",
        "A is right.",
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_the_table_is_a_formula(start: str) -> None:
    question = Question("q", f"{start}SUM(A1)", (GOLD,), answer=f"{start}1")
    outcomes = {"standard": [retrieval(kept("a", 0, "x" * 40_000), quotes=1)]}
    (row,) = rows(comparison([question], outcomes))
    assert row["question"] == f"'{start}SUM(A1)"
    assert row["reference_answer"].startswith("'")
    assert len(row["standard: passages"]) <= 32_000


def test_a_failed_search_is_shown_with_its_question() -> None:
    outcomes = {"standard": [ChatUnavailable("down")]}
    report = comparison(asked(1), outcomes)
    (question,) = page_data(report)["questions"]
    assert question["systems"]["standard"]["error"] == "down"
    assert question["systems"]["standard"]["recall"] == 0
    assert rows(report)[0]["standard: error"] == "down"


def test_a_judge_that_failed_is_a_warning_and_a_failed_call() -> None:
    report = replace(compared(1, 0), judge_error="no route", unstored=("x.pdf",))
    assert report.failed_calls == 1
    warning = "1 document could not be stored, so questions about it count as missed: x.pdf"
    assert report.all_warnings[0] == warning
    assert "because the judge failed: no route" in report.all_warnings[-1]
