"""Writes the questions of a report as a table for spreadsheets: one row for each question.

A spreadsheet runs a cell as a formula if it begins with one of a few characters. Texts come from
documents and models, so such a text gets an apostrophe in front, which spreadsheets show as text.
"""

import csv
from collections.abc import Iterator, Mapping
from io import StringIO

from hrag.evaluation.judge import CRITERIA, JudgedPair
from hrag.evaluation.question_records import QuestionRecord, SystemRecord
from hrag.evaluation.report_files import Report

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
# Excel and LibreOffice cut off longer cells or refuse them.
_MAX_CELL_CHARS = 32_000
_OUTCOMES = {1: "wins", 0: "tie", -1: "loses"}
# Without this mark, Excel reads UTF-8 as another encoding.
_BYTE_ORDER_MARK = "\ufeff"

Cell = str | int | float


def csv_report(report: Report) -> str:
    """Returns the table as text. Shares are from 0 to 1, and times are in microseconds."""
    rows = [_row(record) for record in report.questions]
    names = dict.fromkeys(name for row in rows for name in row)
    file = StringIO()
    writer = csv.DictWriter(file, list(names), restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return _BYTE_ORDER_MARK + file.getvalue()


def _row(record: QuestionRecord) -> dict[str, Cell]:
    row: dict[str, Cell] = {
        "question_id": record.question_id,
        "question": record.text,
        "reference_answer": record.reference,
        **record.kinds,
        "gold": "\n".join(piece.text or piece.document_id for piece in record.gold),
        "quotes_nowhere": "\n".join(record.nowhere),
    }
    for name, system in record.systems.items():
        row |= {f"{name}: {column}": value for column, value in _system_cells(system)}
    for name, pair in record.verdicts.items():
        row |= {f"{name}: {column}": value for column, value in _verdict_cells(pair)}
    return row


def _system_cells(system: SystemRecord) -> Iterator[tuple[str, Cell]]:
    yield "recall", "" if system.recall is None else round(system.recall, 6)
    yield "tokens", system.tokens
    yield "latency_us", system.latency_us
    yield "error", system.error
    passages = enumerate(system.passages, 1)
    yield (
        "passages",
        "\n\n".join(f"[{n}] {passage.chunk_id}\n{passage.text}" for n, passage in passages),
    )
    if system.answer is not None:
        yield "answer", system.answer.text or system.answer.error
        yield "citations", " ".join(map(str, system.answer.citations))
        yield "answer_prompt_tokens", system.answer.prompt_tokens
        yield "answer_completion_tokens", system.answer.completion_tokens
        yield "answer_us", system.answer.took_us


def _verdict_cells(pair: JudgedPair) -> Iterator[tuple[str, Cell]]:
    outcomes: Mapping[str, int] = pair.outcomes
    for criterion in CRITERIA:
        yield criterion, _OUTCOMES[outcomes[criterion]] if outcomes else ""
    yield "reason_shown_first", pair.reasons[0] if pair.reasons else ""
    yield "reason_shown_second", pair.reasons[1] if pair.reasons else ""
    yield "judge_error", pair.error


def _cell(value: Cell) -> Cell:
    """Returns the value of a cell. A text that a spreadsheet would run gets an apostrophe."""
    if not isinstance(value, str):
        return value
    text = value[:_MAX_CELL_CHARS].replace("\0", "")
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
