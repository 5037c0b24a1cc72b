"""An EPUB becomes the text of its chapters in reading order, with their headings as sections."""

import pytest

from hrag.errors import UnreadableDocument
from hrag.values.formats import EPUB
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import DANCE, HONEY, TITLE, epub_file

AMPLE_BYTES = 1 << 20
NCX = (
    '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>Sweet'
    '</text></navLabel><content src="text/two.xhtml"/></navPoint></navMap></ncx>'
)
DOCTYPE = (
    '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" '
    '"http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">'
)
OLD_BOOK = """<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata/><manifest>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/>
<item id="map" href="map.png" media-type="image/png"/>
</manifest>
<spine toc="ncx"><itemref idref="map"/><itemref idref="two"/><itemref idref="no"/></spine>
</package>"""
ENCRYPTION = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<e:CipherReference xmlns:e="http://www.w3.org/2001/04/xmlenc#" URI="{}"/></encryption>'
)


def test_chapters_are_in_order_and_have_titles():
    parsed = parse(epub_file(), EPUB, AMPLE_BYTES)
    assert parsed.text == f"# Dance\n\n{DANCE}\n\n# Honey\n\n{HONEY}"
    assert [heading.title for heading in parsed.headings] == ["Dance", "Honey"]
    assert parsed.title == TITLE


def test_the_table_of_contents_of_an_old_book_is_a_separate_file():
    content = epub_file(**{"OEBPS/book.opf": OLD_BOOK, "OEBPS/toc.ncx": NCX})
    parsed = parse(content, EPUB, AMPLE_BYTES)
    assert (parsed.text, parsed.title) == (f"# Sweet\n\n{HONEY}", "Sweet")


@pytest.mark.parametrize("empty", ["<title/>", '<script src="a.js"/>', "<style />"])
def test_an_empty_element_does_not_hide_a_chapter(empty):
    chapter = f"<html><head>{empty}</head><body><p>{DANCE}</p></body></html>"
    assert DANCE in parse(epub_file(**{"OEBPS/text/one.xhtml": chapter}), EPUB, AMPLE_BYTES).text


def test_a_cdata_section_is_text():
    chapter = "<html><body><pre><![CDATA[if (a < b) run();]]></pre></body></html>"
    text = parse(epub_file(**{"OEBPS/text/one.xhtml": chapter}), EPUB, AMPLE_BYTES).text
    assert "if (a < b) run();" in text


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (NCX.replace("Sweet", "Sweet & sour"), HONEY),
        (DOCTYPE + NCX.replace("Sweet", "Sweet&nbsp;one"), HONEY),
        ("", HONEY),
    ],
    ids=["bare sign", "undeclared entity", "empty"],
)
def test_a_damaged_table_of_contents_is_ignored(contents, text):
    content = epub_file(**{"OEBPS/book.opf": OLD_BOOK, "OEBPS/toc.ncx": contents})
    assert parse(content, EPUB, AMPLE_BYTES).text == text


def test_a_table_of_contents_that_declares_entities_is_refused():
    contents = '<!DOCTYPE ncx [<!ENTITY a "b">]>' + NCX.replace("Sweet", "&a; & more")
    content = epub_file(**{"OEBPS/book.opf": OLD_BOOK, "OEBPS/toc.ncx": contents})
    with pytest.raises(UnreadableDocument, match=r"declares XML entities in its part OEBPS/toc"):
        parse(content, EPUB, AMPLE_BYTES)


def test_an_empty_element_does_not_hide_the_table_of_contents():
    contents = (
        "<html><head><title/></head><body><nav><ol>"
        '<li><a href="text/two.xhtml">Sweet</a></li></ol></nav></body></html>'
    )
    parsed = parse(epub_file(**{"OEBPS/nav.xhtml": contents}), EPUB, AMPLE_BYTES)
    assert [heading.title for heading in parsed.headings] == ["Dance", "Sweet"]


def test_an_encrypted_chapter_is_refused_and_an_encrypted_font_is_ignored():
    fonts = epub_file(**{"META-INF/encryption.xml": ENCRYPTION.format("OEBPS/font.otf")})
    assert HONEY in parse(fonts, EPUB, AMPLE_BYTES).text
    chapter = epub_file(**{"META-INF/encryption.xml": ENCRYPTION.format("OEBPS/text/two.xhtml")})
    with pytest.raises(UnreadableDocument, match=r"OEBPS/text/two\.xhtml is encrypted"):
        parse(chapter, EPUB, AMPLE_BYTES)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"META-INF/container.xml": "<container/>"}, "names no book"),
        ({"META-INF/container.xml": "<a><rootfile full-path='none.opf'/></a>"}, r"part none\.opf"),
        ({"OEBPS/book.opf": "no xml"}, "an EPUB, or it is damaged: ExpatError"),
    ],
)
def test_a_book_without_a_required_part_is_refused(parts, message):
    with pytest.raises(UnreadableDocument, match=message):
        parse(epub_file(**parts), EPUB, AMPLE_BYTES)


def test_the_error_names_a_missing_chapter():
    book = OLD_BOOK.replace("two.xhtml", "three.xhtml")
    with pytest.raises(UnreadableDocument, match=r"OEBPS/text/three\.xhtml"):
        parse(epub_file(**{"OEBPS/book.opf": book, "OEBPS/toc.ncx": NCX}), EPUB, AMPLE_BYTES)


def test_navigation_is_left_out_and_reported():
    chapter = f"<html><body><nav><ol><li>Honey</li></ol></nav><p>{DANCE}</p></body></html>"
    parsed = parse(epub_file(**{"OEBPS/text/one.xhtml": chapter}), EPUB, AMPLE_BYTES)
    assert parsed.text == f"{DANCE}\n\n# Honey\n\n{HONEY}"
    assert [(left.part_count, left.example) for left in parsed.report.left_out] == [(1, "Honey")]


def test_a_page_of_contents_in_the_guide_is_left_out():
    guide = '<guide><reference type="toc" href="text/one.xhtml"/></guide></package>'
    book = OLD_BOOK.replace("</package>", guide).replace(
        "</manifest>",
        '<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/></manifest>',
    ).replace('<itemref idref="map"/>', '<itemref idref="one"/>')  # fmt: skip
    parts = {"OEBPS/book.opf": book, "OEBPS/toc.ncx": NCX}
    assert parse(epub_file(**parts), EPUB, AMPLE_BYTES).text == f"# Sweet\n\n{HONEY}"
    parts["OEBPS/book.opf"] = book.replace('one.xhtml"/></guide>', 'one.xhtml#toc"/></guide>')
    assert DANCE in parse(epub_file(**parts), EPUB, AMPLE_BYTES).text


def test_notes_come_after_the_text_of_their_chapter():
    chapter = (
        '<html xmlns:epub="http://www.idpf.org/2007/ops"><body><h1>Dance</h1>'
        '<p>Bees<a epub:type="noteref" href="#n">1</a> dance.</p>'
        '<aside epub:type="footnote" id="n"><p>Not all.</p></aside><p>Round.</p></body></html>'
    )
    text = parse(epub_file(**{"OEBPS/text/one.xhtml": chapter}), EPUB, AMPLE_BYTES).text
    assert text.startswith("# Dance\n\nBees [1] dance.\n\nRound.\n\nNot all.\n\n# Honey")
