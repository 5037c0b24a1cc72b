"""A sentence is shown on its page of the PDF that it comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hrag.types import Document, Page, SettingsRequest
from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, LEVELS
from tests.browser.test_appearance import (
    APPEARANCES,
    assert_accessible,
    assert_fits,
    tab_to,
)
from tests.browser.test_untrusted import assert_harmless
from tests.support.documents.pdfs import pdf_of
from tests.support.servers.openai_server import says

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.conftest import Open, Served

pytestmark = pytest.mark.browser

TENANT = "press"
KEPT, PLAIN = "kept", "plain"
SENTENCE = "The gasket of pump 4 needs torque 40."
TWIN = "The gasket of pump 5 needs torque 50."


def _page(*lines: str) -> str:
    return "\n".join(lines)


def pump_manual() -> bytes:
    """Returns a PDF whose second page has SENTENCE and a line like it; the last one has no text."""
    return pdf_of(
        [
            _page("Valves hold the pressure of the cooling circuit.", "They are closed by hand."),
            _page("Pumps are serviced every four weeks.", SENTENCE, TWIN, "Then it is tested."),
            _page("Filters are washed with water.", "They dry in the shade."),
            "",
        ],
        title="Pump manual",
    )


@pytest.fixture(scope="session")
def _filled(served: Served) -> None:
    client = served.running.client
    for name, is_kept in ((KEPT, True), (PLAIN, False)):
        settings = SettingsRequest(level_sizes=LEVELS, keep_originals=is_kept)
        client.create_collection(TENANT, name, settings)
        manual = Document(pump_manual(), "pump.pdf", mime_type="application/pdf")
        client.ingest(TENANT, manual, collection=name)
    hostile = pdf_of([f"{ATTACK} attacked words"], title=ATTACK)
    documents = (
        Document(hostile, "hostile.pdf", title=ATTACK, mime_type="application/pdf"),
        Document((Page("Invoices are due in May.", 4),), "invoices"),
    )
    for document in documents:
        client.ingest(TENANT, document, collection=KEPT)


@pytest.fixture
def press(explorer: Explorer, _filled: None) -> Explorer:
    """An explorer of the tenant that has PDFs."""
    return explorer


def search(explorer: Explorer, text: str, collection: str = KEPT, **fields: str) -> Locator:
    """Searches; returns the best passage."""
    explorer.show(collection=collection, tenant=TENANT, q=text, **fields)
    passage = explorer.page.locator(".passage").first
    expect(passage).to_be_visible()
    return passage


def page_button(within: Locator, number: int) -> Locator:
    return within.get_by_role("button", name=f"Page {number}", exact=True)


def dialog(explorer: Explorer) -> Locator:
    return explorer.page.locator("dialog.page-dialog")


def opened_page(explorer: Explorer, button: Locator) -> Locator:
    button.click()
    expect(dialog(explorer).locator("canvas")).to_be_visible()
    return dialog(explorer)


def ink(shown: Locator, box: str) -> int:
    """Returns how many dark pixels the canvas has below a box."""
    script = """(sheet, selector) => {
      const canvas = sheet.querySelector("canvas");
      const { left, top, width, height } = sheet.querySelector(selector).style;
      const x = (share) => (parseFloat(share) / 100) * canvas.width;
      const y = (share) => (parseFloat(share) / 100) * canvas.height;
      const part = [x(left), y(top), x(width), y(height)].map(Math.round);
      const { data } = canvas.getContext("2d").getImageData(...part);
      return data.filter((value, at) => at % 4 === 0 && value < 100).length;
    }"""
    count: int = shown.locator(".page-sheet").evaluate(script, box)
    return count


def overlaps(shown: Locator) -> int:
    """Returns how many boxes of the passage overlap a box of the sentence."""
    script = """(sheet) => {
      const places = (kind) =>
        [...sheet.querySelectorAll(kind)].map((each) => each.getBoundingClientRect());
      const meet = (a, b) =>
        a.left + 1 < b.right && b.left + 1 < a.right &&
        a.top + 1 < b.bottom && b.top + 1 < a.bottom;
      const cited = places(".tint-cited");
      const meets = (box) => cited.some((other) => meet(box, other));
      return places(".tint-passage").filter(meets).length;
    }"""
    count: int = shown.locator(".page-sheet").evaluate(script)
    return count


def test_a_passage_opens_its_page_with_the_sentence_marked(press: Explorer) -> None:
    passage = search(press, "gasket pump 4")
    shown = opened_page(press, page_button(passage, 2))
    expect(shown.get_by_role("heading")).to_have_text("Pump manual")
    expect(shown.get_by_role("img", name="Page 2 of Pump manual")).to_be_visible()
    expect(shown).to_contain_text("2 of 4")
    expect(shown.get_by_role("status")).to_have_text("The sentence is marked on 1 line.")
    expect(shown.locator(".page-box.tint-cited")).to_have_count(1)
    assert shown.locator(".page-box.tint-passage").count() >= 2
    assert ink(shown, ".page-box.tint-cited") > 100
    assert overlaps(shown) == 0
    expect(shown.locator(".page-box.tint-cited")).to_be_in_viewport()
    expect(shown.locator(".page-legend")).to_have_text("sentencepassage")


def test_pages_are_turned_and_the_focus_stays(press: Explorer) -> None:
    button = page_button(search(press, "gasket pump 4"), 2)
    tab_to(press, button)
    press.page.keyboard.press("Enter")
    shown = dialog(press)
    expect(shown.get_by_role("region", name="Image of the page")).to_be_focused()
    following = shown.get_by_role("button", name="Next page")
    following.focus()
    press.page.keyboard.press("Enter")
    expect(shown.get_by_role("img", name="Page 3 of Pump manual")).to_be_visible()
    expect(shown.get_by_role("status")).to_contain_text("the sentence is not on this page")
    press.page.keyboard.press("Enter")
    expect(shown.get_by_role("img", name="Page 4 of Pump manual")).to_be_visible()
    expect(shown.get_by_role("status")).to_contain_text("Nothing is marked")
    expect(following).to_be_focused()
    expect(following).to_have_attribute("aria-disabled", "true")
    press.page.keyboard.press("Enter")
    expect(shown).to_contain_text("4 of 4")
    previous = shown.get_by_role("button", name="Previous page")
    for _ in range(3):
        previous.click()
    expect(shown.get_by_role("img", name="Page 1 of Pump manual")).to_be_visible()
    expect(previous).to_have_attribute("aria-disabled", "true")
    assert shown.locator(".page-box.tint-cited").count() == 0
    press.page.keyboard.press("Escape")
    expect(dialog(press)).to_have_count(0)
    expect(button).to_be_focused()


def test_a_larger_page_has_a_higher_resolution(press: Explorer) -> None:
    shown = opened_page(press, page_button(search(press, "gasket pump 4"), 2))
    canvas = shown.locator("canvas")
    pixels = canvas.evaluate("(each) => each.width")
    width = canvas.evaluate("(each) => each.clientWidth")
    expect(shown.get_by_role("button", name="Smaller")).to_have_attribute("aria-disabled", "true")
    larger = shown.get_by_role("button", name="Larger")
    with press.page.expect_response("**/*GetPageImage") as waited:
        larger.click()
    assert waited.value.request.post_data_json["dpi"] == 165
    expect(shown.locator(f"canvas[width='{pixels}']")).to_have_count(0)
    expect(shown).to_contain_text("150 %")
    assert canvas.evaluate("(each) => each.clientWidth") == pytest.approx(1.5 * width, abs=2)
    assert canvas.evaluate("(each) => each.width") == pytest.approx(1.5 * pixels, abs=2)
    assert ink(shown, ".page-box.tint-cited") > 100
    larger.click()
    larger.click()
    expect(shown).to_contain_text("300 %")
    expect(larger).to_have_attribute("aria-disabled", "true")
    expect(shown.locator(".page-stage")).to_have_attribute("aria-busy", "false")
    assert_fits(press)


def test_on_a_narrow_screen_the_sentence_can_be_read(press: Explorer) -> None:
    press.page.set_viewport_size({"width": 390, "height": 844})
    shown = opened_page(press, page_button(search(press, "gasket pump 4"), 2))
    expect(shown).to_contain_text("200 %")
    box = shown.locator(".page-box.tint-cited")
    expect(box).to_be_in_viewport()
    # The text of 12 points is about 12 pixels high.
    assert box.evaluate("(each) => each.clientHeight") >= 12
    stage = shown.locator(".page-stage")
    start = "(each) => each.getBoundingClientRect().left"
    assert 0 <= box.evaluate(start) - stage.evaluate(start) < 60
    assert_fits(press)


def test_a_citation_of_an_answer_opens_its_page(press: Explorer, served: Served) -> None:
    served.chat.forget_faults()
    served.chat.inject(says(f"{SENTENCE[:-1]} [1]."))
    press.show("answer", KEPT, tenant=TENANT)
    press.page.get_by_role("textbox", name="Question").fill("gasket torque pump 4")
    press.page.keyboard.press("Enter")
    offered = press.region("Answer").locator(".citations .page-button")
    shown = opened_page(press, offered)
    expect(shown.get_by_role("status")).to_have_text("The sentence is marked on 1 line.")
    assert ink(shown, ".page-box.tint-cited") > 100
    press.page.keyboard.press("Escape")
    expect(offered).to_be_focused()
    name = offered.inner_text()
    press.region("Answer").locator(".answer-text").get_by_role("button", name="Citation").click()
    shown = opened_page(
        press, press.page.locator(".passage:focus").get_by_role("button", name=name)
    )
    expect(shown.get_by_role("status")).to_have_text("The sentence is marked on 1 line.")


def test_a_chunk_opens_its_page(press: Explorer) -> None:
    press.show("documents", KEPT, tenant=TENANT, doc="pump.pdf", chunk="pump.pdf#0.0")
    shown = opened_page(press, page_button(press.panel("Documents"), 1))
    expect(shown.locator(".page-legend")).to_have_text("passage")
    expect(shown.get_by_role("status")).to_contain_text("The passage is marked on")
    press.page.keyboard.press("Escape")
    search(press, "gasket pump 4").get_by_role("button", name="Open in document").click()
    shown = opened_page(press, page_button(press.panel("Documents"), 2))
    expect(shown.get_by_role("status")).to_have_text("The sentence is marked on 1 line.")


def test_documents_without_an_original_offer_no_page(press: Explorer) -> None:
    """A collection that keeps no originals costs no further call."""
    calls: list[str] = []
    press.page.on("request", lambda request: calls.append(request.url))
    passage = search(press, "gasket pump 4", PLAIN)
    expect(passage).to_contain_text("pages 1–3")
    press.page.wait_for_load_state("networkidle")
    expect(press.page.locator(".page-button")).to_have_count(0)
    assert [url for url in calls if "ListDocuments" in url] == []
    with press.page.expect_response("**/*ListDocuments"):
        search(press, "invoices")
    press.page.wait_for_load_state("networkidle")
    invoices = press.page.locator(".passage").filter(has_text="Invoices are due")
    expect(invoices).to_contain_text("page 4")
    expect(invoices.locator(".page-button")).to_have_count(0)
    invoices.get_by_role("button", name="Open in document").click()
    expect(press.region("Text")).to_contain_text("Invoices are due in May.")
    expect(press.panel("Documents").locator(".page-button")).to_have_count(0)


def test_a_hostile_title_stays_text(press: Explorer) -> None:
    shown = opened_page(press, page_button(search(press, "attacked words"), 1))
    expect(shown.get_by_role("heading")).to_have_text(ATTACK)
    expect(shown.get_by_role("img")).to_have_attribute("aria-label", f"Page 1 of {ATTACK}")
    assert shown.locator("img, script, iframe, svg, a").count() == 0
    assert_harmless(press)


def test_refusals_are_plain_messages(press: Explorer) -> None:
    """Bytes that are no PNG are not decoded. A page that is too large is read coarser."""
    press.expects_failed_calls = True
    button = page_button(search(press, "gasket pump 4"), 2)
    method = "**/*GetPageImage"

    def refuse(status: int, body: dict[str, object]) -> None:
        press.page.route(method, lambda call: call.fulfill(status=status, json=body), times=1)

    reason = {"reason": "ORIGINAL_NOT_FOUND"}
    gone = {"code": "not_found", "message": "its original", "details": [{"debug": reason}]}
    refuse(404, gone)
    button.click()
    alert = dialog(press).get_by_role("alert")
    expect(alert).to_contain_text("its original")
    expect(alert).to_contain_text("The file of this document is not stored.")
    refuse(200, {"png": "PHN2Zz48L3N2Zz4=", "widthPoints": 100})
    alert.get_by_role("button", name="Try again").click()
    expect(alert).to_contain_text("the image of the page is not a PNG")
    expect(dialog(press).locator("canvas")).to_have_count(0)
    violations = {"fieldViolations": [{"field": "dpi", "description": "too large"}]}
    refuse(400, {"code": "invalid_argument", "message": "", "details": [{"debug": violations}]})
    with press.page.expect_response(lambda reply: _dpi_of(reply.request.post_data) == 55):
        alert.get_by_role("button", name="Try again").click()
    expect(dialog(press).locator("canvas")).to_be_visible()
    expect(alert).to_have_count(0)


def _dpi_of(request: str | None) -> int:
    return int(json.loads(request or "{}").get("dpi", 0))


@pytest.mark.usefixtures("_filled")
@pytest.mark.parametrize("name", APPEARANCES)
def test_the_page_view_is_accessible(opened: Open, served: Served, name: str) -> None:
    explorer = opened(served.gateway, **APPEARANCES[name])
    lang = "zh-Hans" if name == "chinese" else "en"
    passage = search(explorer, "gasket pump 4", lang=lang)
    shown = opened_page(explorer, passage.locator(".page-button"))
    expect(shown.locator(".page-box.tint-cited")).to_have_count(1)
    assert_accessible(explorer)
    assert_fits(explorer)
    assert shown.evaluate("(each) => each.scrollWidth <= each.clientWidth")
