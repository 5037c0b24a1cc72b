"""Titles are read from front matter and from PDFs, within the limits of titles."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.types import MAX_TITLE_BYTES
from indexer_svc.titles import document_title, front_matter_title, metadata_title, section_title


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ("title: A guide", "A guide"),
        ("title:   A guide   # for people", "A guide"),
        ("title: C# in depth: a guide", "C# in depth: a guide"),
        ('title: "A \\"guide\\" # of caf\\u00e9s" # comment', 'A "guide" # of cafés'),
        (r'title: "\e"', r"\e"),
        ("title: 'It''s a guide'  # comment", "It's a guide"),
        ("title: |\n  A guide\n  to bees", "A guide to bees"),
        ("title: >-\n  A guide\n  to bees\nlang: en", "A guide to bees"),
        ('title: "A guide\n  to bees"', "A guide to bees"),
        ("title: A guide\n  to bees", "A guide to bees"),
        ("title: 1984", "1984"),
        ("title: -5 degrees", "-5 degrees"),
        ("lang: en\ntitle\t: A guide", "A guide"),
        ('"title": A guide', "A guide"),
        ("title: First\ntitle: Second", "First"),
        ("Title: A guide", "A guide"),
        ("tags: [a]\n\ntitle: A guide", "A guide"),
    ],
)
def test_a_title_is_read_from_front_matter(lines, title):
    assert front_matter_title(f"---\n{lines}\n---\n") == title


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ('title = "A \\"guide\\" # of caf\\u00e9s" # comment', 'A "guide" # of cafés'),
        ("draft = true\ntitle='It is # a guide' # comment", "It is # a guide"),
        ("[page]\ntitle = 'A table'", ""),
        ("title = 3", ""),
        ("title = 'never closed", ""),
        ("subtitle = 'A guide'", ""),
        ("title: A guide", ""),
    ],
)
def test_a_title_is_read_from_front_matter_in_toml(lines, title):
    assert front_matter_title(f"+++\n{lines}\n+++\n") == title


@pytest.mark.parametrize(
    "lines",
    [
        "title:",
        "title: ''",
        'title: ""',
        "title: # only a comment",
        "title: null",
        "title: ~",
        "title: [a, b]",
        "title: {a: b}",
        "title: *alias",
        "title: &anchor A guide",
        "title: !tag A guide",
        "title: 'never closed",
        'title: "never closed',
        "title:\n  main: A guide",
        "title:\n  - A guide",
        "title: - A guide",
        "title:A guide",
        "subtitle: A guide",
        "page:\n  title: A guide",
    ],
)
def test_other_front_matter_has_no_title(lines):
    assert front_matter_title(f"---\n{lines}\n---\n") == ""


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
    for title in (document_title(text), metadata_title(text), front_matter_title(f"title: {text}")):
        assert len(title.encode()) <= MAX_TITLE_BYTES
        assert " ".join(title.split()) == title
    assert document_title(text).startswith(section_title(text)) or len(text) > MAX_TITLE_BYTES // 4


def test_a_title_is_cut_between_code_points():
    assert document_title("x" + "é" * 2000) == "x" + "é" * 511


@pytest.mark.parametrize(
    "line", ['title: "' + "\\" * 2_000_000, "title" + " " * 2_000_000, "title: " + "'" * 2_000_000]
)
def test_hostile_front_matter_takes_linear_time(line):
    started = time.perf_counter()
    front_matter_title(f"---\n{line}\n---\n")
    metadata_title(line)
    assert time.perf_counter() - started < 2
