"""Embeds every text that any peer will ask for, once and outside all measures."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.peers.vectors import DIMENSION, Vectors, key_of
from hrag.embedding.builtin import BuiltinEmbedder

_AT_ONCE = 512


def embed_missing(texts: Iterable[str], path: Path) -> int:
    """Adds to the file of vectors those it lacks; returns how many those were.

    The file is written as it grows, so that a run that is stopped has not worked in vain.
    """
    known = Vectors.load(path) if path.exists() else _none()
    missing = {key: text for text in texts if (key := key_of(text)) not in known}
    if missing:
        keys, wanted = list(missing), list(missing.values())
        embedder = BuiltinEmbedder()
        assert embedder.dimension == DIMENSION
        for start in range(0, len(wanted), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            known = known.with_more(keys[part], embedder.embed(wanted[part]))
            known.save(path)
    return len(missing)


def _none() -> Vectors:
    return Vectors([], np.empty((0, DIMENSION), np.float32))
