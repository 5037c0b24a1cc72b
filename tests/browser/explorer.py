"""Drives the explorer's page for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from tests.browser.site import GUIDE, TENANT
from tests.support.until import until

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Route

# Much more than a page needs, because the machine may stand still for some seconds.
TIMEOUT_MS = 60_000
# Chromium writes this to the console when a call fails, also if the page handles the error.
_FAILED_CALL = "Failed to load resource"
# The next call of `method` gets a reply with `status` whose body breaks off.
_BREAK_OFF_SCRIPT = """([method, status]) => {
  const { fetch } = window;
  window.fetch = async (address, options) => {
    if (!address.endsWith(method)) return fetch(address, options);
    window.fetch = fetch;
    const cut = (stream) => stream.error(new TypeError("network error"));
    return new Response(new ReadableStream({ start: cut }), { status });
  };
}"""


def expect(shown: Locator) -> Any:
    """Returns Playwright's assertions on `shown`. Each assertion waits until it is true."""
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(TIMEOUT_MS)
    return playwright_expect(shown)


def _address_fragment(view: str, collection: str, fields: dict[str, str]) -> str:
    path = [fields.pop("tenant", TENANT), collection, view, fields.pop("doc", "")]
    return f"/{'/'.join(quote(part, safe='') for part in path)}?{urlencode(fields)}"


class Explorer:
    """A page, with the errors that it wrote to the console and the hosts of its requests."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.expects_failed_calls = False
        self._problems: list[str] = []
        self._hosts: set[str] = set()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._problems.append(str(error)))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._problems.append(message.text)

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme != "data":
            self._hosts.add(address.netloc)

    def assert_clean(self) -> None:
        """Fails if the page wrote an error to the console or sent a request to another host."""
        calls = [problem for problem in self._problems if problem.startswith(_FAILED_CALL)]
        assert bool(calls) <= self.expects_failed_calls, calls
        assert [problem for problem in self._problems if problem not in calls] == []
        assert self._hosts <= {urlsplit(self.url).netloc}

    def show(self, view: str = "search", collection: str = GUIDE, **fields: str) -> None:
        """Loads the page with an address that contains view, collection and further fields."""
        self.open(f"{self.url}/#{_address_fragment(view, collection, fields)}")

    def open(self, address: str) -> None:
        """Loads the page with this address, and waits until it shows a view.

        Before that, the page reads the collections of the tenant. Then it shows what its address
        names, whatever was entered meanwhile.
        """
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.locator("[role=tabpanel]:not([hidden])").wait_for()

    def break_off(self, method: str, status: int = 200) -> None:
        """Makes the first reply of `method` break off in its body, whenever the page is loaded."""
        self.page.add_init_script(f"({_BREAK_OFF_SCRIPT})({json.dumps([method, status])})")

    def stop_next_call(self, method: str) -> Callable[[], None]:
        """Stops the next call of `method` before it is sent.

        Returns a function that sends the call and waits for its reply.
        """
        stopped: list[Route] = []

        def stop(call: Route) -> None:
            if stopped:
                call.fallback()
            else:
                stopped.append(call)

        def send_stopped_call() -> None:
            until(lambda: self.page.wait_for_timeout(10) or stopped)
            request = stopped[0].request
            with self.page.expect_event("requestfinished", lambda ended: ended == request):
                stopped[0].continue_()
            # After the next frame, the page has handled the reply.
            self.page.evaluate("() => new Promise(requestAnimationFrame)")

        self.page.route(f"**/{method}", stop)
        return send_stopped_call

    @contextmanager
    def collections_read_again(self) -> Iterator[None]:
        """Waits after the block until the page has read the collections of the tenant again.

        Another key and each upload cause this. After another key, the page ends the search that
        runs and removes the results that it shows.
        """
        choices = self.page.locator(".scope-bar select")
        # The page replaces all choices when it has read the collections.
        choices.evaluate("(select) => select.append(document.createElement('hr'))")
        yield
        expect(choices.locator("hr")).to_have_count(0)

    def use_key(self, key: str) -> None:
        """Sets the API key, and waits until the page has used it to read the collections."""
        self.page.get_by_role("button", name="API key").click()
        self.page.get_by_label("API key or token").fill(key)
        with self.collections_read_again():
            self.page.get_by_role("button", name="Use this key").click()

    def wait_until_loaded(self) -> None:
        """Waits until no part of the page waits for a reply."""
        expect(self.page.locator(".loading")).to_have_count(0)

    def change_address(self, view: str = "search", collection: str = GUIDE, **fields: str) -> None:
        """Changes the address of the loaded page, as a link in the page does."""
        fragment = _address_fragment(view, collection, fields)
        self.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)

    def search(self, text: str) -> Locator:
        """Searches with the settings on the page; returns the passages of setting A."""
        self.page.get_by_role("searchbox", name="Query").fill(text)
        self.page.get_by_role("button", name="Search", exact=True).click()
        return self.passages()

    def passages(self, setting: str = "A") -> Locator:
        return self.region(f"Results of setting {setting}").get_by_role("article")

    def region(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True)

    def panel(self, name: str) -> Locator:
        return self.page.get_by_role("tabpanel", name=name)

    def setting(self, name: str) -> Locator:
        return self.page.get_by_role("group", name=f"Setting {name}", exact=True)

    def tree_item(self, chunk: str) -> Locator:
        """Returns the item of a chunk, for example of `0.2`, without its descendants."""
        return self.page.get_by_role("tree").locator(f"[data-chunk$='#{chunk}']")

    def marked(self, kind: str, within: Locator | None = None) -> str:
        """Returns the text that has a mark of this kind, joined from all marks in `within`."""
        container = within or self.page.locator("main")
        return "".join(container.locator(f"mark.mark-{kind}").all_text_contents())

    @property
    def focused(self) -> Locator:
        return self.page.locator(":focus")
