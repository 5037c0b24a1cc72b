"""Development sets, printed: does a search find in the prints what it finds in the texts?

The documents of a set are stored three times: as texts, as printed PDFs, and, if there are not too
many pages, as pictures of these pages. Every question is asked in each of these collections, with
the mode CONTEXT. The gold of a question is a part of the text. So the passages of a print are
mapped to the text, word by word (`word_alignment`), and recall is computed on the text in all
cases. A word that reading has lost is never found.
"""

import io
import shutil
import subprocess
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray

from benchmarks.documents.intervals import Interval, ratio
from benchmarks.documents.markdown_source import markdown_document, plain_document
from benchmarks.documents.measures import MAX_EXAMPLES
from benchmarks.documents.print_layouts import Outline, layout_of
from benchmarks.documents.printer import print_document
from benchmarks.documents.run import FigureList, Say
from benchmarks.documents.sentences import Writer
from benchmarks.documents.source_document import SourceDocument
from benchmarks.documents.word_alignment import UNPAIRED, aligned, words_of
from benchmarks.quality.run import SEED, TENANT, CallsFailed, measure, systems_of
from benchmarks.quality.sets import QualitySet
from hrag.client import Client
from hrag.errors import HragError
from hrag.evaluation.bootstrap import estimates
from hrag.evaluation.context_budget import BudgetedText
from hrag.evaluation.journal import Journal
from hrag.evaluation.questions import TextSpan
from hrag.evaluation.retrieval_metrics import RECALL, at_budget
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import DEFAULT_BUDGETS, SearchTarget, search_all
from hrag.evaluation.summary import RetrievalFigures, summarise
from hrag.types import Document
from hrag.values.formats import MARKDOWN, PDF
from indexer_svc.text_recognition import has_ocr_extra

SYSTEM = "context"
# The recall of the prints may be lower than that of the texts by this much.
PRINTED_LOSS, RECOGNISED_LOSS = 0.02, 0.05

# The tables of a run show so many documents of each printed set.
_SHOWN_DOCUMENTS = 3
_DOTS_PER_INCH = 150
_POINTS_PER_INCH = 72


def has_chinese_font() -> bool:
    """Returns True if this machine has a font for Chinese."""
    if shutil.which("fc-list") is None:
        return False
    listed = subprocess.run(
        ["fc-list", ":lang=zh", "family"], capture_output=True, text=True, check=False
    )
    return "CJK" in listed.stdout or "WenQuanYi" in listed.stdout


@dataclass(frozen=True, slots=True)
class PrintedSet:
    """The documents of a set's corpus: texts, and in the same order their PDFs and layouts."""

    texts: tuple[Document, ...]
    pdfs: tuple[bytes, ...]
    layouts: tuple[str, ...]
    page_count: int

    def printed(self) -> Iterator[Document]:
        """Yields the documents as PDFs."""
        for document, pdf in zip(self.texts, self.pdfs, strict=True):
            yield replace(document, body=pdf, mime_type=PDF)

    def pictured(self) -> Iterator[Document]:
        """Yields the documents as PDFs whose pages are pictures."""
        for document, pdf in zip(self.texts, self.pdfs, strict=True):
            yield replace(document, body=pictures_of(pdf), mime_type=PDF)


def print_set(quality_set: QualitySet) -> PrintedSet:
    """Prints the documents of a set, each in the layout and with the outline of its name."""
    texts = tuple(quality_set.documents())
    pdfs, layouts = [], []
    page_count = 0
    for document in texts:
        source = _source(quality_set.collection, document)
        outline = Writer.named(f"outline of {source.name}").pick(tuple(Outline))
        layout = layout_of(source)
        printed = print_document(source, layout, [outline])
        pdfs.append(printed.pdfs[outline])
        layouts.append(f"{layout}, {outline}")
        page_count += printed.page_count
    return PrintedSet(texts, tuple(pdfs), tuple(layouts), page_count)


def _source(collection: str, document: Document) -> SourceDocument:
    read = markdown_document if document.mime_type == MARKDOWN else plain_document
    name = f"{collection}/{document.document_id}"
    language = str(document.metadata.get("lang", "en"))
    return read(name, str(document.body), document.title or name, language)


def pictures_of(pdf: bytes) -> bytes:
    """Returns a PDF with a picture of each page of a PDF. It needs Pillow (extra `ocr`)."""
    scale = _DOTS_PER_INCH / _POINTS_PER_INCH
    with pdfium.PdfDocument(pdf) as document:
        pages = [page.render(scale=scale, grayscale=True).to_pil() for page in document]
    written = io.BytesIO()
    first, *others = pages
    first.save(
        written, "PDF", save_all=True, append_images=others, resolution=_DOTS_PER_INCH, quality=90
    )
    return written.getvalue()


def store_documents(client: Client, collection: str, documents: Iterable[Document]) -> None:
    """Stores documents in a new collection. Raises the error of a document that is not stored."""
    client.create_collection(TENANT, collection)
    for outcome in client.ingest_many(TENANT, documents, collection=collection):
        if isinstance(outcome, HragError):
            raise outcome


class SpanMap:
    """Maps the characters of the text that was read of a print to those of the printed text."""

    def __init__(self, source: str, text: str) -> None:
        """Aligns the words of the texts."""
        self._source = words_of(source)
        self._text = words_of(text)
        pairs = aligned([word.key for word in self._source], [word.key for word in self._text])
        self._sources = [UNPAIRED] * len(self._text)
        for index, pair in enumerate(pairs):
            if pair != UNPAIRED:
                self._sources[pair] = index
        self._starts = [word.start for word in self._text]
        self._ends = [word.end for word in self._text]

    @property
    def lost_words(self) -> list[str]:
        """The words of the source that the text does not have."""
        paired = set(self._sources)
        return [word.key for index, word in enumerate(self._source) if index not in paired]

    @property
    def word_count(self) -> int:
        """The count of words of the source."""
        return len(self._source)

    def mapped(self, span: TextSpan) -> Iterator[TextSpan]:
        """Yields the parts of the source that a span of the text contains, in order."""
        first = bisect_left(self._starts, span.char_start)
        last = bisect_left(self._ends, span.char_end + 1)
        indexes = sorted(index for index in self._sources[first:last] if index != UNPAIRED)
        at = 0
        while at < len(indexes):
            end = at + 1
            while end < len(indexes) and indexes[end] == indexes[end - 1] + 1:
                end += 1
            start = self._source[indexes[at]].start
            yield TextSpan(span.document_id, start, self._source[indexes[end - 1]].end)
            at = end


def span_maps(client: Client, collection: str, texts: Iterable[Document]) -> dict[str, SpanMap]:
    """Returns how the stored texts of a collection map to the texts, by document id."""
    return {
        text.document_id: SpanMap(
            str(text.body), client.get_text(TENANT, text.document_id, collection=collection)
        )
        for text in texts
    }


def measure_mapped(
    client: Client, quality_set: QualitySet, collection: str, maps: dict[str, SpanMap]
) -> RetrievalFigures:
    """Asks the questions of a set in a collection of prints. Raises CallsFailed."""
    systems = systems_of(SYSTEM)
    target = SearchTarget(TENANT, collection, DEFAULT_BUDGETS)
    outcomes = search_all(
        client, quality_set.questions, systems, target, Journal(), lambda *_: None
    )
    failed = [outcome for outcome in outcomes[SYSTEM] if isinstance(outcome, HragError)]
    if failed:
        raise CallsFailed(f"{len(failed)} searches of {collection} failed: {failed[0]}")
    mapped = [
        _mapped(outcome, maps)
        for outcome in outcomes[SYSTEM]
        if isinstance(outcome, RetrievalResult)
    ]
    return summarise(
        quality_set.questions, systems, {SYSTEM: mapped}, target, baseline=SYSTEM, seed=SEED
    )


def _mapped(result: RetrievalResult, maps: dict[str, SpanMap]) -> RetrievalResult:
    def spans(of: Iterable[TextSpan]) -> tuple[TextSpan, ...]:
        return tuple(part for span in of for part in maps[span.document_id].mapped(span))

    texts = {
        budget: BudgetedText(spans(text.spans), text.tokens)
        for budget, text in result.texts.items()
    }
    return replace(result, ranking=spans(result.ranking), texts=texts)


def measure_set(
    client: Client,
    quality_set: QualitySet,
    collections: dict[str, dict[str, SpanMap]],
    figures: FigureList,
) -> None:
    """Asks the questions of a set in its texts and prints, and adds the figures.

    `collections` has, for each kind of print (`printed`, `recognised`), the maps of its documents.
    """
    in_texts = measure(client, quality_set, systems_of(SYSTEM))
    name = quality_set.name
    _add_recall(figures, name, "text", in_texts)
    for kind, maps in collections.items():
        in_prints = measure_mapped(client, quality_set, collection_of(quality_set, kind), maps)
        _add_recall(figures, name, kind, in_prints)
        loss = PRINTED_LOSS if kind == "printed" else RECOGNISED_LOSS
        _add_differences(figures, name, kind, (in_texts, in_prints), loss)
        lost = [len(span_map.lost_words) for span_map in maps.values()]
        words = [span_map.word_count for span_map in maps.values()]
        key = f"documents.sets.{name}.{kind}.words_lost"
        figures.add(key, f"{name}, {kind}: words lost", ratio(lost, words), "share", None)


def collection_of(quality_set: QualitySet, kind: str) -> str:
    """Returns the name of the collection of the prints of a set's corpus."""
    return f"{quality_set.collection}-{kind}"


def _add_recall(figures: FigureList, name: str, kind: str, measured: RetrievalFigures) -> None:
    for budget in measured.budgets:
        estimate = measured.systems[0].estimates[at_budget(RECALL, budget)]
        interval = Interval(estimate.mean, estimate.low, estimate.high, 0.0)
        key = f"documents.sets.{name}.{kind}.recall_{budget}"
        figures.add(key, f"{name}, {kind}: recall@{budget}", interval, "share", None)


def _add_differences(
    figures: FigureList,
    name: str,
    kind: str,
    measured: tuple[RetrievalFigures, RetrievalFigures],
    target: float,
) -> None:
    budgets = measured[0].budgets
    metrics = [at_budget(RECALL, budget) for budget in budgets]
    in_texts, in_prints = (_scores(figures_of, metrics) for figures_of in measured)
    differences = in_texts - in_prints
    noises = differences.std(axis=1) / max(1, differences.shape[1]) ** 0.5
    all_estimates = estimates(differences, SEED)
    for budget, estimate, noise in zip(budgets, all_estimates, noises, strict=True):
        figures.add(
            f"documents.sets.{name}.{kind}.loss_{budget}",
            f"{name}, {kind}: recall@{budget} lost by printing",
            Interval(estimate.mean, estimate.low, estimate.high, float(noise)),
            "share",
            "lower",
            target,
        )


def _scores(measured: RetrievalFigures, metrics: Sequence[str]) -> NDArray[np.float64]:
    """Returns the scores of all questions by metric: `float64[metrics, questions]`."""
    return np.array(
        [[question.scores[SYSTEM][metric] for question in measured.questions] for metric in metrics]
    )


def measure_sets(
    client: Client,
    sets: Sequence[QualitySet],
    figures: FigureList,
    say: Say,
    max_recognised_pages: int,
) -> tuple[list[str], list[dict[str, Any]]]:
    """Prints, stores and asks each set.

    Returns the names of the sets that were not printed, and the documents that lost most words. A
    set is also recognised if its print has at most `max_recognised_pages` pages and the extra `ocr`
    is installed.
    """
    if not has_ocr_extra():
        max_recognised_pages = 0
    left_out: list[str] = []
    misses: list[dict[str, Any]] = []
    has_font = has_chinese_font()
    maps: dict[str, dict[str, dict[str, SpanMap]]] = {}
    for quality_set in sets:
        if quality_set.collection not in maps:
            if not has_font and _is_chinese(quality_set):
                left_out.append(quality_set.name)
                continue
            printed = print_set(quality_set)
            stored = _stored(client, quality_set, printed, say, max_recognised_pages)
            maps[quality_set.collection] = stored
            misses += _misses(quality_set.collection, printed, stored)
        measure_set(client, quality_set, maps[quality_set.collection], figures)
        say(f"{quality_set.name}: {len(quality_set.questions):,} questions")
    return left_out, misses


def _misses(
    collection: str, printed: PrintedSet, stored: Mapping[str, Mapping[str, SpanMap]]
) -> Iterator[dict[str, Any]]:
    """Yields, for each kind of print, the documents of which most words were lost."""
    names = (document.document_id for document in printed.texts)
    layouts = dict(zip(names, printed.layouts, strict=True))
    for kind, maps in stored.items():
        by_loss = sorted(maps, key=lambda name: -len(maps[name].lost_words))
        for document_id in by_loss[:_SHOWN_DOCUMENTS]:
            lost, count = maps[document_id].lost_words, maps[document_id].word_count
            if lost:
                yield {
                    "document": f"{collection}/{document_id}",
                    "layout": layouts[document_id],
                    "measure": f"{len(lost):,} of {count:,} words",
                    "outlines": [kind],
                    "examples": lost[:MAX_EXAMPLES],
                }


def _stored(
    client: Client,
    quality_set: QualitySet,
    printed: PrintedSet,
    say: Say,
    max_recognised_pages: int,
) -> dict[str, dict[str, SpanMap]]:
    """Stores the texts and prints of a set's corpus; returns the maps of each kind of print."""
    say(f"{quality_set.collection}: {printed.page_count} pages printed")
    store_documents(client, quality_set.collection, printed.texts)
    prints: dict[str, Callable[[], Iterator[Document]]] = {"printed": printed.printed}
    if printed.page_count <= max_recognised_pages:
        prints["recognised"] = printed.pictured
    for kind, documents in prints.items():
        store_documents(client, collection_of(quality_set, kind), documents())
        say(f"{quality_set.collection}: {kind} documents stored")
    return {
        kind: span_maps(client, collection_of(quality_set, kind), printed.texts) for kind in prints
    }


def _is_chinese(quality_set: QualitySet) -> bool:
    return any(document.metadata.get("lang") == "zh" for document in quality_set.documents())
