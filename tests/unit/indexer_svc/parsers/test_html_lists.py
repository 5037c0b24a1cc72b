"""Items of lists in HTML pages have the markers that a browser shows."""

import pytest

from indexer_svc.parsers.html import parse_html


def text_of(body: str) -> str:
    """Returns the text of a page with this body."""
    return parse_html(f"<body>{body}".encode(), 1 << 20).text


@pytest.mark.parametrize(
    ("start", "items", "text"),
    [
        ("<ol>", "<li>x<li>y", "1. x\n2. y"),
        ("<ol start=5>", "<li>x<li>y", "5. x\n6. y"),
        ("<ol start=-1>", "<li>x<li>y", "-1. x\n0. y"),
        ("<ol start=no>", "<li>x", "1. x"),
        ("<ol>", "<li value=7>x<li>y", "7. x\n8. y"),
        ("<ol>", "<li>x<li value=bad>y", "1. x\n2. y"),
        ("<ol reversed>", "<li>x<li>y", "2. x\n1. y"),
        ("<ol reversed start=9>", "<li>x<li>y", "9. x\n8. y"),
        ("<ol reversed>", "<li>x<li value=7>y<li>z", "3. x\n7. y\n6. z"),
        ("<ol type=a>", "<li>x<li>y", "a. x\nb. y"),
        ("<ol type=A start=27>", "<li>x", "AA. x"),
        ("<ol type=i start=4>", "<li>x", "iv. x"),
        ("<ol type=I>", "<li>x<li type=1>y", "I. x\n2. y"),
        ('<ol style="list-style-type: lower-alpha">', "<li>x", "a. x"),
        ('<ol style="list-style: upper-roman inside">', "<li>x", "I. x"),
        ('<ol style="list-style-type:none">', "<li>x", "- x"),
        ("<ul>", "<li>x<li>y", "- x\n- y"),
        ("<ul>", "<li value=3>x", "- x"),
        ('<ul style="list-style-type: decimal">', "<li>x<li>y", "1. x\n2. y"),
        ('<ul style="list-style: lower-alpha">', "<li>x", "a. x"),
        ('<ul style="list-style: square">', "<li>x", "- x"),
        ('<ol style="list-style-type: disc">', "<li>x", "- x"),
        ('<ol style="list-style-type: decimal-leading-zero">', "<li>x", "1. x"),
        ("<menu>", "<li>x", "- x"),
        ("<ul>", '<li><input type="checkbox" disabled checked> x', "- [x] x"),
        ("<ul>", '<li><input type="checkbox" disabled> x', "- [ ] x"),
        ("<ul>", '<li><input type="checkbox"> x', "- x"),
    ],
)
def test_an_item_has_the_marker_that_a_browser_shows(start, items, text):
    assert text_of(start + items) == text


def test_a_heading_in_an_item_keeps_the_number():
    parsed = parse_html(b"<ol start=2><li><h3>Fill</h3>Slowly.</ol><ul><li><h3>a</h3>", 1 << 20)
    assert parsed.text == "### 2. Fill\n\nSlowly.\n\n### a"


def test_terms_are_above_their_definitions():
    body = "<dl><dt>API<dd>Interface<dt>a<dt>b<dd><p>One</p><p>Two</p><dt>c<dd><ul><li>x</ul></dl>"
    assert text_of(body) == "API\n: Interface\n\na\nb\n: One\n\nTwo\n\nc\n\n- x"
    assert text_of("<dl><dt>alone</dl><p>after") == "alone\n\nafter"
    assert text_of("<dl><div><dt>a</dt><dd>b</dd></div></dl>") == "a\n: b"
