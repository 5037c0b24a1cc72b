"""Seeded texts, vectors and stores: the same numbers give the same corpus on every machine.

Vectors gather round topics, and consecutive leaves of a document share one, as sections
do: a search finds much of a few documents. A store is written through the real writer
and sealed by the real sealing; only the embedder is left out, for its time is its own.
"""

import pydoc_data.topics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path

import hnswlib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hrag.config import DEFAULT_RETURN_LEVEL
from hrag.embedding import Vectors
from hrag.embedding.cache import CachedQueries
from hrag.embedding.hashing import HashEmbedder
from hrag.engine import CollectionHandle, DocumentSummaries, PreparedDocument, Summary
from hrag.engine.embedded.maintenance import build_plan, segment_build
from hrag.engine.embedded.search.eligible_rows import Hits, RowNumbers
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import environment as stores
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import find_collection, listed_segments, read_collection
from hrag.engine.embedded.write.summaries import summary_handle
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.tree import ParsedText, Tree
from hrag.types import DEFAULT_CANDIDATES, CollectionSettings, SummaryUnit, TreeSettings
from indexer_svc.chunker import build_tree
from indexer_svc.sections import sections
from retriever_svc.pipeline import Search

TENANT = "bench"
COLLECTION = "leaves"

_TREE = TreeSettings()
_LEAVES_PER_TOPIC = 100
_LEAVES_PER_SECTION = 20  # Consecutive leaves on one topic.
_SPREAD = 1.0  # Length of a leaf's own part beside its topic's: cosines of about 0.5 within.
_BODIES = 8  # Texts that documents take in turn: a tree costs more than a benchmark needs.
_DOCUMENTS_AT_ONCE = 100
_VECTORS_AT_ONCE = 10_000
_QUERIES_AT_ONCE = 50  # Compared with a million vectors they take 200 MB.
_BYTES_PER_LEAF = 920  # 230 new tokens of English prose a leaf, 4 bytes a token.

_TIMES = ("昨天", "去年春天", "在会议之后", "一九九八年", "到了傍晚", "经过三个月", "从那时起")
_SUBJECTS = ("研究人员", "这座城市", "年轻的工程师", "老师和学生", "图书馆", "每一家工厂", "邻居")
_VERBS = ("发现了", "没有考虑到", "记录了", "慢慢改变了", "仔细比较了", "终于完成了", "拒绝讨论")
_OBJECTS = ("古老的地图", "数据库的索引", "水的温度", "孩子们的问题", "一种算法", "花园里的树")
_LINKS = ("，因此人们", "，但是他们", "，同时大家", "；后来专家们")
_ENDS = ("。", "。", "。", "！", "？", "。\n\n")


@dataclass(frozen=True, slots=True)
class Body:
    """A text with its tree."""

    parsed: ParsedText
    tree: Tree

    @property
    def leaf_count(self) -> int:
        return self.tree.counts[_TREE.embedding_level]


def english_text(size_bytes: int, start: int = 0) -> str:
    """ASCII prose from Python's own manual, from byte `start` on, over again where short."""
    repeated = _manual() * (1 + (start + size_bytes) // len(_manual()))
    return repeated[start : start + size_bytes]


@cache
def _manual() -> str:
    return "\n\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore").decode()


def chinese_text(size_bytes: int, seed: int) -> str:
    """Chinese sentences put together at random, in paragraphs; at least `size_bytes` of UTF-8."""
    random = np.random.default_rng(seed)
    pieces: list[str] = []
    size = 0
    while size < size_bytes:
        sentence = "".join(_chinese_sentence(random))
        pieces.append(sentence)
        size += len(sentence.encode())
    return "".join(pieces)


def _chinese_sentence(random: np.random.Generator) -> Iterator[str]:
    draws = random.integers(0, 1 << 30, 7).tolist()
    words = (_TIMES, _SUBJECTS, _VERBS, _OBJECTS, _LINKS, _VERBS, _OBJECTS)
    for choices, draw in zip(words, draws, strict=True):
        yield choices[draw % len(choices)]
    yield _ENDS[sum(draws) % len(_ENDS)]


def clustered_vectors(
    count: int, dimension: int, seed: int, round_these: Vectors | None = None
) -> Vectors:
    """Unit vectors round random topics, or round these, `float32[count, dimension]`."""
    random = np.random.default_rng(seed)
    if round_these is None:
        topics = random.standard_normal((-(-count // _LEAVES_PER_TOPIC), dimension), np.float32)
    else:
        topics = _unit(round_these) * np.float32(np.sqrt(dimension))
    sections = -(-count // _LEAVES_PER_SECTION)
    topic_of = np.repeat(random.integers(len(topics), size=sections), _LEAVES_PER_SECTION)[:count]
    vectors = random.standard_normal((count, dimension), np.float32)
    for start in range(0, count, _VECTORS_AT_ONCE):  # In place: a million take gigabytes.
        some = vectors[start : start + _VECTORS_AT_ONCE]
        some *= np.float32(_SPREAD)
        some += topics[topic_of[start : start + _VECTORS_AT_ONCE]]
        some /= np.linalg.norm(some, axis=1, keepdims=True)
    return vectors


def queries_near(vectors: Vectors, count: int, seed: int) -> Vectors:
    """Unit vectors as far from random leaves as leaves are from their topic's middle."""
    random = np.random.default_rng(seed)
    chosen = vectors[random.integers(len(vectors), size=count)]
    noise = random.standard_normal(chosen.shape, np.float32)
    return _unit(chosen + noise * np.float32(_SPREAD / np.sqrt(2 * vectors.shape[1])))


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def bodies(leaves_each: int) -> list[Body]:
    """Different texts of about so many leaves each."""
    size = leaves_each * _BYTES_PER_LEAF
    texts = [ParsedText(english_text(size, start=place * size)) for place in range(_BODIES)]
    return [Body(parsed, build_tree(parsed, _TREE)) for parsed in texts]


def documents(
    leaf_count: int,
    leaves_each: int,
    dimension: int,
    seed: int,
    round_these: Vectors | None = None,
) -> tuple[list[PreparedDocument], Vectors]:
    """Documents of `leaf_count` leaves or a few more, and their vectors in that order."""
    chosen: list[Body] = []
    total = 0
    for body in cycle(bodies(leaves_each)):
        if total >= leaf_count:
            break
        chosen.append(body)
        total += body.leaf_count
    vectors = clustered_vectors(total, dimension, seed, round_these)
    return list(_prepared(chosen, vectors)), vectors


def _prepared(chosen: Sequence[Body], vectors: Vectors) -> Iterator[PreparedDocument]:
    start = 0
    draws = np.random.default_rng(len(chosen)).random(len(chosen)).tolist()
    for number, (body, draw) in enumerate(zip(chosen, draws, strict=True)):
        end = start + body.leaf_count
        yield PreparedDocument(
            document_id=f"document-{number:06d}",
            title=f"Document {number}",
            source=f"https://example.org/{number}",
            mime_type="text/plain",
            metadata={"draw": draw, "percentile": int(100 * draw)},
            content_hash=f"{number:064x}",
            parsed=body.parsed,
            tree=body.tree,
            vectors=vectors[start:end],
        )
        start = end


def create_collection(
    store: Store,
    dimension: int,
    summaries: SummaryUnit = SummaryUnit.NONE,
    embedder: str | None = None,
) -> tuple[EmbeddedWriter, CollectionHandle]:
    """An empty collection for documents of `dimension`, with the default levels."""
    writer = EmbeddedWriter(store)
    name = embedder or f"hash/{dimension}"
    settings = CollectionSettings(_TREE, name, dimension, summaries=summaries)
    writer.create_collection(TENANT, COLLECTION, settings)
    return writer, writer.open(TENANT, COLLECTION)


def fill(
    folder: Path,
    leaf_count: int,
    leaves_each: int,
    dimension: int,
    seed: int,
    *,
    sealed: bool,
    summaries: SummaryUnit = SummaryUnit.NONE,
    embedder: str | None = None,
    round_these: Vectors | None = None,
) -> Vectors:
    """Makes a store and returns its leaves' vectors, in order of label.

    At least `leaf_count` leaves, `float32[leaves, dimension]`; all in one segment where
    `sealed`, else all in the tail, and so their summaries. Raises StoreUnavailable where
    `folder` cannot be a store.
    """
    prepared, vectors = documents(leaf_count, leaves_each, dimension, seed, round_these)
    store = stores.open_for_writing(folder)
    try:
        writer, collection = create_collection(store, dimension, summaries, embedder)
        for start in range(0, len(prepared), _DOCUMENTS_AT_ONCE):
            group = prepared[start : start + _DOCUMENTS_AT_ONCE]
            writer.put_many([(collection, document) for document in group])
        if summaries is not SummaryUnit.NONE:
            _summarise(writer, {document.document_id: document for document in prepared})
        if sealed:
            seal(store, collection)
            if summaries is not SummaryUnit.NONE:
                with store.read() as txn:
                    record = read_collection(store, txn, collection.collection_id)
                seal(store, summary_handle(collection, record))
    finally:
        store.close()
    return vectors


def _summarise(writer: EmbeddedWriter, documents: Mapping[str, PreparedDocument]) -> None:
    """Summarises all, each summary's vector in the middle of its leaves'."""
    embedder = writer.open(TENANT, COLLECTION).settings.embedder
    while waiting := writer.next_unsummarised(embedder):
        vectors = documents[waiting.document_id].vectors
        unit = waiting.collection.settings.summaries
        own = sections(waiting.parsed, waiting.tree, _TREE.embedding_level, unit)
        ranges = [range(len(vectors)), *own]
        middles = [vectors[each.start : each.stop].mean(axis=0) for each in ranges]
        found = [Summary(f"Summary {number}", each) for number, each in enumerate(ranges)]
        writer.put_summaries(waiting, DocumentSummaries(tuple(found), _unit(np.array(middles))))


def seal(store: Store, collection: CollectionHandle) -> None:
    """Makes the collection's tail, which is not empty, a segment."""
    source = build_plan.tail_source(store, collection.collection_id, threshold=1)
    assert source is not None
    segment_build.build(store, source)


def bare_index(folder: Path) -> hnswlib.Index:
    """The only segment's index, loaded by hnswlib, to search as the service does."""
    store = stores.open_for_reading(folder)
    try:
        with store.read() as txn:
            number = find_collection(store, txn, TENANT, COLLECTION)
            (record,) = listed_segments(store, txn, number)
        index = segment_files.load_index(store.segments, record, record.items)
        index.set_ef(segment_files.search_ef(record.dimension, record.items))
        return index
    finally:
        store.close()


def recalls_at_10(folder: Path, vectors: Vectors, queries: Vectors) -> NDArray[np.float64]:
    """Of each query the share of the ten nearest leaves that default settings find.

    `vectors` are all leaves' in order of label.
    """
    with reading(folder) as reader, reader.snapshot(TENANT, COLLECTION) as snapshot:
        found = [best(snapshot.search(query, DEFAULT_CANDIDATES), 10) for query in queries]
    return recalls(found, nearest_10(vectors, queries))


def nearest_10(vectors: Vectors, queries: Vectors) -> list[RowNumbers]:
    """Of each query, by comparing it with all: places among `vectors`.

    Rows of a single segment, and its index's labels, are in that order too.
    """
    return [
        row
        for some in np.array_split(queries, -(-len(queries) // _QUERIES_AT_ONCE))
        for row in np.argpartition(some @ vectors.T, -10, axis=1)[:, -10:]
    ]


def recalls(found: Sequence[RowNumbers], exact: Sequence[RowNumbers]) -> NDArray[np.float64]:
    """Of each query the share of its ten nearest leaves that are found."""
    return np.array([len(np.intersect1d(*pair)) / 10 for pair in zip(found, exact, strict=True)])


def best(hits: Hits, count: int) -> RowNumbers:
    """Rows of the best of them."""
    return hits.rows[np.argsort(-hits.scores)[:count]]


@contextmanager
def reading(folder: Path) -> Iterator[EmbeddedReader]:
    """A reader over a store, its segments loaded; BLAS on one thread, as the services run."""
    store = stores.open_for_reading(folder)
    try:
        reader = EmbeddedReader(store)
        try:
            reader.load_segmented()
            with threadpool_limits(1, "blas"):
                yield reader
        finally:
            reader.close()
    finally:
        store.close()


def search_over(reader: EmbeddedReader, dimension: int) -> Search:
    """The retriever's search, as its service wires it, with the default return level."""
    embedder = HashEmbedder(dimension)
    none = CachedQueries(embedder, 0)
    return Search(reader, embedder, none, none, DEFAULT_RETURN_LEVEL)
