"""Runs an evaluation for `hrag eval` and `hrag compare`, and publishes its report.

Progress is a bar on a terminal, and plain lines on standard error elsewhere.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hrag.cli.evaluation_options import (
    ANSWER_TOKENS_BY_COMMAND,
    DEFAULT_CHAT_CONCURRENCY,
    DEFAULT_JUDGE_SAMPLE,
)
from hrag.cli.ingest_progress import ingest_with_progress, show_outcomes
from hrag.cli.input_documents import InputDocument
from hrag.cli.options import check_target, warn_of_unused
from hrag.cli.terminal import ExitCode, Failure, progress_lines, show_note
from hrag.host.private_files import opener
from hrag.text.noun_counts import counted
from hrag.values.documents import Document
from hrag.values.errors import HragError

# Only type checkers run these imports: the modules load numpy and gRPC, which are slow to load and
# not needed by every command.
if TYPE_CHECKING:
    from hrag.client import Client
    from hrag.evaluation.generator import GenerationResult
    from hrag.evaluation.journal import Journal
    from hrag.evaluation.judge import JudgeResult
    from hrag.evaluation.questions import GoldQuote, Question, TextSpan
    from hrag.evaluation.report_files import Report
    from hrag.evaluation.retrieved_files import RetrievedLine
    from hrag.evaluation.searches import Outcome, SearchTarget, Show
    from hrag.evaluation.systems import System
    from hrag.models.chat import ChatModel

DEFAULT_BUDGETS = "1000,2000,4000,8000"
_MAX_BUDGETS = 8


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of `hrag eval`; `hrag compare` has some of them.

    For example, `systems` are the search modes to compare, `budgets` are the token budgets to
    compare them at, and `json`, `html` and `csv` are the files to write.
    """

    systems: "tuple[System, ...]"
    baseline: "System"
    budgets: tuple[int, ...]
    split: str
    sample: int
    seed: int
    ingest: Path | None
    generate: int
    judge: bool
    judge_sample: int
    answer_tokens: int
    concurrency: int
    resume: Path | None
    json: Path | None
    html: Path | None
    csv: Path | None
    explorer: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to write."""
        return tuple(filter(None, (self.json, self.html, self.csv)))


@dataclass(frozen=True, slots=True)
class _Measured:
    """The outcomes of all searches, and what was looked up in the collections for the report.

    `located` has the places of quotes that no system returned, and `span_texts` the texts of the
    expected spans. If the collection could not be asked, they are None and empty.
    """

    outcomes: "Mapping[str, Sequence[Outcome]]"
    located: "Mapping[GoldQuote, tuple[TextSpan, ...]] | None"
    span_texts: "Mapping[TextSpan, str]"


def parse_budgets(text: str) -> tuple[int, ...]:
    """Returns the token budgets that `text` lists, in ascending order, without duplicates.

    Raises BadParameter if `text` is not a list of valid budgets.
    """
    from hrag.evaluation.searches import MAX_BUDGET  # noqa: PLC0415

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 0 < int(part) <= MAX_BUDGET for part in parts) or not (
        0 < len(parts) <= _MAX_BUDGETS
    ):
        raise typer.BadParameter(
            f"{text!r}: it must be 1 to {_MAX_BUDGETS} token budgets, each from 1 to "
            f"{MAX_BUDGET:,}, as in {DEFAULT_BUDGETS}",
            param_hint="--budgets",
        )
    return tuple(sorted({int(part) for part in parts}))


def explorer_address(text: str) -> str:
    """Returns the address of an explorer for links, without a slash at its end.

    Raises BadParameter unless `text` is empty or an http or https URL without a fragment. A link
    with another scheme could run a script.
    """
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if text and (not is_url or "#" in text or "?" in text):
        raise typer.BadParameter(
            f"{text!r}: it must be a URL such as http://localhost:8080, without ? and #",
            param_hint="--explorer",
        )
    return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A run of `hrag eval` or `hrag compare`, with a method for each of its steps."""

    client: "Client"
    where: "SearchTarget"
    options: EvaluationOptions
    journal: "Journal"
    console: Console

    def check_systems(self, question: "Question") -> None:
        """Searches once in each system, so that a wrong option ends the command at once.

        The collection may be empty. Raises the errors of the searches.
        """
        from hrag.evaluation.searches import search_one  # noqa: PLC0415

        for system in self.options.systems:
            if system.file is None:
                search_one(self.client, question, system, self.where)

    def ingest(self, inputs: Sequence[InputDocument]) -> None:
        """Stores documents in the collection; raises Failure if one of them cannot be stored."""
        tenant, collection = self.where.tenant_id, self.where.collection
        progress = ingest_with_progress(self.client, tenant, collection, inputs, self.console)
        show_outcomes(progress)
        if progress.error is not None:
            raise progress.error
        if progress.failures:
            raise Failure("some documents could not be stored, so questions could not find them")

    def report(self, path: Path, questions: Sequence["Question"]) -> "Report":
        """Runs the evaluation, and returns the report with all figures.

        Depending on the options, a chat model writes questions, the questions are searched, and the
        chat model judges the answers that it has made from the passages. `questions` are the result
        of `checked_questions(path)`.
        """
        from hrag.evaluation.question_files import read_questions  # noqa: PLC0415

        # The chat model is opened first, so that a missing setting ends the command before any
        # work is done.
        chat = chat_model() if self.options.judge or self.options.generate else None
        generated = None
        if chat and self.options.generate:
            generated = self._generate(path, chat)
            questions = read_questions(path, self.options.split)
        questions = self._sample(questions)
        with_gold = [question for question in questions if question.gold]
        warnings = [*self._warnings(questions)]
        measured = self._search(with_gold) if with_gold else None
        judged, judge_error = None, ""
        if chat and self.options.judge:
            try:
                judged = self._judge(questions, chat)
            except HragError as error:
                # The searches are measured already, and need no judge.
                if measured is None:
                    raise
                judge_error = str(error)
        report = self._report(questions, measured, judged)
        return replace(
            report,
            about=self._about(path, questions),
            generated=generated,
            warnings=(*warnings, *report.warnings),
            judge_error=judge_error,
        )

    def _report(
        self,
        questions: Sequence["Question"],
        measured: "_Measured | None",
        judged: "JudgeResult | None",
    ) -> "Report":
        """Returns the report of what was measured and judged."""
        from hrag.evaluation.report_parts import build_report  # noqa: PLC0415

        options = self.options
        return build_report(
            questions,
            options.systems,
            options.baseline.name,
            self.where,
            measured.outcomes if measured else None,
            judged,
            located=measured.located if measured else {},
            span_texts=measured.span_texts if measured else {},
            seed=options.seed,
            explorer=options.explorer,
        )

    def _generate(self, path: Path, chat: "ChatModel") -> "GenerationResult":
        from hrag.cli.evaluation_tables import show_generated  # noqa: PLC0415
        from hrag.evaluation.chat_calls import ChatCalls  # noqa: PLC0415
        from hrag.evaluation.generator import QuestionGenerator  # noqa: PLC0415

        options = self.options
        calls = ChatCalls(chat, self.journal)
        writer = QuestionGenerator(self.client, calls, self.where, options.concurrency)
        with _progress("questions", self.console) as show:
            generated = writer.generate(path, options.generate, options.seed, show)
        show_generated(generated, path, self.console)
        return generated

    def _sample(self, questions: Sequence["Question"]) -> "list[Question]":
        """Returns as many questions as `--sample` says, drawn at random with `--seed`.

        Returns all questions if `--sample` is 0 or is at least their number.
        """
        from hrag.evaluation.bootstrap import sample  # noqa: PLC0415

        limit = self.options.sample or len(questions)
        return [questions[index] for index in sample(len(questions), limit, self.options.seed)]

    def _warnings(self, questions: Sequence["Question"]) -> Iterator[str]:
        from hrag.evaluation.searches import (  # noqa: PLC0415
            missing_documents,
            searched_collections,
        )

        without_gold = sum(not question.gold for question in questions)
        if without_gold:
            yield (
                f"{without_gold:,} questions do not say where their answer is; they are only judged"
            )
        for collection in searched_collections(self.options.systems, self.where):
            where = replace(self.where, collection=collection)
            if missing := missing_documents(self.client, questions, where):
                yield (
                    f"{counted(len(missing), 'expected document')} not found in the collection "
                    f"{collection}, such as {missing[0]}; their questions count as missed"
                )

    def _search(self, questions: Sequence["Question"]) -> "_Measured":
        """Searches for all questions, then looks up gold that the report needs and lacks."""
        from hrag.evaluation.collection_texts import (  # noqa: PLC0415
            gold_spans,
            missed_quotes,
            texts_of,
        )
        from hrag.evaluation.searches import search_all, searched_collections  # noqa: PLC0415
        from hrag.evaluation.summary import results_by_question  # noqa: PLC0415

        systems = self.options.systems
        with _progress("searches", self.console) as show:
            outcomes = search_all(self.client, questions, systems, self.where, self.journal, show)
        texts = texts_of(self.client, self.where, searched_collections(systems, self.where))
        missed = missed_quotes(questions, results_by_question(systems, outcomes))
        try:
            located = {quote: texts.quote_places(quote) for quote in missed}
            return _Measured(outcomes, located, texts.span_texts(gold_spans(questions)))
        except HragError as error:
            # The indexer has the texts. The figures of an evaluation need only the retriever.
            show_note(f"warning: the report lacks the texts of the gold: {error}")
            return _Measured(outcomes, None, {})

    def _judge(self, questions: Sequence["Question"], chat: "ChatModel") -> "JudgeResult":
        from hrag.evaluation.bootstrap import sample  # noqa: PLC0415
        from hrag.evaluation.chat_calls import ChatCalls  # noqa: PLC0415
        from hrag.evaluation.judge import Judge, JudgeSettings  # noqa: PLC0415

        options = self.options
        drawn = sample(len(questions), options.judge_sample, options.seed)
        settings = JudgeSettings(options.answer_tokens, options.concurrency, options.seed)
        judge = Judge(self.client, ChatCalls(chat, self.journal), self.where, settings)
        with _progress("chat calls", self.console) as show:
            return judge.judge(
                [questions[index] for index in drawn], options.systems, options.baseline, show
            )

    def _about(self, path: Path, questions: Sequence["Question"]) -> dict[str, str | int]:
        from hrag.evaluation.systems import describe  # noqa: PLC0415

        server = self.client.server_info()
        return {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "questions file": str(path),
            "questions": len(questions),
            "tenant": self.where.tenant_id,
            "collection": self.where.collection,
            "compared": ", ".join(system.name for system in self.options.systems),
            "baseline": self.options.baseline.name,
            "embedder": server.embedder,
            "retriever": server.version,
            "client": version("hrag"),
            **{system.name: describe(system) for system in self.options.systems},
        }


def chat_model() -> "ChatModel":
    """Returns the chat model of the settings; raises Failure if there is none."""
    from hrag.config import CommonSettings, SettingsError, load  # noqa: PLC0415
    from hrag.models.chat.chat_factory import open_chat  # noqa: PLC0415

    try:
        chat = open_chat(load(CommonSettings))
    except SettingsError as error:
        raise Failure(str(error), ExitCode.USAGE) from None
    if chat is None:
        raise Failure(
            "--judge and --generate require a chat model: set HRAG_CHAT_MODEL, and "
            "HRAG_CHAT_BASE_URL unless the endpoint is OpenAI's",
            ExitCode.USAGE,
        )
    return chat


def _input_document(document: Document) -> InputDocument:
    return InputDocument(document.document_id, lambda: document)


def publish(report: "Report", options: EvaluationOptions, console: Console) -> None:
    """Writes the files of the options, then prints the findings and the tables of the report.

    The files come first, because writing to standard output may fail.
    """
    from hrag.cli.evaluation_tables import show_report  # noqa: PLC0415
    from hrag.evaluation.csv_report import csv_report  # noqa: PLC0415
    from hrag.evaluation.html_report import html_report  # noqa: PLC0415
    from hrag.evaluation.report_files import report_json  # noqa: PLC0415

    if options.json is not None:
        text = json.dumps(report_json(report), ensure_ascii=False, indent=1)
        _write(options.json, text + "\n")
    if options.html is not None:
        _write(options.html, html_report(report))
    if options.csv is not None:
        _write(options.csv, csv_report(report))
    show_report(report, console)
    for path in options.files:
        console.print(f"written: {path}", markup=False, soft_wrap=True)


def checked_questions(path: Path, options: EvaluationOptions) -> "tuple[Question, ...]":
    """Returns the questions of `path`; none if a chat model is to write them.

    Checks everything that needs no service: the questions, the settings of the chat model, and the
    files that the command will write. Raises Failure or InvalidArgument.
    """
    from hrag.evaluation.question_files import read_questions  # noqa: PLC0415
    from hrag.evaluation.retrieved_files import read_retrieved  # noqa: PLC0415

    _warn_of_unused_options(path, options)
    for file in options.files:
        check_target(file)
    retrieved = {
        system.file: read_retrieved(system.file) for system in options.systems if system.file
    }
    if options.judge or options.generate:
        chat_model()
    if options.generate:
        if path.suffix != ".jsonl":
            raise Failure(
                f"--generate writes QUESTIONS, which must end in .jsonl, not {path}",
                ExitCode.USAGE,
            )
        check_target(path)
        return ()
    questions = read_questions(path, options.split)
    if not options.judge and not any(question.gold for question in questions):
        raise Failure(
            f"no question in {path} says where its answer is; add gold or --judge", ExitCode.USAGE
        )
    for file, lines in retrieved.items():
        _check_complete(file, lines, questions)
    return questions


def _check_complete(
    file: Path, lines: "Mapping[str, RetrievedLine]", questions: "Sequence[Question]"
) -> None:
    """Raises Failure if the file of another tool lacks a question."""
    missing = [one.question_id for one in questions if one.question_id not in lines]
    if missing:
        raise Failure(
            f"{file} lacks {counted(len(missing), 'question')}, such as {missing[0]}; a tool that "
            'found nothing has a line with "passages": []',
            ExitCode.USAGE,
        )


def _warn_of_unused_options(path: Path, options: EvaluationOptions) -> None:
    if not options.judge:
        judging = {
            "--judge-sample": options.judge_sample != DEFAULT_JUDGE_SAMPLE,
            "--answer-tokens": options.answer_tokens not in ANSWER_TOKENS_BY_COMMAND.values(),
        }
        warn_of_unused("without --judge", judging)
    if not options.judge and not options.generate:
        concurrency = options.concurrency != DEFAULT_CHAT_CONCURRENCY
        warn_of_unused("without --judge or --generate", {"--concurrency": concurrency})
    if options.html is None:
        warn_of_unused("without --html", {"--explorer": bool(options.explorer)})
    if not (path / "qrels").is_dir():
        warn_of_unused("without a BEIR folder", {"--split": options.split != "test"})


def corpus_documents(corpus: Path) -> list[InputDocument]:
    """Returns the documents of a corpus, and shows how many have neither text nor title.

    Raises InvalidArgument if the corpus cannot be read.
    """
    from hrag.evaluation.question_corpus import read_corpus  # noqa: PLC0415

    documents = [*read_corpus(corpus)]
    inputs = [_input_document(document) for document in documents if str(document.body).strip()]
    if blank := len(documents) - len(inputs):
        show_note(
            f"warning: {counted(blank, 'document')} of {corpus} skipped: no title and no text"
        )
    return inputs


@contextmanager
def file_errors() -> Iterator[None]:
    """Raises Failure if the `with` block raises an OSError that names a file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise Failure(f"{error.filename}: {error.strerror or error}") from None


def _write(path: Path, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="replace", opener=opener) as file:
            file.write(text)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error


@contextmanager
def _progress(unit: str, console: Console) -> Iterator["Show"]:
    """Yields a function that shows progress: a bar on a terminal, else lines on standard error.

    `unit` names what is counted, for example "searches".
    """
    if not console.is_terminal:
        counts, started = (0, 0, 0), time.monotonic()

        def record(done: int, total: int, failed: int) -> None:
            nonlocal counts
            counts = done, total, failed

        def describe() -> str:
            return f"{_progress_line(unit, *counts)}, {time.monotonic() - started:,.0f} s"

        with progress_lines(describe):
            yield record
        return
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(unit, total=None)

        def show(done: int, total: int, failed: int) -> None:
            text = f"{unit}, {failed:,} failed" if failed else unit
            bar.update(task, completed=done, total=total, description=text)

        yield show


def _progress_line(unit: str, done: int, total: int, failed: int) -> str:
    of = f"{done:,} of {total:,} {unit}" if total else f"{unit}: begun"
    return f"{of}, {failed:,} failed" if failed else of
