"""The page searches with settings and filters, and shows passages, marks, scores and plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import CHINESE, EMOJI
from tests.support.until import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser


def test_passages_show_citation_scores_and_marks(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("gasket torque").first
    expect(passage.get_by_role("heading")).to_have_text("Pump manual")
    expect(passage).to_contain_text("Section 7")
    expect(passage).to_contain_text("manual.md#2.")
    expect(passage.locator(".scores").first).to_contain_text("lexical")
    expect(passage.locator(".scores").first).to_contain_text("dense")
    assert "gasket" in explorer.marked("leaf", passage)
    assert set(explorer.marked("term", passage).lower().split("torque")) <= {"gasket", ""}
    assert explorer.marked("cited", passage).startswith("Replace the gasket with torque 40.")


def test_marks_are_right_after_emoji(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("sleep").first
    expect(passage.get_by_role("heading")).to_have_text("Pets 😀")
    assert explorer.marked("term", passage) == "sleep"
    assert explorer.marked("cited", passage).strip().removeprefix(EMOJI * 12) == "Cats sleep."


def test_marks_are_right_in_chinese(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("解除劳动合同").first
    expect(passage.get_by_role("heading")).to_have_text("劳动合同法")
    assert "解除劳动合同" in explorer.marked("term", passage)
    assert explorer.marked("cited", passage) in CHINESE


def test_timings_and_plan_of_the_response_are_shown(explorer: Explorer) -> None:
    explorer.show()
    with explorer.page.expect_response("**/Search") as waited:
        explorer.search("gasket")
    response = waited.value.json()
    results = explorer.region("Results of setting A")
    expect(results).to_contain_text(f"{len(response['passages'])} passages")
    widths = [
        float(bar.get_attribute("style").removeprefix("width: ").removesuffix("%;"))
        for bar in results.locator(".timing-bar > span").all()
    ]
    assert sum(widths) == pytest.approx(100, abs=1)
    results.get_by_text("Plan", exact=True).click()
    expect(results).to_contain_text("every eligible leaf compared (exact)")
    expect(results.locator("dd", has_text=response["eligibleLeaves"]).first).to_be_visible()


def test_two_settings_are_compared(explorer: Explorer) -> None:
    explorer.show()
    explorer.page.get_by_role("switch", name="Compare two settings").check()
    explorer.setting("A").get_by_label("Limit").fill("2")
    explorer.setting("B").get_by_label("Mode").select_option("STANDARD")
    explorer.setting("B").get_by_label("Retrieval").select_option("LEXICAL")
    with explorer.page.expect_request("**/Search") as waited:
        explorer.search("gasket")
    assert waited.value.post_data_json["limit"] == 2
    expect(explorer.passages("A")).to_have_count(2)
    expect(explorer.passages("B").first).to_contain_text("level 0")
    expect(explorer.passages("B").first).not_to_contain_text("dense")
    expect(explorer.passages("A").first.get_by_text("B: 1")).to_be_visible()
    expect(explorer.passages("A").last.get_by_text("not in B")).to_be_visible()


def test_one_setting_alone_has_no_badges_of_a_comparison(explorer: Explorer) -> None:
    explorer.show(q="gasket", **{"b.mode": "STANDARD", "b.retrieval": "LEXICAL"})
    expect(explorer.passages("B").first).to_be_visible()
    badges = explorer.passages("A").locator(".badge")
    expect(badges.first).to_be_visible()
    explorer.page.get_by_role("switch", name="Compare two settings").uncheck()
    expect(badges).to_have_count(0)
    explorer.page.get_by_role("switch", name="Compare two settings").check()
    expect(explorer.passages("B")).to_have_count(0)


def test_parts_of_other_codes_are_not_marked(explorer: Explorer) -> None:
    text = "😀 AB-9999 and AB-4711, AB-4711-X, 4711 AB v1.2 12:30"
    spans = [
        {"charStart": start, "charEnd": start + len(part)}
        for part in ("AB", "4711")
        for start in range(len(text))
        if text.startswith(part, start)
    ]
    marked = explorer.page.evaluate
    explorer.page.goto(explorer.url)
    script = """async ([spans, text, query]) => {
      const { wholeTerms } = await import("./code_marks.js");
      const points = [...text];
      const shifted = spans.map((span) => ({
        charStart: span.charStart + 100, charEnd: span.charEnd + 100,
      }));
      return wholeTerms(shifted, text, 100, query).map(
        ({ charStart, charEnd }) => points.slice(charStart - 100, charEnd - 97).join(""),
      );
    }"""
    whole = ["AB-47", "AB-47", "AB v1", "4711, A", "4711-X,", "4711 AB"]
    assert marked(script, [spans, text, "AB-4711"]) == whole
    assert "AB-99" in marked(script, [spans, text, "error ab"])


def test_a_setting_can_be_copied(explorer: Explorer) -> None:
    explorer.show()
    explorer.page.get_by_role("switch", name="Compare two settings").check()
    explorer.setting("A").get_by_label("Token budget").fill("300")
    explorer.page.get_by_role("button", name="Copy from A").click()
    expect(explorer.setting("B").get_by_label("Token budget")).to_have_value("300")


def test_options_of_other_modes_are_hidden_and_not_sent(explorer: Explorer) -> None:
    explorer.show()
    setting = explorer.setting("A")
    setting.get_by_text("More options").click()
    setting.get_by_label("Mode").select_option("AUTO_MERGE")
    setting.get_by_label("Merge ratio").fill("0.9")
    setting.get_by_label("Mode").select_option("STANDARD")
    expect(setting.get_by_label("Merge ratio")).to_be_hidden()
    with explorer.page.expect_request("**/Search") as waited:
        expect(explorer.search("gasket").first).to_be_visible()
    assert set(waited.value.post_data_json) == {"tenantId", "collection", "text", "mode"}


FILTERS: list[tuple[str, str, str, set[str]]] = [
    ("team", "is", "platform", {"Pump manual"}),
    ("team", "is", '["platform", "法务"]', {"Pump manual", "劳动合同法"}),
    ("year", "below", "2020", {"劳动合同法"}),
    ("date", "at_least", "2026-01-01", {"Pump manual"}),
    ("reviewed", "is", "true", {"Pump manual"}),
    ("document_id", "is", "law", {"劳动合同法"}),
    ("reviewed", "present", "", {"Pump manual"}),
]


def expect_documents(passages: Locator, documents: set[str]) -> None:
    """Waits until the passages are those of these documents: the page replaces earlier ones."""
    headings = passages.get_by_role("heading")
    until(lambda: set(headings.all_text_contents()) == documents, description=f"{documents}")


def test_filters_find_the_documents_that_match(explorer: Explorer) -> None:
    explorer.show()
    setting = explorer.setting("A")
    setting.get_by_text("Filter", exact=True).click()
    setting.get_by_role("button", name="Add condition").click()
    for key, operator, value, documents in FILTERS:
        setting.get_by_label("Key").fill(key)
        setting.get_by_label("Operator").select_option(operator)
        if value:
            setting.get_by_label("Value").fill(value)
        expect(setting.get_by_label("Value")).to_be_visible(visible=bool(value))
        with explorer.page.expect_response("**/Search"):
            passages = explorer.search("pump 合同")
        expect_documents(passages, documents)


def test_a_malformed_value_is_refused(explorer: Explorer) -> None:
    explorer.show()
    setting = explorer.setting("A")
    setting.get_by_text("Filter", exact=True).click()
    setting.get_by_role("button", name="Add condition").click()
    setting.get_by_label("Key").fill("team")
    for operator, value, allowed in (
        ("is", '["platform"', "it must be a number, true, false, a text, or a list"),
        ("above", "soon", "it must be a number or a date such as 2026-11-21"),
    ):
        setting.get_by_label("Operator").select_option(operator)
        setting.get_by_label("Value").fill(value)
        expect(setting.get_by_text("malformed", exact=True)).to_be_visible()
        explorer.search("pump")
        error = explorer.region("Results of setting A").get_by_role("alert")
        expect(error).to_contain_text(f"team is “{value}”; {allowed}")


def test_conditions_are_joined_negated_and_removed(explorer: Explorer) -> None:
    explorer.show()
    setting = explorer.setting("A")
    setting.get_by_text("Filter", exact=True).click()
    for key, operator, value in (("year", "is_not", "2012"), ("team", "absent", "")):
        setting.get_by_role("button", name="Add condition").click()
        row = setting.get_by_role("group", name="Condition").last
        row.get_by_label("Key").fill(key)
        row.get_by_label("Operator").select_option(operator)
        if value:
            row.get_by_label("Value").fill(value)
    setting.get_by_label("Conditions that must hold").select_option("any")
    with explorer.page.expect_request("**/Search") as waited:
        expect(explorer.search("pump").first).to_be_visible()
    not_2012 = {"match": {"field": "metadata.year", "values": [{"number": 2012}]}}
    no_team = {"exists": {"field": "metadata.team"}}
    assert waited.value.post_data_json["filter"] == {
        "anyOf": {
            "filters": [
                {"noneOf": {"filters": [not_2012]}},
                {"noneOf": {"filters": [no_team]}},
            ]
        }
    }
    setting.get_by_role("button", name="Remove condition").first.click()
    expect(setting.get_by_role("group", name="Condition")).to_have_count(1)
    expect(setting.get_by_label("Key")).to_be_focused()


def test_summaries_show_their_sections(explorer: Explorer) -> None:
    explorer.show()
    explorer.setting("A").get_by_label("Mode").select_option("SUMMARY_FIRST")
    explorer.setting("A").get_by_text("More options").click()
    explorer.setting("A").get_by_label("Top sections").fill("3")
    expect(explorer.search("pressure").first).to_be_visible()
    results = explorer.region("Results of setting A")
    expect(results.get_by_text("3 chosen sections")).to_be_visible()
    sections = results.locator(".sections-list > li")
    expect(sections).to_have_count(3)
    sections.first.get_by_role("button", name="Open in document").click()
    expect(explorer.region("Text")).to_be_visible()


def test_a_long_passage_is_cut_and_can_be_shown_whole_with_its_leaf(explorer: Explorer) -> None:
    explorer.page.set_viewport_size({"width": 360, "height": 740})
    explorer.show(returnLevel="3")
    passage = explorer.search("gasket").first
    expand = passage.get_by_role("button", name="Whole passage")
    expect(expand).to_have_attribute("aria-expanded", "false")
    expand.click()
    expect(passage.get_by_role("button", name="Less")).to_have_attribute("aria-expanded", "true")
    passage.get_by_text("matched lea").click()
    passage.get_by_role("button", name="Show").first.click()
    assert "gasket" in explorer.marked("aim", passage)


def test_a_search_without_results_says_so(explorer: Explorer) -> None:
    explorer.show()
    explorer.setting("A").get_by_label("Retrieval").select_option("LEXICAL")
    explorer.search("nonesuch")
    expect(explorer.region("Results of setting A")).to_contain_text("No passages")


def test_the_address_of_the_page_contains_the_search(explorer: Explorer) -> None:
    explorer.show()
    explorer.setting("A").get_by_label("Mode").select_option("CONTEXT")
    explorer.setting("A").get_by_label("Token budget").fill("77")
    expect(explorer.search("gasket").first).to_be_visible()
    explorer.open(explorer.page.evaluate("location.href"))
    expect(explorer.passages().first).to_contain_text("gasket")
    expect(explorer.setting("A").get_by_label("Token budget")).to_have_value("77")


def test_a_link_in_the_same_tab_opens_its_search(explorer: Explorer) -> None:
    explorer.show(q="gasket", mode="STANDARD", retrieval="LEXICAL", limit="1")
    expect(explorer.passages()).to_have_count(1)
    explorer.change_address(q="sleep", **{"b.mode": "STANDARD"})
    expect(explorer.passages("A").first).to_contain_text("Cats sleep.")
    expect(explorer.passages("B").first).to_contain_text("Cats sleep.")
    setting = explorer.setting("A")
    for option, value in (("Mode", "SMALL_TO_BIG"), ("Retrieval", ""), ("Limit", "")):
        expect(setting.get_by_label(option, exact=True)).to_have_value(value)
    explorer.change_address(q="sleep", mode="STANDARD")
    expect(explorer.passages().first).to_contain_text("level 0")
    expect(explorer.setting("B")).to_be_hidden()
    explorer.change_address()
    expect(explorer.region("Results of setting A")).to_contain_text("No search yet")
    expect(explorer.page.get_by_role("searchbox", name="Query")).to_have_value("")


def test_going_back_to_a_search_does_not_repeat_it(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("gasket").first
    expect(passage).to_be_visible()
    searches: list[str] = []
    explorer.page.on(
        "request", lambda sent: searches.append(sent.url) if "Search" in sent.url else None
    )
    passage.get_by_role("button", name="Open in document").click()
    expect(explorer.region("Text")).to_be_visible()
    explorer.page.go_back()
    expect(passage).to_contain_text("gasket")
    assert searches == []


def test_a_wrong_setting_in_the_address_is_ignored(explorer: Explorer) -> None:
    wrong = ({"mode": "X", "limit": "{"}, {"mode": "toString", "__proto__": "1"}, {"filter": "~~~"})
    for fields in wrong:
        explorer.show(q="gasket", **fields)
        expect(explorer.passages().first).to_be_visible()
        expect(explorer.setting("A").get_by_label("Mode")).to_have_value("SMALL_TO_BIG")


def test_an_invalid_option_gets_the_focus(explorer: Explorer) -> None:
    explorer.show(candidates="0")
    fold = explorer.setting("A").locator("details").first
    fold.evaluate("(element) => element.removeAttribute('open')")
    explorer.search("gasket")
    expect(explorer.setting("A").get_by_label("Candidates")).to_be_focused()
    expect(explorer.passages()).to_have_count(0)
