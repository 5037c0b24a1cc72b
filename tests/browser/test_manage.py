"""The page manages collections, aliases and documents, and asks before it deletes something."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hrag.client import Client
from hrag.errors import CollectionNotFound
from hrag.types import Document, SettingsRequest
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, LEVELS
from tests.browser.test_appearance import tab_to

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.conftest import Served

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Shelf:
    """A collection that a test may change, and an explorer that shows it."""

    explorer: Explorer
    client: Client
    tenant: str

    def show(self, view: str, collection: str = "shelf", **fields: str) -> None:
        self.explorer.show(view, collection, tenant=self.tenant, **fields)

    def ids(self) -> list[str]:
        listing = self.client.list_documents(self.tenant, collection="shelf")
        return [info.document_id for info in listing.items]


@pytest.fixture
def shelf(explorer: Explorer, served: Served) -> Shelf:
    client = served.running.client
    tenant = f"shelf-{uuid.uuid4().hex[:8]}"
    client.create_collection(tenant, "shelf", SettingsRequest(level_sizes=LEVELS))
    for number, word in enumerate(("Zebra", "apple", "Mango")):
        text = f"{word} text. " * (3 - number)
        metadata = {"colour": "green" if number else "grey", "n": number}
        document = Document(text, f"doc-{number}", word, metadata=metadata)
        client.ingest(tenant, document, collection="shelf")
    return Shelf(explorer, client, tenant)


def dialog(explorer: Explorer) -> Locator:
    return explorer.page.get_by_role("dialog")


def test_a_collection_is_created_with_settings_and_deleted_by_its_name(shelf: Shelf) -> None:
    shelf.show("collections")
    page = shelf.explorer.page
    page.get_by_role("button", name="New collection").click()
    asked = dialog(shelf.explorer)
    asked.get_by_label("Name", exact=True).fill("second")
    asked.get_by_label("Tokens per level").fill("64, 128")
    asked.get_by_label("Overlap").fill("0.2")
    asked.get_by_label("Summaries").select_option("NONE")
    asked.get_by_role("button", name="Create").click()
    card = page.get_by_role("article", name="second")
    expect(card).to_contain_text("64 / 128")
    expect(page.get_by_label("Collection", exact=True)).to_have_value("second")
    settings = shelf.client.get_collection(shelf.tenant, "second").settings
    assert (settings.tree.level_sizes, settings.tree.overlap_ratio) == ((64, 128), 0.2)
    card.get_by_role("button", name="Delete").click()
    delete = asked.get_by_role("button", name="Delete")
    expect(delete).to_be_disabled()
    asked.get_by_label("Name to confirm").fill("secon")
    expect(delete).to_be_disabled()
    asked.get_by_label("Name to confirm").fill("second")
    delete.click()
    expect(card).to_have_count(0)
    expect(page.get_by_label("Collection", exact=True)).to_have_value("shelf")
    with pytest.raises(CollectionNotFound):
        shelf.client.get_collection(shelf.tenant, "second")


def test_wrong_settings_are_explained_in_the_dialog(shelf: Shelf) -> None:
    shelf.explorer.expects_failed_calls = True
    shelf.show("collections")
    shelf.explorer.page.get_by_role("button", name="New collection").click()
    asked = dialog(shelf.explorer)
    asked.get_by_label("Name", exact=True).fill("second")
    for levels, message in (
        ("64, x", "they must be numbers"),
        ("64, 32", "level_sizes"),
    ):
        asked.get_by_label("Tokens per level").fill(levels)
        asked.get_by_role("button", name="Create").click()
        expect(asked.get_by_role("alert")).to_contain_text(message)
    shelf.explorer.page.keyboard.press("Escape")
    expect(asked).to_have_count(0)
    expect(shelf.explorer.page.get_by_role("button", name="New collection")).to_be_focused()


def test_aliases_are_added_moved_and_deleted(shelf: Shelf) -> None:
    shelf.client.create_collection(shelf.tenant, "new-shelf", SettingsRequest(level_sizes=LEVELS))
    shelf.explorer.expects_failed_calls = True
    shelf.show("collections")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    card = page.get_by_role("article", name="shelf", exact=True)
    card.get_by_role("button", name="Add an alias").click()
    asked.get_by_label("Alias").fill("live")
    asked.get_by_role("button", name="Add an alias").click()
    expect(card.get_by_role("listitem")).to_contain_text("live")
    page.get_by_label("Collection", exact=True).select_option("live")
    expect(card.get_by_text("chosen")).to_be_visible()
    card.get_by_role("button", name="Delete").last.click()
    expect(asked).to_contain_text("The server refuses this")
    asked.get_by_label("Name to confirm").fill("shelf")
    asked.get_by_role("button", name="Delete").click()
    expect(asked.get_by_role("alert")).to_contain_text("Move its aliases")
    asked.get_by_role("button", name="Cancel").click()
    card.get_by_role("button", name="Move").click()
    asked.get_by_label("Collection").select_option("new-shelf")
    asked.get_by_role("button", name="Move").click()
    other = page.get_by_role("article", name="new-shelf")
    expect(other.get_by_role("listitem")).to_contain_text("live")
    assert shelf.client.list_aliases(shelf.tenant)[0].collection == "new-shelf"
    other.get_by_role("listitem").get_by_role("button", name="Delete").click()
    expect(asked).to_contain_text("The collection new-shelf stays.")
    asked.get_by_role("button", name="Delete").click()
    expect(page.get_by_label("Collection", exact=True)).to_have_value("new-shelf")
    assert not shelf.client.list_aliases(shelf.tenant)


def test_documents_are_sorted_and_filtered(shelf: Shelf) -> None:
    shelf.show("documents")
    page = shelf.explorer.page
    names = shelf.explorer.panel("Documents").locator("th button")
    expect(names).to_have_text(["Zebra", "apple", "Mango"])
    page.get_by_label("Order").select_option("title")
    expect(names).to_have_text(["apple", "Mango", "Zebra"])
    page.get_by_label("Descending").check()
    expect(names).to_have_text(["Zebra", "Mango", "apple"])
    page.get_by_label("Order").select_option("id")
    expect(names).to_have_text(["Mango", "apple", "Zebra"])
    page.get_by_label("Order").select_option("tokens")
    expect(names).to_have_text(["Zebra", "apple", "Mango"])
    panel = shelf.explorer.panel("Documents")
    panel.get_by_text("Filter", exact=True).click()
    panel.get_by_role("button", name="Add condition").click()
    panel.get_by_label("Key").fill("colour")
    panel.get_by_label("Value").fill("green")
    panel.get_by_role("button", name="Show", exact=True).click()
    expect(names).to_have_text(["apple", "Mango"])
    expect(panel).to_contain_text("1–2 of 2")
    panel.get_by_label("Value").fill("nothing")
    panel.get_by_role("button", name="Show", exact=True).click()
    expect(panel).to_contain_text("No documents match")


def test_too_many_documents_are_not_sorted(shelf: Shelf) -> None:
    shelf.explorer.page.route(
        "**/CountDocuments", lambda call: call.fulfill(json={"documentCount": "10001"})
    )
    shelf.show("documents")
    shelf.explorer.page.get_by_label("Order").select_option("title")
    error = shelf.explorer.panel("Documents").get_by_role("alert")
    expect(error).to_contain_text("10,001 documents would have to be sorted; at most 10,000")


def test_selected_documents_are_deleted_after_a_question(shelf: Shelf) -> None:
    shelf.show("documents")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    page.get_by_role("checkbox", name="Select Zebra").check()
    page.get_by_role("checkbox", name="Select Mango").check()
    page.get_by_role("button", name="Delete 2 documents").click()
    expect(asked.get_by_role("listitem")).to_have_text(["Zebra (doc-0)", "Mango (doc-2)"])
    expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    assert len(shelf.ids()) == 3
    page.get_by_role("button", name="Delete 2 documents").click()
    asked.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("rowheader")).to_have_count(1)
    assert shelf.ids() == ["doc-1"]
    expect(page.get_by_role("status")).to_have_text("2 documents were deleted.")


def test_a_document_is_deleted_with_the_keyboard_alone(shelf: Shelf) -> None:
    shelf.show("documents")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    tab_to(shelf.explorer, page.get_by_role("checkbox", name="Select Mango"))
    page.keyboard.press("Space")
    delete = page.get_by_role("button", name="Delete 1 document")
    for _ in range(10):
        if delete.evaluate("(each) => each === document.activeElement"):
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("rowheader")).to_have_count(2)
    expect(page.get_by_role("tab", name="Documents")).to_be_focused()
    assert shelf.ids() == ["doc-0", "doc-1"]


def test_all_documents_that_match_are_deleted(shelf: Shelf) -> None:
    shelf.show("documents")
    panel, asked = shelf.explorer.panel("Documents"), dialog(shelf.explorer)
    panel.get_by_text("Filter", exact=True).click()
    panel.get_by_role("button", name="Add condition").click()
    panel.get_by_label("Key").fill("colour")
    panel.get_by_label("Value").fill("green")
    panel.get_by_role("button", name="Show", exact=True).click()
    panel.get_by_role("button", name="Delete all 2 documents that match").click()
    asked.get_by_label("Name to confirm").fill("shelf")
    asked.get_by_role("button", name="Delete").click()
    expect(panel).to_contain_text("No documents match")
    assert shelf.ids() == ["doc-0"]


def test_a_document_is_changed_downloaded_and_deleted(shelf: Shelf) -> None:
    shelf.explorer.expects_failed_calls = True
    shelf.show("documents", doc="doc-0")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    page.get_by_role("button", name="Edit metadata").click()
    field = asked.get_by_label("Metadata")
    expect(field).to_have_value('{\n  "colour": "grey",\n  "n": 0\n}')
    field.fill("[1]")
    asked.get_by_role("button", name="Save").click()
    expect(asked.get_by_role("alert")).to_contain_text("not a JSON object")
    field.fill('{"note": "<b>new</b>"}')
    asked.get_by_label("Source").fill("a/b.txt")
    asked.get_by_role("button", name="Save").click()
    expect(page.get_by_text("1 metadata key")).to_be_visible()
    expect(page.locator(".document-header")).to_contain_text("a/b.txt")
    stored = shelf.client.get_document(shelf.tenant, "doc-0", collection="shelf")
    assert (stored.metadata, stored.source) == ({"note": "<b>new</b>"}, "a/b.txt")
    with page.expect_download() as waited:
        page.get_by_role("button", name="Download text").click()
    assert waited.value.suggested_filename == "doc-0.txt"
    assert waited.value.path().read_text("utf-8") == "Zebra text. " * 3
    page.get_by_role("button", name="Delete").click()
    asked.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("rowheader")).to_have_count(2)
    assert shelf.ids() == ["doc-1", "doc-2"]


def test_a_change_by_somebody_else_is_not_overwritten(shelf: Shelf) -> None:
    shelf.explorer.expects_failed_calls = True
    shelf.show("documents", doc="doc-0")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    page.get_by_role("button", name="Edit metadata").click()
    shelf.client.update_metadata(shelf.tenant, "doc-0", {"by": "other"}, collection="shelf")
    asked.get_by_label("Metadata").fill("{}")
    asked.get_by_role("button", name="Save").click()
    expect(asked.get_by_role("alert")).to_contain_text("Somebody else has changed it")


def test_files_get_a_title_and_metadata(shelf: Shelf) -> None:
    shelf.show("upload")
    page = shelf.explorer.page
    page.get_by_text("Title and metadata").click()
    page.get_by_label("Title", exact=True).fill("Own title")
    page.get_by_label("Metadata", exact=True).fill('{"team": "a"')
    upload = {"name": "x.txt", "mimeType": "", "buffer": b"Foxes run."}
    with page.expect_file_chooser() as waited:
        page.get_by_role("button", name="Choose files").click()
    waited.value.set_files([upload])
    expect(page.get_by_role("alert")).to_contain_text("not a JSON object")
    page.get_by_label("Metadata", exact=True).fill('{"team": "a"}')
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("list", name="Uploads")).to_contain_text("created")
    stored = shelf.client.get_document(shelf.tenant, "x.txt", collection="shelf")
    assert (stored.title, stored.metadata) == ("Own title", {"team": "a"})


def test_hostile_names_never_run_in_dialogs(shelf: Shelf) -> None:
    document = Document(f"{ATTACK} text", "bad", ATTACK, metadata={ATTACK: ATTACK})
    shelf.client.ingest(shelf.tenant, document, collection="shelf")
    shelf.show("documents", doc="bad")
    page, asked = shelf.explorer.page, dialog(shelf.explorer)
    page.get_by_role("button", name="Edit metadata").click()
    expected = json.dumps({ATTACK: ATTACK}, indent=2)
    expect(asked.get_by_label("Metadata")).to_have_value(expected)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete").click()
    expect(asked.get_by_role("listitem")).to_have_text(f"{ATTACK} (bad)")
    assert page.evaluate("window.attacked") is None
    assert page.locator("dialog img, dialog script").count() == 0
