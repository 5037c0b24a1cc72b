"""Embeds every text that any peer needs, once and outside of all measurements."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.peers.vectors import DIMENSION, Vectors, key_of
from hrag.models.embedding.builtin import BuiltinEmbedder

_BATCH = 512


def embed_missing(texts: Iterable[str], path: Path) -> int:
    """Adds the missing vectors to the file; returns how many were missing.

    The file is written after each batch, so an interrupted run loses only its last batch.
    """
    known = Vectors.load(path) if path.exists() else _no_vectors()
    missing = {key: text for text in texts if (key := key_of(text)) not in known}
    if missing:
        keys, missing_texts = list(missing), list(missing.values())
        embedder = BuiltinEmbedder()
        assert embedder.dimension == DIMENSION
        for start in range(0, len(missing_texts), _BATCH):
            part = slice(start, start + _BATCH)
            known = known.with_more(keys[part], embedder.embed(missing_texts[part]))
            known.save(path)
    return len(missing)


def _no_vectors() -> Vectors:
    return Vectors([], np.empty((0, DIMENSION), np.float32))
