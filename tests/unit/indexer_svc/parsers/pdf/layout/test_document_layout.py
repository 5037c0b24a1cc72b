"""A document's pages become blocks: headings, paragraphs, tables and footnotes in reading order."""

import random

import pytest

from hrag.values.read_report import LeftOutKind
from indexer_svc.parsers.pdf.layout.blocks import Block
from indexer_svc.parsers.pdf.layout.document_layout import WINDOW_PAGES, DocumentLayout
from indexer_svc.parsers.pdf.layout.paragraphs import joined
from indexer_svc.parsers.pdf.layout.tables import PdfTable
from indexer_svc.parsers.pdf.page_content import Bookmark, FormValue, PageContent, Tag
from tests.support.documents.page_contents import (
    BOLD,
    FIXED,
    HEIGHT,
    WIDTH,
    grid,
    page,
    paragraph,
    run,
    table,
)

FULL = "words that fill the whole line from its left to its right end"


def laid_out(pages, bookmarks=()):
    layout = DocumentLayout(len(pages), bookmarks)
    for content in pages:
        layout.add(content)
    return list(layout.pages())


def texts(page_blocks):
    return [item.rows if isinstance(item, PdfTable) else item.text for item in page_blocks.blocks]


def test_a_page_of_paragraphs():
    [blocks] = laid_out([page(paragraph([FULL, FULL], 50, 100) + paragraph(["End."], 50, 140))])
    assert texts(blocks) == [f"{FULL} {FULL}", "End."]
    assert not blocks.is_unread


def test_running_heads_are_left_out_and_noted():
    pages = [
        page(
            [*paragraph([FULL] * 5, 50, 100), run("Report", 50, 30), run(str(index + 1), 300, 770)]
        )
        for index in range(4)
    ]
    read = laid_out(pages)
    assert [texts(blocks) for blocks in read] == [[" ".join([FULL] * 5)]] * 4
    assert [kind for kind, _ in read[0].left_out] == [
        LeftOutKind.RUNNING_HEAD,
        LeftOutKind.PAGE_NUMBER,
    ]


def test_running_heads_are_found_across_windows():
    count = WINDOW_PAGES + 1
    pages = [
        page([run(f"Page {7 * index} text", 50, 100), run("Report", 50, 30)])
        for index in range(count)
    ]
    read = laid_out(pages)
    assert [texts(blocks) for blocks in read] == [[f"Page {7 * at} text"] for at in range(count)]


def test_pages_that_have_only_the_same_words_keep_them():
    read = laid_out([page([run("Label", 50, 40)]) for _ in range(9)])
    assert [texts(blocks) for blocks in read] == [["Label"]] * 9


def test_headings_that_look_like_page_numbers_are_headings():
    pages = [page([run(f"Part {at + 1}", 50, 30), run("abc"[at], 50, 100)]) for at in range(3)]
    read = laid_out(pages, [Bookmark(f"Part {at + 1}", 1, at) for at in range(3)])
    assert [texts(blocks) for blocks in read] == [["Part 1", "a"], ["Part 2", "b"], ["Part 3", "c"]]


def test_contents_pages_are_left_out_and_noted():
    entries = [
        item
        for index in range(6)
        for item in (
            run(f"Part {index} . . . . .", 50, 100 + 14 * index),
            run(str(index), 400, 100 + 14 * index),
        )
    ]
    read = laid_out([page(entries), *(page([run("abcdef"[at], 50, 100)]) for at in range(6))])
    assert texts(read[0]) == []
    assert [kind for kind, _ in read[0].left_out] == [LeftOutKind.CONTENTS_PAGE]


def test_bookmarks_are_headings_in_the_order_of_the_page():
    content = page([run("One", 50, 80, size=14), *paragraph([FULL], 50, 100)])
    [blocks] = laid_out([content], [Bookmark("One", 1, 0), Bookmark("Hidden", 2, 0)])
    assert [(item.text, item.heading_depth) for item in blocks.blocks] == [
        ("One", 1),
        ("Hidden", 2),
        (FULL, 0),
    ]


def test_a_bookmark_of_a_page_without_text_is_a_heading_of_the_next_page():
    pages = [page([]), page(paragraph([FULL], 50, 100))]
    first, second = laid_out(pages, [Bookmark("Part II", 1, 0)])
    assert texts(first) == []
    assert texts(second) == ["Part II", FULL]
    assert texts(laid_out([page([])], [Bookmark("Part II", 1, 0)])[0]) == []


def test_tags_mark_headings():
    runs = [run("One", 50, 80, mark=1), *paragraph([FULL], 50, 100)]
    content = PageContent(WIDTH, HEIGHT, runs, tags={1: Tag(2, 7)})
    [blocks] = laid_out([content])
    assert [(item.text, item.heading_depth) for item in blocks.blocks] == [("One", 2), (FULL, 0)]


def test_a_ruled_table_stands_between_the_paragraphs():
    cells = [["a", "b"], ["c", "d"], ["e", "f"]]
    runs = paragraph([FULL], 50, 80) + table(cells, (54, 154), 113, pitch=20)
    runs += paragraph([FULL], 50, 190)
    rules = grid((50, 150, 250), (100, 120, 140, 160))
    [blocks] = laid_out([page(runs, rules)])
    assert texts(blocks) == [FULL, cells, FULL]


def test_a_table_on_the_next_page_gets_the_names_of_its_columns():
    names = [["Part", "Count", "Price"]]
    cells = [[f"Part {index}", str(index), f"{index}.5"] for index in range(40)]
    first = page(table(names + cells[:20], (50, 200, 300), 300))
    second = page(table(cells[20:], (50, 200, 300), 60))
    read = laid_out([first, second])
    assert texts(read[1]) == [names + cells[20:]]
    assert read[1].blocks[0].header_rows == 1


PARTS = [[f"Part {index}", str(index * 7919 % 991)] for index in range(32)]
NAMES = [["Name", "Count"]]
COLUMN = ["some words of a column that fill all of its line"] * 14


@pytest.mark.parametrize("shift", [0, 5])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_table_that_continues_in_the_next_column_is_one_table(shift, is_repeated):
    upper = table(NAMES + PARTS[:20], (30, 180), 210, pitch=12)
    again = NAMES if is_repeated else []
    lower = table(again + PARTS[20:], (310, 460), 100 + shift, pitch=12)
    below = paragraph(COLUMN, 310, 274 + shift)
    [blocks] = laid_out([page([*paragraph(COLUMN[:8], 30, 100), *upper, *lower, *below])])
    cells = NAMES + PARTS
    assert texts(blocks) == [" ".join(COLUMN[:8]), cells, " ".join(COLUMN)]


def test_a_table_beside_prose_stays_in_its_column():
    left = paragraph(COLUMN, 30, 100) + table(NAMES + PARTS[:9], (30, 180), 290)
    right = table(NAMES + PARTS[9:24], (310, 460), 100) + paragraph(COLUMN[:8], 310, 350)
    [blocks] = laid_out([page(left + right)])
    cells = NAMES + PARTS[:24]
    assert texts(blocks) == [" ".join(COLUMN), cells, " ".join(COLUMN[:8])]


@pytest.mark.parametrize("shift", [0, 5])
def test_a_table_that_fills_the_columns_of_pages_is_read_down_each_column(shift):
    left = table(NAMES + PARTS[:16], (30, 180), 100)
    right = table(NAMES + PARTS[16:], (310, 460), 100 + shift)
    [blocks] = laid_out([page(left + right)])
    assert texts(blocks) == [NAMES + PARTS]


def test_names_above_the_first_column_only_show_that_a_table_continues():
    left = table(NAMES + PARTS[:16], (30, 180), 100)
    left = [item._replace(font=BOLD) if item.baseline == 100 else item for item in left]
    [blocks] = laid_out([page(left + table(PARTS[16:], (310, 460), 100))])
    assert texts(blocks) == [NAMES + PARTS]


def test_a_table_goes_on_from_the_last_column_of_a_page_to_the_first_of_the_next():
    ys = [100 + 20 * index for index in range(12)]
    xs, next_xs = (310, 430, 550), (30, 150, 270)
    first = table(NAMES + PARTS[:10], (314, 434), 113, pitch=20)
    first = [item._replace(font=BOLD) if item.baseline == 113 else item for item in first]
    second = table(PARTS[10:21], (34, 154), 113, pitch=20)
    read = laid_out([page(first, grid(xs, ys)), page(second, grid(next_xs, ys))])
    assert texts(read[1]) == [NAMES + PARTS[10:21]]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_ruled_table_that_continues_in_the_next_column_is_one_table(is_repeated):
    cells = NAMES + PARTS[:14]
    rest = (NAMES if is_repeated else []) + PARTS[14:30]
    upper = table(cells, (34, 184), 223, pitch=20)
    upper = [item._replace(font=BOLD) if item.baseline == 223 else item for item in upper]
    lower = table(rest, (314, 464), 103, pitch=20)
    lower = [item._replace(font=BOLD) if item.text in NAMES[0] else item for item in lower]
    rules = grid((30, 180, 270), [210 + 20 * index for index in range(len(cells) + 1)])
    rules += grid((310, 460, 550), [90 + 20 * index for index in range(len(rest) + 1)])
    [blocks] = laid_out([page([*paragraph(COLUMN[:8], 30, 100), *upper, *lower], rules)])
    assert texts(blocks) == [" ".join(COLUMN[:8]), NAMES + PARTS[:30]]


@pytest.mark.parametrize("has_table_above", [False, True])
def test_a_wide_table_between_columns_is_one_table(has_table_above):
    years = [["Name", "2020", "2021", "2022"]]
    years += [[name, count, count[::-1], f"{count}5"] for name, count in PARTS[:9]]
    beside = table(NAMES + PARTS[:7], (310, 460), 100, pitch=12)
    above = paragraph(COLUMN[:8], 30, 100)
    above += beside if has_table_above else paragraph([*COLUMN[:7], "short"], 310, 100)
    below = paragraph(COLUMN[:8], 30, 380) + paragraph(COLUMN[:8], 310, 380)
    [blocks] = laid_out([page(above + table(years, (30, 180, 330, 460), 220) + below)])
    assert years in texts(blocks)


def test_a_table_with_a_wide_gap_in_the_middle_is_one_table():
    cells = [[name, count, count[::-1], f"{count}5"] for name, count in PARTS[:9]]
    [blocks] = laid_out([page(table(cells, (30, 130, 400, 480), 100))])
    assert texts(blocks) == [cells]


def test_a_table_of_four_equal_columns_is_one_table():
    units = ("parts", "places", "owners", "boxes")
    cells = [[f"{count} {unit}" for unit in units] for _, count in PARTS]
    [blocks] = laid_out([page(table(cells, (30, 170, 310, 450), 100))])
    assert texts(blocks) == [cells]


def test_a_ruled_table_over_both_columns_is_one_table():
    cells = [[name, count, count[::-1], f"{count}5"] for name, count in PARTS[:18]]
    ys = [210 + 20 * index for index in range(19)]
    runs = table(cells, (34, 184, 314, 464), 223, pitch=20)
    for x in (30, 310):
        runs += paragraph(COLUMN[:8], x, 100) + paragraph(COLUMN[:8], x, 600)
    [blocks] = laid_out([page(runs, grid((30, 180, 310, 460, 550), ys))])
    text = " ".join(COLUMN[:8])
    assert texts(blocks) == [f"{text} {text}", cells, f"{text} {text}"]


@pytest.mark.parametrize("shift", [-8, 0, 8])
def test_ruled_tables_beside_each_other_are_read_from_left_to_right(shift):
    ys = [100 + 20 * index for index in range(11)]
    rest = [["Street", "Trees"], *PARTS[9:18]]
    runs = table(NAMES + PARTS[:9], (34, 154), 113, pitch=20)
    runs += table(rest, (314, 434), 113 + shift, pitch=20)
    bold = {*NAMES[0], *rest[0]}
    runs = [item._replace(font=BOLD) if item.text in bold else item for item in runs]
    rules = grid((30, 150, 270), ys) + grid((310, 430, 550), [y + shift for y in ys])
    [blocks] = laid_out([page(runs, rules)])
    assert texts(blocks) == [NAMES + PARTS[:9], rest]


def test_two_different_tables_beside_each_other_are_not_joined():
    towns = [["Town", "Houses"], *([f"Place {index}", str(index * 11)] for index in range(9))]
    xs, ys = (30, 150, 270), [100 + 20 * index for index in range(11)]
    runs = table(NAMES + PARTS[:9], (34, 154), 113, pitch=20)
    runs += table(towns, (314, 434), 113, pitch=20)
    rules = grid(xs, ys) + grid([x + 280 for x in xs], ys)
    bold = [item._replace(font=BOLD) if item.baseline == 113 else item for item in runs]
    [blocks] = laid_out([page(bold, rules)])
    assert texts(blocks) == [NAMES + PARTS[:9], towns]


def test_footnotes_of_the_first_column_come_after_the_second():
    line = "some words of a column that fill all of its line"
    runs = paragraph([line] * 10, 30, 500) + paragraph([line] * 10, 310, 500)
    runs += [run("1", 30, 636, size=5), run("Ask the owner first.", 34, 640, size=7)]
    [blocks] = laid_out([page(runs)])
    assert texts(blocks)[-1] == "[1] Ask the owner first."


def test_a_paragraph_goes_on_in_the_next_column():
    left = ["some words of a column that fill all of its line"] * 5
    right = ["and more words of the column that fill its line."] * 5
    [blocks] = laid_out([page(paragraph(left, 30, 100) + paragraph(right, 310, 100))])
    assert texts(blocks) == [" ".join(left + right)]


def test_a_word_that_a_new_page_breaks_is_on_the_first_page():
    pages = [page([run("the trans-", 50, 700)]), page([run("portation of goods", 50, 60)])]
    assert [texts(blocks) for blocks in laid_out(pages)] == [["the transportation"], ["of goods"]]


@pytest.mark.parametrize(
    ("end", "start"), [("a speed in m/", "s. "), ("a bro-", "ken "), ("a -", "")]
)
def test_a_page_ends_with_a_whole_word(end, start):
    pages = [
        page(paragraph([FULL, end], 50, 100)),
        page(paragraph([f"{start}more", FULL], 50, 100)),
    ]
    first, second = laid_out(pages)
    whole = joined(end, start.strip()) if start else end
    assert texts(first) == [f"{FULL} {whole}"]
    assert texts(second) == [f"more {FULL}"]


def test_values_of_a_form_stand_beside_their_labels():
    content = PageContent(
        WIDTH,
        HEIGHT,
        [run("Name:", 50, 100)],
        form_values=[FormValue("Ada Sample", 90, 88, 250, 106)],
    )
    assert texts(laid_out([content])[0]) == ["Name: Ada Sample"]


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_sideways_text_is_apart_from_the_text(angle):
    runs = [*paragraph([FULL], 50, 100), run("Sideways words", 50, 102, angle=angle)]
    assert texts(laid_out([page(runs)])[0]) == [FULL, "Sideways words"]


def test_a_sheet_of_code_is_code_and_a_typescript_is_text():
    code = ["x = read(name);", "y = [x, 2];", "print(x + y);"]
    sheet = [run(line, 50, 100 + 12 * at, font=FIXED) for at, line in enumerate(code)]
    assert [block.is_code for block in laid_out([page(sheet)])[0].blocks] == [True]
    letter = ["Dear Ada,", "this letter was typed", "on an old machine."]
    typed = [run(line, 50, 100 + 12 * at, font=FIXED) for at, line in enumerate(letter)]
    assert not any(block.is_code for block in laid_out([page(typed)])[0].blocks)


def test_a_page_of_unknown_characters_is_unread():
    [blocks] = laid_out([page([run("\ufffd\ufffd\ufffd\x02 ab", 50, 100)])])
    assert blocks.is_unread
    assert texts(blocks) == []


def test_a_page_of_pictures_is_unread_and_an_empty_page_is_not():
    picture, empty = laid_out(
        [PageContent(WIDTH, HEIGHT, has_pictures=True), PageContent(WIDTH, HEIGHT)]
    )
    assert picture.is_unread
    assert not empty.is_unread


@pytest.mark.parametrize(
    ("number", "rise", "gap", "size", "expected"),
    [
        ("1", 5, 0.5, 5.5, ["[1] Ask us first."]),
        ("12", 4.5, 2, 5.5, ["[12] Ask us first."]),
        ("*", 5, 0.5, 6, ["[*] Ask us first."]),
        ("1", 5, 30, 5.5, ["1", "Ask us first."]),  # It stands apart.
        ("1", 12, 0.5, 5.5, ["1", "Ask us first."]),  # It is the line above.
        ("See", 5, 0.5, 5.5, ["See", "Ask us first."]),
    ],
)
def test_the_raised_number_of_a_footnote_is_in_its_line(number, rise, gap, size, expected):
    left = 60 - gap - 0.5 * size * len(number)
    note = [run(number, left, 700 - rise, size=size), run("Ask us first.", 60, 700, size=6)]
    [blocks] = laid_out([page([*paragraph([FULL] * 5, 50, 100), *note])])
    assert texts(blocks)[1:] == expected


@pytest.mark.parametrize(
    ("has_pictures", "label", "is_unread"),
    [
        (True, "", True),
        (True, "Name:", False),
        (False, "", False),
        (False, "\ufffd\ufffd\ufffd", True),
    ],
)
def test_a_page_with_form_values_is_unread_if_its_labels_are(has_pictures, label, is_unread):
    values = [FormValue("Ada", 100, 90, 200, 104)]
    runs = [run(label, 50, 100)] if label else []
    content = PageContent(WIDTH, HEIGHT, runs, form_values=values, has_pictures=has_pictures)
    [blocks] = laid_out([content])
    assert blocks.is_unread == is_unread
    assert " ".join(texts(blocks)) == ("Name: Ada" if label == "Name:" else "Ada")


@pytest.mark.parametrize("seed", range(30))
def test_every_word_is_read_once(seed):
    """Words are scattered over the page, so that any part of the layout may get them."""
    rng = random.Random(seed)
    runs = []
    for index in range(rng.randint(1, 120)):
        x = rng.choice((50, 51, 200, 310, rng.uniform(0, 550)))
        y = rng.choice((100, 112, 124, 700, rng.uniform(30, 780)))
        runs.append(run(f"w{index}q", x, y, size=rng.choice((10, 10, 7, 14))))
    rules = grid((40, 190, 300, 590), (90, 104, 116, 130)) if seed % 2 else []
    [blocks] = laid_out([page(runs, rules)])
    read = "\n".join(
        item.text if isinstance(item, Block) else "\n".join(" ".join(row) for row in item.rows)
        for item in blocks.blocks
    )
    for item in runs:
        assert item.text in read
    assert sum(read.count(item.text) for item in runs if isinstance(item, object)) >= len(runs)


def test_a_hostile_page_takes_no_time_that_grows_with_its_square():
    runs = [
        run("a", (index * 37) % 590, (index * 7919) % 7901 / 10, size=5) for index in range(40_000)
    ]
    [blocks] = laid_out([page(runs)])
    assert blocks.blocks


@pytest.mark.parametrize(("size", "depth"), [(20, 1), (10, 0)])
@pytest.mark.parametrize("has_rules", [True, False])
def test_a_title_above_a_table_that_is_all_of_the_text(size, depth, has_rules):
    cells = [[f"Part {row}", str(row), f"{row}.5"] for row in range(6)]
    runs = [run("The parts", 54, 60, size=size), *table(cells, (54, 154, 254), 113, pitch=20)]
    rules = grid((50, 150, 250, 350), range(100, 240, 20)) if has_rules else ()
    [blocks] = laid_out([page(runs, rules)])
    title, found = blocks.blocks
    assert (title.text, title.heading_depth) == ("The parts", depth)
    assert found.rows == cells


def test_bold_rows_of_a_table_are_no_headings():
    cells = [[f"Part {row}", str(row), f"{row}.5"] for row in range(6)]
    bold = [
        run(text, x, 113, font=BOLD)
        for text, x in zip(("Pumps", "2", "3"), (54, 154, 254), strict=True)
    ]
    runs = [run("The parts", 54, 60, size=20), *bold, *table(cells, (54, 154, 254), 133, pitch=20)]
    [blocks] = laid_out([page(runs, grid((50, 150, 250, 350), range(100, 260, 20)))])
    assert [item.heading_depth for item in blocks.blocks if isinstance(item, Block)] == [1]
