"""The page accepts API keys, and explains errors and missing collections and documents."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hrag.cli.processes import free_addresses
from hrag.client import Client
from hrag.server.auth import Role
from hrag.types import Document
from tests.browser.conftest import Open
from tests.browser.explorer import Explorer, expect
from tests.support.servers.credentials import TENANT, UNKNOWN_KEY, new_key
from tests.support.servers.gateways import Gateway, gateway_to
from tests.support.servers.processes import FAST, running

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Guarded:
    """A gateway to services that require a key, and a valid key."""

    gateway: Gateway
    key: str


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Guarded]:
    """A gateway to services that require a key, and a valid key."""
    folder = tmp_path_factory.mktemp("guarded")
    key = new_key(folder / "keys.json", role=Role.WRITE)
    settings = FAST | {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(folder / "keys.json")}
    with running(folder / "store", settings) as services:
        addresses = services.indexer.address, services.retriever.address
        with Client(*addresses, token=key) as client:
            client.ingest(TENANT, Document("Dogs bark.", "pets"))
        with gateway_to(*addresses) as gateway:
            yield Guarded(gateway, key)


def test_the_page_asks_for_a_key_and_uses_it(opened: Open, guarded: Guarded) -> None:
    explorer = opened(guarded.gateway)
    explorer.expects_failed_calls = True
    explorer.show(collection="default", q="dogs")
    error = explorer.page.get_by_role("banner").get_by_role("alert")
    expect(error).to_contain_text("unauthenticated")
    expect(error).to_contain_text("Set an API key at the top of the page.")
    explorer.use_key(UNKNOWN_KEY)
    expect(error).to_contain_text("The server does not know this key")
    explorer.use_key(guarded.key)
    expect(error).to_be_hidden()
    expect(explorer.search("dogs").first).to_contain_text("Dogs bark.")
    assert guarded.key not in explorer.page.url
    explorer.search(f"dogs {guarded.key}")
    stored_by_page = (
        "[JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie]"
    )
    local, session, cookies = explorer.page.evaluate(stored_by_page)
    assert "dogs" in local
    assert guarded.key not in local
    assert (session, cookies) == ("{}", "")
    explorer.search("dogs")
    assert guarded.key not in explorer.page.content()
    explorer.page.get_by_label("Tenant").fill("globex")
    explorer.page.keyboard.press("Enter")
    expect(error).to_contain_text("permission_denied")
    explorer.page.reload()
    expect(error).to_contain_text("unauthenticated")


def test_enter_uses_the_key_and_closes_the_dialog(opened: Open, guarded: Guarded) -> None:
    explorer = opened(guarded.gateway)
    explorer.expects_failed_calls = True
    explorer.show(collection="default")
    page = explorer.page
    page.get_by_role("button", name="API key").click()
    page.get_by_label("API key or token").fill(guarded.key)
    with page.expect_response("**/ListCollections"):
        page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="API key set")).to_be_focused()


def test_a_key_can_be_forgotten(opened: Open, guarded: Guarded) -> None:
    explorer = opened(guarded.gateway)
    explorer.expects_failed_calls = True
    explorer.open(explorer.url)
    explorer.use_key(guarded.key)
    explorer.page.get_by_role("button", name="API key set").click()
    expect(explorer.page.get_by_label("API key or token")).to_have_value("")
    explorer.page.get_by_role("button", name="Forget the key").click()
    explorer.page.get_by_label("Tenant").fill(TENANT)
    explorer.page.keyboard.press("Enter")
    expect(explorer.page.get_by_role("alert")).to_contain_text("unauthenticated")


def test_errors_show_the_field_and_advice(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    explorer.show()
    results = explorer.region("Results of setting A")
    setting = explorer.setting("A")
    setting.get_by_text("More options").click()
    setting.get_by_label("Return level").fill("7")
    explorer.search("gasket")
    expect(results).to_contain_text("invalid_argument")
    expect(results).to_contain_text("return_level")
    expect(results).to_contain_text("Change the value that the message names")
    setting.get_by_label("Return level").fill("")
    results.get_by_role("button", name="Try again").click()
    expect(explorer.passages().first).to_contain_text("gasket")


def test_a_missing_collection_is_an_error_until_another_is_chosen(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    explorer.show("documents", collection="nowhere")
    error = explorer.panel("Documents").get_by_role("alert")
    expect(error).to_contain_text("not_found")
    expect(error).to_contain_text("nowhere")
    explorer.page.get_by_label("Collection", exact=True).select_option("guide")
    expect(explorer.page.get_by_role("button", name="Pump manual")).to_be_visible()


def test_a_missing_document_is_an_error_with_a_way_back(explorer: Explorer) -> None:
    explorer.expects_failed_calls = True
    explorer.show("documents", doc="nowhere")
    error = explorer.panel("Documents").get_by_role("alert")
    expect(error).to_contain_text("not_found")
    expect(error).to_contain_text("nowhere")
    explorer.page.get_by_role("button", name="All documents").click()
    expect(explorer.page.get_by_role("table")).to_be_visible()


def test_the_page_reports_services_that_are_down(opened: Open) -> None:
    with gateway_to(*free_addresses(2)) as gateway:
        explorer = opened(gateway)
        explorer.expects_failed_calls = True
        explorer.show("server")
        error = explorer.panel("Settings").get_by_role("alert")
        expect(error).to_contain_text("unavailable")
        expect(error).to_contain_text("A service is starting, stopping or down.")


def test_the_page_reports_a_gateway_that_has_stopped(opened: Open) -> None:
    with gateway_to(*free_addresses(2)) as gateway:
        explorer = opened(gateway)
        explorer.expects_failed_calls = True
        explorer.open(explorer.url)
        expect(explorer.page.get_by_role("tablist")).to_be_visible()
    explorer.page.get_by_label("Tenant").fill(TENANT)
    explorer.page.keyboard.press("Enter")
    error = explorer.page.get_by_role("alert")
    expect(error).to_contain_text("unreachable")
    expect(error).to_contain_text("The gateway did not answer")


@pytest.mark.parametrize("status", [200, 503])
def test_a_reply_that_breaks_off_is_an_error(explorer: Explorer, status: int) -> None:
    explorer.break_off("RetrieverService/Search", status)
    explorer.show(q="gasket")
    results = explorer.region("Results of setting A")
    expect(results.get_by_role("alert")).to_contain_text("unreachable")
    expect(results.get_by_role("alert")).to_contain_text("its reply ended early")
    results.get_by_role("button", name="Try again").click()
    expect(explorer.passages().first).to_contain_text("gasket")


def test_the_page_works_after_a_list_of_collections_that_breaks_off(explorer: Explorer) -> None:
    explorer.break_off("IndexerService/ListCollections")
    explorer.show()
    error = explorer.page.get_by_role("banner").get_by_role("alert")
    expect(error).to_contain_text("unreachable")
    expect(explorer.panel("Search")).to_be_visible()
    with explorer.collections_read_again():
        error.get_by_role("button", name="Try again").click()
    expect(error).to_be_hidden()
    expect(explorer.search("gasket").first).to_contain_text("gasket")


def test_a_reply_that_the_page_does_not_understand_is_an_error(explorer: Explorer) -> None:
    explorer.page.route("**/Search", lambda call: call.fulfill(json={"passages": 7}))
    explorer.show(q="gasket")
    error = explorer.region("Results of setting A").get_by_role("alert")
    expect(error).to_contain_text("unexpected")
    expect(error).to_contain_text("TypeError")
    expect(error).to_contain_text("Reload the page")
