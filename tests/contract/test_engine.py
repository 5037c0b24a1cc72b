"""What every storage engine promises, in whatever state its index is.

Knows only `hrag.engine`'s protocols; `ENGINES` says how to open each engine and how to
bring it into each state.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from hrag.engine import OpenCollection, PreparedDocument, Reader, Snapshot, Vector, Writer
from hrag.errors import (
    ChunkNotFound,
    CollectionExists,
    CollectionNotFound,
    DocumentNotFound,
    InvalidArgument,
)
from hrag.ids import ChunkId, parse_chunk_id
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import Aggregation, ChunkNode, IngestOutcome, Passage, TreeSettings
from tests.conftest import Engine
from tests.fakes import (
    SCORE_TOLERANCE,
    ModelCollection,
    collection_settings,
    matched_leaves,
    prepared,
    query_vector,
    recall,
    search_leaves,
    search_passages,
    sentences,
)

STATES = ("tail", "sealed", "mixed")
TOP = 2  # Of the three levels most collections here have.


@dataclass
class Opened:
    """An engine under test. `index` moves what is committed out of the tail."""

    writer: Writer
    readers: Callable[[], Reader]
    index: Callable[[str, str], object]
    state: str
    model: ModelCollection = field(default_factory=ModelCollection)

    @property
    def collection(self) -> OpenCollection:
        return self.writer.open("t", "c")

    def create(self, tree: TreeSettings | None = None) -> None:
        if tree is not None:
            self.model.settings = collection_settings(tree)
        self.writer.create_collection("t", "c", self.model.settings)

    def fill(self, *documents: PreparedDocument) -> None:
        """Commits documents to engine and model, then brings the index into its state."""
        for number, document in enumerate(documents):
            if self.state == "mixed" and number == len(documents) // 2:
                self.index("t", "c")
            self.writer.put(self.collection, document)
            self.model.put(document)
        if self.state == "sealed":
            self.index("t", "c")

    def snapshot(self, tenant_id: str = "t", name: str = "c") -> AbstractContextManager[Snapshot]:
        return self.readers().snapshot(tenant_id, name)


def _embedded(request: pytest.FixtureRequest, state: str) -> Opened:
    engine: Engine = request.getfixturevalue("engine")
    return Opened(engine.writer, lambda: engine.reader, engine.seal, state)


ENGINES = {"embedded": _embedded}


@pytest.fixture(params=[(name, state) for name in ENGINES for state in STATES], ids="-".join)
def opened(request: pytest.FixtureRequest) -> Opened:
    name, state = request.param
    return ENGINES[name](request, state)


@pytest.fixture
def filled(opened: Opened) -> Opened:
    """Ten documents, about a hundred leaves."""
    opened.create()
    opened.fill(*(prepared(f"d{n}", sentences(4 * n + 4, n), seed=n) for n in range(10)))
    return opened


@pytest.fixture
def catalog(request: pytest.FixtureRequest) -> Opened:
    """An engine whose index does not matter."""
    return ENGINES["embedded"](request, "tail")


def _living(model: ModelCollection) -> int:
    return sum(len(document.vectors) for document in model.documents.values())


# Collections


def test_a_collection_is_found_by_tenant_and_name(catalog):
    settings = collection_settings(TreeSettings((64, 200), 0.25, 1), dimension=3)
    created, sequence = catalog.writer.create_collection("t", "c", settings)
    assert catalog.writer.collection("t", "c") == created
    assert (created.tenant_id, created.name, created.settings) == ("t", "c", settings)
    assert created.document_count == 0
    assert catalog.collection.settings == catalog.readers().settings("t", "c") == settings
    assert catalog.readers().sequence() == sequence


def test_a_second_collection_of_the_name_is_refused(catalog):
    catalog.create()
    with pytest.raises(CollectionExists, match="'t' has a collection 'c'"):
        catalog.create()


def test_collections_are_listed_by_name_in_pages(catalog):
    names = ["a", "a-1", "a.b", "a0", "aa", "b"]
    for name in reversed(names):
        catalog.writer.create_collection("t", name, collection_settings())
    catalog.writer.create_collection("t2", "other", collection_settings())
    catalog.writer.create_collection("s", "other", collection_settings())
    for size in (1, 2, 5, 6, 7):
        found, token = [], None
        while token != "":
            page = catalog.writer.collections("t", size, token or "")
            assert 0 < len(page.items) <= size
            found += [collection.name for collection in page.items]
            token = page.next_page_token
        assert found == names
    assert catalog.writer.collections("nobody", 10, "").items == ()


def test_a_deleted_collection_is_gone_and_its_name_free(filled):
    stale = filled.collection
    before = filled.readers().sequence()
    assert filled.writer.delete_collection("t", "c") == before + 1
    for call in (
        lambda: filled.writer.collection("t", "c"),
        lambda: filled.writer.open("t", "c"),
        lambda: filled.writer.delete_collection("t", "c"),
        lambda: filled.readers().settings("t", "c"),
        lambda: filled.snapshot().__enter__(),
        lambda: filled.writer.put(stale, prepared("d", "text")),
        lambda: filled.writer.delete(stale, "d1"),
        lambda: filled.writer.status(stale),
    ):
        with pytest.raises(CollectionNotFound, match="'c'"):
            call()

    filled.create(TreeSettings((40, 50)))
    filled.model.documents.clear()
    filled.fill(prepared("d1", sentences(30), filled.model.settings, seed=7))
    with pytest.raises(CollectionNotFound):
        filled.writer.put(stale, prepared("d", "text"))
    with filled.snapshot() as snapshot:
        found = search_leaves(snapshot, query_vector(0), 1000)
    assert recall(found, filled.model, query_vector(0), 1000) == 1.0


# Documents


def test_putting_creates_updates_or_finds_the_same(filled):
    document = prepared("new", sentences(20), seed=20)
    created = filled.writer.put(filled.collection, document)
    assert created.outcome is IngestOutcome.CREATED
    assert created.sequence == filled.readers().sequence()
    assert created.chunks_per_level == document.tree.counts
    last = document.tree.record(TOP, document.tree.counts[TOP] - 1)
    assert created.token_count == last.token_start + last.token_count

    again = filled.writer.put(filled.collection, document)
    assert again == replace(created, outcome=IngestOutcome.UNCHANGED)
    assert filled.readers().sequence() == created.sequence

    changed = filled.writer.put(filled.collection, prepared("new", sentences(3), seed=21))
    assert changed.outcome is IngestOutcome.UPDATED
    assert changed.sequence == created.sequence + 1
    assert filled.writer.collection("t", "c").document_count == 11


def test_unchanged_knows_the_stored_hash_only(filled):
    stored = filled.model.documents["d3"]
    found = filled.writer.unchanged(filled.collection, "d3", stored.content_hash)
    assert found is not None
    assert found.outcome is IngestOutcome.UNCHANGED
    assert found.chunks_per_level == stored.tree.counts
    assert filled.writer.unchanged(filled.collection, "d3", "other") is None
    assert filled.writer.unchanged(filled.collection, "nobody", stored.content_hash) is None


def test_a_document_is_kept_as_it_came(catalog):
    catalog.create()
    text = "# One\n\nFirst. 中文\r\n" + "\f# Two\n\nSecond 🙂 e\u0301"
    parsed = ParsedText(
        text,
        (Section("One", 1, 0), Section("Two", 1, text.index("# Two"))),
        (PageSpan(7, 0, text.index("\f")), PageSpan(8, text.index("\f"), len(text))),
    )
    document = prepared("d", parsed)
    result = catalog.writer.put(catalog.collection, document)
    info = catalog.writer.document(catalog.collection, "d")
    for name in ("document_id", "title", "source", "mime_type", "metadata"):
        assert getattr(info, name) == getattr(document, name)
    assert (info.page_count, info.section_count) == (2, 2)
    assert (info.chunks_per_level, info.sequence) == (document.tree.counts, result.sequence)
    assert info.token_count == result.token_count
    assert info.text_bytes == len(text.encode())
    assert catalog.writer.text(catalog.collection, "d") == text


def test_documents_are_listed_by_id_in_pages(filled):
    wanted = sorted(filled.model.documents)
    for size in (1, 3, 10, 11):
        found, token = [], None
        while token != "":
            page = filled.writer.documents(filled.collection, size, token or "")
            assert 0 < len(page.items) <= size
            found += [info.document_id for info in page.items]
            token = page.next_page_token
        assert found == wanted


def test_what_is_not_there_is_not_found(filled):
    for call in (filled.writer.document, filled.writer.text, filled.writer.delete):
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            call(filled.collection, "nobody")


def test_status_counts_what_lives(filled):
    filled.writer.delete(filled.collection, "d0")
    del filled.model.documents["d0"]
    status = filled.writer.status(filled.collection)
    documents = filled.model.documents.values()
    assert status.document_count == len(documents)
    assert status.chunk_count == sum(sum(d.tree.counts) for d in documents)
    assert status.leaf_count == _living(filled.model)
    assert status.vector_bytes == sum(d.vectors.nbytes for d in documents)
    assert status.text_bytes == sum(len(d.parsed.text.encode()) for d in documents)
    infos = filled.writer.documents(filled.collection, 100, "").items
    assert status.token_count == sum(info.token_count for info in infos)
    assert status.committed_sequence == filled.readers().sequence()
    assert status.sealed_sequence <= status.committed_sequence
    in_tail = {
        "tail": documents,
        "sealed": (),
        "mixed": [d for d in documents if d.document_id > "d4"],
    }
    assert status.tail_leaf_count == sum(len(d.vectors) for d in in_tail[filled.state])
    assert len(status.segments) == (filled.state != "tail")


@pytest.mark.parametrize("shape", [(4, 16), (5, 15), (0, 16), (5,)])
def test_vectors_that_do_not_fit_the_tree_and_the_collection_are_refused(catalog, shape):
    catalog.create()
    document = prepared("d", sentences(11))
    assert document.vectors.shape == (5, 16)
    wrong = replace(document, vectors=np.ones(shape, np.float32))
    with pytest.raises(InvalidArgument, match=r"vectors have shape .*; .*need \(5, 16\)"):
        catalog.writer.put(catalog.collection, wrong)
    assert catalog.writer.documents(catalog.collection, 10, "").items == ()


def test_a_tree_of_other_levels_than_the_collection_is_refused(catalog):
    catalog.create()
    other = collection_settings(TreeSettings((32,)))
    with pytest.raises(InvalidArgument, match="tree has 1 levels; the collection's have 3"):
        catalog.writer.put(catalog.collection, prepared("d", "text", other))


# Search


@pytest.mark.parametrize("count", [1, 3, 10, 40, 1000])
def test_search_finds_the_nearest_leaves(filled, count):
    with filled.snapshot() as snapshot:
        assert snapshot.settings == filled.model.settings
        for seed in range(5):
            query = query_vector(seed)
            leaves = snapshot.search(query, count)
            assert leaves.complete == (count >= _living(filled.model))
            assert len(leaves) == min(count, _living(filled.model))
            found = search_leaves(snapshot, query, count)
            assert recall(found, filled.model, query, count) == 1.0


def test_an_empty_collection_has_nothing_to_find(opened):
    opened.create()
    opened.fill()
    with opened.snapshot() as snapshot:
        leaves = snapshot.search(query_vector(0), 10)
        assert leaves.complete
        assert len(leaves) == 0
        assert search_passages(snapshot, query_vector(0), 10, TOP) == ()


@pytest.mark.parametrize("aggregation", list(Aggregation))
@pytest.mark.parametrize("level", [0, 1, 2])
def test_climbing_equals_walking_up_the_tree(filled, level, aggregation):
    with filled.snapshot() as snapshot:
        for seed in range(5):
            query = query_vector(seed)
            leaves = search_leaves(snapshot, query, 20)
            passages = search_passages(snapshot, query, 20, level, aggregation)
            _assert_climbed(passages, leaves, filled.model, level, aggregation)


def _assert_climbed(
    passages: tuple[Passage, ...],
    leaves: dict[tuple[str, int], float],
    model: ModelCollection,
    level: int,
    aggregation: Aggregation,
) -> None:
    expected = model.groups(leaves, level, aggregation)
    assert {p.chunk.chunk_id for p in passages} == set(expected)
    assert len(passages) == len(expected)
    scores = [p.score for p in passages]
    assert scores == sorted(scores, reverse=True)
    for passage in passages:
        group = expected[passage.chunk.chunk_id]
        assert passage.score == pytest.approx(group.score, abs=10 * SCORE_TOLERANCE)
        assert matched_leaves([passage]) == group.leaves
        child_scores = [child.score for child in passage.matched_children]
        assert child_scores == sorted(child_scores, reverse=True)


@pytest.mark.parametrize("embedding_level", [1, 2])
def test_leaves_may_be_of_any_level(opened, embedding_level):
    opened.create(TreeSettings((32, 64, 128), 0.2, embedding_level))
    settings = opened.model.settings
    opened.fill(*(prepared(f"d{n}", sentences(40, n), settings, seed=n) for n in range(8)))
    query = query_vector(3)
    with opened.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query, 5)
        assert recall(leaves, opened.model, query, 5) == 1.0
        passages = search_passages(snapshot, query, 5, TOP)
    _assert_climbed(passages, leaves, opened.model, TOP, Aggregation.MAX)


def test_passages_hold_the_text_and_place_of_their_chunk(filled):
    with filled.snapshot() as snapshot:
        passages = search_passages(snapshot, query_vector(1), 30, 1)
    for passage in passages:
        chunk = passage.chunk
        document = filled.model.documents[chunk.document_id]
        record = document.tree.record(1, chunk.index)
        assert chunk.content == document.parsed.text[record.char_start : record.char_end]
        assert (chunk.token_count, chunk.level) == (record.token_count, 1)
        assert chunk.chunk_id == str(ChunkId(chunk.document_id, 1, chunk.index))
        assert (chunk.title, chunk.source) == (document.title, document.source)
        assert chunk.metadata == document.metadata
        for child in passage.matched_children:
            assert chunk.span.byte_start <= child.span.byte_start
            assert child.span.byte_end <= chunk.span.byte_end


def test_a_limit_is_filled_with_distinct_ancestors(filled):
    with filled.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(2), 1000), TOP, Aggregation.MAX)
        everything = snapshot.passages(groups, 1000, 0)
        assert len(everything) == len(groups)
        for limit in (1, 5, len(groups), len(groups) + 1):
            passages = snapshot.passages(groups, limit, 0)
            assert passages == everything[:limit]
            assert len({p.chunk.chunk_id for p in passages}) == min(limit, len(groups))


def test_a_token_budget_bounds_what_is_returned(filled):
    with filled.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(2), 1000), 1, Aggregation.MAX)
        everything = snapshot.passages(groups, 1000, 0)
        budget = sum(p.chunk.token_count for p in everything) // 2
        chosen = snapshot.passages(groups, 1000, budget)
        assert chosen[0] == everything[0]
        assert sum(p.chunk.token_count for p in chosen) <= budget
        assert snapshot.passages(groups, 1000, 1) == ()


def test_tenants_with_the_same_names_and_texts_see_only_their_own(filled):
    for tenant_id, name in (("t2", "c"), ("t", "c2")):
        filled.writer.create_collection(tenant_id, name, filled.model.settings)
        filled.writer.put(
            filled.writer.open(tenant_id, name), prepared("d1", sentences(8, 1), seed=1)
        )
        if filled.state == "sealed":
            filled.index(tenant_id, name)
    query = filled.model.documents["d1"].vectors[0]
    for tenant_id, name in (("t2", "c"), ("t", "c2")):
        with filled.snapshot(tenant_id, name) as snapshot:
            assert {leaf[0] for leaf in search_leaves(snapshot, query, 1000)} == {"d1"}
            with pytest.raises(DocumentNotFound):
                snapshot.chunk(ChunkId("d2", 0, 0))
    filled.writer.delete(filled.writer.open("t2", "c"), "d1")
    with filled.snapshot() as snapshot:
        found = search_leaves(snapshot, query, 1000)
    assert recall(found, filled.model, query, 1000) == 1.0


# Freshness


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_deleted_document_is_gone_from_the_next_snapshot(filled, level):
    query = filled.model.documents["d9"].vectors[3]
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query, 5, level)[0].chunk.document_id == "d9"
    filled.writer.delete(filled.collection, "d9")
    del filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        found = search_leaves(snapshot, query, 5)
        passages = search_passages(snapshot, query, 1000, level)
    assert recall(found, filled.model, query, 5) == 1.0
    assert len(matched_leaves(passages)) == _living(filled.model)
    assert "d9" not in {p.chunk.document_id for p in passages}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_replaced_document_is_new_in_the_next_snapshot(filled, level):
    old = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        search_passages(snapshot, old.vectors[3], 5, level)
    new = prepared("d9", sentences(9, 99), seed=99)
    filled.writer.put(filled.collection, new)
    filled.model.put(new)
    with filled.snapshot() as snapshot:
        for query in (old.vectors[3], new.vectors[1]):
            found = search_leaves(snapshot, query, 5)
            assert recall(found, filled.model, query, 5) == 1.0
            passages = search_passages(snapshot, query, 1000, level)
            assert len(matched_leaves(passages)) == _living(filled.model)
            for passage in passages:
                if passage.chunk.document_id == "d9":
                    assert passage.chunk.content in new.parsed.text


def test_far_leaves_never_take_the_places_of_near_ones_behind_dead_ones(opened):
    """Of many leaves near the query most are deleted; the living ones must still be found."""
    opened.create()
    axis = np.eye(16, dtype=np.float32)[0]
    opened.fill(*(_beside(axis if n < 20 else -axis, n) for n in range(40)))
    for number in range(17):
        opened.writer.delete(opened.collection, f"d{number:02}")
        del opened.model.documents[f"d{number:02}"]
    with opened.snapshot() as snapshot:
        found = search_leaves(snapshot, axis, 12)
    assert recall(found, opened.model, axis, 12) == 1.0


def _beside(direction: Vector, number: int) -> PreparedDocument:
    document = prepared(f"d{number:02}", sentences(11, number), seed=number)
    vectors = direction + 0.3 * document.vectors
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return replace(document, vectors=vectors)


def test_a_snapshot_stays_as_it_was_while_writes_go_on(filled):
    """One thread replaces and deletes; every snapshot holds whole documents of one change."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(60):
                document = prepared(f"w{number % 3}", sentences(9, number), seed=100 + number)
                filled.writer.put(filled.collection, document)
                if number % 5 == 4:
                    filled.writer.delete(filled.collection, f"w{number % 3}")
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    rounds = 0
    while not stop.is_set() or rounds < 3:
        rounds += 1
        query = query_vector(rounds)
        with filled.snapshot() as snapshot:
            sequence = snapshot.sequence
            first = search_passages(snapshot, query, 1000, 0)
            leaves = matched_leaves(first)
            for document_id in {document_id for document_id, _ in leaves}:
                held = {leaf for name, leaf in leaves if name == document_id}
                assert held == set(range(len(held)))
            for passage in first:
                assert snapshot.chunk(parse_chunk_id(passage.chunk.chunk_id)).chunk == passage.chunk
            assert search_passages(snapshot, query, 1000, 0) == first
            assert snapshot.sequence == sequence
    writer.join()
    assert failures == []
    assert {f"d{n}" for n in range(10)} <= {document_id for document_id, _ in leaves}


# Chunks and hierarchies


def _node(document: PreparedDocument, level: int, index: int) -> tuple[str, tuple[str, ...]]:
    """The ids of a chunk's parent and children."""
    record = document.tree.record(level, index)
    name = document.document_id
    parent = "" if level == document.tree.top_level else f"{name}#{level + 1}.{record.parent}"
    first = record.first_child
    children = (f"{name}#{level - 1}.{n}" for n in range(first, first + record.child_count))
    return parent, tuple(children)


def test_every_chunk_is_found_by_its_id(filled):
    with filled.snapshot() as snapshot:
        for document in filled.model.documents.values():
            for level, count in enumerate(document.tree.counts):
                for index in range(count):
                    node = snapshot.chunk(ChunkId(document.document_id, level, index))
                    record = document.tree.record(level, index)
                    text = document.parsed.text[record.char_start : record.char_end]
                    assert node.chunk.content == text
                    assert (node.parent_id, node.child_ids) == _node(document, level, index)


def _ids(nodes: tuple[ChunkNode, ...]) -> list[str]:
    return [node.chunk.chunk_id for node in nodes]


def _descendants(snapshot: Snapshot, chunk_ids: list[str], depth: int) -> Iterator[str]:
    for _ in range(depth):
        nodes = [snapshot.chunk(parse_chunk_id(chunk_id)) for chunk_id in chunk_ids]
        chunk_ids = [child for node in nodes for child in node.child_ids]
        yield from chunk_ids


@pytest.mark.parametrize("depth", [0, 1, 2, 8])
def test_a_hierarchy_holds_the_chunks_relatives(filled, depth):
    document = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        for level, count in enumerate(document.tree.counts):
            for index in range(count):
                chunk_id = ChunkId("d9", level, index)
                found = snapshot.hierarchy(chunk_id, depth, content=True)
                assert found.node == snapshot.chunk(chunk_id)
                above = [found.node, *found.ancestors]
                assert [n.parent_id for n in above] == [*_ids(found.ancestors), ""]
                below = list(_descendants(snapshot, [str(chunk_id)], depth))
                assert _ids(found.descendants) == below
                family = [
                    f"d9#{level}.{n}"
                    for n in range(count)
                    if n != index and _node(document, level, n)[0] == found.node.parent_id
                ]
                assert _ids(found.siblings) == family


def test_a_hierarchy_can_come_without_its_relatives_texts(filled):
    with filled.snapshot() as snapshot:
        full = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=True)
        bare = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=False)
    assert bare.node == full.node
    for name in ("ancestors", "siblings", "descendants"):
        with_text, without = getattr(full, name), getattr(bare, name)
        assert len(with_text) == len(without) > 0
        for one, other in zip(with_text, without, strict=True):
            assert one.chunk.content
            assert other == replace(one, chunk=replace(one.chunk, content=""))


@pytest.mark.parametrize("chunk_id", [ChunkId("d1", 3, 0), ChunkId("d1", 0, 999)])
def test_a_chunk_that_does_not_exist_is_not_found(filled, chunk_id):
    with filled.snapshot() as snapshot:
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.chunk(chunk_id)
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.hierarchy(chunk_id, 1, content=True)
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            snapshot.chunk(ChunkId("nobody", 0, 0))


def test_citations_name_section_path_and_pages(catalog):
    parts = [f"{sentences(12, n)}\n\n" for n in range(4)]
    starts = [sum(map(len, parts[:n])) for n in range(5)]
    parsed = ParsedText(
        "".join(parts),
        (Section("Guide", 1, 0), Section("Setup", 2, starts[1]), Section("Use", 1, starts[2])),
        tuple(PageSpan(10 + n, starts[n], starts[n + 1]) for n in range(4)),
    )
    catalog.create(TreeSettings((128, 4096), 0.0))
    catalog.writer.put(catalog.collection, prepared("d", parsed, catalog.model.settings))
    with catalog.snapshot() as snapshot:
        chunks = [snapshot.chunk(ChunkId("d", 0, index)).chunk for index in range(4)]
        whole = snapshot.chunk(ChunkId("d", 1, 0)).chunk
    assert [chunk.section_path for chunk in chunks] == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Use",),
        ("Use",),
    ]
    assert [(c.first_page, c.last_page) for c in chunks] == [(n, n) for n in (10, 11, 12, 13)]
    assert (whole.section_path, whole.first_page, whole.last_page) == ((), 10, 13)


def test_a_new_engine_finds_everything_again(filled, tmp_path: Path, request):
    """What is committed does not depend on what the first reader held in memory."""
    with filled.snapshot() as snapshot:
        before = search_passages(snapshot, query_vector(8), 30, TOP)
    request.getfixturevalue("engine").restart_reader()
    with filled.snapshot() as snapshot:
        assert search_passages(snapshot, query_vector(8), 30, TOP) == before
