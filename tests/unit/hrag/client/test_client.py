"""Both clients against fake servicers."""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hrag import errors
from hrag.cli.processes import free_addresses
from hrag.client import AsyncClient, Client, calls
from hrag.client.argument_checks import MAX_TIMEOUT_S
from hrag.client.calls import channel_options
from hrag.errors import HragError
from hrag.filters import Exists
from hrag.types import (
    Document,
    SearchQuery,
    SearchResult,
)
from hrag.values.answers import AnswerEvent, AnswerQuery, FinishReason
from tests.support.servers.fake_services import (
    REPLIES,
    Call,
    Fake,
    addresses_of,
    client_of,
    run_async,
    run_sync,
)

_SAFE: list[tuple[str, Call]] = [
    ("GetCollection", lambda client: client.get_collection("t", "c")),
    ("ListAliases", lambda client: client.list_aliases("t")),
    ("ListCollections", lambda client: client.list_collections("t")),
    ("IngestDocument", lambda client: client.ingest("t", Document("text"))),
    ("GetDocument", lambda client: client.get_document("t", "d")),
    ("GetDocument", lambda client: client.get_text("t", "d")),
    ("ListDocuments", lambda client: client.list_documents("t")),
    ("CountDocuments", lambda client: client.count_documents("t")),
    ("GetIndexStatus", lambda client: client.index_status("t")),
    ("Search", lambda client: client.search("t", "text")),
    ("BatchSearch", lambda client: client.batch_search([SearchQuery("t", "text")])),
    ("GetChunk", lambda client: client.get_chunk("t", "d#0.0")),
    ("GetHierarchy", lambda client: client.get_hierarchy("t", "d#0.0")),
    ("GetServerInfo", lambda client: client.server_info()),
]
_UNSAFE: list[tuple[str, Call]] = [
    ("CreateCollection", lambda client: client.create_collection("t", "c")),
    ("DeleteCollection", lambda client: client.delete_collection("t", "c")),
    ("SetAlias", lambda client: client.set_alias("t", "a", "c")),
    ("DeleteAlias", lambda client: client.delete_alias("t", "a")),
    ("UpdateMetadata", lambda client: client.update_metadata("t", "d", {"a": 1})),
    ("DeleteDocument", lambda client: client.delete_document("t", "d")),
    ("DeleteDocuments", lambda client: client.delete_documents("t", Exists("title"))),
]

BOTH = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
DOWN = errors.ServiceUnavailable("starting")


# Retries


@BOTH
@pytest.mark.parametrize(("method", "call"), _SAFE)
def test_a_call_that_may_run_twice_is_tried_again(run: Any, method: str, call: Call) -> None:
    fake = Fake(DOWN)
    run(fake, call)
    assert fake.calls == {method: 2}


@BOTH
@pytest.mark.parametrize(("method", "call"), _UNSAFE)
def test_a_call_that_must_not_run_twice_is_not(run: Any, method: str, call: Call) -> None:
    fake = Fake(DOWN)
    with pytest.raises(errors.ServiceUnavailable, match="starting"):
        run(fake, call)
    assert fake.calls == {method: 1}


def test_every_call_is_one_or_the_other() -> None:
    methods = {method for method, _ in _SAFE + _UNSAFE}
    assert methods == set(REPLIES)


@BOTH
@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("no", field="limit"),
        errors.CollectionNotFound("no"),
        errors.EmbedderUnavailable("the service tried five times already"),
        errors.TooBusy("no"),
        errors.InternalError("no"),
    ],
)
def test_only_a_service_that_is_not_there_is_tried_again(run: Any, error: HragError) -> None:
    fake = Fake(error)
    with pytest.raises(type(error)) as caught:
        run(fake, lambda client: client.search("t", "text"))
    assert (caught.value.message, caught.value.field) == (error.message, error.field)
    assert fake.calls == {"Search": 1}


def test_retries_end_after_four_attempts() -> None:
    fake = Fake(*[DOWN] * 9)
    with pytest.raises(errors.ServiceUnavailable):
        run_sync(fake, lambda client: client.search("t", "text"))
    assert fake.calls == {"Search": 4}


def test_nobody_at_the_address_is_unavailable() -> None:
    (nowhere,) = free_addresses(1)
    with Client(nowhere, nowhere) as client, pytest.raises(errors.ServiceUnavailable):
        client.server_info(timeout_s=5)


async def test_nobody_at_the_address_is_unavailable_asynchronously() -> None:
    (nowhere,) = free_addresses(1)
    async with AsyncClient(nowhere, nowhere) as client:
        with pytest.raises(errors.ServiceUnavailable):
            await client.server_info(timeout_s=5)


def test_a_closed_client_says_so() -> None:
    client = Client()
    client.close()
    client.close()
    for call in (client.server_info, lambda: list(client.ingest_many("t", []))):
        with pytest.raises(errors.ServiceUnavailable, match="closed"):
            call()


async def test_a_closed_asynchronous_client_says_so() -> None:
    client = AsyncClient()
    await client.close()
    await client.close()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await client.server_info()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await anext(client.ingest_many("t", []))


async def test_closing_a_client_ends_its_calls_as_errors() -> None:
    """A CancelledError in a task that nobody cancelled would vanish in a TaskGroup."""
    fake = Fake()
    fake.may_answer.clear()
    with addresses_of(fake) as addresses:
        client = AsyncClient(*addresses)
        search = asyncio.create_task(client.search("t", "text"))
        await _until_called(fake)
        await client.close()
        with pytest.raises(errors.ServiceUnavailable, match="closed"):
            await search
        fake.may_answer.set()


async def test_a_task_that_is_cancelled_while_its_client_closes_is_cancelled() -> None:
    fake = Fake()
    fake.may_answer.clear()
    with addresses_of(fake) as addresses:
        client = AsyncClient(*addresses)
        search = asyncio.create_task(client.search("t", "text"))
        await _until_called(fake)
        search.cancel()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await search
        fake.may_answer.set()


async def _until_called(fake: Fake) -> None:
    while not fake.calls:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("address", "proxied"),
    [
        ("127.0.0.1:50051", False),
        ("localhost:50051", False),
        ("[::1]:50051", False),
        ("localhost.example.org:50051", True),
        ("hrag.example.org:50051", True),
    ],
)
def test_no_proxy_stands_between_a_machine_and_itself(address: str, proxied: bool) -> None:
    assert dict(channel_options(address))["grpc.enable_http_proxy"] == int(proxied)


# Answers


def _events(client: Any) -> Any:
    """All events of an answer, with await or without."""
    answer = client.answer(SearchQuery("t", "text"))
    if isinstance(client, Client):
        return list(answer)
    return _gathered(answer)


async def _gathered(answer: AsyncIterator[AnswerEvent]) -> list[AnswerEvent]:
    return [event async for event in answer]


@BOTH
def test_an_answer_is_begun_again_until_something_of_it_has_come(run: Any) -> None:
    fake = Fake(DOWN)
    passages, text, end = run(fake, _events)
    assert (type(passages), text, end.finish_reason) == (SearchResult, "Dogs", FinishReason.STOP)
    assert fake.calls == {"Answer": 2}


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    fake = Fake()
    with client_of(fake) as client:
        answer = client.answer(SearchQuery("t", "text"))
        fake.may_answer.clear()
        next(answer)
        fake.failures.append(DOWN)
        fake.may_answer.set()
        with pytest.raises(errors.ServiceUnavailable):
            list(answer)
    assert fake.calls == {"Answer": 1}


@BOTH
def test_an_answer_has_a_deadline_of_its_own(run: Any) -> None:
    fake = Fake()
    run(fake, _events, timeout_s=1)
    assert 100 < fake.remaining_s < 122


# Deadlines


@BOTH
def test_a_call_ends_at_its_deadline(run: Any) -> None:
    fake = Fake()
    fake.may_answer.clear()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            run(fake, lambda client: client.search("t", "text"), timeout_s=0.1)
    finally:
        fake.may_answer.set()


@BOTH
def test_the_deadline_reaches_the_service(run: Any) -> None:
    fake = Fake()
    run(fake, lambda client: client.search("t", "text"), timeout_s=77)
    assert 70 < fake.remaining_s < 77.5
    run(fake, lambda client: client.search("t", "text", timeout_s=5), timeout_s=77)
    assert 4 < fake.remaining_s < 5.5


@BOTH
def test_no_time_at_all_is_a_deadline_too(run: Any) -> None:
    fake = Fake()
    fake.may_answer.clear()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            run(fake, lambda client: client.search("t", "text", timeout_s=0), timeout_s=77)
    finally:
        fake.may_answer.set()


@BOTH
@pytest.mark.parametrize("timeout_s", [math.inf, math.nan, 1e10, "5"])
def test_a_deadline_that_is_none_is_refused(run: Any, timeout_s: Any) -> None:
    calls: list[Call] = [
        lambda client: client.search("t", "text", timeout_s=timeout_s),
        lambda client: client.get_text("t", "d", timeout_s=timeout_s),
        lambda client: client.ingest_many("t", [], timeout_s=timeout_s),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidArgument, match=r"timeout_s is .* number of seconds"):
            run(Fake(), call)
    with pytest.raises(errors.InvalidArgument, match="timeout_s"):
        run(Fake(), lambda client: client.server_info(), timeout_s=timeout_s)


@BOTH
def test_the_longest_deadline_is_one(run: Any) -> None:
    assert (
        run(Fake(), lambda client: client.search("t", "x", timeout_s=MAX_TIMEOUT_S)).sequence == 7
    )


# Arguments


@BOTH
@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("query", lambda client: client.search("t", 5)),
        ("queries", lambda client: client.batch_search(5)),
        ("queries.0", lambda client: client.batch_search("text")),
        ("queries.1", lambda client: client.batch_search([SearchQuery("t", "x"), None])),
        ("queries.0", lambda client: client.batch_search([SearchQuery("t", 5)])),
        ("document", lambda client: client.ingest("t", "text")),
        ("remove_keys", lambda client: client.update_metadata("t", "d", remove_keys="ab")),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(run: Any, field: str, call: Call) -> None:
    fake = Fake()
    with pytest.raises(errors.InvalidArgument, match=f"{field} is ") as caught:
        run(fake, call)
    assert (caught.value.field, fake.calls) == (field, {})


def test_what_is_asked_of_a_model_is_a_search_too() -> None:
    fake: Any = "what is it?"
    with pytest.raises(errors.InvalidArgument, match="it must be a SearchQuery"):
        calls.answer(AnswerQuery(fake))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("address", ["", "127.0.0.1:99999"])
async def test_an_address_that_nobody_can_have_is_refused(kind: Any, address: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"the address is '{address}'"):
        kind("127.0.0.1:1", address)
