"""Rows of terms for tests of lexical search, as the arrays that the lexical kernels read."""

import numpy as np

# A remap has this value for each row that `write_postings` must drop.
DROPPED = 0xFFFFFFFF


def forward(rows, count):
    """Returns the forward form of `count` rows: the arrays starts and entries, and `count`.

    Row i has `entries[starts[i]:starts[i + 1]]`; an entry is `term_id << 8 | frequency`.
    `rows` maps each row that has terms to a dictionary from term id to frequency.
    """
    sizes = np.zeros(count + 1, np.int64)
    for row, terms in rows.items():
        sizes[row + 1] = len(terms)
    entries = [
        term << 8 | min(frequency, 255)
        for _, terms in sorted(rows.items())
        for term, frequency in sorted(terms.items())
    ]
    return np.cumsum(sizes), np.array(entries, np.uint64), count


def query(terms, lengths=None, *, rows=0, norm_base=0.3, norm_per_term=0.9 / 120):
    """Returns the first five arguments of `Postings.best`. `terms` maps term ids to weights."""
    ids, weights = zip(*sorted(terms.items()), strict=True) if terms else ((), ())
    if lengths is None:
        lengths = np.full(rows, 100)
    return (
        np.array(ids, np.uint64),
        np.array(weights, np.float32),
        norm_base,
        norm_per_term,
        np.asarray(lengths, np.uint32),
    )


def zipf_rows(count, *, seed=0, vocabulary=5000, shortest=20, longest=160):
    """Returns starts, entries and lengths of `count` random rows.

    The frequencies of terms follow Zipf's law, as in a natural language. A length counts the terms
    of a row, with repetitions.
    """
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest, longest, count)
    shares = np.cumsum(1 / np.arange(1, vocabulary + 1))
    terms = np.searchsorted(shares, random.random(lengths.sum()) * shares[-1])
    rows = np.repeat(np.arange(count), lengths)
    keys, frequencies = np.unique(rows * vocabulary + terms, return_counts=True)
    entries = (keys % vocabulary).astype(np.uint64) << np.uint64(8)
    entries |= np.minimum(frequencies, 255).astype(np.uint64)
    starts = np.searchsorted(keys // vocabulary, np.arange(count + 1)).astype(np.int64)
    return starts, entries, lengths.astype(np.uint32)
