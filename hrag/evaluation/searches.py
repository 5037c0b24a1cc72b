"""Searches with every system for every question, one search at a time.

A system is a way to search. For each question, the systems search one after another. The system
that searches first changes from question to question. So a period in which the machine is slow
affects all systems alike. The outcome of a search is its result or its error.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from hrag.client import Client
from hrag.evaluation.context_budget import (
    BudgetedText,
    cut_passages,
    cut_to_budgets,
    span_of,
)
from hrag.evaluation.document_texts import DocumentTexts
from hrag.evaluation.journal import Journal, key_of
from hrag.evaluation.questions import GoldQuote, Question
from hrag.evaluation.retrieved import RetrievalResult, find_quotes, kept_passages, retrieved
from hrag.evaluation.retrieved_files import retrieved_passages
from hrag.evaluation.systems import System
from hrag.values.errors import (
    CollectionNotFound,
    DocumentNotFound,
    EmbedderMismatch,
    HragError,
    InvalidArgument,
    NoLexicalIndex,
    NoSummaries,
    NoVectors,
    PermissionDenied,
    ServiceUnavailable,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
)
from hrag.values.limits import DEFAULT_COLLECTION, MAX_LIMIT
from hrag.values.search import Passage, SearchResult

DEFAULT_BUDGETS = (1000, 2000, 4000, 8000)
MAX_BUDGET = 100_000

# A short passage is assumed to have this many tokens, to estimate how many passages fill a budget.
# The shortest passages are leaves, which have at most 256 tokens by default, and fewer on average.
_SHORT_PASSAGE_TOKENS = 200
# If the service limits the rate of calls, a call is repeated at most this many times. A call is not
# repeated if the service asks for a longer delay than `_LONGEST_WAIT_S`.
_MAX_WAITS = 5
_LONGEST_WAIT_S = 30.0
# If the first search of a system fails with one of these errors, all searches of the system would
# fail. So the run ends with this error.
_FATAL = (
    *(Unauthenticated, PermissionDenied, CollectionNotFound, InvalidArgument),
    *(NoSummaries, NoVectors, NoLexicalIndex, EmbedderMismatch),
    *(ServiceUnavailable, StoreUnavailable),
)

Outcome = RetrievalResult | HragError
# A function that shows progress. Its arguments are three counts: what is finished, all that there
# is to do, and what has failed. Searches, for example, are counted.
Show = Callable[[int, int, int], None]
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """The tenant and collection to search, and the token budgets at which systems are compared.

    The budgets are in ascending order.
    """

    tenant_id: str
    collection: str = DEFAULT_COLLECTION
    budgets: tuple[int, ...] = DEFAULT_BUDGETS

    @property
    def main_budget(self) -> int:
        """The budget of the report's first sentence and of the passages that it shows."""
        return main_budget(self.budgets)


def main_budget(budgets: Sequence[int]) -> int:
    """Returns the middle one of the budgets, or the larger one of the two in the middle."""
    return budgets[len(budgets) // 2]


def search_all(
    client: Client,
    questions: Sequence[Question],
    systems: Sequence[System],
    where: SearchTarget,
    journal: Journal,
    show: Show,
) -> dict[str, list[Outcome]]:
    """Returns the outcomes of each system by its name, in the order of the questions.

    Raises an error that every search of a system would cause, for example because the credential or
    the collection is missing, the system's mode does not accept one of the system's options, or the
    service is unreachable. A result in `journal` is used without a search. `show` is called after
    each search with three counts: finished searches, all searches, and failed searches.
    """
    outcomes: dict[str, list[Outcome]] = {system.name: [] for system in systems}
    texts = document_texts(client, where)
    done = failed = 0
    for number, question in enumerate(questions):
        for system in _rotate(systems, number):
            outcome = _outcome(client, question, system, where, journal, texts)
            if isinstance(outcome, HragError):
                failed += 1
                _raise_if_fatal(outcome, outcomes[system.name])
            outcomes[system.name].append(outcome)
            done += 1
            show(done, len(questions) * len(systems), failed)
    return outcomes


def _rotate(systems: Sequence[System], number: int) -> Iterator[System]:
    first = number % len(systems)
    yield from (*systems[first:], *systems[:first])


def _raise_if_fatal(error: HragError, earlier: Sequence[Outcome]) -> None:
    """Raises `error` if all searches of the system would fail with this error.

    Does nothing if the question may be the cause of the error, or if an earlier search of the
    system has succeeded. `earlier` contains the outcomes of the earlier searches.
    """
    is_fatal = isinstance(error, _FATAL) and not isinstance(error, TooLarge)
    if is_fatal and all(isinstance(outcome, HragError) for outcome in earlier):
        raise error


def _outcome(
    client: Client,
    question: Question,
    system: System,
    where: SearchTarget,
    journal: Journal,
    texts: DocumentTexts,
) -> Outcome:
    if system.file is not None:
        # The file is there in the next run too, so its passages are not stored in the journal.
        try:
            return _passages_from_file(question, system.file, where, texts)
        except HragError as error:
            return error
    key = _key(question, system, where)
    stored = journal.get(key, RetrievalResult)
    if stored is not None:
        return stored
    try:
        result = search_one(client, question, system, where)
    except HragError as error:
        return error
    # A search with a fallback could not use words, vectors or the reranker as requested. Its result
    # is not stored, because the same search may succeed without a fallback in the next run.
    if not result.fallback:
        journal.put(key, result)
    return result


def _key(question: Question, system: System, where: SearchTarget) -> str:
    quotes = [asdict(gold) if isinstance(gold, GoldQuote) else None for gold in question.gold]
    return key_of(
        "search",
        question=question.text,
        quotes=quotes,
        mode=system.mode,
        options=dict(system.options),
        where=asdict(where),
    )


def search_one(
    client: Client, question: Question, system: System, where: SearchTarget
) -> RetrievalResult:
    """Returns the result of one system for one question.

    The system must not be another tool. Raises the errors of `Client.search`.

    If the system's mode fills a token budget itself, searches once for each budget. With other
    modes, searches once and cuts the passages to each of the budgets. If these passages do not fill
    the largest budget, searches a second time, for MAX_LIMIT passages.
    """
    if system.fills_budget:
        return _search_each_budget(client, question, system, where)
    budget = where.budgets[-1]
    limit = _limit(budget)
    result, round_trip_us = timed_search(client, question.text, system, where, limit=limit)
    texts = cut_to_budgets(result.passages, where.budgets)
    if texts[budget].tokens < budget and not result.exhausted and limit < MAX_LIMIT:
        result, round_trip_us = timed_search(client, question.text, system, where, limit=MAX_LIMIT)
        texts = cut_to_budgets(result.passages, where.budgets)
    return retrieved(question, result, texts, round_trip_us, result.passages, where.main_budget)


def _search_each_budget(
    client: Client, question: Question, system: System, where: SearchTarget
) -> RetrievalResult:
    texts: dict[int, BudgetedText] = {}
    shown: tuple[Passage, ...] = ()
    for budget in where.budgets:
        result, round_trip_us = timed_search(
            client, question.text, system, where, token_budget=budget
        )
        texts |= cut_to_budgets(result.passages, (budget,))
        if budget == where.main_budget:
            shown = tuple(result.passages)
    return retrieved(question, result, texts, round_trip_us, shown, where.main_budget)


def _passages_from_file(
    question: Question, file: Path, where: SearchTarget, texts: DocumentTexts
) -> RetrievalResult:
    """Returns the passages of another tool. Their latency is not known and is 0.

    Raises the errors of `retrieved_passages` and `Client.get_text`.
    """
    passages = retrieved_passages(file, question.question_id, texts)
    return RetrievalResult(
        ranking=tuple(map(span_of, passages)),
        texts=cut_to_budgets(passages, where.budgets),
        quotes=find_quotes(question, passages),
        latency_us=0,
        embed_us=0,
        sequence=0,
        passages=kept_passages(passages, where.main_budget),
    )


def document_texts(client: Client, where: SearchTarget) -> DocumentTexts:
    """Returns the texts of the documents of the collection, which are read when they are needed."""
    return DocumentTexts(
        lambda document_id: retried(
            lambda: client.get_text(where.tenant_id, document_id, collection=where.collection)
        )
    )


def best_passages(
    client: Client,
    question: Question,
    system: System,
    where: SearchTarget,
    budget: int,
    texts: DocumentTexts,
) -> tuple[Passage, ...]:
    """Returns the best passages of a system that together have at most `budget` tokens.

    The end of the last passage is cut off if it does not fit. The passages of another tool are
    located in `texts`. Raises the errors of `Client.search`, or those of `retrieved_passages` and
    `Client.get_text`.
    """
    if system.file is not None:
        passages = retrieved_passages(system.file, question.question_id, texts)
        return cut_passages(passages, budget)
    bounds = {"token_budget": budget} if system.fills_budget else {"limit": _limit(budget)}
    result, _ = timed_search(client, question.text, system, where, **bounds)
    return cut_passages(result.passages, budget)


def timed_search(
    client: Client, text: str, system: System, where: SearchTarget, **bounds: Any
) -> tuple[SearchResult, int]:
    """Returns the result of a search, and the microseconds that the client waited for the result.

    `bounds` are further arguments of the search: `limit` or `token_budget`. If the service limits
    the rate of calls, waits and searches again; only the last attempt is timed.
    """
    options = {"collection": where.collection, **system.options, **bounds}

    def search() -> tuple[SearchResult, int]:
        started = time.perf_counter_ns()
        result = client.search(where.tenant_id, text, mode=system.mode, **options)
        return result, (time.perf_counter_ns() - started) // 1000

    return retried(search)


def _limit(budget: int) -> int:
    """Returns how many passages are usually enough to fill a token budget."""
    return min(MAX_LIMIT, math.ceil(budget / _SHORT_PASSAGE_TOKENS))


def retried(call: Callable[[], Reply]) -> Reply:
    """Calls `call` and returns its result; if an error asks for a delay, waits and calls again.

    Repeats the call at most `_MAX_WAITS` times.
    """
    for _ in range(_MAX_WAITS):
        try:
            return call()
        except HragError as error:
            if error.retry_s is None or error.retry_s > _LONGEST_WAIT_S:
                raise
            time.sleep(error.retry_s)
    return call()


def searched_collections(systems: Sequence[System], where: SearchTarget) -> tuple[str, ...]:
    """Returns the names of the collections that the systems search, without duplicates."""
    names = (system.options.get("collection", where.collection) for system in systems)
    return tuple(dict.fromkeys(names))


def missing_documents(
    client: Client, questions: Sequence[Question], where: SearchTarget
) -> tuple[str, ...]:
    """Returns the ids of documents that the gold names but the collection does not have.

    Raises the errors of `Client.get_chunk`, except DocumentNotFound.
    """
    names = dict.fromkeys(name for question in questions for name in question.document_ids)
    return tuple(name for name in names if not _exists(client, name, where))


def _exists(client: Client, document_id: str, where: SearchTarget) -> bool:
    try:
        retried(
            lambda: client.get_chunk(
                where.tenant_id, f"{document_id}#0.0", collection=where.collection
            )
        )
    except DocumentNotFound:
        return False
    return True
