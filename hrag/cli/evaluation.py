"""`hrag eval`: measures the quality of searches with the user's questions.

`evaluate`, the function of the command, receives most options as one value, `EvaluationOptions`.
"""

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hrag.cli.ingest_progress import ingest_with_progress, show_outcomes
from hrag.cli.input_documents import InputDocument
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Credentials,
    Indexer,
    Retriever,
    Tenant,
    connect,
    connection_options,
    option_group,
)
from hrag.cli.render import counted
from hrag.cli.terminal import Failure, output, show_note
from hrag.host.private_files import opener
from hrag.values.documents import Document
from hrag.values.errors import CollectionExists
from hrag.values.limits import DEFAULT_COLLECTION

# Only type checkers run these imports: the modules load numpy and gRPC, which are slow to load and
# not needed by every command.
if TYPE_CHECKING:
    from hrag.client import Client
    from hrag.evaluation.generator import GenerationResult
    from hrag.evaluation.journal import Journal
    from hrag.evaluation.judge import JudgeFigures
    from hrag.evaluation.questions import Question
    from hrag.evaluation.report_files import Report
    from hrag.evaluation.searches import SearchTarget, Show
    from hrag.evaluation.summary import RetrievalFigures
    from hrag.evaluation.systems import System
    from hrag.models.chat import ChatModel

_JUDGE_PANEL = "Chat model"
_OUTPUT_PANEL = "Output"
_DEFAULT_COMPARE = "context,small_to_big,auto_merge,standard"
_DEFAULT_BUDGETS = "1000,2000,4000,8000"
_MAX_BUDGETS = 8


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of `hrag eval`.

    For example, `systems` are the search modes to compare, `budgets` are the token budgets to
    compare them at, and `json` and `html` are the files to write.
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


def _evaluation_options(
    compare: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="What to compare, separated by commas: mode or mode:retrieval (hybrid, dense or "
            "lexical), with options of a search as in auto_merge:merge_ratio=0.7. "
            "collection=NAME compares collections.",
        ),
    ] = _DEFAULT_COMPARE,
    baseline: Annotated[
        str,
        typer.Option(
            help="The entry of --compare that the others are compared with. Default: the last.",
            show_default=False,
        ),
    ] = "",
    budgets: Annotated[
        str,
        typer.Option(metavar="LIST", help="Token budgets to compare at, separated by commas."),
    ] = _DEFAULT_BUDGETS,
    split: Annotated[
        str, typer.Option(help="The file in qrels/ to use, if QUESTIONS is a BEIR folder.")
    ] = "test",
    sample: Annotated[
        int,
        typer.Option(
            min=0, help="Number of questions to use, drawn at random; 0 means all questions."
        ),
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for everything that is drawn at random.")
    ] = 0,
    ingest: Annotated[
        Path | None,
        typer.Option(
            metavar="CORPUS",
            help="First store this corpus in the collection, which is created if it does not "
            "exist. CORPUS is a corpus.jsonl, or a folder with one. Its documents have the fields "
            "doc_id or _id, title and text.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        int,
        typer.Option(
            min=0,
            help="First let the chat model write questions about chunks of the collection into "
            "QUESTIONS (.jsonl), until the file has this number of questions.",
            rich_help_panel=_JUDGE_PANEL,
        ),
    ] = 0,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge",
            help="Let the chat model answer from each mode's passages and compare the answers "
            "with the baseline's. Tokens are counted and shown.",
            rich_help_panel=_JUDGE_PANEL,
        ),
    ] = False,
    judge_sample: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum number of questions to judge, drawn at random.",
            rich_help_panel=_JUDGE_PANEL,
        ),
    ] = 50,
    answer_tokens: Annotated[
        int,
        typer.Option(
            min=32,
            max=100_000,
            help="Token budget of the passages that an answer is made from.",
            rich_help_panel=_JUDGE_PANEL,
        ),
    ] = 4000,
    concurrency: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Maximum number of calls of the chat model that run at the same time.",
            rich_help_panel=_JUDGE_PANEL,
        ),
    ] = 4,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store finished calls in this file, and do not repeat calls that it contains.",
            rich_help_panel=_OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all figures as JSON.",
            rich_help_panel=_OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a report with plots: one HTML file that needs no network.",
            rich_help_panel=_OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
) -> EvaluationOptions:
    from hrag.evaluation.systems import baseline_of, parse_systems  # noqa: PLC0415

    systems = parse_systems(compare)
    return EvaluationOptions(
        systems=systems,
        baseline=baseline_of(systems, baseline),
        budgets=_parse_budgets(budgets),
        split=split,
        sample=sample,
        seed=seed,
        ingest=ingest,
        generate=generate,
        judge=judge,
        judge_sample=judge_sample,
        answer_tokens=answer_tokens,
        concurrency=concurrency,
        resume=resume,
        json=json,
        html=html,
    )


def _parse_budgets(text: str) -> tuple[int, ...]:
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
            f"{MAX_BUDGET:,}, as in {_DEFAULT_BUDGETS}",
            param_hint="--budgets",
        )
    return tuple(sorted({int(part) for part in parts}))


evaluation_options = option_group("options", _evaluation_options, last=True)


@evaluation_options
@connection_options
def evaluate(
    options: EvaluationOptions,
    credentials: Credentials,
    questions: Annotated[
        Path, typer.Argument(metavar="QUESTIONS", help="File or folder.", show_default=False)
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Measure how well searches find the answers to your questions.

    QUESTIONS is one of three things. A BEIR folder has queries.jsonl and qrels/. A .jsonl file,
    or a folder with queries.jsonl, has the fields query and gold in each line; gold has doc_id
    with start and end, or quote, or doc_id alone. A .csv file has the columns question and
    document_id or quote. With --generate a chat model writes the .jsonl file.

    Every question is asked in every mode of --compare. All modes get the same token budgets for
    their passages, so that larger passages have no advantage. The command reports recall and
    precision of the characters that answer the question, hit rate, MRR, nDCG@10, latency and
    tokens, with 95 % intervals, and the differences to the baseline, with paired intervals.

    With --judge a chat model (HRAG_CHAT_MODEL) answers the questions from each mode's passages.
    It then compares each answer with the baseline's answer, in both orders, and says which of
    the two is better.

    The exit code is 1 if any call failed.

    \b
    Examples:
      hrag eval questions.csv --collection handbook --html report.html
      hrag eval questions.jsonl --compare context,small_to_big,standard:dense,standard:lexical
      hrag eval fiqa/ --ingest fiqa/ --collection fiqa --resume fiqa-run.jsonl
      hrag eval new.jsonl --generate 100 --collection handbook --judge --json figures.json
    """
    from hrag.evaluation.journal import Journal  # noqa: PLC0415
    from hrag.evaluation.searches import SearchTarget  # noqa: PLC0415

    for target in filter(None, (options.json, options.html)):
        _check_target(target)
    console = output()
    where = SearchTarget(tenant, collection, options.budgets)
    with (
        _file_errors(),
        connect(credentials, indexer, retriever) as client,
        Journal(options.resume) as journal,
    ):
        run = _Run(client, where, options, journal, console)
        if options.ingest is not None:
            run.ingest(options.ingest)
        report = run.report(questions)
    _publish(report, options, console)
    if report.failed_calls:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of `hrag eval`, with a method for each of its steps."""

    client: "Client"
    where: "SearchTarget"
    options: EvaluationOptions
    journal: "Journal"
    console: Console

    def ingest(self, corpus: Path) -> None:
        """Stores a corpus in the collection.

        Skips documents that have neither text nor title, and prints how many they are. Raises
        Failure if a document cannot be stored.
        """
        from hrag.evaluation.question_corpus import read_corpus  # noqa: PLC0415

        tenant, collection = self.where.tenant_id, self.where.collection
        documents = [*read_corpus(corpus)]
        inputs = [_input_document(document) for document in documents if str(document.body).strip()]
        if blank := len(documents) - len(inputs):
            show_note(
                f"warning: {counted(blank, 'document')} of {corpus} skipped: no title and no text"
            )
        with suppress(CollectionExists):
            self.client.create_collection(tenant, collection)
        progress = ingest_with_progress(self.client, tenant, collection, inputs, self.console)
        show_outcomes(progress)
        if progress.error is not None:
            raise progress.error
        if progress.failures:
            raise Failure("some documents could not be stored, so questions could not find them")

    def report(self, path: Path) -> "Report":
        """Runs the evaluation, and returns the report with all figures.

        Depending on the options, a chat model writes questions, the questions are searched, and the
        chat model judges the answers that it has made from the passages.
        """
        from hrag.evaluation.question_files import read_questions  # noqa: PLC0415
        from hrag.evaluation.report_files import Report  # noqa: PLC0415

        # The chat model is opened first, so that a missing setting ends the command before any
        # work is done.
        chat = self._chat() if self.options.judge or self.options.generate else None
        generated = self._generate(path, chat) if chat and self.options.generate else None
        questions = self._sample(read_questions(path, self.options.split))
        with_gold = [question for question in questions if question.gold]
        if not with_gold and not self.options.judge:
            raise Failure(f"no question in {path} says where its answer is; add gold or --judge")
        warnings = tuple(self._warnings(questions))
        return Report(
            about=self._about(path, questions),
            retrieval=self._measure_retrieval(with_gold) if with_gold else None,
            judged=self._judge(questions, chat) if chat and self.options.judge else None,
            generated=generated,
            warnings=warnings,
        )

    def _chat(self) -> "ChatModel":
        from hrag.config import CommonSettings, SettingsError, load  # noqa: PLC0415
        from hrag.models.chat.chat_factory import open_chat  # noqa: PLC0415

        try:
            chat = open_chat(load(CommonSettings))
        except SettingsError as error:
            raise Failure(str(error)) from None
        if chat is None:
            raise Failure(
                "--judge and --generate require a chat model: set HRAG_CHAT_MODEL, and "
                "HRAG_CHAT_BASE_URL unless the endpoint is OpenAI's"
            )
        return chat

    def _generate(self, path: Path, chat: "ChatModel") -> "GenerationResult":
        from hrag.cli.evaluation_tables import show_generated  # noqa: PLC0415
        from hrag.evaluation.chat_calls import ChatCalls  # noqa: PLC0415
        from hrag.evaluation.generator import QuestionGenerator  # noqa: PLC0415

        if path.suffix != ".jsonl":
            raise Failure(f"--generate writes QUESTIONS, which must end in .jsonl, not {path}")
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
                    f"{len(missing):,} documents that contain expected answers are not in the "
                    f"collection {collection}, such as {missing[0]}; their questions count as "
                    "missed"
                )

    def _measure_retrieval(self, questions: Sequence["Question"]) -> "RetrievalFigures":
        from hrag.evaluation.searches import search_all  # noqa: PLC0415
        from hrag.evaluation.summary import summarise  # noqa: PLC0415

        systems = self.options.systems
        with _progress("searches", self.console) as show:
            outcomes = search_all(self.client, questions, systems, self.where, self.journal, show)
        return summarise(
            questions,
            systems,
            outcomes,
            self.where,
            baseline=self.options.baseline.name,
            seed=self.options.seed,
        )

    def _judge(self, questions: Sequence["Question"], chat: "ChatModel") -> "JudgeFigures":
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
        }


def _input_document(document: Document) -> InputDocument:
    return InputDocument(document.document_id, lambda: document)


def _publish(report: "Report", options: EvaluationOptions, console: Console) -> None:
    """Prints the tables of the report, and writes the files that `--json` and `--html` name."""
    from hrag.cli.evaluation_tables import show_report  # noqa: PLC0415
    from hrag.evaluation.html_report import html_report  # noqa: PLC0415
    from hrag.evaluation.report_files import report_json  # noqa: PLC0415

    show_report(report, console)
    if options.json is not None:
        text = json.dumps(report_json(report), ensure_ascii=False, indent=1)
        _write(options.json, text + "\n", console)
    if options.html is not None:
        _write(options.html, html_report(report), console)


def _check_target(path: Path) -> None:
    """Raises Failure if no file can be written at `path`. It is called before any work is done."""
    if not path.parent.is_dir():
        raise Failure(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise Failure(f"{path}: it is a folder; it must be a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Failure(f"{path}: {os.strerror(errno.EACCES)}")


@contextmanager
def _file_errors() -> Iterator[None]:
    """Raises Failure if the `with` block raises an OSError that names a file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise Failure(f"{error.filename}: {error.strerror or error}") from None


def _write(path: Path, text: str, console: Console) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="replace", opener=opener) as file:
            file.write(text)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error
    console.print(f"written: {path}", markup=False, soft_wrap=True)


@contextmanager
def _progress(unit: str, console: Console) -> Iterator["Show"]:
    """Yields a function that shows progress as a bar on a terminal.

    If `console` is not a terminal, the function shows nothing. `unit` names what is counted, for
    example "searches".
    """
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} {task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(unit, total=None)

        def show(done: int, total: int, failed: int) -> None:
            text = f"{unit}, {failed:,} failed" if failed else unit
            bar.update(task, completed=done, total=total, description=text)

        yield show
