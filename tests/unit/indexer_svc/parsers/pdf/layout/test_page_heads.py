"""Running heads, feet and page numbers are found by a comparison of pages."""

import pytest

from indexer_svc.parsers.pdf.layout.page_heads import edge_rows, running_heads
from tests.support.documents.page_contents import HEIGHT, paragraph, rows, run, table


def heads(pages, page_count=None):
    """Returns the texts that are left out of each page."""
    edges = [
        edge for index, runs in enumerate(pages) for edge in edge_rows(index, rows(runs), HEIGHT)
    ]
    found = running_heads(edges, page_count or len(pages))
    return [
        sorted(edge.text for edge in found if edge.page == index) for index in range(len(pages))
    ]


def body(index):
    return paragraph([f"page {index} line {number} of text" for number in range(20)], 50, 100)


def pages_with(head, count=8, y=30):
    return [[*body(index), run(head(index), 50, y)] for index in range(count)]


def test_text_that_is_repeated_at_the_same_place_is_a_running_head():
    assert heads(pages_with(lambda _: "Annual report")) == [["Annual report"]] * 8


def test_page_numbers():
    assert heads(pages_with(lambda index: str(index + 17), y=770)) == [
        [str(index + 17)] for index in range(8)
    ]


def test_roman_page_numbers():
    numerals = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii"]
    assert heads(pages_with(lambda index: numerals[index], y=770)) == [[one] for one in numerals]


@pytest.mark.parametrize("form", ["Page {0} of 8", "- {0} -", "{0} CHAPTER", "Chapter 2-{0}"])
def test_numbers_in_other_words(form):
    pages = pages_with(lambda index: form.format(index + 1), y=770)
    assert heads(pages) == [[form.format(index + 1)] for index in range(8)]


# The words of the following titles are different on each page.
TITLES = ["Use", "Care", "Cold start", "Spares", "Waste", "Storage", "Limits", "Contact"]


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("form", ["{0} {1}", "{0}. {1}", "2.{0} {1}", "{0}.1.2 {1}", "{1} {0}"])
def test_numbered_headings_at_the_top_of_several_pages_are_text(form, count):
    pages = pages_with(lambda index: form.format(index + 1, TITLES[index]), count)
    assert heads(pages) == [[]] * count


@pytest.mark.parametrize("form", ["{0} | {1}", "{1} | {0}", "{0} \u2022 {1}"])
def test_a_bar_divides_a_page_number_from_the_title_of_a_section(form):
    pages = pages_with(lambda index: form.format(index + 1, TITLES[index]))
    assert heads(pages) == [[form.format(index + 1, title)] for index, title in enumerate(TITLES)]


@pytest.mark.parametrize("is_left", [True, False])
def test_a_page_number_that_stands_apart_from_the_title_of_a_section(is_left):
    xs = (50, 80) if is_left else (500, 50)
    pages = [
        [*body(index), run(str(index + 1), xs[0], 30), run(title, xs[1], 30)]
        for index, title in enumerate(TITLES)
    ]
    found = heads(pages)
    assert found == [
        [f"{index + 1} {title}" if is_left else f"{title} {index + 1}"]
        for index, title in enumerate(TITLES)
    ]


@pytest.mark.parametrize(
    ("form", "has_number", "is_foot"),
    [
        ("{0}.", False, False),
        ("{0}.", True, False),
        ("{0}", True, False),
        ("{0}", False, True),
        ("The firm Inc.", False, True),
        ("The firm", True, True),
    ],
)
@pytest.mark.parametrize("count", [3, 8])
def test_numbered_footnotes_of_pages_are_text(count, form, has_number, is_foot):
    pages = []
    for index, title in enumerate(TITLES[:count]):
        note = run(form.format(title), 80, 750, size=8)
        pages.append([*body(index), run(str(index + 1), 50, 750, size=8), note])
        if has_number:
            pages[-1].append(run(str(index + 1), 300, 785))
    expected = [
        sorted(
            [str(index + 1)] * has_number + [f"{index + 1} {form.format(title)}"] * is_foot,
        )
        for index, title in enumerate(TITLES[:count])
    ]
    assert heads(pages) == expected


def test_titles_of_chapter_and_section_at_both_sides_of_a_page():
    sections = ["3.1 Use"] * 3 + ["3.2 Care", "3.3 Spares", "4.1 Waste", "4.2 Limits", "5.1 Law"]
    pages = [
        [*body(index), run(title, 50, 30), run("The chapter", 400, 30)]
        for index, title in enumerate(sections)
    ]
    assert heads(pages) == [[f"{title} The chapter"] for title in sections]
    # A heading at the same place has no such gap.
    pages[5] = [*body(5), run("4.1 Waste", 50, 30)]
    assert heads(pages)[5] == []


@pytest.mark.parametrize("is_left", [True, False])
def test_the_title_of_the_book_beside_those_of_short_chapters(is_left):
    chapters = ["First", "First", "Second", "Second", "Third", "Fourth", "Fourth"]
    xs = (50, 400) if is_left else (400, 50)
    pages = [
        [*body(index), run("The book", xs[0], 30), run(title, xs[1], 30)]
        for index, title in enumerate(chapters)
    ]
    assert heads(pages) == [
        [f"The book {title}" if is_left else f"{title} The book"] for title in chapters
    ]


def test_what_each_page_says_beside_the_same_words_is_text():
    pages = [
        [*body(index), run("Customer", 50, 30), run(title, 400, 30)]
        for index, title in enumerate(TITLES)
    ]
    assert heads(pages) == [[]] * len(TITLES)


def test_a_page_number_beside_the_title_of_a_chapter():
    titles = ["First chapter"] * 4 + ["Short"] + ["Last chapter"] * 3
    pages = pages_with(lambda index: f"{titles[index]} {index + 1}")
    assert heads(pages) == [[f"{title} {index + 1}"] for index, title in enumerate(titles)]


def test_heads_of_left_and_right_pages():
    pages = pages_with(lambda index: ("The book", "The chapter")[index % 2])
    assert heads(pages) == [[("The book", "The chapter")[index % 2]] for index in range(8)]


def test_the_title_of_a_short_chapter_is_a_running_head_where_others_are():
    titles = ["One"] * 4 + ["Short"] + ["Three"] * 4
    assert heads(pages_with(lambda index: titles[index], 9))[4] == ["Short"]


def test_text_at_different_places_is_text():
    pages = [[*body(index), run("Summary", 50, 30 + 9 * index)] for index in range(8)]
    assert heads(pages) == [[]] * 8


def test_headings_of_chapters_are_text():
    assert heads(pages_with(lambda index: f"Chapter {3 * index + 1}")) == [[]] * 8


def test_a_heading_that_two_distant_pages_share_is_text():
    titles = {2: "Usage", 40: "Usage", 80: "Usage"}
    pages = pages_with(lambda index: titles.get(index, f"Words of page {index * 7}x"), 90)
    assert heads(pages) == [[]] * 90


def test_the_first_lines_of_pages_are_text():
    assert heads([body(index) for index in range(8)]) == [[]] * 8


def test_the_header_of_a_table_that_is_repeated_on_each_page_is_text():
    cells = [["Part", "Count", "Price"], *([f"x{index}", "1", "2"] for index in range(20))]
    pages = [table(cells, (50, 200, 300), 30) for _ in range(6)]
    assert all("Part" not in " ".join(texts) for texts in heads(pages))


def test_the_feet_of_two_pages():
    pages = pages_with(lambda index: f"The title {index + 1}/2", 2, y=780)
    assert heads(pages) == [["The title 1/2"], ["The title 2/2"]]


def test_a_single_page_has_no_running_head():
    assert heads([[*body(0), run("Letterhead", 50, 30)]]) == [[]]


def test_what_stands_alone_on_most_pages_is_text():
    pages = [[run(f"Card {index + 1}", 50, 30)] for index in range(8)]
    assert heads(pages) == [[]] * 8
    # One place is judged without the others.
    feet = [*pages_with(lambda index: f"{index + 1}", 6, y=770), *pages[6:]]
    assert heads(feet) == [[str(index + 1)] for index in range(6)] + [[], []]


def test_a_page_with_its_running_head_only_has_one():
    pages = [*pages_with(lambda _: "Report"), [run("Report", 50, 30)]]
    assert heads(pages) == [["Report"]] * 9


def test_two_lines_of_head():
    pages = [[*body(index), run("Report", 50, 30), run("Draft", 50, 42)] for index in range(5)]
    assert heads(pages) == [["Draft", "Report"]] * 5


@pytest.mark.parametrize("count", [2, 3, 8])
def test_numbered_steps_are_text_if_their_text_follows_closely(count):
    pages = [
        paragraph([f"Step {index + 1}", f"Turn valve {'abcdefgh'[index]}."], 50, 60)
        for index in range(count)
    ]
    assert heads(pages) == [[]] * count
    # A number alone is a page number, and a title with a gap below it is a running head.
    for form in ("{0}", "Page {0}", "{0}/{1}", "Page {0} of {1}"):
        names = [form.format(index + 1, count) for index in range(count)]
        numbered = [[run(name, 50, 48), *page] for name, page in zip(names, pages, strict=True)]
        assert heads(numbered) == [[name] for name in names]
    titles = [[run(f"Part {index + 1}", 50, 30), *page] for index, page in enumerate(pages)]
    assert heads(titles) == [[f"Part {index + 1}"] for index in range(count)]


def test_letters_that_begin_with_the_same_paragraph_keep_it():
    pages = [paragraph(["Dear reader,", "we write to all", "of you"] * 6, 50, 60)] * 6
    assert heads(pages) == [[]] * 6


def with_title(index):
    return [run("The title of the document", 50, 107, size=17), *paragraph(["text"] * 9, 50, 130)]


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("head", [["Report"], ["2", "Report"], ["Report", "Draft"]])
def test_a_document_of_few_pages_may_have_no_running_head_on_its_first_page(head, count):
    lines = paragraph(head, 50, 30)
    if head[0] == "2":
        lines = [run("2", 50, 30), run("Report", 500, 30)]
        head = ["2 Report"]
    pages = [with_title(0), [*body(1), *lines], *([*body(index)] for index in range(2, count))]
    assert heads(pages) == [[], sorted(head), *([[]] * (count - 2))]


def test_the_end_of_a_paragraph_above_a_heading_is_text():
    heading = run("A heading of the text", 50, 130, size=14)
    after = [run("the end of a sentence.", 50, 100), heading, *paragraph(["text"] * 9, 50, 150)]
    assert heads([body(0), after]) == [[], []]
    for y in (133, 160):
        title = run("The title of the document", 50, y, size=17)
        assert heads([[title, *paragraph(["text"] * 9, 50, y + 20)], after]) == [[], []]


def test_a_title_that_is_higher_than_that_of_another_slide_is_text():
    slides = [
        [run("The title of a slide", 50, y, size=24), *paragraph(["text"] * 5, 50, 110)]
        for y in (110, 50)
    ]
    assert heads(slides) == [[], []]
