"""Compares chunking at all four levels with tiktoken's encoding of the same text.

The target is for the ratio to `encode_ordinary`, which returns a list. The chunker itself calls
`encode_to_numpy`, which is faster. The ratio to `encode_to_numpy` is reported too.
"""

import numpy as np
import pytest

import hrag_fast
from benchmarks.corpus import chinese_text, english_text
from benchmarks.report import interleaved, measured, ratio, seconds
from hrag.text import tokens
from hrag.types import TreeSettings
from hrag.values.tree import ParsedText
from indexer_svc.chunker import build_tree
from tests import twins

MAX_RATIO = 1.5
SMALL, LARGE = 100_000, 10_000_000
ROUNDS = {SMALL: 41, LARGE: 3}
SEED = 11
CUTS = 1000
TEXTS = {"English": english_text, "Chinese": lambda size: chinese_text(size, SEED)}


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE], ids=["100KB", "10MB"])
@pytest.mark.parametrize("language", TEXTS)
def test_ratio_of_chunking_to_encoding(language, size_bytes, report):
    text = TEXTS[language](size_bytes)
    # This is also the warm-up.
    tree = build_tree(ParsedText(text), TreeSettings())
    assert tree.problems(TreeSettings().level_sizes) == []
    took = interleaved(
        [
            lambda _: seconds(lambda: build_tree(ParsedText(text), TreeSettings())),
            lambda _: seconds(lambda: tokens.encoding().encode_ordinary(text)),
            lambda _: seconds(lambda: tokens.encoding().encode_to_numpy(text)),
        ],
        ROUNDS[size_bytes],
    )
    report.parameters(seed=SEED, bytes=size_bytes)
    key = f"chunking.{language.lower()}.{size_bytes}"
    description = f"chunking {size_bytes / 1e6:g} MB of {language}"
    report.record(f"{key}.p50", measured(took[:, 0] * 1e3, np.median), f"{description}, p50", "ms")
    to_list, to_numpy = ratio(took, 0, 1), ratio(took, 0, 2)
    title = f"{description}, ratio to encode_ordinary"
    report.at_most(f"{key}.ratio_to_list", to_list, title, "x", MAX_RATIO)
    title = f"{description}, ratio to encode_to_numpy"
    report.record(f"{key}.ratio_to_numpy", to_numpy, title, "x", "lower")
    assert report.missed == []


@pytest.mark.parametrize("language", TEXTS)
def test_ratio_of_boundary_ranks_to_its_twin(language, report):
    text = TEXTS[language](SMALL).encode()
    ends = tokens.byte_ends(tokens.encode(text.decode()))[:CUTS]
    took = interleaved(
        [
            lambda _, kernels=kernels: seconds(lambda: kernels.boundary_ranks(text, ends))
            for kernels in (hrag_fast, twins)
        ],
        ROUNDS[SMALL],
    )
    report.parameters(seed=SEED, cuts=CUTS)
    description = f"boundary_ranks, speedup over its Python twin, {CUTS:,} cuts, {language}"
    key = f"kernels.boundary_ranks.{language.lower()}.ratio_to_twin"
    report.at_least(key, ratio(took, 1, 0), description, "x", target=1)
    assert report.missed == []
