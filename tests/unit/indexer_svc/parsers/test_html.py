"""An HTML page becomes the text that a browser shows."""

import time

import pytest

from hrag.errors import TooLarge, UnreadableDocument
from indexer_svc.parsers.html import as_html, parse_html
from indexer_svc.parsers.parsed_file import Heading
from tests.support.documents.format_files import TITLE, html_page

AMPLE_BYTES = 1 << 20


def text_of(body: str) -> str:
    """Returns the text of a page with this body."""
    return parse_html(f"<body>{body}".encode(), AMPLE_BYTES).text


def test_headings_lists_tables_and_code_are_kept_and_hidden_parts_are_left_out():
    parsed = parse_html(html_page(), AMPLE_BYTES)
    assert parsed.text == (
        "# Dance\n\n"
        "Bees dance to tell where flowers are. It is round.\nSo they say.\n\n"
        "- north\n  - pole\n- south\n\nsea\n\n"
        "## Honey\n\n"
        "Honey ripens in closed cells.\n\n"
        "| Flower | Nectar |\n| --- | --- |\n| Clover | 4 mg |\n| Linden | 7 mg |\n\n"
        "```\ndef bee():\n    return 1\n```"
    )
    assert [heading.title for heading in parsed.headings] == ["Dance", "Honey"]
    assert all(parsed.text[heading.char_start] == "#" for heading in parsed.headings)
    assert parsed.title == TITLE


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title> The \n page </title>", "The page"),
        ("<title></title>", "First"),
        ("<title>Untitled</title>", "First"),
        ("", "First"),
    ],
)
def test_the_title_comes_from_the_head_or_the_first_heading_of_level_1(head, title):
    page = f"{head}<h2>Early</h2><h1>First</h1><h1>Second</h1>"
    assert parse_html(page.encode(), AMPLE_BYTES).title == title


@pytest.mark.parametrize(
    "hidden",
    [
        "<script>x</script>",
        "<style>x</style>",
        "<template><p>x</p></template>",
        "<noscript>x</noscript>",
        "<!-- x -->",
        "<p hidden>x</p>",
        '<div style="DISPLAY : none"><p>x</p></div>',
        '<span style="color:red;visibility:hidden">x</span>',
        "<nav>x</nav>",
        '<div role="navigation">x</div>',
        "<svg><text>x</text></svg>",
        "<textarea>x</textarea>",
        "<select><option>x</select>",
        "<object>x</object>",
        "<dialog>x</dialog>",
        "<table><tr hidden><td>x</table>",
        "<table><tbody hidden><tr><td>x</table>",
        "<table><caption hidden>x</caption></table>",
        "<table><tr><td hidden><table><tr><td>x</table></table>",
        '<h2 id="a">a<a href="#a">¶</a></h2>'.replace("a<", "<", 1),
    ],
)
def test_elements_that_are_not_shown_are_left_out(hidden):
    assert text_of(f"<p>a</p>{hidden}<p>b</p>") == "a\n\nb"


def test_a_paragraph_that_looks_like_a_heading_is_no_heading():
    parsed = parse_html(b"<p># a</p><p>b<br>---</p>", AMPLE_BYTES)
    assert (parsed.text, parsed.headings) == ("# a\n\nb\n---", ())


def test_soft_hyphens_and_break_opportunities_do_not_divide_words():
    assert text_of("<p>honey\u00adcomb honey<wbr>moon</p>") == "honeycomb honeymoon"


def test_ordered_lists_are_numbered_and_their_paragraphs_stay():
    body = "<ol><li>a<p>more</p><li>b<ol><li>c</ol><li>d</ol>"
    assert text_of(body) == "1. a\n\nmore\n\n2. b\n  1. c\n3. d"
    assert text_of("<ol start=5><li>a<li>b</ol><ol start=x><li>c</ol>") == "5. a\n6. b\n1. c"


def test_cells_may_span_several_rows_and_columns():
    body = "<table><tr><th rowspan=2>a<th colspan=2>b<tr><td>c<td>d<tr><td>e<td>f<td>g</table>"
    assert text_of(body) == "| a | b |  |\n| --- | --- | --- |\n| a | c | d |\n| e | f | g |"


def test_no_cell_is_lost_if_other_cells_span_very_many_columns():
    row = "<td colspan=600>x" * 3 + "<td rowspan=2>y" * 5
    text = text_of(f"<table><tr>{row}<tr><td>z</table>")
    assert [text.count(letter) for letter in "xyz"] == [3, 5, 1]


def test_a_table_that_only_arranges_a_page_is_not_a_table_in_the_text():
    body = "<table><tr><td><h1>One</h1><p>a</p><td><table><tr><th>x<th>y<tr><td>1<td>2</table>"
    assert text_of(body) == "# One\n\na\n\n| x | y |\n| --- | --- |\n| 1 | 2 |"


def test_an_empty_element_of_xhtml_has_no_content():
    body = '<h1 id="a"/><p>a<br/>b<a id="c"/></p><script src="x.js"/><nav/><p>c</p>'
    page = f'<?xml version="1.0"?><html><head><title/></head><body>{body}</body></html>'
    assert parse_html(page.encode(), AMPLE_BYTES).text == "a\nb\n\nc"


XHTML = "http://www.w3.org/1999/xhtml"
DTD = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "xhtml1-strict.dtd">'


@pytest.mark.parametrize(
    "start",
    [
        '<?xml version="1.0"?><html>',
        '\n<?xml version="1.0"?><html>',
        f'<!DOCTYPE html><html xmlns="{XHTML}">',
        f"{DTD}<html>",
    ],
    ids=["declaration", "declaration on the second line", "namespace", "document type"],
)
def test_the_start_of_a_page_shows_that_it_is_xhtml(start):
    page = f'{start}<head><title>T</title><script src="a.js"/></head><body><p>a</p></body></html>'
    parsed = parse_html(page.encode(), AMPLE_BYTES)
    assert (parsed.text, parsed.title) == ("a", "T")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p><![CDATA[a < b & <i/> c]]></p><p>d</p>", "a < b & <i/> c\n\nd"),
        ("<pre><![CDATA[a\n  b]]></pre>", "```\na\n  b\n```"),
        ("<p>a<!-- <![CDATA[ --><a/>b<!-- ]]> --></p>", "ab"),
        ("<script>//<![CDATA[\nx('</p>')\n//]]></script><p>a</p>", "a"),
        ("<p>a</p><![CDATA[b", "a\n\nb</body></html>"),
    ],
    ids=["text", "code", "in a comment", "script", "not closed"],
)
def test_a_cdata_section_of_xhtml_is_text(body, text):
    page = f'<?xml version="1.0"?><html><head/><body>{body}</body></html>'
    assert parse_html(page.encode(), AMPLE_BYTES).text == text


@pytest.mark.parametrize("mark", ["<!--", "<![CDATA[", "<a ", "<a/"])
def test_hostile_xhtml_takes_linear_time(mark):
    started = time.perf_counter()
    as_html(mark * 300_000)
    assert time.perf_counter() - started < 3


def test_code_with_fences_has_a_longer_fence():
    assert text_of("<pre>\n```\nx\n```\n</pre>") == "````\n```\nx\n```\n````"


def test_deep_nesting_is_read():
    depth = 3_000
    assert text_of("<div><ul><li>" * depth + "deep").strip(" -") == "deep"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<p>Käse 猫".encode(), "Käse 猫"),
        ("\ufeff<p>Käse".encode(), "Käse"),
        ("<p>Käse".encode("utf-16"), "Käse"),
        ('<meta charset="iso-8859-1"><p>Käse “x”'.encode("cp1252"), "Käse “x”"),
        ("<meta http-equiv=x content='text/html; charset=Shift_JIS'>猫".encode("shift_jis"), "猫"),
        ("<?xml version='1.0' encoding='koi8-r'?><p>мёд".encode("koi8-r"), "мёд"),
        (b"<meta charset=gb2312><p>\xc3\xa8\xff", "猫\ufffd"),
        (b"<meta charset=utf-8><p>caf\xe9", "caf\ufffd"),
        (b"\xef\xbb\xbf<p>caf\xe9", "caf\ufffd"),
    ],
    ids=[
        *("utf-8", "mark", "utf-16", "latin", "japanese", "xml", "damaged", "damaged utf-8"),
        "damaged after a mark",
    ],
)
def test_characters_are_decoded_as_utf8_or_as_the_page_declares(content, text):
    assert parse_html(content, AMPLE_BYTES).text == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<p>caf\xe9", "byte 0xE9 at offset 6, and the page declares no encoding"),
        # A pattern that tries every division of the spaces for each tag would take ten seconds.
        (b"<meta " * 80 + b"charset=" + b" " * 4000 + b"\xe9", "declares no encoding"),
        (b"<meta charset=klingon>\xe9", "declares the unknown encoding klingon"),
        (b"<p>\0", "NUL byte at offset 3"),
        (b"\x89PNG\r\n\x1a\n\0", "NUL byte"),
    ],
)
def test_bytes_that_cannot_be_decoded_are_refused(content, message):
    with pytest.raises(UnreadableDocument, match=message):
        parse_html(content, AMPLE_BYTES)


def test_too_much_text_is_refused_while_it_is_written():
    with pytest.raises(TooLarge, match="more than 100 bytes of text"):
        parse_html("<p>é".encode() * 60, 100)


def test_headings_nest_by_their_level():
    parsed = parse_html(b"<h1>a</h1><h3> b <em>c</em></h3><h2></h2>", AMPLE_BYTES)
    assert parsed.headings == (Heading("a", 1, 0), Heading("b c", 3, 5))
