"""The text of a paragraph in a Word document is what Word shows of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.values.formats import DOCX
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.word_files import field, paragraph, run, style, word_file

AMPLE_BYTES = 1 << 20
HIDDEN = "<w:vanish/>"
SUPER = '<w:vertAlign w:val="superscript"/>'
SUB = '<w:vertAlign w:val="subscript"/>'


def text_of(*content: str, **parts: str) -> str:
    """Returns the text of a document whose body is one paragraph."""
    return parse(word_file(paragraph(*content), **parts), DOCX, AMPLE_BYTES).text


FORM = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{}</w:ffData></w:fldChar></w:r>'
END = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
SEPARATE = '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
CHECKED = "<w:checkBox><w:checked{}/></w:checkBox>"
ENTRY = '<w:listEntry w:val="{}"/>'
ENTRIES = f'<w:ddList><w:result w:val="1"/>{ENTRY.format("red")}{ENTRY.format("blue")}</w:ddList>'
INNER = field("IF 1", run("inner"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<w:fldSimple w:instr=" SEQ Table "><w:r><w:t>4</w:t></w:r></w:fldSimple>', "a4b"),
        (field(" REF table7 \\h ", run("Table 7")), "aTable 7b"),
        (field(" IF ", INNER + run(" outer")), "ainner outerb"),
        (field(f" IF </w:instrText></w:r>{INNER}<w:r><w:instrText>", run("yes")), "ayesb"),
        (field(" PAGE ", run("12")), "ab"),
        ('<w:fldSimple w:instr="NUMPAGES"><w:r><w:t>9</w:t></w:r></w:fldSimple>', "ab"),
        (field(" PAGEREF x ", run("12")), "a12b"),
        (field("PAGE\\* MERGEFORMAT", run("12")), "ab"),
        (field(" HYPERLINK http://x ", run("link")), "alinkb"),
        (field(r" EQ \o\ad(\s\up 9(ルビ),東京)"), "a東京b"),
        (field(r" EQ \f(1,2) "), "a1/2b"),
        (field(' SYMBOL 181 \\f "Arial" '), "aµb"),
        (field(" XE index "), "ab"),
        (FORM.format(CHECKED.format("")) + END, "a☒b"),
        (FORM.format(CHECKED.format(' w:val="0"')) + END, "a☐b"),
        (FORM.format('<w:checkBox><w:default w:val="1"/></w:checkBox>') + END, "a☒b"),
        (FORM.format(ENTRIES) + END, "ablueb"),
        (FORM.format(ENTRIES) + SEPARATE + END, "ablueb"),
        (FORM.format(ENTRIES) + SEPARATE + run("green") + END, "agreenb"),
        (field(r" EQ \r(3,x)", '<w:r><w:t xml:space="preserve"/></w:r>'), "a∛xb"),
        (field(" MACROBUTTON NoMacro [Click here]"), "a[Click here]b"),
        (field(" GOTOBUTTON mark page two \\* MERGEFORMAT "), "apage twob"),
        (field(" MACROBUTTON NoMacro "), "ab"),
        (field(" ASK name question "), "ab"),
        ('<w:r><w:fldChar w:fldCharType="separate"/></w:r>', "ab"),
        (END, "ab"),
    ],
)
def test_a_field_shows_its_result(content, text):
    assert text_of("a", content, "b") == text


def test_hidden_parts_of_a_field_show_nothing():
    hidden = field(r" EQ \o\ad(x,unseen)").replace("<w:r>", f"<w:r><w:rPr>{HIDDEN}</w:rPr>")
    code = field(r" EQ \o\ad(x,unseen)").replace(
        "<w:r><w:instr", f"<w:r><w:rPr>{HIDDEN}</w:rPr><w:instr"
    )
    assert text_of("a", hidden, code, "b") == "ab"


def test_a_field_without_an_end_hides_no_other_paragraph():
    open_field = paragraph("a", '<w:r><w:fldChar w:fldCharType="begin"/></w:r>', "b")
    content = word_file(open_field + paragraph("c"))
    assert parse(content, DOCX, AMPLE_BYTES).text == "a\n\nc"


def test_a_table_of_contents_without_an_end_ends_at_the_next_heading():
    begun = paragraph(BEGUN, "Pumps 3") + paragraph("Valves 4")
    body = begun + paragraph("Pumps", properties='<w:outlineLvl w:val="0"/>') + paragraph("text")
    assert parse(word_file(body), DOCX, AMPLE_BYTES).text == "# Pumps\n\ntext"


def test_a_page_number_without_an_end_hides_no_other_paragraph():
    begun = BEGUN.replace("TOC \\o", "PAGE")
    content = word_file(paragraph("a", begun, "9") + paragraph("b"))
    assert parse(content, DOCX, AMPLE_BYTES).text == "a\n\nb"


CONTROL = (
    '<w:sdt><w:sdtPr><w14:checkbox><w14:checked w14:val="{}"/></w14:checkbox></w:sdtPr>'
    "<w:sdtContent><w:r><w:t>?</w:t></w:r></w:sdtContent></w:sdt>"
)
DATE = (
    "<w:sdt><w:sdtPr><w:date/></w:sdtPr><w:sdtContent><w:r><w:t>May</w:t></w:r></w:sdtContent>"
    "</w:sdt>"
)
RUBY = (
    "<w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>とうきょう</w:t></w:r></w:rt>"
    "<w:rubyBase><w:r><w:t>東京</w:t></w:r></w:rubyBase></w:ruby></w:r>"
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (CONTROL.format(1), "a☒b"),
        (CONTROL.format(0), "a☐b"),
        (DATE, "aMayb"),
        (RUBY, "a東京b"),
        ("<w:r><w:tab/></w:r>", "a b"),
        ("<w:r><w:br/></w:r>", "a\nb"),
        ('<w:r><w:br w:type="page"/></w:r>', "a\nb"),
        ("<w:r><w:lastRenderedPageBreak/></w:r>", "ab"),
        ("<w:r><w:noBreakHyphen/></w:r>", "a-b"),
        ("<w:r><w:softHyphen/></w:r>", "ab"),
        ('<w:r><w:sym w:font="Symbol" w:char="F061"/></w:r>', "aαb"),
        ('<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>', "a☑b"),
        ('<w:r><w:sym w:font="Wingdings" w:char="F04D"/></w:r>', "ab"),
        ('<w:r><w:sym w:font="Arial" w:char="00B5"/></w:r>', "aµb"),
        ('<w:r><w:sym w:font="Arial" w:char="D800"/></w:r>', "ab"),
        ('<w:r><w:sym w:font="Arial" w:char="x"/></w:r>', "ab"),
        (run("\uf0b3", '<w:rFonts w:ascii="Symbol"/>'), "a≥b"),
        ("<w:ins>" + run("new") + "</w:ins>", "anewb"),
        ("<w:moveTo>" + run("new") + "</w:moveTo>", "anewb"),
        ("<w:del><w:r><w:delText>old</w:delText></w:r></w:del>", "ab"),
        ("<w:moveFrom>" + run("old") + "</w:moveFrom>", "ab"),
        (run("unseen", HIDDEN), "ab"),
        ('<w:hyperlink r:id="x">' + run("link") + "</w:hyperlink>", "alinkb"),
        ("<w:smartTag>" + run("tag") + "</w:smartTag>", "atagb"),
        ('<w:bdo w:val="rtl">' + run("שלום", "<w:rtl/>") + "</w:bdo>", "aשלוםb"),
        (run("\u200fשלום\u200f", "<w:rtl/>"), "aשלוםb"),
        ("<w:commentRangeStart/><w:r><w:commentReference/></w:r>", "ab"),
        (
            (
                "<w:r><mc:AlternateContent><mc:Choice><w:t>new</w:t></mc:Choice><mc:Fallback>"
                "<w:t>old</w:t></mc:Fallback></mc:AlternateContent></w:r>"
            ),
            "anewb",
        ),
        (
            (
                "<w:r><mc:AlternateContent><mc:Fallback><w:t>old</w:t></mc:Fallback>"
                "</mc:AlternateContent></w:r>"
            ),
            "aoldb",
        ),
    ],
)
def test_an_element_of_a_paragraph(content, text):
    assert text_of("a", content, "b") == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (["10", run("6", SUPER), " cells"], "10^6 cells"),
        (["10", run("-", SUPER), run("6", SUPER)], "10^-6"),
        (["H", run("2", SUB), "O"], "H2O"),
        (["Warranty", run("1", SUPER), " ends"], "Warranty [1] ends"),
        (["costs 30", run("1", SUPER), "."], "costs 30^1."),
        (["the 1", run("st", SUPER), " day"], "the 1st day"),
        (["2 ", run("1", SUPER), "/", run("2", SUB)], "2 1/2"),
        ([run("all raised", SUPER)], "all raised"),
        (["m", run("2", '<w:rStyle w:val="Raised"/>')], "m^2"),
    ],
)
def test_superscripts_and_subscripts_are_no_digits_of_other_numbers(content, text):
    raised = style("Raised", "Raised", f"<w:rPr>{SUPER}</w:rPr>", kind="character")
    assert text_of(*content, styles=raised) == text


def reference(kind: str, note_id: int, mark: str = "") -> str:
    """Returns the markup of a reference to a note, with the author's mark if there is one."""
    custom = ' w:customMarkFollows="1"' if mark else ""
    shown = f"<w:t>{mark}</w:t>" if mark else ""
    return f'<w:r><w:rPr>{SUPER}</w:rPr><w:{kind}Reference{custom} w:id="{note_id}"/>{shown}</w:r>'


def note(kind: str, note_id: int, text: str) -> str:
    return f'<w:{kind} w:id="{note_id}">{paragraph(text)}</w:{kind}>'


SEPARATOR = (
    '<w:footnote w:type="separator" w:id="0"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
)


def test_notes_follow_the_paragraph_that_refers_to_them():
    body = (
        paragraph("One", reference("footnote", 7), ", two", reference("endnote", 1), ".")
        + paragraph("Three", reference("footnote", 3), " and", reference("footnote", 7))
        + paragraph("Four")
    )
    content = word_file(
        body,
        footnotes=SEPARATOR + note("footnote", 3, "third") + note("footnote", 7, "seventh"),
        endnotes=note("endnote", 1, "end"),
    )
    assert parse(content, DOCX, AMPLE_BYTES).text.split("\n\n") == [
        *("One [1], two [i].", "[1] seventh", "[i] end"),
        *("Three [2] and [3]", "[2] third", "Four"),
    ]


def test_the_mark_of_a_note_may_be_alone():
    content = word_file(paragraph(reference("footnote", 1)), footnotes=note("footnote", 1, "first"))
    assert parse(content, DOCX, AMPLE_BYTES).text == "[1]\n\n[1] first"


def test_an_author_may_choose_the_mark_of_a_note():
    content = word_file(
        paragraph("One", reference("footnote", 1, "*"), " x", reference("footnote", 2)),
        footnotes=note("footnote", 1, "* star") + note("footnote", 2, "second"),
    )
    assert parse(content, DOCX, AMPLE_BYTES).text == "One* x [1]\n\n* star\n\n[1] second"


@pytest.mark.parametrize(
    "mark",
    [
        '<w:sym w:font="Symbol" w:char="F02A"/></w:r>',
        "</w:r><w:r><w:t>∗</w:t></w:r>",
        f"</w:r><w:r><w:rPr>{SUPER}</w:rPr><w:t>∗</w:t></w:r>",
    ],
    ids=["symbol", "later run", "raised"],
)
def test_the_mark_of_an_author_may_be_a_symbol_or_follow_in_another_run(mark):
    chosen = f'<w:r><w:footnoteReference w:customMarkFollows="1" w:id="1"/>{mark}'
    content = word_file(
        paragraph("One", chosen, " x", reference("footnote", 2)),
        footnotes=note("footnote", 1, "∗ star") + note("footnote", 2, "second"),
    )
    assert parse(content, DOCX, AMPLE_BYTES).text == "One∗ x [1]\n\n∗ star\n\n[1] second"


def test_settings_say_how_notes_are_numbered():
    settings = '<w:footnotePr><w:numFmt w:val="upperRoman"/><w:numStart w:val="4"/></w:footnotePr>'
    content = word_file(
        paragraph("One", reference("footnote", 1)),
        footnotes=note("footnote", 1, "x"),
        settings=settings,
    )
    assert parse(content, DOCX, AMPLE_BYTES).text == "One [IV]\n\n[IV] x"


def test_sections_may_restart_their_notes():
    restart = '<w:sectPr><w:footnotePr><w:numRestart w:val="eachSect"/></w:footnotePr></w:sectPr>'
    body = (
        paragraph("One", reference("footnote", 1), properties=restart)
        + paragraph("Two", reference("footnote", 2))
        + restart
    )
    content = word_file(
        body, footnotes=note("footnote", 1, "first") + note("footnote", 2, "second")
    )
    assert "Two [1]" in parse(content, DOCX, AMPLE_BYTES).text


def test_a_note_that_refers_to_itself_is_written_once():
    itself = f'<w:footnote w:id="1">{paragraph("x", reference("footnote", 1))}</w:footnote>'
    content = word_file(paragraph("One", reference("footnote", 1)), footnotes=itself)
    assert parse(content, DOCX, AMPLE_BYTES).text == "One [1]\n\n[1] x [2]"


def test_the_mark_of_a_note_is_no_part_of_a_heading():
    content = word_file(
        paragraph("Scope", reference("footnote", 1), properties='<w:outlineLvl w:val="0"/>'),
        footnotes=note("footnote", 1, "x"),
    )
    parsed = parse(content, DOCX, AMPLE_BYTES)
    assert (parsed.text, parsed.headings[0].title) == ("# Scope\n\n[1] x", "Scope")


CONTENTS_STYLES = style("TOC1", "toc 1") + style("H1", "heading 1")
CONTROLLED = (
    '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj>'
    "</w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>"
)
BEGUN = (
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>TOC \\o</w:instrText></w:r>'
    '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
)


@pytest.mark.parametrize(
    "contents",
    [
        paragraph("Pumps 3", style="TOC1") + paragraph("Valves 4", style="TOC1"),
        CONTROLLED.format(paragraph("Contents") + paragraph("Pumps 3")),
        paragraph(BEGUN, "Pumps 3") + paragraph("Valves 4") + paragraph(END),
    ],
    ids=["styles", "control", "field"],
)
def test_a_table_of_contents_is_left_out_and_reported_once(contents):
    content = word_file(
        contents + paragraph("Pumps", style="H1") + paragraph("text"), styles=CONTENTS_STYLES
    )
    parsed = parse(content, DOCX, AMPLE_BYTES)
    assert parsed.text == "# Pumps\n\ntext"
    (left_out,) = parsed.report.left_out
    assert (left_out.kind, left_out.part_count) == (LeftOutKind.CONTENTS_PAGE, 1)
    assert "Pumps 3" in left_out.example


def test_a_paragraph_whose_end_is_deleted_continues_in_the_next_one():
    first = paragraph("one ", properties="<w:rPr><w:del/></w:rPr>")
    initial = paragraph("D", properties='<w:framePr w:dropCap="drop"/>')
    content = word_file(first + paragraph("two") + initial + paragraph("rop") + first)
    assert parse(content, DOCX, AMPLE_BYTES).text == "one two\n\nDrop\n\none"


WORDS = st.text("abcdef é東", min_size=1, max_size=8).filter(str.strip)


@given(st.lists(WORDS, min_size=1, max_size=12))
def test_no_word_is_lost_or_doubled_and_the_order_stays(words):
    runs = [run(f" {word} ") for word in words]
    kinds = [
        f"<w:ins>{markup}</w:ins>" if index % 3 else markup for index, markup in enumerate(runs)
    ]
    assert text_of(*kinds).split() == " ".join(words).split()
