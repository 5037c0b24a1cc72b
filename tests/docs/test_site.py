"""The built site is complete, loads nothing from other hosts, and has no broken link."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.docs

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
# A page loads the files that these attributes of these elements name.
_LOADING_ATTRIBUTES = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
}
_REMOTE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"]?)(?:https?:)?//")

_NO_PROSE = ("code", "pre", "script", "style")
# The text of a page contains these marks if Markdown was not converted to HTML. That happens
# because the Markdown dialects of Git hosts and of the site differ.
_MARKS = re.compile(r"\]\(|\*\*|```|^ *[-*|] |^ *:::", re.MULTILINE)


class _Page(HTMLParser):
    """The parsed HTML of a page: the files that it loads, its links, its anchors and its prose."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.prose: list[str] = []
        # This is the count of open elements whose text is not prose.
        self._open_without_prose = 0
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors.add(attributes.get("id", ""))
        self._open_without_prose += tag in _NO_PROSE
        if attributes.get(_LOADING_ATTRIBUTES.get(tag, ""), ""):
            self.loaded.append(attributes[_LOADING_ATTRIBUTES[tag]])
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])

    def handle_endtag(self, tag: str) -> None:
        self._open_without_prose -= tag in _NO_PROSE

    def handle_data(self, data: str) -> None:
        if not self._open_without_prose:
            self.prose.append(data)


@cache
def _page(path: Path) -> _Page:
    return _Page(path)


@pytest.fixture(scope="module")
def paths() -> list[Path]:
    pages = sorted(SITE.rglob("*.html"))
    assert pages, "there is no site: `make docs` builds it"
    return pages


def _is_remote(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def test_pages_load_nothing_from_other_hosts(paths: list[Path]) -> None:
    remote = {path.name: [*filter(_is_remote, _page(path).loaded)] for path in paths}
    assert {name: loaded for name, loaded in remote.items() if loaded} == {}


def test_styles_load_nothing_from_other_hosts(paths: list[Path]) -> None:
    styles = [*SITE.rglob("*.css"), *paths]
    assert [path for path in styles if _REMOTE.search(path.read_text("utf-8"))] == []


def _broken(path: Path) -> Iterator[str]:
    page = _page(path)
    for link in [*page.links, *page.loaded]:
        if urlsplit(link).scheme or _is_remote(link):
            continue
        file_link, _, anchor = unquote(link).partition("#")
        target = (path.parent / file_link).resolve() if file_link else path
        target = target / "index.html" if target.is_dir() else target
        # The anchor of an image names the theme that shows it.
        is_page = target.suffix == ".html"
        if not target.is_file() or (anchor and is_page and anchor not in _page(target).anchors):
            yield link


def test_every_link_has_a_target(paths: list[Path]) -> None:
    # The links of 404.html begin at the root of the host.
    inner = [path for path in paths if path.name != "404.html"]
    broken = {str(path.relative_to(SITE)): [*_broken(path)] for path in inner}
    assert {name: links for name, links in broken.items() if links} == {}


@pytest.mark.parametrize(
    ("page", "anchor"),
    [
        ("reference/grpc/retriever.html", "SearchRequest.limit"),
        ("reference/grpc/types.html", "SummaryUnit.SUMMARY_UNIT_PAGE"),
        ("reference/settings.html", "hrag_data_dir"),
        ("reference/python/client.html", "hrag.client.Client.search"),
        ("reference/python/client.html", "hrag.client.Client.ingest"),
        ("reference/python/types.html", "hrag.types.SearchMode.CONTEXT"),
        ("reference/python/errors.html", "hrag.errors.TooLarge"),
        ("index.html", "filters"),
        ("examples/search_modes.ipynb.html", "modes"),
    ],
)
def test_the_reference_has_an_anchor_for_each_name(page: str, anchor: str) -> None:
    assert anchor in _page(SITE / page).anchors


def test_all_markdown_is_converted_to_html(paths: list[Path]) -> None:
    unconverted = {
        f"{path.relative_to(SITE)}: {text.strip()[:80]}"
        for path in paths
        for text in _page(path).prose
        if _MARKS.search(text)
    }
    assert unconverted == set()
