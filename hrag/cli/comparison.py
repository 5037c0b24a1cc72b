"""`hrag compare`: compares hierarchical with standard retrieval on documents of one's own.

The command is `hrag eval` without a setup: it starts both services on an empty store in a temporary
folder, stores the documents, asks the questions in every system, and writes the report. With a chat
model it also lets the model answer and judge.

Standard retrieval means: the small chunks whose vectors are most similar to the question's. That is
what a plain vector index returns. Both systems have the same documents, chunks and vectors, and the
same number of tokens for their text, so the difference is the retrieval alone.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hrag.cli.evaluation_options import (
    ANSWER_TOKENS_BY_COMMAND,
    DEFAULT_CHAT_CONCURRENCY,
    DEFAULT_JUDGE_SAMPLE,
    JUDGE_PANEL,
    OUTPUT_PANEL,
    AnswerTokens,
    BaselineName,
    Budgets,
    ChatConcurrency,
    Compare,
    JudgeSample,
    Resume,
    Retrieved,
    Sample,
    Seed,
    Split,
)
from hrag.cli.evaluation_run import (
    EvaluationOptions,
    EvaluationRun,
    checked_questions,
    file_errors,
    parse_budgets,
    publish,
)
from hrag.cli.ingest_files import EXTENSIONS, find, require_readable
from hrag.cli.ingest_progress import show_skipped
from hrag.cli.input_documents import InputDocument
from hrag.cli.temporary_services import (
    TENANT,
    store_documents,
    temporary_services,
    wait_for_summaries,
)
from hrag.cli.terminal import ExitCode, Failure, interrupt_on_signals, output, show_note
from hrag.values.search import SearchMode

# Only type checkers run these imports: the modules load numpy and gRPC, which are slow to load and
# not needed by every command.
if TYPE_CHECKING:
    from hrag.client import Client
    from hrag.evaluation.questions import Question
    from hrag.evaluation.report_files import Report

COLLECTION = "documents"
_COMPARE = "context,standard:dense"
_BUDGETS = "1000,2000,4000"
_STANDARD = (
    "All systems search the same documents, chunks and vectors, and get the same number of tokens. "
    "Standard retrieval (standard:dense) returns the small chunks whose vectors are most similar "
    "to the question, as a plain vector index does."
)


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files and folders to search in.", show_default=False),
    ],
    questions: Annotated[
        Path,
        typer.Option(
            "--questions",
            metavar="QUESTIONS",
            help="A file or folder with questions, as hrag eval reads it.",
            show_default=False,
        ),
    ],
    systems: Compare = _COMPARE,
    retrieved: Retrieved = None,
    baseline: BaselineName = "",
    budgets: Budgets = _BUDGETS,
    split: Split = "test",
    sample: Sample = 0,
    seed: Seed = 0,
    judge: Annotated[
        bool | None,
        typer.Option(
            "--judge/--no-judge",
            help="Let the chat model answer and compare the answers. Default: if HRAG_CHAT_MODEL "
            "is set.",
            rich_help_panel=JUDGE_PANEL,
            show_default=False,
        ),
    ] = None,
    judge_sample: JudgeSample = DEFAULT_JUDGE_SAMPLE,
    answer_tokens: AnswerTokens = ANSWER_TOKENS_BY_COMMAND["compare"],
    concurrency: ChatConcurrency = DEFAULT_CHAT_CONCURRENCY,
    resume: Resume = None,
    target: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="NAME",
            help="Write NAME.html, NAME.json and NAME.csv.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = "comparison",
) -> None:
    """Compare hierarchical with standard retrieval on your documents and questions.

    The command needs no server and no setup. It starts both services on free ports, with an empty
    store in a temporary folder, and stores the files. Then it asks every question in each system
    of --compare, and measures how much of the expected text each finds in the same number of
    tokens. If HRAG_CHAT_MODEL is set, a chat model also answers the questions and judges the
    answers. Finally it stops the services and removes the folder.

    The first line says which system finds more, with its interval, or that none does beyond chance.
    The report NAME.html also says for which kinds of questions, and shows each question with both
    results side by side. NAME.json and NAME.csv contain the same.

    By default, hierarchical retrieval (context: small chunks found by words and vectors, joined
    until the tokens are used) is compared with standard retrieval (standard:dense: the small
    chunks with the most similar vectors). --compare context:dense,standard:dense shows what the
    hierarchy alone adds.

    The exit code is 1 if a document could not be stored or a call failed.

    \b
    Examples:
      hrag compare handbook.pdf notes/ --questions questions.csv
      hrag compare docs/ --questions questions.jsonl --compare small_to_big,standard -o modes
    """
    from hrag.evaluation.systems import baseline_of, parse_systems  # noqa: PLC0415

    chosen = parse_systems(systems, retrieved or ())
    options = EvaluationOptions(
        systems=chosen,
        baseline=baseline_of(chosen, baseline),
        budgets=parse_budgets(budgets),
        split=split,
        sample=sample,
        seed=seed,
        ingest=None,
        generate=0,
        judge=bool(os.environ.get("HRAG_CHAT_MODEL")) if judge is None else judge,
        judge_sample=judge_sample,
        answer_tokens=answer_tokens,
        concurrency=concurrency,
        resume=resume,
        json=Path(f"{target}.json"),
        html=Path(f"{target}.html"),
        csv=Path(f"{target}.csv"),
        explorer="",
    )
    # Mistakes in the options, the questions, the documents and the settings end the command before
    # the services are started.
    for system in chosen:
        if "collection" in system.options:
            raise Failure(
                f"--compare has {system.name}; there is only the collection of the files",
                ExitCode.USAGE,
            )
    asked = checked_questions(questions, options)
    documents = collect_documents(paths, questions)
    interrupt_on_signals()
    console = output()
    try:
        with file_errors():
            report = _measure(documents, questions, asked, options, console)
    except KeyboardInterrupt:
        show_note("interrupted: nothing was written; with --resume FILE, finished calls are kept")
        raise
    publish(report, options, console)
    if report.failed_calls or report.unstored:
        raise typer.Exit(1)


def collect_documents(paths: Sequence[Path], questions: Path) -> list[InputDocument]:
    """Returns the documents in `paths`, without the files of the questions.

    A folder often contains its questions, and a question is not a document to find. Raises Failure
    if there are no documents, or if one of the paths cannot be read.
    """
    require_readable(paths)
    files = find(paths)
    show_skipped(files.skipped)
    question_files = _question_files(questions)
    documents = [one for one in files.documents if not _is_in(one.label, question_files)]
    if not documents:
        raise Failure(
            f"no files to search in {', '.join(map(str, paths))}; folders are searched for "
            f"{' '.join(EXTENSIONS)}",
            ExitCode.USAGE,
        )
    if left_out := len(files.documents) - len(documents):
        show_note(f"{left_out:,} lines or files of the questions are left out of the documents")
    return documents


def _question_files(questions: Path) -> set[Path]:
    """Returns the absolute paths of the files that contain the questions and their gold."""
    if not questions.is_dir():
        return {questions.resolve()}
    files = (questions / "queries.jsonl", *(questions / "qrels").glob("*"))
    return {file.resolve() for file in files}


def _is_in(label: str, files: Iterable[Path]) -> bool:
    """Returns True if a document's label names one of the files, or a line of one."""
    path, _, line = label.rpartition(":")
    named = path if line.isdecimal() else label
    return Path(named).resolve() in files


def _measure(
    documents: Sequence[InputDocument],
    path: Path,
    questions: Sequence["Question"],
    options: EvaluationOptions,
    console: Console,
) -> "Report":
    """Stores the documents in temporary services, and returns the report on the questions.

    `path` is the file or folder from which the questions were read.
    """
    from hrag.evaluation.journal import Journal  # noqa: PLC0415
    from hrag.evaluation.searches import SearchTarget  # noqa: PLC0415

    needs_summaries = any(one.mode is SearchMode.SUMMARY_FIRST for one in options.systems)
    settings = {"HRAG_SUMMARIES": "section"} if needs_summaries else {}
    where = SearchTarget(TENANT, COLLECTION, options.budgets)
    with (
        Journal(options.resume) as journal,
        temporary_services("compare", console, settings) as client,
    ):
        client.create_collection(TENANT, COLLECTION)
        run = EvaluationRun(client, where, options, journal, console)
        run.check_systems(questions[0])
        unstored = _store(client, documents, console)
        if needs_summaries:
            wait_for_summaries(client, console, collection=COLLECTION)
        report = run.report(path, questions)
    about = {**report.about, "standard retrieval": _STANDARD}
    # The store is removed now, so no link can lead into it.
    return replace(report, about=about, unstored=unstored, where=None)


def _store(
    client: "Client", documents: Sequence[InputDocument], console: Console
) -> tuple[str, ...]:
    """Stores the documents; returns the labels of those that could not be stored.

    Raises Failure if none could be stored.
    """
    progress = store_documents(client, COLLECTION, documents, console)
    if not progress.stored:
        raise Failure("none of the files could be stored, so there is nothing to search in")
    return tuple(label for label, _ in progress.failures)
