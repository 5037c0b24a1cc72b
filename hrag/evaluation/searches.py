"""Asks every system every question, one search at a time.

The systems take turns within a question, and another one begins each time, so that a slow
spell of the machine affects all. A search that fails is an outcome too.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from hrag.client import Client
from hrag.evaluation.context_budget import BudgetedText, cut_passages, cut_to_budgets
from hrag.evaluation.journal import Journal, key_of
from hrag.evaluation.questions import GoldQuote, Question
from hrag.evaluation.retrieved import Retrieved, retrieved
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

_SHORT_PASSAGE_TOKENS = 200  # Leaves have 256 unless configured, and somewhat less on average.
_MAX_WAITS = 5
_LONGEST_WAIT_S = 30.0
# What every question of a system would run into, so that the first one ends the run.
_HOPELESS = (
    *(Unauthenticated, PermissionDenied, CollectionNotFound, InvalidArgument),
    *(NoSummaries, NoVectors, NoLexicalIndex, EmbedderMismatch),
    *(ServiceUnavailable, StoreUnavailable),
)

Outcome = Retrieved | HragError
Show = Callable[[int, int, int], None]  # Calls that are done, all of them, those that failed.
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Searched:
    """Where the questions are asked, and the token budgets to compare at, ascending."""

    tenant_id: str
    collection: str = DEFAULT_COLLECTION
    budgets: tuple[int, ...] = DEFAULT_BUDGETS


def search_all(
    client: Client,
    questions: Sequence[Question],
    systems: Sequence[System],
    where: Searched,
    journal: Journal,
    show: Show,
) -> dict[str, list[Outcome]]:
    """Returns the outcome of each question by the system's name, in their order.

    Raises an error that all questions of a system would have: no credential, no collection, an
    option that the mode does not have, services that cannot be reached.
    """
    outcomes: dict[str, list[Outcome]] = {system.name: [] for system in systems}
    done = failed = 0
    for number, question in enumerate(questions):
        for system in _rotated(systems, number):
            outcome = _outcome(client, question, system, where, journal)
            if isinstance(outcome, HragError):
                failed += 1
                _raise_if_hopeless(outcome, outcomes[system.name])
            outcomes[system.name].append(outcome)
            done += 1
            show(done, len(questions) * len(systems), failed)
    return outcomes


def _rotated(systems: Sequence[System], number: int) -> Iterator[System]:
    first = number % len(systems)
    yield from (*systems[first:], *systems[:first])


def _raise_if_hopeless(error: HragError, earlier: Sequence[Outcome]) -> None:
    """Raises the error unless it may be the question's, or a search has succeeded before."""
    hopeless = isinstance(error, _HOPELESS) and not isinstance(error, TooLarge)
    if hopeless and all(isinstance(each, HragError) for each in earlier):
        raise error


def _outcome(
    client: Client, question: Question, system: System, where: Searched, journal: Journal
) -> Outcome:
    key = _key(question, system, where)
    kept = journal.get(key, Retrieved)
    if kept is not None:
        return kept
    try:
        found = search_one(client, question, system, where)
    except HragError as error:
        return error
    if not found.fallback:  # The next run may get the whole search.
        journal.put(key, found)
    return found


def _key(question: Question, system: System, where: Searched) -> str:
    quotes = [asdict(each) if isinstance(each, GoldQuote) else None for each in question.gold]
    return key_of(
        "search",
        question=question.text,
        quotes=quotes,
        mode=system.mode,
        options=dict(system.options),
        where=asdict(where),
    )


def search_one(client: Client, question: Question, system: System, where: Searched) -> Retrieved:
    """Returns what one system finds for one question. Raises what `Client.search` raises.

    A mode that fills a budget itself is asked once for each budget; of others, the passages of
    one search are cut to all of them.
    """
    if system.fills_budget:
        return _search_each_budget(client, question, system, where)
    budget = where.budgets[-1]
    limit = _limit(budget)
    result, took_us = timed_search(client, question.text, system, where, limit=limit)
    texts = cut_to_budgets(result.passages, where.budgets)
    if texts[budget].tokens < budget and not result.exhausted and limit < MAX_LIMIT:
        result, took_us = timed_search(client, question.text, system, where, limit=MAX_LIMIT)
        texts = cut_to_budgets(result.passages, where.budgets)
    return retrieved(question, result, texts, took_us)


def _search_each_budget(
    client: Client, question: Question, system: System, where: Searched
) -> Retrieved:
    texts: dict[int, BudgetedText] = {}
    for budget in where.budgets:
        result, took_us = timed_search(client, question.text, system, where, token_budget=budget)
        texts |= cut_to_budgets(result.passages, (budget,))
    return retrieved(question, result, texts, took_us)


def best_passages(
    client: Client, text: str, system: System, where: Searched, budget: int
) -> tuple[Passage, ...]:
    """Returns the passages that fill the budget, the last one cut. Raises as `search_one`."""
    bounds = {"token_budget": budget} if system.fills_budget else {"limit": _limit(budget)}
    result, _ = timed_search(client, text, system, where, **bounds)
    return cut_passages(result.passages, budget)


def timed_search(
    client: Client, text: str, system: System, where: Searched, **bounds: Any
) -> tuple[SearchResult, int]:
    """Returns a result and how long the client waited for it, in microseconds.

    Waits and tries again where the service limits the rate of calls.
    """
    options = {"collection": where.collection, **system.options, **bounds}

    def search() -> tuple[SearchResult, int]:
        started = time.perf_counter_ns()
        result = client.search(where.tenant_id, text, mode=system.mode, **options)
        return result, (time.perf_counter_ns() - started) // 1000

    return _patient(search)


def _limit(budget: int) -> int:
    """How many passages fill the budget, as a rule."""
    return min(MAX_LIMIT, math.ceil(budget / _SHORT_PASSAGE_TOKENS))


def _patient(call: Callable[[], Reply]) -> Reply:
    """Calls again after the delay that an error asks for, a few times."""
    for _ in range(_MAX_WAITS):
        try:
            return call()
        except HragError as error:
            if error.retry_s is None or error.retry_s > _LONGEST_WAIT_S:
                raise
            time.sleep(error.retry_s)
    return call()


def searched_collections(systems: Sequence[System], where: Searched) -> tuple[str, ...]:
    """Returns the collections that the systems search, each once."""
    names = (each.options.get("collection", where.collection) for each in systems)
    return tuple(dict.fromkeys(names))


def missing_documents(
    client: Client, questions: Sequence[Question], where: Searched
) -> tuple[str, ...]:
    """Returns the documents that the gold names and the collection does not have.

    Raises what `Client.get_chunk` raises else.
    """
    names = dict.fromkeys(name for each in questions for name in each.document_ids)
    return tuple(name for name in names if not _exists(client, name, where))


def _exists(client: Client, document_id: str, where: Searched) -> bool:
    try:
        _patient(
            lambda: client.get_chunk(
                where.tenant_id, f"{document_id}#0.0", collection=where.collection
            )
        )
    except DocumentNotFound:
        return False
    return True
