"""An HTML page becomes the text that a browser shows."""

import time

import pytest

from hrag.errors import TooLarge
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
        "<button>x</button>",
        "<button aria-haspopup=menu aria-expanded=false>x</button>",
        "<script type=module>x</script>",
        '<i class="material-icons" aria-hidden="true">x</i>',
        '<span class="pagebreak" role="doc-pagebreak">x</span>',
        "<span class=mw-editsection>[<a href=/e>edit</a>]</span>",
        "<div class=slick-cloned>x</div>",
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


def test_paragraphs_of_an_item_stay():
    body = "<ol><li>a<p>more</p><li>b<ol><li>c</ol><li>d</ol>"
    assert text_of(body) == "1. a\n\nmore\n\n2. b\n  1. c\n3. d"


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
    started = time.process_time()
    as_html(mark * 300_000)
    assert time.process_time() - started < 3


def test_code_with_fences_has_a_longer_fence():
    assert text_of("<pre>\n```\nx\n```\n</pre>") == "````\n```\nx\n```\n````"


def test_deep_nesting_is_read():
    depth = 3_000
    assert text_of("<div><ul><li>" * depth + "deep").strip(" -") == "deep"


def test_too_much_text_is_refused_while_it_is_written():
    with pytest.raises(TooLarge, match="more than 100 bytes of text"):
        parse_html("<p>é".encode() * 60, 100)


def test_headings_nest_by_their_level():
    parsed = parse_html(b"<h1>a</h1><h3> b <em>c</em></h3><h2></h2>", AMPLE_BYTES)
    assert parsed.headings == (Heading("a", 1, 0), Heading("b c", 3, 5))


@pytest.mark.parametrize(
    ("body", "headings"),
    [
        ("<h3><button>How?</button></h3>", [(3, "How?")]),
        ("<h3><a role=button data-toggle=collapse href=#a>How?</a></h3>", [(3, "How?")]),
        ("<h3><div><button><span>How?</span></button></div></h3>", [(3, "How?")]),
        ("<h3>How? <button>Copy link</button></h3>", [(3, "How?")]),
        ("<h3><button>How?</button><button>Copy link</button></h3>", [(3, "How?")]),
        ("<summary><h2>How?</h2></summary>", [(2, "How?")]),
        ("<dl><dt><h4>How?</h4><dd>So.</dl>", [(4, "How?")]),
        ("<div role=heading aria-level=5>How?</div>", [(5, "How?")]),
        ("<div role=heading>How?</div>", [(2, "How?")]),
        ("<div role=heading aria-level=0>How?</div>", [(2, "How?")]),
        ("<div role=heading aria-level=99>How?</div>", [(9, "How?")]),
        ("<h2 role=heading aria-level=4>How?</h2>", [(4, "How?")]),
        ("<h2 role=presentation>How?</h2>", []),
        ("<h1><img alt='Bees Ltd'></h1>", [(1, "Bees Ltd")]),
        ("<h1 aria-label='How?'><span aria-hidden=true>?</span></h1>", [(1, "How?")]),
        ("<h2>10<sup>6</sup> bees</h2>", [(2, "10^6 bees")]),
        ("<h2>a<br>b</h2>", [(2, "a b")]),
    ],
)
def test_a_heading_is_a_heading_whatever_is_inside(body, headings):
    parsed = parse_html(body.encode(), AMPLE_BYTES)
    assert [(heading.depth, heading.title) for heading in parsed.headings] == headings


@pytest.mark.parametrize(
    "panel",
    [
        "<button aria-expanded=false aria-controls=p>How?</button><div id=p hidden>So.</div>",
        "<button class=accordion>How?</button><div>So.</div>",
        (
            "<button data-bs-toggle=collapse data-bs-target=#p>How?</button>"
            '<div id=p style="display:none">So.</div>'
        ),
        "<details><summary>How?</summary>So.</details>",
        "<dl><dt><button>How?</button></dt></dl><div hidden=until-found>So.</div>",
        "<button aria-expanded=false>How?</button><div hidden>So.</div>",
        "<p><b class=accordion>How?</b></p><p>So.</p>",
        "<p role=tab>How?</p><div role=tabpanel hidden>So.</div>",
    ],
)
def test_what_a_click_reveals_is_text(panel):
    assert text_of(panel) == "How?\n\nSo."


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h3><button aria-expanded=false>How?</button></h3> <div hidden>So.</div>", "So."),
        ("<h3><a class=accordion href=#>How?</a></h3><div hidden>So.</div>", "So."),
        ("<h3><button aria-expanded=false>How?</button></h3>Thus.<div hidden>So.</div>", "Thus."),
        (
            "<h3><button aria-expanded=false aria-haspopup=menu>How?</button></h3><p hidden>So.",
            "",
        ),
        ("<h3><button>How?</button></h3><div hidden>So.</div>", ""),
        ("<h3><button aria-expanded=false>How?</button></h3><p>So.<p hidden>No.", "So."),
    ],
)
def test_a_heading_with_a_button_reveals_only_the_element_after_it(page, text):
    assert text_of(page) == f"### How?\n\n{text}".strip()


def test_the_label_of_a_tab_is_above_its_panel():
    tabs = "".join(f"<button role=tab id=t{n} aria-controls=p{n}>{n} OS</button>" for n in "ab")
    panels = "".join(
        f"<div role=tabpanel id=p{n} aria-labelledby=t{n} hidden>run {n}</div>" for n in "ab"
    )
    assert text_of(f"<div role=tablist>{tabs}</div>{panels}") == "a OS\n\nrun a\n\nb OS\n\nrun b"


@pytest.mark.parametrize(
    ("inline", "text"),
    [
        ("a dose of 10<sup>6</sup> cells", "a dose of 10^6 cells"),
        ("costs 30<sup>1</sup>", "costs 30^1"),
        ("Warranty<sup>2</sup> is extra", "Warranty [2] is extra"),
        ("30<sup><a href=#n1>1</a></sup>", "30 [1]"),
        ("Text<sup><a href=#n1>*</a></sup> on", "Text* on"),
        ("Text<a href=#n1>††</a> on", "Text†† on"),
        ("Text<a href=#n1>¶</a> on", "Text on"),
        ("Text<a href=#n1></a> on", "Text on"),
        ("30<a href=#n1><sup>1</sup></a>", "30 [1]"),
        ("text<sup class=reference><a href=#c>[1]</a></sup>", "text [1]"),
        ("Text<a epub:type=noteref href=n.xhtml#a>1</a> on", "Text [1] on"),
        ("Text<a role=doc-noteref href=#a><sup>1</sup></a> on", "Text [1] on"),
        ("x<span style='vertical-align: super'>2</span>", "x^2"),
        ("2<sup>1</sup>/<sub>2</sub> cups", "2 1/2 cups"),
        ("<sup>3</sup>⁄<sub>4</sub> cups", "3⁄4 cups"),
        ("H<sub>2</sub>O", "H2O"),
        ("x<sub>i</sub>y", "x_i y"),
        ("x<sup>2</sup>y", "x^2 y"),
        ("x<sup> </sup>y", "x y"),
        ("<del>old</del> new", "~~old~~ new"),
        ("<s>$5</s>$4", "~~$5~~$4"),
        ("<ins>new</ins>", "new"),
        ("<q>yes</q>", '"yes"'),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>", "漢字(かんじ)"),
        ("<ruby>北京<rt>Běi</rt><rt>jīng</rt></ruby>", "北京(Běi jīng)"),
        ("<ruby>漢<rb>字</rb></ruby>", "漢字"),
        ("<abbr title='World Health Org'>WHO</abbr> <abbr title='World Health Org'>WHO</abbr>",
         "WHO (World Health Org) WHO"),
        ("<abbr title='2026-05-01'>yesterday</abbr>", "yesterday"),
        ("<img alt='Wiring of the pump'> x", "![Wiring of the pump] x"),
        ("<img alt='logo'><img alt='IMG_12345678.jpg'><img alt> x", "x"),
        ("<img alt='😀'> x", "😀 x"),
        ("<svg role=img aria-label='Wiring of a pump'><text>y</text></svg>", "![Wiring of a pump]"),
        ("<i class=sr-only>$19.99</i><b aria-hidden=true>$19<sup>99</sup></b>", "$19.99"),
        ("<b aria-hidden=true>shown</b>", "shown"),
        ("a\u200fb\u202ac\u2066d\u2060e", "abcde"),
        ("long\u200bname", "longname"),
        ("<code>a  b</code>", "a b"),
    ],
)  # fmt: skip
def test_an_inline_element_is_written_in_plain_text(inline, text):
    assert text_of(f"<p>{inline}</p>") == text
    assert text_of(f"<table><tr><th>h<th>i<tr><td>{inline}<td>j</table>").count(text) == 1


def test_a_caption_is_not_repeated_by_its_picture():
    figure = "<figure><img alt='Wiring of the pump'><figcaption>Wiring of the pump, 2026"
    assert text_of(figure) == "Wiring of the pump, 2026"


def test_struck_paragraphs_are_struck_one_by_one():
    assert text_of("<del><p>a</p><p>b</p></del><p>c</p>") == "~~a~~\n\n~~b~~\n\nc"


def test_content_for_browsers_without_scripts_is_read_if_there_is_no_other():
    assert text_of("<noscript><p>a</p></noscript><div id=app></div>") == "a"


@pytest.mark.parametrize("name", ["line-numbers", "gutter", "pagebreak", "blob-num"])
def test_numbers_are_left_out_and_text_with_the_same_name_is_kept(name):
    body = f"<div class={name}>17</div><div class={name}>the text of a page</div>"
    assert text_of(body) == "the text of a page"
    assert text_of(f"<pre class={name}>run the program</pre>").count("run the program") == 1


def test_notes_of_a_page_come_last():
    body = "<p>a</p><aside role=doc-footnote><p>note</p></aside><p>b</p><aside>remark</aside>"
    assert text_of(body) == "a\n\nb\n\nremark\n\nnote"


def test_a_page_that_was_saved_while_a_dialog_was_open_is_read():
    assert text_of("<div aria-hidden=true><p>a</p></div><dialog open>b</dialog>") == "a\n\nb"


@pytest.mark.parametrize("tag", ["sup", "del", "ruby", "q", "abbr title=Abc", "span style=x"])
def test_deeply_nested_inline_elements_take_little_time(tag):
    started = time.process_time()
    text_of(f"<{tag}>a<p>" * 3_000)
    assert time.process_time() - started < 5
