"""`hrag answer`: shows a chat model's answer to a question, with its sources."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.shared import DEFAULT_RETRIEVER, AsJson, Retriever
from hrag.cli.search.options import search_options
from hrag.cli.search.search import show_nothing
from hrag.cli.terminal.console import output, print_json
from hrag.cli.terminal.render import citation, duration, page_range, range_in_chunk
from hrag.text.plain_text import printable
from hrag.values.answers import AnswerEnd, AnswerEvent, Citation, FinishReason
from hrag.values.errors import HragError, ServiceUnavailable
from hrag.values.search import Passage, SearchQuery, SearchResult

_QUOTED_CHARS = 240
_INCOMPLETE = {
    FinishReason.LENGTH: "cut off at the maximum length",
    FinishReason.CONTENT_FILTER: "cut off by the endpoint's content filter",
    FinishReason.FAILED: "the model failed",
}


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
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum length of the answer in the model's tokens. Default: the server's limit.",
        ),
    ] = None,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Answer a question with a chat model, from the passages that a search finds.

    The command searches like hrag search. The retriever's chat model (HRAG_CHAT_MODEL) then
    answers from these passages alone, and its text is shown while it arrives. Numbers such as
    [1] refer to the passages listed below the answer; for each cited passage, the list quotes
    the sentence that is nearest to the statement. A model can be wrong: check the sources.

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
        events = client.answer(query, question=question, max_tokens=max_tokens)
        result, text, end = _read(events, show=not as_json)
    if as_json:
        print_json({"passages": asdict(result), "text": text, "end": asdict(end)})
    else:
        _show_sources(result, end, output())
    if end.error is not None:
        raise end.error


def _read(events: Iterator[AnswerEvent], *, show: bool) -> tuple[SearchResult, str, AnswerEnd]:
    """Returns the passages, the text and the end of an answer.

    With `show`, prints each part of the text when it arrives. If an error occurs after the
    passages have arrived, the end describes a failed answer.
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
        raise ServiceUnavailable("the answer was interrupted")
    except HragError as error:
        end = AnswerEnd(FinishReason.FAILED, error, (), "", 0, 0, 0, 0)
        return result, "".join(texts), end


def _show_sources(result: SearchResult, end: AnswerEnd, console: Console) -> None:
    """Prints every passage with its number and cited sentences, then how the answer ended."""
    if end.finish_reason is FinishReason.NO_PASSAGES:
        show_nothing(result, console)
        return
    console.print("\n")
    for number, passage in enumerate(result.passages, 1):
        cited = [entry for entry in end.citations if entry.marker == number]
        style = "bold" if cited else "dim"
        heading = f"[{number}] {citation(passage.chunk)}{'' if cited else ' (not cited)'}"
        console.print(Text(heading, style=style), soft_wrap=True)
        with_sentence = [entry for entry in cited if entry.score is not None]
        for quotation in dict.fromkeys(_quote(entry, passage) for entry in with_sentence):
            console.print(Text(f"    {quotation}"), soft_wrap=True)
    console.print(Text("; ".join(filter(None, _summary(end))), style="dim"), soft_wrap=True)


def _summary(end: AnswerEnd) -> Iterator[str]:
    """Yields why the answer is incomplete, then the model, the tokens and the times.

    A text may be empty.
    """
    yield _INCOMPLETE.get(end.finish_reason, "")
    yield end.model
    if end.prompt_tokens:
        yield f"{end.prompt_tokens:,} + {end.completion_tokens:,} tokens"
    if end.first_text_us:
        yield f"first text after {duration(end.first_text_us)}"
    if end.total_us:
        yield f"{duration(end.total_us)} in total"


def _quote(cited: Citation, passage: Passage) -> str:
    """Returns the cited sentence with its pages on one line.

    The sentence is cut after `_QUOTED_CHARS` characters.
    """
    start, end = range_in_chunk(passage.chunk, cited.span)
    line = " ".join(printable(passage.chunk.content[start:end]).split())
    if len(line) > _QUOTED_CHARS:
        line = f"{line[:_QUOTED_CHARS]}…"
    return " ".join(filter(None, (page_range(cited.first_page, cited.last_page), f'"{line}"')))
