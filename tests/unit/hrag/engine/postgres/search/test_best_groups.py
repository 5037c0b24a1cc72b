"""The statements of `best_groups` find the same passages as a search step by step.

`best_groups` runs the first round of a search in one or two SQL statements.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from psycopg.pq.abc import PGresult

from hrag.engine.find import VALUES, FindRequest, FindResult, Fusion
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search import best_groups, snapshot
from hrag.engine.postgres.search.best_groups import expected_passages
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.connection import Cursor
from hrag.errors import ReplyTooLarge
from hrag.filters import Range
from hrag.types import Aggregation, FusionMethod, Passage, Retrieval, SearchMode, TreeSettings
from hrag.values.reply_limit import ReplyLimit
from tests.support.documents.fakes import collection_settings, prepared, query_vector
from tests.support.documents.vocabulary import question, wordy

pytestmark = pytest.mark.postgres

SEARCHES = 1000
TOP_LEVEL = 2
MODES = (SearchMode.SMALL_TO_BIG, SearchMode.STANDARD, SearchMode.CONTEXT)


@pytest.fixture(params=["shared", "home", "mixed"])
def reader(request, database, writer, collection) -> PostgresReader:
    """A reader of a collection of 120 documents, ten of which are deleted.

    `shared`: the leaves are in the table that all collections share. `home`: they are in a home,
    the collection's own tables. `mixed`: some are in the home, the others in its tail.
    """
    worker = MaintenanceWorker(database, 10_000)
    documents = [
        (collection, wordy(f"d{n}", n, sentences=4 + n % 30, metadata={"n": n})) for n in range(120)
    ]
    writer.put_many(documents[:90])
    if request.param != "shared":
        worker.maintain("t", collection.collection_id, every_leaf=True)
    writer.put_many(documents[90:])
    for number in range(0, 90, 9):
        writer.delete(collection, f"d{number}")
    if request.param == "home":
        worker.maintain("t", collection.collection_id, every_leaf=True)
    return PostgresReader(database)


def random_request(draw: random.Random) -> FindRequest:
    """Returns a random request that the statements of `best_groups` can answer."""
    mode, retrieval = draw.choice(MODES), draw.choice(list(Retrieval))
    context = mode is SearchMode.CONTEXT
    vector = query_vector(draw.randrange(1000))
    joins = context or draw.random() < 0.2
    budget = draw.choice([100, 400]) if context else draw.choice([0, 0, 40, 150, 600])
    return FindRequest(
        vector=None if retrieval is Retrieval.LEXICAL else vector,
        mode=mode,
        level=draw.randint(0, TOP_LEVEL) if mode is SearchMode.SMALL_TO_BIG else 0,
        limit=400 if context else draw.choice([1, 3, 5, 20]),
        candidates=draw.choice([5, 30, 100]),
        text="" if retrieval is Retrieval.DENSE else question(draw),
        retrieval=retrieval,
        fusion=Fusion(draw.choice(list(FusionMethod)), draw.choice([0.2, 0.5]), 0.0),
        neighbour_bonus=draw.choice([0.0, 0.1]),
        max_per_document=0 if context else draw.choice([0, 0, 1]),
        min_score=None if context else draw.choice([None, None, 0.1, 0.4]),
        token_budget=budget,
        cut_last=context or (budget > 0 and draw.random() < 0.5),
        merge_adjacent=joins,
        keep_overlap=not joins and draw.random() < 0.2,
        filter=draw.choice([None, None, Range("metadata.n", at_least=40.0)]),
    )


@contextmanager
def step_by_step() -> Iterator[None]:
    """Runs searches inside the block step by step, without the statements of `best_groups`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "can_find", lambda _: False)
        yield


def comparable(result: FindResult[Passage]) -> Any:
    """Returns the result without the times of its stages."""
    return replace(result, stages=())


def test_statements_find_the_same_as_separate_steps_in_a_thousand_searches(reader):
    """Each of the three states of `reader` gets a third of the searches.

    The scores are equal to the bit.
    """
    draw = random.Random(4711)
    with reader.snapshot("t", "c") as snapshot:
        for number in range(-(-SEARCHES // 3)):
            request = random_request(draw)
            result = snapshot.find(request, VALUES)
            with step_by_step():
                expected = snapshot.find(request, VALUES)
            assert comparable(result) == comparable(expected), (number, request)


@pytest.mark.parametrize("retrieval", list(Retrieval))
def test_a_small_passage_that_fits_the_budget_is_found_after_many_that_do_not(reader, retrieval):
    """The statement returns only six groups; here, none of their chunks fits the budget."""
    request = FindRequest(
        vector=None if retrieval is Retrieval.LEXICAL else query_vector(3),
        mode=SearchMode.SMALL_TO_BIG,
        level=TOP_LEVEL,
        limit=1000,
        candidates=1000,
        text="valve pressure pump",
        retrieval=retrieval,
        keep_overlap=True,
    )
    with reader.snapshot("t", "c") as snapshot:
        chunks = [passage.chunk for passage in snapshot.find(request, VALUES).passages]
        budget = min(chunk.token_count for chunk in chunks[:6]) - 1
        small = next(chunk for chunk in chunks if chunk.token_count <= budget)
        result = snapshot.find(replace(request, limit=5, token_budget=budget), VALUES)
    assert result.passages[0].chunk.chunk_id == small.chunk_id


@contextmanager
def recorded() -> Iterator[list[PGresult]]:
    """Collects the results of the statements that run in the block, except SET LOCAL."""
    results: list[PGresult] = []
    execute = Cursor.execute

    def recording(cursor: Cursor, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(cursor.connection)
        executed = execute(cursor, query, *args, **kwargs)
        if not text.startswith("SET LOCAL"):
            assert cursor.pgresult is not None
            results.append(cursor.pgresult)
        return executed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", recording)
        yield results


@pytest.mark.parametrize(("retrieval", "count"), [("dense", 1), ("lexical", 2), ("hybrid", 2)])
def test_a_dense_search_needs_one_statement_and_other_searches_need_two(reader, retrieval, count):
    request = FindRequest(
        vector=None if retrieval == "lexical" else query_vector(1),
        mode=SearchMode.SMALL_TO_BIG,
        level=TOP_LEVEL,
        limit=5,
        candidates=100,
        text="valve pressure E-4711",
        retrieval=Retrieval(retrieval),
        neighbour_bonus=0.1,
    )
    with reader.snapshot("t", "c") as snapshot, recorded() as results:
        assert len(snapshot.find(request, VALUES).passages) == 5
    assert len(results) == count


@pytest.mark.parametrize("aggregation", [Aggregation.SUM, Aggregation.MEAN, Aggregation.COUNT])
def test_aggregations_other_than_max_and_auto_merge_are_searched_step_by_step(aggregation):
    request = FindRequest(query_vector(1), SearchMode.SMALL_TO_BIG, TOP_LEVEL, 5, 100)
    assert best_groups.can_find(request)
    assert not best_groups.can_find(replace(request, aggregation=aggregation))
    assert not best_groups.can_find(replace(request, mode=SearchMode.AUTO_MERGE))


def test_one_statement_reads_only_parts_of_long_texts(database, writer, collection):
    documents = {f"d{n}": wordy(f"d{n}", n, sentences=4000) for n in range(3)}
    writer.put_many([(collection, document) for document in documents.values()])
    texts = {name: document.parsed.text.encode() for name, document in documents.items()}
    assert min(map(len, texts.values())) > 128 << 10
    request = FindRequest(query_vector(1), SearchMode.SMALL_TO_BIG, TOP_LEVEL, 5, 100)
    with PostgresReader(database).snapshot("t", "c") as snapshot, recorded() as results:
        passages = snapshot.find(request, VALUES).passages
    (result,) = results
    assert len(passages) == 5
    for passage in passages:
        span = passage.chunk.span
        text = texts[passage.chunk.document_id]
        assert passage.chunk.content == text[span.byte_start : span.byte_end].decode()
    for document_id in {passage.chunk.document_id for passage in passages}:
        text = texts[document_id]
        assert 0 < sum(len(part) for part in parts_of(text, result)) < len(text)


@pytest.mark.parametrize("max_bytes", [1 << 20, 1 << 30])
def test_statements_do_not_send_texts_that_do_not_fit_into_the_reply(database, writer, max_bytes):
    """The document has several chunks of about 1 MB. If the reply may be large, they are sent."""
    settings = collection_settings(TreeSettings((256, 32_768), 0.0))
    writer.create_collection("t", "large", settings)
    text = "".join(f"word{number} {' ' * 8000}" for number in range(600))
    writer.put(writer.open("t", "large"), prepared("d", text, settings))
    request = FindRequest(
        query_vector(1), SearchMode.SMALL_TO_BIG, 1, 10, 1000, reply=ReplyLimit(max_bytes)
    )
    with PostgresReader(database).snapshot("t", "large") as snapshot, recorded() as results:
        if max_bytes < len(text):
            with pytest.raises(ReplyTooLarge):
                snapshot.find(request, VALUES)
            assert sum(map(received_bytes, results)) < 2 * max_bytes
        else:
            passages = snapshot.find(request, VALUES).passages
            assert sum(len(passage.chunk.content) for passage in passages) > 2 << 20


def received_bytes(result: PGresult) -> int:
    """Returns how many bytes the values of a result have together."""
    return sum(
        len(result.get_value(row, column) or b"")
        for row in range(result.ntuples)
        for column in range(result.nfields)
    )


def parts_of(text: bytes, result: PGresult) -> set[bytes]:
    """Returns the distinct values of a result that exceed 1000 bytes and occur in the text."""
    values = (
        result.get_value(row, column)
        for row in range(result.ntuples)
        for column in range(result.nfields)
    )
    return {value for value in values if value and len(value) > 1000 and value in text}


@pytest.mark.parametrize(
    ("limit", "budget", "level", "expected"),
    [(5, 0, 0, 5), (400, 1000, 0, 20), (400, 1001, 0, 22), (400, 1000, 1, 10), (7, 1000, 0, 7)],
)
def test_a_token_budget_bounds_how_many_texts_of_passages_are_read(limit, budget, level, expected):
    settings = replace(collection_settings(), tree=TreeSettings((100, 200), 0.0))
    request = FindRequest(None, SearchMode.CONTEXT, level, limit, 100, token_budget=budget)
    assert expected_passages(request, settings) == expected
