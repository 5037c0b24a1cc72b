"""Chunking all four levels beside what tiktoken alone takes to encode the same text.

The baseline is `encode_ordinary`, which gives a list. `encode_to_numpy`, which the
chunker itself uses, is the stricter comparison and is printed as well.
"""

import numpy as np
import pytest

import hrag_fast
from benchmarks.corpus import chinese_text, english_text
from benchmarks.report import at_most, interleaved, seconds, tell
from hrag import tokens
from hrag.tree import ParsedText
from hrag.types import TreeSettings
from hrag_fast import _reference
from indexer_svc.chunker import build_tree

MOST_OF_TIKTOKEN = 1.5
SMALL, LARGE = 100_000, 10_000_000
ROUNDS = {SMALL: 41, LARGE: 3}
SEED = 11
CUTS = 1000
TEXTS = {"English": english_text, "Chinese": lambda size: chinese_text(size, SEED)}


@pytest.mark.parametrize("size_bytes", [SMALL, LARGE], ids=["100KB", "10MB"])
@pytest.mark.parametrize("language", TEXTS)
def test_ratio_of_chunking_to_encoding(language, size_bytes, capsys):
    text = TEXTS[language](size_bytes)
    tree = build_tree(ParsedText(text), TreeSettings())  # Also warms up.
    assert tree.problems(TreeSettings().level_sizes) == []
    took = interleaved(
        [
            lambda _: seconds(lambda: build_tree(ParsedText(text), TreeSettings())),
            lambda _: seconds(lambda: tokens.encoding().encode_ordinary(text)),
            lambda _: seconds(lambda: tokens.encoding().encode_to_numpy(text)),
        ],
        ROUNDS[size_bytes],
    )
    to_list, to_numpy = np.median(took[:, :1] / took[:, 1:], axis=0)
    chunking_ms = np.median(took[:, 0]) * 1e3
    what = f"chunking {size_bytes / 1e6:g} MB of {language}"
    with capsys.disabled():
        tell(what, f"{chunking_ms:.1f} ms, {to_numpy:.2f} x encode_to_numpy")
        assert at_most(MOST_OF_TIKTOKEN, to_list, what, "x encode_ordinary")


@pytest.mark.parametrize("language", TEXTS)
def test_ratio_of_boundary_ranks_to_its_twin(language, capsys):
    text = TEXTS[language](SMALL).encode()
    ends = tokens.byte_ends(tokens.encode(text.decode()))[:CUTS]
    took = interleaved(
        [
            lambda _, kernels=kernels: seconds(lambda: kernels.boundary_ranks(text, ends))
            for kernels in (hrag_fast, _reference)
        ],
        ROUNDS[SMALL],
    )
    ratio = np.median(took[:, 1] / took[:, 0])
    with capsys.disabled():
        tell(f"boundary_ranks, {CUTS} cuts of {language}", f"{ratio:.0f} x as fast as its twin")
    assert ratio > 1
