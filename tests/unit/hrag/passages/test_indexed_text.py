"""The indexed text of a leaf has the words of the document's name that the title lacks."""

from dataclasses import replace

import pytest

from hrag.passages.indexed_text import MAX_HEADING_CHARS, NO_NAME, indexed_leaves, indexed_name
from hrag.text.analysis import analyzer
from hrag.values.tree import ParsedText, Section
from indexer_svc.chunker import build_tree
from tests.support.documents.fakes import collection_settings

SETTINGS = collection_settings()


def words(source: str, title: str, analyzer_name: str = SETTINGS.analyzer) -> str:
    """Returns the words of a name that are added to each leaf."""
    settings = replace(SETTINGS, analyzer=analyzer_name)
    return indexed_name(settings, title, source, "id").words.removesuffix("\n")


@pytest.mark.parametrize(
    ("source", "title", "expected"),
    [
        ("annual_report_2023.pdf", "", "annual_report_2023"),
        ("annual_report_2023.pdf", "Annual reports of 2023", ""),
        ("annual_report_2023.pdf", "ANNUAL REPORT", "_ _2023"),
        ("annual-report.pdf", "Reports", "annual-"),
        ("acme annual report.pdf", "Annual accounts", "acme report"),
        ("E-4711.md", "Errors", "E-4711"),
        ("E-4711.md", "Error 4711", "E-"),
        ("Müller.md", "MÜLLER", ""),
        ("Muller.md", "Müller", "Muller"),
        ("AnnualReport.pdf", "Annual report", "AnnualReport >"),
        ("AnnualReport.pdf", "AnnualReport", "> Annual Report"),
        ("AnnualReport.pdf", "Annual", "AnnualReport > Report"),
        ("公司年度报告.pdf", "年度报告", "公司年"),
        ("年度报告.pdf", "2023年度报告", ""),
        ("年度报告.pdf", "年报", "年度报告"),
        ("the_end.md", "The beginning", "_end"),
        ("--.md", "Title", ""),
    ],
)
def test_words_that_the_title_has_are_left_out(source, title, expected):
    assert words(source, title) == expected


def test_the_analyzer_decides_which_words_are_equal():
    assert words("reports.pdf", "Report", "english/2") == ""
    assert words("reports.pdf", "Report", "simple/2") == "reports"
    assert words("häuser.pdf", "Haus", "german/2") == ""


def test_only_the_indexed_part_of_a_long_title_counts():
    title = f"{'long ' * 60}acme"
    assert len(title) > MAX_HEADING_CHARS
    assert words("acme.pdf", title) == "acme"


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, analyzer="english/1"),
        replace(SETTINGS, analyzer=""),
        replace(SETTINGS, index_headings=False),
    ],
)
def test_other_collections_index_no_names(settings):
    assert indexed_name(settings, "Title", "acme.pdf", "id") == NO_NAME


@pytest.mark.parametrize("title", ["", "Annual report"])
@pytest.mark.parametrize("sections", [(), (Section("First", 1, 0),)])
def test_the_name_is_in_the_words_of_a_leaf_but_not_in_its_vector(title, sections):
    text = "Nobody was late."
    parsed = ParsedText(text, sections)
    tree = build_tree(parsed, SETTINGS.tree)
    name = indexed_name(SETTINGS, title, "acme_annual.pdf", "id")
    options = {"headings": True}
    arguments = (text, title, sections, tree, 0)
    (plain,) = indexed_leaves(*arguments, **options)
    (leaf,) = indexed_leaves(*arguments, **options, name=name)
    assert leaf.embedded == plain.embedded
    added = "acme_annual\n" if not title else "acme_\n"
    assert leaf.lexical == 2 * (leaf.heading + added) + text
    assert plain.lexical == 2 * leaf.heading + text
    assert [*leaf.searched_texts()] == [leaf.heading, text, "acme_annual"]
    assert [*plain.searched_texts()] == [leaf.heading, text]


def test_a_word_that_title_and_name_have_is_counted_as_often_as_without_the_name():
    english = analyzer(SETTINGS.analyzer)
    added = indexed_name(SETTINGS, "Annual report", "acme_annual_report.pdf", "id").words
    ids = english.terms(added).tolist()
    assert not set(ids) & set(english.terms("annual report").tolist())
    assert english.terms("acme").tolist() == ids
