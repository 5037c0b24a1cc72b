"""`hrag chat`: a conversation with the chat model, at a terminal or through a pipe.

Each question is sent with the turns before it, and the retriever makes it stand alone before it
searches. The command keeps the conversation in memory only.
"""

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hrag.cli.options import (
    DEFAULT_RETRIEVER,
    Credentials,
    Retriever,
    connection_options,
    option_group,
)
from hrag.cli.search import (
    AnswerReader,
    MaxTokens,
    ShowReasoning,
    search_query,
    show_answer_sources,
)
from hrag.cli.terminal import (
    ExitCode,
    Failure,
    output,
    print_json_line,
    show_error,
    show_note,
)
from hrag.host.addresses import dial_address
from hrag.values.answers import AnswerEvent
from hrag.values.conversation import ConversationTurn, TurnRole, latest_turns
from hrag.values.errors import HragError
from hrag.values.search import SearchQuery

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import AsyncClient

_PROMPT = "> "
_NEW = "/new"


@wraps(search_query)
def _search_without_text(**options: Any) -> SearchQuery:
    return search_query(text="", **options)


_signature = inspect.signature(search_query)
_search_without_text.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[option for name, option in _signature.parameters.items() if name != "text"]
)


@option_group("search", _search_without_text, last=False)
@connection_options
def chat(
    search: SearchQuery,
    credentials: Credentials,
    max_tokens: MaxTokens = None,
    reasoning: ShowReasoning = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each question.")
    ] = False,
) -> None:
    """Ask questions one after the other, each of which may refer to those before it.

    Every line of standard input is a question. A question such as "and how is it treated?" is
    searched for in a form that can be understood alone, which is shown before the answer. The
    line /new begins a new conversation; Ctrl-D ends the command, and Ctrl-C stops an answer. See
    hrag answer for what is shown.

    From a pipe, the command ends with the first question that fails.

    \b
    Examples:
      hrag chat
      hrag chat --collection handbook --filter lang=en
      printf 'what is leukaemia?\\nhow is it treated?\\n' | hrag chat --json | jq -r .text
    """
    turns: Sequence[ConversationTurn] = ()
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    with _Answers(credentials, retriever) as answers:
        for question in _questions(is_interactive=is_interactive):
            if question == _NEW:
                turns = ()
                continue
            query = replace(search, query=question)
            try:
                reader = AnswerReader(show=not as_json)
                answers.read(reader, query, turns, max_tokens=max_tokens, reasoning=reasoning)
                answered = _turns(reader, query.text, as_json=as_json, reasoning=reasoning)
            except HragError as error:
                if not is_interactive:
                    raise
                show_error(error.message)
            except KeyboardInterrupt:
                if not is_interactive:
                    raise
                show_note("\nstopped")
            else:
                turns = latest_turns([*turns, *answered])


def _questions(*, is_interactive: bool) -> Iterator[str]:
    """Yields the lines of standard input that are not blank. Asks for each at a terminal."""
    if is_interactive:
        # With this module, `input` offers the keys of the shell for editing and for earlier lines.
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415
    while True:
        try:
            line = input(_PROMPT) if is_interactive else sys.stdin.readline()
        except EOFError:
            typer.echo()
            return
        except UnicodeDecodeError:
            raise Failure("standard input is not UTF-8", ExitCode.USAGE) from None
        if not (line or is_interactive):
            return
        if line.strip():
            yield line.strip()


class _Answers:
    """Answers questions through a client whose calls Ctrl-C can end at any moment.

    Ctrl-C cancels a task of asyncio. In a synchronous client, it would raise an error at any line
    of gRPC's code, also while a lock is held, and later calls would wait for this lock.
    """

    def __init__(self, credentials: Credentials, retriever: str) -> None:
        self._credentials = credentials
        self._address = dial_address(retriever)
        self._runner = asyncio.Runner()

    def __enter__(self) -> "_Answers":
        self._client = self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._runner.run(self._client.close())

    async def _open(self) -> "AsyncClient":
        from hrag.client import AsyncClient  # noqa: PLC0415

        return AsyncClient(self._address, self._address, **asdict(self._credentials))

    def read(
        self,
        reader: AnswerReader,
        query: SearchQuery,
        turns: Sequence[ConversationTurn],
        *,
        max_tokens: int | None,
        reasoning: bool,
    ) -> None:
        """Gives the reader the events of the answer to a question that follows these turns."""
        events = self._client.answer(
            query, history=turns, max_tokens=max_tokens, reasoning=reasoning
        )
        self._runner.run(_read(reader, events))


async def _read(reader: AnswerReader, answer: AsyncGenerator[AnswerEvent]) -> None:
    # An interrupted answer is ended at once, so it does not occupy the tenant's share.
    async with aclosing(answer) as events:
        try:
            async for event in events:
                reader.add(event)
        except HragError as error:
            reader.fail(error)


def _turns(
    reader: AnswerReader, question: str, *, as_json: bool, reasoning: bool
) -> list[ConversationTurn]:
    """Shows the end of the answer to a question; returns the turns of both.

    Raises the error of the call or of the model. In the second case, the text so far was shown.
    """
    result, text, thoughts, end = reader.answer()
    if as_json:
        shown = {"passages": asdict(result), "text": text, "end": asdict(end)}
        shown |= {"reasoning": thoughts} if reasoning else {}
        print_json_line({"question": question, **shown})
    else:
        show_answer_sources(result, end, output())
        typer.echo()
    if end.error is not None:
        raise end.error
    return [
        ConversationTurn(TurnRole.USER, question),
        ConversationTurn(TurnRole.ASSISTANT, text),
    ]
