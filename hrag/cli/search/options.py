"""The options of a search, shared by every command that searches."""

from typing import Annotated

import typer

from hrag.cli.options.filters import parse_filters
from hrag.cli.options.groups import option_group
from hrag.cli.options.shared import (
    DEFAULT_TENANT,
    CollectionName,
    Conditions,
    MinScore,
    Mode,
    Tenant,
    TokenBudget,
)
from hrag.values.limits import (
    DEFAULT_CANDIDATES,
    DEFAULT_COLLECTION,
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_NEIGHBOUR_BONUS,
    DEFAULT_TOP_SECTIONS,
    DEFAULT_WINDOW_SENTENCES,
    MAX_CANDIDATES,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_NEIGHBOUR_BONUS,
    MAX_PER_DOCUMENT,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
)
from hrag.values.search import Aggregation, FusionMethod, Retrieval, SearchQuery, SummaryScope

_MAX_U64 = (1 << 64) - 1


def _query(
    text: Annotated[
        str, typer.Argument(help="The question or text to search for.", show_default=False)
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    mode: Mode | None = None,
    retrieval: Annotated[
        Retrieval | None,
        typer.Option(help="Search by words, by vectors, or by both. Default: hybrid."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_LIMIT,
            help=f"Maximum number of passages. Default: {DEFAULT_LIMIT}; no maximum in mode "
            "context.",
            show_default=False,
        ),
    ] = None,
    return_level: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_LEVELS - 1,
            help="Level of the passages; level 0 has the smallest chunks. Default: the "
            "collection's return level.",
        ),
    ] = None,
    candidates: Annotated[
        int,
        typer.Option(
            min=1, max=MAX_CANDIDATES, help="Number of candidate leaves from each source."
        ),
    ] = DEFAULT_CANDIDATES,
    fusion: Annotated[
        FusionMethod | None,
        typer.Option(help="hybrid: how both scores are combined. Default: convex."),
    ] = None,
    lexical_weight: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="hybrid: weight of the score by words in the combined score. "
            f"Default: {DEFAULT_LEXICAL_WEIGHT}.",
        ),
    ] = None,
    neighbour_bonus: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=MAX_NEIGHBOUR_BONUS,
            help="Weight of a leaf's neighbours in its score. "
            f"Default: {DEFAULT_NEIGHBOUR_BONUS} in mode context and in mode standard with "
            "hybrid retrieval, otherwise 0.",
        ),
    ] = None,
    max_per_document: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_PER_DOCUMENT,
            help="Maximum number of passages of one document; 0 means no maximum.",
        ),
    ] = 0,
    aggregation: Annotated[
        Aggregation,
        typer.Option(
            help="How a passage's score is computed from the scores of its matched leaves."
        ),
    ] = Aggregation.MAX,
    token_budget: TokenBudget = 0,
    cut_last: Annotated[
        bool,
        typer.Option(
            "--cut-last",
            help="Fill the token budget with the first sentences of the passage that exceeds it.",
        ),
    ] = False,
    merge_ratio: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="auto_merge: share of a chunk's children that must match for the chunk to be "
            f"returned instead of them. Default: {DEFAULT_MERGE_RATIO}.",
        ),
    ] = None,
    window_sentences: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MAX_WINDOW_SENTENCES,
            help="sentence_window: number of sentences before and after the best one. "
            f"Default: {DEFAULT_WINDOW_SENTENCES}.",
        ),
    ] = None,
    top_sections: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_TOP_SECTIONS,
            help=f"summary_first: number of sections to search. Default: {DEFAULT_TOP_SECTIONS}.",
        ),
    ] = None,
    summary_scope: Annotated[
        SummaryScope | None,
        typer.Option(
            help="summary_first: compare the summaries of all sections, or first the summaries of "
            "documents and then those of the best documents' sections. Default: sections."
        ),
    ] = None,
    rerank: Annotated[
        bool | None,
        typer.Option(
            "--rerank/--no-rerank",
            help="Let the retriever's reranker order the best passages. Default: rerank if the "
            "retriever has a reranker.",
            show_default=False,
        ),
    ] = None,
    merge_adjacent: Annotated[
        bool,
        typer.Option(
            "--merge-adjacent", help="Join passages of one document that overlap or touch."
        ),
    ] = False,
    keep_overlap: Annotated[
        bool,
        typer.Option(
            "--keep-overlap",
            help="Repeat text that neighbouring passages share in each of them. Default: only the "
            "better passage contains it.",
        ),
    ] = False,
    min_score: MinScore = None,
    filter: Conditions = None,
    min_sequence: Annotated[
        int,
        typer.Option(
            min=0, max=_MAX_U64, help="Wait until the retriever has applied this sequence number."
        ),
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
        keep_overlap=keep_overlap,
        min_score=min_score,
        filter=parse_filters(filter),
        window_sentences=window_sentences,
        cut_last=cut_last,
        top_sections=top_sections,
        summary_scope=summary_scope,
        retrieval=retrieval,
        fusion=fusion,
        lexical_weight=lexical_weight,
        neighbour_bonus=neighbour_bonus,
        max_per_document=max_per_document,
        rerank=rerank,
    )


search_options = option_group("query", _query, last=False)
