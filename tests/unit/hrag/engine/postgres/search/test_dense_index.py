"""Dense searches of many leaves: by which plans, how well, and never fewer than there are.

One store of 20,000 leaves of several tenants, analysed; the largest collection has a home.
"""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from hrag.engine.engine_documents import PreparedDocument
from hrag.engine.find import VALUES, FindRequest
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.filters import Filter, Match, Range
from hrag.types import SearchMode, TreeSettings
from tests.support.documents.fakes import (
    as_half_precision,
    collection_settings,
    matched_leaves,
    prepared,
    sentences,
)
from tests.support.engines.postgres_plans import nodes, plans
from tests.support.servers.postgres_server import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]

_TREE = TreeSettings((32, 64), 0.0)
_MIN_RECALL = 0.99


@dataclass(frozen=True)
class Many:
    """Collections of random vectors around some centres, and the vectors of one of them."""

    database: Database
    reader: PostgresReader
    writer: PostgresWriter
    dimension: int
    vectors: Any  # float32[leaves, dimension], in the order of documents d0, d1, ...
    owners: Any  # The number of each one's document.

    def find(self, query: Any, count: int, given: Filter | None = None, **options: Any) -> Any:
        request = FindRequest(
            query, SearchMode.STANDARD, 0, limit=count, candidates=count, filter=given
        )
        with self.reader.snapshot("large", "c") as snapshot:
            return snapshot.find(replace(request, **options), VALUES)

    def recall(self, queries: Any, count: int, given: Filter | None, passing: Any) -> float:
        """The mean recall; fails if passages are missing."""
        shares = []
        for query in queries:
            found = matched_leaves(self.find(query, count, given).passages)
            cosines = self.vectors[passing] @ query
            best = np.sort(cosines)[::-1][:count]
            assert len(found) == min(count, len(cosines))
            reached = np.array(list(found.values())) >= best[-1] - 2e-4
            shares.append(reached.mean())
        return float(np.mean(shares))


@cache
def _shape() -> PreparedDocument:
    """A document whose text and tree all others share."""
    return prepared("shape", sentences(80), collection_settings(_TREE, 2))


def _clustered(count: int, dimension: int, seed: int, centres: int = 200) -> Any:
    """Unit vectors around centres, as those of texts are: the hard case is in between."""
    draw = np.random.default_rng(seed)
    middle = np.random.default_rng(1).normal(size=(centres, dimension))
    drawn = middle[draw.integers(0, centres, count)] + 0.8 * draw.normal(size=(count, dimension))
    return as_half_precision(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _fill(
    writer: PostgresWriter, tenant_id: str, leaves: int, dimension: int, seed: int
) -> tuple[Any, Any]:
    settings = collection_settings(_TREE, dimension, analyzer="")
    writer.create_collection(tenant_id, "c", settings)
    handle, shape = writer.open(tenant_id, "c"), _shape()
    each = len(shape.vectors)
    vectors = _clustered(leaves // each * each, dimension, seed)
    group: list[Any] = []
    for number, start in enumerate(range(0, len(vectors), each)):
        name = f"d{number}"
        document = replace(
            shape,
            document_id=name,
            content_hash=name,
            metadata={"n": number, "tenth": number % 10},
            metadata_json=b"",
            vectors=vectors[start : start + each],
        )
        group.append((handle, document))
        if len(group) == 64 or start + each >= len(vectors):
            writer.put_many(group)
            group = []
    return vectors, np.repeat(np.arange(len(vectors) // each), each)


@contextmanager
def _many(
    server: PostgresServer, leaves: int, dimension: int, tenants: int, of_each: int
) -> Iterator[Many]:
    name = server.new_database()
    database = Database(server.dsn(name), 4, "tests", is_writer=True)
    writer = PostgresWriter(database)
    for number in range(tenants):
        _fill(writer, f"small{number}", of_each, dimension, 100 + number)
    vectors, owners = _fill(writer, "large", leaves, dimension, 7)
    worker = MaintenanceWorker(database, 10_000)
    worker.maintain("large", writer.open("large", "c").collection_id)
    server.run("ANALYZE", name)
    try:
        reader = PostgresReader(database)
        yield Many(database, reader, writer, dimension, vectors, owners)
    finally:
        database.close()
        server.drop(name)


@pytest.fixture(scope="module")
def many(postgres: PostgresServer) -> Iterator[Many]:
    with _many(postgres, 20_000, 64, 10, 600) as many:
        yield many


def _queries(many: Many, count: int) -> Any:
    """Half of them between the centres."""
    return _clustered(count, many.dimension, 12345)


FILTERS: dict[str, tuple[Filter | None, Any]] = {
    "none": (None, lambda owners: owners >= 0),
    "half": (
        Range("metadata.n", below=1000.0),
        lambda owners: owners < 1000,
    ),
    "tenth": (Match("metadata.tenth", (3.0,)), lambda owners: owners % 10 == 3),
    "few": (Range("metadata.n", below=3.0), lambda owners: owners < 3),
    "one": (Match("document_id", ("d7",)), lambda owners: owners == 7),
}


def _scans(found: list[Any]) -> list[tuple[str, str]]:
    """Each scan of a table of leaves: its kind, and the table or the index."""
    scans = []
    for each in found:
        for node in nodes(each["Plan"]):
            table = node.get("Relation Name", "")
            if re.fullmatch(r"leaves(_\d+)?", table):
                scans.append((node["Node Type"], node.get("Index Name", table)))
            elif node["Node Type"] == "Bitmap Index Scan" and "leaves" in node["Index Name"]:
                scans.append(("Bitmap Index Scan", node["Index Name"]))
    return scans


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("kind", FILTERS)
def test_a_search_of_a_home_scans_no_table(many: Many, kind: str, mode: str) -> None:
    """Eight times, as statements are prepared after five."""
    given, _ = FILTERS[kind]
    with plans(many.database, mode) as found:
        for query in _queries(many, 8):
            many.find(query, 10, given)
    scans = _scans(found)
    assert len(scans) >= 8, found
    assert [each for each in scans if each[0] == "Seq Scan"] == []
    by_graph = [each for each in scans if "embedding_idx" in each[1]]
    # The leaves of fewer documents are read by their key, and so are those of any documents.
    if kind == "none" or (kind == "half" and mode != "force_generic_plan"):
        assert len(by_graph) >= 8, scans


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("kind", ["none", "few", "one"])
def test_a_search_of_the_shared_table_reads_the_collection_alone(
    many: Many, kind: str, mode: str
) -> None:
    given, _ = FILTERS[kind]
    with plans(many.database, mode) as found:
        for query in _queries(many, 8):
            request = FindRequest(query, SearchMode.STANDARD, 0, 10, 10, filter=given)
            with many.reader.snapshot("small3", "c") as snapshot:
                snapshot.find(request, VALUES)
    scans = _scans(found)
    assert len(scans) >= 8
    assert [each for each in scans if each[0] == "Seq Scan"] == []


@pytest.mark.parametrize("kind", FILTERS)
def test_recall_at_ten_is_ninety_nine_percent(many: Many, kind: str) -> None:
    given, passes = FILTERS[kind]
    recall = many.recall(_queries(many, 50), 10, given, passes(many.owners))
    assert recall >= _MIN_RECALL


@pytest.mark.parametrize("count", [1, 50, 100, 1000, 3000])
def test_as_many_passages_are_found_as_are_wanted(many: Many, count: int) -> None:
    for query, (given, passes) in zip(_queries(many, len(FILTERS)), FILTERS.values(), strict=True):
        found = many.find(query, count, given)
        assert len(found.passages) == min(count, int(passes(many.owners).sum()))


def test_few_are_left_of_a_home_that_was_not_vacuumed(postgres: PostgresServer) -> None:
    """Nine of ten documents are deleted: their vectors are still in the graph."""
    with _many(postgres, 20_000, 64, 0, 0) as many:
        handle = many.writer.open("large", "c")
        for _ in many.writer.delete_matching(handle, Range("metadata.tenth", above=0.0)):
            pass
        left = many.owners % 10 == 0
        for count, least in ((10, _MIN_RECALL), (50, _MIN_RECALL), (500, 1.0)):
            assert many.recall(_queries(many, 20), count, None, left) >= least, count


def _measured(many: Many, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    source = random.Random(seed)
    for kind, (given, passes) in FILTERS.items():
        queries = _queries(many, 60)[source.randrange(3) :]
        recall = many.recall(queries, 10, given, passes(many.owners))
        with capsys.disabled():
            print(f"\n{len(many.vectors)} x {many.dimension}, {kind}: recall@10 {recall:.4f}")  # noqa: T201
        assert recall >= _MIN_RECALL, kind


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.parametrize(
    ("leaves", "dimension", "tenants", "of_each"),
    [(20_000, 384, 0, 0), (100_000, 384, 50, 500)],
)
def test_recall_of_many_leaves(
    postgres: PostgresServer,
    leaves: int,
    dimension: int,
    tenants: int,
    of_each: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with _many(postgres, leaves, dimension, tenants, of_each) as many:
        _measured(many, 3, capsys)
        for _ in many.writer.delete_matching(
            many.writer.open("large", "c"), Range("metadata.tenth", above=0.0)
        ):
            pass
        recall = many.recall(_queries(many, 30), 10, None, many.owners % 10 == 0)
        with capsys.disabled():
            print(f"\nafter deleting nine of ten: recall@10 {recall:.4f}")  # noqa: T201
        assert recall >= _MIN_RECALL
