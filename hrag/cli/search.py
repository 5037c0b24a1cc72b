"""`hrag search` and `hrag answer`: show passages for a question, and a chat model's answer.

The chat model answers from the passages of a search. The functions of both commands receive the
options of the search as one `SearchQuery`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hrag.cli.option_values import parse_filters
from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Conditions,
    Credentials,
    MinScore,
    OptionalMode,
    Retriever,
    Tenant,
    TokenBudget,
    connect,
    connection_options,
    option_group,
)
from hrag.cli.render import (
    chunk_suffix,
    citation,
    cited_place,
    duration,
    first_words,
    highlighted,
    matched_ranges,
    merged,
    place,
    range_in_chunk,
    scores,
    section_citation,
    sentence_with_neighbours,
    timings,
)
from hrag.cli.terminal import has_colour, output, print_json, print_line
from hrag.text.citations import short_pages
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.answers import AnswerEnd, AnswerEvent, Citation, FinishReason, Reasoning
from hrag.values.conversation import StandaloneQuestion
from hrag.values.errors import HragError, ServiceUnavailable
from hrag.values.limits import (
    DEFAULT_CANDIDATES,
    DEFAULT_COLLECTION,
    DEFAULT_LEXICAL_WEIGHT,
    DEFAULT_LIMIT,
    DEFAULT_MERGE_RATIO,
    DEFAULT_NEIGHBOUR_BONUS,
    DEFAULT_WINDOW_SENTENCES,
    MAX_CANDIDATES,
    MAX_LEVELS,
    MAX_LIMIT,
    MAX_NEIGHBOUR_BONUS,
    MAX_PER_DOCUMENT,
    MAX_TOP_SECTIONS,
    MAX_WINDOW_SENTENCES,
)
from hrag.values.search import (
    Aggregation,
    ChosenSection,
    FusionMethod,
    Passage,
    Retrieval,
    SearchMode,
    SearchPlan,
    SearchQuery,
    SearchResult,
    SummaryScope,
)

_MAX_U64 = (1 << 64) - 1

ShowReasoning = Annotated[
    bool,
    typer.Option(
        "--reasoning", help="Also show what the model writes before it answers, if it does."
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Show all of each passage, and how it was found.")
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum length of the answer in the model's tokens. Default: the server's limit.",
    ),
]

_EMPTY = "the collection is empty"
_EMPTY_IN_MODE = {SearchMode.SUMMARY_FIRST: "no section has a summary yet"}
_SECTIONS_SHOWN = 10
_SUMMARY_CHARS = 120
_PLAN = {SearchPlan.SCAN: ", by exact scan", SearchPlan.INDEX: ", by index", None: ""}

_INDENT = 3
_INCOMPLETE = {
    FinishReason.LENGTH: "cut off at the maximum length",
    FinishReason.CONTENT_FILTER: "cut off by the endpoint's content filter",
    FinishReason.FAILED: "the model failed",
}


def search_query(
    text: Annotated[
        str, typer.Argument(help="The question or text to search for.", show_default=False)
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    mode: OptionalMode = None,
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
            f"Default: {DEFAULT_NEIGHBOUR_BONUS} in mode context, and in modes standard and "
            "sentence_window with hybrid retrieval, otherwise 0.",
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
            help="summary_first: number of sections to search. Default: as their scores decide.",
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
            help="Let the retriever's reranker order the best passages, in context and "
            "sentence_window the best leaves. Default: rerank if the retriever has a reranker.",
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


search_options = option_group("query", search_query, last=False)


@search_options
@connection_options
def search(
    query: SearchQuery,
    credentials: Credentials,
    retriever: Retriever = DEFAULT_RETRIEVER,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Search a collection and show the best passages.

    The search finds the leaves (the smallest chunks) that are nearest to the text, by its words
    and by its meaning. It returns the larger chunks around these leaves, each once, as passages.
    A passage is shown with the place to cite, its score, and the sentence that matches best
    between its neighbours. --full shows the whole content, the score of each source, the leaves
    that matched, and times. The text's words are coloured, or enclosed in « and » if the output
    has no colours. If a passage contains none of the words, its matched leaves are marked
    instead.

    A phrase in double quotes and a word with a plus before it must occur exactly.

    \b
    Examples:
      hrag search "how do I rotate the keys?"
      hrag search "rotate keys" --mode standard --limit 10 --full
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
        show_result(result, output(), full=full)


def show_result(result: SearchResult, console: Console, *, full: bool) -> None:
    """Prints the sections that were searched, every passage, a summary, and warnings.

    Only the mode SUMMARY_FIRST searches sections. With `full`, passages are complete, and the
    summary contains counts and times.
    """
    _show_sections(result.sections, console)
    for number, passage in enumerate(result.passages, 1):
        if full:
            _show_passage(number, passage, console)
        else:
            _show_glance(number, passage, console)
    if not result.passages:
        _show_nothing(result, console)
    if full:
        _show_counts(result, console)
    elif result.passages:
        console.print(Text(_short_summary(result), style="dim"), soft_wrap=True)
    if result.rerank_failure:
        _warn(f"not reranked: {result.rerank_failure}", console)
    if result.fallback:
        _warn(f"FALLBACK to {result.retrieval}: {result.fallback}", console)


def _short_summary(result: SearchResult) -> str:
    more = ", no more exist" if result.exhausted else ""
    return f"{counted(len(result.passages), 'passage')}{more}; --full shows all of each"


def _show_glance(number: int, passage: Passage, console: Console) -> None:
    """Prints the place to cite and the score, then the matched sentence with its neighbours."""
    wrap_off = not console.is_terminal
    heading = Text(f"{number}. {place(cited_place(passage))}", style="bold")
    heading.append(f"  {passage.score:.3f}", style="not bold dim")
    console.print(heading, soft_wrap=wrap_off)
    sentence = passage.matched_sentence
    line = sentence_with_neighbours(
        passage.chunk,
        sentence.span if sentence is not None else None,
        matched_ranges(passage),
        colour=has_colour(console),
    )
    _print_indented(line, console)
    console.print()


def _print_indented(text: Text, console: Console) -> None:
    """Prints a text with an indent before each line. In a pipe, long lines are not wrapped."""
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, _INDENT), expand=False))
        return
    for line in text.split("\n"):
        console.print(Text(" " * _INDENT).append_text(line), soft_wrap=True)


def _show_counts(result: SearchResult, console: Console) -> None:
    """Prints the counts and the times of a search."""
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


def _warn(problem: str, console: Console) -> None:
    """Prints `problem` as a warning, for example that a search source failed and was not used."""
    console.print(Text(printable(problem), style="bold yellow"), soft_wrap=True)


def _show_nothing(result: SearchResult, console: Console) -> None:
    """Prints the reason why a search returned no passages."""
    reason = (
        "no passage matches"
        if result.eligible_leaves
        else f"{_EMPTY_IN_MODE.get(result.mode, _EMPTY)}, or no document matches the filter"
    )
    console.print(f"nothing found: {reason}")


def _levels(result: SearchResult) -> str:
    """Returns the level of the passages as text, for example `2`.

    In the mode AUTO_MERGE, passages may have several levels: `0, 1 or 2`.
    """
    highest = result.returned_at_level
    if result.mode is not SearchMode.AUTO_MERGE or highest == result.matched_at_level:
        return str(highest)
    return ", ".join(map(str, range(result.matched_at_level, highest))) + f" or {highest}"


def _show_sections(sections: Sequence[ChosenSection], console: Console) -> None:
    """Prints the sections that the mode SUMMARY_FIRST searched, with the start of each summary."""
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
    # On a terminal, long lines are wrapped. In a pipe, they stay as they are.
    wrap_off = not console.is_terminal
    cited = cited_place(passage)
    heading = Text(f"{number}. {scores(passage)}  ", style="bold").append(citation(cited))
    console.print(heading, soft_wrap=wrap_off)
    leaves = ", ".join(
        f"{chunk_suffix(child.chunk_id)} {child.score:.3f}" for child in passage.matched_children
    )
    joined = "".join(f" {chunk_suffix(chunk_id)}" for chunk_id in passage.merged_chunk_ids)
    parts = f" of{joined}" if joined else ""
    spread = f", {short_pages(chunk)}" if short_pages(chunk) != short_pages(cited) else ""
    console.print(
        Text(f"{chunk.token_count:,} tokens{parts}{spread}; matched {leaves}", style="dim"),
        soft_wrap=wrap_off,
    )
    content = highlighted(chunk.content, matched_ranges(passage), colour=has_colour(console))
    content.rstrip()
    console.print(content, soft_wrap=wrap_off)
    console.print()


@search_options
@connection_options
def answer(
    query: SearchQuery,
    credentials: Credentials,
    question: Annotated[
        str,
        typer.Option(
            help="Ask the model this question instead of the search text.", show_default=False
        ),
    ] = "",
    max_tokens: MaxTokens = None,
    reasoning: ShowReasoning = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question with a chat model, from the passages that a search finds.

    The command searches like hrag search. The retriever's chat model (HRAG_CHAT_MODEL) then
    answers from these passages alone, and its text is shown while it arrives. Numbers such as
    [1] refer to the passages listed below the answer. For each cited passage, the list shows the
    sentence that is nearest to the statement, between its neighbours; --full shows every passage
    completely. A model can be wrong: check the sources.

    If the model fails, the passages and the text so far are still shown, and the exit code
    is 1.

    \b
    Examples:
      hrag answer "how do I rotate the keys?"
      hrag answer "how do I rotate the keys?" --limit 10 --filter lang=en
      hrag answer "rotate keys" --question "List the steps to rotate a key."
      hrag answer "how do I rotate the keys?" --json | jq .end.citations
    """
    with connect(credentials, retriever=retriever) as client:
        reader = AnswerReader(show=not as_json)
        try:
            for event in client.answer(
                query, question=question, max_tokens=max_tokens, reasoning=reasoning
            ):
                reader.add(event)
        except HragError as error:
            reader.fail(error)
    result, text, thoughts, end = reader.answer()
    if as_json:
        reply = {"passages": asdict(result), "text": text, "end": asdict(end)}
        print_json(reply | ({"reasoning": thoughts} if reasoning else {}))
    else:
        show_answer_sources(result, end, output(), full=full)
    if end.error is not None:
        raise end.error


class AnswerReader:
    """Collects the events of one answer.

    If `show` is True, prints each part of the reasoning and of the text when it arrives, and before
    it what was searched for in place of a question of a conversation.
    """

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._result: SearchResult | None = None
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._end: AnswerEnd | None = None

    def add(self, event: AnswerEvent) -> None:
        """Adds the next event."""
        if isinstance(event, SearchResult):
            self._result = event
            if self._show and event.standalone_question is not None:
                _show_standalone_question(event.standalone_question)
        elif isinstance(event, AnswerEnd):
            self._end = event
        else:
            if self._show:
                _show_part(event, begins_text=bool(self._thoughts) and not self._texts)
            if isinstance(event, Reasoning):
                self._thoughts.append(event.text)
            else:
                self._texts.append(event)

    def fail(self, error: HragError) -> None:
        """Ends the answer with an error. Raises the error if no passages have arrived."""
        if self._result is None:
            raise error
        self._end = AnswerEnd(FinishReason.FAILED, error, (), "", 0, 0, 0, 0)

    def answer(self) -> tuple[SearchResult, str, str, AnswerEnd]:
        """Returns the passages, the text, the reasoning and the last event."""
        if self._end is None:
            self.fail(ServiceUnavailable("the answer was interrupted"))
        assert self._result is not None
        assert self._end is not None
        return self._result, "".join(self._texts), "".join(self._thoughts), self._end


def _show_part(event: AnswerEvent, *, begins_text: bool) -> None:
    """Prints a part of the text, or dimly a part of the reasoning.

    If `begins_text`, separates the text from the reasoning before it.
    """
    if isinstance(event, Reasoning):
        output().print(Text(printable(event.text), style="dim"), end="", soft_wrap=True)
        return
    typer.echo(("\n\n" if begins_text else "") + printable(str(event)), nl=False)


def _show_standalone_question(question: StandaloneQuestion) -> None:
    """Prints what was searched for, and the reason why it is not the model's question."""
    print_line(f"searched for: {question.text}", style="dim")
    if question.failure:
        print_line(f"words of the last turns were added: {question.failure}", style="bold yellow")


def show_answer_sources(
    result: SearchResult, end: AnswerEnd, console: Console, *, full: bool = False
) -> None:
    """Prints the passages that the answer cites, with the cited sentences and their neighbours.

    If it cites none, prints the place of every passage. With `full`, prints every passage
    completely, the cited sentences marked. Then prints the model,
    tokens and times of the answer. If the answer is incomplete, also prints the reason.
    """
    if end.finish_reason is FinishReason.NO_PASSAGES:
        _show_nothing(result, console)
        return
    console.print("\n")
    left_out = 0
    for number, passage in enumerate(result.passages, 1):
        cited = [entry for entry in end.citations if entry.marker == number]
        if cited or full or not end.citations:
            _show_source(number, passage, cited, console, full=full)
        else:
            left_out += 1
    if left_out:
        console.print(Text(f"{counted(left_out, 'passage')} not cited", style="dim"))
    console.print(Text("; ".join(filter(None, _answer_summary(end))), style="dim"), soft_wrap=True)


def _show_source(
    number: int, passage: Passage, cited: Sequence[Citation], console: Console, *, full: bool
) -> None:
    style = "bold" if cited else "dim"
    heading = f"[{number}] {citation(passage.chunk)}{'' if cited else ' (not cited)'}"
    console.print(Text(heading, style=style), soft_wrap=True)
    chunk, colour = passage.chunk, has_colour(console)
    spans = dict.fromkeys(entry.span for entry in cited if entry.score is not None)
    marked = merged(range_in_chunk(chunk, span) for span in spans)
    if full:
        texts = [highlighted(chunk.content, marked, colour=colour)]
    else:
        pages = {entry.span: short_pages(entry) for entry in cited}
        texts = [
            Text(f"{pages[span]} " if pages[span] else "").append_text(
                sentence_with_neighbours(chunk, span, marked, colour=colour)
            )
            for span in spans
        ]
    for text in texts:
        text.rstrip()
        _print_indented(text, console)


def _answer_summary(end: AnswerEnd) -> Iterator[str]:
    """Yields texts about an answer: why it is incomplete, its model, its tokens and its times.

    The first text is empty if the answer is complete. The second text is empty if the model is not
    known.
    """
    yield _INCOMPLETE.get(end.finish_reason, "")
    yield end.model
    if end.prompt_tokens:
        yield f"{end.prompt_tokens:,} + {end.completion_tokens:,} tokens"
    if end.removed_citations:
        yield f"{end.removed_citations:,} citations too many, removed from the text"
    if end.first_text_us:
        yield f"first text after {duration(end.first_text_us)}"
    if end.total_us:
        yield f"{duration(end.total_us)} in total"
