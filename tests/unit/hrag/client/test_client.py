"""The synchronous and the asyncio client retry calls, pass on deadlines and check arguments.

The services are fakes.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from functools import partial
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
from hrag.values.answers import AnswerEvent, AnswerQuery, FinishReason, Reasoning
from tests.support.servers.fake_services import (
    REPLIES,
    Call,
    Fake,
    addresses_of,
    client_of,
    run_async,
    run_sync,
)
from tests.support.until import until

_REPEATABLE: list[tuple[str, Call]] = [
    ("GetCollection", lambda client: client.get_collection("t", "c")),
    ("ListAliases", lambda client: client.list_aliases("t")),
    ("ListCollections", lambda client: client.list_collections("t")),
    ("ListTenants", lambda client: client.list_tenants()),
    ("ReembedCollection", lambda client: client.reembed_collection("t", "c")),
    ("IngestDocument", lambda client: client.ingest("t", Document("text"))),
    ("GetDocument", lambda client: client.get_document("t", "d")),
    ("GetDocument", lambda client: client.get_text("t", "d")),
    ("GetPageImage", lambda client: client.get_page_image("t", "d", 1)),
    ("ListDocuments", lambda client: client.list_documents("t")),
    ("CountDocuments", lambda client: client.count_documents("t")),
    ("GetIndexStatus", lambda client: client.index_status("t")),
    ("Search", lambda client: client.search("t", "text")),
    ("BatchSearch", lambda client: client.batch_search([SearchQuery("t", "text")])),
    ("GetChunk", lambda client: client.get_chunk("t", "d#0.0")),
    ("GetHierarchy", lambda client: client.get_hierarchy("t", "d#0.0")),
    ("GetOriginal", lambda client: client.get_original_part("t", "d")),
    ("GetServerInfo", lambda client: client.server_info()),
]
_NOT_REPEATABLE: list[tuple[str, Call]] = [
    ("CreateCollection", lambda client: client.create_collection("t", "c")),
    ("DeleteCollection", lambda client: client.delete_collection("t", "c")),
    ("SetAlias", lambda client: client.set_alias("t", "a", "c")),
    ("DeleteAlias", lambda client: client.delete_alias("t", "a")),
    ("UpdateMetadata", lambda client: client.update_metadata("t", "d", {"a": 1})),
    ("DeleteDocument", lambda client: client.delete_document("t", "d")),
    ("DeleteDocuments", lambda client: client.delete_documents("t", Exists("title"))),
]

BOTH_CLIENTS = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "async"])
STARTING = errors.ServiceUnavailable("starting")


# The following tests cover retries.


@BOTH_CLIENTS
@pytest.mark.parametrize(("method", "call"), _REPEATABLE)
def test_a_call_that_may_run_twice_is_retried(run: Any, method: str, call: Call) -> None:
    fake = Fake(STARTING)
    run(fake, call)
    assert fake.calls == {method: 2}


@BOTH_CLIENTS
@pytest.mark.parametrize(("method", "call"), _NOT_REPEATABLE)
def test_a_call_that_must_not_run_twice_is_not_retried(run: Any, method: str, call: Call) -> None:
    fake = Fake(STARTING)
    with pytest.raises(errors.ServiceUnavailable, match="starting"):
        run(fake, call)
    assert fake.calls == {method: 1}


def test_every_method_is_listed_as_repeatable_or_not_repeatable() -> None:
    methods = {method for method, _ in _REPEATABLE + _NOT_REPEATABLE}
    assert methods == set(REPLIES)


@BOTH_CLIENTS
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
def test_only_calls_to_an_unavailable_service_are_retried(run: Any, error: HragError) -> None:
    fake = Fake(error)
    with pytest.raises(type(error)) as caught:
        run(fake, lambda client: client.search("t", "text"))
    assert (caught.value.message, caught.value.field) == (error.message, error.field)
    assert fake.calls == {"Search": 1}


def test_retries_end_after_four_attempts() -> None:
    fake = Fake(*[STARTING] * 9)
    with pytest.raises(errors.ServiceUnavailable):
        run_sync(fake, lambda client: client.search("t", "text"))
    assert fake.calls == {"Search": 4}


def test_a_call_fails_as_unavailable_if_nobody_listens_at_the_address() -> None:
    (nowhere,) = free_addresses(1)
    with Client(nowhere, nowhere) as client, pytest.raises(errors.ServiceUnavailable):
        client.server_info(timeout_s=60)


async def test_an_asyncio_call_fails_as_unavailable_if_nobody_listens() -> None:
    (nowhere,) = free_addresses(1)
    async with AsyncClient(nowhere, nowhere) as client:
        with pytest.raises(errors.ServiceUnavailable):
            await client.server_info(timeout_s=60)


def test_calls_of_a_closed_client_name_the_reason() -> None:
    client = Client()
    client.close()
    client.close()
    for call in (client.server_info, lambda: list(client.ingest_many("t", []))):
        with pytest.raises(errors.ServiceUnavailable, match="closed"):
            call()


async def test_calls_of_a_closed_asyncio_client_name_the_reason() -> None:
    client = AsyncClient()
    await client.close()
    await client.close()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await client.server_info()
    with pytest.raises(errors.ServiceUnavailable, match="closed"):
        await anext(client.ingest_many("t", []))


async def test_closing_a_client_ends_its_calls_with_an_error_of_hrag() -> None:
    """A CancelledError would be wrong: nobody cancelled the task, and a TaskGroup would hide it."""
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
    await asyncio.to_thread(until, lambda: fake.calls)


@pytest.mark.parametrize(
    ("address", "uses_proxy"),
    [
        ("127.0.0.1:50051", False),
        ("localhost:50051", False),
        ("[::1]:50051", False),
        ("localhost.example.org:50051", True),
        ("hrag.example.org:50051", True),
    ],
)
def test_a_call_to_the_same_machine_uses_no_proxy(address: str, uses_proxy: bool) -> None:
    assert dict(channel_options(address))["grpc.enable_http_proxy"] == int(uses_proxy)


# The following tests cover answers.


def _events(client: Any, **options: Any) -> Any:
    """Returns all events of an answer; for an asyncio client, a coroutine that returns them."""
    answer = client.answer(SearchQuery("t", "text"), **options)
    if isinstance(client, Client):
        return list(answer)
    return _events_of(answer)


async def _events_of(answer: AsyncIterator[AnswerEvent]) -> list[AnswerEvent]:
    return [event async for event in answer]


@BOTH_CLIENTS
def test_an_answer_is_retried_until_its_first_event_has_arrived(run: Any) -> None:
    fake = Fake(STARTING)
    passages, text, end = run(fake, _events)
    assert (type(passages), text, end.finish_reason) == (SearchResult, "Dogs", FinishReason.STOP)
    assert fake.calls == {"Answer": 2}


@BOTH_CLIENTS
def test_an_answer_has_reasoning_only_if_asked_for(run: Any) -> None:
    assert run(Fake(), _events)[1] == "Dogs"
    _, *pieces, _ = run(Fake(), partial(_events, reasoning=True))
    assert pieces == [Reasoning("Hm."), "Dogs"]


def test_an_answer_is_not_retried_after_its_first_event() -> None:
    fake = Fake()
    with client_of(fake) as client:
        answer = client.answer(SearchQuery("t", "text"))
        fake.may_answer.clear()
        next(answer)
        fake.failures.append(STARTING)
        fake.may_answer.set()
        with pytest.raises(errors.ServiceUnavailable):
            list(answer)
    assert fake.calls == {"Answer": 1}


@BOTH_CLIENTS
def test_an_answer_has_a_longer_deadline_than_other_calls(run: Any) -> None:
    fake = Fake()
    run(fake, _events, timeout_s=1)
    assert 60 < fake.remaining_s < 122


# The following tests cover deadlines.


@BOTH_CLIENTS
def test_a_call_ends_at_its_deadline(run: Any) -> None:
    fake = Fake()
    fake.may_answer.clear()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            run(fake, lambda client: client.search("t", "text"), timeout_s=0.1)
    finally:
        fake.may_answer.set()


@BOTH_CLIENTS
def test_the_deadline_reaches_the_service(run: Any) -> None:
    fake = Fake()
    run(fake, lambda client: client.search("t", "text"), timeout_s=77)
    assert 20.5 < fake.remaining_s < 77.5
    run(fake, lambda client: client.search("t", "text", timeout_s=20), timeout_s=77)
    assert 0 < fake.remaining_s < 20.5


@BOTH_CLIENTS
def test_a_timeout_of_zero_is_a_deadline_too(run: Any) -> None:
    fake = Fake()
    fake.may_answer.clear()
    try:
        with pytest.raises(errors.DeadlineExceeded):
            run(fake, lambda client: client.search("t", "text", timeout_s=0), timeout_s=77)
    finally:
        fake.may_answer.set()


@BOTH_CLIENTS
@pytest.mark.parametrize("timeout_s", [math.inf, math.nan, 1e10, "5"])
def test_an_invalid_timeout_is_refused(run: Any, timeout_s: Any) -> None:
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


@BOTH_CLIENTS
def test_the_longest_timeout_is_allowed(run: Any) -> None:
    assert (
        run(Fake(), lambda client: client.search("t", "x", timeout_s=MAX_TIMEOUT_S)).sequence == 7
    )


# The following tests cover arguments.


@BOTH_CLIENTS
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


def test_an_answer_needs_a_search_query() -> None:
    not_a_query: Any = "what is it?"
    with pytest.raises(errors.InvalidArgument, match="it must be a SearchQuery"):
        calls.answer(AnswerQuery(not_a_query))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("address", ["", "127.0.0.1:99999"])
async def test_an_impossible_address_is_refused(kind: Any, address: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"the address is '{address}'"):
        kind("127.0.0.1:1", address)
