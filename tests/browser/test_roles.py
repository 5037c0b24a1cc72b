"""Controls that the role of the key does not permit are disabled, with the role that is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hrag.client import Client
from hrag.server.auth import Role
from hrag.types import Document
from tests.browser.explorer import Explorer, expect
from tests.browser.test_appearance import assert_accessible
from tests.support.servers.credentials import TENANT, new_key
from tests.support.servers.gateways import Gateway, gateway_to
from tests.support.servers.processes import FAST, running

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.conftest import Open

pytestmark = pytest.mark.browser

# The buttons of the page that change something, with the role that each needs.
NEEDED = {
    "New collection": Role.WRITE,
    "Add an alias": Role.WRITE,
    "Move": Role.WRITE,
    "Delete alias": Role.WRITE,
    "Delete collection": Role.ADMIN,
    "Choose files": Role.WRITE,
    "Delete 1 document": Role.WRITE,
    "Delete the 1 document that matches": Role.WRITE,
    "Edit metadata": Role.WRITE,
    "Delete document": Role.WRITE,
}


@dataclass(frozen=True)
class Keys:
    """A gateway to services that require a key, and a key of each role."""

    gateway: Gateway
    keys: dict[Role, str]


@pytest.fixture(scope="module")
def keys(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Keys]:
    folder = tmp_path_factory.mktemp("roles")
    file = folder / "keys.json"
    by_role = {role: new_key(file, role=role) for role in Role}
    settings = FAST | {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(file)}
    with running(folder / "store", settings) as services:
        addresses = services.indexer.address, services.retriever.address
        with Client(*addresses, token=by_role[Role.ADMIN]) as client:
            client.ingest(TENANT, Document("Dogs bark.", "pets"))
            client.set_alias(TENANT, "live", "default")
        with gateway_to(*addresses) as gateway:
            yield Keys(gateway, by_role)


def controls(explorer: Explorer, view: str) -> dict[str, Locator]:
    """Opens a view; returns its buttons of NEEDED, by name."""
    page = explorer.page
    page.locator(f"#tab-{view}").click()
    button = explorer.panel(page.locator(f"#tab-{view}").inner_text()).get_by_role
    if view == "collections":
        names = ["New collection", "Add an alias", "Move"]
        shown = {name: button("button", name=name) for name in names}
        deletes = button("button", name="Delete", exact=True)
        return shown | {"Delete alias": deletes.first, "Delete collection": deletes.last}
    if view == "upload":
        return {"Choose files": button("button", name="Choose files")}
    page.get_by_text("Filter", exact=True).last.click()
    button("button", name="Add condition").click()
    explorer.panel("Documents").get_by_label("Key").fill("document_id")
    explorer.panel("Documents").get_by_label("Value").fill("pets")
    button("button", name="Show", exact=True).click()
    names = ["Delete the 1 document that matches", "Delete 1 document"]
    expect(button("button", name=names[0])).to_be_visible()
    page.get_by_role("checkbox", name="Select pets").check()
    return {name: button("button", name=name) for name in names}


def document_controls(explorer: Explorer) -> dict[str, Locator]:
    explorer.page.get_by_role("button", name="pets").click()
    button = explorer.panel("Documents").get_by_role
    return {
        "Edit metadata": button("button", name="Edit metadata"),
        "Delete document": button("button", name="Delete", exact=True),
    }


@pytest.mark.parametrize("role", Role)
def test_what_a_role_does_not_permit_is_disabled(opened: Open, keys: Keys, role: Role) -> None:
    explorer = opened(keys.gateway)
    explorer.expects_failed_calls = True  # The first calls have no key.
    explorer.show("server", "default", tenant=TENANT)
    with explorer.page.expect_response("**/GetServerInfo"):
        explorer.use_key(keys.keys[role])
    expect(explorer.panel("Settings")).to_contain_text("Your role")
    tested: dict[str, Locator] = {}
    for view in ("collections", "upload", "documents", "document"):
        is_document = view == "document"
        shown = document_controls(explorer) if is_document else controls(explorer, view)
        for name, control in shown.items():
            needed = NEEDED[name]
            if role.includes(needed):
                expect(control).to_be_enabled()
                continue
            expect(control).to_be_disabled()
            note = explorer.page.locator(f"#{control.get_attribute('aria-describedby')}")
            expect(note).to_be_visible()
            expect(note).to_contain_text(f"needs the role “{needed}”")
            expect(note).to_contain_text(f"This key has the role “{role}”")
        assert_accessible(explorer)
        tested |= shown
    assert set(tested) == set(NEEDED)


def test_another_key_changes_what_is_enabled(opened: Open, keys: Keys) -> None:
    explorer = opened(keys.gateway)
    explorer.expects_failed_calls = True
    explorer.show("collections", "default", tenant=TENANT)
    create = explorer.page.get_by_role("button", name="New collection")
    expect(create).to_be_enabled()  # The role is unknown.
    for role in (Role.READ, Role.ADMIN, Role.READ):
        explorer.use_key(keys.keys[role])
        expect(create).to_be_enabled(enabled=role is Role.ADMIN)
    explorer.page.get_by_label("Language").select_option("zh-Hans")
    expect(explorer.panel("集合")).to_contain_text("此密钥的角色是 read")


def test_dropped_files_of_a_reader_are_not_sent(opened: Open, keys: Keys) -> None:
    explorer = opened(keys.gateway)
    explorer.expects_failed_calls = True
    explorer.show("upload", "default", tenant=TENANT)
    explorer.use_key(keys.keys[Role.READ])
    expect(explorer.page.get_by_role("button", name="Choose files")).to_be_disabled()
    explorer.page.evaluate(
        """() => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File(["Owls hunt."], "owls.txt"));
          const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
          document.querySelector(".drop-zone").dispatchEvent(drop);
        }"""
    )
    expect(explorer.page.get_by_role("list", name="Uploads").get_by_role("listitem")).to_have_count(
        0
    )


def test_a_page_that_does_not_know_the_role_shows_the_reason_of_each_refusal(
    opened: Open, keys: Keys
) -> None:
    """As if the server named no role, or the page was loaded before the key's role was lowered."""
    explorer = opened(keys.gateway)
    explorer.expects_failed_calls = True
    explorer.page.route("**/GetServerInfo", lambda call: call.fulfill(json={"version": "0"}))
    explorer.show("documents", "default", tenant=TENANT)
    explorer.use_key(keys.keys[Role.READ])
    page, asked = explorer.page, explorer.page.get_by_role("dialog")
    page.get_by_role("checkbox", name="Select pets").check()
    page.get_by_role("button", name="Delete 1 document").click()
    asked.get_by_role("button", name="Delete").click()
    expect(asked.get_by_role("alert")).to_contain_text("needs the role write")
    asked.get_by_role("button", name="Cancel").click()
    page.get_by_role("tab", name="Collections").click()
    page.get_by_role("button", name="Delete", exact=True).last.click()
    asked.get_by_label("Name to confirm").fill("default")
    asked.get_by_role("button", name="Delete").click()
    expect(asked.get_by_role("alert")).to_contain_text("needs the role admin")
    expect(asked.get_by_role("alert")).to_contain_text("role does not permit this action")


def test_a_selection_keeps_its_text_in_another_language(explorer: Explorer) -> None:
    explorer.show("documents", "many")
    explorer.page.get_by_role("checkbox", name="Select note-00").check()
    expect(explorer.page.get_by_role("button", name="Delete 1 document")).to_be_visible()
    explorer.page.get_by_label("Language").select_option("zh-Hans")
    expect(explorer.page.locator(".list-actions > button")).to_have_text("删除 1 个文档")
