"""Columns of text are read one after the other, and rows of tables stay together."""

import random

import pytest

from indexer_svc.parsers.pdf.layout.columns import mask_of, regions_of, zeros_inside
from indexer_svc.parsers.pdf.layout.lines import line_text
from tests.support.documents.page_contents import justified, paragraph, rows, run, table, words

SENTENCE = "the quick brown fox jumps over a lazy dog while others look on"


def prose(count: int, seed: int, chars: int = 44) -> list[str]:
    """Returns lines of words that fill a column."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        line = ""
        while len(line) < chars - 8:
            line += rng.choice(SENTENCE.split()) + " "
        lines.append(line.strip().ljust(chars, "x"))
    return lines


def read(runs) -> list[list[str]]:
    return [[line_text(row.words) for row in region] for region in regions_of(rows(runs))]


def test_two_columns_are_read_one_after_the_other():
    left, right = prose(8, 1), prose(8, 2)
    runs = paragraph(left, 50, 100) + paragraph(right, 310, 100)
    assert read(runs) == [left, right]


def test_columns_with_different_baselines():
    left, right = prose(8, 1), prose(8, 2)
    runs = paragraph(left, 50, 100) + paragraph(right, 310, 104.5)
    assert read(runs) == [left, right]


def test_three_columns():
    parts = [prose(6, seed, 30) for seed in (1, 2, 3)]
    runs = [
        item
        for part, x in zip(parts, (40, 220, 400), strict=True)
        for item in paragraph(part, x, 100)
    ]
    assert read(runs) == parts


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("size", [10, 13, 15])
def test_a_heading_beside_a_line_of_the_other_column(is_left, size):
    """The gutter is as wide as a letter is high, and narrower than the heading needs."""
    left, right = prose(11, 1), prose(11, 2)
    side, x = (left, 50) if is_left else (right, 280)
    side[5:7] = ["A heading"]
    runs = [
        *paragraph(left if not is_left else left[:5], 50, 100),
        *paragraph(right if is_left else right[:5], 280, 100),
        run("A heading", x, 160, size=size),
        *paragraph(side[6:], x, 184),
    ]
    assert read(runs) == [left, right]


def test_a_title_over_both_columns_comes_first():
    left, right = prose(8, 1), prose(8, 2)
    title = run("A title that stands over both of the columns of the page", 100, 60, size=14)
    runs = [*paragraph(left, 50, 100), *paragraph(right, 310, 100), title]
    assert [len(region) for region in read(runs)] == [1, 8, 8]


@pytest.mark.parametrize("chars", [12, 45, 47, 49, 51])
def test_the_last_line_of_a_title_may_end_above_the_gutter(chars):
    left, right = prose(8, 1), prose(8, 2)
    title = ["a line of the title that stands over both of the columns", prose(1, 3, chars)[0]]
    columns = paragraph(left, 50, 100) + paragraph(right, 310, 104.5)
    assert read(paragraph(title, 50, 66, pitch=14) + columns) == [title, left, right]


def test_a_title_above_lists_in_two_columns_may_end_inside_the_gutter():
    left = prose(4, 1) + [f"\u2022 {line}" for line in prose(6, 3, 40)]
    right = [f"\u2022 {line}" for line in prose(5, 4, 40)] + prose(5, 2)
    title = ["a line of the title that stands over both of the columns", prose(1, 3, 51)[0]]
    columns = paragraph(left, 50, 100) + paragraph(right, 310, 103)
    assert read(paragraph(title, 50, 66, pitch=14) + columns) == [title, left, right]


@pytest.mark.parametrize("shift", range(0, 40, 4))
@pytest.mark.parametrize("y", [88, 200])
def test_a_space_of_a_line_over_both_columns_may_stand_in_the_gutter(shift, y):
    left, right = prose(8, 1), prose(8, 2)
    line = "xxxx " * 10
    over = justified([line], 50 + shift, 570, y)
    lines = [[line.strip()], left, right]
    read_lines = read([*paragraph(left, 50, 104), *paragraph(right, 310, 100), *over])
    assert read_lines == (lines if y < 100 else lines[1:] + lines[:1])


def test_text_below_the_columns_comes_last():
    left, right = prose(8, 1), prose(8, 2)
    below = prose(3, 3, 90)
    runs = paragraph(left, 50, 100) + paragraph(right, 310, 100) + paragraph(below, 50, 220)
    assert read(runs) == [left, right, below]


def test_the_rows_of_a_table_stay_together():
    cells = [[f"Part {index}", str(index), f"{index * 12}.50"] for index in range(12)]
    runs = table(cells, (50, 250, 400), 100)
    assert read(runs) == [[" ".join(row) for row in cells]]


def test_a_table_below_columns_is_not_cut():
    left, right = prose(8, 1), prose(8, 2)
    cells = [[f"Part {index}", f"{index * 12}.50"] for index in range(6)]
    runs = paragraph(left, 50, 100) + paragraph(right, 310, 100) + table(cells, (50, 400), 220)
    assert read(runs) == [left, right, [" ".join(row) for row in cells]]


def test_terms_stay_beside_their_definitions():
    terms = [[f"term{index}", text] for index, text in enumerate(prose(8, 4, 60))]
    assert read(table(terms, (50, 150), 100)) == [[" ".join(row) for row in terms]]


def test_a_short_list_beside_prose_is_a_column():
    left = [f"Topic number {index}" for index in range(8)]
    right = prose(8, 5)
    runs = paragraph(left, 50, 100) + paragraph(right, 310, 100)
    assert read(runs) == [left, right]


def test_names_that_are_sorted_row_by_row_are_read_row_by_row():
    names = [[f"p{row + 10}c{column}" for column in range(3)] for row in range(12)]
    assert len(read(table(names, (50, 150, 250), 100))) == 1


def test_an_index_is_read_down_its_columns():
    names = sorted(
        f"{a}{b}rk, {index}"
        for index, (a, b) in enumerate(zip("bcdfghjklmnprstv" * 2, "aeiou" * 7, strict=False))
    )
    half = len(names) // 2
    runs = paragraph(names[:half], 50, 100) + paragraph(names[half:], 310, 100)
    assert read(runs) == [names[:half], names[half:]]


def test_gutters_are_the_zeros_between_words():
    mask = mask_of(words([run("ab", 0, 10), run("cd", 40, 10)]))
    assert zeros_inside(mask) == [(6, 20)]
    assert zeros_inside(0) == []
