"""Prints and reads documents and tables, and turns the measures into figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.documents.intervals import Interval, ratio, total
from benchmarks.documents.measures import Comparison, Matches, compare
from benchmarks.documents.print_layouts import (
    Outline,
    PrintLayout,
    layout_of,
    table_layout_of,
)
from benchmarks.documents.print_reader import PrintReader
from benchmarks.documents.printer import print_document
from benchmarks.documents.sentences import SEED
from benchmarks.documents.source_document import SourceDocument
from benchmarks.figures import Better, Figure
from hrag.errors import HragError

# The targets. A figure is met if it is at least, or for the last three at most, this value.
SECTION_F1 = {Outline.BOOKMARKS: 0.95, Outline.TAGS: 0.95, Outline.NONE: 0.85}
RULED_F1, ALIGNED_F1 = 0.98, 0.92
ORDER = 0.99
HEADS_LEFT = 0
LOST_WORDS = 0.002

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document that was printed and read: the measures and the processor time of each print."""

    name: str
    layout: PrintLayout
    page_count: int
    comparisons: dict[Outline, Comparison]
    cpu_ms: float

    def summed(self, measure: Callable[[Comparison], float]) -> float:
        """Returns the sum of a measure over the prints."""
        return sum(map(measure, self.comparisons.values()))


class ReadingFailed(Exception):
    """A print could not be read. The message says which one and why."""


def read_document(
    reader: PrintReader,
    document: SourceDocument,
    layout: PrintLayout,
    outlines: Sequence[Outline] = tuple(Outline),
) -> ReadDocument:
    """Prints a document in a layout, once for each outline, and compares what is read.

    Raises ReadingFailed if the reader refuses a print.
    """
    printed = print_document(document, layout, outlines)
    comparisons = {}
    cpu_ms = 0.0
    for outline, pdf in printed.pdfs.items():
        try:
            read = reader.read(pdf)
        except HragError as error:
            raise ReadingFailed(f"{document.name}, {outline}: {error}") from error
        comparisons[outline] = compare(printed, read.parsed)
        cpu_ms += read.cpu_ms
    return ReadDocument(document.name, layout, printed.page_count, comparisons, cpu_ms)


def read_documents(
    reader: PrintReader, documents: Iterable[SourceDocument], say: Say
) -> Iterator[ReadDocument]:
    """Yields each document as it was read from its prints."""
    for document in documents:
        read = read_document(reader, document, layout_of(document))
        worst = min(comparison.sections.f1 for comparison in read.comparisons.values())
        lost = read.summed(lambda comparison: comparison.lost_word_count)
        say(f"{read.name}: {read.page_count} pages, sections {worst:.3f}, {lost} words lost")
        yield read


def read_tables(
    reader: PrintReader, documents: Iterable[tuple[SourceDocument, bool]], say: Say
) -> Iterator[tuple[ReadDocument, bool]]:
    """Yields each document with a table as it was read, and True if the table has lines."""
    for document, is_ruled in documents:
        layout = table_layout_of(document, is_ruled=is_ruled)
        read = read_document(reader, document, layout, [Outline.NONE])
        cells = read.comparisons[Outline.NONE].cells.f1
        if cells < 1:
            say(f"{read.name}: cells {cells:.3f}")
        yield read, is_ruled


class FigureList:
    """The figures of a run, with their intervals. All have the same sizes and command."""

    def __init__(self, command: str, sizes: dict[str, int]) -> None:
        """Begins an empty list. `sizes` are the counts that a repetition must have too."""
        self._command = command
        self._sizes = sizes
        self.figures: dict[str, Figure] = {}
        self.intervals: dict[str, tuple[float, float]] = {}

    def add(
        self,
        key: str,
        what: str,
        interval: Interval,
        unit: str,
        better: Better | None,
        target: float | None = None,
    ) -> None:
        """Adds a figure. Without a target it is only reported."""
        is_met = None
        if target is not None:
            value = interval.value
            is_met = value <= target if better == "lower" else value >= target
        self.intervals[key] = (interval.low, interval.high)
        self.figures[key] = Figure(
            what=what,
            value=interval.value,
            unit=unit,
            better=better,
            target=target,
            noise=interval.noise,
            seed=SEED,
            sizes=self._sizes,
            command=self._command,
            full=False,
            met=is_met,
        )


def add_document_figures(figures: FigureList, documents: Sequence[ReadDocument]) -> None:
    """Adds the figures of the printed documents."""
    for outline, target in SECTION_F1.items():
        what = {"none": "neither bookmarks nor tags"}.get(outline, str(outline))
        sections = _f1([read.comparisons[outline].sections for read in documents])
        key = f"documents.sections.{outline}.f1"
        figures.add(key, f"sections, {what}: F1", sections, "share", "higher", target)

    def share(part: str, whole: str) -> Interval:
        return ratio(_sums(documents, part), _sums(documents, whole))

    heads = total(_sums(documents, "head_count"))
    what = "running heads and page numbers left in"
    figures.add("documents.heads_left", what, heads, "heads", "lower", HEADS_LEFT)
    lines = total(_sums(documents, "contents_line_count"))
    figures.add(
        "documents.contents_lines_left", "lines of contents pages left in", lines, "lines", "lower"
    )
    lost = share("lost_word_count", "word_count")
    figures.add("documents.words.lost", "words lost", lost, "share", "lower", LOST_WORDS)
    added = share("added_word_count", "word_count")
    figures.add("documents.words.added", "words added", added, "share", "lower")
    order = share("ordered_count", "neighbour_count")
    figures.add("documents.words.order", "order of words", order, "share", "higher", ORDER)
    cells = [_all_cells(read) for read in documents]
    figures.add(
        "documents.cells.in_documents.f1",
        "cells of tables in documents: F1",
        _f1(cells),
        "share",
        "higher",
    )
    cpu = ratio(
        [read.cpu_ms for read in documents],
        [read.page_count * len(read.comparisons) for read in documents],
    )
    figures.add("documents.cpu_per_page", "processor time of a page", cpu, "ms", "lower")


def add_table_figures(figures: FigureList, tables: Sequence[tuple[ReadDocument, bool]]) -> None:
    """Adds the figures of the generated tables."""
    for name, is_wanted, target in (("ruled", True, RULED_F1), ("aligned", False, ALIGNED_F1)):
        cells = [_all_cells(read) for read, is_ruled in tables if is_ruled is is_wanted]
        if cells:
            key = f"documents.cells.{name}.f1"
            what = f"cells of {name} tables: F1"
            figures.add(key, what, _f1(cells), "share", "higher", target)


def misses(documents: Iterable[ReadDocument]) -> Iterator[dict[str, Any]]:
    """Yields what was missed: for each document and measure, the outlines and some examples."""
    for read in documents:
        by_measure: dict[str, dict[str, tuple[str, ...]]] = {}
        for outline, comparison in read.comparisons.items():
            for measure, examples in comparison.examples.items():
                by_measure.setdefault(measure, {})[outline] = examples
        for measure, examples_of in by_measure.items():
            yield {
                "document": read.name,
                "layout": str(read.layout),
                "measure": measure,
                "outlines": list(examples_of),
                "examples": next(iter(examples_of.values())),
            }


def _all_cells(read: ReadDocument) -> Matches:
    return sum((comparison.cells for comparison in read.comparisons.values()), Matches())


def _f1(matches: Sequence[Matches]) -> Interval:
    totals = [match.in_document + match.in_text for match in matches]
    return ratio([2 * match.right for match in matches], totals)


def _sums(documents: Sequence[ReadDocument], field: str) -> list[float]:
    return [read.summed(lambda comparison: getattr(comparison, field)) for read in documents]
