"""Titles are cut to their limits, and titles that programs write are ignored."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.types import MAX_TITLE_BYTES
from indexer_svc.titles import document_title, metadata_title, section_title


@pytest.mark.parametrize(
    "title",
    [
        "A study of bees",
        "1984",
        "Slide rules",
        "Book of Kells",
        "Untitled dreams",
        "Untitled " + "1" * 900 + " x",  # A pattern that tries every division takes forever.
        "Node.js",
        "C++",
        "Everything about robots.txt",
        "How to write a README.md",
        "Why nobody opens .docx",
    ],
)
def test_a_title_in_the_metadata_of_a_pdf_is_kept(title):
    assert metadata_title(title) == title


@pytest.mark.parametrize(
    "title",
    [
        *("", " \t", "-", "untitled", "Untitled-1", "Untitled Document 2", "Document1", "Slide 1"),
        *("Untitled presentation_2-3", "Untitled" + "1" * 900),
        *("PowerPoint Presentation", "Microsoft Word - report", "Microsoft Word - a report.docx"),
        *("report_final.DOC", "C:\\docs\\report.indd", "paper.dvi", "my talk.pptx"),
        *("README.md", "robots.txt", "C:\\My documents\\notes.txt", "file:///home/a/index.html"),
    ],
)
def test_a_title_that_a_program_has_written_is_ignored(title):
    assert metadata_title(title) == ""


@given(st.text(max_size=3000))
def test_titles_are_one_line_within_their_limits(text):
    for title in (document_title(text), metadata_title(text)):
        assert len(title.encode()) <= MAX_TITLE_BYTES
        assert " ".join(title.split()) == title
    assert document_title(text).startswith(section_title(text)) or len(text) > MAX_TITLE_BYTES // 4


def test_a_title_is_cut_between_code_points():
    assert document_title("x" + "é" * 2000) == "x" + "é" * 511


def test_a_hostile_title_takes_linear_time():
    started = time.process_time()
    metadata_title("title: " + "'" * 2_000_000)
    assert time.process_time() - started < 2
