"""XML becomes lines with paths, and no entity is expanded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.document_limits import MAX_DATA_DEPTH, MAX_XML_NODES
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.xml_text import parse_xml

AMPLE_BYTES = 1 << 20


def parsed(text: str | bytes) -> ParsedFile:
    return parse_xml(text.encode() if isinstance(text, str) else text, AMPLE_BYTES)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<a>word</a>", "a: word"),
        ("<a><b>x</b><c/></a>", "a.b: x\na.c:"),
        ('<a id="7">word</a>', "a@id: 7\na: word"),
        ('<a><b id="7"/></a>', "# a.b\n\na.b@id: 7"),
        ("<a><b>x</b><b>y</b></a>", "a.b: x, y"),
        ("<a><b>x</b><c>z</c><b>y</b></a>", "a.b[0]: x\na.c: z\na.b[1]: y"),
        ("<a>\n  <b>x</b>\n</a>", "a.b: x"),
        ("<a>H<sub>2</sub>O is <b>wet</b>.</a>", "a: H2O is wet."),
        ("<a>one<br/>two</a>", "a:\none\ntwo"),
        ("<a>wrapped\n   text</a>", "a: wrapped text"),
        ("<a>one\n\n  two</a>", "a:\none\n\ntwo"),
        ("<a><code>x\n  y</code></a>", "a.code:\nx\n  y"),
        ('<a xml:space="preserve">x\n  y</a>', "a@xml:space: preserve\n\na:\nx\n  y"),
        ("<a><![CDATA[x < y & z]]></a>", "a: x < y & z"),
        ("<a><!-- hidden -->x<?hidden y?></a>", "a: x"),
        ('<d:a xmlns:d="urn:x" xmlns="urn:y"><d:b>x</d:b></d:a>', "d:a.d:b: x"),
        ("\ufeff \n<?xml version='1.0' encoding='latin-1'?><a>é</a>".strip(), "a: é"),
    ],
)
def test_elements_and_attributes_become_lines_with_their_path(text, shown):
    assert parsed(text).text == shown


def test_equal_elements_are_a_table():
    rows = "".join(f'<r id="{n}"><v>x{n}</v></r>' for n in range(2))
    file = parsed(f"<t><rows>{rows}</rows></t>")
    assert file.text.endswith("| @id | v |\n| --- | --- |\n| 0 | x0 |\n| 1 | x1 |")
    assert file.report.table_count == 1


def test_titles_of_elements_are_sections_and_the_first_is_the_title():
    file = parsed(
        "<article><title>Bees</title><sec><title>Dance</title><p>x</p>"
        "<sec><title>Round</title><p>y</p></sec></sec></article>"
    )
    assert [(head.title, head.depth) for head in file.headings] == [("Dance", 1), ("Round", 2)]
    assert file.title == "Bees"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!DOCTYPE a><a>x</a>", "a: x"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a>x</a>', "a: x"),
        ('<!DOCTYPE a [<!ENTITY e "boo">]><a b="&e;">&e;</a>', "a@b: &e;\na: &e;"),
        ('<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>', "a: &e;"),
        ('<!DOCTYPE a [<!ENTITY % p "x"> %p; ]><a>x</a>', "a: x"),
        ("<!DOCTYPE a [<!-- ]> ' -->]><a>x</a>", "a: x"),
        ("<!DOCTYPE a [<?p ]> ?>]><a>x</a>", "a: x"),
        ("<a>&eacute;&nbsp;&amp;&lt;&#233;&#xE9;</a>", "a: é &<éé"),
        ("<a>&unknown; R&D</a>", "a: &unknown; R&D"),
        ("<a><![CDATA[&e;]]><!-- &e; --></a>", "a: &e;"),
    ],
)
def test_entities_are_not_expanded_and_nothing_is_loaded(text, shown):
    assert parsed(text).text == shown


def test_entities_inside_entities_stay_small():
    names = "abcdefghij"
    laughs = "".join(
        f'<!ENTITY {name} "{f"&{inner};" * 10}">'
        for name, inner in zip(names[1:], names, strict=False)
    )
    file = parsed(f'<!DOCTYPE x [<!ENTITY a "lol">{laughs}]><x y="&j;">&j;</x>')
    assert file.text == "x@y: &j;\nx: &j;"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not XML"),
        ("word", "not XML"),
        ("<a><b></a>", "mismatched tag: line 1"),
        ("<a>", "no element found|unclosed"),
        ("<!DOCTYPE a [", "has no end"),
        ("<!DOCTYPE a [<!ENTITY b 'c>]><a/>", "has no end"),
        ("<a>&#0;</a>", "not XML"),
        ("<a>" * (MAX_DATA_DEPTH + 1), "deeper than"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text, message):
    with pytest.raises(UnreadableDocument, match=message):
        parsed(text)


def test_too_many_elements_are_refused():
    with pytest.raises(TooLarge, match="elements") as refused:
        parsed("<a>" + "<b/>" * MAX_XML_NODES + "</a>")
    assert refused.value.limit == "xml_nodes"


@pytest.mark.parametrize(
    "text",
    [
        "<!DOCTYPE [<!--" * 50_000,
        "<!DOCTYPE '" * 50_000,
        "<![CDATA[" * 100_000,
        "<a>" + "<!--" * 100_000,
    ],
    ids=["doctypes", "quotes", "cdata", "comments"],
)
def test_markup_that_is_not_closed_takes_linear_time(text):
    with pytest.raises(UnreadableDocument):
        parsed(text)


WORDS = st.text("abcdefg", min_size=1, max_size=6)
ELEMENTS = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda parts: "".join(f"<{'xyz'[at]}>{part}</{'xyz'[at]}>" for at, part in enumerate(parts))
    ),
    max_leaves=15,
)


@given(ELEMENTS)
def test_every_word_is_in_the_text_in_order(inner):
    words = inner.replace(">", "< ").split("<")
    expected = [word.strip() for word in words if word.startswith(" ") and word.strip()]
    text = parsed(f"<root>{inner}</root>").text
    shown = [line.rpartition(": ")[2] for line in text.splitlines() if ": " in line]
    assert shown == (expected or [inner])
