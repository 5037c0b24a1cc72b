"""Seeded texts, vectors and stores: the same seed gives the same corpus on every machine.

Vectors are clustered by topic, and consecutive leaves of a document share a topic, as in the
sections of real documents. So the results of a search come from a few documents. The real writer
writes the stores and the real segment builder seals them. Only the embedder is left out.

By default, documents use eight texts in turn. If `varied`, every document has a different text,
which lexical search needs: see `benchmarks.zipf`. Collections have the lexical index that new
collections have by default.
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
from hrag.engine.embedded.search.vector_memory import VectorMemory
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
# The number of candidates of dense searches. It is fixed because runs are compared by their
# figures. Hybrid searches have the default number of candidates.
DENSE_CANDIDATES = 50

Rows = NDArray[np.int64]

_TREE = TreeSettings()
_LEAVES_PER_TOPIC = 100
# This many consecutive leaves of a document share a topic.
_LEAVES_PER_SECTION = 20
# The vector of a leaf is the vector of its topic plus noise. This is the length of the noise
# divided by the length of the topic's vector. With 1.0, two leaves of a topic have a cosine of
# about 0.5.
_NOISE_LENGTH = 1.0
# The number of texts that documents use in turn. Building a tree for each document would be slow.
_BODIES = 8
_DOCUMENTS_AT_ONCE = 100
_UNLIMITED_BYTES = 1 << 50
_VECTORS_AT_ONCE = 10_000
# The scores of 50 queries against a million vectors take 200 MB, so no more queries are compared
# at once.
_QUERIES_AT_ONCE = 50
# A segment stores the number of terms of each leaf in 4 bytes.
_LENGTH_BYTES = 4
# A leaf adds 230 tokens to the text, and a token of English has 4 bytes.
_BYTES_PER_LEAF = 920

_TIMES = ("昨天", "去年春天", "在会议之后", "一九九八年", "到了傍晚", "经过三个月", "从那时起")
_SUBJECTS = ("研究人员", "这座城市", "年轻的工程师", "老师和学生", "图书馆", "每一家工厂", "邻居")
_VERBS = ("发现了", "没有考虑到", "记录了", "慢慢改变了", "仔细比较了", "终于完成了", "拒绝讨论")
_OBJECTS = ("古老的地图", "数据库的索引", "水的温度", "孩子们的问题", "一种算法", "花园里的树")
_LINKS = ("，因此人们", "，但是他们", "，同时大家", "；后来专家们")
_ENDS = ("。", "。", "。", "！", "？", "。\n\n")


@dataclass(frozen=True, slots=True)
class Body:
    """A text and its chunk tree."""

    parsed: ParsedText
    tree: Tree

    @property
    def leaf_count(self) -> int:
        """The number of leaves."""
        return self.tree.counts[_TREE.embedding_level]


def english_text(size_bytes: int, start: int = 0) -> str:
    """Returns `size_bytes` bytes of Python's manual in ASCII, from byte `start` on.

    The manual is repeated if it is too short.
    """
    repeated = _manual() * (1 + (start + size_bytes) // len(_manual()))
    return repeated[start : start + size_bytes]


@cache
def _manual() -> str:
    return "\n\n".join(pydoc_data.topics.topics.values()).encode("ascii", "ignore").decode()


def chinese_text(size_bytes: int, seed: int) -> str:
    """Returns paragraphs of random Chinese sentences with at least `size_bytes` bytes in UTF-8."""
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
    """Returns unit vectors that are clustered around topics: `float32[count, dimension]`.

    The topics are the rows of `centres`, or random vectors if `centres` is None.
    """
    if not dimension:
        return np.empty((count, 0), np.float32)
    random = np.random.default_rng(seed)
    if centres is None:
        topics = random.standard_normal((-(-count // _LEAVES_PER_TOPIC), dimension), np.float32)
    else:
        topics = _normalised(centres) * np.float32(np.sqrt(dimension))
    sections = -(-count // _LEAVES_PER_SECTION)
    topic_of = np.repeat(random.integers(len(topics), size=sections), _LEAVES_PER_SECTION)[:count]
    vectors = random.standard_normal((count, dimension), np.float32)
    # The vectors are changed in place, because a million of them take gigabytes.
    for start in range(0, count, _VECTORS_AT_ONCE):
        rows = vectors[start : start + _VECTORS_AT_ONCE]
        rows *= np.float32(_NOISE_LENGTH)
        rows += topics[topic_of[start : start + _VECTORS_AT_ONCE]]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return vectors


def queries_near(vectors: Vectors, count: int, seed: int) -> Vectors:
    """Returns `count` unit vectors that are near random leaves: `float32[count, dimension]`.

    A query is as far from its leaf as leaves are from the centre of their topic.
    """
    random = np.random.default_rng(seed)
    chosen = vectors[random.integers(len(vectors), size=count)]
    noise = random.standard_normal(chosen.shape, np.float32)
    return _normalised(chosen + noise * np.float32(_NOISE_LENGTH / np.sqrt(2 * vectors.shape[1])))


def _normalised(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def bodies(leaves_each: int) -> list[Body]:
    """Returns `_BODIES` different texts of about `leaves_each` leaves each."""
    size = leaves_each * _BYTES_PER_LEAF
    texts = [ParsedText(english_text(size, start=number * size)) for number in range(_BODIES)]
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
    """Returns documents with at least `leaf_count` leaves in all, and the vectors of their leaves.

    The vectors are `float32[leaves, dimension]`, in the order of the documents. The metadata of
    each document contains `draw`, a random number from 0 to 1, and `percentile`, the hundredth of
    this range in which the number lies (0 to 99). If `grouped`, the metadata also contains `tenth`
    (0 to 9) and `half` (0 or 1).
    """
    chosen = _chosen_bodies(leaf_count, leaves_each)
    count = sum(body.leaf_count for body in chosen)
    vectors = clustered_vectors(count, dimension, seed, centres)
    parsed: Iterable[ParsedText] = (body.parsed for body in chosen)
    if varied:
        parsed = map(ParsedText, varied_texts(leaves_each, seed, range(len(chosen))))
    shares = {"percentile": 100} | ({"tenth": 10, "half": 2} if grouped else {})
    return _prepared_documents(chosen, parsed, vectors, shares), vectors


def varied_texts(leaves_each: int, seed: int, numbers: Iterable[int]) -> Iterator[str]:
    """Yields the texts of the documents with these numbers, made by `benchmarks.zipf`."""
    templates = [zipf.Template(body.parsed.text) for body in bodies(leaves_each)]
    for number in numbers:
        yield templates[number % _BODIES].filled(np.random.default_rng((seed, number)))


def questions(leaf_count: int, leaves_each: int, seed: int, count: int) -> list[str]:
    """Returns questions of 4 to 12 words, each taken from a random varied document."""
    random = np.random.default_rng(seed + 1)
    documents = len(_chosen_bodies(leaf_count, leaves_each))
    numbers = random.integers(documents, size=count).tolist()
    return list(zipf.questions(varied_texts(leaves_each, seed, numbers), random))


def _chosen_bodies(leaf_count: int, leaves_each: int) -> list[Body]:
    """Returns the text and tree of each document."""
    chosen: list[Body] = []
    total = 0
    for body in cycle(bodies(leaves_each)):
        if total >= leaf_count:
            break
        chosen.append(body)
        total += body.leaf_count
    return chosen


def _prepared_documents(
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
    """Opens an engine on a folder and closes it in the end.

    If `settings` contain no `memory_bytes`, the memory of the engine is unlimited.
    """
    values = {"data_dir": folder, "memory_bytes": _UNLIMITED_BYTES, **settings}
    opened = open_engine(EngineSettings().model_copy(update=values))
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
    """Creates a collection with the default levels and returns its handle.

    With `dimension` 0 the collection has no vectors. With an empty `analyzer` it has no lexical
    index.
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
    analyzer: str = ANALYZER,
) -> Vectors:
    """Creates a store and returns its vectors by label: `float32[leaves, dimension]`.

    The store has at least `leaf_count` leaves. If `sealed`, all of them are in one segment, and so
    are all summaries; otherwise they are in the tail. Raises StoreUnavailable if `folder` cannot
    contain a store.
    """
    prepared, vectors = documents(
        leaf_count, leaves_each, dimension, seed, centres, varied=varied, grouped=grouped
    )
    vectors_of: dict[str, Vectors] = {}
    with engine(folder) as opened:
        writer = opened.writer()
        collection = create_collection(writer, dimension, summaries, embedder, analyzer=analyzer)
        while group := list(islice(prepared, _DOCUMENTS_AT_ONCE)):
            writer.put_many([(collection, document) for document in group])
            vectors_of.update((document.document_id, document.vectors) for document in group)
        if summaries is not SummaryUnit.NONE:
            _summarise(writer, vectors_of)
    if sealed:
        with engine(folder, segment_min_leaves=1) as opened:
            assert all(built.leaves for built in opened.administration().reindex())
    return vectors


def _summarise(writer: Writer, vectors_of: Mapping[str, Vectors]) -> None:
    """Summarises all documents.

    The vector of a summary is the mean of its leaves' vectors, normalised to length 1.
    """
    embedder = writer.open(TENANT, COLLECTION).settings.embedder
    while waiting := writer.next_unsummarised(embedder):
        vectors = vectors_of[waiting.document_id]
        unit = waiting.collection.settings.summaries
        section_ranges = sections(waiting.parsed, waiting.tree, _TREE.embedding_level, unit)
        ranges = [range(len(vectors)), *section_ranges]
        means = [vectors[leaves.start : leaves.stop].mean(axis=0) for leaves in ranges]
        summaries = tuple(
            Summary(f"Summary {number}", leaves) for number, leaves in enumerate(ranges)
        )
        writer.put_summaries(waiting, DocumentSummaries(summaries, _normalised(np.array(means))))


def raw_index(folder: Path) -> hnswlib.Index:
    """Returns the index of the store's only segment, loaded by hnswlib, with the service's ef."""
    with closing(environment.open_for_reading(folder)) as store:
        with store.read() as txn:
            number = find_collection(txn, TENANT, COLLECTION)
            (record,) = listed_segments(txn, number)
        index = vector_part.load_index(store.segments, record, record.items)
        index.set_ef(segment_files.search_ef(record.dimension, record.items))
        return index


def lexical_bytes(folder: Path, leaves: int) -> int:
    """Returns the size of the only segment's lexical index.

    The size is that of the postings and of the term count of each leaf.
    """
    (postings,) = folder.rglob(segment_files.POSTINGS)
    return postings.stat().st_size + _LENGTH_BYTES * leaves


@contextmanager
def view(folder: Path) -> Iterator[View]:
    """Opens the store and yields the view of its collection, which sources of candidates search.

    During the block, BLAS uses one thread.
    """
    with closing(environment.open_for_reading(folder)) as store:
        with store.read() as txn:
            number = find_collection(txn, TENANT, COLLECTION)
        loaded = LoadedCollection(store, number, VectorMemory(_UNLIMITED_BYTES))
        with store.read() as txn, threadpool_limits(1, "blas"):
            current = loaded.view_at(txn)
            assert current is not None
            yield current


def first_rows(leaf_count: int, leaves_each: int) -> list[int]:
    """Returns the row number of each document's first leaf.

    All documents are in the same segment, or all are in the tail.
    """
    counts = [body.leaf_count for body in _chosen_bodies(leaf_count, leaves_each)]
    return [0, *np.cumsum(counts)[:-1].tolist()]


def found_rows(result: SearchResult, first_rows: Sequence[int]) -> Rows:
    """Returns the row numbers of the leaves in the result of a STANDARD search, best first.

    `first_rows` is the result of the function with this name.
    """
    chunks = [passage.chunk for passage in result.passages]
    return np.array(
        [first_rows[int(chunk.document_id.rpartition("-")[2])] + chunk.index for chunk in chunks]
    )


def dense_query(vector: Sequence[float], mode: SearchMode = SearchMode.SMALL_TO_BIG) -> SearchQuery:
    """Returns a query by a vector alone, with the parameters of all dense benchmarks.

    Scores are cosines, because the neighbour bonus is 0. By default STANDARD has such a bonus.
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
    """Returns a query for the ten nearest leaves."""
    query = dense_query(vector, SearchMode.STANDARD)
    return replace(query, limit=10, candidates=candidates)


def recalls_at_10(
    folder: Path, vectors: Vectors, queries: Vectors, leaves_each: int
) -> NDArray[np.float64]:
    """Returns recall@10 of each query with DENSE_CANDIDATES: `float64[queries]`.

    `vectors` are the vectors of all leaves in the order of their labels.
    """
    starts = first_rows(len(vectors), leaves_each)
    with reading(folder) as reader:
        search = search_over(reader, vectors.shape[1])
        results = [found_rows(search(leaves_query(query), NEVER), starts) for query in queries]
    return recalls(results, nearest_10(vectors, queries))


def nearest_10(vectors: Vectors, queries: Vectors) -> list[Rows]:
    """Returns the ten nearest of `vectors` to each query, found by an exact scan.

    The results are indices into `vectors`, in no order. If one segment contains all vectors, they
    equal the row numbers and the index labels of that segment.
    """
    return [
        # Without a copy, the ranks of all vectors would stay in memory.
        row.copy()
        for part in np.array_split(queries, -(-len(queries) // _QUERIES_AT_ONCE))
        for row in np.argpartition(part @ vectors.T, -10, axis=1)[:, -10:]
    ]


def recalls(results: Sequence[Rows], exact: Sequence[Rows]) -> NDArray[np.float64]:
    """Returns the share of the ten nearest leaves that each query found: `float64[queries]`."""
    return np.array([len(np.intersect1d(*pair)) / 10 for pair in zip(results, exact, strict=True)])


@contextmanager
def reading(folder: Path, **settings: int | str) -> Iterator[Reader]:
    """Yields a reader with all segments loaded. BLAS has one thread, as in the services."""
    with engine(folder, **settings) as opened:
        reader = opened.reader()
        reader.preload()
        with threadpool_limits(1, "blas"):
            yield reader


def search_over(reader: Reader, dimension: int) -> Search:
    """Returns the retriever's search with default settings, built as its service builds it."""
    embedder = HashEmbedder(dimension)
    no_cache = CachedQueries(embedder, 0)
    return Search(reader, embedder, no_cache, DEFAULT_RETURN_LEVEL)
