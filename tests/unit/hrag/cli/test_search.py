"""The output of `hrag search`, and options that are refused before the search."""

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.cli.search import show_result
from hrag.types import (
    ChosenSection,
    Chunk,
    MatchedChild,
    Passage,
    SearchMode,
    SearchResult,
    Span,
    Timings,
)

SPAN = Span(0, 4, 0, 4)
CHUNK = Chunk("d#2.0", "d", 2, 0, "Text", 1, SPAN, (), 0, 0, "Guide", "", {})
PASSAGE = Passage(CHUNK, 0.75, (MatchedChild("d#0.0", 0.75, SPAN),))


def section(number: int = 1, summary: str = "What it is about.") -> ChosenSection:
    return ChosenSection("d", "Guide", summary, 0.5, SPAN, (f"Part {number}",), 0, 0)


def shown(*sections: ChosenSection, mode: SearchMode = SearchMode.SUMMARY_FIRST) -> str:
    passages = (PASSAGE,) if sections or mode is not SearchMode.SUMMARY_FIRST else ()
    result = SearchResult(
        passages, mode, 0, 2, 1, True, 1, Timings(1, 2, 3, 4, 10), None, len(passages), sections
    )
    written = StringIO()
    show_result(result, Console(file=written, width=200))
    return written.getvalue()


def test_sections_come_before_passages():
    lines = shown(section(), section(2)).splitlines()
    assert lines[:6] == [
        "section 0.500  Guide · Part 1 · d",
        "  What it is about.",
        "section 0.500  Guide · Part 2 · d",
        "  What it is about.",
        "",
        "1. 0.750  Guide · d#2.0",
    ]


def test_first_words_of_a_summary_are_shown():
    (line,) = (line for line in shown(section(summary="word " * 100)).splitlines() if "…" in line)
    assert line.startswith("  word word")
    assert len(line) < 130


def test_only_the_best_of_many_sections_are_shown():
    output = shown(*map(section, range(100)))
    assert output.count("section 0.500") == 10
    assert "and 90 more sections" in output


def test_summary_cannot_control_the_terminal():
    output = shown(section(summary="a\x1b[2Jb [red]c[/red]"))
    assert "\x1b" not in output
    assert "[red]c[/red]" in output


def test_other_modes_show_no_sections():
    assert "section" not in shown(mode=SearchMode.SMALL_TO_BIG)


def test_missing_summaries_are_reported():
    assert "nothing found: no section has a summary yet, or no document" in shown()


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--top-sections", "0", "greater than or equal to 1"),
        ("--top-sections", "1001", "less than or equal to 1000"),
        ("--top-sections", "many", "valid integer"),
        ("--summary-scope", "pages", "'sections', 'documents'"),
        ("--mode", "summaries", "'summary_first'"),
    ],
)
def test_a_wrong_option_is_refused(option, value, rule):
    env = {"NO_COLOR": "1", "COLUMNS": "200"}
    result = CliRunner().invoke(app, ["search", "x", option, value], env=env)
    assert result.exit_code == 2
    assert option in result.stderr
    assert rule in result.stderr
