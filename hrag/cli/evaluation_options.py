"""The options that `hrag eval` and `hrag compare` share, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

JUDGE_PANEL = "Chat model"
OUTPUT_PANEL = "Output"

DEFAULT_JUDGE_SAMPLE = 50
DEFAULT_CHAT_CONCURRENCY = 4
# The default of --answer-tokens, by command.
ANSWER_TOKENS_BY_COMMAND = {"compare": 2000, "eval": 4000}

Compare = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="LIST",
        help="What to compare, separated by commas: mode or mode:retrieval (hybrid, dense or "
        "lexical), with options of a search as in auto_merge:merge_ratio=0.7. "
        "collection=NAME compares collections.",
    ),
]
Retrieved = Annotated[
    list[str] | None,
    typer.Option(
        "--retrieved",
        metavar="NAME=FILE",
        help="Also compare passages that another tool has retrieved. FILE has a JSON object in "
        "each line, for one question: qid, and passages with doc_id and text, or with doc_id, "
        "start and end. Can be given several times.",
        show_default=False,
    ),
]
BaselineName = Annotated[
    str,
    typer.Option(
        help="The entry of --compare, or the NAME of --retrieved, that the others are compared "
        "with. Default: the last.",
        show_default=False,
    ),
]
Budgets = Annotated[
    str,
    typer.Option(metavar="LIST", help="Token budgets to compare at, separated by commas."),
]
Split = Annotated[
    str, typer.Option(help="The file in qrels/ to use, if QUESTIONS is a BEIR folder.")
]
Sample = Annotated[
    int,
    typer.Option(min=0, help="Number of questions to use, drawn at random; 0 means all questions."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed for everything that is drawn at random.")]
JudgeSample = Annotated[
    int,
    typer.Option(
        min=1,
        help="Maximum number of questions to judge, drawn at random.",
        rich_help_panel=JUDGE_PANEL,
    ),
]
AnswerTokens = Annotated[
    int,
    typer.Option(
        min=32,
        max=100_000,
        help="Token budget of the passages that an answer is made from.",
        rich_help_panel=JUDGE_PANEL,
    ),
]
ChatConcurrency = Annotated[
    int,
    typer.Option(
        min=1,
        max=64,
        help="Maximum number of calls of the chat model that run at the same time.",
        rich_help_panel=JUDGE_PANEL,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Store finished calls in this file, and do not repeat calls that it contains.",
        rich_help_panel=OUTPUT_PANEL,
        show_default=False,
    ),
]
