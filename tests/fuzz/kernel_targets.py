"""Targets for fuzzing the compiled kernels: each reads damaged bytes with one kernel.

A target has valid bytes as seeds. It passes if the kernel returns or raises an error that its
documentation names. Arrays are copied to memory of exactly their size, so that AddressSanitizer
notices each read outside of them.
"""

import json
import os
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import hnswlib
import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from hrag.gateway.protojson.json_writer import write
from hrag.text.analysis.variants import variants
from hrag.v1 import retriever_pb2, types_pb2
from hrag.values.tree import CHUNK, NONE, ChunkRecord, Tree
from hrag_fast import (
    COUNT,
    BertEncoder,
    CitedDocument,
    DenseSearch,
    Folding,
    Graph,
    Groups,
    Int8Matrix,
    Matches,
    PassageDocument,
    PassageEncoder,
    Postings,
    Q4Matrix,
    SegmentVectors,
    SentenceEncoder,
    TermExtractor,
    TermMatcher,
    UnigramSegmenter,
    UnigramTokenizer,
    boundary_ranks,
    climb,
    encode_fields,
    fold,
    forward_matches,
    indexes_of,
    join_candidates,
    json_size,
    matched_sentence,
    merged_spans,
    postings_of,
    rows_of_documents,
    sentence_ends,
    split_vector,
    supported_paths,
    term_id,
    unit_vector,
    write_postings,
)
from tests import twins
from tests.support.documents.e5_files import blocks, floats
from tests.support.documents.fakes import sentences, unit_vectors
from tests.support.documents.lexical import forward
from tests.twins.analysis import in_utf8

_Array = NDArray[Any]
_PATHS = (*supported_paths(), "float32")
_ALPHABETS = (
    "ab .!?\n\r\t\f",
    "aé漢字。！한국ไทย \u3000",
    "\u00ad\u200d\u0301\ufb01\ufdfa\u1100\u1161\U0001f642",
    "c++ a@b.c 3.11-x_y/z",
)
_EXTREME = (0, 1, 2, 127, 255, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_DIMENSION = 8


@dataclass(frozen=True)
class Target:
    """A kernel to fuzz. `run` reads the damaged bytes; `draw` chooses the other arguments.

    `errors` are the errors that the kernel documents.
    """

    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes, random.Random], object]
    errors: tuple[type[Exception], ...] = (ValueError,)


def with_extreme_number(raw: bytes, draw: random.Random) -> bytes:
    """Returns bytes in which one aligned number of 4 or 8 bytes is replaced by an extreme one."""
    size = draw.choice((4, 8))
    if len(raw) < size:
        return raw
    at = draw.randrange(len(raw) // size) * size
    number = draw.choice((*_EXTREME, len(raw), len(raw) - 1)) * draw.choice((1, 1, -1))
    replaced = (number % 2 ** (8 * size)).to_bytes(size, "little")
    return raw[:at] + replaced + raw[at + size :]


def _array(data: bytes, dtype: Any) -> _Array:
    """Returns the whole numbers at the beginning of `data` as an array of exactly their size."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(data[: len(data) // width * width], dtype).copy()


def _numbers(draw: random.Random, dtype: Any, most: int, below: int = 300) -> _Array:
    """Returns up to `most` numbers; most of them are below `below`, and some are extreme."""
    highest = int(np.iinfo(dtype).max)
    count = draw.randint(0, most)
    numbers = [
        draw.randrange(below) if draw.random() < 0.97 else draw.choice(_EXTREME)
        for _ in range(count)
    ]
    return np.array([min(number, highest) for number in numbers], dtype)


def _reals(draw: random.Random, count: int) -> _Array:
    numbers = [
        draw.choice((0.0, 0.5, 1.0, draw.random(), float("nan"), 1e38, -1.0)) for _ in range(count)
    ]
    return np.array(numbers, np.float32)


def _text(draw: random.Random, most: int = 400) -> str:
    alphabet = draw.choice(_ALPHABETS)
    return "".join(draw.choices(alphabet, k=draw.randint(0, most)))


def _decoded(data: bytes, draw: random.Random) -> str:
    """Returns `data` as a text. Texts have code points of each width, and lone surrogates."""
    codec, errors = draw.choice(
        (
            ("latin-1", "strict"),
            ("utf-8", "replace"),
            ("utf-8", "surrogateescape"),
            ("utf-16-le", "replace"),
        )
    )
    return data.decode(codec, errors)


def _texts() -> list[bytes]:
    draw = random.Random(0)
    return [b"", sentences(9).encode(), *(_text(draw).encode() for _ in range(8))]


# Vectors.


@cache
def _indexes() -> list[bytes]:
    files = []
    for count, links in ((1, 2), (3, 2), (40, 4), (200, 16)):
        index = hnswlib.Index(space="ip", dim=_DIMENSION)
        index.init_index(max_elements=count, M=links, ef_construction=20)
        index.add_items(unit_vectors(count, seed=1, dimension=_DIMENSION), num_threads=1)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "index"
            index.save_index(str(path))
            files.append(path.read_bytes())
    return files


def _search_graph(data: bytes, draw: random.Random) -> None:
    graph = Graph(_array(data, np.uint8), draw.choice(_PATHS))
    query = _reals(draw, draw.choice((graph.dimension, graph.dimension, _DIMENSION)) % 4096)
    search = graph.search(query, draw.choice((0, 1, 10, 300)))
    search.nearest(draw.choice((0, 1, 5, 500)))
    search.nearest(draw.choice((0, 1, 5, 500)))
    items = _numbers(draw, np.uint32, 50, max(1, len(graph)))
    graph.best(query, items, draw.choice((0, 1, 10, 100)))
    graph.scores(query, items)


def _search_stored(data: bytes, draw: random.Random) -> None:
    """Searches a graph whose vectors stay in a file, and damages the file meanwhile."""

    def source(items: NDArray[np.uint32], _problem: str) -> NDArray[np.float32]:
        return _reals(draw, len(items) * draw.choice((graph.dimension, 1))).reshape(len(items), -1)

    ends = sorted(draw.choices(range(len(data) + 1), k=draw.choice((0, 1, 5))))
    blocks = [data[start:end] for start, end in pairwise((0, *ends, len(data)))]
    with TemporaryFile(buffering=0) as file:
        file.write(data)
        if draw.random() < 0.1:
            file.truncate(draw.randint(0, len(data)))
        graph = Graph(
            blocks,
            draw.choice(_PATHS),
            size_bytes=len(data) + draw.choice((0, 0, 0, 0, 1, -1)) if data else 0,
            descriptor=file.fileno(),
            source=draw.choice((None, source)),
        )
        query = _reals(draw, graph.dimension % 4096)
        search = graph.search(query, draw.choice((0, 1, 10, 300)))
        items = np.arange(len(graph), dtype=np.uint32)
        for _ in range(3):
            os.pwrite(file.fileno(), draw.randbytes(9), draw.randint(0, len(data)))
            if draw.random() < 0.3:
                file.truncate(draw.randint(0, len(data)))
            search.nearest(draw.choice((0, 1, 5, 500)))
            graph.best(query, items, draw.choice((0, 1, 10, 100)))
            graph.scores(query, items)


def _search_view(data: bytes, draw: random.Random) -> None:
    """Searches a segment, whose rows are drawn, and a tail, whose vectors are damaged bytes."""
    graph = Graph(_array(data, np.uint8), draw.choice(_PATHS))
    items, heads, members = np.arange(len(graph), dtype=np.uint32), *np.empty((2, 0), np.uint32)
    if draw.random() < 0.5:
        items = _numbers(draw, np.uint32, 50, max(1, len(graph)))
        members = np.argsort(items).astype(np.uint32)
        heads = np.searchsorted(items[members], np.arange(len(graph) + 1)).astype(np.uint32)
    if draw.random() < 0.1:
        heads, members = _numbers(draw, np.uint32, 9), _numbers(draw, np.uint32, 9)
    segment = SegmentVectors(graph, items, heads, members, draw.choice((0, 1, 10, 300)))
    columns = max(1, graph.dimension)
    tail = _array(data, np.float32)[: columns * 5].copy()
    tail = tail[: tail.size // columns * columns].reshape(-1, columns)
    count = len(items) + len(tail) + draw.choice((0, 0, 0, 1, -1))
    alive = np.array(draw.choices((0, 1, 255), k=max(count, 0) + 2), np.uint8)
    living = draw.choice((count // 2, count, count + 1)) if count > 0 else 0
    query = _reals(draw, draw.choice((columns, columns, _DIMENSION)) % 4096)
    search = DenseSearch(
        query, [segment], tail, alive, max(count, 0), living, draw.choice((0, 1, 33))
    )
    rows = draw.choice((None, _numbers(draw, np.uint32, 30, max(1, count))))
    if rows is not None and draw.random() < 0.9:
        rows = np.unique(rows)
    exact = draw.random() < 0.2
    search.nearest(draw.choice((1, 5, 500, 2**63)), rows, exact)
    labels = np.arange(alive.size, dtype=np.uint64)
    ancestors = np.zeros(alive.size, np.uint32)
    search.climb(draw.choice((1, 5, 500)), labels, ancestors, draw.randint(-1, COUNT + 1), rows)
    search.scores(np.unique(_numbers(draw, np.uint32, 20, max(1, count))))


# Terms.


@cache
def _lexical() -> list[bytes]:
    draw = random.Random(0)
    forms = []
    for count in (0, 1, 5, 300):
        rows = {
            row: {draw.randrange(1, 60): draw.randrange(1, 400) for _ in range(draw.randint(1, 9))}
            for row in range(0, count, 1 + count // 40)
        }
        forms.append(postings_of(*forward(rows, count)))
    return forms


# A segment is refused if its postings have another number of rows than its manifest. A search uses
# memory for each row, so postings with more rows than this are opened and not searched.
_MAX_SEARCHED_ROWS = 1_000_000


def _search_postings(data: bytes, draw: random.Random) -> None:
    postings = Postings(_array(data, np.uint8))
    rows = postings.rows
    if rows > _MAX_SEARCHED_ROWS:
        return
    ids = np.unique(_numbers(draw, np.uint64, 8, 60))
    alive = np.array(draw.choices((0, 1, 255), k=rows if rows < 10_000 else 5), np.uint8)
    postings.document_frequencies(ids, draw.choice((None, alive)))
    postings.rows_with_all(ids)
    lengths = np.full(min(rows, 10_000), 100, np.uint32)
    query = (ids, np.abs(_reals(draw, len(ids))) % 1, 0.3, 0.01, lengths)
    postings.best(*query, draw.choice((None, alive)), draw.choice((0, 1, 10, 1_000)))
    requested = np.unique(_numbers(draw, np.uint32, 20, max(1, rows)))
    postings.best_and_scores(*query, None, draw.choice((0, 1, 10)), requested)
    if draw.random() < 0.05 and rows < 10_000:
        _merge(postings, draw)


def _merge(postings: Postings, draw: random.Random) -> None:
    remap = np.arange(postings.rows, dtype=np.uint32)
    if draw.random() < 0.5 and remap.size:
        remap[draw.randrange(remap.size)] = draw.choice((0, 0xFFFFFFFF, 7))
    with TemporaryDirectory() as folder:
        write_postings(Path(folder) / "postings", [(postings, remap)])
        Postings(_array((Path(folder) / "postings").read_bytes(), np.uint8))


def _forward_forms() -> list[bytes]:
    starts, entries, _ = forward({0: {1: 2, 5: 1}, 2: {3: 9}, 7: {1: 1, 2: 2, 9: 3}}, 9)
    return [starts.tobytes() + entries.tobytes(), bytes(80)]


def _read_forward(data: bytes, draw: random.Random) -> None:
    middle = draw.choice((80, 8 * draw.randint(0, len(data) // 8)))
    starts, entries = _array(data[:middle], np.int64), _array(data[middle:], np.uint64)
    ids = np.unique(_numbers(draw, np.uint64, 8, 12))
    first, last = draw.choice((0, 0, 1, -1, 2**40)), draw.choice((9, len(starts) - 1, 0, 2**40))
    if draw.random() < 0.5:
        forward_matches(starts, entries, first, last, ids)
    else:
        postings_of(starts, entries, draw.choice((9, len(starts) - 1, 0, 2**29, -1)))


def _find_rows(data: bytes, draw: random.Random) -> None:
    labels = _array(data, np.uint64)
    ordinals = _numbers(draw, np.uint64, 20)
    rows_of_documents(labels, draw.choice((np.unique(ordinals), ordinals)))
    rows = _array(data, np.uint32)
    indexes_of(draw.choice((np.unique(rows), rows)), _numbers(draw, np.uint32, 20, 2**32))


def _labels() -> list[bytes]:
    labels = [document << 20 | leaf for document in (1, 5, 7, 2**40) for leaf in range(9)]
    return [np.array(labels, np.uint64).tobytes(), b""]


def _climb(data: bytes, draw: random.Random) -> None:
    labels = _array(data, np.uint64)
    rows = np.unique(_numbers(draw, np.uint32, 30, max(1, labels.size)))
    ancestors = _numbers(draw, np.uint32, 1).repeat(labels.size)[: labels.size]
    ancestors = (
        np.resize(ancestors, labels.size) if ancestors.size else np.zeros(labels.size, np.uint32)
    )
    alive = np.ones(draw.choice((labels.size, labels.size, 3)), np.uint8)
    climb(
        rows,
        np.nan_to_num(_reals(draw, rows.size)),
        labels,
        ancestors,
        alive,
        draw.randint(-1, COUNT + 1),
    )


def _join(data: bytes, draw: random.Random) -> None:
    rows = _array(data, np.uint32)
    term_rows, vector_rows = rows[: draw.randint(0, rows.size)], np.sort(rows)
    vector_rows = draw.choice((np.unique(rows), vector_rows))
    vector_rows = vector_rows[: draw.randint(0, vector_rows.size)]
    scores = np.zeros(draw.choice((vector_rows.size, vector_rows.size, 3)), np.float32)
    join_candidates(term_rows, np.zeros(term_rows.size, np.float32), vector_rows, scores, scores)


# Texts.

_EXTRACTORS = (
    TermExtractor(None),
    TermExtractor(in_utf8(lambda word: word[:3])),
    TermExtractor(lambda _: b""),
    TermExtractor(in_utf8(lambda word: word[:3]), folding=Folding.UNIFIED, variants=variants),
    TermExtractor(None, folding=Folding.TURKISH, variants=variants),
)


def _extract_terms(data: bytes, draw: random.Random) -> None:
    text, extractor = _decoded(data, draw), draw.choice(_EXTRACTORS)
    fold(text, single_spaces=draw.random() < 0.5)
    ids = extractor.word_ids(text)
    extractor.terms(text)
    extractor.leaf_terms([text, "", text])
    extractor.matches(text, ids[: draw.randint(0, ids.size)].copy())
    for token in extractor.tokens(text)[:9]:
        term_id(extractor.term(token))


def _cut(data: bytes, draw: random.Random) -> None:
    ends = _numbers(draw, np.uint32, 30, len(data) + 2)
    boundary_ranks(data, ends)
    boundary_ranks(data, np.arange(1, len(data) + 1, dtype=np.uint32))


def _matches(draw: random.Random, most: int = 30) -> Matches:
    starts = np.sort(_numbers(draw, np.uint32, most))
    widths = np.resize(np.array([1, 5, 9], np.uint32), starts.size)
    count = draw.choice((starts.size, starts.size, 3))
    return Matches(starts, starts + widths, np.resize(np.array([0, 1], np.uint32), count))


def _record(draw: random.Random, text: bytes) -> ChunkRecord:
    """Returns a record whose span is mostly inside the text."""
    start, end = sorted(draw.randint(0, len(text)) for _ in range(2))
    chars = len(text[:start].decode(errors="ignore")), len(text[:end].decode(errors="ignore"))
    extremes = [draw.choice(_EXTREME[:10]) for _ in range(5)]
    record = ChunkRecord(start, end, *chars, *extremes, draw.choice((0, 1, NONE)))
    if draw.random() < 0.2:
        at = draw.randrange(len(record))
        record = ChunkRecord(*record[:at], draw.choice(_EXTREME[:11]), *record[at + 1 :])
    return record


def _heading_end(_text: str, offset: int, _section: int) -> int:
    return offset + 3


def _cite(data: bytes, draw: random.Random) -> None:
    sections = np.sort(_numbers(draw, np.uint32, 5))
    arguments = (_array(data, np.uint8), _record(draw, data), sections, _heading_end)
    matched_sentence(*arguments, draw.choice((None, _matches(draw))), _reals(draw, 2))
    parts = [(draw.choice((0, 5, 2**31)), _matches(draw)) for _ in range(3)]
    merged_spans(parts, draw.choice((0, 7)), draw.choice((0, 90, 2**32 - 1)))


@cache
def _pieces() -> list[bytes]:
    def field(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2, len(content))) + content

    pieces = [
        (name, -float(at)) for at, name in enumerate(("a", "b", "ab", "漢", "\u2581", "\u2581a"))
    ]
    model = b"".join(
        field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18\x01")
        for name, score in pieces
    )
    rules = struct.pack("<I9I", 36, *range(1, 10)) + b"x\0yz\0"
    return [model, model + field(3, field(2, rules))]


def _tokenize(data: bytes, draw: random.Random) -> None:
    UnigramTokenizer(data).encode(
        [_text(draw, 80), "", "ab 漢a", "\udfff" if draw.random() < 0.1 else "x"]
    )


def _segment(data: bytes, draw: random.Random) -> None:
    texts = _array(data, np.uint8)
    ends = sorted(draw.sample(range(1, texts.size + 2), min(texts.size, draw.randint(1, 9))))
    starts = np.array([0, *ends[:-1], draw.choice((texts.size, 7))], np.uint32)
    segmenter = UnigramSegmenter(texts, starts, _reals(draw, len(ends)), draw.randint(-1, 3))
    segmenter.encode([_text(draw, 80), "", "ab 漢a", "\udfff" if draw.random() < 0.1 else "x"])


# Messages and passages.


@cache
def _messages() -> list[bytes]:
    response = retriever_pb2.SearchResponse(
        mode=retriever_pb2.SEARCH_MODE_CONTEXT, sequence=300, exhausted=True
    )
    passage = response.passages.add(score=0.5, merged_chunk_ids=["a", "b"])
    passage.chunk.content = 'Dogs "bark".\n\x01é漢'
    passage.chunk.metadata.update({"team": "zoo"})
    passage.term_spans.add(char_start=1, char_end=4)
    messages: list[Message] = [
        response,
        passage,
        passage.chunk,
        retriever_pb2.Vector(values=[1, 2.5]),
    ]
    return [message.SerializeToString() for message in messages]


_TYPES = (
    retriever_pb2.SearchResponse,
    retriever_pb2.Passage,
    types_pb2.Chunk,
    retriever_pb2.Vector,
    retriever_pb2.SearchRequest,
)


def _write_json(data: bytes, draw: random.Random) -> None:
    write(draw.choice(_TYPES), data)


def _requests() -> list[bytes]:
    request = retriever_pb2.SearchRequest(tenant_id="t", limit=5, min_sequence=2**40)
    request.vector.values.extend(_reals(random.Random(0), 9))
    return [request.SerializeToString()]


def _split_request(data: bytes, _: random.Random) -> None:
    """Fails if what is left of a request is not what protobuf reads in the whole request."""
    split = split_vector(data, 4, 3)
    if split is None:
        return
    rest, vector = split
    left, whole = retriever_pb2.SearchRequest(), retriever_pb2.SearchRequest()
    left.ParseFromString(rest)
    whole.ParseFromString(data)
    assert np.array(whole.vector.values, np.float32).tobytes() == vector.tobytes()
    whole.ClearField("vector")
    assert whole.SerializeToString() == left.SerializeToString()


def _encode_fields(data: bytes, draw: random.Random) -> None:
    values = (data, _decoded(data, draw), draw.choice((*_EXTREME, -1, 2**64)), (data, ""), None)
    encode_fields((*draw.sample(values, 4), *[len(data)] * draw.randint(0, 40)))


def _documents() -> list[bytes]:
    values = ({"a": [1, {}, []], "b": {"c": '"\\[{,'}}, [[[[1.5]], None], "\\u00e9漢"], [], "x")
    deep = b'{"a":' * 200 + b"[" * 200 + b"1,2" + b"]" * 200 + b"}" * 200
    return [*(json.dumps(value, ensure_ascii=False).encode() for value in values), deep]


def _count_json(data: bytes, _: random.Random) -> None:
    """Fails if Python's parser builds more values, or nests them deeper, than were counted."""
    values, depth = json_size(data)
    assert (values, depth) == twins.json_size(data)
    members = 0

    def count_members(pairs: list[tuple[str, Any]]) -> tuple[Any, ...]:
        nonlocal members
        members += len(pairs)
        return tuple(value for _, value in pairs)

    try:
        value = json.loads(data.decode(), object_pairs_hook=count_members)
    except (ValueError, RecursionError):
        assert members <= values
        return
    count = empty = levels = 0
    pending = [(value, 1)]
    while pending:
        value, level = pending.pop()
        if isinstance(value, list | tuple):
            count += len(value)
            empty += not value
            levels = max(levels, level)
            pending += ((inner, level + 1) for inner in value)
    assert (count + empty, levels) == (values, depth)


@cache
def _trees() -> list[bytes]:
    draw = random.Random(0)
    text = sentences(9).encode()
    levels = [[], [_record(draw, text) for _ in range(8)], [_record(draw, text) for _ in range(3)]]
    return [
        Tree.from_levels([np.array([*map(tuple, level)], CHUNK) for level in levels]).to_bytes()
    ]


def _encode_passage(data: bytes, draw: random.Random) -> None:
    leaves = _numbers(draw, np.uint32, 6, 8)
    starts = np.sort(_numbers(draw, np.uint32, 3, leaves.size + 1))
    if draw.random() < 0.5:
        starts = np.array([0, leaves.size], np.uint32)
    groups = Groups(
        (7 << 20) + _numbers(draw, np.uint64, starts.size, 9) % 2**21,
        _reals(draw, starts.size),
        starts,
        leaves,
        _reals(draw, leaves.size),
    )
    labels = np.array([7 << 20 | at for at in (0, 1, 2, 5, 7, 2**19, 3, 4)], np.uint64)
    cited = CitedDocument(
        types_pb2.Chunk(document_id="d").SerializeToString(),
        b"d",
        lambda section: ("one", "two")[: section % 3],
        [1, 2],
        [0, 30],
        sorted(draw.sample(range(200), 2)),
        draw.choice((None, _heading_end)),
    )
    ids = np.sort(np.array([term_id(word) for word in ("a", "ab", "the", "漢", "漢字")], np.uint64))
    terms = TermMatcher(draw.choice(_EXTRACTORS), ids, _reals(draw, ids.size))
    encoder = PassageEncoder(
        labels, groups, 1, terms=draw.choice((None, terms)), spans=draw.random() < 0.5
    )
    text = _array(draw.choice((sentences(9).encode(), _text(draw).encode())), np.uint8)
    document = PassageDocument(
        cited, _array(data, np.uint8), text, draw.choice((None, bytearray(draw.randrange(3)))), 64
    )
    if draw.random() < 0.5:
        merged = {7 << 20: ((draw.choice((2, 1, 0, 9)), draw.choice((0, 1, 2**31))), None)}
        encoder.passages(
            draw.choice((2, 1, 1, 9)),
            draw.choice(({}, merged)),
            draw.choice((0, 1, 3, 100)),
            draw.random() < 0.2,
            lambda _ordinal: document,
            lambda _ordinal, _start, _end: None,
            max_bytes=draw.choice((10, 2**20)),
        )
        return
    record = _record(draw, text.tobytes()) if draw.random() < 0.3 else None
    encoder.passage(
        document,
        draw.choice((2, 2, 2, 2, 2, 1, 0, 9)),
        draw.choice((0, 1, 2, 0, 1, 2, 9, 2**31)),
        draw.choice((0, 0, 0, 1, 3)),
        record,
        [(draw.randrange(3), draw.randrange(9))],
        draw.choice((10, 2**20, 2**20, 2**20)),
    )


# The embedding models.


@cache
def _encoder() -> SentenceEncoder:
    random_ = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Int8Matrix:
        return Int8Matrix(random_.integers(-20, 20, (rows, columns), np.int8), 0.001)

    shapes = {"cnn_W": (1280, 512), "d0": (512, 320), "p1": (512, 320), "d1": (320, 320)}
    shapes |= {"d2": (320, 512), "p3": (320, 512), "d3": (512, 512)}
    sizes = {"ln_g": 1280, "ln_b": 1280, "cnn_b": 512}
    for order in (2, 3, 5):
        shapes |= {f"proj{order}": (512, 256)}
        shapes |= {f"w{number}_{order}": (256 * order, 256) for number in (1, 2)}
        names = (f"proj_b{order}", f"b1_{order}", f"b2_{order}", f"ln_g{order}", f"ln_b{order}")
        sizes |= dict.fromkeys(names, 256)
    weights: dict[str, Any] = {name: matrix(*shape) for name, shape in shapes.items()}
    weights |= {name: np.ones(size, np.float32) for name, size in sizes.items()}
    table = random_.integers(0, 255, (300, 512), np.uint8)
    return SentenceEncoder(table, np.full(2, 0.01, np.float32), np.full(2, -1, np.float32), weights)


def _encode_tokens(data: bytes, draw: random.Random) -> None:
    if draw.random() < 0.5:
        codes = _array(data, np.int8)
        depth = draw.choice((2, 4, 6))
        codes = codes[: codes.size // (32 * depth) * 32 * depth]
        matrix = Int8Matrix(codes.reshape(depth, -1).copy(), 0.5, draw.choice(supported_paths()))
        rows = draw.randint(0, 5)
        matrix.products(np.resize(np.array([-32768, 32767, 5], np.int16), (rows, depth)))
        return
    ids = _array(data[:400], np.int32)
    starts = np.array(sorted({0, ids.size, draw.randint(0, 100)}), np.int64)
    _encoder().encode(ids, starts)


def _tokens() -> list[bytes]:
    draw = random.Random(0)
    ids = [np.array(draw.choices(range(300), k=k), np.int32).tobytes() for k in (1, 3, 40)]
    return [*ids, bytes(range(256)) * 2]


@cache
def _bert_encoder() -> BertEncoder:
    random_ = np.random.default_rng(0)
    weights: dict[str, Any] = {
        f"{name}0": Q4Matrix(blocks(random_, columns, depth, 0.05), floats(random_, columns))
        for name, depth, columns in (
            *(("attention", 64, 192), ("output", 64, 64)),
            *(("inner", 64, 96), ("outer", 96, 64)),
        )
    }
    names = ("output_gains0", "output_biases0", "outer_gains0", "outer_biases0")
    weights |= {name: floats(random_, 64) for name in ("type", "gains", "biases", *names)}
    positions = floats(random_, 40 * 64).reshape(40, 64)
    return BertEncoder(blocks(random_, 300, 64, 0.1), positions, weights, 1, 1e-12)


def _encode_bert(data: bytes, draw: random.Random) -> None:
    if draw.random() < 0.5:
        packed = _array(data, np.uint8)
        packed = packed[: packed.size // (16 * 18) * 16 * 18].reshape(16, -1, 18).copy()
        matrix = Q4Matrix(packed, _reals(draw, 16), draw.choice(supported_paths()))
        rows = draw.randint(0, 14)
        matrix.products(_reals(draw, rows * matrix.shape[0]).reshape(rows, matrix.shape[0]))
        return
    ids = _array(data[:400], np.int32)
    starts = np.array(sorted({0, ids.size, draw.randint(0, 100)}), np.int64)
    _bert_encoder().encode(ids, starts)


@cache
def _vectors() -> list[bytes]:
    return [unit_vectors(1, 0, count).tobytes() for count in (1, 9, 300)]


_INDEX_ERRORS = (ValueError, IndexError)
TARGETS: dict[str, Target] = {
    "analysis": Target(_texts, _extract_terms, (UnicodeError,)),
    "bert_encoder": Target(lambda: [*_tokens(), bytes(range(256)) * 9], _encode_bert),
    "boundaries": Target(_texts, _cut, (IndexError,)),
    "cited": Target(_texts, _cite, _INDEX_ERRORS),
    "climb": Target(_labels, _climb, _INDEX_ERRORS),
    "encode_fields": Target(_texts, _encode_fields, (UnicodeError, OverflowError)),
    "dense": Target(_indexes, _search_view, _INDEX_ERRORS),
    "forward": Target(_forward_forms, _read_forward, (ValueError, OverflowError, MemoryError)),
    "graph": Target(_indexes, _search_graph, _INDEX_ERRORS),
    "join_candidates": Target(_labels, _join),
    "json_scan": Target(_documents, _count_json, ()),
    "passages": Target(_trees, _encode_passage, (ValueError, IndexError, OverflowError)),
    "postings": Target(_lexical, _search_postings, _INDEX_ERRORS),
    "protojson": Target(_messages, _write_json, (ValueError, DecodeError)),
    "rows": Target(_labels, _find_rows, _INDEX_ERRORS),
    "sentence_encoder": Target(_tokens, _encode_tokens),
    "sentences": Target(_texts, lambda data, draw: sentence_ends(_decoded(data, draw)), ()),
    "split_vector": Target(_requests, _split_request, (DecodeError,)),
    "segmenter": Target(_texts, _segment, (ValueError, UnicodeError, OverflowError)),
    "stored_vectors": Target(_indexes, _search_stored, (*_INDEX_ERRORS, OSError)),
    "unit_vector": Target(_vectors, lambda data, _draw: unit_vector(_array(data, np.float32))),
    "unigram": Target(_pieces, _tokenize, (ValueError, UnicodeError)),
}
