"""The cells of ruled tables contain the words between their lines."""

from indexer_svc.parsers.pdf.layout.ruled_tables import ruled_tables
from indexer_svc.parsers.pdf.page_content import RuledLine
from tests.support.documents.page_contents import BOLD, grid, run, words

XS, YS = (50, 150, 250, 350), (100, 120, 140, 160)


def filled(texts, *, xs=XS, ys=YS):
    """Returns the words of a grid, each text in the upper left corner of its cell."""
    return words(
        run(text, xs[column] + 4, ys[row] + 13)
        for row, cells in enumerate(texts)
        for column, text in enumerate(cells)
        if text
    )


def rows(rules, inside):
    return [table.rows for table, _ in ruled_tables(rules, inside)]


def test_each_cell_has_the_words_between_its_lines():
    texts = [["Part", "Count", "Price"], ["Pump", "1", "120"], ["Valve", "7", "8"]]
    assert rows(grid(XS, YS), filled(texts)) == [texts]


def test_the_words_of_a_table_are_returned_with_it():
    texts = [["a1", "b1", "c1"], ["a2", "b2", "c2"], ["a3", "b3", "c3"]]
    outside = words([run("outside", 400, 113)])
    [(_, inside)] = ruled_tables(grid(XS, YS), filled(texts) + outside)
    assert sorted(word.text for word in inside) == [
        f"{letter}{row}" for letter in "abc" for row in (1, 2, 3)
    ]


def test_cells_with_borders_of_their_own_are_one_table():
    boxes = [
        rule
        for row in range(3)
        for column in range(3)
        for rule in grid((XS[column] + 1, XS[column + 1] - 1), (YS[row] + 1, YS[row + 1] - 1))
    ]
    texts = [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "i"]]
    assert rows(boxes, filled(texts)) == [texts]


def test_the_text_of_a_merged_cell_is_repeated():
    rules = [rule for rule in grid(XS, YS) if rule != RuledLine(150, 100, 150, 160)]
    rules.append(RuledLine(150, 120, 150, 160))  # The first two cells of the first row are merged.
    texts = [["Both", "", "c1"], ["a2", "b2", "c2"], ["a3", "b3", "c3"]]
    assert rows(rules, filled(texts))[0][0] == ["Both", "Both", "c1"]


def test_a_cell_that_is_merged_over_rows_is_repeated():
    rules = [rule for rule in grid(XS, YS) if rule != RuledLine(50, 140, 350, 140)]
    rules.append(RuledLine(150, 140, 350, 140))
    texts = [["Name", "b1", "c1"], ["Pumps", "b2", "c2"], ["", "b3", "c3"]]
    assert [row[0] for row in rows(rules, filled(texts))[0]] == ["Name", "Pumps", "Pumps"]


def test_a_wrapped_cell_is_one_line():
    inside = filled([["A", "B", "C"], ["a", "b", "c"], ["d", "e", ""]], ys=(100, 120, 140, 190))
    inside += words([run("two lines", 254, 153), run("of text", 254, 165)])
    assert rows(grid(XS, (100, 120, 140, 190)), inside)[0][2] == ["d", "e", "two lines of text"]


def test_without_lines_between_the_rows_each_line_is_a_row():
    inside = words(
        run(text, x + 4, 113 + 14 * row)
        for row, cells in enumerate([["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]])
        for text, x in zip(cells, (50, 150), strict=True)
    )
    head = words([run("Name", 54, 95), run("Value", 154, 95)])
    rules = grid((50, 150, 250), (82, 100, 170))
    assert rows(rules, inside + head) == [
        [["Name", "Value"], ["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]]
    ]


def test_bold_rows_at_the_top_are_the_header():
    inside = words(
        run(text, XS[column] + 4, YS[row] + 13, font=BOLD if row == 0 else run("x", 0, 0).font)
        for row, cells in enumerate([["A", "B", "C"], ["a", "b", "c"], ["d", "e", "f"]])
        for column, text in enumerate(cells)
    )
    [(table, _)] = ruled_tables(grid(XS, YS), inside)
    assert table.header_rows == 1


def test_a_box_around_text_is_no_table():
    assert rows(grid((50, 350), (100, 160)), words([run("A note in a box", 60, 120)])) == []


def test_the_grid_of_a_plot_is_no_table():
    xs, ys = range(50, 350, 20), range(100, 300, 20)
    assert rows(grid(xs, ys), words([run("12", 60, 112)])) == []


def test_words_that_are_too_small_to_be_read_make_no_table():
    labels = words(
        run(text, x, 105, size=1.4) for text, x in zip("abcd", (52, 57, 62, 67), strict=True)
    )
    rules = grid((51, 56, 61, 66, 71), (102, 104, 106))
    assert not ruled_tables(rules, labels)


def test_a_drawing_of_thousands_of_lines_is_no_table():
    rules = [RuledLine(x, 0, x, 500) for x in range(0, 6000, 5)]
    assert (
        rows(rules + [RuledLine(0, y, 6000, y) for y in (0, 500)], words([run("a", 3, 10)])) == []
    )


def columns_of(*columns):
    """Returns the words of columns of lines at given heights, and lines between the columns."""
    xs = [50, 150, 250, 400]
    runs = [
        run(text, x + 5, y)
        for x, column in zip(xs, columns, strict=False)
        for y, text in column.items()
    ]
    return ruled_tables(grid(xs[: len(columns) + 1], [90, 105, 190]), words(runs))


def test_without_lines_between_the_rows_the_first_column_names_them():
    [(table, _)] = columns_of(
        {100: "Name", 120: "color", 132: "label", 144: "margin", 168: "width"},
        {100: "Default", 120: "black", 144: "0.11"},
        {
            100: "Values",
            120: "a color",
            132: "a text",
            144: "the space",
            156: "around",
            168: "inches",
        },
    )
    assert table.rows == [
        ["Name", "Default", "Values"],
        ["color", "black", "a color"],
        ["label", "", "a text"],
        ["margin", "0.11", "the space around"],
        ["width", "", "inches"],
    ]


def test_wrapped_text_in_the_first_column_names_no_rows():
    [(table, _)] = columns_of(
        {
            100: "Name",
            120: "one long text that",
            132: "fills its column",
            144: "down to the end",
            156: "of it",
        },
        {
            100: "Values",
            120: "another long text",
            132: "and its rest",
            144: "of words",
            156: "on",
            168: "more",
        },
    )
    assert len(table.rows) == 2
