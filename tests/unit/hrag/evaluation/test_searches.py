"""A run searches every question with every system. The client is a fake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hrag.client import Client
from hrag.errors import (
    CollectionNotFound,
    HragError,
    InvalidArgument,
    TooBusy,
    TooLarge,
)
from hrag.evaluation import searches
from hrag.evaluation.journal import Journal, key_of
from hrag.evaluation.questions import GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import (
    SearchTarget,
    missing_documents,
    search_all,
    search_one,
    searched_collections,
)
from hrag.evaluation.summary import as_json, summarise
from hrag.evaluation.systems import parse_systems
from hrag.types import MAX_LIMIT, SearchMode, SearchResult, Timings
from tests.support.documents.evaluation_fakes import (
    ScriptedClient,
    nearly_full_disk,
    passage,
    result,
)

WORDS = "one two three four five six seven eight nine ten "  # This text has eleven tokens.
QUESTIONS = (
    Question("first", "one?", (GoldSpan(TextSpan("a", 0, 10)),)),
    Question("second", "two?", (GoldQuote("three four", "b"),)),
)
TARGET = SearchTarget("acme", "docs", budgets=(5, 20))
SYSTEMS = parse_systems("context,standard:dense:candidates=9")

Find = Callable[..., SearchResult]


def finding(find: Find) -> tuple[Client, list[dict[str, Any]]]:
    """Returns a client whose searches return what `find` returns, and the list of its calls."""
    client = ScriptedClient(find)
    return cast("Client", client), client.calls


def find_words(query: str, **_: Any) -> SearchResult:
    """Returns WORDS as a passage of document `a` for the first question, else of `b`."""
    return result(passage("a" if "one" in query else "b", 0, WORDS))


def run(client: Client, journal: Journal | None = None, **options: Any) -> Any:
    """Searches all questions with all systems and returns the outcomes."""
    shown: list[tuple[int, int, int]] = []
    systems = options.get("systems", SYSTEMS)
    outcomes = search_all(
        client,
        QUESTIONS,
        systems,
        TARGET,
        journal or Journal(),
        lambda *counts: shown.append(counts),
    )
    assert [counts[0] for counts in shown] == list(range(1, len(shown) + 1))
    return outcomes


def test_systems_take_turns_and_pass_their_options() -> None:
    client, calls = finding(find_words)
    run(client)
    modes = [call["mode"] for call in calls]
    context, standard = SearchMode.CONTEXT, SearchMode.STANDARD
    assert modes == [context, context, standard, standard, context, context]
    assert [call.get("token_budget") for call in calls] == [5, 20, None, None, 5, 20]
    assert calls[2] == {
        "tenant_id": "acme",
        "query": "one?",
        "collection": "docs",
        "mode": standard,
        "retrieval": "dense",
        "candidates": 9,
        "limit": 1,
    }


def test_if_short_passages_do_not_fill_the_budget_more_passages_are_requested() -> None:
    def find(query: str, *, limit: int, **_: Any) -> SearchResult:
        passages = [passage("a", 50 * n, WORDS) for n in range(3)]
        return result(*passages[:limit], exhausted=limit > 3)

    client, calls = finding(find)
    retrieved = search_one(client, QUESTIONS[0], SYSTEMS[1], TARGET)
    assert [call["limit"] for call in calls] == [1, 100]
    assert retrieved.texts[20].tokens == 20
    assert len(retrieved.texts[20].spans) == 2
    assert (retrieved.embed_us, retrieved.sequence, retrieved.eligible_leaves) == (100, 7, 9)


def test_the_latency_is_measured_for_the_search_that_fills_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first search embeds the question. The second search gets the vector from the cache."""
    now_us = 0
    monkeypatch.setattr(searches.time, "perf_counter_ns", lambda: 1000 * now_us)

    def find(query: str, *, limit: int, **_: Any) -> SearchResult:
        nonlocal now_us
        embed_us = 0 if limit == MAX_LIMIT else 200_000
        now_us += embed_us + 5000 * limit
        passages = [passage("a", 50 * n, WORDS) for n in range(min(limit, 3))]
        return result(*passages, exhausted=False, timings=Timings(embed_us, 1, 1, 1, 1))

    retrieved = search_one(finding(find)[0], QUESTIONS[0], SYSTEMS[1], TARGET)
    assert (retrieved.latency_us, retrieved.embed_us) == (5000 * MAX_LIMIT, 0)


def test_a_search_that_fails_is_an_outcome_that_scores_zero() -> None:
    def one_fails(query: str, mode: SearchMode, **_: Any) -> SearchResult:
        if query == "two?" and mode is SearchMode.STANDARD:
            raise TooLarge("text is too long", field="text")
        return find_words(query)

    outcomes = run(finding(one_fails)[0])
    assert [type(outcome) for outcome in outcomes[SYSTEMS[1].name]] == [RetrievalResult, TooLarge]
    figures = summarise(
        QUESTIONS, SYSTEMS, outcomes, TARGET, baseline="context", seed=1, resamples=50
    )
    context, standard = figures.systems
    assert context.failures == ()
    assert [(failure.subject, failure.error) for failure in standard.failures] == [
        ("second", "TooLarge")
    ]
    assert context.estimates["recall@20"].mean == 1
    assert standard.estimates["recall@20"].mean == 0.5
    assert standard.differences["recall@20"].mean == -0.5
    assert context.differences == {}
    (warning,) = figures.warnings
    assert warning.startswith("only 2 questions with gold: ")
    assert as_json(figures)["systems"][1]["tokens"] == {"5": 5, "20": 11}


@pytest.mark.parametrize("error", [CollectionNotFound("none"), InvalidArgument("no such level")])
def test_an_error_that_every_question_would_cause_ends_the_run(error: HragError) -> None:
    def fail(query: str, **_: Any) -> SearchResult:
        raise error

    client, calls = finding(fail)
    with pytest.raises(type(error)):
        run(client)
    assert len(calls) == 1


def test_a_service_that_limits_the_rate_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(searches.time, "sleep", slept.append)

    def busy_at_first(query: str, **_: Any) -> SearchResult:
        if len(slept) < 2:
            raise TooBusy("later", retry_s=0.5)
        return find_words(query)

    assert isinstance(
        search_one(finding(busy_at_first)[0], QUESTIONS[0], SYSTEMS[1], TARGET), RetrievalResult
    )
    assert slept == [0.5, 0.5]

    def always_busy(query: str, **_: Any) -> SearchResult:
        raise TooBusy("later", retry_s=0.5)

    with pytest.raises(TooBusy):
        search_one(finding(always_busy)[0], QUESTIONS[0], SYSTEMS[1], TARGET)
    assert len(slept) == 7


def test_finished_searches_are_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Journal(path) as journal:
        first = run(finding(find_words)[0], journal)
    with path.open("ab") as file:
        file.write(b'{"key": "torn')
    client, calls = finding(find_words)
    with Journal(path) as journal:
        assert journal.finished == 4
        assert run(client, journal) == first
        assert calls == []
        run(client, journal, systems=parse_systems("standard:dense"))
        assert len(calls) == 2


def test_equal_searches_of_one_run_are_made_only_once() -> None:
    client, calls = finding(find_words)
    with Journal() as journal:
        first = run(client, journal)
        calls.clear()
        assert run(client, journal) == first
        assert (calls, journal.finished) == ([], 0)


@pytest.mark.parametrize("free_bytes", [0, 30])
def test_a_full_disk_ends_the_run_and_the_next_run_continues_it(
    tmp_path: Path, free_bytes: int
) -> None:
    path = tmp_path / "run.jsonl"
    Journal(path).close()
    header = path.read_bytes()
    with (
        nearly_full_disk(free_bytes),
        Journal(path) as journal,
        pytest.raises(OSError, match="No space left") as caught,
    ):
        run(finding(find_words)[0], journal)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == header
    with Journal(path) as journal:
        first = run(finding(find_words)[0], journal)
    client, calls = finding(find_words)
    with Journal(path) as journal:
        assert run(client, journal) == first
        assert calls == []


def test_a_journal_refuses_other_files(tmp_path: Path) -> None:
    other = tmp_path / "questions.jsonl"
    other.write_text('{"query": "?"}')
    with pytest.raises(InvalidArgument, match="it is not a journal of version 2; name a new file"):
        Journal(other)
    assert other.read_text() == '{"query": "?"}'
    with pytest.raises(InvalidArgument, match="No such file"):
        Journal(tmp_path / "none" / "run.jsonl")
    path = tmp_path / "run.jsonl"
    Journal(path).close()
    key = key_of("search", question="?")
    with path.open("a") as file:
        file.write(f'{{"key": "{key}", "value": {{"ranking": 3}}}}\n')
    with Journal(path) as journal, pytest.raises(InvalidArgument, match="line 2: value is"):
        journal.get(key, RetrievalResult)
    with path.open("a") as file:
        file.write('{"key": "\\ud83d", "value": {}}\n')
    with pytest.raises(InvalidArgument, match=r"line 3: key is .*; it must be valid Unicode"):
        Journal(path)


def test_expected_documents_that_are_missing_are_listed() -> None:
    assert missing_documents(finding(find_words)[0], QUESTIONS, TARGET) == ("b",)


def test_the_collections_that_the_systems_search_are_listed() -> None:
    named = parse_systems("standard:collection=tree,context:collection=flat")
    assert searched_collections(named, TARGET) == ("tree", "flat")
    assert searched_collections((*SYSTEMS, *named), TARGET) == ("docs", "tree", "flat")


def test_changes_between_searches_and_unlocated_quotes_give_warnings() -> None:
    def changing(query: str, **_: Any) -> SearchResult:
        return result(passage("a", 0, WORDS), sequence=len(query))

    systems = parse_systems("standard")
    questions = (*QUESTIONS, Question("third", "longer?", QUESTIONS[0].gold))
    outcomes = search_all(
        finding(changing)[0], questions, systems, TARGET, Journal(), lambda *_: None
    )
    figures = summarise(
        questions, systems, outcomes, TARGET, baseline="standard", seed=1, located={}
    )
    assert figures.warnings[0].startswith(
        "the collection does not have 1 expected quote of 1 question"
    )
    assert figures.warnings[0].endswith(": second")
    assert "(sequence numbers 4 to 7)" in figures.warnings[1]


def test_incomplete_searches_are_reported_and_repeated_in_the_next_run(tmp_path: Path) -> None:
    def incomplete(query: str, **_: Any) -> SearchResult:
        fallback = "the embedder is down" if query == "one?" else ""
        failure = "the reranker is slow" if query == "two?" else ""
        return result(passage("a", 0, WORDS), fallback=fallback, rerank_failure=failure)

    systems = parse_systems("standard")
    for client, calls in (finding(incomplete), finding(incomplete)):
        with Journal(tmp_path / "run") as journal:
            outcomes = search_all(client, QUESTIONS, systems, TARGET, journal, lambda *_: None)
        assert len(calls) == 2
    figures = summarise(QUESTIONS, systems, outcomes, TARGET, baseline="standard", seed=1)
    counts = {"the embedder is down": 1, "the reranker is slow": 1}
    assert figures.systems[0].fallbacks == counts
    assert as_json(figures)["systems"][0]["fallbacks"] == counts
    assert "1 search of standard could not be complete: the embedder is down" in figures.warnings
