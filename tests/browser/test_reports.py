"""A JSON report of an evaluation is opened from a file, shown, and refused if it is no report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hrag.errors import ChatUnavailable
from hrag.evaluation.html_questions import page_data
from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.report_files import Report, report_json
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, GUIDE, PUMP, TENANT
from tests.browser.test_appearance import APPEARANCES, assert_accessible, assert_fits
from tests.support.documents.evaluation_fakes import comparison, judgement, kept, retrieval

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.conftest import Open, Served

pytestmark = pytest.mark.browser

SPAN = GoldSpan(TextSpan("manual.md", 6, 11))
RIGHT = retrieval(kept("manual.md", 0, "It is forty, they say."), quotes=1)
WRONG = retrieval(kept("b", 0, "Nobody knows."), quotes=1)


def asked(count: int) -> list[Question]:
    kinds = ["codes", "names"]
    return [
        Question(f"q{n}", PUMP if n == 0 else f"How many in {n}?", (SPAN,), kind=kinds[n % 2])
        for n in range(count)
    ]


def compared(count: int = 30, **options: Any) -> Report:
    """Returns a report in which `context` finds the gold, and `standard` that of every second."""
    collection = f":collection={GUIDE}"
    outcomes = {
        f"context{collection}": [RIGHT] * count,
        f"standard{collection}": [WRONG, RIGHT] * (count // 2) + [RIGHT] * (count % 2),
    }
    return comparison(asked(count), outcomes, **options)


def file_of(report: Report | dict[str, Any]) -> bytes:
    values = report if isinstance(report, dict) else report_json(report)
    return json.dumps(values, ensure_ascii=False).encode()


def open_report(explorer: Explorer, content: bytes, name: str = "modes.json") -> Locator:
    """Chooses a file in the view of reports; returns the view."""
    with explorer.page.expect_file_chooser() as waited:
        explorer.page.get_by_role("button", name="Choose a report").click()
    waited.value.set_files([{"name": name, "mimeType": "", "buffer": content}])
    return explorer.panel("Reports")


def test_a_report_is_shown_sorted_filtered_and_leads_to_the_search(explorer: Explorer) -> None:
    explorer.show("reports")
    panel = open_report(explorer, file_of(compared()))
    page = explorer.page
    finding = panel.get_by_role("heading", name="finds 50.0 points more of the gold text")
    expect(finding).to_be_focused()
    expect(finding).to_contain_text("[")
    expect(panel.locator(".scoreboard")).to_contain_text("100.0 [100.0, 100.0]")
    expect(panel.get_by_role("status")).to_have_text("30 of 30 questions")
    rows = panel.locator(".question-row")
    panel.get_by_role("button", name="Difference").click()
    expect(rows.first).to_contain_text("How many in 1?")
    panel.get_by_label("Outcome").select_option(f"context:collection={GUIDE} finds more")
    expect(rows).to_have_count(15)
    panel.get_by_label("Kind").select_option("names")
    expect(rows).to_have_count(0)
    panel.get_by_label("Kind").select_option("Every kind")
    panel.get_by_label("Words").fill("COOLING")
    expect(rows).to_have_count(1)
    panel.get_by_role("button", name=PUMP).click()
    detail = panel.locator(".detail")
    expect(panel).to_contain_text(f"the tenant {TENANT} of this server, in the collections")
    expect(detail.get_by_role("heading", level=3)).to_have_count(2)
    expect(detail.locator(".found-text mark")).to_have_text("forty")
    detail.get_by_role("link", name="search again").first.click()
    expect(page.get_by_role("searchbox", name="Query")).to_have_value(PUMP)
    expect(explorer.setting("A").get_by_label("Mode", exact=True)).to_have_value("CONTEXT")
    expect(explorer.passages().first).to_be_visible()
    page.go_back()
    expect(detail.locator(".found-text mark")).to_have_text("forty")
    detail.get_by_role("link", name="open", exact=True).first.click()
    expect(explorer.region("Text")).to_contain_text("Pump manual")
    page.go_back()
    panel.get_by_role("button", name="Close the report").click()
    expect(page.get_by_role("button", name="Choose a report")).to_be_focused()
    expect(panel.locator(".question-row")).to_have_count(0)


def test_what_failed_is_shown_above_the_table(explorer: Explorer) -> None:
    outcomes = {"context": [ChatUnavailable("down"), RIGHT], "standard": [RIGHT, RIGHT]}
    report = comparison(asked(2), outcomes)
    report = replace(report, judge_error="no route", unstored=("x.pdf",), warnings=("beware",))
    explorer.show("reports")
    panel = open_report(explorer, file_of(report))
    for words in (
        "2 calls failed",
        "because the judge failed: no route",
        "missed: x.pdf",
        "beware",
    ):
        expect(panel.locator(".warning").filter(has_text=words)).to_be_visible()
    expect(panel.locator(".question-row").filter(has_text="a call failed")).to_have_count(1)


def test_links_of_a_removed_collection_open_the_chosen_one(explorer: Explorer) -> None:
    explorer.show("reports")
    panel = open_report(explorer, file_of(replace(compared(2), where=None)))
    expect(panel).to_contain_text("The collection that was searched does not exist any more.")
    panel.get_by_role("button", name=PUMP).click()
    panel.get_by_role("link", name="search again").first.click()
    expect(explorer.page.get_by_label("Collection", exact=True)).to_have_value(GUIDE)
    expect(explorer.passages().first).to_be_visible()
    expect(explorer.setting("A").get_by_label("Token budget")).to_have_value("1000")


def test_another_tool_has_no_search_and_no_latency(explorer: Explorer) -> None:
    report = report_json(compared(2))
    report["systems"][1] |= {"mode": None, "options": {"file": "tool.jsonl"}}
    report["retrieval"]["systems"][1] |= {"mode": None, "latency_p50_us": 0}
    explorer.show("reports")
    panel = open_report(explorer, file_of(report))
    expect(panel.locator(".scoreboard")).to_contain_text("–")
    panel.get_by_role("button", name=PUMP).click()
    detail = panel.locator(".detail")
    expect(detail.get_by_role("heading", level=3)).to_have_count(2)
    expect(detail.get_by_role("link", name="search again")).to_have_count(1)
    expect(detail.get_by_role("link", name="open", exact=True)).to_have_count(2)


def test_a_report_is_dropped_and_another_language_keeps_it(explorer: Explorer) -> None:
    explorer.show("reports", theme="dark")
    content = file_of(compared(judged=judgement(asked(30), 1, "A is right.")))
    drop = """(content) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([content], "modes.json"));
      const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
      document.querySelector("#panel-reports .drop-zone").dispatchEvent(drop);
    }"""
    explorer.page.evaluate(drop, content.decode())
    panel = explorer.panel("Reports")
    expect(panel.get_by_role("status")).to_have_text("30 of 30 questions")
    expect(panel).to_contain_text("The judge scripted prefers the answers of context")
    explorer.page.get_by_label("Language").select_option("zh-Hans")
    expect(explorer.panel("报告").get_by_role("status")).to_have_text("30 个问题中的 30 个")
    link = explorer.panel("报告").get_by_role("link", name="再次搜索").first
    explorer.panel("报告").get_by_role("button", name=PUMP).click()
    link.evaluate("(each) => each.onclick()")
    address = link.get_attribute("href") or ""
    assert "lang=zh-Hans" in address
    assert "theme=dark" in address


def documents_and_options() -> Report:
    name = f"auto_merge:dense:merge_ratio=0.7:aggregation=max:rerank=false:collection={GUIDE}"
    outcomes = {name: [RIGHT, ChatUnavailable("down")], "standard:top_sections=3": [WRONG, RIGHT]}
    questions = [Question("a", "?", (GoldDocument("manual.md"),)), Question("b", "!", (SPAN,))]
    return comparison(questions, outcomes)


def places() -> Report:
    """Returns a report with overlapping gold, emoji, quotes that are nowhere, and a long text."""
    spans = [(1, 4), (2, 5), (12, 99), (0, 1)]
    gold = (*(GoldSpan(TextSpan("a", *span)) for span in spans), GoldQuote("never"))
    questions = [Question("q", "x" * 4000, gold, answer="Forty 😀")]
    passages = kept("a", 2, "a😀bcdefghij😀kl"), kept("a", 30, "far"), kept("b", 0, "other")
    outcome = retrieval(*passages, quotes=len(gold))
    return comparison(questions, {"standard": [outcome]}, located={GoldQuote("never"): ()})


@pytest.mark.parametrize(
    "report",
    [
        compared(4),
        compared(2, judged=judgement(asked(2), -1, "B is right.")),
        documents_and_options(),
        places(),
    ],
    ids=["spans", "judged", "options", "places"],
)
def test_a_json_report_gives_the_table_of_the_html_report(
    explorer: Explorer, report: Report
) -> None:
    explorer.show("reports")
    read = """async (content) => {
      const { readReport } = await import("./report_file.js");
      return (await readReport(new File([content], "a.json"))).table;
    }"""
    table = explorer.page.evaluate(read, file_of(report).decode())
    expected = page_data(replace(report, explorer="http://localhost"))
    del expected["explorer"]["address"]
    # JSON reports have six digits after the point.
    assert table == json.loads(json.dumps(expected), parse_float=lambda text: round(float(text), 6))


def changed(path: str, value: Any) -> bytes:
    """Returns a report in which the field at `path` has another value."""
    report = report_json(compared(2))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    owner: Any = report
    for part in parents:
        owner = owner[part]
    owner[last] = value
    return file_of(report)


DIFFERENCE = {"mean": 0.5, "low": 0.4, "high": 0.6, "questions": 9}
KIND = {"better": "a", "trait": "b", "value": "c", "difference": DIFFERENCE}
FIGURES = report_json(compared(2))["retrieval"]["systems"][0]
WRONG_FILES = {
    "empty": (b"", "does not contain JSON"),
    "text": (b"Dogs bark.", "does not contain JSON"),
    "cut": (file_of(compared(2))[:-9], "does not contain JSON"),
    "deep": (b"[" * 200_000, "does not contain JSON"),
    "html": (b"<!DOCTYPE html><html>", "this is the HTML report"),
    "null": (b"null", "is no report of hrag: version is missing"),
    "list": (b"[1]", "is no report of hrag: version is missing"),
    "object": (b'{"a": 1}', "is no report of hrag: version is missing"),
    "openapi": (b'{"openapi": "3.1.0", "version": "1"}', "version is missing or has another"),
    "future": (changed("version", 2), "has the version 2; this page reads the version 1"),
    "past": (b'{"version": 0}', "has the version 0"),
    "finding": (changed("findings/first", 7), "findings.first is missing or has another type"),
    "questions": (changed("questions", {}), "questions is missing or has another type"),
    "question": (changed("questions/1", None), "questions[1] is missing"),
    "passages": (changed("questions/0/systems", {"x": []}), "questions[0].systems.x is missing"),
    "places": (changed("questions/0/gold/0/places", [["a", "1", 2]]), "places[0] is missing"),
    "estimates": (changed("retrieval/systems/0/estimates", {}), "estimates is missing"),
    "where": (changed("where/tenant_id", None), "where.tenant_id is missing"),
    "option": (
        changed("systems/0/options", {"collection": {"toString": 1, "valueOf": 1}}),
        "options.collection is missing or has another type",
    ),
    "difference": (
        changed("findings/kinds", [{**KIND, "difference": None}]),
        "findings.kinds[0].difference is missing or has another type",
    ),
    "kinds": (
        changed("findings/kinds", [{**KIND, "better": str(n)} for n in range(23)]),
        "has 25 systems; this page shows at most 24",
    ),
    "scoreboard": (
        changed("retrieval/systems", [{**FIGURES, "name": str(n)} for n in range(25)]),
        "has 25 systems; this page shows at most 24",
    ),
    "searches": (
        changed("systems", [{"name": str(n), "mode": "context", "options": {}} for n in range(25)]),
        "has 25 systems; this page shows at most 24",
    ),
    "further": (changed("findings/further", ["a"] * 201), "further has 201 entries"),
    "warnings": (changed("warnings", ["a"] * 201), "; this page shows at most 200"),
    "about": (changed("about", dict.fromkeys(map(str, range(201)), 1)), "at most 200"),
    "systems": (
        changed(
            "questions/0/systems",
            dict.fromkeys(map(str, range(25)), report_json(compared(2))["questions"][0]["systems"][
                f"context:collection={GUIDE}"
            ]),
        ),
        "has 27 systems; this page shows at most 24",
    ),
}  # fmt: skip


def test_other_files_are_refused_with_a_reason(explorer: Explorer) -> None:
    explorer.show("reports")
    for name, (content, message) in WRONG_FILES.items():
        panel = open_report(explorer, content, f"{name}.json")
        expect(panel.get_by_role("alert")).to_contain_text(message)
        expect(panel.get_by_role("alert")).to_contain_text("no_report")
    panel = open_report(explorer, file_of(compared(2)))
    expect(panel.locator(".question-row")).to_have_count(2)


def test_a_file_that_is_too_large_is_not_read(explorer: Explorer) -> None:
    explorer.show("reports")
    read = """async () => {
      const { readReport } = await import("./report_file.js");
      return readReport({ size: 2 ** 27 + 1, text: () => "{}" }).catch(({ message }) => message);
    }"""
    message = explorer.page.evaluate(read)
    assert message == "the file has 128 MiB; a report may have at most 128 MiB"


def hostile(value: Any, key: str = "") -> Any:
    """Returns the value with an attack in every text, except the texts that choose a behaviour."""
    if isinstance(value, dict):
        return {name: hostile(each, name) for name, each in value.items()} | {
            # These keys must stay keys.
            "__proto__": value.get("__proto__", hostile_key(value)),
        }
    if isinstance(value, list):
        return [hostile(each, key) for each in value]
    fixed = ("mode", "collection", "tenant_id", "baseline")
    return f"{value} {ATTACK}" if isinstance(value, str) and key not in fixed else value


def hostile_key(value: dict[str, Any]) -> Any:
    """Returns a value of the type that the other values of a dictionary have."""
    return next(iter(value.values()), 0)


def test_nothing_in_a_report_runs(explorer: Explorer) -> None:
    report = compared(4, judged=judgement(asked(4), 1, "A is right."))
    values = hostile(report_json(report))
    for question in values["questions"]:
        # JSON has these names as keys of systems and verdicts too.
        question["systems"]["constructor"] = question["systems"].pop("__proto__")
        question["verdicts"]["constructor"] = next(iter(question["verdicts"].values()))
    values["explorer"] = "javascript:window.attacked=1"
    explorer.show("reports")
    panel = open_report(explorer, file_of(values), f"{ATTACK}.json")
    expect(panel.locator(".question-row")).to_have_count(4)
    panel.locator(".question-open").first.click()
    expect(panel.locator(".detail")).to_contain_text(ATTACK)
    page = explorer.page
    assert page.evaluate("window.attacked") is None
    assert page.evaluate("({}).attacked") is None
    assert page.locator("main").locator("img, script, iframe").count() == 0
    for link in panel.locator("a").all():
        assert (link.get_attribute("href") or "").startswith(f"#/{TENANT}/")


@pytest.mark.parametrize("systems", [3, 12])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_number_of_a_report_is_broken_across_lines(
    explorer: Explorer, width: int, systems: int
) -> None:
    explorer.page.set_viewport_size({"width": width, "height": 900})
    explorer.show("reports", lang="zh-Hans")
    name = "auto_merge:dense:merge_ratio=0.7:aggregation=max"
    others = [f"standard:candidates={number}:lexical_weight=0.25" for number in range(1, systems)]
    outcomes = {name: [RIGHT] * 3} | dict.fromkeys(others, [WRONG] * 3)
    with explorer.page.expect_file_chooser() as waited:
        explorer.page.get_by_role("button", name="选择报告").click()
    content = file_of(comparison(asked(3), outcomes))
    waited.value.set_files([{"name": "a.json", "mimeType": "", "buffer": content}])
    numbers = explorer.page.locator(".questions .number > :last-child")
    expect(numbers).to_have_count(3 * (systems + 1))
    lines = "(all) => all.map((each) => each.getClientRects().length)"
    assert set(numbers.evaluate_all(lines)) == {1}
    assert_fits(explorer)


@pytest.mark.parametrize("name", APPEARANCES)
def test_a_report_is_accessible(opened: Open, served: Served, name: str) -> None:
    explorer = opened(served.gateway, **APPEARANCES[name])
    explorer.show("reports")
    panel = open_report(explorer, file_of(compared(judged=judgement(asked(30), 1, "A."))))
    panel.locator(".question-open").first.click()
    expect(panel.locator(".detail")).to_be_visible()
    assert_accessible(explorer)
    assert_fits(explorer)
