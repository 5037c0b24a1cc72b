"""Documents, names and addresses are shown as text and never run as scripts."""

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, ATTACK_ID, ATTACK_LINK

pytestmark = pytest.mark.browser


# The page's links lead only to places in the page, and to the reference of the API.
_LINKS = "[href^='#/'], [href='docs'], [href='openapi.json']"
_DANGEROUS = f"main img, main script, main iframe, main svg, main a:not({_LINKS})"


def assert_harmless(explorer: Explorer) -> None:
    assert explorer.page.evaluate("window.attacked") is None
    assert explorer.page.locator(_DANGEROUS).count() == 0


def test_scripts_in_a_document_never_run(explorer: Explorer) -> None:
    explorer.show()
    passage = explorer.search("attacked words").first
    expect(passage.get_by_role("heading")).to_have_text(ATTACK)
    expect(passage).to_contain_text(ATTACK_LINK)
    assert_harmless(explorer)
    passage.get_by_role("button", name="Open in document").click()
    expect(explorer.region("Text")).to_contain_text(f"{ATTACK} attacked words {ATTACK}")
    explorer.page.get_by_text("2 metadata keys").click()
    metadata = explorer.page.locator(".metadata")
    expect(metadata.get_by_role("term").filter(has_text=ATTACK)).to_be_visible()
    expect(metadata.get_by_role("definition").filter(has_text=ATTACK_LINK)).to_be_visible()
    assert_harmless(explorer)
    explorer.page.get_by_role("button", name="All documents").click()
    expect(
        explorer.panel("Documents").get_by_role("rowheader").get_by_text(ATTACK_ID)
    ).to_be_visible()
    assert_harmless(explorer)


def test_scripts_in_the_address_never_run(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    for view in ("search", "documents", ATTACK):
        fields = {"q": ATTACK, "filter": ATTACK, "doc": ATTACK, "chunk": ATTACK, "lang": ATTACK}
        explorer.show(view, collection=ATTACK, theme=ATTACK, **fields)
        expect(explorer.page.get_by_role("tab", selected=True)).to_be_visible()
        explorer.page.wait_for_load_state("networkidle")
        assert_harmless(explorer)
    explorer.show(tenant=ATTACK)
    expect(explorer.page.get_by_role("banner").get_by_role("alert")).to_contain_text("tenant_id")
    assert_harmless(explorer)
