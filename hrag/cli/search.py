"""`hrag search`: a question in, passages with their citations out."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.connection import Credentials, connected, connecting
from hrag.cli.console import has_colour, output
from hrag.cli.options import DEFAULT_RETRIEVER, AsJson, Retriever
from hrag.cli.render import (
    beginning,
    citation,
    counted,
    highlighted,
    matched_ranges,
    section_citation,
    suffix,
    timings,
)
from hrag.cli.search_options import asking
from hrag.types import (
    ChosenSection,
    Passage,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
)

_EMPTY = "the collection is empty"
_NONE_THERE = {SearchMode.SUMMARY_FIRST: "no section has a summary yet"}
_SECTIONS_SHOWN = 10
_SUMMARY_CHARS = 120
_PLAN = {SearchPlan.SCAN: ", all compared", SearchPlan.INDEX: ", by index", None: ""}


@asking
@connecting
def search(
    query: SearchQuery,
    credentials: Credentials,
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
      hrag search "rotate keys" --mode summary_first --top-sections 5
      hrag search "rotate keys" --filter lang=en --filter "year>=2024"
      hrag search "rotate keys" --token-budget 4000 --json | jq .passages[].chunk.content
    """
    with connected(credentials, retriever=retriever) as client:
        result = client.search(**{each.name: getattr(query, each.name) for each in fields(query)})
    if as_json:
        typer.echo(json.dumps(asdict(result), ensure_ascii=False, indent=2))
    else:
        show_result(result, output())


def show_result(result: SearchResult, console: Console) -> None:
    """The sections it was led to, every passage, then how the search went."""
    _show_sections(result.sections, console)
    for number, passage in enumerate(result.passages, 1):
        _show_passage(number, passage, console)
    if not result.passages:
        show_nothing(result, console)
    more = ", and there are no more" if result.exhausted and result.passages else ""
    summary = (
        f"{counted(len(result.passages), 'passage')} of level {_levels(result)} around "
        f"leaves of level {result.matched_at_level}{more}; "
        f"{result.candidates_considered:,} of "
        f"{result.eligible_leaves:,} leaves looked at{_PLAN[result.plan]}"
    )
    console.print(Text(summary, style="dim"), soft_wrap=True)
    console.print(Text(timings(result), style="dim"), soft_wrap=True)


def show_nothing(result: SearchResult, console: Console) -> None:
    """Why there is no passage."""
    why = (
        "no passage answers"
        if result.eligible_leaves
        else f"{_NONE_THERE.get(result.mode, _EMPTY)}, or no document passes the filter"
    )
    console.print(f"nothing found: {why}")


def _levels(result: SearchResult) -> str:
    """`2`, or `0, 1 or 2` where passages may be of several."""
    highest = result.returned_at_level
    if result.mode is not SearchMode.AUTO_MERGE or highest == result.matched_at_level:
        return str(highest)
    return ", ".join(map(str, range(result.matched_at_level, highest))) + f" or {highest}"


def _show_sections(sections: Sequence[ChosenSection], console: Console) -> None:
    """Where SUMMARY_FIRST has looked, with the first words of each summary."""
    if not sections:
        return
    for section in sections[:_SECTIONS_SHOWN]:
        heading = Text(f"section {section.score:.3f}  ").append(section_citation(section))
        console.print(heading, soft_wrap=True)
        words = beginning(section.summary, _SUMMARY_CHARS)
        console.print(Text(f"  {words}", style="dim"), soft_wrap=True)
    if len(sections) > _SECTIONS_SHOWN:
        console.print("and more sections")
    console.print()


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
