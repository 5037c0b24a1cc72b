"""A run of the benchmark of documents has figures, targets, intervals and a table of misses."""

from pathlib import Path

import pytest

from benchmarks.documents import __main__ as command
from benchmarks.documents.measures import Comparison, Matches
from benchmarks.documents.print_layouts import Outline, layout_of
from benchmarks.documents.printer import NoPrinter
from benchmarks.documents.run import (
    FigureList,
    ReadDocument,
    add_document_figures,
    add_table_figures,
    misses,
)
from benchmarks.documents.source_document import SourceDocument
from benchmarks.documents.tables import tables
from benchmarks.figures import Results

PERFECT = Comparison(
    sections=Matches(10, 10, 10),
    cells=Matches(20, 20, 20),
    head_count=0,
    contents_line_count=0,
    word_count=1000,
    lost_word_count=0,
    added_word_count=0,
    neighbour_count=990,
    ordered_count=990,
)
POOR = Comparison(
    sections=Matches(10, 10, 5),
    cells=Matches(20, 10, 3),
    head_count=2,
    contents_line_count=1,
    word_count=1000,
    lost_word_count=10,
    added_word_count=5,
    neighbour_count=980,
    ordered_count=882,
    examples={"sections": ("not read: 'a|b' of depth 2",), "heads": ("page 1: 1",)},
)


def read_document(name: str, comparison: Comparison) -> ReadDocument:
    layout = layout_of(SourceDocument(name, name, ()))
    return ReadDocument(name, layout, 3, dict.fromkeys(Outline, comparison), cpu_ms=90)


def results(*documents: ReadDocument) -> Results:
    figures = FigureList("make bench-documents", {"documents": len(documents), "tables": 2})
    add_document_figures(figures, documents)
    add_table_figures(figures, [(documents[0], True), (documents[-1], False)])
    about = {
        "commit": "c0ffee",
        "date": "2026-11-26T00:00:00",
        "documents": len(documents),
        "tables": 2,
        "pages": 6,
        "versions": {"python": "3.11", "weasyprint": "70.0"},
        "sets": [],
        "sets_left_out": "",
        "intervals": figures.intervals,
        "misses": list(misses(documents)),
    }
    return Results(about=about, figures=figures.figures)


def test_figures_are_sums_over_documents_and_are_judged() -> None:
    figures = results(read_document("good", PERFECT), read_document("poor", POOR)).figures
    values = {key: (round(figure.value, 4), figure.met) for key, figure in figures.items()}
    assert values == {
        "documents.sections.bookmarks.f1": (0.75, False),
        "documents.sections.tags.f1": (0.75, False),
        "documents.sections.none.f1": (0.75, False),
        "documents.heads_left": (6, False),
        "documents.contents_lines_left": (3, None),
        "documents.words.lost": (0.005, False),
        "documents.words.added": (0.0025, None),
        "documents.words.order": (0.9503, False),
        "documents.cells.in_documents.f1": (0.6571, None),
        "documents.cpu_per_page": (10, None),
        "documents.cells.ruled.f1": (1, True),
        "documents.cells.aligned.f1": (0.2, False),
    }
    assert not figures["documents.cpu_per_page"].is_compared


def test_a_perfect_run_meets_all_targets() -> None:
    perfect = results(read_document("good", PERFECT), read_document("good", PERFECT))
    assert {figure.met for figure in perfect.figures.values()} == {True, None}
    assert list(misses([read_document("good", PERFECT)])) == []


def test_the_tables_show_verdicts_intervals_and_misses() -> None:
    lines = list(tables(results(read_document("good", PERFECT), read_document("poor", POOR))))
    text = "\n".join(lines)
    assert "| words lost | <= 0.002 | **0.005** | 0 to 0.01 | **missed** |" in text
    assert "| cells of ruled tables: F1 | >= 0.98 | 1 | 1 to 1 | met |" in text
    assert "| `poor` |" in text
    assert "| sections | bookmarks, tags, none | not read: 'a\\|b' of depth 2 |" in text
    assert "| `good` |" not in text
    assert results(read_document("good", PERFECT)).model_dump_json()


def test_the_exit_code_is_2_if_nothing_can_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> Results:
        raise NoPrinter("WeasyPrint is missing")

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--results", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "WeasyPrint is missing\n"
    assert command.main([str(tmp_path), "--results", str(tmp_path)]) == 2
    assert "contains no development set" in capsys.readouterr().err


@pytest.mark.parametrize(("comparison", "code"), [(PERFECT, 0), (POOR, 1)])
def test_a_run_with_a_missed_target_fails(
    comparison: Comparison, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object) -> Results:
        return results(read_document("d", comparison), read_document("e", comparison))

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--results", str(tmp_path), "--store"]) == code
    assert (tmp_path / "stored" / "TABLES.md").exists()
    assert command.main(["--results", str(tmp_path), "--documents", "2"]) == code
