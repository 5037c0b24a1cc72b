"""The blocks of a Word document: headings, tables, text boxes and what is left out."""

import docx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hrag.errors import TooLarge
from hrag.values.formats import DOCX
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.parser_functions import parse
from tests.support.documents.format_files import saved, strict
from tests.support.documents.word_files import cell, paragraph, row, run, style, table, word_file

AMPLE_BYTES = 1 << 20


def parsed(body: str, **parts: str) -> ParsedFile:
    return parse(word_file(body, **parts), DOCX, AMPLE_BYTES)


def text_of(body: str, **parts: str) -> str:
    return parsed(body, **parts).text


OUTLINE = '<w:pPr><w:outlineLvl w:val="{}"/></w:pPr>'
STYLES = (
    style("berschrift1", "heading 1")
    + style("Firma", "ACME Heading", based_on="berschrift1")
    + style("Deep", "Clause", OUTLINE.format(3))
    + style("Body", "Looks like a heading", OUTLINE.format(9), based_on="berschrift1")
    + style("a", "a", based_on="b")
    + style("b", "b", based_on="a")
)


@pytest.mark.parametrize(
    ("style_id", "properties", "depth"),
    [
        ("berschrift1", "", 1),
        ("Firma", "", 1),
        ("Deep", "", 4),
        ("Body", "", None),
        ("a", "", None),
        ("Heading3", "", 3),
        ("", '<w:outlineLvl w:val="1"/>', 2),
        ("Firma", '<w:outlineLvl w:val="9"/>', None),
        ("", '<w:outlineLvl w:val="x"/>', None),
    ],
)
def test_a_style_or_an_outline_level_makes_a_heading(style_id, properties, depth):
    read = parsed(paragraph("Title", style=style_id, properties=properties), styles=STYLES)
    assert [heading.depth for heading in read.headings] == ([] if depth is None else [depth])


def test_a_long_heading_is_whole_in_the_text():
    words = " ".join(f"word{number}" for number in range(80))
    read = parsed(paragraph(words, properties='<w:outlineLvl w:val="0"/>'))
    assert read.text == f"# {words}"
    assert words.startswith(read.headings[0].title)


BOX = "<w:txbxContent>{}</w:txbxContent>"
NEW = "<w:drawing><wps:txbx>{}</wps:txbx></w:drawing>"
OLD = "<w:pict><v:textbox>{}</v:textbox></w:pict>"
CHOICE = "<mc:AlternateContent><mc:Choice>{}</mc:Choice>{}</mc:AlternateContent>"


@pytest.mark.parametrize("fallback", ["", "<mc:Fallback>{}</mc:Fallback>"])
def test_a_text_box_is_read_once_after_its_paragraph(fallback):
    box = BOX.format(paragraph("in the box") + paragraph("Title", style="Heading1"))
    shape = CHOICE.format(NEW.format(box), fallback.format(OLD.format(box)))
    body = paragraph("around ", f"<w:r>{shape}</w:r>", "it") + paragraph("after")
    assert text_of(body) == "around it\n\nin the box\n\n# Title\n\nafter"


def test_an_old_text_box_is_read_and_boxes_may_contain_boxes():
    inner = paragraph("inner", f"<w:r>{OLD.format(BOX.format(paragraph('innermost')))}</w:r>")
    body = paragraph("outer", f"<w:r>{OLD.format(BOX.format(inner))}</w:r>")
    assert text_of(body) == "outer\n\ninner\n\ninnermost"


def test_embedded_documents_and_comments_are_left_out_quietly():
    body = paragraph("a") + '<w:altChunk r:id="rId9"/>' + paragraph("b")
    files = {
        "word/comments.xml": "not read",
        "word/glossary/document.xml": "not read",
        "word/header1.xml": "not read",
        "word/chunk.html": "not read",
    }
    assert parse(word_file(body, files), DOCX, AMPLE_BYTES).text == "a\n\nb"


def test_content_controls_of_blocks_are_read():
    body = f"<w:sdt><w:sdtPr/><w:sdtContent>{paragraph('a')}</w:sdtContent></w:sdt>"
    assert text_of(f"<w:customXml>{body}</w:customXml>") == "a"


HEADER = "<w:tblHeader/>"


def test_cells_that_span_rows_are_repeated_and_those_that_span_columns_are_not():
    restart, more = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    body = table(
        row("Name", cell("Values", properties='<w:gridSpan w:val="2"/>')),
        row(cell("a", properties=restart), "1", "2"),
        row(cell("", properties=more), "3", "4"),
        row("b", "5", "6"),
        row(cell("", properties=more), "7", "8"),
    )
    assert text_of(body).splitlines() == [
        *("| Name | Values |  |", "| --- | --- | --- |", "| a | 1 | 2 |", "| a | 3 | 4 |"),
        *("| b | 5 | 6 |", "|  | 7 | 8 |"),
    ]


def test_skipped_columns_old_merges_and_deleted_rows():
    body = table(
        row("a", "b", "c"),
        row("1", "2", properties='<w:gridBefore w:val="1"/>'),
        row("x", cell("y", properties='<w:hMerge w:val="continue"/>'), "z"),
        row("deleted", "deleted", "deleted", properties="<w:del/>"),
        f"<w:ins>{row('n', 'e', 'w')}</w:ins>",
    )
    assert text_of(body).splitlines()[2:] == ["|  | 1 | 2 |", "| x |  | z |", "| n | e | w |"]


def test_a_header_row_gives_a_long_table_its_names_even_if_they_are_numbers():
    rows = [row("Item", "2022", "2023", properties=HEADER)]
    rows += [row(f"Item {n}", str(n), str(n + 1)) for n in range(80)]
    blocks = text_of(table(*rows)).split("\n\n")
    assert blocks[7] == "Item: Item 7\n2022: 7\n2023: 8"


def test_a_table_in_a_cell_stays_in_its_row():
    inner = table(row("x", "1"), row("y", "2"))
    body = table(
        row("Name", "Values of all the things"), row("one and only", f"<w:tc>{inner}</w:tc>")
    )
    assert text_of(body).splitlines()[-1] == "| one and only | x, 1; y, 2 |"


def test_a_table_that_arranges_a_page_is_read_as_its_contents():
    inner = table(row("Name", "Price"), row("Pump", "12"), row("Valve", "7"))
    around = table(row(f"<w:tc>{inner}</w:tc>", "small"))
    assert text_of(around) == (
        "| Name | Price |\n| --- | --- |\n| Pump | 12 |\n| Valve | 7 |\n\nsmall"
    )
    headed = table(row(cell(paragraph("Part", style="Heading1"), "text"), cell("side")))
    assert text_of(headed) == "# Part\n\ntext\n\nside"
    single = table(row(cell("one", "two")))
    assert text_of(single) == "one\n\ntwo"


def test_a_header_in_the_style_of_headings_does_not_break_a_table():
    heads = [cell(paragraph(name, style="Heading3"), "") for name in ("Name", "Price")]
    assert text_of(table(row(*heads), row("Pump", "12"))).startswith("| Name | Price |\n| ---")


def test_a_table_inside_a_paragraph_follows_it():
    body = f"<w:p>{run('before')}{table(row('a', 'b'), row('c', 'd'))}{run(' after')}</w:p>"
    assert text_of(body) == "before after\n\n| a | b |\n| --- | --- |\n| c | d |"


def test_a_style_hides_a_table_in_a_cell():
    hiding = style("Hiding", "Hiding", "<w:rPr><w:vanish/></w:rPr>", kind="table")
    inner = f'<w:tbl><w:tblPr><w:tblStyle w:val="Hiding"/></w:tblPr>{row("hidden", "x")}</w:tbl>'
    body = table(row("long enough", "b"), row(f"<w:tc>{paragraph('c')}{inner}</w:tc>", "d"))
    assert "hidden" not in text_of(body, styles=hiding)


def test_notes_and_boxes_in_cells_are_read():
    mark = '<w:r><w:footnoteReference w:id="1"/></w:r>'
    box = f"<w:r>{OLD.format(BOX.format(paragraph('box')))}</w:r>"
    body = table(row("a", "b"), row(cell(paragraph("c", mark)), cell(paragraph("d", box))))
    notes = f'<w:footnote w:id="1">{paragraph("note")}</w:footnote>'
    assert text_of(body, footnotes=notes).splitlines()[2:] == ["| c [1] | d box |", "", "[1] note"]


def test_libraries_write_what_is_read_here():
    document = docx.Document()
    document.add_heading("Title of all", 0)
    document.add_heading("First", 1)
    for text in ("one", "two"):
        document.add_paragraph(text, "List Number")
    document.add_paragraph("Between")
    document.add_paragraph("three", "List Number")
    table_ = document.add_table(3, 2)
    table_.cell(0, 0).merge(table_.cell(1, 0)).text = "both"
    table_.cell(0, 1).text, table_.cell(1, 1).text, table_.cell(2, 1).text = "x", "y", "z"
    expected = (
        "Title of all\n\n# First\n\n1. one\n2. two\n\nBetween\n\n3. three\n\n"
        "| both | x |\n| --- | --- |\n| both | y |\n|  | z |"
    )
    for content in (saved(document), strict(saved(document))):
        read = parse(content, DOCX, AMPLE_BYTES)
        assert (read.text, read.title) == (expected, "Title of all")


@pytest.mark.parametrize(
    "body",
    [
        "<w:tbl><w:tr><w:tc>" * 5_000 + paragraph("x") + "</w:tc></w:tr></w:tbl>" * 5_000,
        "<w:sdt><w:sdtContent>" * 10_000 + paragraph("x") + "</w:sdtContent></w:sdt>" * 10_000,
        f"<w:p>{'<w:smartTag>' * 20_000}{run('x')}{'</w:smartTag>' * 20_000}</w:p>",
        (
            f"<w:p>{'<w:r><w:ruby><w:rubyBase>' * 5_000}{run('x')}"
            f"{'</w:rubyBase></w:ruby></w:r>' * 5_000}</w:p>"
        ),
        (
            f"<w:p>{'<w:r><w:pict><w:txbxContent><w:p>' * 4_000}{run('x')}"
            f"{'</w:p></w:txbxContent></w:pict></w:r>' * 4_000}</w:p>"
        ),
        f"<w:p>{'<w:fldSimple>' * 5_000}{run('x')}{'</w:fldSimple>' * 5_000}</w:p>",
    ],
    ids=["tables", "controls", "tags", "ruby", "boxes", "fields"],
)
def test_elements_may_be_nested_to_any_depth(body):
    assert text_of(body) == "x"


def test_a_chain_of_many_styles_takes_linear_time():
    count = 20_000
    styles = "".join(style(f"s{n}", f"n{n}", based_on=f"s{n + 1}") for n in range(count))
    styles += style(f"s{count}", "heading 2")
    assert parsed(paragraph("x", style="s0"), styles=styles).headings[0].depth == 2


def test_merged_cells_do_not_multiply_a_text_beyond_the_limit():
    long_text = "x" * 100_000
    rows = [row(cell(long_text, properties='<w:vMerge w:val="restart"/>'), "a")]
    rows += [row(cell("", properties="<w:vMerge/>"), "a")] * 50
    with pytest.raises(TooLarge):
        parsed(table(*rows))


WORDS = st.text("abcdef", min_size=1, max_size=4)


@given(
    st.integers(2, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.tuples(WORDS, st.booleans()), min_size=width, max_size=width),
            min_size=2,
            max_size=4,
        )
    )
)
def test_the_cells_of_a_table_stay_in_their_rows_and_columns(grid):
    """Each cell of the grid has a word, and says whether it continues the cell above it.

    The words of the first row differ. A repeated word may be the name of a group of columns, and
    the header then has two rows, which are joined.
    """
    assume(len({word for word, _ in grid[0]}) == len(grid[0]))
    restart, more = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    rows, expected = [], []
    for number, line in enumerate(grid):
        rows.append(
            row(
                *(
                    cell(
                        "" if number and continues else word,
                        properties=more if number and continues else restart,
                    )
                    for word, continues in line
                )
            )
        )
        expected.append(
            [
                expected[-1][column] if number and continues else word
                for column, (word, continues) in enumerate(line)
            ]
        )
    lines = text_of(table(*rows)).splitlines()
    read = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    assert [cells for cells in read if set(cells) != {"---"}] == expected
