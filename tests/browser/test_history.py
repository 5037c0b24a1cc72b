"""Views and searches are steps of the browser's history, and the last searches can be repeated."""

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import MANY

pytestmark = pytest.mark.browser


def test_back_leads_through_views_searches_and_documents(explorer: Explorer) -> None:
    explorer.show()
    page = explorer.page
    expect(explorer.search("gasket").first).to_contain_text("gasket")
    expect(explorer.search("sleep").first).to_contain_text("Cats sleep.")
    page.get_by_role("tab", name="Documents").click()
    page.get_by_role("button", name="Pump manual").click()
    expect(explorer.region("Text")).to_be_visible()
    page.get_by_role("button", name="All documents").click()
    page.get_by_label("Collection", exact=True).select_option(MANY)
    expect(page.get_by_role("button", name="note-00")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="Pump manual")).to_be_visible()
    page.go_back()
    expect(explorer.region("Text")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="Pump manual")).to_be_visible()
    page.go_back()
    expect(explorer.passages().first).to_contain_text("Cats sleep.")
    page.go_back()
    expect(explorer.passages().first).to_contain_text("gasket")
    expect(page.get_by_role("searchbox", name="Query")).to_have_value("gasket")
    page.go_forward()
    expect(explorer.passages().first).to_contain_text("Cats sleep.")
    page.go_forward()
    expect(explorer.panel("Documents")).to_be_visible()


def test_addresses_are_short_and_readable(explorer: Explorer) -> None:
    explorer.show()
    explorer.setting("A").get_by_label("Mode").select_option("CONTEXT")
    expect(explorer.search("gasket torque").first).to_be_visible()
    assert explorer.page.url.endswith("/#/acme/guide/search?q=gasket+torque&mode=CONTEXT")
    explorer.page.get_by_role("tab", name="Documents").click()
    explorer.page.wait_for_url("**/#/acme/guide/documents")
    explorer.page.get_by_role("tab", name="Search").click()
    explorer.page.wait_for_url("**/#/acme/guide/search?q=gasket+torque&mode=CONTEXT")


def test_conditions_in_the_address_keep_every_character(explorer: Explorer) -> None:
    explorer.show()
    rows = [["a~b %7E", "is", '["x~~y"]'], ["k", "present", ""], ["日期", "below", "2026-01-01"]]
    setting = {"mode": "CONTEXT", "cutLast": "true", "filters": {"join": "any", "rows": rows}}
    search = {"q": "a/b?c#d&e=f + 😀 ~", "a": setting, "b": {**setting, "mode": "STANDARD"}}
    read = explorer.page.evaluate(
        """async (search) => {
          const { fragment, readAddress } = await import("./address.js");
          const { searchFields, searchIn } = await import("./search_address.js");
          history.replaceState(null, "", fragment({ tenant: "t", ...searchFields(search) }));
          return searchIn(readAddress());
        }""",
        search,
    )
    assert read == search


def test_the_tenant_is_the_default_at_first_and_then_remembered(explorer: Explorer) -> None:
    page = explorer.page
    page.goto(explorer.url)
    expect(page.get_by_label("Tenant")).to_have_value("default")
    page.get_by_label("Tenant").fill("acme")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Collection", exact=True)).to_have_value("guide")
    page.goto("about:blank")
    page.goto(explorer.url)
    expect(page.get_by_label("Tenant")).to_have_value("acme")
    expect(page.get_by_label("Collection", exact=True)).to_have_value("guide")


def test_recent_searches_are_listed_by_tenant_and_can_be_deleted(explorer: Explorer) -> None:
    explorer.show()
    page = explorer.page
    explorer.setting("A").get_by_label("Mode").select_option("STANDARD")
    expect(explorer.search("gasket").first).to_be_visible()
    expect(explorer.search("sleep").first).to_contain_text("Cats sleep.")
    explorer.show("search", MANY)
    page.get_by_text("Recent searches").click()
    links = page.locator(".recent-list a")
    expect(links).to_have_text(["sleep", "gasket"])
    links.nth(1).click()
    expect(explorer.passages().first).to_contain_text("gasket")
    expect(explorer.setting("A").get_by_label("Mode")).to_have_value("STANDARD")
    expect(links).to_have_text(["gasket", "sleep"])
    explorer.show("search", "", tenant="nobody")
    expect(page.get_by_text("Recent searches")).to_be_hidden()
    explorer.show()
    page.get_by_text("Recent searches").click()
    page.get_by_role("button", name="Delete the list").click()
    expect(page.get_by_text("Recent searches")).to_be_hidden()
    assert "gasket" not in page.evaluate("JSON.stringify(localStorage)")


def test_recent_searches_are_bounded(explorer: Explorer) -> None:
    explorer.page.goto(explorer.url)
    counts = explorer.page.evaluate(
        """async () => {
          const { lastSearches, storeSearch } = await import("./query_history.js");
          for (let n = 0; n < 60; n += 1) storeSearch("t0", { q: `query ${n}` });
          storeSearch("t0", { q: "x".repeat(3000) });
          const newest = lastSearches("t0")[0].q;
          const many = lastSearches("t0").length;
          for (let n = 1; n < 25; n += 1) storeSearch(`t${n}`, { q: "other" });
          return [newest, many, lastSearches("t0").length, lastSearches("t24").length];
        }"""
    )
    assert counts == ["query 59", 50, 0, 1]
