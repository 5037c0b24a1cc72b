"""Tables of contents are found, and other tables with page numbers are not."""

import pytest

from indexer_svc.parsers.pdf.layout.contents_pages import contents_of, is_contents_title
from tests.support.documents.page_contents import rows, run


def entries(count, *, dots=True, step=3):
    runs = []
    for index in range(count):
        title = f"{index + 1} Title of part"
        runs.append(run(title + (" . . . . . ." if dots else ""), 50, 100 + 14 * index))
        number = str(1 + step * index)
        runs.append(run(number, 400 - 5 * len(number), 100 + 14 * index))
    return runs


def found(runs, page_count=60, **options):
    return contents_of(rows(runs), page_count, **options)


def test_entries_with_dots():
    [contents] = found(entries(6))
    assert (contents.start, contents.end) == (0, 6)
    assert contents.entries[1].title == "2 Title of part"


def test_entries_without_dots_below_their_title():
    [contents] = found([run("Contents", 50, 80), *entries(6, dots=False)])
    assert (contents.start, contents.end) == (0, 7)


def test_entries_without_dots_on_the_next_page():
    assert found(entries(6, dots=False)) == []
    assert len(found(entries(6, dots=False), continues=True)) == 1


def test_text_after_the_contents_is_text():
    after = run("This text follows the table of contents", 50, 260)
    [contents] = found([*entries(6), after])
    assert contents.end == 6


def test_numbers_that_fall_are_no_page_numbers():
    assert found(entries(6, step=-3)) == []


def test_numbers_beyond_the_last_page_are_no_page_numbers():
    assert found(entries(6, step=900)) == []


def test_two_entries_are_no_table_of_contents():
    assert found(entries(2)) == []


@pytest.mark.parametrize(
    "text", ["Contents", "TABLE OF CONTENTS", "Inhaltsverzeichnis", "目 录", "List of Figures"]
)
def test_titles_of_tables_of_contents(text):
    assert is_contents_title(text)
    assert not is_contents_title(f"{text} of the box")
