"""Ingest with embeddings given, beside hnswlib's own `add_items` of the same vectors.

Committed means durable and searchable: each document is one synced transaction. Sealed
means in a segment as well, its files summed and synced. Each round has a fresh store.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import corpus
from benchmarks.report import interleaved, measured, ratio, seconds
from hrag.engine.embedded import segments
from hrag.engine.embedded import store as stores

LEAVES = 8192  # What the indexer seals at once by default.
LEAVES_EACH = 100
DIMENSION = 384
SEED = 41
ROUNDS = 3
LEAST_SEALED = 0.9


def bare_add_items(vectors):
    index = segments.new_index(DIMENSION, len(vectors))
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
            assert len(status.segments) == seal
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
    report.at_least("ingest.sealed.to_add_items", ratio(took, 0, 2), what, "x", LEAST_SEALED)
