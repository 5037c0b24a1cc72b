"""The reference of the API at /docs shows every method, and sends the examples of all methods."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.browser.explorer import Explorer, expect
from tests.browser.site import ATTACK, GUIDE, TENANT
from tests.browser.test_appearance import assert_accessible, assert_fits

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Locator

    from tests.browser.conftest import Open, Served

pytestmark = pytest.mark.browser

# A tenant that no other test uses, so that the examples change nothing for them.
READER = "reader"
KEY = "hrag_secret-of-this-test"
FIRST = ("CreateCollection", "IngestDocument", "IngestDocuments")
LAST = ("DeleteAlias", "DeleteDocument", "DeleteDocuments", "DeleteCollection")
SEARCH = {"tenantId": TENANT, "collection": GUIDE, "text": "attacked words", "limit": 1}


@pytest.fixture
def reference(explorer: Explorer) -> Explorer:
    """The page of the reference, with the tenant READER."""
    explorer.page.goto(f"{explorer.url}/docs")
    explorer.page.locator("#reference[aria-busy]").wait_for(state="detached")
    explorer.page.get_by_label("Tenant").fill(READER)
    return explorer


def tried(reference: Explorer, name: str) -> Locator:
    """Opens the form of a method and returns the section with it."""
    section = reference.page.locator(f"#{name}")
    section.get_by_text("Try it").click()
    return section


def send(section: Locator) -> None:
    section.get_by_role("button", name="Send").click()


def whole_reply(section: Locator) -> Locator:
    """Waits until the reply has arrived whole; returns the element that shows it."""
    expect(section.get_by_role("button", name="Send")).to_be_enabled()
    return section.get_by_label("Reply of")


def curl_of(section: Locator) -> str:
    return section.get_by_label("with curl").inner_text()


@pytest.mark.timeout(300)
def test_the_examples_of_all_methods_can_be_sent(reference: Explorer) -> None:
    reference.page.on("dialog", lambda dialog: dialog.accept())
    names = reference.page.eval_on_selector_all(
        ".try", "(forms) => forms.map((form) => form.closest('section').id)"
    )
    assert len(names) > len(FIRST) + len(LAST)
    others = [name for name in names if name not in (*FIRST, *LAST)]
    for name in (*FIRST, *others, *LAST):
        section = tried(reference, name)
        send(section)
        expect(section.get_by_role("status")).to_contain_text("HTTP 200 after")
        expect(whole_reply(section)).not_to_be_empty()
        section.get_by_text("Try it").click()


def test_a_call_is_changed_sent_and_shown_for_curl(reference: Explorer) -> None:
    section = tried(reference, "Search")
    body = section.get_by_label("Body")
    assert json.loads(body.input_value())["tenantId"] == READER
    body.fill(json.dumps({**SEARCH, "text": 'it\'s "Dogs" \\ $HOME'}))
    reference.page.get_by_label("Tenant").fill("other")
    assert json.loads(body.input_value())["tenantId"] == TENANT
    send(section)
    expect(section.get_by_role("status")).to_contain_text("HTTP 200")
    shown = json.loads(whole_reply(section).inner_text())
    command = ["bash", "-c", f"{curl_of(section)} --silent"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert shown["passages"] == printed["passages"] != []


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("ReadHierarchy", "curl '{url}/api/v1/chunks/pets%230.0/hierarchy?tenant_id=reader&"),
        (
            "Retrieve",
            "curl '{url}/api/v1/retrieve?tenant_id=reader&collection=demo' \\\n  --json '",
        ),
        ("IngestDocuments", "curl '{url}/hrag.v1.IndexerService/IngestDocuments' \\\n  -H "),
    ],
)
def test_curl_has_parameters_and_lines(reference: Explorer, name: str, begin: str) -> None:
    command = curl_of(tried(reference, name))
    assert command.startswith(begin.format(url=reference.url))
    done = subprocess.run(["bash", "-n", "-c", command], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_body_that_is_no_json_is_not_sent(reference: Explorer) -> None:
    section = tried(reference, "Search")
    section.get_by_label("Body").fill('{"text": ')
    expect(section.get_by_role("alert")).to_contain_text("The body is not JSON")
    expect(section.get_by_role("button", name="Send")).to_be_disabled()
    section.get_by_label("Body").fill("{}")
    expect(section.get_by_role("alert")).to_be_empty()


def test_an_error_is_shown_with_its_words(reference: Explorer) -> None:
    reference.expects_failed_calls = True
    section = tried(reference, "Search")
    section.get_by_label("Body").fill(json.dumps({**SEARCH, "limit": 1_000}))
    send(section)
    expect(section.get_by_role("status")).to_contain_text("HTTP 400")
    expect(section.get_by_label("Reply of")).to_contain_text("limit is 1000")


def test_a_key_is_sent_in_its_header_and_kept_nowhere(reference: Explorer) -> None:
    page = reference.page
    sent: list[str | None] = []
    page.on("request", lambda request: sent.append(request.headers.get("authorization")))
    section = tried(reference, "GetServerInfo")
    page.get_by_label("API key or token").fill(KEY)
    expect(section.get_by_label("with curl")).to_contain_text('"Authorization: Bearer $HRAG_TOKEN"')
    send(section)
    expect(section.get_by_role("status")).to_contain_text("HTTP 200")
    assert sent == [f"Bearer {KEY}"]
    kept = "location.href, history.state, document.cookie, localStorage, sessionStorage"
    assert KEY not in page.evaluate(f"JSON.stringify([{kept}])")
    assert KEY not in page.evaluate("document.documentElement.outerHTML")
    page.reload()
    expect(page.get_by_label("API key or token")).to_have_value("")


def test_a_deletion_asks_first(reference: Explorer) -> None:
    calls: list[str] = []
    reference.page.on("request", lambda request: calls.append(request.url))
    questions: list[str] = []

    def refuse(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.dismiss()

    reference.page.on("dialog", refuse)
    send(tried(reference, "DeleteCollection"))
    assert questions == ["DeleteCollection deletes what the request names. Send it?"]
    assert calls == []


def test_an_answer_is_shown_and_can_be_stopped(reference: Explorer) -> None:
    section = tried(reference, "Answer")
    search = {"tenantId": TENANT, "collection": GUIDE, "text": "gasket"}
    section.get_by_label("Body").fill(json.dumps({"search": search}))
    send(section)
    expect(section.get_by_label("Reply of")).to_contain_text("event: end")
    reference.stop_next_call("Answer")
    send(section)
    section.get_by_role("button", name="Stop").click()
    expect(section.get_by_role("status")).to_have_text("Stopped")
    expect(section.get_by_role("button", name="Stop")).to_be_hidden()


def test_scripts_in_a_reply_never_run(reference: Explorer) -> None:
    section = tried(reference, "Search")
    section.get_by_label("Body").fill(json.dumps(SEARCH))
    send(section)
    expect(section.get_by_label("Reply of")).to_contain_text(json.dumps(ATTACK)[1:-1])
    assert reference.page.evaluate("window.attacked") is None
    assert reference.page.locator("main img, main script, main iframe").count() == 0


def test_the_address_names_a_method(explorer: Explorer) -> None:
    explorer.page.goto(f"{explorer.url}/docs#Search")
    heading = explorer.page.locator("#Search").get_by_role("heading").first
    expect(heading).to_be_in_viewport()
    explorer.page.get_by_role("link", name="GetHierarchy", exact=True).first.click()
    explorer.page.wait_for_url("**/docs#GetHierarchy")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_reference_is_accessible_and_fits(
    opened: Open, served: Served, width: int, scheme: str
) -> None:
    explorer = opened(served.gateway, viewport={"width": width, "height": 900}, color_scheme=scheme)
    explorer.expects_failed_calls = True
    explorer.page.goto(f"{explorer.url}/docs")
    explorer.page.locator("#reference[aria-busy]").wait_for(state="detached")
    for name, status in (("IngestDocuments", 200), ("ReadHierarchy", 404)):
        section = tried(explorer, name)
        send(section)
        expect(section.get_by_role("status")).to_contain_text(f"HTTP {status}")
    assert_fits(explorer)
    assert_accessible(explorer)
