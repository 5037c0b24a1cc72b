"""`hrag answer`: a question in, a model's answer with its sources out."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.answers.values import AnswerEnd, AnswerEvent, Citation, FinishReason
from hrag.cli.connection import Credentials, connected, connecting
from hrag.cli.console import output, printable
from hrag.cli.options import DEFAULT_RETRIEVER, AsJson, Retriever
from hrag.cli.render import citation, duration, inside, page_range
from hrag.cli.search import show_nothing
from hrag.cli.search_options import asking
from hrag.errors import HragError, ServiceUnavailable
from hrag.types import Passage, SearchQuery, SearchResult

_QUOTED_CHARS = 240
_CUT = {
    FinishReason.LENGTH: "cut off at the longest it may be",
    FinishReason.CONTENT_FILTER: "cut off by the endpoint's filter",
    FinishReason.FAILED: "it failed",
}


@asking
@connecting
def answer(
    query: SearchQuery,
    credentials: Credentials,
    question: Annotated[
        str,
        typer.Option(help="Ask the model this in place of the text.", show_default=False),
    ] = "",
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longest answer, in the model's tokens. Default: the server's."),
    ] = None,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Answer a question from what a search finds, with the sources.

    Searches as hrag search does, then has the retriever's chat model (HRAG_CHAT_MODEL)
    answer from these passages alone, and shows its text as it comes. Numbers such as [1]
    name the passage a statement comes from; below stand the passages, and of those the text
    cites the sentence nearest to what it says. A model may err: look.

    Where the model fails, passages and text up to there are shown all the same, and the exit
    code is 1.

    \b
    Examples:
      hrag answer "how do I rotate the keys?"
      hrag answer "how do I rotate the keys?" --limit 10 --filter lang=en
      hrag answer "rotate keys" --question "List the steps to rotate a key."
      hrag answer "how do I rotate the keys?" --json | jq .end.citations
    """
    with connected(credentials, retriever=retriever) as client:
        events = client.answer(query, question=question, max_tokens=max_tokens)
        result, text, end = _read(events, show=not as_json)
    if as_json:
        told = {"passages": asdict(result), "text": text, "end": asdict(end)}
        typer.echo(json.dumps(told, ensure_ascii=False, indent=2, default=str))
    else:
        _show_sources(result, end, output())
    if end.error is not None:
        raise end.error


def _read(events: Iterator[AnswerEvent], *, show: bool) -> tuple[SearchResult, str, AnswerEnd]:
    """All of an answer; `show` writes the text as it comes.

    A call that breaks off once the passages are there is an answer that failed.
    """
    result = next(events)
    assert isinstance(result, SearchResult)
    texts: list[str] = []
    try:
        for event in events:
            if isinstance(event, AnswerEnd):
                return result, "".join(texts), event
            texts.append(str(event))
            if show:
                typer.echo(printable(texts[-1]), nl=False)
        raise ServiceUnavailable("the answer broke off")
    except HragError as error:
        end = AnswerEnd(FinishReason.FAILED, error, (), "", 0, 0, 0, 0)
        return result, "".join(texts), end


def _show_sources(result: SearchResult, end: AnswerEnd, console: Console) -> None:
    """Every passage under its number, with what supports the text, then how it ended."""
    if end.finish_reason is FinishReason.NO_PASSAGES:
        show_nothing(result, console)
        return
    console.print("\n")
    for number, passage in enumerate(result.passages, 1):
        supporting = [each for each in end.citations if each.marker == number]
        style = "bold" if supporting else "dim"
        heading = f"[{number}] {citation(passage.chunk)}{'' if supporting else ' (not cited)'}"
        console.print(Text(heading, style=style), soft_wrap=True)
        compared = [each for each in supporting if each.score is not None]
        for quoted in dict.fromkeys(_quoted(each, passage) for each in compared):
            console.print(Text(f"    {quoted}"), soft_wrap=True)
    cut = _CUT.get(end.finish_reason, "")
    counted = f"{end.prompt_tokens:,} + {end.completion_tokens:,} tokens"
    tokens = counted if end.prompt_tokens else ""
    first = f"first text after {duration(end.first_text_us)}" if end.first_text_us else ""
    total = f"{duration(end.total_us)} in all" if end.total_us else ""
    parts = (cut, end.model, tokens, first, total)
    console.print(Text("; ".join(filter(None, parts)), style="dim"), soft_wrap=True)


def _quoted(cited: Citation, passage: Passage) -> str:
    """The sentence with its pages on one line, cut where it is long."""
    start, end = inside(passage.chunk, cited.span)
    line = " ".join(printable(passage.chunk.content[start:end]).split())
    if len(line) > _QUOTED_CHARS:
        line = f"{line[:_QUOTED_CHARS]}…"
    return " ".join(filter(None, (page_range(cited.first_page, cited.last_page), f'"{line}"')))
