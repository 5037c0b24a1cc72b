"""The options of `hrag eval`, which the command receives as one value."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.options.groups import option_group

if TYPE_CHECKING:
    from hrag.evaluation.systems import System

_JUDGE_PANEL = "Chat model"
_OUTPUT_PANEL = "Output"
_COMPARE = "context,small_to_big,auto_merge,standard"
_BUDGETS = "1000,2000,4000,8000"
_MAX_BUDGETS = 8


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What `hrag eval` compares, how it compares, and which files it writes."""

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


def _options(
    compare: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="What to compare, separated by commas: mode or mode:retrieval (hybrid, dense or "
            "lexical), with options of a search as in auto_merge:merge_ratio=0.7. "
            "collection=NAME compares collections.",
        ),
    ] = _COMPARE,
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
    ] = _BUDGETS,
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
    """Returns the budgets in ascending order, without duplicates. Raises BadParameter."""
    from hrag.evaluation.searches import MAX_BUDGET  # noqa: PLC0415

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 0 < int(part) <= MAX_BUDGET for part in parts) or not (
        0 < len(parts) <= _MAX_BUDGETS
    ):
        raise typer.BadParameter(
            f"{text!r}: it must be 1 to {_MAX_BUDGETS} numbers of tokens, each from 1 to "
            f"{MAX_BUDGET:,}, as in {_BUDGETS}",
            param_hint="--budgets",
        )
    return tuple(sorted({int(part) for part in parts}))


evaluation_options = option_group("options", _options, last=True)
