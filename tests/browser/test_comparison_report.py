"""The report of a comparison is sorted, filtered and opened in the page, without any request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hrag.evaluation.html_report import html_report
from hrag.evaluation.questions import GoldSpan, Question, TextSpan
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, GUIDE, PUMP, TENANT
from tests.support.documents.evaluation_fakes import comparison, judgement, kept, retrieval

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from hrag.evaluation.report_files import Report
    from tests.browser.conftest import Served

pytestmark = pytest.mark.browser

EXPLORER = "http://localhost:8080"
LONG = "long " * 400
GOLD = GoldSpan(TextSpan("a", len(LONG), len(LONG) + len(ATTACK)))


def report_page() -> str:
    """Returns a report on four questions. `context` is right in three, `standard` in one."""
    texts = ("What is first?", "When is second?", ATTACK, "What is last?")
    questions = [
        Question(f"q{n}", text, (GOLD,), answer=ATTACK, kind=ATTACK if n else "plain")
        for n, text in enumerate(texts)
    ]
    right = retrieval(kept("a", 0, f"{LONG}{ATTACK} end"), quotes=1)
    wrong = retrieval(kept("b", 0, f"{ATTACK} {'x' * 300}"), quotes=1)
    outcomes = {"context": [right, right, right, wrong], "standard": [wrong, wrong, wrong, right]}
    judged = judgement(questions[:1], 1, ATTACK)
    return html_report(comparison(questions, outcomes, judged, explorer=EXPLORER))


@pytest.mark.parametrize("width", [1440, 390])
def test_questions_are_sorted_filtered_and_opened(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())

    rows = page.locator(".question-row")
    expect(rows).to_have_count(4)
    expect(rows.last).to_contain_text("What is last?")
    page.get_by_role("button", name="Difference").click()
    expect(rows.first).to_contain_text("What is last?")
    sorted_by = page.locator(".questions th[aria-sort=ascending]")
    expect(sorted_by).to_have_text("Difference")
    page.get_by_label("Outcome").select_option("standard finds more")
    expect(rows).to_have_count(1)
    expect(page.get_by_role("status")).to_have_text("1 of 4 questions")
    page.get_by_label("Outcome").select_option("All questions")
    page.get_by_label("Kind").select_option("plain")
    expect(rows).to_have_count(1)
    page.get_by_label("Kind").select_option("Every kind")
    page.get_by_label("Words").fill("FIRST")
    expect(rows).to_have_count(1)

    detail = page.locator(".detail")
    page.get_by_role("button", name="What is first?").click()
    expect(detail.get_by_text("as a whole")).to_be_visible()
    expect(detail.get_by_text("Forty [1].").first).to_be_visible()
    expect(detail.get_by_text("cited").first).to_be_visible()
    page.get_by_label("Words").fill("second")
    page.get_by_role("button", name="When is second?").click()
    for system in ("context", "standard"):
        expect(detail.get_by_role("heading", name=system, exact=True)).to_be_visible()
    gold = detail.locator(".found-text mark")
    expect(gold).to_have_text(ATTACK)
    # A long passage is scrolled to its gold.
    assert gold.evaluate("(mark) => mark.parentElement.scrollTop") > 0
    expect(detail.get_by_role("link", name="open", exact=True).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.attacked") is None
    assert page.locator("img, iframe").count() == 0
    context.close()
    assert (problems, requests) == ([], [file.as_uri()])


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_long_names_of_systems_are_not_cut(browser: Browser, tmp_path: Path, width: int) -> None:
    names = [SYSTEM, *(f"standard:candidates={number}:lexical_weight=0.25" for number in range(9))]
    questions = [Question("q", "What is first?", (GOLD,))]
    wrong = [retrieval(kept("b", 0, "Nobody knows."), quotes=1)]
    report = comparison(questions, dict.fromkeys(names, wrong))
    file = tmp_path / "report.html"
    file.write_text(html_report(report), "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(file.as_uri())
    page.get_by_role("button", name="What is first?").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


SYSTEM = "auto_merge:dense:merge_ratio=0:return_level=1:merge_adjacent=true:rerank=false"


def report_links(browser: Browser, file: Path, report: Report, question: str) -> BrowserContext:
    """Returns a context whose only page is a report, with a question opened."""
    file.write_text(html_report(report), "utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    page.get_by_role("button", name=question).click()
    return context


def test_links_open_the_explorer(browser: Browser, served: Served, tmp_path: Path) -> None:
    question = Question("q", PUMP, (GoldSpan(TextSpan("manual.md", 0, 4)),))
    outcomes = {
        f"{mode}:collection={GUIDE}": [retrieval(kept("manual.md", 0, "# Pump"), quotes=1)]
        for mode in ("context:dense", SYSTEM, "standard")
    }
    report = comparison([question], outcomes, explorer=served.gateway.url)
    context = report_links(browser, tmp_path / "report.html", report, PUMP)
    page = context.pages[0]
    with context.expect_page() as opened:
        page.get_by_role("link", name="open", exact=True).first.click()
    explorer = Explorer(opened.value, served.gateway.url)
    expect(explorer.region("Text")).to_contain_text("Pump manual")
    with context.expect_page() as opened:
        page.get_by_role("link", name="search again").first.click()
    explorer = Explorer(opened.value, served.gateway.url)
    expect(explorer.page.get_by_role("searchbox", name="Query")).to_have_value(PUMP)
    expect(explorer.passages().first).to_be_visible()
    setting = explorer.setting("A")
    expect(setting.get_by_label("Mode", exact=True)).to_have_value("CONTEXT")
    expect(setting.get_by_label("Token budget")).to_have_value("1000")
    with context.expect_event("request", lambda sent: sent.url.endswith("/Search")) as waited:
        page.get_by_role("link", name="search again").nth(1).click()
    expected = {"mode": "SEARCH_MODE_AUTO_MERGE", "retrieval": "RETRIEVAL_DENSE", "mergeRatio": 0}
    expected |= {"returnLevel": 1, "mergeAdjacent": True, "rerank": False}
    scope = {"tenantId": TENANT, "collection": GUIDE, "text": PUMP}
    assert waited.value.post_data_json == scope | expected
    context.close()


def test_links_keep_every_character(browser: Browser, served: Served, tmp_path: Path) -> None:
    """Whatever a document, a chunk and a question are called, the explorer reads the same."""
    name, text = "a/b c?d#e+f%20&g=日.md", "50 % of a+b & c=d? #1 / 日 😀"
    question = Question("q", text, (GoldSpan(TextSpan(name, 0, 4)),))
    outcomes = {f"standard:collection={GUIDE}": [retrieval(kept(name, 0, "# Pump"), quotes=1)]}
    report = comparison([question], outcomes, explorer=served.gateway.url)
    context = report_links(browser, tmp_path / "report.html", report, text)
    links = context.pages[0].locator(".detail a").evaluate_all("(all) => all.map((a) => a.href)")
    page = context.new_page()
    page.goto(served.gateway.url)
    read = """async (link) => {
      const { readAddress } = await import("./address.js");
      history.replaceState(null, "", link);
      return readAddress();
    }"""
    again, opened = [page.evaluate(read, link) for link in links]
    scope = {"tenant": TENANT, "collection": GUIDE}
    assert again == scope | {"view": "search", "q": text, "mode": "STANDARD"}
    assert opened == scope | {"view": "documents", "doc": name, "chunk": f"{name}#0.0"}
    context.close()
