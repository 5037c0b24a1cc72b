"""The table of all questions in the HTML report, as data for the page's script.

The script (`question_table.js` of the explorer) shows the table, sorts and filters it, and opens a
question to the passages and answers of all systems side by side. The data is a JSON block: the
script reads it and makes text of it, never HTML. `<` is escaped in it, so that no text can end the
block. The explorer makes the same data of a JSON report (`report_file.js`).

A page must stay small enough to open. So the passages share MAX_PASSAGE_CHARS characters, and a
passage that is longer than its share is cut to the text around the gold. The page says what was
cut; JSON and CSV have everything.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from html import escape
from typing import Any

from hrag.evaluation.judge import JudgedAnswer, JudgedPair
from hrag.evaluation.question_records import GoldRecord, QuestionRecord, SystemRecord
from hrag.evaluation.questions import TextSpan
from hrag.evaluation.report_files import Report
from hrag.evaluation.retrieved import KeptPassage
from hrag.evaluation.searches import SearchTarget, main_budget
from hrag.evaluation.systems import System
from hrag.values.search import SearchMode

# All passages of a page together have at most this many characters.
MAX_PASSAGE_CHARS = 12_000_000
# A page lists at most this many questions.
MAX_ROWS = 5000
# A share of fewer characters shows nothing useful, so the passages are left out.
_MIN_SHARE = 200
_MAX_TEXT_CHARS = 4000


def question_section(report: Report) -> Iterator[str]:
    """Yields the HTML of the section: what was cut, the place of the table, and its data."""
    shown = report.questions[:MAX_ROWS]
    if not shown:
        return
    share = _chars_per_system(shown)
    yield f"<h2>All {len(report.questions):,} questions</h2>"
    yield '<p class="note">Choose a question to see what every system returned. The gold is marked'
    yield " in the passages.</p>"
    if notes := list(_cut_notes(report, shown, share)):
        yield f'<p class="note">{escape(" ".join(notes))}</p>'
    yield '<div id="questions"></div>'
    yield '<noscript><p class="warning">The table needs JavaScript, which is switched off here. '
    yield "The same data is in the JSON and CSV files.</p></noscript>"
    yield f'<script type="application/json" id="data">{json_block(page_data(report))}</script>'


def json_block(value: Any) -> str:
    """Returns JSON that can be the content of a script element: no character can end it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def page_data(report: Report) -> dict[str, Any]:
    """Returns the data that the page's script shows."""
    shown = report.questions[:MAX_ROWS]
    share = _chars_per_system(shown)
    names = list(dict.fromkeys(name for record in shown for name in record.systems))
    baseline = str(report.about.get("baseline", names[-1] if names else ""))
    return {
        "systems": names,
        "baseline": baseline,
        "explorer": _explorer(report),
        "questions": [_question(record, share) for record in shown],
    }


def _chars_per_system(shown: Sequence[QuestionRecord]) -> int:
    """Returns how many characters of passages each system may show for a question."""
    return MAX_PASSAGE_CHARS // max(1, sum(len(record.systems) for record in shown))


def _cut_notes(report: Report, shown: Sequence[QuestionRecord], share: int) -> Iterator[str]:
    if len(shown) < len(report.questions):
        yield f"This page lists the first {len(shown):,} questions; JSON and CSV have all."
    if share < _MIN_SHARE:
        yield "This page leaves out the passages, because there are too many; see JSON and CSV."
    elif any(
        sum(len(passage.text) for passage in system.passages) > share
        for record in shown
        for system in record.systems.values()
    ):
        yield (
            f"Passages are cut to {share:,} characters for each question and system, around the "
            "gold; JSON and CSV have them whole."
        )


def _explorer(report: Report) -> dict[str, Any] | None:
    """Returns what links into the explorer need: its address, the scope and the searches."""
    if not report.explorer or report.where is None:
        return None
    return {
        "address": report.explorer,
        "tenant": report.where.tenant_id,
        "collections": {
            system.name: system.options.get("collection", report.where.collection)
            for system in report.systems
        },
        "searches": {
            system.name: _search(system, system.mode, report.where)
            for system in report.systems
            if system.mode
        },
    }


def _search(system: System, mode: SearchMode, where: SearchTarget) -> dict[str, str]:
    """Returns the fields that a system's options are in the explorer's address, as texts by name.

    `search_options.js` of the explorer lists the names and values.
    """
    fields = {"mode": mode.name}
    for name, value in system.options.items():
        if name != "collection":
            fields[_camel_case(name)] = _option_text(value)
    if system.fills_budget:
        fields["tokenBudget"] = str(main_budget(where.budgets))
    return fields


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _option_text(value: StrEnum | float) -> str:
    return value.name if isinstance(value, StrEnum) else json.dumps(value)


def _question(record: QuestionRecord, share: int) -> dict[str, Any]:
    places = [place for piece in record.gold for place in piece.places]
    documents = {piece.document_id for piece in record.gold if not piece.text and not piece.places}
    return {
        "id": record.question_id,
        "text": record.text[:_MAX_TEXT_CHARS],
        "reference": record.reference[:_MAX_TEXT_CHARS],
        "kinds": dict(record.kinds),
        "gold": [_gold(piece) for piece in record.gold],
        "systems": {
            name: _system(system, places, documents, share)
            for name, system in record.systems.items()
        },
        "verdicts": {name: _verdict(pair) for name, pair in record.verdicts.items()},
    }


def _gold(piece: GoldRecord) -> dict[str, Any]:
    return {
        "document": piece.document_id or (piece.places[0].document_id if piece.places else ""),
        "text": piece.text[:_MAX_TEXT_CHARS],
        "nowhere": piece.is_nowhere,
    }


def _system(
    system: SystemRecord, places: Sequence[TextSpan], documents: set[str], share: int
) -> dict[str, Any]:
    count = max(1, len(system.passages))
    shown = system.passages if share >= _MIN_SHARE else ()
    return {
        "recall": system.recall,
        "tokens": system.tokens,
        "ms": round(system.latency_us / 1000, 1),
        "error": system.error or system.fallback,
        "answer": _answer(system.answer) if system.answer else None,
        "isAnswered": bool(system.answer and system.answer.passages),
        "passages": [
            {**_passage(passage, places, share // count), "right": passage.document_id in documents}
            for passage in shown
        ],
    }


def _answer(answer: JudgedAnswer) -> dict[str, Any]:
    return {
        "text": answer.text[:_MAX_TEXT_CHARS],
        "citations": list(answer.citations),
        "read": answer.prompt_tokens,
        "written": answer.completion_tokens,
        "ms": round(answer.took_us / 1000),
        "error": answer.error,
    }


def _verdict(pair: JudgedPair) -> dict[str, Any]:
    return {"outcomes": dict(pair.outcomes), "reasons": list(pair.reasons), "error": pair.error}


def _passage(passage: KeptPassage, places: Iterable[TextSpan], chars: int) -> dict[str, Any]:
    marks = _marks(passage, places)
    start, end = _window(len(passage.text), marks, chars)
    return {
        "heading": passage.heading,
        "document": passage.document_id,
        "chunk": passage.chunk_id,
        "parts": _parts(passage.text, marks, start, end),
        "cutStart": start > 0,
        "cutEnd": end < len(passage.text),
    }


def _marks(passage: KeptPassage, places: Iterable[TextSpan]) -> list[tuple[int, int]]:
    """Returns the ranges of the passage's text that are gold, in order, without overlaps."""
    span = passage.span
    ranges = sorted(
        (max(place.char_start, span.char_start) - span.char_start,
         min(place.char_end, span.char_end) - span.char_start)
        for place in places
        if place.document_id == span.document_id
    )  # fmt: skip
    marks: list[tuple[int, int]] = []
    for start, end in ranges:
        begin = max(start, marks[-1][1] if marks else 0)
        if begin < end:
            marks.append((begin, end))
    return marks


def _window(length: int, marks: Sequence[tuple[int, int]], chars: int) -> tuple[int, int]:
    """Returns the range of at most `chars` characters to show: around the first gold, if any."""
    if length <= chars:
        return 0, length
    middle = sum(marks[0]) // 2 if marks else 0
    start = min(max(0, middle - chars // 2), length - chars)
    return start, start + chars


def _parts(text: str, marks: Iterable[tuple[int, int]], start: int, end: int) -> list[str]:
    """Returns the text from `start` to `end` in parts: text, gold, text, gold, and so on.

    A part may be empty. Parts are texts, not offsets, because JavaScript counts characters
    differently.
    """
    parts, at = [], start
    for mark_start, mark_end in marks:
        first, last = max(mark_start, start), min(mark_end, end)
        if first < last:
            parts += [text[at:first], text[first:last]]
            at = last
    return [*parts, text[at:end]]
