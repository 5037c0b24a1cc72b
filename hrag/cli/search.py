"""`hrag search`: a question in, passages with their citations out."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli import filters
from hrag.cli.connection import connected
from hrag.cli.console import has_colour, output
from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Conditions,
    MinScore,
    Mode,
    Retriever,
    Tenant,
    TokenBudget,
)
from hrag.cli.render import citation, counted, highlighted, matched_ranges, suffix, timings
from hrag.types import (
    DEFAULT_CANDIDATES,
    DEFAULT_COLLECTION,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_WINDOW_SENTENCES,
    MAX_CANDIDATES,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_WINDOW_SENTENCES,
    Aggregation,
    Passage,
    SearchMode,
    SearchPlan,
    SearchResult,
)

_MAX_U64 = (1 << 64) - 1
_PLAN = {SearchPlan.SCAN: ", all compared", SearchPlan.INDEX: ", by index", None: ""}


def search(
    text: Annotated[str, typer.Argument(help="What to look for.", show_default=False)],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    mode: Mode = SearchMode.SMALL_TO_BIG,
    limit: Annotated[
        int, typer.Option(min=1, max=MAX_LIMIT, help="Most passages to return.")
    ] = DEFAULT_LIMIT,
    return_level: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_LEVELS - 1,
            help="Level of the passages, 0 the smallest chunks. Default: the collection's.",
        ),
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=1, max=MAX_CANDIDATES, help="How many leaves to look at first.")
    ] = DEFAULT_CANDIDATES,
    aggregation: Annotated[
        Aggregation, typer.Option(help="How a passage's score comes from its leaves' scores.")
    ] = Aggregation.MAX,
    token_budget: TokenBudget = 0,
    cut_last: Annotated[
        bool,
        typer.Option(
            "--cut-last", help="Cut the first passage past the token budget at a sentence."
        ),
    ] = False,
    merge_ratio: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of a chunk's children that must match for auto_merge to take the "
            f"chunk. Default: {DEFAULT_MERGE_RATIO}.",
        ),
    ] = None,
    window_sentences: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_WINDOW_SENTENCES,
            help="Sentences on either side of the best one in sentence_window. Default: "
            f"{DEFAULT_WINDOW_SENTENCES}.",
        ),
    ] = None,
    merge_adjacent: Annotated[
        bool,
        typer.Option(
            "--merge-adjacent", help="Join passages of one document that overlap or touch."
        ),
    ] = False,
    min_score: MinScore = None,
    filter: Conditions = None,
    min_sequence: Annotated[
        int, typer.Option(min=0, max=_MAX_U64, help="Wait until this change can be seen.")
    ] = 0,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Search a collection and show the passages that answer best.

    The text is compared with every leaf (the smallest chunks, which are embedded). From
    each leaf that matches, the search climbs to the larger chunk around it and returns
    that once, as a passage: its score, its citation, its content. Inside it the matched
    leaves are coloured, or stand between « and » where there is no colour.

    \b
    Examples:
      hrag search "how do I rotate the keys?"
      hrag search "rotate keys" --mode standard --limit 10
      hrag search "rotate keys" --mode auto_merge --merge-adjacent --min-score 0.3
      hrag search "rotate keys" --filter lang=en --filter "year>=2024"
      hrag search "rotate keys" --token-budget 4000 --json | jq .passages[].chunk.content
    """
    with connected(retriever=retriever) as client:
        result = client.search(
            tenant,
            text,
            collection=collection,
            mode=mode,
            limit=limit,
            return_level=return_level,
            candidates=candidates,
            aggregation=aggregation,
            token_budget=token_budget,
            min_sequence=min_sequence,
            merge_ratio=merge_ratio,
            window_sentences=window_sentences,
            cut_last=cut_last,
            merge_adjacent=merge_adjacent,
            min_score=min_score,
            filter=filters.filter_of(filter or []),
        )
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(result), ensure_ascii=False, indent=2))
    else:
        show_result(result, output())


def show_result(result: SearchResult, console: Console) -> None:
    """Every passage, then how the search went."""
    for number, passage in enumerate(result.passages, 1):
        _show_passage(number, passage, console)
    if not result.passages:
        why = (
            "no passage answers"
            if result.eligible_leaves
            else "the collection is empty, or no document passes the filter"
        )
        console.print(f"nothing found: {why}")
    more = ", and there are no more" if result.exhausted and result.passages else ""
    summary = (
        f"{counted(len(result.passages), 'passage')} of level {_levels(result)} around "
        f"leaves of level {result.matched_at_level}{more}; "
        f"{result.candidates_considered:,} of "
        f"{result.eligible_leaves:,} leaves looked at{_PLAN[result.plan]}"
    )
    console.print(Text(summary, style="dim"), soft_wrap=True)
    console.print(Text(timings(result), style="dim"), soft_wrap=True)


def _levels(result: SearchResult) -> str:
    """`2`, or `0, 1 or 2` where passages may be of several."""
    highest = result.returned_at_level
    if result.mode is not SearchMode.AUTO_MERGE or highest == result.matched_at_level:
        return str(highest)
    return ", ".join(map(str, range(result.matched_at_level, highest))) + f" or {highest}"


def _show_passage(number: int, passage: Passage, console: Console) -> None:
    chunk = passage.chunk
    # A terminal wraps at words; a pipe gets the content's own lines.
    wrap_off = not console.is_terminal
    heading = Text(f"{number}. {passage.score:.3f}  ", style="bold").append(citation(chunk))
    console.print(heading, soft_wrap=wrap_off)
    leaves = ", ".join(
        f"{suffix(child.chunk_id)} {child.score:.3f}" for child in passage.matched_children
    )
    joined = "".join(f" {suffix(chunk_id)}" for chunk_id in passage.merged_chunk_ids)
    parts = f" of{joined}" if joined else ""
    console.print(
        Text(f"{chunk.token_count:,} tokens{parts}; matched {leaves}", style="dim"),
        soft_wrap=wrap_off,
    )
    content = highlighted(chunk.content, matched_ranges(passage), colour=has_colour(console))
    content.rstrip()
    console.print(content, soft_wrap=wrap_off)
    console.print()
