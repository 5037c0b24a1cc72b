"""Seeded texts, vectors and stores: the same seed gives the same corpus on every machine.

Vectors are clustered by topic, and consecutive leaves of a document share a topic, as sections
do, so a search finds much of a few documents. Stores are written by the real writer and sealed
by the real segment builder; only the embedder is left out.

Texts are eight in turn, or each is different (`varied`), as lexical search needs it: see
`benchmarks.zipf`. Collections have the lexical index that new ones get.
"""

import pydoc_data.topics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import hnswlib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import zipf
from hrag.config import DEFAULT_RETURN_LEVEL, EngineSettings
from hrag.engine import (
    CollectionHandle,
    DocumentSummaries,
    Engine,
    PreparedDocument,
    Reader,
    Summary,
    Writer,
    open_engine,
)
from hrag.engine.embedded.search.loaded_collection import LoadedCollection
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments import segment_files, vector_part
from hrag.engine.embedded.store import environment
from hrag.engine.embedded.store.queries import find_collection, listed_segments
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text.analysis import DEFAULT_LANGUAGE, analyzer_name
from hrag.types import (
    NO_EMBEDDER,
    CollectionSettings,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
    SummaryUnit,
    TreeSettings,
)
from hrag.values.deadline import NEVER
from hrag.values.tree import ParsedText, Tree
from indexer_svc.chunker import build_tree
from indexer_svc.sections import sections
from retriever_svc.search_pipeline import Search

TENANT = "bench"
COLLECTION = "leaves"
ANALYZER = analyzer_name(DEFAULT_LANGUAGE)
# Of the figures of dense search, which are compared from run to run. Searches of both sources
# have the default.
DENSE_CANDIDATES = 50

Rows = NDArray[np.int64]

_TREE = TreeSettings()
_LEAVES_PER_TOPIC = 100
_LEAVES_PER_SECTION = 20  # Consecutive leaves on one topic.
_SPREAD = 1.0  # Noise to topic, in length: cosines of about 0.5 within a topic.
_BODIES = 8  # Texts that documents use in turn, since building a tree for each is slow.
_DOCUMENTS_AT_ONCE = 100
_UNLIMITED_BYTES = 1 << 50
_VECTORS_AT_ONCE = 10_000
_QUERIES_AT_ONCE = 50  # Their scores against a million vectors take 200 MB.
_LENGTH_BYTES = 4  # A leaf's number of terms, among the rows of a segment.
_BYTES_PER_LEAF = 920  # 230 new tokens a leaf, 4 bytes a token of English.

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
        """Returns the number of leaves."""
        return self.tree.counts[_TREE.embedding_level]


def english_text(size_bytes: int, start: int = 0) -> str:
    """Returns ASCII text of Python's manual from byte `start` on, repeated if too short."""
    repeated = _manual() * (1 + (start + size_bytes) // len(_manual()))
    return repeated[start : start + size_bytes]


@cache
def _manual() -> str:
    return "\n\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore").decode()


def chinese_text(size_bytes: int, seed: int) -> str:
    """Returns random Chinese sentences in paragraphs, at least `size_bytes` in UTF-8."""
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
    count: int, dimension: int, seed: int, centres: Vectors | None = None
) -> Vectors:
    """Returns unit vectors around random topics, or `centres`: `float32[count, dimension]`."""
    if not dimension:
        return np.empty((count, 0), np.float32)
    random = np.random.default_rng(seed)
    if centres is None:
        topics = random.standard_normal((-(-count // _LEAVES_PER_TOPIC), dimension), np.float32)
    else:
        topics = _unit(centres) * np.float32(np.sqrt(dimension))
    sections = -(-count // _LEAVES_PER_SECTION)
    topic_of = np.repeat(random.integers(len(topics), size=sections), _LEAVES_PER_SECTION)[:count]
    vectors = random.standard_normal((count, dimension), np.float32)
    for start in range(0, count, _VECTORS_AT_ONCE):  # In place, since a million take gigabytes.
        some = vectors[start : start + _VECTORS_AT_ONCE]
        some *= np.float32(_SPREAD)
        some += topics[topic_of[start : start + _VECTORS_AT_ONCE]]
        some /= np.linalg.norm(some, axis=1, keepdims=True)
    return vectors


def queries_near(vectors: Vectors, count: int, seed: int) -> Vectors:
    """Returns unit vectors as far from random leaves as leaves are from their topic's centre."""
    random = np.random.default_rng(seed)
    chosen = vectors[random.integers(len(vectors), size=count)]
    noise = random.standard_normal(chosen.shape, np.float32)
    return _unit(chosen + noise * np.float32(_SPREAD / np.sqrt(2 * vectors.shape[1])))


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def bodies(leaves_each: int) -> list[Body]:
    """Returns different texts of about that many leaves each."""
    size = leaves_each * _BYTES_PER_LEAF
    texts = [ParsedText(english_text(size, start=place * size)) for place in range(_BODIES)]
    return [Body(parsed, build_tree(parsed, _TREE)) for parsed in texts]


def documents(
    leaf_count: int,
    leaves_each: int,
    dimension: int,
    seed: int,
    centres: Vectors | None = None,
    *,
    varied: bool = False,
    grouped: bool = False,
) -> tuple[Iterator[PreparedDocument], Vectors]:
    """Returns documents with at least `leaf_count` leaves, and their vectors in that order.

    Each has a random number, `draw`, and its `percentile`; if `grouped`, its `tenth` and `half`.
    """
    chosen = _chosen_bodies(leaf_count, leaves_each)
    count = sum(body.leaf_count for body in chosen)
    vectors = clustered_vectors(count, dimension, seed, centres)
    parsed: Iterable[ParsedText] = (body.parsed for body in chosen)
    if varied:
        parsed = map(ParsedText, varied_texts(leaves_each, seed, range(len(chosen))))
    shares = {"percentile": 100} | ({"tenth": 10, "half": 2} if grouped else {})
    return _prepared(chosen, parsed, vectors, shares), vectors


def varied_texts(leaves_each: int, seed: int, numbers: Iterable[int]) -> Iterator[str]:
    """Yields the texts of documents by their numbers; see `benchmarks.zipf`."""
    templates = [zipf.Template(body.parsed.text) for body in bodies(leaves_each)]
    for number in numbers:
        yield templates[number % _BODIES].filled(np.random.default_rng((seed, number)))


def questions(leaf_count: int, leaves_each: int, seed: int, count: int) -> list[str]:
    """Returns questions that random varied documents answer, from 4 to 12 words each."""
    random = np.random.default_rng(seed + 1)
    documents = len(_chosen_bodies(leaf_count, leaves_each))
    numbers = random.integers(documents, size=count).tolist()
    return list(zipf.questions(varied_texts(leaves_each, seed, numbers), random))


def _chosen_bodies(leaf_count: int, leaves_each: int) -> list[Body]:
    """Returns the text of each document."""
    chosen: list[Body] = []
    total = 0
    for body in cycle(bodies(leaves_each)):
        if total >= leaf_count:
            break
        chosen.append(body)
        total += body.leaf_count
    return chosen


def _prepared(
    chosen: Sequence[Body],
    texts: Iterable[ParsedText],
    vectors: Vectors,
    shares: Mapping[str, int],
) -> Iterator[PreparedDocument]:
    start = 0
    draws = np.random.default_rng(len(chosen)).random(len(chosen)).tolist()
    for number, (body, parsed, draw) in enumerate(zip(chosen, texts, draws, strict=True)):
        end = start + body.leaf_count
        yield PreparedDocument(
            document_id=f"document-{number:06d}",
            title=f"Document {number}",
            source=f"https://example.org/{number}",
            mime_type="text/plain",
            metadata={"draw": draw, **{name: int(n * draw) for name, n in shares.items()}},
            content_hash=f"{number:064x}",
            parsed=parsed,
            tree=body.tree,
            vectors=vectors[start:end],
        )
        start = end


@contextmanager
def engine(folder: Path, **settings: int | str) -> Iterator[Engine]:
    """Opens an engine on a folder, whose memory is not bounded unless `settings` say so."""
    own = {"data_dir": folder, "memory_bytes": _UNLIMITED_BYTES, **settings}
    opened = open_engine(EngineSettings().model_copy(update=own))
    try:
        yield opened
    finally:
        opened.close()


def create_collection(
    writer: Writer,
    dimension: int,
    summaries: SummaryUnit = SummaryUnit.NONE,
    embedder: str | None = None,
    *,
    analyzer: str = ANALYZER,
) -> CollectionHandle:
    """Creates a collection with the default levels; returns its handle.

    Without dimensions it has no vectors, with an empty `analyzer` no lexical index.
    """
    name = embedder or (f"hash/{dimension}" if dimension else NO_EMBEDDER)
    settings = CollectionSettings(
        _TREE, name, dimension, summaries=summaries, analyzer=analyzer, index_headings=True
    )
    writer.create_collection(TENANT, COLLECTION, settings)
    return writer.open(TENANT, COLLECTION)


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
    centres: Vectors | None = None,
    varied: bool = False,
    grouped: bool = False,
) -> Vectors:
    """Creates a store and returns its vectors by label: `float32[leaves, dimension]`.

    At least `leaf_count` leaves, all in one segment if `sealed`, otherwise in the tail; the
    same for summaries. Raises StoreUnavailable if `folder` cannot hold a store.
    """
    prepared, vectors = documents(
        leaf_count, leaves_each, dimension, seed, centres, varied=varied, grouped=grouped
    )
    vectors_of: dict[str, Vectors] = {}
    with engine(folder) as opened:
        writer = opened.writer()
        collection = create_collection(writer, dimension, summaries, embedder)
        while group := list(islice(prepared, _DOCUMENTS_AT_ONCE)):
            writer.put_many([(collection, document) for document in group])
            vectors_of.update((document.document_id, document.vectors) for document in group)
        if summaries is not SummaryUnit.NONE:
            _summarise(writer, vectors_of)
    if sealed:
        with engine(folder, segment_min_leaves=1) as opened:
            assert all(each.leaves for each in opened.administration().reindex())
    return vectors


def _summarise(writer: Writer, vectors_of: Mapping[str, Vectors]) -> None:
    """Summarises all documents; a summary's vector is the mean of its leaves', normalised."""
    embedder = writer.open(TENANT, COLLECTION).settings.embedder
    while waiting := writer.next_unsummarised(embedder):
        vectors = vectors_of[waiting.document_id]
        unit = waiting.collection.settings.summaries
        own = sections(waiting.parsed, waiting.tree, _TREE.embedding_level, unit)
        ranges = [range(len(vectors)), *own]
        means = [vectors[each.start : each.stop].mean(axis=0) for each in ranges]
        found = tuple(Summary(f"Summary {number}", each) for number, each in enumerate(ranges))
        writer.put_summaries(waiting, DocumentSummaries(found, _unit(np.array(means))))


def raw_index(folder: Path) -> hnswlib.Index:
    """Returns the only segment's index, loaded by hnswlib, with the service's ef."""
    with closing(environment.open_for_reading(folder)) as store:
        with store.read() as txn:
            number = find_collection(txn, TENANT, COLLECTION)
            (record,) = listed_segments(txn, number)
        index = vector_part.load_index(store.segments, record, record.items)
        index.set_ef(segment_files.search_ef(record.dimension, record.items))
        return index


def lexical_bytes(folder: Path, leaves: int) -> int:
    """Returns the size of the only segment's lexical index: postings and lengths of leaves."""
    (postings,) = folder.rglob(segment_files.POSTINGS)
    return postings.stat().st_size + _LENGTH_BYTES * leaves


@contextmanager
def view(folder: Path) -> Iterator[View]:
    """Loads the collection as candidate sources see it; BLAS has one thread."""
    with closing(environment.open_for_reading(folder)) as store:
        with store.read() as txn:
            number = find_collection(txn, TENANT, COLLECTION)
        loaded = LoadedCollection(store, number)
        with store.read() as txn, threadpool_limits(1, "blas"):
            current = loaded.view_at(txn)
            assert current is not None
            yield current


def first_rows(leaf_count: int, leaves_each: int) -> list[int]:
    """Returns the row of each document's first leaf, in a single segment or tail."""
    counts = [body.leaf_count for body in _chosen_bodies(leaf_count, leaves_each)]
    return [0, *np.cumsum(counts)[:-1].tolist()]


def found_rows(result: SearchResult, first_rows: Sequence[int]) -> Rows:
    """Returns the rows of the leaves that a STANDARD search has found, best first."""
    chunks = [passage.chunk for passage in result.passages]
    return np.array(
        [first_rows[int(each.document_id.rpartition("-")[2])] + each.index for each in chunks]
    )


def dense_query(vector: Sequence[float], mode: SearchMode = SearchMode.SMALL_TO_BIG) -> SearchQuery:
    """Returns a query by vector alone, in the extent that figures of dense search have.

    Scores are cosines: without the neighbour bonus, which STANDARD has by default.
    """
    return SearchQuery(
        TENANT,
        vector,
        COLLECTION,
        mode,
        candidates=DENSE_CANDIDATES,
        retrieval=Retrieval.DENSE,
        neighbour_bonus=0.0,
    )


def leaves_query(vector: Sequence[float], candidates: int = DENSE_CANDIDATES) -> SearchQuery:
    """Returns the query for the ten nearest leaves."""
    query = dense_query(vector, SearchMode.STANDARD)
    return replace(query, limit=10, candidates=candidates)


def recalls_at_10(
    folder: Path, vectors: Vectors, queries: Vectors, leaves_each: int
) -> NDArray[np.float64]:
    """Returns recall@10 of each query with DENSE_CANDIDATES: `float64[queries]`.

    `vectors` are those of all leaves in order of label.
    """
    starts = first_rows(len(vectors), leaves_each)
    with reading(folder) as reader:
        search = search_over(reader, vectors.shape[1])
        found = [found_rows(search(leaves_query(query), NEVER), starts) for query in queries]
    return recalls(found, nearest_10(vectors, queries))


def nearest_10(vectors: Vectors, queries: Vectors) -> list[Rows]:
    """Returns the ten nearest of `vectors` to each query, by an exact scan.

    As indices into `vectors`, which equal the rows and index labels of a single segment.
    """
    return [
        row.copy()  # A view would keep the order of all vectors in memory.
        for some in np.array_split(queries, -(-len(queries) // _QUERIES_AT_ONCE))
        for row in np.argpartition(some @ vectors.T, -10, axis=1)[:, -10:]
    ]


def recalls(found: Sequence[Rows], exact: Sequence[Rows]) -> NDArray[np.float64]:
    """Returns the share of the ten nearest leaves found by each query: `float64[queries]`."""
    return np.array([len(np.intersect1d(*pair)) / 10 for pair in zip(found, exact, strict=True)])


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """Opens a reader and loads its segments; BLAS has one thread, as in the services."""
    with engine(folder) as opened:
        reader = opened.reader()
        reader.preload()
        with threadpool_limits(1, "blas"):
            yield reader


def search_over(reader: Reader, dimension: int) -> Search:
    """Returns the retriever's search, configured as in its service, with default settings."""
    embedder = HashEmbedder(dimension)
    none = CachedQueries(embedder, 0)
    return Search(reader, embedder, none, none, DEFAULT_RETURN_LEVEL)
