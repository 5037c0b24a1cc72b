"""Ingest beside hnswlib's own `add_items` of the same vectors.

Committed means durable and searchable. Sealed means in a segment as well, its files summed
and synced. First with embeddings given, through the writer: each document a synced
transaction and then one sealing; and a stream as the service has it, several documents to a
transaction and the sealer at work beside. Then the whole pipeline through gRPC, texts and
all, with the stages it measures itself. Each round has a fresh store.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import numpy as np

from benchmarks import corpus
from benchmarks.report import interleaved, measured, ratio, seconds
from hrag.cli.processes import Services, free_addresses
from hrag.client import Client
from hrag.deadline import NEVER
from hrag.embedding.hashing import HashEmbedder
from hrag.engine.embedded.maintenance.worker import Sealer
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import environment as stores
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.tree import ParsedText
from hrag.types import Document, IngestResult, TreeSettings
from indexer_svc.chunker import build_tree

LEAVES = 8192  # What the indexer seals at once by default.
LEAVES_EACH = 100
DIMENSION = 384
SEED = 41
ROUNDS = 3

STREAMED = 3 * LEAVES + 600  # Three tails, and little that is too short to be sealed.
DOCUMENTS_AT_ONCE = 5  # Some 512 leaves, as the service commits them.
STREAM_ROUNDS = 2
LEAST_OF_ADD_ITEMS = 0.9
MOST_SEAL_S = 300

PIPED = 430  # Documents of 10 to 100 leaves.
LONGEST_SENTENCE = 300  # A leaf has several then.
SETTINGS = TreeSettings()
STAGES = ("extract", "cut", "embed", "commit")


def bare_add_items(vectors):
    index = segment_files.new_index(DIMENSION, len(vectors))
    index.add_items(vectors, num_threads=os.cpu_count())


def ingest_seconds(documents, *, seal):
    with TemporaryDirectory() as folder:
        store = stores.open_for_writing(Path(folder))
        try:
            writer, collection = corpus.create_collection(store, DIMENSION)

            def ingest():
                for document in documents:
                    writer.put(collection, document)
                if seal:
                    corpus.seal(store, collection)

            took = seconds(ingest)
            status = writer.status(collection)
            assert status.document_count == len(documents)
            assert len(status.embedded.segments) == seal
            return took
        finally:
            store.close()


def test_ingest_beside_add_items(report):
    documents, vectors = corpus.documents(LEAVES, LEAVES_EACH, DIMENSION, SEED)
    took = interleaved(
        [
            lambda _: seconds(lambda: bare_add_items(vectors)),
            lambda _: ingest_seconds(documents, seal=False),
            lambda _: ingest_seconds(documents, seal=True),
        ],
        ROUNDS,
    )
    report.of(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    of = f"{len(vectors):,} x {DIMENSION} in {len(documents)} documents"
    kinds = {
        "add_items": "bare add_items",
        "committed": "ingest, committed",
        "sealed": "ingest, committed and sealed",
    }
    for place, (key, what) in enumerate(kinds.items()):
        rate = measured(took[:, place], lambda rounds: len(vectors) / np.median(rounds))
        report.tell(f"ingest.{key}.rate", rate, f"{what}, {of}", "leaves/s", "higher")
    what = f"ingest, committed, to add_items, {of}"
    report.tell("ingest.committed.to_add_items", ratio(took, 0, 1), what, "x", "higher")
    what = f"ingest, committed and sealed, to add_items, {of}"
    report.at_least("ingest.sealed.to_add_items", ratio(took, 0, 2), what, "x", LEAST_OF_ADD_ITEMS)


def test_stream_beside_add_items(report):
    """A bar that is missed is told, and is no failure."""
    documents, vectors = corpus.documents(STREAMED, LEAVES_EACH, DIMENSION, SEED + 1)
    took = interleaved(
        [
            lambda _: seconds(lambda: bare_add_items(vectors)) / len(vectors),
            lambda _: stream_seconds_a_leaf(documents),
        ],
        STREAM_ROUNDS,
    )
    report.of(seed=SEED + 1, leaves=len(vectors), dimension=DIMENSION)
    what = f"a stream of {len(vectors):,} x {DIMENSION}, vectors given, sealed as it comes"
    tell_rate(report, "ingest.stream.add_items.rate", took[:, 0], f"{what}: add_items of the same")
    tell_rate(report, "ingest.stream.sealed.rate", took[:, 1], what)
    key, what = "ingest.stream.to_add_items", f"{what}, to add_items"
    report.at_least(key, ratio(took, 0, 1), what, "x", LEAST_OF_ADD_ITEMS)


def tell_rate(report, key, seconds_a_leaf, what):
    rate = measured(seconds_a_leaf, lambda rounds: 1 / np.median(rounds))
    report.tell(key, rate, what, "leaves/s", "higher")


def stream_seconds_a_leaf(documents):
    """Until the sealer has nothing to do; what is too short a tail to be sealed is not counted."""
    with TemporaryDirectory() as folder:
        store = stores.open_for_writing(Path(folder))
        sealer = Sealer(store, LEAVES)
        writer = EmbeddedWriter(store, sealer)
        _, collection = corpus.create_collection(store, DIMENSION)
        sealer.start()
        try:
            began = time.perf_counter()
            for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
                group = documents[start : start + DOCUMENTS_AT_ONCE]
                writer.wait_for_capacity(collection, NEVER)
                writer.put_many([(collection, document) for document in group])
            status = when_sealed(lambda: writer.status(collection))
            took = time.perf_counter() - began
            assert status.document_count == len(documents)
            return took / (status.leaf_count - status.embedded.tail_leaf_count)
        finally:
            sealer.close()
            store.close()


def when_sealed(status):
    """The status once the tail is too short to be sealed."""
    until = time.monotonic() + MOST_SEAL_S
    while (found := status()).embedded.tail_leaf_count >= LEAVES:
        assert time.monotonic() < until, found
        time.sleep(0.01)
    return found


# The whole pipeline


@dataclass(frozen=True, slots=True)
class Piped:
    """What became of a stream through gRPC; stages in seconds, which overlap."""

    durable_s: float
    sealed_s: float
    leaves: int
    sealed_leaves: int
    stages: dict[str, float]
    sealing_s: float
    cpu_s: float


def test_pipeline_beside_add_items(tmp_path, report):
    """Texts in, segments out. Told, for it has cutting and embedding in it as well."""
    documents = list(piped_documents())
    vectors = leaf_vectors(documents)
    runs = []

    def pipe(number):
        runs.append(piped(documents, tmp_path / str(number)))
        assert runs[-1].leaves == len(vectors)
        return runs[-1].sealed_s / runs[-1].sealed_leaves

    def bare(_):
        return seconds(lambda: bare_add_items(vectors)) / len(vectors)

    took = interleaved([bare, pipe], STREAM_ROUNDS)
    durable = np.array([run.durable_s / run.leaves for run in runs])
    took = np.column_stack([took[:, 0], durable, took[:, 1]])
    report.of(seed=SEED, leaves=len(vectors), dimension=DIMENSION)
    what = f"{PIPED} documents through gRPC, {len(vectors):,} x {DIMENSION}"
    tell_rate(report, "ingest.pipeline.add_items.rate", took[:, 0], f"{what}: add_items")
    for place, word in enumerate(("durable", "sealed"), 1):
        key = f"ingest.pipeline.{word}"
        tell_rate(report, f"{key}.rate", took[:, place], f"{what}: {word}")
        told = f"{what}: {word}, to add_items"
        report.tell(f"{key}.beside_add_items", ratio(took, 0, place), told, "x", "higher")
    last = runs[-1]
    for stage, took_s in {**last.stages, "sealing": last.sealing_s}.items():
        share = took_s / last.sealed_s
        told = f"{what}: {stage}, of the time until sealed; stages are beside each other"
        report.tell(f"ingest.pipeline.stage.{stage}", share, told, "share")
    cores = last.cpu_s / last.sealed_s
    report.tell("ingest.pipeline.cores", cores, f"{what}: cores that the indexer computed on", "x")


def piped_documents() -> Iterator[Document]:
    """Sentences of the manual in ever another order, so that no two leaves are alike."""
    random = np.random.default_rng(SEED)
    pieces = corpus.english_text(500_000).split(". ")
    sentences = [piece for piece in pieces if len(piece) < LONGEST_SENTENCE]
    for number in range(PIPED):
        chosen = random.integers(len(sentences), size=random.integers(70, 750)).tolist()
        yield Document(". ".join(sentences[place] for place in chosen), f"document-{number:06d}")


def leaf_vectors(documents):
    """What the indexer's embedder makes of them."""
    texts: list[str] = []
    for document in documents:
        leaves = build_tree(ParsedText(document.body), SETTINGS).level(SETTINGS.embedding_level)
        bounds = zip(leaves["char_start"].tolist(), leaves["char_end"].tolist(), strict=True)
        texts.extend(document.body[start:end] for start, end in bounds)
    assert len(set(texts)) == len(texts)
    return HashEmbedder(DIMENSION).embed(texts)


def piped(documents, folder) -> Piped:
    folder.mkdir()
    indexer, retriever, metrics = free_addresses(3)
    settings = {
        "HRAG_EMBEDDER": f"hash:{DIMENSION}",
        "HRAG_INDEXER_NICENESS": "0",
        "HRAG_INDEXER_METRICS_ADDRESS": metrics,
    }
    with (
        Services(folder / "data", indexer, retriever, logs=folder, settings=settings) as services,
        Client(indexer, retriever) as client,
    ):
        services.wait_until_serving(timeout_s=60)
        cpu_s = shown(metrics)["process_cpu_seconds_total"]
        began = time.perf_counter()
        results = list(client.ingest_many(corpus.TENANT, documents))
        durable_s = time.perf_counter() - began
        assert all(isinstance(result, IngestResult) for result in results)
        status = when_sealed(lambda: client.index_status(corpus.TENANT))
        sealed_s = time.perf_counter() - began
        figures = shown(metrics)
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


def shown(address) -> dict[str, float]:
    """What a service shows to Prometheus, by series."""
    with urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in series}
