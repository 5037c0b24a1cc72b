"""The page works in all languages, themes and widths, and with the keyboard; axe-core checks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hrag.types import Document, SettingsRequest
from tests.browser.explorer import Explorer, expect
from tests.browser.site import LEVELS
from tests.support.servers.openai_server import says

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.conftest import Open, Served

pytestmark = pytest.mark.browser

NARROW = {"width": 360, "height": 740}
VIEWS = ("search", "answer", "documents", "upload", "collections", "reports", "server")
APPEARANCES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": NARROW},
    "chinese": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}


def assert_accessible(explorer: Explorer) -> None:
    """Waits until the page is loaded; fails if axe-core finds serious or critical violations."""
    from axe_playwright_python.sync_playwright import Axe

    explorer.wait_until_loaded()
    violations = Axe().run(explorer.page).response["violations"]
    serious = [
        violation for violation in violations if violation["impact"] in ("serious", "critical")
    ]
    serious_nodes = [
        (violation["id"], node["html"][:200])
        for violation in serious
        for node in violation["nodes"]
    ]
    assert serious_nodes == []


def assert_fits(explorer: Explorer) -> None:
    assert explorer.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", APPEARANCES)
def test_every_view_is_accessible(opened: Open, served: Served, name: str) -> None:
    explorer = opened(served.gateway, **APPEARANCES[name])
    lang = "zh-Hans" if name == "chinese" else "en"
    explorer.show(q="gasket", lang=lang, **{"b.mode": "CONTEXT", "b.filter": "team~is~platform"})
    columns = explorer.page.locator(".result-column")
    expect(columns.nth(0).get_by_role("article").first).to_be_visible()
    expect(columns.nth(1).get_by_role("article").first).to_be_visible()
    assert_accessible(explorer)
    assert_fits(explorer)
    for view in VIEWS[1:]:
        explorer.page.locator(f"#tab-{view}").click()
        assert_accessible(explorer)
        assert_fits(explorer)
    explorer.show("documents", doc="manual.md", chunk="manual.md#0.2", lang=lang)
    expect(explorer.page.locator(".document-text .mark-chunk").first).to_be_visible()
    assert_accessible(explorer)
    assert_fits(explorer)
    for opener in (".document-actions > :nth-child(2)", ".document-actions > :nth-child(3)"):
        explorer.page.locator(opener).click()
        assert_accessible(explorer)
        explorer.page.keyboard.press("Escape")
    explorer.page.locator(".key-button").click()
    assert_accessible(explorer)
    explorer.show("collections", lang=lang)
    explorer.page.locator(".view-head button").click()
    assert_accessible(explorer)
    assert_fits(explorer)


def test_an_answer_and_an_error_are_accessible(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    explorer.show("answer")
    explorer.page.get_by_role("textbox", name="Question").fill("gasket")
    explorer.page.keyboard.press("Enter")
    expect(explorer.page.get_by_role("heading", name="Citations")).to_be_visible()
    assert_accessible(explorer)
    explorer.show("documents", doc="nowhere")
    expect(explorer.page.get_by_role("alert")).to_be_visible()
    assert_accessible(explorer)


def test_the_theme_can_be_switched(opened: Open, served: Served) -> None:
    explorer = opened(served.gateway, color_scheme="dark")
    explorer.show()
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = explorer.page.evaluate(colour)
    explorer.page.get_by_label("Theme").select_option("light")
    light = explorer.page.evaluate(colour)
    assert dark != light
    explorer.page.reload()
    expect(explorer.page.get_by_label("Theme")).to_have_value("light")
    assert explorer.page.evaluate(colour) == light
    explorer.page.get_by_label("Theme").select_option("system")
    assert explorer.page.evaluate(colour) == dark


@pytest.mark.parametrize("lang", ["fr", "constructor"])
def test_the_page_is_english_if_the_language_is_unknown(explorer: Explorer, lang: str) -> None:
    explorer.show(lang=lang)
    expect(explorer.page.get_by_role("tab", name="Search")).to_be_visible()
    expect(explorer.page.locator("html")).to_have_attribute("lang", "en")


def test_the_page_is_chinese_in_a_chinese_browser(opened: Open, served: Served) -> None:
    """Switching the language changes all texts in place and loses no result."""
    explorer = opened(served.gateway, locale="zh-CN")
    explorer.show(q="解除劳动合同")
    page = explorer.page
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    expect(page.get_by_role("tab", name="搜索")).to_be_visible()
    passages = page.get_by_role("region", name="设置 A 的结果").get_by_role("article")
    expect(passages.first).to_contain_text("劳动合同法")
    expect(page.get_by_text("5 个段落").first).to_be_visible()
    assert_accessible(explorer)
    page.get_by_label("语言", exact=True).select_option("en")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.get_by_role("tab", name="Search")).to_be_visible()
    expect(page.get_by_text("5 passages").first).to_be_visible()
    expect(explorer.passages().first).to_contain_text("劳动合同法")
    page.reload()
    expect(page.get_by_role("tab", name="Search")).to_be_visible()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_cut(explorer: Explorer, width: int) -> None:
    """All tabs are visible, and the fields of a filter are wide enough to read their values."""
    page = explorer.page
    page.set_viewport_size({"width": width, "height": 900})
    explorer.show(filter="document_id~is~manual.md")
    expect(page.get_by_role("tab").first).to_be_visible()
    for tab in page.get_by_role("tab").all():
        box = tab.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    for label in ("Key", "Value"):
        field = explorer.setting("A").get_by_label(label)
        assert field.evaluate("(each) => each.scrollWidth <= each.clientWidth"), label
    explorer.show("documents")
    expect(page.get_by_role("rowheader").first).to_be_visible()
    table = page.locator(".document-list .table-scroll")
    assert table.evaluate("(each) => each.scrollWidth <= each.clientWidth")


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_and_words_fit(explorer: Explorer, served: Served, width: int) -> None:
    client, page = served.running.client, explorer.page
    tenant, name, alias = (letter * 64 for letter in "tca")
    word = "W" * 300
    if not client.list_collections(tenant).items:
        client.create_collection(tenant, name, SettingsRequest(level_sizes=LEVELS))
        client.set_alias(tenant, alias, name)
        metadata = {"k" * 60: word}
        document = Document(f"{word} gasket {word}", "d" * 128, word, word, metadata=metadata)
        client.ingest(tenant, document, collection=name)
    served.chat.forget_faults()
    served.chat.inject(says(f"{word} [1]."))
    page.set_viewport_size({"width": width, "height": 900})
    explorer.show("search", name, tenant=tenant, q=f"gasket {word}", filter=f"source~is~{word}")
    explorer.wait_until_loaded()
    assert_fits(explorer)
    header = page.get_by_role("banner").bounding_box()
    assert header
    assert header["height"] < (120 if width == 1280 else 260)
    page.get_by_role("tab", name="Answer").click()
    page.get_by_role("textbox", name="Question").fill("gasket")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Citations")).to_be_visible()
    output = page.locator(".answer-output")
    assert output.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    for view in ("documents", "upload", "collections", "server"):
        page.locator(f"#tab-{view}").click()
        explorer.wait_until_loaded()
        assert_fits(explorer)
    page.locator("#tab-documents").click()
    page.get_by_role("rowheader").get_by_role("button").click()
    page.get_by_text("1 metadata key").click()
    assert_fits(explorer)


def test_the_first_screen_says_what_to_do(explorer: Explorer) -> None:
    explorer.show("search", "", tenant="newcomer")
    panel = explorer.panel("Search")
    expect(panel).to_contain_text("Nothing to search in yet")
    panel.get_by_role("button", name="Upload").click()
    expect(explorer.panel("Upload")).to_contain_text("Into the collection default")
    with explorer.page.expect_file_chooser() as waited:
        explorer.page.get_by_role("button", name="Choose files").click()
    waited.value.set_files([{"name": "a.txt", "mimeType": "", "buffer": b"Owls hunt."}])
    expect(explorer.page.get_by_role("list", name="Uploads")).to_contain_text("created")
    explorer.page.get_by_role("tab", name="Search").click()
    expect(panel).to_contain_text("No search yet")


def test_the_keyboard_reaches_everything(explorer: Explorer) -> None:
    """The keyboard leads from the tenant to a passage and to its chunk in the document."""
    page = explorer.page
    page.goto(explorer.url)
    expect(page.get_by_label("Tenant")).to_be_focused()
    page.keyboard.type("acme")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Collection", exact=True)).to_have_value("guide")
    tab_to(explorer, page.get_by_role("tab", name="Search"))
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Answer")).to_be_focused()
    page.keyboard.press("Home")
    expect(explorer.panel("Search")).to_be_visible()
    tab_to(explorer, page.get_by_role("searchbox", name="Query"))
    page.keyboard.type("gasket")
    page.keyboard.press("Enter")
    expect(explorer.passages().first).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("5 passages")
    open_button = explorer.passages().first.get_by_role("button", name="Open in document")
    tab_to(explorer, open_button)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Pump manual")).to_be_focused()
    tab_to(explorer, page.get_by_role("treeitem", selected=True))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    child = page.get_by_role("treeitem", selected=True)
    expect(child).to_be_focused()
    expect(child).to_have_attribute("aria-level", "3")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(explorer.focused).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.get_by_role("treeitem", selected=True)).to_have_attribute("aria-level", "1")
    tab_to(explorer, explorer.region("Text"))


def tab_to(explorer: Explorer, target: Locator) -> None:
    """Presses Tab until `target` has the focus."""
    for _ in range(60):
        explorer.page.keyboard.press("Tab")
        if target.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"the keyboard does not reach {target}")
