"""The rows of a long Markdown table name their columns; all other text stays as it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooLarge
from hrag.types import MARKDOWN, Document, Page
from indexer_svc.extract import extract
from indexer_svc.parsers.markdown import parse_markdown
from indexer_svc.parsers.parsed_file import Edit, ParsedFile, moved
from indexer_svc.parsers.parser_functions import parse

AMPLE_BYTES = 1 << 20
COUNT = 100
ROWS = "\n".join(f"| MX-{n} | {n + 7} | {n * 3} |" for n in range(COUNT))
TABLE = f"| Model | Speed | Torque |\n|---|:--|--:|\n{ROWS}"
RECORDS = "\n\n".join(f"Model: MX-{n}\nSpeed: {n + 7}\nTorque: {n * 3}" for n in range(COUNT))


def parsed(text: str) -> ParsedFile:
    return parse_markdown(text.encode(), AMPLE_BYTES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\ufeff", "\n"),
        ("# Motors\n\n", "\n\nThe end.\n"),
        ("Text\n \n", "\n   \nText"),
        ("> quote\n\n", "\n\n---\n"),
        ("```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\n\n", "\n"),
    ],
)
def test_a_long_table_becomes_records_and_no_other_text_changes(before, after):
    assert parsed(before + TABLE + after).text == before + RECORDS + after


@pytest.mark.parametrize("line_before", ["# Motors\n", "Text:\n", ""])
@pytest.mark.parametrize("line_after", ["\n# End\n", "\n- item", "\n> quote", "\n```\n```", ""])
def test_records_become_paragraphs_of_their_own(line_before, line_after):
    text = parsed(line_before + TABLE + line_after).text
    before = f"{line_before}\n" if line_before else ""
    assert text == before + RECORDS + (f"\n{line_after}" if line_after else "")


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{TABLE}\n```\n",
        f"~~~~\n{TABLE}\n~~~\n",
        "\n".join(f"    {line}" for line in TABLE.split("\n")),
        f"<pre>\n{TABLE}\n</pre>\n",
        f"<!--\n{TABLE}\n-->\n",
        "\n".join(f"> {line}" for line in TABLE.split("\n")),
        "- item\n\n" + "\n".join(f"  {line}" for line in TABLE.split("\n")),
        TABLE.replace("|---|:--|--:|", "|---|:--|"),
        TABLE.replace("|---|:--|--:|\n", ""),
        "\n".join(TABLE.split("\n")[:20]),
        "a\n|-|\nb\n",
    ],
    ids=[
        *("fenced", "fence of tildes", "indented", "preformatted", "comment", "quote", "list"),
        *("too few columns in the rule", "no rule", "short", "no header"),
    ],
)
def test_what_is_no_long_table_stays(text):
    result = parsed(text)
    assert (result.text, result.edits) == (text, ())


def test_a_table_that_is_long_only_because_of_spaces_stays():
    text = f"| a | b |\n|---|---|\n| 1 | {' ' * 2_000}2 |\n"
    assert parsed(text).text == text


@pytest.mark.parametrize(
    ("row", "record"),
    [
        ("| a | b |", "X: a\nY: b"),
        ("a | b", "X: a\nY: b"),
        ("  | a | b", "X: a\nY: b"),
        ("| a |", "X: a"),
        ("| | b |", "Y: b"),
        ("| a | b | c |", "X: a\nY: b\nc"),
        (r"| a\|b | `c\|d` |", "X: a|b\nY: `c|d`"),
        ("| a | `c|d` or ``e|`f`` |", "X: a\nY: `c|d` or ``e|`f``"),
        (r"`a|b\|c` | d", "X: `a|b|c`\nY: d"),
        ("| `a | b` |", "X: `a\nY: b`"),
        ("| `a|b` | c | d |", "X: `a\nY: b`\nc\nd"),
        ("| a ` b | c ` d | e |", "X: a ` b | c ` d\nY: e"),
        ("| **a** | [b](u) |", "X: **a**\nY: [b](u)"),
        ("| # a | - b |", "X: # a\nY: - b"),
        ("| 表 | 表 |", "X: 表\nY: 表"),
    ],
)
def test_a_row_becomes_a_record_with_its_markup(row, record):
    filler = "| some text | more text |\n" * 60
    assert parsed(f"X | Y\n--- | ---\n{filler}{row}").text.split("\n\n")[-1] == record


def test_line_ends_of_windows_and_headings_around_tables_are_kept():
    text = f"# One\n\n{TABLE}\n\n## Two\n\n{TABLE}\n# Three\n".replace("\n", "\r\n")
    result = parsed(text)
    for heading in result.headings:
        mark = "#" * heading.depth
        assert result.text.startswith(f"{mark} {heading.title}", heading.char_start)
    assert [heading.title for heading in result.headings] == ["One", "Two", "Three"]
    assert result.text.startswith("# One\r\n\r\nModel: MX-0\n")
    assert "Torque: 297\r\n\r\n## Two\r\n\r\nModel" in result.text


def test_pages_of_a_client_move_with_the_tables():
    pages = (Page("# Front\n\nfirst"), Page(TABLE), Page(f"a\n\n{TABLE}\n\nb"), Page("last"))

    def read(content: bytes, mime_type: str, max_bytes: int) -> ParsedFile:
        return parse(content, mime_type, max_bytes)

    extracted = extract(Document(pages, mime_type=MARKDOWN), AMPLE_BYTES, read).parsed
    texts = [extracted.text[page.char_start : page.char_end] for page in extracted.pages]
    assert texts == ["# Front\n\nfirst", RECORDS, f"a\n\n{RECORDS}\n\nb", "last"]


def test_records_may_not_exceed_the_limit():
    with pytest.raises(TooLarge, match="more than 3000 bytes of text"):
        parse_markdown(TABLE.encode(), 3_000)


def test_a_long_name_in_each_of_many_records_is_refused_early():
    """The records of this table have 10 GB."""
    text = f"| {'x' * 100_000} | b |\n|---|---|\n" + "| 1 | 2 |\n" * 100_000
    with pytest.raises(TooLarge):
        parse_markdown(text.encode(), AMPLE_BYTES)


CELLS = st.text(st.sampled_from("ab 1|\\`#->*"), max_size=8)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=8), CELLS)
def test_no_cell_of_a_long_table_is_lost(rows, name):
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    header = f"| x{name.replace('|', ' ').replace(chr(92), ' ')} | y |"
    filler = ["| some text | more text |"] * 60
    result = parsed("\n".join((header, "|---|---|", *filler, *lines, "")))
    assert result.edits
    shown = result.text.replace("\\|", "|")
    for cell in (cell for row in rows for cell in row):
        assert " ".join(cell.split()).replace("\\|", "|") in shown


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 9)), max_size=5),
    st.lists(st.integers(0, 80), max_size=10),
)
def test_offsets_move_with_the_text(gaps, offsets):
    """An offset outside of the edits stays at its character; the order of offsets stays."""
    source, text, edits = "", "", []
    for kept, removed, added in gaps:
        passage = "".join(chr(0x4E00 + len(source) + at) for at in range(kept))
        edits.append(Edit(len(source) + kept, len(source) + kept + removed, added))
        source += passage + "-" * removed
        text += passage + "+" * added
    source, text = source + "\u9000", text + "\u9000"
    offsets = sorted(offset for offset in offsets if offset < len(source))
    results = list(moved(offsets, edits))
    assert results == sorted(results)
    for offset, result in zip(offsets, results, strict=True):
        assert source[offset] in ("-", text[result])
