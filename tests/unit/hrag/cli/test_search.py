"""`hrag search` shows results, passes options to the retriever, and refuses invalid options."""

import json
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
    FusionMethod,
    MatchedChild,
    MatchedSentence,
    Passage,
    Retrieval,
    SearchMode,
    SearchPlan,
    SearchResult,
    Span,
    TermSpan,
    Timings,
)

SPAN = Span(0, 4, 0, 4)
CHUNK = Chunk("d#2.0", "d", 2, 0, "Text", 1, SPAN, (), 0, 0, "Guide", "", {})
PASSAGE = Passage(CHUNK, 0.75, (MatchedChild("d#0.0", 0.75, SPAN),))


def section(number: int = 1, summary: str = "What it is about.") -> ChosenSection:
    return ChosenSection("d", "Guide", summary, 0.5, SPAN, (f"Part {number}",), 0, 0)


def shown(*sections: ChosenSection, mode: SearchMode = SearchMode.SUMMARY_FIRST) -> str:
    """Returns the output for a result with these sections."""
    passages = (PASSAGE,) if sections or mode is not SearchMode.SUMMARY_FIRST else ()
    result = SearchResult(
        passages, mode, 0, 2, 1, True, 1, Timings(1, 2, 3, 4, 10), None, len(passages), sections
    )
    return written(result)


def written(result: SearchResult, *, full: bool = True) -> str:
    output = StringIO()
    show_result(result, Console(file=output, width=200), full=full)
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


def test_a_summary_cannot_control_the_terminal():
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
    assert "leaves considered, dense, reranked\n" in output
    assert "fetch 4 µs, rerank 5 µs" in output
    output = written(replace(result, rerank_failure="it is \x1b[2Jdown"))
    assert "not reranked: it is" in output
    assert "\x1b" not in output


HYBRID = SearchResult(
    (
        Passage(
            replace(CHUNK, content="Cats sleep. Dogs bark.", first_page=3, last_page=4),
            0.75,
            (MatchedChild("d#0.0", 0.75, Span(0, 22, 0, 22), 0.5, 1.0),),
            lexical_score=0.5,
            dense_score=1.0,
            term_spans=(TermSpan(12, 16),),
            matched_sentence=MatchedSentence(Span(12, 22, 12, 22), ("Dogs",), 4, 4),
        ),
    ),
    SearchMode.SMALL_TO_BIG,
    0,
    2,
    1,
    True,
    1,
    Timings(1, 2, 3, 4, 10),
    SearchPlan.INDEX,
    1,
    retrieval=Retrieval.HYBRID,
)


def test_a_passage_shows_the_score_of_each_source_and_the_sentence_to_cite():
    output = written(HYBRID)
    assert output.splitlines()[:3] == [
        "1. 0.750 (lexical 0.500, dense 1.000)  Guide · Dogs · p. 4 · d#2.0",
        "1 tokens, p. 3-4; matched #0.0 0.750",
        "Cats sleep. «Dogs» bark.",
    ]
    assert "1 of 1 leaves considered, hybrid, by index\n" in output
    assert "FALLBACK" not in output


def test_a_passage_is_shown_at_a_glance():
    output = written(HYBRID, full=False)
    assert output.splitlines() == [
        "1. Guide · Dogs · p. 4  0.750",
        "   Cats sleep. «Dogs» bark.",
        "",
        "1 passage, no more exist; --full shows all of each",
    ]


def test_a_glance_shows_one_sentence_on_either_side_on_one_line():
    content = "Far before. Cats\n sleep.\n\nDogs bark loudly. Birds sing. Far behind."
    start, end = content.index("Dogs"), content.index(" Birds")
    passage = replace(
        PASSAGE,
        chunk=replace(CHUNK, content=content),
        term_spans=(TermSpan(start, start + 4),),
        matched_sentence=MatchedSentence(Span(start, end, start, end), (), 0, 0),
    )
    output = written(replace(HYBRID, passages=(passage,)), full=False)
    assert output.splitlines()[1] == "   Cats sleep. «Dogs» bark loudly. Birds sing."


@pytest.mark.parametrize(
    "content", ["word " * 1000, "字" * 5000, "a" * 5000, "", " \n ", "x\n" * 900]
)
@pytest.mark.parametrize("has_sentence", [True, False])
def test_a_glance_of_any_text_is_short(content, has_sentence):
    middle = len(content) // 2
    sentence = MatchedSentence(Span(middle, len(content), middle, len(content)), (), 0, 0)
    passage = replace(
        PASSAGE,
        chunk=replace(CHUNK, content=content),
        matched_sentence=sentence if has_sentence else None,
    )
    output = written(replace(HYBRID, passages=(passage,)), full=False)
    assert len(output) < 1000
    assert output.startswith("1. Guide")


def test_a_glance_on_a_terminal_colours_the_words():
    console = Console(file=StringIO(), width=60, force_terminal=True, color_system="standard")
    show_result(HYBRID, console, full=False)
    output = console.file.getvalue()
    assert "\x1b" in output
    assert "«" not in output


def test_a_fallback_is_reported_in_the_last_line():
    reason = "the endpoint is \x1b[2Jdown"
    fallen = replace(HYBRID, retrieval=Retrieval.LEXICAL, fallback=reason)
    last = written(fallen).splitlines()[-1]
    assert last.startswith("FALLBACK to lexical: the endpoint is")
    assert "\x1b" not in last


@pytest.fixture
def query(monkeypatch):
    """The arguments that the command passes to the client, whose search returns HYBRID."""
    query = {}

    @contextmanager
    def connect(*_, **__):
        yield SimpleNamespace(search=lambda **arguments: query.update(arguments) or HYBRID)

    monkeypatch.setattr(command, "connect", connect)
    return query


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["search", *arguments], catch_exceptions=False).stdout


@pytest.mark.usefixtures("query")
def test_json_has_every_field():
    shown = json.loads(run("x", "--json"))
    assert (shown["retrieval"], shown["fallback"], shown["mode"]) == ("hybrid", "", "small_to_big")
    (passage,) = shown["passages"]
    assert (passage["lexical_score"], passage["dense_score"]) == (0.5, 1.0)
    assert passage["term_spans"] == [{"char_start": 12, "char_end": 16}]
    assert passage["matched_sentence"]["section_path"] == ["Dogs"]
    assert passage["matched_children"][0]["lexical_score"] == 0.5


def test_options_that_are_not_given_are_left_to_the_retriever(query):
    run("x")
    unset = {name: value for name, value in query.items() if value is None}
    assert {"mode", "limit", "retrieval", "fusion", "lexical_weight", "rerank"} <= unset.keys()
    assert (query["candidates"], query["max_per_document"]) == (200, 0)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["--rerank"], "rerank", True),
        (["--no-rerank"], "rerank", False),
        (["--retrieval", "lexical"], "retrieval", Retrieval.LEXICAL),
        (["--fusion", "reciprocal_rank"], "fusion", FusionMethod.RECIPROCAL_RANK),
        (["--lexical-weight", "0.75"], "lexical_weight", 0.75),
        (["--neighbour-bonus", "0"], "neighbour_bonus", 0.0),
        (["--max-per-document", "2"], "max_per_document", 2),
        (["--keep-overlap"], "keep_overlap", True),
        (["--mode", "context"], "mode", SearchMode.CONTEXT),
    ],
)
def test_an_option_is_passed_to_the_retriever(query, options, field, value):
    run("x", *options)
    assert query[field] == value


def test_missing_summaries_are_reported():
    assert "nothing found: no section has a summary yet, or no document" in shown()


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--top-sections", "0", "greater than or equal to 1"),
        ("--top-sections", "1001", "less than or equal to 1000"),
        ("--top-sections", "many", "valid integer"),
        ("--summary-scope", "pages", "'sections', 'documents'"),
        ("--mode", "summaries", "'context'"),
        ("--retrieval", "both", "'hybrid', 'dense', 'lexical'"),
        ("--lexical-weight", "1.5", "less than or equal to 1"),
        ("--neighbour-bonus", "-1", "greater than or equal to 0"),
        ("--max-per-document", "1001", "less than or equal to 1000"),
    ],
)
def test_an_invalid_option_is_refused(option, value, rule):
    env = {"NO_COLOR": "1", "COLUMNS": "200"}
    result = CliRunner().invoke(app, ["search", "x", option, value], env=env)
    assert result.exit_code == 2
    assert option in result.stderr
    assert rule in result.stderr
