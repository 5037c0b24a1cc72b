"""OpenDocument texts and presentations become text with sections, pages, lists and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge, UnreadableDocument
from hrag.values.formats import ODP, ODT
from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import archive, docx_file
from tests.support.documents.odf_files import (
    cell,
    heading,
    item,
    level,
    list_of,
    list_style,
    odp_file,
    odt_file,
    paragraph,
    row,
    table,
    text_style,
)

AMPLE_BYTES = 1 << 20


def parsed(body: str, styles: str = "", title: str = "", **files: str) -> ParsedFile:
    return parse(odt_file(body, styles, title, **files), ODT, AMPLE_BYTES)


def text_of(body: str, styles: str = "", **files: str) -> str:
    return parsed(body, styles, **files).text


STYLES = (
    text_style("hidden", 'text:display="none"')
    + text_style("shown", 'text:display="true"')
    + text_style("super", 'style:text-position="super 58%"')
    + text_style("greek", 'style:font-name="Symbol1"')
    + text_style("low", 'style:text-position="-33% 58%"')
    + text_style("level", 'style:text-position="0% 100%"')
    + text_style("secret", 'text:display="none"', "paragraph")
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a<text:s text:c='3'/>b", "a b"),
        ("a<text:tab/>b", "a b"),
        ("a<text:line-break/>b", "a\nb"),
        ("a\n  b", "a b"),
        ("<text:a xlink:href='x'>link</text:a>", "link"),
        ("a<text:span text:style-name='hidden'>x</text:span>b", "ab"),
        (
            (
                "a<text:span text:style-name='hidden'>x<text:span text:style-name='shown'>y"
                "</text:span></text:span>b"
            ),
            "ayb",
        ),
        ("10<text:span text:style-name='super'>6</text:span> cells", "10^6 cells"),
        ("H<text:span text:style-name='low'>2</text:span>O", "H2O"),
        ("10<text:span text:style-name='level'>6</text:span>", "106"),
        ("a<office:annotation><text:p>comment</text:p></office:annotation>b", "ab"),
        ("a<text:page-number>3</text:page-number>b", "ab"),
        ("a<text:sequence>4</text:sequence>b", "a4b"),
        ("a<text:hidden-text text:is-hidden='true'>x</text:hidden-text>b", "ab"),
        (
            (
                "<text:ruby><text:ruby-base>東京</text:ruby-base><text:ruby-text>とう</text:ruby-text>"
                "</text:ruby>で"
            ),
            "東京で",
        ),
        ("a<text:change-start/>new<text:change-end/>", "anew"),
        ("a<text:soft-page-break/>b", "ab"),
        ("a<text:span text:style-name='greek'>\uf061</text:span>\uf0b7b", "aαb"),
    ],
)
def test_an_element_of_a_paragraph(content, text):
    assert text_of(paragraph(content), STYLES) == text


def test_hidden_paragraphs_sections_and_deleted_text_are_left_out():
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        + paragraph("hidden", "secret")
        + f"<text:section text:display='none'>{paragraph('hidden')}</text:section>"
        + f"<text:section>{paragraph('shown')}</text:section>"
        + "<text:p><text:hidden-paragraph text:is-hidden='true'/></text:p>"
    )
    assert text_of(body, STYLES) == "shown"


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ("text:display='condition' text:condition='x'", "shown\n\nafter"),
        ("text:display='condition' text:condition='x' text:is-hidden='true'", "after"),
        ("text:display='condition' text:condition='x' text:is-hidden='false'", "shown\n\nafter"),
        ("text:display='none'", "after"),
        ("text:display='true'", "shown\n\nafter"),
    ],
)
def test_a_section_that_is_hidden_on_a_condition_is_read_while_it_is_shown(attributes, text):
    section = f"<text:section {attributes}>{paragraph('shown')}</text:section>"
    assert text_of(section + paragraph("after")) == text


@pytest.mark.parametrize("around", ["{}", "<text:span>{}</text:span>"])
@pytest.mark.parametrize(
    ("state", "text"), [("", "field\n\nafter"), ("text:is-hidden='true'", "after")]
)
def test_a_field_may_hide_its_paragraph(around, state, text):
    field = around.format(f"<text:hidden-paragraph text:condition='x' {state}/>")
    assert text_of(paragraph(f"{field}field") + paragraph("after")) == text


def note(mark: str, text: str) -> str:
    return (
        f"<text:note><text:note-citation>{mark}</text:note-citation>"
        f"<text:note-body>{paragraph(text)}</text:note-body></text:note>"
    )


def test_notes_and_text_boxes_follow_their_paragraph():
    box = f"<draw:frame><draw:text-box>{paragraph('box')}</draw:text-box></draw:frame>"
    body = paragraph(f"One{note('1', 'first')}, two{note('ii', 'second')}{box}.") + paragraph("x")
    assert text_of(body).split("\n\n") == [
        *("One [1], two [ii].", "[1] first", "[ii] second", "box", "x"),
    ]


def test_headings_are_sections_without_the_marks_of_notes():
    read = parsed(heading(f"Scope{note('1', 'note')}") + paragraph("text") + heading("Part", 2))
    assert read.text == "# Scope\n\n[1] note\n\ntext\n\n## Part"
    assert [(found.depth, found.title) for found in read.headings] == [(1, "Scope"), (2, "Part")]


OUTLINE = (
    "<text:outline-style>"
    + level(1, "I", ".", kind="outline")
    + level(2, "1", "", 2, kind="outline")
    + "</text:outline-style>"
)


def test_headings_have_the_numbers_of_the_outline():
    no_number = 'text:is-list-header="true"'
    body = heading("a") + heading("b", 2) + heading("c", 2) + heading("Annex", 1, no_number)
    body += heading("d", 1, 'text:restart-numbering="true" text:start-value="7"')
    assert text_of(body, OUTLINE).split("\n\n") == [
        *("# I. a", "## I.1 b", "## I.2 c", "# Annex", "# VII. d"),
    ]


LISTS = list_style("L", level(1, "1"), level(2, "a", ")"), level(3, "1", "", 3)) + list_style(
    "B", '<text:list-level-style-bullet text:level="1" text:bullet-char="•"/>'
)
IN_L = 'text:style-name="L"'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (list_of("x", "y", attributes=IN_L), "1. x\n2. y"),
        (list_of("x", "y", attributes='text:style-name="B"'), "- x\n- y"),
        (list_of("x", attributes='text:style-name="unknown"'), "- x"),
        (list_of(item("x", "more"), "y", attributes=IN_L), "1. x\n\nmore\n\n2. y"),
        (list_of("x", "", "y", attributes=IN_L), "1. x\n3. y"),
        (
            list_of(item("x", list_of("p", "q")), item("y", list_of("r")), attributes=IN_L),
            "1. x\n  a) p\n  b) q\n2. y\n  a) r",
        ),
        (
            list_of(item(list_of(item(list_of("deep")))), attributes=IN_L),
            "    1.a.1 deep",
        ),
        (list_of(item("x", attributes='text:start-value="4"'), "y", attributes=IN_L), "4. x\n5. y"),
        (
            list_of(
                f"<text:list-header>{paragraph('head')}</text:list-header>", "x", attributes=IN_L
            ),
            "head\n\n1. x",
        ),
    ],
)
def test_items_of_lists_have_their_numbers(body, expected):
    assert parsed(paragraph("-") + body, LISTS).text == f"-\n\n{expected}"


@pytest.mark.parametrize(
    ("attributes", "number"),
    [
        ("", 1),
        ('text:continue-numbering="true"', 2),
        ('text:continue-list="first"', 2),
        ('text:continue-list="unknown"', 1),
    ],
)
def test_a_list_continues_another_one_only_if_it_says_so(attributes, number):
    body = list_of("x", attributes=f'{IN_L} xml:id="first"') + paragraph("between")
    body += list_of("y", attributes=f"{IN_L} {attributes}")
    assert text_of(body, LISTS) == f"1. x\n\nbetween\n\n{number}. y"


def test_contents_pages_are_left_out_and_reported():
    contents = (
        f"<text:table-of-content><text:index-body>{paragraph('Pumps 3')}</text:index-body>"
        "</text:table-of-content>"
    )
    read = parsed(contents + heading("Pumps"))
    assert read.text == "# Pumps"
    assert [found.kind for found in read.report.left_out] == [LeftOutKind.CONTENTS_PAGE]


HEADER = "<table:table-header-rows>{}</table:table-header-rows>"


def test_merged_cells_of_a_table_are_repeated_down_and_not_across():
    covered = "<table:covered-table-cell/>"
    body = table(
        HEADER.format(row("Name", cell("Values", 'table:number-columns-spanned="2"'), covered)),
        row(cell("a", 'table:number-rows-spanned="2"'), "1", "2"),
        row(covered, "3", "4"),
        row("b", "5", "6"),
    )
    assert text_of(body).splitlines() == [
        *("| Name | Values |  |", "| --- | --- | --- |", "| a | 1 | 2 |", "| a | 3 | 4 |"),
        "| b | 5 | 6 |",
    ]


def test_header_rows_name_the_columns_even_if_they_are_numbers():
    rows = [row(f"Item {n}", str(n), str(n + 1)) for n in range(80)]
    body = table(HEADER.format(row("Item", "2022", "2023")), *rows)
    assert text_of(body).split("\n\n")[7] == "Item: Item 7\n2022: 7\n2023: 8"


def test_repeated_rows_and_cells_are_limited():
    many = 'table:number-{}-repeated="999999999"'
    body = table(
        row("a", cell("", many.format("columns"))), row("", attributes=many.format("rows"))
    )
    assert text_of(body) == "a"
    full = table(row("a", cell("x", many.format("columns")), attributes=many.format("rows")))
    with pytest.raises(TooLarge):
        parse(odt_file(full), ODT, 10_000)
    late = row(cell("", many.format("columns")), "x", attributes=many.format("rows"))
    with pytest.raises(TooLarge, match="more than 1000000 cells"):
        parsed(table(late, late))


def test_a_table_in_a_cell_stays_in_its_row_and_a_layout_table_is_read_as_its_contents():
    inner = table(row("x", "1"), row("y", "2"))
    body = table(row("Name", "Values of all the things"), row("one and only", cell(inner)))
    assert text_of(body).splitlines()[-1] == "| one and only | x, 1; y, 2 |"
    assert text_of(table(row(cell(heading("Part") + paragraph("text")), "s"))) == (
        "# Part\n\ntext\n\ns"
    )


def test_the_controls_of_a_form_show_their_values():
    forms = (
        "<office:forms><form:form>"
        '<form:checkbox form:id="a" form:label="Yes" form:current-state="checked"/>'
        '<form:checkbox form:id="b" form:label="No"/>'
        '<form:text form:id="c" form:current-value="Ada"/>'
        '<form:listbox form:id="d"><form:option form:label="red"/>'
        '<form:option form:label="blue" form:current-selected="true"/></form:listbox>'
        "</form:form></office:forms>"
    )
    controls = " ".join(f'<draw:control draw:control="{name}"/>' for name in "abcd")
    assert text_of(forms + paragraph(controls)) == "☒ Yes ☐ No Ada blue"


FORM_FIELD = '<field:fieldmark field:type="vnd.oasis.opendocument.field.{}">{}</field:fieldmark>'
PARAMETER = '<field:param field:name="{}" field:value="{}"/>'
ENTRIES = PARAMETER.format("Dropdown_ListEntry", "red") + PARAMETER.format(
    "Dropdown_ListEntry", "blue"
)


@pytest.mark.parametrize(
    ("kind", "parameters", "text"),
    [
        ("FORMCHECKBOX", PARAMETER.format("Checkbox_Checked", "true"), "☒"),
        ("FORMCHECKBOX", PARAMETER.format("Checkbox_Checked", "false"), "☐"),
        ("FORMCHECKBOX", "", "☐"),
        ("FORMDROPDOWN", ENTRIES + PARAMETER.format("Dropdown_Selected", "1"), "blue"),
        ("FORMDROPDOWN", ENTRIES, "red"),
        ("FORMDROPDOWN", ENTRIES + PARAMETER.format("Dropdown_Selected", "2"), ""),
        ("FORMDROPDOWN", ENTRIES + PARAMETER.format("Dropdown_Selected", "x"), "red"),
        ("OTHER", "", ""),
    ],
)
def test_the_fields_of_a_form_from_a_word_document_show_their_values(kind, parameters, text):
    assert text_of(paragraph(f"a{FORM_FIELD.format(kind, parameters)}b")) == f"a{text}b"


def test_the_text_between_the_ends_of_a_field_of_a_form_is_read():
    field = f"<field:fieldmark-start>{ENTRIES}</field:fieldmark-start>Ada<field:fieldmark-end/>"
    assert text_of(paragraph(field)) == "Ada"


@pytest.mark.parametrize(
    ("pattern", "label"),
    [
        ("", "1.1"),
        ("§%1%-%2%", "§1-1"),
        ("(%2%)", "(1)"),
        ("Part %1%, clause %2%:", "Part 1, clause 1:"),
        ("%1%%9%.%0%", "1."),
        ("no number", "no number"),
    ],
)
def test_a_pattern_says_what_is_between_the_numbers(pattern, label):
    attribute = f' loext:num-list-format="{pattern}" text:level'
    inner = level(2, "1", "", 2).replace(" text:level", attribute)
    styles = list_style("P", level(1, "1"), inner)
    body = list_of(item(list_of("deep")), attributes='text:style-name="P"')
    assert text_of(paragraph("-") + body, styles).splitlines()[-1] == f"  {label} deep"


def test_an_embedded_formula_is_read_in_the_language_in_which_it_was_typed():
    formula = (
        '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mi>E</mi>'
        '<annotation encoding="StarMath 5.0">E = m c^2</annotation></semantics></math>'
    )
    objects = "".join(
        f'<draw:frame><draw:object xlink:href="./Object {n}"/><draw:image/></draw:frame>'
        for n in (1, 2)
    )
    files = {"Object 1/content.xml": formula}
    assert text_of(paragraph(f"so {objects}"), **files) == "so E = m c^2"


@pytest.mark.parametrize(
    ("title", "body", "expected"),
    [
        ("Own", heading("One"), "Own"),
        ("Untitled 1", paragraph("Shown", "Title") + heading("One"), "Shown"),
        ("", paragraph("Shown", "Derived"), "Shown"),
        ("", paragraph("text") + heading("One"), "One"),
        ("", paragraph("text"), ""),
    ],
)
def test_the_title_comes_from_the_metadata_or_the_styles(title, body, expected):
    styles = text_style("Title", "", "paragraph")
    styles += (
        '<style:style style:name="Derived" style:family="paragraph"'
        ' style:parent-style-name="Title"/>'
    )
    assert parsed(body, styles, title).title == expected


def frame(kind: str, content: str, attributes: str = "") -> str:
    return (
        f'<draw:frame presentation:class="{kind}" {attributes}><draw:text-box>{content}'
        "</draw:text-box></draw:frame>"
    )


def slide(*content: str, style: str = "") -> str:
    return f'<draw:page draw:style-name="{style}">{"".join(content)}</draw:page>'


HIDDEN_SLIDE = (
    '<style:style style:name="off" style:family="drawing-page"><style:drawing-page-properties'
    ' presentation:visibility="hidden"/></style:style>'
)


def test_slides_are_pages_and_sections_with_their_notes():
    shown = frame("notes", paragraph("Show the film.")) + frame("page", paragraph("3"))
    notes = f"<presentation:notes>{shown}</presentation:notes>"
    body = (
        slide(
            frame("outline", list_of("north", item("south", list_of("sea")))),
            frame("title", paragraph("Dance")),
            frame("footer", paragraph("2026")),
            notes,
        )
        + slide(frame("title", paragraph("Secret")), style="off")
        + slide(
            frame("title", "", 'presentation:placeholder="true"'),
            f"<draw:g><draw:custom-shape>{paragraph('shape')}</draw:custom-shape></draw:g>",
            f"<draw:frame>{table(row('Flower', 'Nectar'), row('Clover', '4 mg'))}</draw:frame>",
        )
        + slide()
    )
    read = parse(odp_file(body, HIDDEN_SLIDE), ODP, AMPLE_BYTES)
    pages = [read.text[page.char_start : page.char_end] for page in read.pages]
    assert pages == [
        "# Dance\n\n- north\n- south\n  - sea\n\nNotes: Show the film.",
        "",
        "# Slide 3\n\nshape\n\n| Flower | Nectar |\n| --- | --- |\n| Clover | 4 mg |",
        "",
    ]
    assert read.title == "Dance"
    assert parse(odp_file(body, title="Bees"), ODP, AMPLE_BYTES).title == "Bees"


def test_an_encrypted_file_is_refused_with_what_helps():
    manifest = (
        '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry>'
        "<m:encryption-data/></m:file-entry></m:manifest>"
    )
    content = odt_file("", **{"META-INF/manifest.xml": manifest})
    with pytest.raises(UnreadableDocument, match="encrypted; save it without a password"):
        parse(content, ODT, AMPLE_BYTES)


@pytest.mark.parametrize("mime_type", [ODT, ODP])
def test_files_of_other_formats_and_damaged_files_are_refused(mime_type):
    other = odt_file("") if mime_type == ODP else odp_file("")
    entities = b'<!DOCTYPE a [<!ENTITY b "boom">]><a>&b;</a>'
    for content in (other, docx_file(), b"x", other[:99], archive({"content.xml": "<a"})):
        with pytest.raises(UnreadableDocument):
            parse(content, mime_type, AMPLE_BYTES)
    with pytest.raises(UnreadableDocument, match="declares XML entities"):
        parse(archive({"content.xml": entities}), mime_type, AMPLE_BYTES)


@pytest.mark.parametrize(
    "body",
    [
        "<text:list><text:list-item>" * 10_000 + "{}" + "</text:list-item></text:list>" * 10_000,
        "<text:section>" * 20_000 + "{}" + "</text:section>" * 20_000,
        "<text:p><text:span>"
        + "<text:span>" * 20_000
        + "x"
        + "</text:span>" * 20_000
        + "</text:span></text:p>",
        "<table:table><table:table-row><table:table-cell>" * 5_000
        + "{}"
        + "</table:table-cell></table:table-row></table:table>" * 5_000,
        "<text:p><draw:frame><draw:text-box>" * 5_000
        + "{}"
        + "</draw:text-box></draw:frame></text:p>" * 5_000,
    ],
    ids=["lists", "sections", "spans", "tables", "boxes"],
)
def test_elements_may_be_nested_to_any_depth(body):
    assert text_of(body.replace("{}", paragraph("x"))).strip(" -") == "x"


def test_styles_that_are_parents_of_each_other_cause_no_endless_loop():
    styles = "".join(
        f'<style:style style:name="{name}" style:family="paragraph"'
        f' style:parent-style-name="{parent}"/>'
        for name, parent in ("ab", "ba")
    )
    assert text_of(paragraph("x", "a"), styles) == "x"


WORDS = st.text("abcdef é東", min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(WORDS, st.integers(0, 3)), min_size=1, max_size=10))
def test_no_word_is_lost_or_doubled_and_the_order_stays(parts):
    write = (paragraph, heading, list_of, lambda word: table(row(word, "end")))
    body = "".join(write[kind](word) for word, kind in parts)
    ends = [[word, "end"] if kind == 3 else [word] for word, kind in parts]
    signs = set("#-|") | {"---"}
    read = [word for word in text_of(body).split() if not set(word) <= signs]
    assert read == " ".join(word for end in ends for word in end).split()
