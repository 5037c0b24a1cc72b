"""Embeds every text that any peer needs, once and outside all measurements."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.peers.vectors import DIMENSION, Vectors, key_of
from hrag.models.embedding.builtin import BuiltinEmbedder

_BATCH = 512


def embed_missing(texts: Iterable[str], path: Path) -> int:
    """Adds the missing vectors to the file; returns how many were missing.

    The file is written after each batch, so that an interrupted run keeps its work.
    """
    known = Vectors.load(path) if path.exists() else _none()
    missing = {key: text for text in texts if (key := key_of(text)) not in known}
    if missing:
        keys, wanted = list(missing), list(missing.values())
        embedder = BuiltinEmbedder()
        assert embedder.dimension == DIMENSION
        for start in range(0, len(wanted), _BATCH):
            part = slice(start, start + _BATCH)
            known = known.with_more(keys[part], embedder.embed(wanted[part]))
            known.save(path)
    return len(missing)


def _none() -> Vectors:
    return Vectors([], np.empty((0, DIMENSION), np.float32))
