"""The page shows documents with their status, and a document's tree, map and text."""

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import ALIAS, MANY, MANY_DOCUMENTS, PETS, PUMP, manual
from tests.support.until import until

pytestmark = pytest.mark.browser


def test_documents_are_listed_page_by_page(explorer: Explorer) -> None:
    explorer.show("documents", MANY)
    panel = explorer.panel("Documents")
    expect(panel.get_by_text(f"1–25 of {MANY_DOCUMENTS}")).to_be_visible()
    expect(panel.get_by_role("button", name="Previous")).to_be_disabled()
    panel.get_by_role("button", name="Next").click()
    expect(panel.get_by_text(f"26–{MANY_DOCUMENTS} of {MANY_DOCUMENTS}")).to_be_visible()
    expect(panel.get_by_role("rowheader")).to_have_count(MANY_DOCUMENTS - 25)
    expect(panel.get_by_role("button", name="Next")).to_be_disabled()
    panel.get_by_role("button", name="Previous").click()
    expect(panel.get_by_role("button", name="note-00")).to_be_visible()


def test_the_status_of_collection_and_documents_is_shown(explorer: Explorer) -> None:
    explorer.show("documents")
    panel = explorer.panel("Documents")
    expect(panel.locator(".figures > div", has_text="Documents").first).to_contain_text("5")
    expect(panel.locator(".figures > div", has_text="Leaves in the tail")).to_be_visible()
    row = panel.get_by_role("row", name="Pump manual")
    expect(row).to_contain_text("text/markdown")
    expect(row.get_by_text("tail", exact=True)).to_be_visible()
    expect(panel.get_by_role("row", name="paged").locator(".cell-pages")).to_have_text("2")


def refuse_status(explorer: Explorer) -> None:
    """Makes requests for a status fail, and chooses the collection MANY."""
    explorer.expects_failed_calls = True
    explorer.page.route("**/GetIndexStatus", lambda call: call.fulfill(status=503, body="{}"))
    explorer.page.get_by_label("Collection", exact=True).select_option(MANY)
    expect(explorer.panel("Documents").get_by_role("alert")).to_be_visible()


def test_a_failed_status_leaves_no_documents_of_another_collection(explorer: Explorer) -> None:
    """The button `Try again` reads the status and the documents."""
    explorer.show("documents")
    panel = explorer.panel("Documents")
    expect(panel.get_by_role("rowheader")).to_have_count(5)
    refuse_status(explorer)
    expect(panel.get_by_role("rowheader")).to_have_count(0)
    explorer.page.unroute("**/GetIndexStatus")
    panel.get_by_role("button", name="Try again").click()
    expect(panel.get_by_text(f"1–25 of {MANY_DOCUMENTS}")).to_be_visible()
    expect(panel.get_by_role("button", name="note-00")).to_be_visible()


def test_late_documents_of_the_previous_collection_are_dropped(explorer: Explorer) -> None:
    send_stopped_call = explorer.stop_next_call("ListDocuments")
    with explorer.page.expect_request("**/ListDocuments"):
        explorer.show("documents")
    refuse_status(explorer)
    send_stopped_call()
    expect(explorer.panel("Documents").get_by_role("rowheader")).to_have_count(0)


def test_a_document_shows_its_tree_and_spans(explorer: Explorer) -> None:
    explorer.show("documents")
    explorer.panel("Documents").get_by_role("button", name="Pump manual").click()
    expect(explorer.page.get_by_role("heading", name="Pump manual")).to_be_focused()
    expect(explorer.tree_item("3.0")).to_have_attribute("aria-level", "1")
    expect(explorer.tree_item("0.0")).to_have_attribute("aria-level", "4")
    expect(explorer.page.locator(".map-row")).to_have_count(5)
    explorer.panel("Documents").get_by_role("switch", name="Text as stored").check()
    preview = explorer.tree_item("0.1").locator(".tree-preview").text_content()
    assert preview
    explorer.tree_item("0.1").locator(".tree-label").hover()
    text = explorer.region("Text")
    until(lambda: explorer.marked("chunk", text).startswith(preview))
    marked = explorer.marked("chunk", text)
    assert marked in manual()
    assert len(marked) < 300


def test_another_top_level_chunk_is_read_when_it_is_chosen(explorer: Explorer) -> None:
    explorer.show("documents", doc="manual.md")
    expect(explorer.tree_item("3.0")).to_have_attribute("aria-expanded", "true")
    last = explorer.page.locator("[role=treeitem][aria-level='1']").last
    expect(last).to_have_attribute("aria-expanded", "false")
    last.locator(".tree-label").click()
    expect(explorer.region("Text")).to_contain_text(PUMP)
    expect(last).to_have_attribute("aria-selected", "true")
    explorer.page.locator(".map-row").first.locator(".map-bar").first.click()
    expect(explorer.region("Text")).to_contain_text("Section 0")


def test_spans_are_right_after_emoji(explorer: Explorer) -> None:
    explorer.show("documents", doc="pets")
    explorer.page.locator("[role=treeitem][aria-level='4']").last.locator(".tree-label").click()
    text = explorer.region("Text")
    expect(text.locator(".mark-chunk").last).to_be_visible()
    assert explorer.marked("chunk", text).endswith("Birds 🐦 sing.")
    assert text.inner_text() == PETS


def test_text_shared_with_neighbours_is_marked(explorer: Explorer) -> None:
    explorer.show("documents", doc="manual.md", chunk="manual.md#0.2")
    text = explorer.region("Text")
    expect(text.locator(".mark-shared").first).to_be_visible()
    shared = explorer.marked("shared", text)
    assert 0 < len(shared) < len(explorer.marked("chunk", text))


def test_a_search_leads_to_the_place_in_the_document(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("gasket torque").first
    passage.get_by_role("button", name="Open in document").click()
    text = explorer.region("Text")
    expect(text.locator(".mark-cited").first).to_be_in_viewport()
    assert explorer.marked("cited", text).startswith("Replace the gasket with torque 40.")
    explorer.page.go_back()
    expect(explorer.panel("Search")).to_be_visible()
    expect(explorer.passages().first).to_contain_text("gasket")


def test_a_document_is_opened_by_its_address_and_can_be_closed(explorer: Explorer) -> None:
    explorer.show("documents", doc="paged", chunk="paged#0.0")
    expect(explorer.page.get_by_role("heading", name="paged")).to_be_visible()
    expect(explorer.region("Text")).to_contain_text("Invoices")
    expect(explorer.page.get_by_text("pages 4–5").first).to_be_visible()
    explorer.page.get_by_role("button", name="All documents").click()
    expect(explorer.page.get_by_role("table")).to_be_visible()
    explorer.page.wait_for_url("**/#/acme/guide/documents")


def test_a_chunk_of_another_document_is_ignored(explorer: Explorer) -> None:
    explorer.show("documents", doc="pets", chunk="law#0.0")
    expect(explorer.page.get_by_role("heading", name="Pets 😀")).to_be_visible()
    expect(explorer.region("Text")).to_contain_text("Dogs bark.")
    explorer.page.wait_for_url("**/documents/pets?chunk=pets%23*")


def test_a_collection_can_be_shown_by_its_alias(explorer: Explorer) -> None:
    explorer.show("documents", ALIAS)
    expect(explorer.page.get_by_role("button", name="Pump manual")).to_be_visible()
    expect(explorer.page.get_by_label("Collection", exact=True)).to_have_value(ALIAS)
    explorer.page.get_by_role("tab", name="Search").click()
    expect(explorer.search("gasket").first).to_contain_text("gasket")


def test_a_change_of_the_address_is_followed(explorer: Explorer) -> None:
    explorer.show("documents", MANY)
    expect(explorer.page.get_by_role("button", name="note-00")).to_be_visible()
    explorer.page.evaluate("location.hash = '#/acme/guide/documents'")
    expect(explorer.page.get_by_role("button", name="Pump manual")).to_be_visible()
    expect(explorer.page.get_by_label("Collection", exact=True)).to_have_value("guide")


def test_the_settings_of_the_server_are_shown(explorer: Explorer) -> None:
    explorer.show("server")
    panel = explorer.panel("Settings")
    for name, value in (
        ("Embedder", "hash/64"),
        ("Chat model", "openai/test-model"),
        ("Tokens per level", "32 / 64 / 128 / 256"),
        ("Passages per search", "100"),
        ("Summaries", "SECTION"),
    ):
        fact = panel.locator(".facts > div", has_text=name).first
        expect(fact).to_contain_text(value)
    assert "limit." not in panel.inner_text()
