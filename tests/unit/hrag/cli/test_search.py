"""The output of `hrag search`, and options that are refused before the search."""

from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hrag.cli import search as command
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
    return written(result)


def written(result: SearchResult) -> str:
    output = StringIO()
    show_result(result, Console(file=output, width=200))
    return output.getvalue()


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


def test_reranking_and_its_failure_are_shown():
    reranked = replace(PASSAGE, rerank_score=-1.5)
    took = Timings(1, 2, 3, 4, 10, rerank_us=5)
    result = SearchResult((reranked,), SearchMode.STANDARD, 0, 0, 1, True, 1, took, None, 1)
    output = written(replace(result, reranked=True))
    assert "1. 0.750 (reranker -1.500)  Guide" in output
    assert "leaves considered, reranked\n" in output
    assert "fetch 4 µs, rerank 5 µs" in output
    output = written(replace(result, rerank_failure="it is \x1b[2Jdown"))
    assert "not reranked: it is" in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("options", "rerank"), [([], None), (["--rerank"], True), (["--no-rerank"], False)]
)
def test_reranking_is_asked_for_or_not(options, rerank, monkeypatch):
    asked = {}
    result = SearchResult(
        (), SearchMode.STANDARD, 0, 0, 0, True, 1, Timings(1, 2, 3, 4, 10), None, 0
    )

    @contextmanager
    def connect(*_, **__):
        yield SimpleNamespace(search=lambda **query: asked.update(query) or result)

    monkeypatch.setattr(command, "connect", connect)
    CliRunner().invoke(app, ["search", "x", *options], catch_exceptions=False)
    assert asked["rerank"] is rerank


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
