"""reStructuredText becomes Markdown, as a reader of the printed text sees it."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hrag.errors import TooLarge
from indexer_svc.parsers.rst import parse_rst

AMPLE_BYTES = 1 << 20


def text_of(text: str) -> str:
    return parse_rst(text.encode(), AMPLE_BYTES).text


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_titles_become_headings_and_the_first_one_is_the_title(line_end, mark):
    text = "=====\n Book\n=====\n\nIntro\nover lines.\n\nPart *one*\n----------\n\nText.\n"
    parsed = parse_rst((mark + text.replace("\n", line_end)).encode(), AMPLE_BYTES)
    assert parsed.text == "# Book\n\nIntro over lines.\n\n## Part one\n\nText."
    assert [(heading.depth, heading.title) for heading in parsed.headings] == [
        (1, "Book"),
        (2, "Part one"),
    ]
    assert parsed.title == "Book"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("``code`` *em* **strong** `default`", "code em strong default"),
        ("`text <https://example.org>`_ and `text`__\n\n__ https://example.org", "text and text"),
        (":ref:`text <label>` :class:`~a.B` :unknown:`!x`", "text a.B x"),
        ("10\\ :sup:`6`\\ cells", "10^6 cells"),
        ("H\\ :sub:`2`\\ O", "H2O"),
        (":math:`E=mc^2`", "$E=mc^2$"),
        ("|a| b\n\n.. |a| replace:: text", "text b"),
        ("a [1]_\n\n.. [1] Note", "a [1]\n\n[1] Note"),
        ("a [#x]_\n\n.. [#x] Note\n\n   More", "a [1]\n\n[1] Note\n\nMore"),
        ("a [Smith2026]_\n\n.. [Smith2026] Book", "a [Smith2026]\n\n[Smith2026] Book"),
        ("*never closed", "*never closed"),
        ("a\\ b \\*c", "ab *c"),
    ],
)
def test_inline_markup_becomes_plain_text(source, text):
    assert text_of(source) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("* a\n* b\n\n  * c\n\n  more", "- a\n- b\n  - c\n\nmore"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("(a) x\n(b) y", "(a) x\n(b) y"),
        ("iv) x\nv) y", "iv) x\nv) y"),
        ("#. x\n#. y", "1. x\n2. y"),
        ("term\n  Definition", "term\n: Definition"),
        ("term : kind\n  Definition\n\n  More", "term : kind\n: Definition\n\nMore"),
        ("term\n  * item", "term\n\n- item"),
        (":Author: Me\n:orphan:\n:Date: today", "Author: Me\n\nDate: today"),
        ("-a, --all  Everything", "-a, --all\n: Everything"),
        ("| one\n| two", "one\ntwo"),
        ("  quoted\n\n  -- Me", "quoted\n\nMe"),
    ],
)
def test_lists_keep_their_markers(source, text):
    assert text_of(source) == text


LIST_TABLE = """
.. list-table:: T
   :header-rows: 1

   * - A
     - B
   * - 1
     - 2
"""
TABLE = "| A | B |\n| --- | --- |\n| 1 | 2 |"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("+---+---+\n| A | B |\n+===+===+\n| 1 | 2 |\n+---+---+", TABLE),
        ("==  ==\nA   B\n==  ==\n1   2\n==  ==", TABLE),
        (LIST_TABLE, f"T\n\n{TABLE}"),
        (".. csv-table::\n   :header: A, B\n\n   1, 2", TABLE),
        (
            "+---+---+\n| A | B |\n+===+===+\n| 1 | 2 |\n|   +---+\n|   | 3 |\n+---+---+",
            f"{TABLE}\n| 1 | 3 |",
        ),
        (
            "+---+---+\n| A | B |\n+===+===+\n| 1     |\n+---+---+\n| 2 | 3 |\n+---+---+",
            "| A | B |\n| --- | --- |\n| 1 |  |\n| 2 | 3 |",
        ),
    ],
    ids=["grid", "simple", "list-table", "csv-table", "rows", "columns"],
)  # fmt: skip
def test_tables_keep_their_cells(source, text):
    assert text_of(source) == text


@pytest.mark.parametrize(
    "source",
    [
        "::\n\n   def a():\n       return 1",
        ".. code-block:: python\n   :linenos:\n\n   def a():\n       return 1",
        ".. code:: python\n\n   def a():\n       return 1",
        ".. sourcecode:: python\n\n   def a():\n       return 1",
        ".. parsed-literal::\n\n   def a():\n       *return* 1",
        ".. testcode::\n\n   def a():\n       return 1",
    ],
)
def test_code_keeps_its_lines(source):
    assert text_of(source) == "```\ndef a():\n    return 1\n```"


@pytest.mark.parametrize(
    "source",
    [
        ".. list-table::\n\n   * - a\n\n   word",
        "+---+---+\n| word  |\n+--+",
        "  word\n  ----",
        ".. note::\n   :unknown: word",
        ".. image::\n   :alt: word",
        ".. replace:: word",
    ],
)
def test_what_docutils_cannot_read_is_kept_as_its_source(source):
    assert "word" in text_of(f"Begin.\n\n{source}\n\nEnd.")


def test_a_session_of_an_interpreter_is_code():
    assert text_of(">>> 1\n1\n\nText") == "```\n>>> 1\n1\n```\n\nText"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (".. note:: Take care.\n\n   More.", "Note: Take care.\n\nMore."),
        (".. admonition:: Careful\n\n   Text.", "Careful\n\nText."),
        (".. topic:: About\n\n   Text.", "About\n\nText."),
        (".. versionadded:: 3.1\n   The thing.", "Added in version 3.1: The thing."),
        (".. only:: html and not latex\n\n   The thing.", "The thing."),
        (".. grid:: 2\n\n   The thing.", "The thing."),
        (".. tab-item:: Linux\n\n   The thing.", "Linux\n\nThe thing."),
        (".. seealso::\n\n   Text.", "See also:\n\nText."),
        (".. py:function:: f(*args)\n              g(x)\n\n   Text.", "f(*args)\ng(x)\n: Text."),
        (".. class:: Bees(hive)\n\n   Text.", "Bees(hive)\n: Text."),
        (".. class:: special\n\nText.", "Text."),
        (".. option:: --all\n\n   Text.", "--all\n: Text."),
        (".. tab:: Linux\n\n   Text.", "Linux\n\nText."),
        (".. unknown:: argument *one*\n   :opt: 1\n\n   **Text**.", "argument one\n\nText."),
        (".. glossary::\n\n   bee\n      An insect.", "bee\n: An insect."),
        (".. rubric:: Notes", "Notes"),
        (".. math:: a^2\n", "$a^2$"),
        (".. image:: a.png\n   :alt: Wiring of the pump", "![Wiring of the pump]"),
        (".. figure:: a.png\n\n   The caption.\n\n   The legend.", "The caption.\n\nThe legend."),
        (".. only:: html\n\n   Text.", "Text."),
    ],
)
def test_directives_keep_their_text(source, text):
    assert text_of(f"{source}\n\nEnd.") == f"{text}\n\nEnd.".strip()


@pytest.mark.parametrize(
    "source",
    [
        ".. a comment",
        ".. _label:",
        ".. toctree::\n   :maxdepth: 2\n\n   page",
        ".. contents::",
        ".. index:: pair",
        ".. include:: /etc/hostname",
        ".. literalinclude:: /etc/hostname",
        ".. raw:: html\n   :file: /etc/hostname",
        ".. raw:: html\n\n   <b>x</b>",
        ".. csv-table::\n   :file: /etc/hostname",
        ".. csv-table::\n   :url: http://127.0.0.1/x",
        ".. |today| date::",
        ".. meta::\n   :keywords: a",
        ".. highlight:: none",
        "----",
    ],
)
def test_what_no_reader_sees_and_what_is_not_in_the_file_is_left_out(source):
    assert text_of(f"Begin.\n\n{source}\n\nEnd.") == "Begin.\n\nEnd."


def test_a_role_that_one_text_defines_is_unknown_in_the_next():
    assert text_of(".. role:: own(strong)\n\n:own:`a <b>`") == "a <b>"
    assert text_of(":own:`a <b>`") == "a"


def test_what_is_too_deep_or_too_long_for_docutils_is_kept_as_it_is():
    deep = "Title\n=====\n\n" + "".join("  " * depth + "* a\n\n" for depth in range(400))
    parsed = parse_rst(deep.encode(), AMPLE_BYTES)
    assert (parsed.text, parsed.title) == (deep, "Title")
    long = "Title\n=====\n\n" + "text " * 450_000
    assert parse_rst(long.encode(), 1 << 30).text == long


def test_too_much_text_is_refused():
    with pytest.raises(TooLarge):
        parse_rst(b"word\n\n" * 100, 100)


@pytest.mark.parametrize(
    "unit", ["* a\n", "`", "**", ".. a::\n", "+-+\n", "|a|_ ", "a\n=\n\n", ":a: b\n"]
)
def test_hostile_text_takes_little_time(unit):
    started = time.process_time()
    parse_rst((unit * (6_000 // len(unit))).encode(), AMPLE_BYTES)
    assert time.process_time() - started < 5


WORDS = st.text(alphabet="abcxyz", min_size=3, max_size=8)
BLOCKS = st.sampled_from([
    "{}\n\n", "* {}\n\n", "1. {}\n\n", "{}\n====================\n\n", "::\n\n   {}\n\n",
    "term\n  {}\n\n", ".. note:: {}\n\n", ".. any:: {}\n\n", ":field: {}\n\n", "| {}\n\n",
    "   {}\n\n", ".. list-table::\n\n   * - {}\n\n", "+----------+\n| {:<8} |\n+----------+\n\n",
])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(BLOCKS, WORDS), min_size=1, max_size=8))
def test_no_word_is_lost_or_doubled_and_the_order_stays(blocks):
    words = [f"{word}{at}" for at, (_, word) in enumerate(blocks)]
    source = "".join(block.format(word) for (block, _), word in zip(blocks, words, strict=True))
    read = text_of(source).replace("|", " ").split()
    assert [word for word in read if word in words] == words


def test_substitutions_that_would_fill_the_memory_leave_the_text_as_it_is():
    definitions = [f".. |a{n}| replace:: |a{n + 1}| |a{n + 1}|" for n in range(60)]
    bomb = "\n".join(["|a0|", "", *definitions, ".. |a60| replace:: bees"])
    assert text_of(bomb) == bomb


def test_substitutions_inside_each_other_are_replaced():
    assert text_of("|a| |A|\n\n.. |a| replace:: x |b|\n.. |b| replace:: *y*\n") == "x y x y"
    circle = "|a|\n\n.. |a| replace:: |b|\n.. |b| replace:: |a|\n"
    assert "|a|" in text_of(circle)
