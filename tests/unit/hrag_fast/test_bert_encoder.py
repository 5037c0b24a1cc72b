"""The encoder of e5-small multiplies 4-bit codes exactly, and computes the vectors of its twin."""

from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hrag_fast
from hrag_fast import BertEncoder, Q4Matrix, supported_paths
from tests import twins
from tests.support.documents.e5_files import blocks, floats
from tests.twins.bert_encoder import numbers_of

PATHS = supported_paths()
WIDTH, INNER, LAYERS, ROWS, POSITIONS = 64, 96, 2, 40, 50
# The kernel rounds the numbers that are multiplied to int8, and the twin does not.
MIN_COSINE = 1 - 1e-3


def _matrix(module: ModuleType, random, depth, columns, path):
    return module.Q4Matrix(blocks(random, columns, depth, 0.05), floats(random, columns), path)


def _weights(module: ModuleType, path: str):
    random = np.random.default_rng(7)
    weights = {
        "type": floats(random, WIDTH),
        "gains": floats(random, WIDTH, 1),
        "biases": floats(random, WIDTH),
    }
    shapes = {
        "attention": (WIDTH, 3 * WIDTH),
        "output": (WIDTH, WIDTH),
        "inner": (WIDTH, INNER),
        "outer": (INNER, WIDTH),
    }
    for i in range(LAYERS):
        for name, shape in shapes.items():
            weights[f"{name}{i}"] = _matrix(module, random, *shape, path)
        for name in ("output", "outer"):
            weights[f"{name}_gains{i}"] = floats(random, WIDTH, 1)
            weights[f"{name}_biases{i}"] = floats(random, WIDTH)
    return weights


def _encoder(module: ModuleType = hrag_fast, path: str = PATHS[-1], weights=None, **changed):
    random = np.random.default_rng(8)
    arguments = {
        "table": blocks(random, ROWS, WIDTH, 0.1),
        "positions": floats(random, POSITIONS * WIDTH).reshape(POSITIONS, WIDTH),
        "weights": _weights(module, path) if weights is None else weights,
        "layer_count": LAYERS,
        "epsilon": 1e-12,
    }
    return module.BertEncoder(**(arguments | changed))


@pytest.fixture(scope="module")
def encoders() -> dict[str, BertEncoder]:
    return {path: _encoder(path=path) for path in PATHS}


def _arrays(texts: list[list[int]]):
    ids = np.array([i for text in texts for i in text], np.int32)
    return ids, np.cumsum([0, *map(len, texts)], dtype=np.int64)


texts_of_ids = st.lists(
    st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=POSITIONS), min_size=1, max_size=4
)


@st.composite
def _factors(draw):
    """Draws rows, blocks and biases. Some have the largest magnitudes, some blocks are zeros."""
    row_count, depth, columns = (
        draw(st.integers(0, 27)),
        draw(st.integers(1, 5)) * 32,
        draw(st.integers(1, 3)) * 16,
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = random.standard_normal((row_count, depth)) * draw(st.sampled_from([1e-3, 1, 1e4]))
    packed = blocks(random, columns, depth, draw(st.sampled_from([1e-4, 0.05, 50])))
    match draw(st.sampled_from(["any", "largest", "zeros"])):
        case "largest":
            rows = np.where(rows > 0, 127.0, -127.0)
            packed[:, :, 2:] = random.choice([0x00, 0xFF])
        case "zeros":
            rows[:, :32] = 0
    return rows.astype(np.float32), packed, floats(random, columns)


def _rounded(rows):
    """Returns the rows as they are multiplied: in blocks of 32 multiples of a scale."""
    parts = rows.reshape(len(rows), rows.shape[1] // 32, 32)
    scales = np.abs(parts).max(axis=2, keepdims=True) / np.float32(127)
    factors = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0, dtype=np.float32)
    return (np.rint(parts * factors).astype(np.float64) * scales).reshape(rows.shape)


@given(factors=_factors())
def test_products_are_those_of_rounded_rows(factors):
    rows, packed, biases = factors
    expected = _rounded(rows) @ numbers_of(packed).T + biases
    bound = 1e-5 * (np.abs(rows).astype(np.float64) @ np.abs(numbers_of(packed)).T + np.abs(biases))
    results = [Q4Matrix(packed, biases, path).products(rows) for path in PATHS]
    for products in results:
        assert products.dtype == np.float32
        assert (np.abs(products - expected) <= bound).all()
        assert np.array_equal(products, results[0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_the_largest_products_do_not_overflow(path, byte, value):
    packed = np.full((16, 48, 18), byte, np.uint8)
    packed[:, :, :2] = np.array([1], "<f2").view(np.uint8)
    rows = np.full((13, 48 * 32), value, np.float32)
    products = Q4Matrix(packed, np.zeros(16, np.float32), path).products(rows)
    np.testing.assert_allclose(products, 48 * 32 * value * (7 if byte else -8), rtol=1e-5)


@pytest.mark.parametrize("half", [0x0000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xFBFF])
def test_every_finite_scale_is_read(half):
    packed = np.full((16, 1, 18), 0x99, np.uint8)
    packed[:, :, :2] = np.array([half], "<u2").view(np.uint8)
    rows = np.zeros((1, 32), np.float32)
    rows[0, 5] = 127
    products = Q4Matrix(packed, np.zeros(16, np.float32)).products(rows)
    assert products[0, 0] == 127 * np.array([half], "<u2").view("<f2").astype(np.float32)[0]


@pytest.mark.parametrize("shape", [(0, 1, 18), (8, 1, 18), (17, 1, 18), (16, 0, 18), (16, 1, 17)])
def test_matrices_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="must be a multiple of 16, the second above 0, the third"):
        Q4Matrix(np.zeros(shape, np.uint8), np.zeros(shape[0], np.float32))


def test_biases_and_rows_of_other_lengths_are_refused():
    packed = np.zeros((16, 2, 18), np.uint8)
    with pytest.raises(ValueError, match="biases has 15 numbers, not 16"):
        Q4Matrix(packed, np.zeros(15, np.float32))
    with pytest.raises(ValueError, match="rows have 32 numbers, not 64"):
        Q4Matrix(packed, np.zeros(16, np.float32)).products(np.zeros((1, 32), np.float32))


def test_a_path_that_the_processor_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"path='neon': this processor has plain"):
        Q4Matrix(np.zeros((16, 1, 18), np.uint8), np.zeros(16, np.float32), "neon")


@settings(deadline=None)
@given(texts=texts_of_ids)
@example(texts=[[3] * length for length in range(1, POSITIONS + 1)])
def test_vectors_nearly_equal_those_of_the_twin_on_every_path(encoders, texts):
    arrays = _arrays(texts)
    expected = _encoder(twins).encode(*arrays)
    results = [encoder.encode(*arrays) for encoder in encoders.values()]
    for vectors in results:
        products = (vectors * expected).sum(axis=1)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        assert (products / lengths).min() >= MIN_COSINE
        assert np.array_equal(vectors, results[0])


@settings(deadline=None)
@given(texts=texts_of_ids)
def test_a_vector_does_not_depend_on_the_other_texts(encoders, texts):
    encoder = encoders[PATHS[-1]]
    together = encoder.encode(*_arrays(texts))
    assert np.array_equal(np.concatenate([encoder.encode(*_arrays([t])) for t in texts]), together)
    assert np.array_equal(encoder.encode(*_arrays(texts[::-1]))[::-1], together)


def test_a_text_has_the_same_bits_in_every_thread(encoders):
    arrays = _arrays([[1, 2, 3], [5] * POSITIONS])
    expected = encoders[PATHS[-1]].encode(*arrays)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: encoders[PATHS[-1]].encode(*arrays), range(24)):
            assert np.array_equal(result, expected)


def test_a_text_has_the_same_bits_on_every_machine(encoders):
    """Another machine may read a store, so vectors must have these fixed bits everywhere."""
    vectors = encoders[PATHS[-1]].encode(*_arrays([list(range(ROWS))]))
    assert vectors[0, :4].view("<u4").tolist() == [0xBFC1A54F, 0x3D7B711A, 0x3E06E5E5, 0xBE201905]


def test_no_texts_have_no_vectors(encoders):
    assert encoders[PATHS[-1]].encode(*_arrays([])).shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("ids", "starts", "complaint"),
    [
        ([1, 2], [0, 3], "starts must lead from 0 to 2"),
        ([1, 2], [1, 2], "starts must lead from 0 to 2"),
        ([1, 2], [], "starts must lead from 0 to 2"),
        ([1, 2], [0, 1, 1, 2], "text 1 has 0 ids; it must have 1 to 50"),
        ([1, 2], [0, 2, 1, 2], "text 1 has -1 ids"),
        ([1] * 51, [0, 51], "text 0 has 51 ids"),
        ([1, -1], [0, 2], "id -1 is not below 40"),
        ([1, 40], [0, 2], "id 40 is not below 40"),
    ],
)
def test_invalid_ids_and_starts_are_refused(encoders, ids, starts, complaint):
    with pytest.raises(ValueError, match=complaint):
        encoders[PATHS[-1]].encode(np.array(ids, np.int32), np.array(starts, np.int64))


@pytest.mark.parametrize("name", _weights(hrag_fast, PATHS[-1]))
def test_missing_weights_and_weights_of_wrong_shapes_are_refused(name):
    weights = _weights(hrag_fast, PATHS[-1])
    wrong = Q4Matrix(np.zeros((16, 1, 18), np.uint8), np.zeros(16, np.float32))
    if not isinstance(weights[name], Q4Matrix):
        wrong = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"has (the shape|3 numbers)"):
        _encoder(weights=weights | {name: wrong})
    with pytest.raises(TypeError, match=f"^{name} is"):
        _encoder(weights=weights | {name: None})
    del weights[name]
    with pytest.raises(KeyError, match=f"'{name}'"):
        _encoder(weights=weights)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"table": np.zeros((0, 2, 18), np.uint8)}, r"table has the shape \(0, 2, 18\)"),
        ({"table": np.zeros((3, 1, 18), np.uint8)}, r"table has the shape \(3, 1, 18\)"),
        ({"table": np.zeros((3, 2, 17), np.uint8)}, r"table has the shape \(3, 2, 17\)"),
        ({"positions": np.zeros((0, 64), np.float32)}, r"positions has the shape \(0, 64\)"),
        ({"positions": np.zeros((9, 0), np.float32)}, r"positions has the shape \(9, 0\)"),
        ({"positions": np.zeros((9, 48), np.float32)}, r"positions has the shape \(9, 48\)"),
    ],
)
def test_tables_of_wrong_shapes_are_refused(changed, complaint):
    with pytest.raises(ValueError, match=complaint):
        _encoder(**changed)


def test_tokens_without_any_difference_stay_finite():
    """All weights are zeros, so the variances are 0."""
    weights = {
        name: np.zeros_like(weight)
        if isinstance(weight, np.ndarray)
        else Q4Matrix(
            np.zeros((weight.shape[1], weight.shape[0] // 32, 18), np.uint8),
            np.zeros(weight.shape[1], np.float32),
        )
        for name, weight in _weights(hrag_fast, PATHS[-1]).items()
    }
    encoder = _encoder(weights=weights, table=np.zeros((3, 2, 18), np.uint8))
    assert np.array_equal(encoder.encode(*_arrays([[0, 1, 2]])), np.zeros((1, WIDTH)))
