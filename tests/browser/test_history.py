"""Views and searches are steps of the browser's history, and the last searches can be repeated."""

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import MANY

pytestmark = pytest.mark.browser

KEY = "hrag_secret~of%this.test"


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
    explorer.page.wait_for_url("**/#/acme/guide/search?q=gasket+torque&mode=CONTEXT")
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
    explorer.open(explorer.url)
    expect(page.get_by_label("Tenant")).to_have_value("default")
    page.get_by_label("Tenant").fill("acme")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Collection", exact=True)).to_have_value("guide")
    explorer.open(explorer.url)
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


def test_recent_searches_name_their_settings_in_words(explorer: Explorer) -> None:
    fields = {"mode": "AUTO_MERGE", "filter": "team~is~a%7Eb~~year~at_least~2020"}
    explorer.show(q="gasket", **fields, **{"b.mode": "CONTEXT", "b.filter": "team~absent"})
    expect(explorer.passages("B").first).to_be_visible()
    page = explorer.page
    page.get_by_text("Recent searches").click()
    settings = page.locator(".recent-list .meta > *")
    words = ["Mode AUTO_MERGE", "team is a~b", "year ≥ 2020"]
    expect(settings).to_have_text([*words, "Setting B", "Mode CONTEXT", "team is absent"])
    page.get_by_label("Language", exact=True).select_option("zh-Hans")
    expect(settings.nth(1)).to_have_text("team 等于 a~b")


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


def assert_key_is_nowhere(explorer: Explorer) -> None:
    """Fails if the address of the page or the browser's memory contains a part of the key."""
    assert "secret" not in explorer.page.url
    assert "secret" not in explorer.page.evaluate("JSON.stringify(localStorage)")


def test_a_key_in_a_search_never_gets_into_the_address(explorer: Explorer) -> None:
    explorer.show()
    explorer.use_key(KEY)
    page = explorer.page
    addresses = page.evaluate_handle(
        """() => {
          const all = [];
          for (const name of ["pushState", "replaceState"]) {
            const change = history[name].bind(history);
            history[name] = (state, title, url) => all.push(url) && change(state, title, url);
          }
          return all;
        }"""
    )
    expect(explorer.search(f"gasket {KEY}").first).to_be_visible()
    explorer.page.get_by_role("tab", name="Documents").click()
    explorer.page.get_by_role("tab", name="Search").click()
    page.get_by_label("Compare").check()
    expect(explorer.search(KEY)).not_to_have_count(0)
    expect(explorer.search("sleep").first).to_contain_text("Cats sleep.")
    page.wait_for_url(lambda url: url.count("q=sleep") == 1)
    assert_key_is_nowhere(explorer)
    assert "secret" not in str(addresses.json_value())


@pytest.mark.parametrize("name", ["q", "filter", "b.filter", "tenant", "collection", "doc"])
def test_no_field_of_the_address_contains_the_key(explorer: Explorer, name: str) -> None:
    page = explorer.page
    page.goto(explorer.url)
    fragment = page.evaluate(
        """async ([name, key]) => {
          const { changeAddress } = await import("./address.js");
          const { remember } = await import("./browser_memory.js");
          const { searchFields } = await import("./search_address.js");
          const { setKey } = await import("./connect.js");
          setKey(key);
          const a = { filters: { join: "all", rows: [["team", "is", `x ${key}`]] } };
          const { filter } = searchFields({ a });
          const value = name.endsWith("filter") ? filter : `my ${key}`;
          changeAddress({ view: "documents", chunk: "c", [name]: value });
          remember(value, "any");
          remember("any", [value]);
          return location.hash;
        }""",
        [name, KEY],
    )
    assert "chunk=c" in fragment
    assert_key_is_nowhere(explorer)


def test_a_key_that_was_searched_before_it_was_entered_is_removed(explorer: Explorer) -> None:
    explorer.show()
    explorer.search(KEY)
    explorer.page.wait_for_url("**secret**")
    explorer.use_key(KEY)
    explorer.page.wait_for_url(lambda url: "secret" not in url)
    expect(explorer.search("gasket").first).to_be_visible()
    explorer.page.get_by_text("Recent searches").click()
    expect(explorer.page.locator(".recent-list a")).to_have_text(["gasket"])
    assert_key_is_nowhere(explorer)
