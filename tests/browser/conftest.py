"""Fixtures that open the explorer in Chromium, with a real gateway and real services.

`opened` fails a test whose page writes an error to the console or sends a request to another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import site
from tests.browser.explorer import TIMEOUT_MS, Explorer
from tests.support.chromium import running_chromium
from tests.support.servers.gateways import Gateway, gateway_to
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import FAST, Running, running
from tests.support.until import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@dataclass(frozen=True)
class Served:
    """Services that store the documents of `site.py`, their chat endpoint and their gateway."""

    running: Running
    chat: OpenAIServer
    gateway: Gateway


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("explorer")
    with OpenAIServer() as chat:
        settings = FAST | {
            "HRAG_CHAT_MODEL": "test-model",
            "HRAG_CHAT_BASE_URL": chat.base_url,
            "HRAG_CHAT_API_KEY": "sk-test",
            "HRAG_CHAT_REASONING_TAGS": "both",
        }
        with (
            running(folder / "store", settings) as services,
            gateway_to(services.indexer.address, services.retriever.address) as gateway,
        ):
            site.fill(services.client)
            until(lambda: not _unsummarised(services))
            yield Served(services, chat, gateway)


def _unsummarised(services: Running) -> int:
    return services.client.index_status(site.TENANT, collection=site.GUIDE).unsummarised_documents


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with running_chromium() as started:
        yield started


Open = Callable[..., Explorer]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """A function that opens an explorer of a gateway, with options of the browser's context.

    After the test, the fixture fails if a page has written an error to the console or sent a
    request to another host. A test that provokes failed calls sets `expects_failed_calls`.
    """
    with _explorers(browser) as open_explorer:
        yield open_explorer


@contextmanager
def _explorers(browser: Browser) -> Iterator[Open]:
    explorers: list[Explorer] = []

    def open_explorer(gateway: Gateway, **context: Any) -> Explorer:
        options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **context}
        # Without motion, colours and places are final at once.
        new_context = browser.new_context(reduced_motion="reduce", **options)
        new_context.set_default_timeout(TIMEOUT_MS)
        explorers.append(Explorer(new_context.new_page(), gateway.url))
        return explorers[-1]

    yield open_explorer
    for explorer in explorers:
        explorer.page.context.close()
        explorer.assert_clean()


@pytest.fixture
def explorer(opened: Open, served: Served) -> Explorer:
    """An explorer of the gateway of `served`. It has not loaded the page yet."""
    return opened(served.gateway)
