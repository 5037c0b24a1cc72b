"""`hrag eval`: measures the quality of searches with the user's questions.

`evaluate`, the function of the command, receives most options as one value, `EvaluationOptions`.
"""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

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
    DEFAULT_BUDGETS,
    EvaluationOptions,
    EvaluationRun,
    checked_questions,
    corpus_documents,
    explorer_address,
    file_errors,
    parse_budgets,
    publish,
)
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
from hrag.cli.terminal import output
from hrag.values.errors import CollectionExists
from hrag.values.limits import DEFAULT_COLLECTION

_DEFAULT_COMPARE = "context,small_to_big,auto_merge,standard"


def _evaluation_options(
    compare: Compare = _DEFAULT_COMPARE,
    retrieved: Retrieved = None,
    baseline: BaselineName = "",
    budgets: Budgets = DEFAULT_BUDGETS,
    split: Split = "test",
    sample: Sample = 0,
    seed: Seed = 0,
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
            rich_help_panel=JUDGE_PANEL,
        ),
    ] = 0,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge",
            help="Let the chat model answer from each mode's passages and compare the answers "
            "with the baseline's. Tokens are counted and shown.",
            rich_help_panel=JUDGE_PANEL,
        ),
    ] = False,
    judge_sample: JudgeSample = DEFAULT_JUDGE_SAMPLE,
    answer_tokens: AnswerTokens = ANSWER_TOKENS_BY_COMMAND["eval"],
    concurrency: ChatConcurrency = DEFAULT_CHAT_CONCURRENCY,
    resume: Resume = None,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all figures, and for each question all passages and answers, as JSON.",
            rich_help_panel=OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a report: findings, all questions side by side, and plots, in one HTML "
            "file that needs no network.",
            rich_help_panel=OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a table with one row for each question.",
            rich_help_panel=OUTPUT_PANEL,
            show_default=False,
        ),
    ] = None,
    explorer: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address of the explorer, such as http://localhost:8080. The report then links "
            "passages and questions to it.",
            rich_help_panel=OUTPUT_PANEL,
            show_default=False,
        ),
    ] = "",
) -> EvaluationOptions:
    from hrag.evaluation.systems import baseline_of, parse_systems  # noqa: PLC0415

    systems = parse_systems(compare, retrieved or ())
    return EvaluationOptions(
        systems=systems,
        baseline=baseline_of(systems, baseline),
        budgets=parse_budgets(budgets),
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
        csv=csv,
        explorer=explorer_address(explorer),
    )


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
    tokens, with 95 % intervals, and the differences to the baseline, with paired intervals. The
    first line says which of the two is better, or that none is.

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

    asked = checked_questions(questions, options)
    corpus = [] if options.ingest is None else corpus_documents(options.ingest)
    console = output()
    where = SearchTarget(tenant, collection, options.budgets)
    with (
        file_errors(),
        Journal(options.resume) as journal,
        connect(credentials, indexer, retriever) as client,
    ):
        run = EvaluationRun(client, where, options, journal, console)
        if corpus:
            with suppress(CollectionExists):
                client.create_collection(tenant, collection)
        if asked:
            run.check_systems(asked[0])
        if corpus:
            run.ingest(corpus)
        report = run.report(questions, asked)
    publish(report, options, console)
    if report.failed_calls:
        raise typer.Exit(1)
