"""Compares ingest with hnswlib's `add_items` of the same vectors.

"Committed" means durable and searchable. "Sealed" means also in a segment, whose files have
checksums and are synced.

In the first benchmarks vectors are given, and the writer is called directly. Documents are
committed one by one, as single calls do, or several in a synced transaction, as a stream does, and
there is one seal at the end. The next benchmark measures a stream while the maintenance worker
runs. The last benchmark measures the whole pipeline through gRPC, from texts to segments, with the
stage times that the indexer reports. Each round has a new store.

`add_items` does not index words. So each comparison with it names whether the collection has a
lexical index.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import hnswlib
import numpy as np
import pytest

from benchmarks import corpus
from benchmarks.report import interleaved, measured, ratio, seconds
from hrag.cli.processes import ServiceProcesses, free_addresses
from hrag.client import Client
from hrag.engine.embedded.maintenance import build_plan, segment_build
from hrag.engine.embedded.segments import vector_part
from hrag.engine.embedded.store import environment
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import Document, IngestResult, TreeSettings
from hrag.values.deadline import NEVER
from hrag.values.tree import ParsedText
from indexer_svc.chunker import build_tree

pytestmark = pytest.mark.timeout(600)

LEAVES = 8192  # The default of HRAG_SEGMENT_MIN_LEAVES.
LEAVES_EACH = 100
DIMENSION = 384
SEED = 41
ROUNDS = 3

# A stream fills the tail three times, and then 600 leaves remain unsealed.
STREAMED = 3 * LEAVES + 600
# Five documents have about 512 leaves, and the service commits about 512 leaves in a transaction.
DOCUMENTS_AT_ONCE = 5
STREAM_ROUNDS = 2
MIN_RATIO = 0.9
MIN_RATIO_TO_WITHOUT_WORDS = 0.85
WORD_ROUNDS = 4
# The analyzer of a collection that has no lexical index.
WITHOUT_WORDS = ""
MAX_SEAL_S = 300

# This many documents have one leaf each.
SHORT = 2000
# A stream commits at most this many documents together.
SHORT_AT_ONCE = 64
MAX_SHORT_CPU_MS = 0.3

# This many documents have 10 to 100 leaves each.
PIPED = 430
# Sentences are shorter than this many characters, so that a leaf has several of them.
MAX_SENTENCE = 300
SETTINGS = TreeSettings()
STAGES = ("extract", "cut", "embed", "commit")


def add_items(vectors):
    """Builds hnswlib's index alone, on all cores.

    hnswlib's default parameters are those of segments.
    """
    index = hnswlib.Index(vector_part.SPACE, DIMENSION)
    index.init_index(len(vectors))
    index.add_items(vectors, num_threads=os.cpu_count())


def ingest_seconds(documents, *, seal, analyzer=WITHOUT_WORDS, at_once=DOCUMENTS_AT_ONCE):
    """Returns the seconds to commit all documents and, if `seal`, to seal the tail.

    A transaction commits `at_once` documents.
    """
    with (
        TemporaryDirectory() as folder,
        closing(environment.open_for_writing(Path(folder))) as store,
    ):
        writer = EmbeddedWriter(store)
        collection = corpus.create_collection(writer, DIMENSION, analyzer=analyzer)

        def ingest():
            put_in_groups(writer, collection, documents, at_once)
            if seal:
                plan = build_plan.seal_plan(store, collection.collection_id, threshold=1)
                segment_build.build(store, plan)

        took = seconds(ingest)
        status = writer.status(collection)
        assert status.document_count == len(documents)
        assert len(status.embedded.segments) == seal
        return took


def put_in_groups(writer, collection, documents, at_once):
    for start in range(0, len(documents), at_once):
        group = documents[start : start + at_once]
        writer.wait_for_capacity(collection, NEVER)
        writer.put_many([(collection, document) for document in group])


def test_ingest_beside_add_items(report):
    prepared, vectors = corpus.documents(LEAVES, LEAVES_EACH, DIMENSION, SEED)
    documents = list(prepared)
    took = interleaved(
        [
            lambda _: seconds(lambda: add_items(vectors)),
            lambda _: ingest_seconds(documents, seal=False, at_once=1),
            lambda _: ingest_seconds(documents, seal=True),
        ],
        ROUNDS,
    )
    report.parameters(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    size = f"{len(vectors):,} x {DIMENSION} in {len(documents)} documents"
    kinds = {
        "add_items": "add_items alone",
        "committed": "ingest, each document committed by itself",
        "sealed": "ingest, committed as in a stream, and sealed",
    }
    for column, (key, description) in enumerate(kinds.items()):
        rate = measured(took[:, column], lambda rounds: len(vectors) / np.median(rounds))
        report.record(f"ingest.{key}.rate", rate, f"{description}, {size}", "leaves/s", "higher")
    description = f"ingest, each document committed by itself, ratio to add_items, {size}"
    report.record(
        "ingest.committed.ratio_to_add_items", ratio(took, 0, 1), description, "x", "higher"
    )
    description = f"ingest, committed as in a stream, and sealed, ratio to add_items, {size}"
    report.at_least(
        "ingest.sealed.ratio_to_add_items", ratio(took, 0, 2), description, "x", MIN_RATIO
    )


def test_ingest_with_and_without_the_lexical_index(report):
    """Times an ingest with given vectors until all leaves are sealed.

    Each document has different words.
    """
    prepared, vectors = corpus.documents(LEAVES, LEAVES_EACH, DIMENSION, SEED, varied=True)
    documents = list(prepared)

    def ingest(analyzer, _):
        return ingest_seconds(documents, seal=True, analyzer=analyzer)

    took = interleaved(
        [partial(ingest, analyzer) for analyzer in (WITHOUT_WORDS, corpus.ANALYZER)], WORD_ROUNDS
    )
    report.parameters(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    description = f"ingest, committed and sealed, varied texts, {len(vectors):,} x {DIMENSION}"
    for column, (key, title) in enumerate(
        (("without_words", "without the lexical index"), ("with_words", "with it"))
    ):
        per_leaf = took[:, column] / len(vectors)
        record_rate(report, f"ingest.lexical.{key}.rate", per_leaf, f"{description}, {title}")
    description = f"{description}: with the lexical index, ratio to without"
    target = MIN_RATIO_TO_WITHOUT_WORDS
    report.at_least("ingest.lexical.ratio_to_without", ratio(took, 0, 1), description, "x", target)
    assert report.missed == []


def test_processor_time_of_a_short_document(report):
    """Documents have one leaf and given vectors. A commit has as many documents as in a stream."""
    prepared, vectors = corpus.documents(SHORT, 1, DIMENSION, SEED)
    documents = list(prepared)
    took = interleaved([lambda _: commit_cpu_ms(documents)], ROUNDS)
    report.parameters(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    description = (
        f"{SHORT:,} documents of one leaf, vectors given, {SHORT_AT_ONCE} a commit: processor"
    )
    cpu_ms = measured(took[:, 0], np.median)
    report.at_most("ingest.short.cpu", cpu_ms, f"{description}, a document", "ms", MAX_SHORT_CPU_MS)
    assert report.missed == []


def commit_cpu_ms(documents):
    """Returns the milliseconds of processor time per document to commit all documents.

    The time in the operating system's kernel is included.
    """
    with (
        TemporaryDirectory() as folder,
        closing(environment.open_for_writing(Path(folder))) as store,
    ):
        writer = EmbeddedWriter(store)
        collection = corpus.create_collection(writer, DIMENSION)
        began = time.process_time()
        put_in_groups(writer, collection, documents, SHORT_AT_ONCE)
        took = time.process_time() - began
        assert writer.status(collection).document_count == len(documents)
        return took / len(documents) * 1e3


def test_stream_beside_add_items(report):
    """Measures streams with and without a lexical index. Each document has different words.

    A missed target is reported; it does not fail the run.
    """
    prepared, vectors = corpus.documents(STREAMED, LEAVES_EACH, DIMENSION, SEED + 1, varied=True)
    documents = list(prepared)
    took = interleaved(
        [
            lambda _: seconds(lambda: add_items(vectors)) / len(vectors),
            lambda _: stream_seconds_a_leaf(documents, WITHOUT_WORDS),
            lambda _: stream_seconds_a_leaf(documents, corpus.ANALYZER),
        ],
        STREAM_ROUNDS,
    )
    report.parameters(seed=SEED + 1, leaves=len(vectors), dimension=DIMENSION)
    description = f"stream of {len(vectors):,} x {DIMENSION}, vectors given, sealed meanwhile"
    record_rate(
        report, "ingest.stream.add_items.rate", took[:, 0], f"{description}: add_items alone"
    )
    for column, (kind, key) in enumerate(
        (("without a lexical index", "stream"), ("with a lexical index", "stream_with_words")), 1
    ):
        title = f"{description}, {kind}"
        record_rate(report, f"ingest.{key}.sealed.rate", took[:, column], title)
        report.at_least(
            f"ingest.{key}.ratio_to_add_items",
            ratio(took, 0, column),
            f"{title}, ratio to add_items",
            "x",
            MIN_RATIO,
        )


def record_rate(report, key, seconds_a_leaf, description):
    """Records a rate in leaves a second. `seconds_a_leaf` is `float64[rounds]`."""
    rate = measured(seconds_a_leaf, lambda rounds: 1 / np.median(rounds))
    report.record(key, rate, description, "leaves/s", "higher")


def stream_seconds_a_leaf(documents, analyzer):
    """Returns the seconds per sealed leaf of a stream.

    The clock stops when the rest of the tail is too short to be sealed.
    """
    with (
        TemporaryDirectory() as folder,
        corpus.engine(Path(folder), segment_min_leaves=LEAVES) as engine,
    ):
        writer = engine.writer()
        collection = corpus.create_collection(writer, DIMENSION, analyzer=analyzer)
        engine.maintenance().start()
        began = time.perf_counter()
        put_in_groups(writer, collection, documents, DOCUMENTS_AT_ONCE)
        status = when_sealed(lambda: writer.status(collection))
        took = time.perf_counter() - began
        assert status.document_count == len(documents)
        return took / (status.leaf_count - status.embedded.tail_leaf_count)


def when_sealed(read_status):
    """Waits until the tail is too short to be sealed; returns the status then.

    Calls `read_status` again and again.
    """
    deadline = time.monotonic() + MAX_SEAL_S
    while (latest := read_status()).embedded.tail_leaf_count >= LEAVES:
        assert time.monotonic() < deadline, latest
        time.sleep(0.01)
    return latest


# These functions measure the whole pipeline.


@dataclass(frozen=True, slots=True)
class Piped:
    """The figures of one stream through gRPC. `stages` are in seconds, and they overlap."""

    durable_s: float
    sealed_s: float
    leaves: int
    sealed_leaves: int
    stages: dict[str, float]
    seal_s: float
    cpu_s: float


def test_pipeline_beside_add_items(tmp_path, report):
    """Measures the pipeline from texts to segments.

    There is no target, because the time includes chunking and embedding.
    """
    documents = list(piped_documents())
    vectors = leaf_vectors(documents)
    runs = []

    def pipe(number):
        runs.append(piped(documents, tmp_path / str(number)))
        assert runs[-1].leaves == len(vectors)
        return runs[-1].sealed_s / runs[-1].sealed_leaves

    def alone(_):
        return seconds(lambda: add_items(vectors)) / len(vectors)

    took = interleaved([alone, pipe], STREAM_ROUNDS)
    durable = np.array([run.durable_s / run.leaves for run in runs])
    took = np.column_stack([took[:, 0], durable, took[:, 1]])
    report.parameters(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    description = f"{PIPED} documents through gRPC, {len(vectors):,} x {DIMENSION}"
    record_rate(
        report, "ingest.pipeline.add_items.rate", took[:, 0], f"{description}: add_items alone"
    )
    for column, word in enumerate(("durable", "sealed"), 1):
        key = f"ingest.pipeline.{word}"
        record_rate(report, f"{key}.rate", took[:, column], f"{description}: {word}")
        title = f"{description}: {word}, ratio to add_items"
        report.record(f"{key}.ratio_to_add_items", ratio(took, 0, column), title, "x", "higher")
    last = runs[-1]
    for stage, took_s in {**last.stages, "seal": last.seal_s}.items():
        share = took_s / last.sealed_s
        title = f"{description}: {stage}, share of the time until sealed; stages overlap"
        report.record(f"ingest.pipeline.stage.{stage}", share, title, "share")
    cores = last.cpu_s / last.sealed_s
    report.record("ingest.pipeline.cores", cores, f"{description}: cores used by the indexer", "x")


def piped_documents() -> Iterator[Document]:
    """Yields documents of random sentences of the manual, so that no two leaves are equal."""
    random = np.random.default_rng(SEED)
    pieces = corpus.english_text(500_000).split(". ")
    sentences = [piece for piece in pieces if len(piece) < MAX_SENTENCE]
    for number in range(PIPED):
        chosen = random.integers(len(sentences), size=random.integers(70, 750)).tolist()
        yield Document(". ".join(sentences[index] for index in chosen), f"document-{number:06d}")


def leaf_vectors(documents):
    """Returns the vectors that the indexer computes: `float32[leaves, dimension]`."""
    texts: list[str] = []
    for document in documents:
        leaves = build_tree(ParsedText(document.body), SETTINGS).level(SETTINGS.embedding_level)
        bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
        texts.extend(document.body[start:end] for start, end in bounds)
    assert len(set(texts)) == len(texts)
    return HashEmbedder(DIMENSION).embed(texts)


def piped(documents, folder) -> Piped:
    """Ingests the documents through gRPC into a new store; returns the figures."""
    folder.mkdir()
    indexer, retriever, metrics = free_addresses(3)
    settings = {
        "HRAG_EMBEDDER": f"hash:{DIMENSION}",
        "HRAG_INDEXER_NICENESS": "0",
        "HRAG_SEGMENT_MIN_LEAVES": str(LEAVES),
        "HRAG_INDEXER_METRICS_ADDRESS": metrics,
    }
    with (
        ServiceProcesses(
            folder / "data", indexer, retriever, logs=folder, settings=settings
        ) as services,
        Client(indexer, retriever) as client,
    ):
        services.wait_until_serving(timeout_s=60)
        cpu_s = metrics_of(metrics)["process_cpu_seconds_total"]
        began = time.perf_counter()
        results = list(client.ingest_many(corpus.TENANT, documents))
        durable_s = time.perf_counter() - began
        assert all(isinstance(result, IngestResult) for result in results)
        status = when_sealed(lambda: client.index_status(corpus.TENANT))
        sealed_s = time.perf_counter() - began
        figures = metrics_of(metrics)
    return Piped(
        durable_s,
        sealed_s,
        status.leaf_count,
        status.leaf_count - status.embedded.tail_leaf_count,
        {name: figures[f'hrag_ingest_stage_seconds_sum{{stage="{name}"}}'] for name in STAGES},
        sum(
            figures.get(f'hrag_segment_build_seconds_sum{{kind="{kind}"}}', 0)
            for kind in ("tail", "merge")
        ),
        figures["process_cpu_seconds_total"] - cpu_s,
    )


def metrics_of(address) -> dict[str, float]:
    """Returns a service's Prometheus metrics by series."""
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in series}
