"""Reads questions with their gold from a BEIR folder, from JSON lines, or from a table.

The gold of a question is the expected texts (spans or quotes that answer the question), or the
expected documents (which contain the answer). The path determines the format:

* A folder with `queries.jsonl` (`_id`, `text`) and `qrels/<split>.tsv` (query-id, corpus-id,
  score) is in BEIR's format. Documents with a score over 0 are the gold.
* A `.jsonl` file, or a folder with `queries.jsonl` but without `qrels`, has in each line `qid`,
  `query`, `gold` and optionally `answer`. Each entry of `gold` has `doc_id` with `start` and `end`,
  or `quote` with or without `doc_id`, or `doc_id` alone. If the folder also contains a
  `corpus.jsonl`, `end` must not be larger than the length of the document.
* A `.csv` or `.tsv` file has the column `question`, at least one of the columns `document_id` and
  `quote`, and optionally the columns `qid` and `answer`. Rows with the same question are joined to
  one question. Either all of these rows must have a quote, or none of these rows. The cells of a
  `.csv` file are separated by commas, or by semicolons, which spreadsheet programs write where the
  comma is the decimal separator.

In every format, a question may also have `kind` and `lang` (or `language`): the user's words for
what kind of question it is, and for its language.

If a file contains a mistake, the error names the line, the field, its value and what is allowed.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

from hrag.evaluation.json_lines import Row, json_rows, unreadable
from hrag.evaluation.question_corpus import CORPUS, ID_FIELDS, document_id_of, document_lengths
from hrag.evaluation.questions import (
    Gold,
    GoldDocument,
    GoldQuote,
    GoldSpan,
    Question,
    TextSpan,
)
from hrag.values.errors import InvalidArgument

DEFAULT_SPLIT = "test"
FORMATS = "a BEIR folder, a folder with queries.jsonl, or a .jsonl, .csv or .tsv file"

_QUERIES = "queries.jsonl"
_QRELS = "qrels"
_DELIMITERS = {".csv": ",;", ".tsv": "\t"}
_QUESTION_COLUMNS = ("question", "query")
_DOCUMENT_COLUMNS = ("document_id", "doc_id", "document")
_QUOTE_COLUMNS = ("quote", "quoted_text")
_LANGUAGES = ("lang", "language")
_MAX_CELL_CHARS = 1 << 20


def read_questions(path: Path, split: str = DEFAULT_SPLIT) -> tuple[Question, ...]:
    """Returns the questions of a file or folder, in their order.

    `split` is the name, without extension, of a file in the folder `qrels` of a BEIR folder. Raises
    InvalidArgument if the questions cannot be read or used; the error names file, line and field.
    """
    questions = []
    lines_by_id: dict[str, int] = {}
    for row, question in _questions(path, split):
        earlier = lines_by_id.setdefault(question.question_id, row.line)
        if earlier != row.line:
            row.refuse("qid", question.question_id, f"different from the id in line {earlier}")
        questions.append(question)
    if not questions:
        raise InvalidArgument(f"{path} has no questions", field="questions")
    return tuple(questions)


def _questions(path: Path, split: str) -> Iterator[tuple[Row, Question]]:
    """Yields each question with the line in which it begins."""
    if path.is_dir():
        if (path / _QRELS).is_dir():
            return _beir(path, split)
        if not (path / _QUERIES).exists():
            raise unreadable(
                path, f"the folder has no {_QUERIES}; questions are read from {FORMATS}"
            )
        return _json_lines(path / _QUERIES)
    if not path.exists():
        raise unreadable(path, f"no such file or folder; questions are read from {FORMATS}")
    if path.suffix == ".jsonl":
        return _json_lines(path)
    if path.suffix in _DELIMITERS:
        return _table(path)
    raise unreadable(path, f"its name ends in {path.suffix!r}; questions are read from {FORMATS}")


def _json_lines(path: Path) -> Iterator[tuple[Row, Question]]:
    corpus = path.with_name(CORPUS)
    lengths = document_lengths(corpus) if corpus.is_file() else {}
    for row in json_rows(path):
        question = _question(
            row,
            row.text("qid", "_id", default=f"line-{row.line}"),
            row.text("query", "question", "text"),
            tuple(_gold(entry, lengths) for entry in row.rows("gold")),
            row.text("answer", default=""),
        )
        yield row, question


def _question(
    row: Row, question_id: str, text: str, gold: tuple[Gold, ...], answer: str
) -> Question:
    """Returns a Question with the given values. `row` is the line of the file, for error messages.

    Raises InvalidArgument, which names the line, if the gold contains both documents and texts.
    """
    try:
        return Question(question_id, text, gold, answer, *_labels(row))
    except InvalidArgument as error:
        raise InvalidArgument(f"{row.place}: {error.message}", field=error.field) from None


def _labels(row: Row) -> tuple[str, str]:
    """Returns the kind and the language that the line names; "" for each that it does not name."""
    return row.text("kind", default="").strip(), row.text(*_LANGUAGES, default="").strip()


def _gold(row: Row, lengths: Mapping[str, int]) -> Gold:
    document_id = row.text(*ID_FIELDS, default="")
    document_id = document_id_of(document_id) if document_id else ""
    if "quote" in row.fields:
        return GoldQuote(row.text("quote"), document_id)
    if not document_id:
        row.refuse("doc_id", "missing", "a document id, because there is no quote")
    if "start" not in row.fields and "end" not in row.fields:
        return GoldDocument(document_id, row.number("relevance", at_least=1, default=1))
    start = row.number("start", at_least=0)
    end = row.number("end", at_least=start + 1)
    if document_id in lengths and end > lengths[document_id]:
        row.refuse("end", end, f"at most {lengths[document_id]}, the length of {document_id}")
    return GoldSpan(TextSpan(document_id, start, end))


def _table(path: Path) -> Iterator[tuple[Row, Question]]:
    """Yields the questions of a table; rows with the same question are joined."""
    by_text: dict[str, tuple[Row, Question]] = {}
    for row in _table_rows(path, _DELIMITERS[path.suffix]):
        text = row.text(*_QUESTION_COLUMNS)
        answer = row.text("answer", default="")
        earlier = by_text.get(text)
        if earlier is None:
            question_id = row.text("qid", default=f"line-{row.line}")
            by_text[text] = row, _question(row, question_id, text, _expected(row), answer)
        else:
            first, question = earlier
            gold = tuple(dict.fromkeys((*question.gold, *_expected(row))))
            by_text[text] = first, _joined(row, question, gold, answer)
    yield from by_text.values()


def _joined(row: Row, question: Question, gold: tuple[Gold, ...], answer: str) -> Question:
    """Returns the question with the gold of all its rows, and with what `row` adds to it."""
    whole = _question(row, question.question_id, question.text, gold, question.answer or answer)
    return replace(
        whole,
        kind=question.kind or whole.kind,
        language=question.language or whole.language,
    )


def _expected(row: Row) -> tuple[Gold, ...]:
    document_id = row.text(*_DOCUMENT_COLUMNS, default="").strip()
    document_id = document_id_of(document_id) if document_id else ""
    quote = row.text(*_QUOTE_COLUMNS, default="")
    if quote.strip():
        return (GoldQuote(quote, document_id),)
    return (GoldDocument(document_id),) if document_id else ()


def _table_rows(path: Path, delimiters: str) -> Iterator[Row]:
    """Yields the rows below the header of a table whose cells one of `delimiters` separates.

    The names of a row's fields are the cells of the header, in lower case. Blank cells are left
    out.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            csv.field_size_limit(_MAX_CELL_CHARS)
            first = file.readline()
            delimiter = _delimiter(first, delimiters)
            reader = csv.reader(chain([first], file), delimiter=delimiter, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            _check_header(Row(path, 1, dict.fromkeys(header)), header)
            for cells in reader:
                if len(cells) > len(header):
                    row = Row(path, reader.line_num, {})
                    row.refuse("row", f"{len(cells)} cells", f"at most {len(header)} cells")
                named = {
                    name: cell for name, cell in zip(header, cells, strict=False) if cell.strip()
                }
                if named:
                    yield Row(path, reader.line_num, named)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        remedy = "spreadsheet programs call this encoding CSV UTF-8"
        raise unreadable(path, f"it is not UTF-8 ({error.reason}); {remedy}") from None
    except csv.Error as error:
        raise unreadable(path, f"line {reader.line_num}: {error}") from None


def _delimiter(header: str, delimiters: str) -> str:
    """Returns the first of `delimiters` that separates a column with questions from the others.

    `header` is the first line of a table. If there is no column with questions, returns the first
    delimiter.
    """
    for delimiter in delimiters:
        names = {name.strip(' "\r\n').lower() for name in header.split(delimiter)}
        if len(names) > 1 and not names.isdisjoint(_QUESTION_COLUMNS):
            return delimiter
    return delimiters[0]


def _check_header(row: Row, header: list[str]) -> None:
    for names in (_QUESTION_COLUMNS, (*_DOCUMENT_COLUMNS, *_QUOTE_COLUMNS)):
        if not set(names) & set(header):
            row.refuse("header", ",".join(header), f"a line with a column {' or '.join(names)}")


def _beir(folder: Path, split: str) -> Iterator[tuple[Row, Question]]:
    judged = _relevance(folder / _QRELS, split)
    for row in json_rows(folder / _QUERIES):
        name = row.text("_id", "qid")
        if name in judged:
            text = row.text("text", "query")
            yield row, _question(row, name, text, tuple(judged[name]), answer="")


def _relevance(folder: Path, split: str) -> dict[str, list[Gold]]:
    """Returns the relevant documents of each query of the split, by query id."""
    path = folder / f"{split}.tsv"
    if not path.is_file():
        splits = ", ".join(sorted(file.stem for file in folder.glob("*.tsv"))) or "none"
        raise unreadable(path, f"no such split; {folder} has {splits}")
    judged: dict[str, list[Gold]] = {}
    for row in _qrels_rows(path):
        if row.fields["score"] > 0:
            document = GoldDocument(document_id_of(row.text("corpus-id")), row.fields["score"])
            judged.setdefault(row.text("query-id"), []).append(document)
    return judged


def _qrels_rows(path: Path) -> Iterator[Row]:
    """Yields a row with query-id, corpus-id and score for each line.

    Skips blank lines, and skips the first line if it is a header.
    """
    names = ("query-id", "corpus-id", "score")
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, str(error)) from None
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        row = Row(path, number, dict(zip(names, cells, strict=False)))
        if not line.strip() or (number == 1 and cells[-1].strip() == "score"):
            continue
        if len(cells) != len(names):
            row.refuse("line", line, "query-id, corpus-id and score, separated by tabs")
        try:
            row.fields["score"] = int(cells[2])
        except ValueError:
            row.refuse("score", cells[2], "a whole number")
        yield row
