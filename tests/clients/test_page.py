"""The example in TypeScript runs in a page, whose origin is not that of the gateway.

The page is the folder `build` of the example, on a port of its own. The services require keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import FOUND, QUESTION, Secured
from tests.support.chromium import running_chromium
from tests.support.servers.gateways import gateway_to

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Writes nothing for a request."""


@pytest.fixture(scope="module")
def origin(typescript: Path) -> Iterator[str]:
    """The origin of a web server that serves the page."""
    handler = partial(_Files, directory=str(typescript / "build"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as started:
        yield started


Ask = Callable[[str, str], tuple[list[str], list[str]]]


@pytest.fixture
def asking(origin: str, browser: Browser, secured: Secured) -> Callable[..., Ask]:
    """Returns a context manager: a page and a gateway that allows the origins in `origins`.

    Its value is a function of a key and a question, which returns the lines that the page shows
    and the errors in the console.
    """

    @contextmanager
    def asking(origins: str) -> Iterator[Ask]:
        addresses = (secured.services.indexer, secured.services.retriever)
        settings = {"HRAG_CA_FILE": secured.ca_file}
        if origins:
            settings["HRAG_HTTP_ORIGINS"] = origins
        with gateway_to(*addresses, **settings) as gateway:
            page = browser.new_page()
            errors: list[str] = []
            page.on("console", lambda message: errors.append(message.text))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{origin}/index.html")

            def ask(key: str, question: str) -> tuple[list[str], list[str]]:
                page.get_by_label("Gateway").fill(gateway.url)
                page.get_by_label("Key").fill(key)
                page.get_by_label("Question").fill(question)
                page.evaluate("document.querySelector('ol').replaceChildren()")
                page.get_by_role("button", name="Search").click()
                page.get_by_role("listitem").first.wait_for()
                return page.get_by_role("listitem").all_text_contents(), errors

            yield ask
            page.close()

    return asking


def test_a_page_of_an_allowed_origin_stores_a_document_and_finds_it(
    asking: Callable[..., Ask], origin: str, secured: Secured
) -> None:
    with asking(origin) as ask:
        lines, errors = ask(secured.token, QUESTION)
    assert lines[0].endswith(FOUND)
    assert errors == []


def test_a_page_shows_why_a_call_was_refused(
    asking: Callable[..., Ask], origin: str, secured: Secured
) -> None:
    """The errors of the services reach the page, with their code and their words."""
    with asking(origin) as ask:
        (no_key,), _ = ask("", QUESTION)
        (no_text,), _ = ask(secured.token, " ")
    assert no_key.startswith("ConnectError: [unauthenticated] ")
    assert no_text.startswith("ConnectError: [invalid_argument] text")


@pytest.mark.parametrize("origins", ["", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_can_call_nothing(
    asking: Callable[..., Ask], secured: Secured, origins: str
) -> None:
    with asking(origins) as ask:
        (line,), errors = ask(secured.token, QUESTION)
    assert line == "ConnectError: [unknown] Failed to fetch"
    assert "has been blocked by CORS policy" in errors[0]
