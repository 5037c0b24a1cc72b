"""Headings are found by bookmarks, or by a style that differs from that of the text."""

import pytest

from indexer_svc.parsers.pdf.layout.blocks import blocks_of
from indexer_svc.parsers.pdf.layout.headings import (
    MissingHeading,
    body_style,
    mark_bookmarks,
    mark_typographic,
    table_styles,
)
from indexer_svc.parsers.pdf.layout.paragraphs import NO_WORDS
from indexer_svc.parsers.pdf.page_content import Bookmark
from tests.support.documents.page_contents import (
    BOLD,
    FIXED,
    ITALIC,
    REGULAR,
    lines,
    paragraph,
    run,
    words,
)

TEXT = "some words of the text that go on and on to the end of the line,"


def marked(texts, *titles):
    """Returns the lines of one page that are headings, and the titles that were not found."""
    page = lines(paragraph(texts, 50, 100))
    missing = mark_bookmarks([page], [Bookmark(title, 1, 0) for title in titles])
    return [line.text for line in page if line.heading_depth], [
        item.bookmark.title for item in missing
    ]


@pytest.mark.parametrize(
    "line",
    [
        "On the valve",
        "ON THE VALVE",
        "2.1 On the valve",
        "IV. On the valve",
        "Chapter 3: On the valve",
    ],
)
def test_the_line_of_a_bookmark_may_be_numbered_and_in_another_case(line):
    assert marked(["More on the valve", line, "text"], "On the valve") == ([line], [])


def test_the_title_of_a_bookmark_may_be_broken():
    assert marked(["Chapter 3", "On the", "valve", "text"], "Chapter 3 On the valve")[0] == [
        "Chapter 3",
        "On the",
        "valve",
    ]


@pytest.mark.parametrize("end", ["s.", "12.", "2019.", "IV.", "A."])
@pytest.mark.parametrize("title", [["On the valve"], ["On the", "valve"], ["3.1 On the valve"]])
def test_the_end_of_the_paragraph_above_is_no_number_of_a_title(end, title):
    runs = paragraph(["it moves by 5 m/", end], 50, 100)
    runs += paragraph(title, 50, 136)
    page = lines(runs)
    assert mark_bookmarks([page], [Bookmark("On the valve", 1, 0)]) == []
    assert [line.text for line in page if line.heading_depth] == title


def test_the_end_of_a_paragraph_at_the_top_of_a_column_is_no_number_of_a_title():
    left = lines(paragraph(["words", "it moves by 5 m/"], 50, 700))
    right = lines([run("s.", 320, 100), run("On the valve", 320, 124, font=BOLD)])
    assert mark_bookmarks([left + right], [Bookmark("On the valve", 1, 0)]) == []
    assert [line.text for line in left + right if line.heading_depth] == ["On the valve"]


def test_bookmarks_with_the_same_title_have_different_lines():
    assert marked(["Use", "text", "Use", "text"], "Use", "Use") == (["Use", "Use"], [])


def test_a_bookmark_without_a_line():
    page = lines(paragraph(["One", "text"], 50, 100))
    bookmarks = [Bookmark("One", 1, 0), Bookmark("Nowhere", 2, 0)]
    assert mark_bookmarks([page], bookmarks) == [MissingHeading(bookmarks[1], 1)]


def typographic(runs, contents=()):
    """Returns the headings of one page: depth and text."""
    page = lines(runs)
    blocks = blocks_of(page, NO_WORDS, fixed_is_code=True)
    mark_typographic([blocks], body_style(page), contents)
    return [(block.heading_depth, block.text) for block in blocks if block.heading_depth]


def sections(*heads, **style):
    """Returns a page on which a heading is above each paragraph. A heading has size and font."""
    runs = paragraph([TEXT * 2] * 6, 50, 40)
    y = 140.0
    for text, size, font in heads:
        runs.append(run(text, 50, y, size=size, font=font or runs[0].font))
        runs += paragraph([TEXT] * 3, 50, y + 20)
        y += 80
    return runs


def test_larger_lines_are_headings_by_size():
    assert typographic(sections(("One", 18, None), ("Sub", 14, None), ("Two", 18, None))) == [
        (1, "One"),
        (2, "Sub"),
        (1, "Two"),
    ]


def test_bold_lines_are_headings():
    assert typographic(sections(("One", 10, BOLD), ("Two", 10, BOLD))) == [(1, "One"), (1, "Two")]


def test_italic_lines_that_stand_apart_are_headings():
    assert typographic(sections(("One", 14, None), ("Small words", 10, ITALIC))) == [
        (1, "One"),
        (2, "Small words"),
    ]


def test_numbers_say_the_depth_within_a_style():
    assert typographic(
        sections(("1 One", 12, BOLD), ("1.1 Sub", 12, BOLD), ("2 Two", 12, BOLD))
    ) == [
        (1, "1 One"),
        (2, "1.1 Sub"),
        (1, "2 Two"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "A sentence that ends with a stop.",
        "Figure 3: A pump",
        "Table 1. Parts",
        "123.45",
        "x" * 400,
    ],
)
def test_bold_text_that_is_no_heading(text):
    assert typographic(sections((text, 10, BOLD))) == []


def first_page(*heads):
    """Returns a page with lines in larger fonts above its text, and a section below it."""
    runs = [
        run(text, 50, 40 + 30 * at, size=size, font=font or REGULAR)
        for at, (text, size, font) in enumerate(heads)
    ]
    runs += paragraph([TEXT] * 5, 50, 60 + 30 * len(heads))
    runs.append(run("9 Last section", 50, 500, size=14, font=BOLD))
    return runs + paragraph([TEXT] * 3, 50, 520)


def test_of_the_lines_above_the_text_only_titles_are_headings():
    authors = [("Ann Author", 12, None), ("University of Brindlewick", 12, None)]
    runs = first_page(
        ("The title", 20, None), *authors, ("12 May 2019", 12, None), ("Abstract", 11, BOLD)
    )
    assert [text for _, text in typographic(runs)] == ["The title", "Abstract", "9 Last section"]


def test_of_lines_in_one_style_above_the_text_only_the_last_is_a_heading():
    dates = [("Ann Author", 14, BOLD), ("Printed in May", 14, BOLD)]
    runs = first_page(("The title", 20, None), *dates)
    found = [text for _, text in typographic(runs)]
    assert found == ["The title", "Printed in May", "9 Last section"]


def test_a_numbered_title_of_capitals_has_the_depth_of_its_number():
    heads = [("1 One", 12, BOLD), ("1.1 Lists", 12, BOLD), ("1.2 NULL", 12, BOLD)]
    assert [depth for depth, _ in typographic(sections(*heads))] == [1, 2, 2]


def test_the_style_of_a_later_heading_does_not_make_a_title_of_an_author():
    authors = [("Ann Author", 14, BOLD), ("University of Brindlewick", 12, None)]
    runs = first_page(("The title", 20, None), *authors, ("Abstract", 11, BOLD))
    assert [text for _, text in typographic(runs)] == ["The title", "Abstract", "9 Last section"]


def test_numbered_headings_on_a_first_page_without_long_paragraphs():
    heads = [("The title", 20, None), ("Ann Author", 12, None), ("1 Use", 14, BOLD)]
    runs = [
        run(text, 50, 40 + 40 * at, size=size, font=font or REGULAR)
        for at, (text, size, font) in enumerate(heads)
    ]
    runs += paragraph(["Short words."], 50, 150)
    runs.append(run("2 Care", 50, 190, size=14, font=BOLD))
    first, second = lines(runs), lines(sections(("3 Spares", 14, BOLD), ("4 Waste", 14, BOLD)))
    pages = [blocks_of(page, NO_WORDS, fixed_is_code=True) for page in (first, second)]
    mark_typographic(pages, body_style(first + second), ())
    found = [block.text for page in pages for block in page if block.heading_depth]
    assert found == ["The title", "1 Use", "2 Care", "3 Spares", "4 Waste"]


@pytest.mark.parametrize("title", ["1 Unreleased (0.1.0)", "2 Version 1.0.3 (2019-05-01)", "Use"])
def test_headings_that_follow_one_another_above_the_text(title):
    # The style of the title is that of a later heading.
    runs = first_page(("The title", 20, None), (title, 14, BOLD), ("Search", 12, BOLD))
    assert typographic(runs) == [
        (1, "The title"),
        (2, title),
        (3, "Search"),
        (2, "9 Last section"),
    ]


def test_a_number_that_the_next_line_continues_is_that_of_a_heading():
    runs = first_page(
        ("The title", 20, None), ("1 Unreleased (0.1.0)", 16, BOLD), ("1.1 Search", 14, BOLD)
    )
    assert [text for _, text in typographic(runs)] == [
        "The title",
        "1 Unreleased (0.1.0)",
        "1.1 Search",
        "9 Last section",
    ]


def test_the_depth_of_a_number_before_digits():
    heads = [
        ("1 One", 12, BOLD),
        ("1.1 2019 was good", 12, BOLD),
        ("1.2 0.1.0 was better", 12, BOLD),
    ]
    assert [depth for depth, _ in typographic(sections(*heads))] == [1, 2, 2]


def test_a_table_of_contents_confirms_a_heading():
    heads = [("Plain title", 10, None)]
    assert typographic(sections(*heads)) == []
    assert typographic(sections(*heads), ["Plain title"]) == [(1, "Plain title")]


def test_a_list_of_bold_lines_is_no_list_of_headings():
    runs = paragraph([TEXT] * 8, 50, 40)
    runs += [run(f"Bold line {index}", 50, 200 + 30 * index, font=BOLD) for index in range(5)]
    assert typographic(runs) == []


NARROW = "some words of a narrow column"


def narrow(*heads, text=(NARROW, NARROW, "and the end.")):
    """Returns a page of short paragraphs in a narrow column, each below lines of a heading.

    Each line has parts, and each part has a text, a size and a font.
    """
    runs = []
    y = 40.0
    for head in heads:
        for parts in head:
            x = 50.0
            for part, size, font in parts:
                runs.append(run(part, x, y, size=size, font=font))
                x += 0.5 * size * (len(part) + 1)
            y += 16
        y += 4
        runs += paragraph(text, 50, y)
        y += 12 * len(text) + 24
    return runs


def line(text, size=13, font=BOLD):
    """Returns a line with one part."""
    return [(text, size, font)]


@pytest.mark.parametrize("number", ["", "1 "])
def test_headings_above_short_paragraphs_of_the_first_page(number):
    heads = [[line(f"{number}{text}")] for text in ("Use", "Care", "Waste")]
    found = typographic(narrow([line("The title", 18)], *heads))
    assert found == [
        (1, "The title"),
        *((2, f"{number}{text}") for text in ("Use", "Care", "Waste")),
    ]


def test_an_address_above_the_text_is_no_paragraph():
    address = ("Institute of Pumps", "Brindlewick", "Long Street 12.")
    heads = [[line(text)] for text in ("Ann Author", "Ben Author", "Cy Author")]
    runs = narrow([line("The title", 18)], *heads, text=address)
    assert typographic(runs) == [(1, "The title")]


@pytest.mark.parametrize(
    "head",
    [
        [line("Keys are in a volume and"), line("secrets", 11, FIXED)],
        [
            line("Keys are in some"),
            [("volume", 13, BOLD), ("secrets,", 11, FIXED)],
            line("by name"),
        ],
        [[("make secrets", 11, FIXED), ("is", 13, BOLD)], line("the command for it")],
        [line("secrets.create-them", 11.5, FIXED), line("makes the keys of it")],
        [line("The keys of the trans-"), line("portation of goods")],
    ],
)
def test_a_heading_of_several_lines(head):
    heads = [[line("One")], head, [line("Two")]]
    found = typographic(narrow(*heads))
    assert [depth for depth, _ in found] == [1, 1, 1]
    whole = " ".join(part for parts in head for part, _, _ in parts).replace("- ", "")
    assert [text for _, text in found] == ["One", whole, "Two"]


def test_two_headings_without_text_between_them_stay_two():
    heads = [[line("One part of the whole", 16), line("A section of it")], [line("Another")]]
    assert typographic(narrow(*heads)) == [
        (1, "One part of the whole"),
        (2, "A section of it"),
        (2, "Another"),
    ]


def test_bold_words_before_a_sentence_are_no_heading():
    parts = [("The pump.", 10, BOLD), ("It moves by some more words", 10, REGULAR)]
    assert typographic(narrow([line("One")], [parts], [line("Two")])) == [(1, "One"), (1, "Two")]


@pytest.mark.parametrize(
    ("text", "size"), [("Only a title", 9), ("Only a title", 20), ("A sentence. Or two.", 20)]
)
def test_the_style_of_tables_is_that_of_the_text_if_there_are_no_sentences(text, size):
    cells = table_styles(words(paragraph(["Cell"] * 20, 50, 100, size=9)))
    expected = size if text.endswith(".") else 9
    assert body_style(lines([run(text, 50, 50, size=size)]), cells).size == expected


def test_a_page_that_has_only_a_table():
    assert body_style([], table_styles(words([run("Cell", 50, 50, size=9)]))).size == 9
