"""`hrag search`: shows passages for a question, with their citations."""

from collections.abc import Sequence
from dataclasses import asdict, fields

from rich.console import Console
from rich.text import Text

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.shared import DEFAULT_RETRIEVER, AsJson, Retriever
from hrag.cli.search.options import search_options
from hrag.cli.terminal.console import has_colour, output, print_json
from hrag.cli.terminal.render import (
    chunk_suffix,
    citation,
    cited_place,
    counted,
    first_words,
    highlighted,
    matched_ranges,
    pages,
    scores,
    section_citation,
    timings,
)
from hrag.text.plain_text import printable
from hrag.values.search import (
    ChosenSection,
    Passage,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
)

_EMPTY = "the collection is empty"
_EMPTY_IN_MODE = {SearchMode.SUMMARY_FIRST: "no section has a summary yet"}
_SECTIONS_SHOWN = 10
_SUMMARY_CHARS = 120
_PLAN = {SearchPlan.SCAN: ", by exact scan", SearchPlan.INDEX: ", by index", None: ""}


@search_options
@connection_options
def search(
    query: SearchQuery,
    credentials: Credentials,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Search a collection and show the best passages.

    The search finds the leaves (the smallest chunks) that are nearest to the text, by its words
    and by its meaning. It returns the larger chunks around these leaves, each once, as passages.
    A passage is shown with its score, the score of each source, the place to cite, and its
    content. The text's words are coloured in the content, or enclosed in « and » if the output
    has no colours. If a passage contains none of the words, its matched leaves are marked
    instead.

    A phrase in double quotes and a word with a plus before it must occur exactly.

    \b
    Examples:
      hrag search "how do I rotate the keys?"
      hrag search "rotate keys" --mode standard --limit 10
      hrag search 'why "access denied" +E-4711' --retrieval lexical
      hrag search "rotate keys" --mode context --token-budget 2000
      hrag search "rotate keys" --mode auto_merge --merge-adjacent --min-score 0.3
      hrag search "rotate keys" --mode summary_first --top-sections 5
      hrag search "rotate keys" --filter lang=en --filter "year>=2024"
      hrag search "rotate keys" --token-budget 4000 --json | jq .passages[].chunk.content
    """
    with connect(credentials, retriever=retriever) as client:
        arguments = {field.name: getattr(query, field.name) for field in fields(query)}
        result = client.search(**arguments)
    if as_json:
        print_json(asdict(result))
    else:
        show_result(result, output())


def show_result(result: SearchResult, console: Console) -> None:
    """Prints the sections that were searched, every passage, then a summary of the search."""
    _show_sections(result.sections, console)
    for number, passage in enumerate(result.passages, 1):
        _show_passage(number, passage, console)
    if not result.passages:
        show_nothing(result, console)
    more = ", no more exist" if result.exhausted and result.passages else ""
    summary = (
        f"{counted(len(result.passages), 'passage')} of level {_levels(result)} around "
        f"leaves of level {result.matched_at_level}{more}; "
        f"{result.candidates_considered:,} of "
        f"{result.eligible_leaves:,} leaves considered, {result.retrieval}{_PLAN[result.plan]}"
        f"{', reranked' if result.reranked else ''}"
    )
    console.print(Text(summary, style="dim"), soft_wrap=True)
    console.print(Text(timings(result), style="dim"), soft_wrap=True)
    if result.rerank_failure:
        _warn(f"not reranked: {result.rerank_failure}", console)
    if result.fallback:
        _warn(f"FALLBACK to {result.retrieval}: {result.fallback}", console)


def _warn(problem: str, console: Console) -> None:
    """Prints a problem that made the result worse than it should be."""
    console.print(Text(printable(problem), style="bold yellow"), soft_wrap=True)


def show_nothing(result: SearchResult, console: Console) -> None:
    """Prints why there is no passage."""
    reason = (
        "no passage matches"
        if result.eligible_leaves
        else f"{_EMPTY_IN_MODE.get(result.mode, _EMPTY)}, or no document matches the filter"
    )
    console.print(f"nothing found: {reason}")


def _levels(result: SearchResult) -> str:
    """Returns the level of the passages: `2`, or `0, 1 or 2` if they may have several levels."""
    highest = result.returned_at_level
    if result.mode is not SearchMode.AUTO_MERGE or highest == result.matched_at_level:
        return str(highest)
    return ", ".join(map(str, range(result.matched_at_level, highest))) + f" or {highest}"


def _show_sections(sections: Sequence[ChosenSection], console: Console) -> None:
    """Prints the sections that SUMMARY_FIRST searched, with the first words of each summary."""
    if not sections:
        return
    for section in sections[:_SECTIONS_SHOWN]:
        heading = Text(f"section {section.score:.3f}  ").append(section_citation(section))
        console.print(heading, soft_wrap=True)
        words = first_words(section.summary, _SUMMARY_CHARS)
        console.print(Text(f"  {words}", style="dim"), soft_wrap=True)
    if len(sections) > _SECTIONS_SHOWN:
        console.print(f"and {len(sections) - _SECTIONS_SHOWN} more sections")
    console.print()


def _show_passage(number: int, passage: Passage, console: Console) -> None:
    chunk = passage.chunk
    # Lines are wrapped for a terminal and stay as they are for a pipe.
    wrap_off = not console.is_terminal
    cited = cited_place(passage)
    heading = Text(f"{number}. {scores(passage)}  ", style="bold").append(citation(cited))
    console.print(heading, soft_wrap=wrap_off)
    leaves = ", ".join(
        f"{chunk_suffix(child.chunk_id)} {child.score:.3f}" for child in passage.matched_children
    )
    joined = "".join(f" {chunk_suffix(chunk_id)}" for chunk_id in passage.merged_chunk_ids)
    parts = f" of{joined}" if joined else ""
    spread = f", {pages(chunk)}" if pages(chunk) != pages(cited) else ""
    console.print(
        Text(f"{chunk.token_count:,} tokens{parts}{spread}; matched {leaves}", style="dim"),
        soft_wrap=wrap_off,
    )
    content = highlighted(chunk.content, matched_ranges(passage), colour=has_colour(console))
    content.rstrip()
    console.print(content, soft_wrap=wrap_off)
    console.print()
