"""Rows with aligned gaps are tables, and the cells of a row stay in it."""

import random
from itertools import pairwise

import pytest

from indexer_svc.parsers.pdf.layout.aligned_tables import aligned_tables
from indexer_svc.parsers.pdf.page_content import RuledLine
from tests.support.documents.page_contents import (
    BOLD,
    FIXED,
    REGULAR,
    justified,
    paragraph,
    rows,
    run,
    table,
)

XS = (50, 200, 300, 400)


def found(runs, rules=()):
    return [item for _, _, item in aligned_tables(rows(runs), rules)]


def right_aligned(cells, edges, y, pitch=14):
    """Returns runs whose first column begins, and whose other columns end, at the edges."""
    return [
        run(text, edge if column == 0 else edge - 5 * len(text), y + pitch * index)
        for index, row in enumerate(cells)
        for column, (text, edge) in enumerate(zip(row, edges, strict=True))
        if text
    ]


def test_an_aligned_table():
    cells = [
        ["Part", "Count", "Price", "Code"],
        ["Pump", "1", "120", "N"],
        ["Valve", "7", "8", "Y"],
    ]
    [item] = found(table(cells, XS, 100))
    assert item.rows == cells
    assert item.header_rows == 1


def test_numbers_that_are_one_space_apart_are_in_different_columns():
    cells = [["Theft", "240.9", "60.3", "180.6"], ["Arson", "117.2", "90.1", "200.4"]] * 2
    [item] = found(right_aligned(cells, (50, 200, 228, 260), 100))
    assert item.rows == cells


@pytest.mark.parametrize(
    ("gap", "rows_of", "is_divided"),
    [
        (4, ["Pump", "Turbine", "Valve", "Turbine", "Wire", "Basins"], True),
        (4, ["Turbine", "Wire", "Turbine", "Valve"], False),
        (3, ["Pump", "Turbine", "Valve", "Turbine", "Wire", "Basins"], False),
        (4, ["Turbine"] * 6, False),  # The same word is before all words.
    ],
)
def test_a_narrow_gutter_divides_words_that_begin_at_the_same_place(gap, rows_of, is_divided):
    cells = [[part, "Acme", f"{index}.5"] for index, part in enumerate(rows_of)]
    [item] = found(table(cells, (50, 85 + gap, 200), 100))
    assert (len(item.rows[0]) == 3) == is_divided
    assert [" ".join(row) for row in item.rows] == [" ".join(row) for row in cells]


def test_the_number_of_a_line_is_in_the_cell_of_its_text():
    numbers = ["1.", "2.", "10.", "11.", "12.", "9."]
    cells = [[number, "Pump", str(at), "7"] for at, number in enumerate(numbers)]
    [item] = found(table(cells, (50, 69, 200, 300), 100))
    assert item.rows == [[f"{number} {name}", *rest] for number, name, *rest in cells]


def test_names_that_are_a_little_more_than_a_space_apart_are_in_their_columns():
    cells = [["Part", "Count", "Price"], *([f"x{at}", str(at), f"{at}.5"] for at in range(6))]
    [item] = found(table(cells, (50, 150, 179), 100))
    assert item.rows == cells


def test_dots_that_lead_to_a_number_are_left_out():
    runs = [
        run("Burglary. . . . . . .", 50, 100),
        run("Theft . . . . . . . .", 50, 114),
        run("Arson . . . . . . . .", 50, 128),
        *table([["240.9", "60.3"], ["117.2", "9.1"], ["12.0", "1.1"]], (200, 300), 100),
    ]
    [item] = found(runs)
    assert item.rows[1:] == [["Theft", "117.2", "9.1"], ["Arson", "12.0", "1.1"]]


def test_a_header_over_two_columns_is_repeated():
    head = [run("Revenue in millions", 210, 86)]
    cells = [["Item", "2022", "2023"], ["Pumps", "12", "15"], ["Valves", "7", "8"]]
    [item] = found(head + table(cells, (50, 210, 290), 100))
    assert item.rows[:2] == [
        ["", "Revenue in millions", "Revenue in millions"],
        ["Item", "2022", "2023"],
    ]
    assert item.header_rows == 2


def test_cells_that_are_centred_beside_wrapped_cells_are_in_their_row():
    runs = table([["Name", "Note", "Sum"]], (50, 200, 400), 100)
    for index, name in enumerate(("Pump", "Valve", "Seal")):
        y = 130 + 40 * index
        runs += [run(name, 50, y), run("a first line", 200, y - 6), run("and more", 200, y + 6)]
        runs += [run(str(index + 5), 400, y)]
    [item] = found(runs)
    assert item.rows[1:] == [
        ["Pump", "a first line and more", "5"],
        ["Valve", "a first line and more", "6"],
        ["Seal", "a first line and more", "7"],
    ]


def test_wrapped_cells_are_joined_if_rows_are_farther_apart_than_lines():
    runs = table([["Name", "Note", "Sum"]], (50, 200, 400), 100)
    for index in range(4):
        y = 130 + 40 * index
        runs += [run(f"Part {index}", 50, y), run("First", 200, y), run("Second", 200, y + 12)]
        runs += [run(str(index), 400, y)]
    [item] = found(runs)
    assert item.rows[2] == ["Part 1", "First Second", "1"]


def test_rows_with_numbers_are_never_joined():
    cells = [
        ["Europe", "France", "10"],
        ["", "Spain", "12"],
        ["Asia", "Japan", "7"],
        ["", "China", "9"],
    ]
    [item] = found(table(cells, (50, 200, 300), 100, pitch=12))
    assert item.rows == cells


def test_a_label_over_two_lines_belongs_to_the_numbers_of_its_last_line():
    cells = [
        ["Cash", "10", "12"],
        ["Receivables from", "", ""],
        ["other companies", "7", "9"],
        ["Sum", "17", "21"],
    ]
    [item] = found(table(cells, (50, 200, 300), 100, pitch=12))
    assert ["Receivables from other companies", "7", "9"] in item.rows


def test_a_line_below_the_names_ends_the_header():
    cells = [["Code", "Name"], ["ab", "first thing"], ["cd", "second thing"], ["ef", "third thing"]]
    [item] = found(table(cells, (50, 200), 100), [RuledLine(50, 104, 300, 104)])
    assert item.header_rows == 1


@pytest.mark.parametrize("edges", [[50, 195, 295, 450], [50, 120, 195, 295, 360, 450]])
def test_lines_below_the_cells_divide_the_rows(edges):
    """Each cell has a line below it. All lines of text are equally far apart."""
    cells = [
        ["Risk", "Measure", "Owner"],
        ["Loss of", "A second", "The"],
        ["power at", "generator", "northern"],
        ["stations", "", "team"],
        ["Flood", "A wall", "Ada"],
        ["Theft of", "Fence", "Guards"],
        ["cable", "", ""],
    ]
    rules = [
        RuledLine(left, y + index * 0.1, right, y + index * 0.1)
        for y in (104, 146, 160, 188)
        for index, (left, right) in enumerate(pairwise(edges))
    ]
    text = run("Text below the table.", 50, 200)
    [item] = found([*table(cells, XS[:3], 100), text], rules)
    assert item.rows == [
        cells[0],
        ["Loss of power at stations", "A second generator", "The northern team"],
        cells[4],
        ["Theft of cable", "Fence", "Guards"],
    ]
    assert item.header_rows == 1
    # Lines across the table may divide groups of rows, and boxes may stand beside each other.
    for sides in ([(50, 450)], [(50, 180), (190, 450)]):
        across = [RuledLine(*(left, y, right, y)) for y in (104, 146, 188) for left, right in sides]
        [item] = found(table(cells[:6], XS[:3], 100), across)
        assert len(item.rows) > 4


def test_bold_rows_are_the_header():
    names = [run("Code", 50, 86, font=BOLD), run("Text", 200, 86, font=BOLD)]
    cells = [["ab", "first thing"], ["cd", "second thing"], ["ef", "third thing"]]
    [item] = found(names + table(cells, (50, 200), 100))
    assert item.header_rows == 1


CODES = [["m16", "ATmega16"], ["m32", "ATmega32"], ["usb82", "AT90USB82"], ["x1", "Xmega1"]]
LABELS = [["Name:", "Ada Sample"], ["Street:", "Long Lane"], ["Town:", "Overthere"]]
TEXTS = [["red", "colour"], ["large", "size"], ["oak", "wood"], ["heavy", "weight"]]


@pytest.mark.parametrize(
    ("cells", "header_rows"),
    [
        (CODES, 0),
        (LABELS, 0),
        ([["Part", "Device"], *CODES], None),
        ([["Field", "Text"], *LABELS], None),
        ([["AVR8", "Device"], *CODES], None),
        (TEXTS, None),
        ([["m16", "colour"], *TEXTS], None),
        (CODES[:2] + TEXTS, None),
    ],
)
def test_a_list_of_codes_or_labels_has_no_header(cells, header_rows):
    [item] = found(table(cells, XS[:2], 100))
    assert item.rows == cells
    assert item.header_rows == header_rows


@pytest.mark.parametrize(("is_code", "header_rows"), [((1, 1, 1), 0), ((0, 1, 1), None)])
def test_a_list_of_terms_in_the_font_of_code_has_no_header(is_code, header_rows):
    runs = [
        part
        for index, ((term, meaning), fixed) in enumerate(zip(TEXTS, is_code, strict=False))
        for part in (
            run(term, 50, 100 + 14 * index, font=FIXED if fixed else REGULAR),
            run(meaning, 200, 100 + 14 * index),
        )
    ]
    [item] = found(runs)
    assert item.header_rows == header_rows


@pytest.mark.parametrize(
    "cells",
    [
        [["\u2022", "first item"], ["\u2022", "second item"], ["\u2022", "third item"]],
        [["1.", "first item"], ["2.", "second item"], ["3.", "third item"]],
        [["(a)", "first item"], ["(b)", "second item"], ["(c)", "third item"]],
        [["y = x + z + 1 + 2", "(1)"], ["y = x + z + 1 + 3", "(2)"], ["y = x + z + 4", "(3)"]],
    ],
)
def test_lists_and_numbered_equations_are_no_tables(cells):
    assert found(table(cells, (50, 300), 100)) == []


def test_prose_is_no_table():
    rng = random.Random(3)
    lines = [" ".join("word" * rng.randint(1, 3) for _ in range(12)) for _ in range(40)]
    assert found(paragraph(lines, 50, 100)) == []


def narrow_lines(seed, count=60, chars=38):
    """Returns lines of long words, as many words in each as fit into a narrow column."""
    rng = random.Random(seed)
    lines, line = [], ""
    while len(lines) < count:
        word = "x" * rng.choice((2, 3, 4, 5, 9, 11, 13)) + rng.choice(("", "", "", ".", ","))
        if len(line) + len(word) + 1 > chars:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_justified_prose_in_a_narrow_column_is_no_table(seed):
    lines = narrow_lines(seed)
    assert found(justified(lines, 50, 240, 100)) == []


def test_a_table_below_justified_prose_is_found_whole():
    cells = [
        ["Pump", "steel", "120"],
        ["Non-return valve", "brass", "8"],
        ["Long seal", "rubber", "17"],
    ]
    lines = ["some words that", "fill this narrow column", "with wide spaces"]
    below = table(cells, (50, 140, 200), 142)
    [item] = found(justified(lines, 50, 215, 100) + below)
    assert item.rows == cells


def test_a_table_keeps_a_row_whose_gaps_are_equal_by_chance():
    cells = [
        ["Valve", "brass", "x"],
        ["Pump", "steel plate", "y"],
        ["Seals", "rubber", "z"],
        ["Gear box", "iron", "x"],
        ["Flange", "tin", "y"],
    ]
    [item] = found(table(cells, (50, 110, 173), 100))
    assert item.rows == cells


def test_cells_of_the_same_width_are_a_table_although_all_gaps_are_equal():
    cells = [["AB", "CD", "EF", "GH"], ["KL", "MN", "OP", "QR"], ["ST", "UV", "WX", "YZ"]]
    [item] = found(table(cells, (50, 90, 130, 170), 100))
    assert item.rows == cells


@pytest.mark.parametrize("line_count", [2, 5, 12])
def test_the_rows_of_a_table_stay_together_if_cells_have_many_lines(line_count):
    runs = table([["Name", "Place", "Remark"]], (50, 150, 250), 100)
    expected = [["Name", "Place", "Remark"]]
    y = 118.0
    for index in range(3):
        lines = [f"text {at}" for at in range(line_count + index)]
        runs += [run(f"Part {index}", 50, y), run("Town", 150, y), *paragraph(lines, 250, y)]
        runs.append(run("with wrap", 50, y + 12))
        expected.append([f"Part {index} with wrap", "Town", " ".join(lines)])
        y += 12 * len(lines) + 6
    [item] = found(runs)
    assert item.rows == expected


def spaced_table(rows_of_lines, pitch=12, space=6):
    """Returns the runs of a table whose cells have several lines, with space between its rows."""
    runs, y = [], 100.0
    for cells in rows_of_lines:
        for cell, x in zip(cells, XS, strict=False):
            runs += paragraph(cell, x, y, pitch=pitch)
        y += pitch * max(map(len, cells)) + space
    return runs


def test_all_cells_of_a_row_may_have_two_lines():
    lines = [
        [["Name"], ["Place"], ["Remark"]],
        [["Long", "name"], ["Old", "town"], ["first", "second"]],
        [["Pump"], ["Town"], ["first", "second", "third", "fourth"]],
        [["Valve"], ["Old town"], ["first", "second"]],
    ]
    [item] = found(spaced_table(lines))
    assert item.rows == [[" ".join(cell) for cell in row] for row in lines]


def test_a_line_below_the_end_of_a_sentence_is_a_row():
    lines = [
        [["Name"], ["Place"], ["Remark"]],
        [["Alpha", "Beta"], ["Town", "Old town"], ["Ends here.", "Begins here."]],
        [["Pump"], ["Town"], ["first", "second", "third", "fourth"]],
        [["Valve"], ["Town"], ["first", "second"]],
    ]
    [item] = found(spaced_table(lines))
    assert item.rows[1:3] == [["Alpha", "Town", "Ends here."], ["Beta", "Old town", "Begins here."]]


def test_space_may_divide_groups_of_rows():
    groups = [[[f"Part {at}{index}", "steel", "new"] for index in range(3)] for at in range(4)]
    lines = [[list(cell) for cell in zip(*group, strict=True)] for group in groups]
    [item] = found(spaced_table(lines))
    assert item.rows == [row for group in groups for row in group]


def test_code_is_no_table():
    runs = [run(f"x{index}      = {index}", 50, 100 + 12 * index, font=FIXED) for index in range(5)]
    assert found(runs) == []


def test_text_after_a_table_is_not_in_it():
    cells = [["Pump", "1", "120"], ["Valve", "7", "8"], ["Seal", "9", "3"]]
    after = run("A paragraph that follows the table and is much longer than its cells", 50, 156)
    [(start, end, _)] = aligned_tables(rows([*table(cells, (50, 200, 300), 100), after]))
    assert (start, end) == (0, 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_cells_of_random_tables_are_found(seed):
    rng = random.Random(seed)
    width = rng.randint(2, 6)
    names = [f"Name{index}" for index in range(width)]
    body = [
        [f"Row {index}", *(f"{rng.uniform(0, 9999):,.1f}" for _ in range(width - 1))]
        for index in range(rng.randint(3, 15))
    ]
    edges = [50, *(200 + 60 * index for index in range(width - 1))]
    [item] = found(right_aligned([names, *body], edges, 100))
    assert item.rows == [names, *body]
    assert item.header_rows == 1
