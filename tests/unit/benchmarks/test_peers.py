"""The comparison with peers measures spans, budgets, recall and percentiles correctly."""

import mmap
import os

import numpy as np
import pytest

from benchmarks.peers import recall, tables
from benchmarks.peers.driver import Results
from benchmarks.peers.memory import pss_bytes
from benchmarks.peers.peer import FoundPassage
from benchmarks.peers.spans import find_span
from benchmarks.peers.vectors import DIMENSION, UnknownText, Vectors, key_of
from hrag.text import tokens

TEXT = "One two.  Three four.\n\nOne two.\tFünf 六。"


@pytest.mark.parametrize(
    ("passage", "start", "expected"),
    [
        ("One two.", None, (0, 8)),
        ("One two.", 23, (23, 31)),
        ("One two.", 5, (0, 8)),
        ("Three four. One two.", None, (10, 31)),
        ("  Fünf六。 ", None, (32, 39)),
        ("Five", None, None),
        ("", 3, (3, 3)),
        (" \n\n\n ", None, None),
    ],
    ids=["first", "start", "wrong start", "space", "stripped", "absent", "empty", "blank"],
)
def test_the_span_of_a_passage_is_found_in_its_document(passage, start, expected):
    assert find_span(TEXT, passage, start) == expected


def test_passages_fill_the_budget_in_order_and_the_last_is_cut():
    text = "alpha beta gamma delta epsilon zeta eta theta"
    passages = [
        FoundPassage("d", text[17:]),
        FoundPassage("d", text[:17], 0),
        FoundPassage("d", text),
    ]
    first = len(tokens.encode(text[17:]))
    context = recall.within_budget(passages, {"d": text}, first + 2)
    assert context.tokens == first + 2
    whole, (start, end) = context.spans["d"]
    assert whole == (17, len(text))
    assert start == 0
    assert text[:end] == "alpha beta"


def test_passages_in_no_document_cost_tokens_and_cover_nothing():
    context = recall.within_budget([FoundPassage("d", "elsewhere")], {"d": "here"}, 100)
    assert (context.spans, context.lost) == ({}, 1)
    assert context.tokens == len(tokens.encode("elsewhere"))


def test_a_truncated_text_ends_between_code_points():
    # Each of these characters consists of several tokens.
    text = "𠮷𠮷𠮷"
    for limit in range(1, len(tokens.encode(text)) + 1):
        truncated, count = recall.truncated(text, limit)
        assert text.startswith(truncated)
        assert count == limit


def test_recall_and_precision_count_each_character_once():
    context = recall.Context({"a": [(0, 60), (40, 100)], "b": [(0, 100)]}, 50, lost=0)
    score = recall.score(context, {"a": [(90, 110), (95, 130)], "c": [(0, 10)]})
    assert score.recall == pytest.approx(10 / 50)
    assert score.precision == pytest.approx(10 / 200)


def test_a_search_without_passages_has_no_recall_and_no_precision():
    score = recall.score(recall.Context({}, 0, lost=0), {"a": [(0, 10)]})
    assert (score.recall, score.precision) == (0, 0)


def test_the_mean_gives_every_query_the_same_weight():
    mean = recall.mean([recall.Score(1.0, 0.5, 100, 1), recall.Score(0.0, 0.0, 50, 2)])
    assert mean == recall.Score(0.5, 0.25, 75.0, 3)


@pytest.mark.parametrize(
    ("spans", "joined"),
    [
        ([], []),
        ([(5, 9), (0, 2)], [(0, 2), (5, 9)]),
        ([(0, 5), (5, 9)], [(0, 9)]),
        ([(0, 9), (2, 4)], [(0, 9)]),
    ],
)
def test_overlapping_and_touching_spans_are_joined(spans, joined):
    assert recall.union(spans) == joined


def test_percentiles_are_in_milliseconds():
    percentiles = tables.percentiles([number / 1000 for number in range(101)])
    assert (percentiles.p50, percentiles.p99, percentiles.count) == (
        pytest.approx(50),
        pytest.approx(99),
        101,
    )


def test_the_table_has_medians_and_ratios_to_the_text():
    results = Results()
    results.indexed["langchain"] = [
        {
            "leaves": 10,
            "index_s": seconds,
            "save_s": 0.5,
            "stored_bytes": 10 * DIMENSION * 4 + 3000,
            "memory_bytes": 2_000_000,
        }
        for seconds in (1.0, 9.0, 2.0)
    ]
    results.searched["langchain"] = {10: [0.001] * 4, 50: [0.002] * 4}
    *_, row = tables.times(results, text_bytes=1000)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:7] == ["10", "2.00 s", "0.50 s", "23.48 x", "3.00 x", "2 MB"]
    assert cells[7:] == ["1.00, 1.00 ms", "2.00, 2.00 ms"]


def test_the_table_marks_results_shorter_than_the_budget():
    score = {"candidates": 10, "budget": 4000, "recall": 0.5, "precision": 0.1, "lost": 0}
    results = Results(recall={"langchain": {"set": [{**score, "tokens": 2000.0}]}})
    *_, row = tables.recalls(results, 10, 4000)
    assert "0.500, 0.100 (2,000 tokens)" in row
    *_, row = tables.recalls(results, 50, 4000)
    assert "none" in row


def test_skipped_peers_are_listed():
    text = "\n".join(tables.all_tables(Results(skipped={"pgvector": "no such user"}), 1))
    assert "Not measured: PostgreSQL + pgvector: no such user" in text


def test_saved_vectors_are_read_unchanged(tmp_path):
    rows = np.random.default_rng(1).standard_normal((3, DIMENSION)).astype(np.float32)
    known = Vectors([key_of("a"), key_of("b")], rows[:2]).with_more([key_of("c")], rows[2:])
    known.save(tmp_path / "vectors.npz")
    stored = Vectors.load(tmp_path / "vectors.npz")
    assert np.array_equal(stored.rows_of(["c", "a"]), rows[[2, 0]])
    assert stored.list_of("b") == rows[1].tolist()


def test_a_text_without_a_vector_is_an_error():
    known = Vectors([], np.empty((0, DIMENSION), np.float32))
    with pytest.raises(UnknownText, match="no vector for 'unheard of'"):
        known.rows_of(["unheard of"])


def test_measured_memory_grows_by_the_bytes_that_a_process_allocates():
    before = pss_bytes([os.getpid()])
    # A mapping of its own: an array could use memory that the process has freed but still holds.
    with mmap.mmap(-1, 32_000_000) as allocated:
        allocated.write(b"x" * len(allocated))
        assert pss_bytes([os.getpid()]) - before > 0.9 * len(allocated)
