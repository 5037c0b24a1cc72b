"""Rich text becomes headings, paragraphs, list items, tables and notes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.document_limits import MAX_RTF_DEPTH
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.rtf import parse_rtf

AMPLE_BYTES = 1 << 20
FONTS = (
    rb"{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial Cyr;}{\f2\fcharset128 MS Mincho;}"
    rb"{\f3\fcharset134 SimSun;}}"
)
STYLES = (
    rb"{\stylesheet{Normal;}{\s1 heading 1;}{\s2\outlinelevel1 Own;}{\s3 Title;}{\*\cs9 Char;}}"
)


def parsed(body: bytes | str, begin: bytes = rb"{\rtf1\ansi\ansicpg1252\deff0") -> ParsedFile:
    data = body.encode("ascii") if isinstance(body, str) else body
    return parse_rtf(begin + FONTS + STYLES + data + b"}", AMPLE_BYTES)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"Bees dance.\par", "Bees dance."),
        ("Bees\r\n dance", "Bees dance"),
        (r"one\par two\par", "one\n\ntwo"),
        (r"one\line two", "one\ntwo"),
        (r"{\b bold} and {\i italic}", "bold and italic"),
        (r"\{x\} \\ a\~b", "{x} \\ a b"),
        (r"a\emdash b\rquote s \bullet", "a—b’s •"),
        (r"caf\'e9", "café"),
        (r"{\f1\'cf\'f0\'e8\'e2\'e5\'f2}", "Привет"),
        (r"{\f2\'93\'fa\'96\'7b}", "日本"),
        (r"{\f3\'ba\'ba}x", "汉x"),
        (r"\u233?\u26085?", "é日"),
        (r"\uc2\u26085\'93\'fax", "日x"),
        (r"\uc0\u233 x", "éx"),
        (r"\u-10179?\u-8704?", "😀"),
        (r"\u-10179?x", "\ufffdx"),
        (r"soft\-hyphen E\_4711", "softhyphen E-4711"),
        (r"10{\super 6} H{\sub 2}O 5 m\super 2\nosupersub .", "10^6 H2O 5 m^2."),
        (r"10\up6 6\up0  and 5 m\super 2\plain , s\super -1\super0 x", "10^6 and 5 m^2, s^-1 x"),
        (r"a {\up2 raised} word", "a raised word"),
        (r"Warranty{\super 2} holds", "Warranty [2] holds"),
        (r"{\super\chftn{\footnote{\super\chftn} A 10{\super 3}.}} x", "x\n\nNote: A 10^3."),
        (r"\intbl 10{\super 6}\cell 5\cell\row", "| 10^6 | 5 |\n| --- | --- |"),
        (r"{\v hidden}shown{\v\v0 again}", "shownagain"),
        (r"{\deleted gone}kept", "kept"),
        (r'{\field{\*\fldinst HYPERLINK "http://x"}{\fldrslt link}}', "link"),
        (r"{\pict\pngblip 89504e47}x{\*\shppict{\pict 89}}", "x"),
        (r"{\header head}{\footer foot}{\*\unknown y}x", "x"),
        (r"{\shp{\*\shpinst{\sp{\sn a}{\sv b}}{\shptxt box}}{\shprslt box again}}", "box"),
        (r"{\*\fromhtml}{\*\htmltag <p>}\htmlrtf{\par\htmlrtf0 word\htmlrtf}\htmlrtf0", "word"),
        (r"x\bin4 }}}}y", "xy"),
        (r"{\*\annotation note}{\annotation note}x", "x"),
    ],
)  # fmt: skip
def test_text_is_read_without_its_markup(body, text):
    assert parsed(body).text == text


def test_code_pages_of_the_file_are_used():
    assert parsed(rb"\'e1", rb"{\rtf1\ansi\ansicpg1250").text == "á"
    assert parsed(rb"\'8e", rb"{\rtf1\mac").text == "é"
    assert parsed(rb"\'82", rb"{\rtf1\pc").text == "é"
    assert parsed(rb"\'e9", rb"{\rtf1\ansi\ansicpg99999").text == "é"


def test_headings_have_the_level_of_their_style_or_paragraph():
    file = parsed(
        r"\pard\s1 One\par\pard x\par\pard\s2 Two\par\pard\outlinelevel2 Three\par"
        r"\pard\s1\outlinelevel9 Body\par"
    )
    assert [(head.title, head.depth) for head in file.headings] == [
        ("One", 1), ("Two", 2), ("Three", 3), ("Body", 1),
    ]  # fmt: skip
    for head in file.headings:
        assert file.text[head.char_start :].startswith(f"{'#' * head.depth} {head.title}")


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (r"{\info{\title The \'e9tude}{\author A}}x", "The étude"),
        (r"{\info{\title Document1}}\pard\s3 Own title\par", "Own title"),
        (r"\pard\s1 First\par", "First"),
        (r"{\info{\author A}}x", ""),
    ],
)
def test_the_title_is_in_the_properties_or_in_a_style(body, title):
    assert parsed(body).title == title


def test_list_items_have_the_numbers_that_are_shown():
    file = parsed(
        r"{\listtext\pard 3.\tab}\pard\ilvl0 third\par"
        r"{\listtext\pard\'b7\tab}\pard\ilvl1 point\par"
        r"{\pntext (a)\tab}\pard letter\par"
        r"{\listtext 2.1\tab}\pard\s1 Heading\par"
    )
    assert file.text == "3. third\n  - point\n(a) letter\n\n# 2.1 Heading"


ROW = r"\trowd\cellx1\cellx2 "


def test_tables_are_tables():
    file = parsed(
        rf"x\par{ROW}\pard\intbl Name\cell Price\cell\row"
        rf"{ROW}\pard\intbl Pump\par big\cell 12\cell\row"
        r"\pard y\par"
    )
    assert file.text == "x\n\n| Name | Price |\n| --- | --- |\n| Pump big | 12 |\n\ny"
    assert file.report.table_count == 1


def test_a_table_in_a_cell_is_text_of_the_cell():
    file = parsed(
        rf"{ROW}\pard\intbl a\cell\pard\intbl\itap2 b\nestcell c\nestcell"
        r"{\*\nesttableprops\nestrow}"
        rf"\pard\intbl d\cell\row{ROW}\pard\intbl e\cell f\cell\row"
    )
    assert file.text == "| a | b c d |\n| --- | --- |\n| e | f |"


@pytest.mark.parametrize("begin", [r"{\footnote", r"{\*\footnote", r"{\super\chftn{\footnote"])
def test_notes_follow_their_paragraph(begin):
    end = "}" * begin.count("{")
    file = parsed(rf"\pard\s1 word{begin}\pard\plain a note\par{end} more\par next\par")
    assert file.text == "# word more\n\nNote: a note\n\n# next"


def test_what_follows_the_document_is_ignored():
    assert parse_rtf(rb"{\rtf1 x}\par y{z}", AMPLE_BYTES).text == "x"


@pytest.mark.parametrize("content", [b"", b"x", b"{rtf", b"{\\rt1 x}", b"<html>{\\rtf1"])
def test_other_files_are_refused(content):
    with pytest.raises(UnreadableDocument, match="does not begin with"):
        parse_rtf(content, AMPLE_BYTES)


@pytest.mark.parametrize(
    "content",
    [rb"{\rtf1 x", b"\xef\xbb\xbf {\\rtf1 x}", rb"{\rtf1 {\b x", rb"{\rtf1 x\bin999999999 "],
)
def test_files_that_are_cut_off_are_read_as_far_as_they_go(content):
    assert parse_rtf(content, AMPLE_BYTES).text == "x"


@pytest.mark.parametrize("group", [rb"{", rb"{\b ", rb"{\footnote "])
def test_groups_may_not_be_nested_without_end(group):
    with pytest.raises(UnreadableDocument, match="deeper"):
        parse_rtf(rb"{\rtf1 " + group * MAX_RTF_DEPTH, AMPLE_BYTES)
    parse_rtf(rb"{\rtf1 " + group * (MAX_RTF_DEPTH - 1), AMPLE_BYTES)


@pytest.mark.parametrize(
    "body",
    [
        rb"x\cell " * 50_000,
        rb"{\stylesheet" + b"".join(rb"{\s%d x;}" % n for n in range(30_000)) + b"}",
        rb"{\fonttbl" + b"".join(rb"{\f%d\fcharset204 x;}" % n for n in range(30_000)) + b"}",
        rb"{\listtext " + rb"x\tab " * 50_000,
        b"\\" * 100_001,
        rb"\u99999999?\uc99999\s-1\ilvl-5\u0?\outlinelevel99 x\par" * 1_000,
    ],
    ids=["cells", "styles", "fonts", "marker", "backslashes", "numbers"],
)
def test_hostile_files_take_little_time(body):
    parse_rtf(rb"{\rtf1 " + body, AMPLE_BYTES)


def test_more_text_than_allowed_is_refused():
    with pytest.raises(TooLarge):
        parse_rtf(rb"{\rtf1 " + b"x" * 100 + b"}", 99)


def written(text: str) -> str:
    """Returns a text as programs write it: characters beyond ASCII by their UTF-16 code units."""
    units = text.encode("utf-16-le")
    numbers = [
        int.from_bytes(units[at : at + 2], "little", signed=True) for at in range(0, len(units), 2)
    ]
    return "".join(rf"\u{number}?" if not 64 < number < 91 else chr(number) for number in numbers)


@given(st.lists(st.text(st.characters(categories=("L", "N")), min_size=1, max_size=5), min_size=1))
def test_every_word_is_in_the_text_in_order(words):
    assert parsed(" ".join(map(written, words))).text.split() == words


def test_the_cells_of_a_very_wide_row_are_all_read():
    cells = "".join(f"x{number}\\cell " for number in range(1_500))
    words = parsed(rf"\trowd {cells}\row\pard end").text.split()
    assert [word for word in words if word.startswith("x")] == [f"x{n}" for n in range(1_500)]
