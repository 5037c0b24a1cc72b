"""Parts of a web page that surround its content are left out, and the content never is."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.html import parse_html

AMPLE_BYTES = 1 << 20
PROSE = (
    "Bees dance to tell the other bees of their hive where flowers are. The angle of the dance is "
    "the angle between the sun and the flowers, and its length says how far away they are."
)
MENU = "<ul><li><a href=/>Home</a><li><a href=/shop>Shop</a><li><a href=/about>About us</a></ul>"
NOTICE = "<p>We use cookies on this site.</p><button>Accept</button><a href=/privacy>Privacy</a>"


def text_of(body: str, *, keep_boilerplate: bool = False) -> str:
    """Returns the text of a page with this body."""
    page = f"<!doctype html><html><body>{body}</body></html>".encode()
    return parse_html(page, AMPLE_BYTES, keep_boilerplate=keep_boilerplate).text


BOILERPLATE = [
    f"<nav>{MENU}</nav>",
    f"<header><a href=/>Bees Ltd</a>{MENU}</header>",
    f"<header role=banner>{MENU}</header>",
    f"<footer><p>© 2026 Bees Ltd</p>{MENU}</footer>",
    "<div role=contentinfo>© 2026 Bees Ltd</div>",
    "<div role=search><label>Search the site</label></div>",
    f"<div id=cookie-banner>{NOTICE}</div>",
    f"<div class='cookieConsent'>{NOTICE}</div>",
    f"<div id=onetrust-consent-sdk>{NOTICE}</div>",
    f"<div role=dialog aria-label='Cookie notice'>{NOTICE}</div>",
    f"<div class=sidebar><p>More</p>{MENU}</div>",
    "<div class='breadcrumbs'><a href=/>Home</a> &gt; <a href=/b>Bees</a></div>",
    "<div class=newsletter><p>Subscribe to our newsletter.</p></div>",
    f"<div class=share-buttons>{MENU}</div>",
    f"<div>{MENU}</div>",
    "<a class=skip href=#main>Skip to main content</a>",
    "<div class=pagination><a href=1>1</a> <a href=2>2</a></div>",
    "<ul><li><a href=#a>Dance</a><li><a href=#b>Honey</a><li><a href=#c>Wax</a></ul>",
    "<div class=tableOfContents><ul><li><a href=#a>Dance</a></ul></div>",
    "<div class=share><p>Tell your friends.</p><button>Copy the link</button></div>",
]
CONTENTS = [
    f"<main><h1>Dance</h1><p>{PROSE}</p></main>",
    f"<div role=main><h1>Dance</h1><p>{PROSE}</p></div>",
    f"<article><h1>Dance</h1><p>{PROSE}</p></article>",
    f"<div id=content><h1>Dance</h1><p>{PROSE}</p></div>",
    f"<h1>Dance</h1><p>{PROSE}</p>",
]


@pytest.mark.parametrize("content", CONTENTS, ids=["main", "role", "article", "div", "none"])
@pytest.mark.parametrize("boilerplate", BOILERPLATE)
@pytest.mark.parametrize("is_first", [True, False])
def test_boilerplate_is_left_out_before_and_after_any_content(boilerplate, content, is_first):
    body = boilerplate + content if is_first else content + boilerplate
    assert text_of(body) == f"# Dance\n\n{PROSE}"


@pytest.mark.parametrize("boilerplate", BOILERPLATE)
def test_boilerplate_is_kept_if_the_caller_wants_it(boilerplate):
    kept = text_of(boilerplate + CONTENTS[0], keep_boilerplate=True)
    assert kept.endswith(f"# Dance\n\n{PROSE}")
    assert len(kept) > len(f"# Dance\n\n{PROSE}")


def test_the_report_says_what_was_left_out():
    page = f"<nav>{MENU}<script>x</script></nav>{CONTENTS[0]}<footer>© 2026</footer>".encode()
    (left_out,) = parse_html(page, AMPLE_BYTES).report.left_out
    assert left_out == (LeftOutKind.BOILERPLATE, 2, "Home Shop About us")
    assert parse_html(page, AMPLE_BYTES, keep_boilerplate=True).report.left_out == ()


@pytest.mark.parametrize(
    "body",
    [
        f"<nav><h1>Dance</h1><p>{PROSE}</p></nav>",
        f"<footer><p>{PROSE}</p></footer>",
        f"<header><p>{PROSE}</p></header>",
        f"<div class=sidebar><p>{PROSE}</p></div>",
        f"<p>{PROSE}</p><div class=sidebar><p>{PROSE}</p></div>",
        f"<p>{PROSE}</p><div class=popup><h1>One</h1><p>{PROSE}</p></div>",
        f"<article><header><p>{PROSE}</p></header></article><article><p>b</p></article>",
        f"<article><p>{PROSE}</p><footer><p>{PROSE}</p></footer></article>",
        f"<main><p>Short.</p></main><div><p>{PROSE}</p><p>{PROSE}</p></div>",
        f"<p>{PROSE}</p><section id=cookie-banner><h2>Cookies</h2><p>{PROSE}</p></section>",
        f"<p>{PROSE}</p><section id=login><h2>Login</h2><p>{PROSE}</p></section>",
        f"<h2 class=navigation>Navigation</h2><p>{PROSE}</p>",
        f"<p>{PROSE}</p><div class=menu-item><h3>Soup</h3><p>With carrots, 5 euro</p></div>",
        f"<p>{PROSE}</p><div class=share-price><p>A share costs 5 euro.</p></div>",
        f"<p>{PROSE}</p><div class=social-history><p>A bee lives with others.</p></div>",
        f"<p>{PROSE}</p><div class=sponsor><h3>Sponsor</h3><p>Bees Ltd</p></div>",
        f"<p>{PROSE}</p><div class=related-work><p>Bees, 2024.</p></div>",
        f"<p>{PROSE}</p><div class=table-footer><p>Prices of May.</p></div>",
        f"<p>{PROSE}</p><div class=footnotes><p>Prices of May.</p></div>",
    ],
)
def test_prose_is_never_lost(body):
    text, everything = text_of(body), text_of(body, keep_boilerplate=True)
    assert text == everything
    assert text.count(PROSE) == body.count(PROSE)


@pytest.mark.parametrize(
    "body",
    [
        f"<nav>{MENU}</nav>",
        f"<div>{MENU}</div>",
        f"<main>{MENU}</main>",
        f"<h1>Contents</h1>{MENU}{MENU}",
        f"<h1>All my bookmarks</h1>{MENU}",
        f"<h1>All my bookmarks</h1><h2>Bees</h2>{MENU}<h2>Wasps</h2>{MENU}",
        f"<h1>Every page of this site</h1><nav>{MENU}</nav>",
        "<footer>© 2026 Bees Ltd</footer>",
        f"<div id=cookie-banner>{NOTICE}</div>",
    ],
)
def test_a_page_of_nothing_else_is_kept(body):
    assert text_of(body) == text_of(body, keep_boilerplate=True) != ""


def test_a_title_outside_of_the_content_is_kept():
    body = f"<header><h1>Dance</h1>{MENU}</header><main><p>{PROSE}</p></main>"
    assert text_of(body) == f"# Dance\n\n{PROSE}"
    body = f"<h1><a href=/>Bees Ltd</a></h1><main><h1>Dance</h1><p>{PROSE}</p></main>"
    assert text_of(body) == f"# Dance\n\n{PROSE}"


def test_a_list_of_links_in_the_content_is_content():
    body = f"<main><h1>Dance</h1><p>{PROSE}</p><h2>See also</h2>{MENU}</main>"
    assert text_of(body).endswith("## See also\n\n- Home\n- Shop\n- About us")


def test_a_short_page_keeps_its_content():
    body = f"<nav>{MENU}</nav><p>Use the link on the sign-in page.</p><footer>© 2026 Bees</footer>"
    assert text_of(body) == "Use the link on the sign-in page."


TAGS = st.sampled_from(
    ["nav", "header", "footer", "main", "article", "section", "aside", "div", "p", "ul", "li"]
)
CLASSES = st.sampled_from(["", "sidebar", "cookie-banner", "content", "menu", "ad", "related"])


@st.composite
def pages(draw: st.DrawFn) -> str:
    """Draws bodies of nested elements with words and links."""
    body = ""
    for _ in range(draw(st.integers(1, 12))):
        tag = draw(TAGS)
        word = draw(st.sampled_from(["", "word", PROSE]))
        inner = f"<a href=/>{word}</a>" if draw(st.booleans()) else word
        element = f'<{tag} class="{draw(CLASSES)}">{inner}'
        body += element if draw(st.booleans()) else f"{element}</{tag}>"
    return body


def lines_of(text: str) -> set[str]:
    """Returns the lines of a text without markers of lists.

    If the first text of a list item is left out, the next text of the item gets its marker.
    """
    return {re.sub(r"^(?: *- )*", "", line) for line in text.split("\n")}


@settings(max_examples=40)
@given(pages())
@example(f"<li><nav>word</nav><nav>{PROSE}</nav></li>")
def test_something_is_always_left_of_a_page_and_nothing_is_new(body):
    text, everything = text_of(body), text_of(body, keep_boilerplate=True)
    assert bool(text) == bool(everything)
    assert lines_of(text) <= lines_of(everything)
