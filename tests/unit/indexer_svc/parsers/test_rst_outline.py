"""The text of a reStructuredText document is kept, and its titles become sections."""

import time

import pytest

from indexer_svc.parsers.parsed_file import MAX_HEADINGS
from indexer_svc.parsers.rst_outline import rst_outline

DOCUMENT = """\
=========
 The Book
=========

Intro over
two lines.

.. _label:

First :ref:`part <x>` of *it*
-----------------------------
::

    Not a title
    -----------

=====  =====
a      b
=====  =====

-----

Inner
~~~~~
猫と犬
------
Second
======
"""


def outline(text: str) -> list[tuple[int, str]]:
    """Returns the depth and the title of each section."""
    return [(heading.depth, heading.title) for heading in rst_outline(text.encode()).headings]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_title_styles_nest_in_the_order_of_their_first_use(line_end):
    text = DOCUMENT.replace("\n", line_end)
    assert outline(text) == [
        (1, "The Book"),
        (2, "First part of it"),
        (3, "Inner"),
        (2, "猫と犬"),
        (4, "Second"),
    ]
    parsed = rst_outline(text.encode())
    assert (parsed.text, parsed.title) == (text, "The Book")
    assert [text[heading.char_start :].split(line_end)[0] for heading in parsed.headings] == [
        "=========",
        "First :ref:`part <x>` of *it*",
        "Inner",
        "猫と犬",
        "Second",
    ]


@pytest.mark.parametrize("text", ["\ufeffTitle\n=====\n", "\ufeff=====\nTitle\n=====\n"])
def test_a_byte_order_mark_is_no_part_of_a_title(text):
    parsed = rst_outline(text.encode())
    assert (parsed.text, parsed.title, parsed.headings[0].char_start) == (text, "Title", 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Title",
        "Too long\n--",
        "two lines\nof text\n-------\n",
        "  indented\n  --------\n",
        "----\n\ntext",
        "====\n====\n",
        "====\n\n====\n",
        "-\n-",
    ],
)
def test_lines_without_a_valid_underline_are_no_titles(text):
    assert outline(text) == []


def test_an_underline_is_as_long_as_its_title_or_has_four_characters():
    assert outline("ab\n==\n\nLonger than it\n----\n") == [(1, "ab"), (2, "Longer than it")]


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("``code`` and `link <https://example.org>`_", "code and link"),
        ("**bold** \\*star", "bold star"),
        (":class:`~a.B`", "~a.B"),
        ("a:py:class:`~a.B` ::`b` `c <d>`__", "a~a.B ::b c"),
    ],
)
def test_titles_have_no_markup(line, title):
    assert outline(f"{line}\n{'=' * 60}") == [(1, title)]


def test_titles_beyond_the_limit_are_left_out():
    text = "a\n=\n" * (MAX_HEADINGS + 5)
    assert len(rst_outline(text.encode()).headings) == MAX_HEADINGS


@pytest.mark.parametrize("line", ["x" + ":" * 799, "`" + " " * 400 + "<" + " " * 397 + ">"])
def test_hostile_titles_take_little_time(line):
    text = f"{line}\n====\n\n" * 4_000
    started = time.process_time()
    assert len(rst_outline(text.encode()).headings) == 4_000
    assert time.process_time() - started < 3
