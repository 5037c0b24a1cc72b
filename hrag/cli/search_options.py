"""The options of a search, declared once for every command that searches."""

from typing import Annotated

import typer

from hrag.cli import filters
from hrag.cli.option_groups import gathering
from hrag.cli.options import (
    DEFAULT_TENANT,
    CollectionName,
    Conditions,
    MinScore,
    Mode,
    Tenant,
    TokenBudget,
)
from hrag.types import (
    DEFAULT_CANDIDATES,
    DEFAULT_COLLECTION,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
    MAX_CANDIDATES,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
    Aggregation,
    SearchMode,
    SearchQuery,
    SummaryScope,
)

_MAX_U64 = (1 << 64) - 1


def _query(
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
    top_sections: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_TOP_SECTIONS,
            help=f"How many sections summary_first looks into. Default: {DEFAULT_TOP_SECTIONS}.",
        ),
    ] = None,
    summary_scope: Annotated[
        SummaryScope | None,
        typer.Option(
            help="Which summaries summary_first compares first: those of all sections, or of "
            "whole documents and then of the best ones' sections. Default: sections."
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
) -> SearchQuery:
    return SearchQuery(
        tenant_id=tenant,
        query=text,
        collection=collection,
        mode=mode,
        limit=limit,
        return_level=return_level,
        candidates=candidates,
        aggregation=aggregation,
        token_budget=token_budget,
        min_sequence=min_sequence,
        merge_ratio=merge_ratio,
        merge_adjacent=merge_adjacent,
        min_score=min_score,
        filter=filters.filter_of(filter or []),
        window_sentences=window_sentences,
        cut_last=cut_last,
        top_sections=top_sections,
        summary_scope=summary_scope,
    )


asking = gathering("query", _query, last=False)
